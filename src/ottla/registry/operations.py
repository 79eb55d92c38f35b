"""Operations on schemas that take several steps: decisions on the state, checks in a worker, a write.

Registrations in one subject follow each other. Checks run beside those of other subjects; only the last decision and its write
are made one at a time, as in Confluent's registry, so that it rests on a state without pending changes.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar
from weakref import WeakValueDictionary

from ottla.client.errors import FencedError, KafkaError
from ottla.protocol.errors import MESSAGE_TOO_LARGE
from ottla.registry import checks, contracts, decisions, subjects
from ottla.registry.checks import Earlier, Reserved, Resolved
from ottla.registry.decisions import Candidate
from ottla.registry.records import Json, Record, SchemaValue
from ottla.registry.refusals import Refusal, not_leading, version_not_found
from ottla.registry.state import State, Version
from ottla.schemas.compatibility.levels import LENIENT
from ottla.schemas.registry import Reference, Schema
from ottla.schemas.tags import Entity, Tags

T = TypeVar("T")
_MOST_DEPTH: Final = 100
_MOST_REFERRED: Final = 4 << 20
"""Characters of all schemas that one refers to."""
_ATTEMPTS: Final = 3


class Posted(NamedTuple):
    """A schema as it was posted to a subject."""

    subject: str
    schema: Schema
    metadata: Json | None = None
    rule_set: Json | None = None
    id: int | None = None
    version: int | None = None


class Topic(Protocol):
    """Topic that records are written to; see `Store`."""

    @property
    def state(self) -> State:
        """Return the state that the records in the topic give."""

    @property
    def leads(self) -> bool:
        """Return whether this registry may write."""

    async def renew(self) -> None:
        """Begin to lead again if the next write would fail. Raises KafkaError."""

    async def write(self, records: Sequence[Record]) -> None:
        """Write records, and wait until the state has them. Raises KafkaError, FencedError if another registry leads."""


class Checker(Protocol):
    """Executor of checks of schemas; see `Checking`."""

    async def run(self, check: "partial[T]") -> T:
        """Return the result of a function of a module and its arguments. Raises what it raises."""


class Operations:
    """Operations of a registry that leads.

    checker     executor of checks of schemas
    timeout_ms  limit of a write; one that takes longer may still take effect
    """

    def __init__(self, topic: Topic, checker: Checker, timeout_ms: int) -> None:
        self._topic = topic
        self._checker = checker
        self._timeout_s = timeout_ms / 1000
        self._writing = asyncio.Lock()
        self._subjects: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._assigned: dict[str, int] = {}
        self._writes: set[asyncio.Task[Any]] = set()
        self._restoring: asyncio.Task[None] | None = None

    @property
    def state(self) -> State:
        """State of the registry, for reading."""
        return self._topic.state

    async def close(self) -> None:
        """Cancel writes that are under way."""
        if self._restoring is not None:
            self._restoring.cancel()
            await asyncio.gather(self._restoring, return_exceptions=True)
        for write in self._writes:
            write.cancel()
        await asyncio.gather(*self._writes, return_exceptions=True)

    def restore_soon(self) -> None:
        """Write versions again that another registry has overwritten since it lost the election, if this one leads."""
        is_free = self._restoring is None or self._restoring.done()
        if is_free and self._topic.leads and self.state.overwritten:
            self._restoring = asyncio.get_running_loop().create_task(self._restore())

    async def _restore(self) -> None:
        with contextlib.suppress(Refusal):  # the next change tries again
            await self.change(decisions.restoration)

    # Schemas.

    async def register(self, posted: Posted, *, normalize: bool, force: bool = False) -> SchemaValue:
        """Register a schema as the newest version of a subject, unless it is one already. Raises Refusal."""
        async with self._alone(posted.subject):
            candidate = self._fill_contract(await self._candidate(posted, normalize=normalize, strict=True))
            # A request that names a number asks for a new version, also of a schema that is one.
            names_number = candidate.id is None and candidate.version not in (None, 0, decisions.LATEST)
            version = None if names_number else await self._find(candidate)
            if version is not None and candidate.id in (None, version.id):
                decisions.may_register(self.state, candidate)
                return version.value
            if not self._topic.leads:
                raise not_leading()  # this state may lag behind that of the registry that decides
            decisions.may_register(self.state, candidate)
            if version is not None and candidate.version in (None, version.number):
                raise Refusal(42207, "The ID of an imported schema does not match the existing ID")
            if candidate.id is None and not force:
                reasons = await self._incompatibilities(candidate)
                if reasons:
                    raise checks.incompatible(candidate.subject, reasons)
            return await self.change(partial(self._registration, candidate))

    def _registration(self, candidate: Candidate, state: State) -> tuple[Sequence[Record], SchemaValue]:
        """Decide a registration; references may have been deleted since they were resolved."""
        self._texts_of_references(candidate.subject, candidate.schema)
        name = subjects.context_of(candidate.subject)
        next_id = max(state.context(name).highest_id, self._assigned.get(name, 0)) + 1
        registration = decisions.register(state, candidate, next_id)
        self._assigned[name] = max(self._assigned.get(name, 0), registration.value.id)
        return registration.records, registration.value

    async def look_up(self, posted: Posted, *, normalize: bool, deleted: bool) -> Version:
        """Return the version of a subject that a schema is. Raises Refusal 40401, 40403, 42201."""
        candidate = await self._candidate(posted, normalize=normalize, strict=False)
        version = await self._find(candidate, deleted=deleted)
        if version is None:
            filled = self._fill_contract(candidate)
            version = None if filled == candidate else await self._find(filled, deleted=deleted)
        if version is None:
            raise decisions.not_found(self.state, posted.subject, deleted=deleted)
        return version

    async def compatibility(self, posted: Posted, number: int | None, *, normalize: bool) -> list[str]:
        """Return why a schema is not compatible with a version, or with those that registering compares with; empty if it is.

        number  of the version; LATEST, or None for those of the subject's level

        Raises Refusal 40402, 42201.
        """
        candidate = self._fill_contract(await self._candidate(posted, normalize=normalize, strict=True))
        if number is None:
            return await self._incompatibilities(candidate)
        version = (
            self.state.latest(posted.subject)
            if number == decisions.LATEST
            else self.state.version(posted.subject, number)
        )
        if number != decisions.LATEST and (version is None or version.deleted):
            raise version_not_found(number)
        return await self._incompatibilities(candidate, [] if version is None else [version])

    async def text(self, subject: str, schema: Schema, form: str) -> str:
        """Return the text of a stored schema in a format of requests. Raises Refusal 42201."""
        resolved = self._resolve(subject, schema)
        return await self._checker.run(partial(checks.in_format, resolved, form))

    async def tags(self, schema: Schema) -> dict[Entity, list[str]]:
        """Return the tags inside a stored schema."""
        return await self._checker.run(partial(checks.tags_of, schema))

    async def change_tags(self, posted: Posted, added: Tags, removed: Tags, *, propagates: bool = False) -> Posted:
        """Return a posted schema with tags added and removed inside. Raises Refusal 42201.

        propagates  whether records and fields get the tags that they have in the latest version
        """
        latest = self.state.latest(posted.subject)
        schema = posted.schema if posted.schema.text or latest is None else latest.schema
        if propagates and latest is not None:
            schema = await self._checker.run(partial(checks.propagate_tags, schema, posted.subject, latest.schema))
        return posted._replace(
            schema=await self._checker.run(partial(checks.change_tags, schema, posted.subject, added, removed))
        )

    async def _candidate(self, posted: Posted, *, normalize: bool, strict: bool) -> Candidate:
        """Parse a schema. Raises Refusal 42201."""
        contracts.check_metadata(posted.metadata)
        contracts.check_rules(posted.rule_set)
        config = self.state.config(posted.subject)
        normalize = normalize or config.get("normalize") is True
        strict = strict and config.get("validateNewSchemas") is not False and posted.id is None
        if not posted.schema.text:
            latest = self.state.latest(posted.subject)
            if latest is None or (posted.metadata is None and posted.rule_set is None):
                raise checks.invalid(posted.schema, posted.subject, "Empty schema")
            schema = latest.schema
        else:
            resolved = self._resolve(posted.subject, posted.schema)
            validates_fields = config.get("validateFields") is True
            check = partial(
                checks.stored_form,
                resolved,
                posted.subject,
                normalize=normalize,
                strict=strict,
                validates_fields=validates_fields,
            )
            schema = await self._checker.run(check)
        return Candidate(posted.subject, schema, posted.metadata, posted.rule_set, posted.id, posted.version)

    def _fill_contract(self, candidate: Candidate) -> Candidate:
        """Return a candidate with the data contract that it gets as a version."""
        if candidate.id is not None:
            return candidate
        config, latest = self.state.config(candidate.subject), self.state.latest(candidate.subject)
        previous = (None, None) if latest is None else (latest.value.metadata, latest.value.rule_set)
        return candidate._replace(
            metadata=contracts.fill_metadata(config, candidate.metadata, previous[0]),
            rule_set=contracts.fill_rules(config, candidate.rule_set, previous[1]),
        )

    async def _find(self, candidate: Candidate, *, deleted: bool = False) -> Version | None:
        """Return the version that a schema is already: the same, or an equal one in another notation."""
        version = decisions.same_version(self.state, candidate, deleted=deleted)
        is_current = candidate.version != decisions.LATEST or version == self.state.latest(candidate.subject)
        if version is not None and is_current:
            return version
        versions = [
            version
            for version in reversed(self.state.versions(candidate.subject, deleted=deleted))
            if contracts.are_equal(version.value.metadata, candidate.metadata)
            and version.value.rule_set == candidate.rule_set
        ]
        if candidate.version == decisions.LATEST:
            versions = [version for version in versions if version == self.state.latest(candidate.subject)]
        resolved = [self._laxly_resolved(version) for version in versions]

        same = partial(checks.first_same, candidate.schema, resolved)
        index = await self._checker.run(same) if resolved else None
        return None if index is None else versions[index]

    async def _incompatibilities(self, candidate: Candidate, versions: Sequence[Version] | None = None) -> list[str]:
        """Return why a schema is not compatible with versions; None are those that registering compares with."""
        config = self.state.config(candidate.subject)
        if versions is None:
            versions, previous = decisions.earlier(self.state, candidate), self.state.latest(candidate.subject)
        else:
            previous = next(iter(versions), None)
        reserved = None
        if config.get("validateFields") is True:
            before = None if previous is None else previous.value.metadata
            reserved = Reserved(contracts.reserved_names(candidate.metadata), contracts.reserved_names(before))
        earlier = [Earlier(version.number, self._laxly_resolved(version)) for version in versions]
        compare = partial(
            checks.incompatibilities,
            self._resolve(candidate.subject, candidate.schema),
            earlier,
            str(config["compatibilityLevel"]),
            reserved=reserved,
            is_lenient=str(config.get("compatibilityPolicy")).upper() == LENIENT,
        )
        return await self._checker.run(compare)

    # References.

    def _resolve(self, subject: str, schema: Schema) -> Resolved:
        return Resolved(schema, tuple(self._texts_of_references(subject, schema).items()))

    def _laxly_resolved(self, version: Version) -> Resolved:
        """Return a stored version; what it refers to may be gone."""
        try:
            return self._resolve(version.subject, version.schema)
        except Refusal:
            return Resolved(version.schema, ())

    def _texts_of_references(self, subject: str, schema: Schema) -> dict[str, str]:
        """Return the texts of the schemas that one refers to, by name, each after its own references. Raises Refusal 42201.

        Each version is walked once, however many paths lead to it.
        """
        texts: dict[str, str] = {}
        walked: set[tuple[str, int]] = set()
        size = 0

        def walk(referring: str, references: Sequence[Reference], depth: int) -> None:
            nonlocal size
            for reference in references:
                version = self.state.follow(subjects.context_of(referring), reference)
                if version is None:
                    raise checks.invalid(schema, subject, _missing_reference(reference))
                place = (version.subject, version.number)
                if place not in walked:
                    walked.add(place)
                    size += len(version.schema.text)
                    if depth > _MOST_DEPTH or size > _MOST_REFERRED:
                        raise checks.invalid(
                            schema, subject, "its references are too many, too large or nested too deeply"
                        )
                    walk(version.subject, version.schema.references, depth + 1)
                texts.setdefault(reference.name, version.schema.text)

        walk(subject, schema.references, 0)
        return texts

    # Writing.

    @contextlib.asynccontextmanager
    async def _alone(self, subject: str) -> AsyncIterator[None]:
        """Wait for other registrations in a subject."""
        lock = self._subjects.get(subject)
        if lock is None:
            lock = self._subjects[subject] = asyncio.Lock()
        async with lock:
            yield

    async def change(self, decide: Callable[[State], tuple[Sequence[Record], T]]) -> T:
        """Decide and write, one at a time; return what was decided.

        A write that takes longer than the limit keeps the next ones waiting, until its outcome is known. Raises Refusal 50001,
        50002.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._writing.acquire()
        except TimeoutError:
            raise _timeout_refusal() from None
        write = asyncio.get_running_loop().create_task(self._write(decide))
        self._writes.add(write)
        write.add_done_callback(self._on_written)
        try:
            return await asyncio.wait_for(asyncio.shield(write), self._timeout_s)
        except TimeoutError:
            raise _timeout_refusal() from None

    def _on_written(self, write: "asyncio.Task[Any]") -> None:
        self._writing.release()
        self._writes.discard(write)
        if not write.cancelled():
            write.exception()  # its request may have ended

    async def _write(self, decide: Callable[[State], tuple[Sequence[Record], T]]) -> T:
        for _ in range(_ATTEMPTS):
            try:
                if self._topic.leads:
                    await self._topic.renew()
                if not self._topic.leads:
                    raise not_leading()
                written, result = decide(self.state)
                await self._topic.write(written)
            except FencedError:
                raise not_leading() from None
            except KafkaError as failed:
                if failed.code == MESSAGE_TOO_LARGE:
                    raise Refusal(42209, f"Register operation failed because schema is too large: {failed}") from None
                raise Refusal(50001, f"Error in the backend data store: {failed}") from None
            if written and not self._topic.leads:
                # The other registry may have decided before it has read this record, and then overwrites it.
                raise not_leading()
            if all(_has(self.state, record) for record in written):
                return result
        raise not_leading()  # a registry that knows no NOOP writes to the topic at the same time


def _has(state: State, record: Record) -> bool:
    """Return whether a version that was written is what the state has, not what another registry wrote meanwhile."""
    if not isinstance(record.value, SchemaValue):
        return True
    version = state.version(record.key.subject, record.key.version)
    return version is not None and (version.id, version.schema) == (record.value.id, record.value.schema)


def _timeout_refusal() -> Refusal:
    return Refusal(50002, "Register operation timed out")


def _missing_reference(reference: Reference) -> str:
    return f'No schema reference found for subject "{reference.subject}" and version {reference.version}'
