"""Config alterations on this broker: the common part of AlterConfigs and IncrementalAlterConfigs.

The two requests differ in how the new set of configs is computed. Checks run in Kafka's order: the request as a whole, the
resource, then the new set. The valid set is stored, and all subscribers of the metadata apply it.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.broker.config import BrokerConfig
from ottla.broker.requests.context_fields import log_fields
from ottla.broker.security.permission import config_denial
from ottla.metadata import changes
from ottla.metadata.configs import InvalidConfig, without_invalid
from ottla.metadata.configs.alteration import (
    APPEND,
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    DELETE,
    GROUP,
    SUBTRACT,
    TOPIC,
    Edit,
    check_edits,
    check_set,
    edited,
)
from ottla.metadata.image import Image
from ottla.metadata.metadata import Conflict, Metadata, outdated
from ottla.metadata.plans.eligibility import has_elr
from ottla.metadata.plans.topics import check_name
from ottla.metadata.refusal import MOST_RECORDS, Refused, TooLarge, check_records
from ottla.metadata.store import Change
from ottla.observability import logs
from ottla.protocol.context import RequestContext
from ottla.protocol.errors import INVALID_CONFIG, INVALID_REQUEST, NONE, UNKNOWN_TOPIC_OR_PARTITION, error
from ottla.security.operations import AclOperation
from ottla.tasks.deferred import Answer, Deferred

_logger = logging.getLogger("ottla.broker")
_NOTHING: Final[Mapping[str, str]] = {}
_KINDS: Final = {TOPIC: "topic", BROKER: "broker", GROUP: "group", CLIENT_METRICS: "client metrics"}


class Alteration(NamedTuple):
    """Alteration of one resource's configs; `replaces` is True for AlterConfigs, which replaces the whole set."""

    kind: int
    name: str
    edits: Sequence[Edit]
    replaces: bool


class Outcome(NamedTuple):
    """Result of the alteration of one resource."""

    kind: int
    name: str
    error_code: int
    error_message: str | None


class ConfigAlterations:
    """Alters the configs of resources on this broker.

    config  returns the broker's configs in force
    checks        further checks of new configs of the broker; they raise InvalidConfig
    preparations  what the checks have to wait for
    """

    def __init__(
        self,
        metadata: Metadata,
        config: Callable[[], BrokerConfig],
        node_id: int,
        checks: Sequence[Callable[[BrokerConfig], None]] = (),
        preparations: Sequence[Callable[[BrokerConfig], Answer[None]]] = (),
    ) -> None:
        self._metadata = metadata
        self._checks = checks
        self._preparations = preparations
        self._config = config
        self._node_id = node_id

    async def alter(
        self, alterations: Sequence[Alteration], context: RequestContext, *, validate_only: bool
    ) -> list[Outcome]:
        """Alter each resource on its own, one after the other: an error of one does not affect the others.

        More than 10,000 altered configs in all are refused, and none is altered, as in Apache Kafka.
        """
        times = Counter((requested.kind, requested.name) for requested in alterations)
        if sum(max(1, len(requested.edits)) for requested in alterations) > MOST_RECORDS:
            try:
                check_records(await self._count_altered(alterations, times, context))
            except TooLarge as refused:
                return [Outcome(one.kind, one.name, refused.code, refused.message) for one in alterations]
        outcomes = []
        for alteration in alterations:
            await self._metadata.tasks.pace()
            code, message = NONE, None
            try:
                if times[alteration.kind, alteration.name] > 1:
                    raise Refused(INVALID_REQUEST, "Each resource must appear at most once.")
                await self._alter(alteration, context, validate_only=validate_only)
            except Refused as refused:
                code, message = refused.code, refused.message
            outcomes.append(Outcome(alteration.kind, alteration.name, code, message))
        return outcomes

    async def _count_altered(
        self, alterations: Sequence[Alteration], times: Counter[tuple[int, str]], context: RequestContext
    ) -> int:
        """Return how many configs would be altered."""
        image, count = self._metadata.image, 0
        for alteration in alterations:
            await self._metadata.tasks.pace()
            kind, name = alteration.kind, alteration.name
            if times[kind, name] > 1 or config_denial(context, AclOperation.ALTER_CONFIGS, kind, name) != NONE:
                continue
            try:
                check_edits(alteration.edits, replaces=alteration.replaces)
                current, texts = self._plan(alteration, image)
            except Refused:
                continue
            count += len({config for config, _ in current.items() ^ texts.items()})
        return count

    async def _alter(self, alteration: Alteration, context: RequestContext, *, validate_only: bool) -> None:
        """Alter one resource. Raises Refused."""
        kind, name = alteration.kind, alteration.name
        denial = config_denial(context, AclOperation.ALTER_CONFIGS, kind, name)
        if denial != NONE:
            raise Refused(denial, None if kind in (BROKER, BROKER_LOGGER) else error(denial).message)
        check_edits(alteration.edits, replaces=alteration.replaces)
        if kind == BROKER_LOGGER and not alteration.replaces:
            _alter_loggers(alteration, self._node_id, validate_only=validate_only)
            return
        for image in self._metadata.attempts():
            current, texts = self._plan(alteration, image)
            if kind == BROKER:
                await self._check_broker(self._new_config(name, texts, image))
            if not validate_only and texts != dict(current):
                try:
                    await self._metadata.commit(_change(alteration, image, texts))
                except Conflict:
                    continue
            break
        else:
            raise outdated()
        if not validate_only:
            names = ", ".join(edit.name for edit in alteration.edits) or "no configs any more"
            where = f"{_KINDS.get(kind, kind)} {name or '(all)'}"
            fields = log_fields(context)
            _logger.info("configs of %s altered by %s: %s", where, context.requester, names, extra=fields)

    def _plan(self, alteration: Alteration, image: Image) -> tuple[Mapping[str, str], dict[str, str]]:
        """Return the current texts of a resource and the new ones, which are checked. Raises Refused."""
        try:
            current = self._current(alteration, image)
        except Refused as refused:
            if alteration.kind in (TOPIC, GROUP, CLIENT_METRICS):  # Kafka reports invalid edits first
                texts = edited(alteration.kind, _NOTHING, alteration.edits, self._config())
                if refused.code == UNKNOWN_TOPIC_OR_PARTITION:  # and invalid values
                    self._check_set(alteration, _NOTHING, texts, image)
            raise
        texts = edited(alteration.kind, _NOTHING if alteration.replaces else current, alteration.edits, self._config())
        self._check_set(alteration, current, texts, image)
        return current, texts

    async def _check_broker(self, new: BrokerConfig) -> None:
        """Check the configs that the broker would have; what must be read for that is read first. Raises Refused."""
        for prepare in self._preparations:
            prepared = prepare(new)
            if isinstance(prepared, Deferred):
                await prepared
        try:
            for check in self._checks:
                check(new)
        except InvalidConfig as cause:
            raise Refused(INVALID_REQUEST, str(cause)) from None

    def _check_set(
        self, alteration: Alteration, current: Mapping[str, str], texts: Mapping[str, str], image: Image
    ) -> None:
        check_set(
            alteration.kind,
            alteration.name,
            current,
            texts,
            alteration.edits,
            self._config(),
            has_elr=has_elr(image),
        )

    def _new_config(self, name: str, texts: Mapping[str, str], image: Image) -> BrokerConfig:
        """Return the configs of the broker with new ones of `name` (its node id; "" for all brokers). Raises Refused."""
        layers = {node: image.configs_of(BROKER, node) for node in ("", str(self._node_id))} | {name: texts}
        try:
            for_all, for_this = (
                without_invalid(layers[node], for_all=not node)[0] for node in ("", str(self._node_id))
            )
            new = self._config().with_dynamic(for_all=for_all, for_this=for_this)
            new.check()
        except InvalidConfig as cause:
            raise Refused(INVALID_REQUEST, str(cause)) from None
        return new

    def _current(self, alteration: Alteration, image: Image) -> Mapping[str, str]:
        """Return the resource's current configs. Raises Refused for a resource that cannot have configs."""
        kind, name = alteration.kind, alteration.name
        if kind == TOPIC:
            if not name:
                raise Refused(INVALID_REQUEST, "Default topic resources are not allowed.")
            check_name(name)
            topic = image.topics.get(name)
            if topic is None:
                raise Refused(UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
            return topic.configs
        if kind == BROKER:
            if name:
                _check_node(name, self._node_id, "Unexpected broker id, expected {own}, but received {name}")
        elif kind == GROUP:
            if not name:
                raise Refused(INVALID_REQUEST, "Default group resources are not allowed.")
        elif kind == CLIENT_METRICS:
            if not name:
                raise Refused(INVALID_REQUEST, "Subscription name can't be empty")
        else:
            raise Refused(INVALID_REQUEST, f"Unknown resource type {kind}")
        return image.configs_of(kind, name)


def _check_node(name: str, node_id: int, otherwise: str) -> None:
    if not name.removeprefix("-").isdecimal():
        raise Refused(INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if int(name) != node_id:
        raise Refused(INVALID_REQUEST, otherwise.format(own=node_id, name=name))


def _change(alteration: Alteration, image: Image, texts: Mapping[str, str]) -> Change:
    """Return the change that replaces the configs of a resource."""
    if alteration.kind == TOPIC:
        return changes.replace_topics(image, [image.topics[alteration.name]._replace(configs=texts)])
    return changes.configure(image, alteration.kind, alteration.name, texts)


def _alter_loggers(alteration: Alteration, node_id: int, *, validate_only: bool) -> None:
    """Set the levels of this process's loggers; they are lost at a restart (KIP-412)."""
    _check_node(alteration.name, node_id, "Unexpected node id. Expected {own}, but received {name}")
    known = logs.levels()
    for edit in alteration.edits:
        if edit.operation in (APPEND, SUBTRACT):
            verb = "APPEND" if edit.operation == APPEND else "SUBTRACT"
            raise Refused(INVALID_REQUEST, f"{verb} operation is not allowed for the BROKER_LOGGER resource")
        if edit.name not in known:
            raise Refused(INVALID_CONFIG, f"Logger {edit.name} does not exist!")
        if edit.operation == DELETE:
            if edit.name == logs.ROOT:
                raise Refused(INVALID_REQUEST, "Removing the log level of the root logger is not allowed")
        elif edit.value not in logs.LEVELS:
            text = (
                f"Cannot set the log level of {edit.name} to {edit.value} as it is not a supported log level. "
                f"Valid log levels are {', '.join(sorted(logs.LEVELS))}"
            )
            raise Refused(INVALID_CONFIG, text)
    if not validate_only:
        for edit in alteration.edits:
            logs.set_level(edit.name, None if edit.operation == DELETE else edit.value)
