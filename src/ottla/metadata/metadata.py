"""The metadata of this broker: the current image, and the one way in which it changes.

A change that this broker plans goes through four steps, each of which may have to wait:

    turn      wait until all earlier changes of this broker have taken effect, so that the plan is based on the newest image
    store     write the change, if what the plan is based on is still current
    watch     the store delivers the change, like those of other brokers, in the order of revisions: the image is replaced
    delta     call the listeners, in pieces if they have much to do; then the change is answered

If another broker has changed something that the plan is based on, the store refuses the change. The work of the turn is then
done again on the newer image, so that the requester sees an error only if the new plan is refused.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final, TypeVar

from ottla.environment import Random
from ottla.metadata import keys
from ottla.metadata.alteration import BROKER
from ottla.metadata.deltas import advanced, loaded
from ottla.metadata.image import BrokerImage, Delta, Image, PartitionImage, TopicImage, UnknownFormat
from ottla.metadata.refusal import CHANGED, ChangeResult, Refused
from ottla.metadata.store import Change, ChangeOutcome, Entry, MetadataStore, Snapshot
from ottla.metadata.stored import stored
from ottla.metadata.topic_plans import TopicPlans
from ottla.protocol.errors import (
    KAFKA_STORAGE_ERROR,
    NONE,
    REQUEST_TIMED_OUT,
    UNKNOWN_TOPIC_OR_PARTITION,
    error,
)
from ottla.security.acls import Acl
from ottla.security.delegation_tokens import DelegationToken
from ottla.security.quotas import Entity
from ottla.security.scram import ScramCredential
from ottla.tasks.answers import Steps, after, in_sequence
from ottla.tasks.deferred import Answer, Deferred
from ottla.tasks.queue import CallbackQueue
from ottla.tasks.turns import Turns

_logger = logging.getLogger("ottla.metadata")
PRODUCER_ID_BLOCK: Final = 1000
_DELIVERIES_A_STEP: Final = 50
"""Number of deliveries that are applied in one turn of the loop, if they waited."""
_TIMEOUT_MS: Final = 30_000
"""Maximum time for the watch to deliver a change, and for a plan to be made again."""
_OUTDATED: Final = ChangeResult(REQUEST_TIMED_OUT, "The metadata was changed by other brokers at the same time.")
_NOT_DELIVERED: Final = ChangeResult(REQUEST_TIMED_OUT, "The metadata store did not answer in time.")
R = TypeVar("R")
Listener = Callable[[Delta], Steps | None]


def _run_at_once(steps: Steps, done: Callable[[], None]) -> None:
    for _ in steps:
        pass
    done()


class _Wait:
    """Wait for a condition that becomes true with a newer image; the answer is False after a timeout."""

    __slots__ = ("answer", "is_met")

    def __init__(self, is_met: Callable[[], bool], tasks: CallbackQueue) -> None:
        self.is_met = is_met
        self.answer: Deferred[bool] = Deferred(tasks)


class Metadata:
    """The metadata image, and changes to it.

    snapshot   contents of the store
    single     this broker, if it is the only one: it is live and the controller without any key in the store
    run_steps  runs work in pieces, then calls back; by default all pieces at once
    failed     called with the reason, in one line, if the store must not be used any more

    Raises UnknownFormat if a newer release has written to the store, LookupError if it has no cluster id.
    """

    def __init__(
        self,
        store: MetadataStore,
        snapshot: Snapshot,
        random: Random,
        tasks: CallbackQueue,
        default_partitions: Callable[[], int],
        default_replicas: Callable[[], int],
        single: BrokerImage | None = None,
        run_steps: Callable[[Steps, Callable[[], None]], None] = _run_at_once,
        failed: Callable[[str], None] = lambda reason: _logger.error("%s", reason),
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._single = single
        self._run_steps = run_steps
        self._on_failure = failed
        self._listeners: list[Listener] = []
        self._turns = Turns(tasks)
        self._is_outdated = False
        """True if a change of the current turn was refused because its plan is based on an old image."""
        self._deliveries: deque[tuple[int, Sequence[Entry], bool]] = deque()
        self._is_publishing = False
        self._is_looping = False
        self._waits: dict[_Wait, None] = {}
        self.plans = TopicPlans(lambda: self.image, random, default_partitions, default_replicas)
        self._revisions = {entry.key: entry.revision for entry in snapshot.entries}
        self._created = {entry.key: entry.created for entry in snapshot.entries}
        self._newest_key = ""
        self._next_producer_id = 0
        for entry in snapshot.entries:
            self._note_producer_ids(entry)
        self.image = self._own(loaded(snapshot))
        if not self.image.cluster_id:
            raise LookupError("the metadata store has no cluster id")
        self.applied = snapshot.revision
        """Revision of the newest image that all listeners have acted on."""
        store.watch(snapshot.revision, self)

    @property
    def is_single(self) -> bool:
        """True if this broker is the only one, and not a member of a cluster."""
        return self._single is not None

    def _own(self, image: Image) -> Image:
        """Return the image with this broker in it, if it is the only one."""
        single = self._single
        if single is None:
            return image
        return image._replace(
            brokers={single.node_id: single}, registered={single.node_id: single}, controller_id=single.node_id
        )

    # -- deliveries of the store --

    def changed(self, revision: int, entries: Sequence[Entry]) -> None:
        """Apply changes that the store delivers; see `Watcher`."""
        self._deliveries.append((revision, entries, False))
        self._tasks.call(self._publish)

    def reloaded(self, snapshot: Snapshot) -> None:
        """Apply the differences to the whole contents; see `Watcher`."""
        self._deliveries.append((snapshot.revision, snapshot.entries, True))
        self._tasks.call(self._publish)

    def failed(self, reason: str) -> None:
        """Report a store that must not be used any more; see `Watcher`."""
        self._on_failure(reason)

    def _publish(self) -> None:
        """Apply the deliveries, each after the listeners have acted on the one before; some of them in each turn of the loop.

        Listeners that act at once come back here from within the loop, which goes on then: thousands of deliveries may wait.
        """
        if self._is_looping:
            return
        self._is_looping = True
        try:
            self._publish_some()
        finally:
            self._is_looping = False
        if self._deliveries and not self._is_publishing:
            self._run_steps(iter((None,)), self._publish)

    def _publish_some(self) -> None:
        for _ in range(_DELIVERIES_A_STEP):
            if not self._deliveries or self._is_publishing:
                return
            revision, entries, is_whole = self._deliveries.popleft()
            if is_whole:
                older = self._older(entries)
                if older is not None:
                    self._deliveries.clear()
                    self._on_failure(f"the metadata store was restored from a backup: {older}")
                    return
                entries = self._differences(revision, entries)
            try:
                delta = advanced(self.image, revision, entries)
            except UnknownFormat as cause:
                self._deliveries.clear()
                self._on_failure(str(cause))
                return
            self._note_revisions(entries)
            # The image is replaced before any listener runs, and at once: a reader between two steps of the listeners sees
            # the whole change. The answer comes after the listeners, so that a client can use a topic as soon as it is created.
            self.image = self._own(delta.image)
            self._is_publishing = True
            self._run_steps(self._act_on(delta._replace(image=self.image)), partial(self._published, revision))

    def _older(self, entries: Sequence[Entry]) -> str | None:
        """Return how the whole contents are older than the current image, which no change can cause; None if they are not."""
        for entry in entries:
            known = self._revisions.get(entry.key, 0)
            # Producer ids are noted when the change is answered, which may be before it is delivered.
            if entry.revision <= self.image.revision and entry.revision != known and entry.key != keys.PRODUCER_IDS:
                return f"{entry.key} is of revision {entry.revision}, and was of {known or 'none'}"
        return None

    @property
    def newest(self) -> tuple[str, int]:
        """The key that was written last, and its revision, in the current image."""
        key = self._newest_key
        if key not in self._revisions:  # deleted
            key = self._newest_key = max(self._revisions, key=self._revisions.__getitem__, default="")
        return key, self._revisions.get(key, 0)

    def _differences(self, revision: int, entries: Sequence[Entry]) -> list[Entry]:
        """Return the entries that were written since the current image, and a deletion for each missing one."""
        kept = {entry.key for entry in entries}
        newer = [entry for entry in entries if entry.revision > self._revisions.get(entry.key, 0)]
        deleted = [Entry(key, None, revision, 0) for key in self._revisions if key not in kept]
        return [*deleted, *newer]

    def _note_revisions(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            if entry.value is None:
                self._revisions.pop(entry.key, None)
                self._created.pop(entry.key, None)
            else:
                if entry.revision >= self._revisions.get(self._newest_key, 0):
                    self._newest_key = entry.key
                self._revisions[entry.key] = entry.revision
                self._created[entry.key] = entry.created
                self._note_producer_ids(entry)

    def _note_producer_ids(self, entry: Entry) -> None:
        if entry.key == keys.PRODUCER_IDS and entry.value is not None:
            self._next_producer_id = int(entry.value)

    def _act_on(self, delta: Delta) -> Steps:
        # In the order of subscription, one after the other; the list may grow meanwhile.
        for listener in self._listeners:
            steps = listener(delta)
            if steps is not None:
                yield from steps

    def _published(self, revision: int) -> None:
        self._is_publishing = False
        self.applied = revision
        met = [wait for wait in self._waits if wait.is_met()]
        for wait in met:
            del self._waits[wait]
        for wait in met:
            wait.answer.complete(True)
        self._publish()

    def when(self, is_met: Callable[[], bool], timeout_ms: int = _TIMEOUT_MS) -> Answer[bool]:
        """Answer True once `is_met()` is true, which is looked at now and after each delivery; False after a timeout, in ms."""
        if not self._is_publishing and is_met():
            return True
        wait = _Wait(is_met, self._tasks)
        self._waits[wait] = None

        def time_out() -> None:
            if wait in self._waits:
                del self._waits[wait]
                wait.answer.complete(False)

        timer = self._tasks.call_later(timeout_ms, time_out)

        def answered(in_time: bool) -> bool:
            timer.cancel()
            return in_time

        return after(wait.answer, answered)

    def when_applied(self, revision: int) -> Answer[bool]:
        """Answer True once all listeners have acted on an image of this revision or a newer one, False after a timeout."""
        return self.when(lambda: self.applied >= revision)

    # -- planning --

    def subscribe(self, listener: Listener) -> None:
        """Call `listener` with every later delta. The steps that it returns are run in pieces; a change is answered when all
        listeners have finished.
        """
        self._listeners.append(listener)

    def revision_of(self, key: str) -> int:
        """Return the revision at which a key was last written, in the current image; 0 if it does not exist."""
        return self._revisions.get(key, 0)

    def created_of(self, key: str) -> int:
        """Return the revision at which a key was created, in the current image; 0 if it does not exist."""
        return self._created.get(key, 0)

    def in_turn(self, change: Callable[[], Answer[R]]) -> Answer[R]:
        """Run `change` after all earlier changes have taken effect, so that its plan is based on their image.

        It is run again on a newer image if the store has refused a change that it made: it must not have other effects than
        changes of the metadata, and making the same change twice must be the same as making it once.
        """
        is_late = False

        def attempt() -> Answer[R]:
            self._is_outdated = False
            return after(change(), finished)

        def finished(result: R) -> Answer[R]:
            if not self._is_outdated or is_late:
                return result
            return attempt()

        def time_out() -> None:
            nonlocal is_late
            is_late = True

        def begin() -> Answer[R]:
            answer = attempt()
            if isinstance(answer, Deferred):
                timer = self._tasks.call_later(_TIMEOUT_MS, time_out)

                def ended(result: R) -> R:
                    timer.cancel()
                    return result

                return after(answer, ended)
            return answer

        return self._turns.take(begin)

    def decide(self, change: Callable[[], Answer[ChangeResult]]) -> Answer[ChangeResult]:
        """Run `change` like `in_turn`; if it raises `Refused`, that error is the result."""

        def decided() -> Answer[ChangeResult]:
            try:
                return change()
            except Refused as refused:
                return ChangeResult(refused.code, refused.message)

        return self.in_turn(decided)

    def commit(self, change: Change) -> Answer[ChangeResult]:
        """Write a change that is based on the current image; the answer comes when it has taken effect here.

        Only in a turn (`in_turn`, `decide`), which is repeated if a comparison of the change fails.
        """
        return after(self._store.change(change), partial(self._written, change))

    def _written(self, change: Change, outcome: ChangeOutcome) -> Answer[ChangeResult]:
        if outcome.is_unknown:
            _logger.warning("a change of the metadata has an unknown outcome: %s", outcome.error)
            return ChangeResult(REQUEST_TIMED_OUT, outcome.error)
        if outcome.error is not None:
            _logger.error("%s; metadata cannot be changed until this is repaired", outcome.error)
            return ChangeResult(KAFKA_STORAGE_ERROR, outcome.error)
        if outcome.conflicts:
            self._is_outdated = True
            return after(self.when(partial(self._knows, change, outcome.conflicts)), lambda _: _OUTDATED)
        return after(self.when_applied(outcome.revision), lambda in_time: CHANGED if in_time else _NOT_DELIVERED)

    def _knows(self, change: Change, conflicts: Mapping[str, Entry]) -> bool:
        """Return True if the image has the conflicting changes, or newer ones."""
        return all(
            (key not in change.expect or self.revision_of(key) != change.expect[key])
            and (key not in change.created or self.created_of(key) != change.created[key])
            for key in conflicts
        )

    def submit(self, change: Change) -> Answer[ChangeOutcome]:
        """Write a change outside of a turn; the answer comes when a change that was made has taken effect here.

        After a failed comparison it comes when the image has the conflicting changes, so that a new plan is based on them.
        """

        def written(outcome: ChangeOutcome) -> Answer[ChangeOutcome]:
            if outcome.conflicts:
                return after(self.when(partial(self._knows, change, outcome.conflicts)), lambda _: outcome)
            if outcome.revision:
                return after(self.when_applied(outcome.revision), lambda _: outcome)
            return outcome

        return after(self._store.change(change), written)

    def _write(self, put: Mapping[str, bytes], delete: Sequence[str] = ()) -> Answer[ChangeResult]:
        """Put and delete keys that no other broker has changed since the current image."""
        if not put and not delete:
            return CHANGED
        expect = {key: self.revision_of(key) for key in (*put, *delete)}
        return self.commit(Change(expect, put=put, delete=delete))

    # -- topics --

    def create(self, topics: Sequence[TopicImage]) -> Answer[ChangeResult]:
        """Create planned topics, all or none if the store takes them in one change."""
        changes: list[Change] = []
        for chunk in _chunks(topics, self._store.largest_change):
            put: dict[str, bytes] = {}
            expect: dict[str, int] = {}
            for topic in chunk:
                expect[keys.TOPICS + topic.name] = 0
                put |= stored(topic)
            changes.append(Change(expect, self._live_replicas(chunk), put=put))
        return self._commit_all(changes)

    def _live_replicas(self, topics: Sequence[TopicImage]) -> dict[str, int]:
        """Return the comparisons that every replica of new partitions is still live: a new partition has all in sync."""
        if self._single is not None:
            return {}
        nodes = {node for topic in topics for partition in topic.partitions for node in partition.isr}
        return {key: self.created_of(key) for key in (keys.live_key(node) for node in sorted(nodes))}

    def _commit_all(self, changes: Sequence[Change]) -> Answer[ChangeResult]:
        """Write several changes, one after the other; the result is the first error."""
        if len(changes) == 1:
            return self.commit(changes[0])

        def result(results: list[ChangeResult]) -> ChangeResult:
            return next((failure for failure in results if failure.error_code != NONE), CHANGED)

        return after(in_sequence(partial(self.commit, change) for change in changes), result)

    def change(self, *topics: TopicImage) -> Answer[ChangeResult]:
        """Replace the configs and the assignment of existing topics, and put the states of added partitions that need a key.

        The answer is UNKNOWN_TOPIC_OR_PARTITION if one was deleted meanwhile.
        """
        put: dict[str, bytes] = {}
        added: list[TopicImage] = []
        for topic in topics:
            current = self.image.topics.get(topic.name)
            if current is None or current.id != topic.id:
                return _unknown_topic()
            put |= stored(topic, len(current.partitions))
            added.append(topic._replace(partitions=topic.partitions[len(current.partitions) :]))
        if not put:
            return CHANGED
        expect = {key: self.revision_of(key) for key in put}
        return self.commit(Change(expect, self._live_replicas(added), put=put))

    def change_partition(self, topic: TopicImage, index: int, partition: PartitionImage) -> Answer[ChangeResult]:
        """Replace the state of a partition."""
        return self.commit(self.partition_changes([(topic, index, partition)]))

    def change_partitions(self, states: Sequence[tuple[TopicImage, int, PartitionImage]]) -> Answer[list[ChangeResult]]:
        """Replace the states of several partitions, in several changes if the store demands it; return the result of each."""
        largest = max(1, min(self._store.largest_change // 2, len(states)))  # each is compared with its topic, too
        chunks = [states[first : first + largest] for first in range(0, len(states), largest)]
        changes = [self.partition_changes(chunk) for chunk in chunks]

        def by_state(results: list[ChangeResult]) -> list[ChangeResult]:
            return [result for chunk, result in zip(chunks, results, strict=True) for _ in chunk]

        return after(in_sequence(partial(self.commit, change) for change in changes), by_state)

    def partition_changes(
        self, states: Iterable[tuple[TopicImage, int, PartitionImage]], created: Mapping[str, int] | None = None
    ) -> Change:
        """Return the change that replaces states of partitions, planned on the current image.

        created  further comparisons, see `Change.created`

        The topics are compared by their creation: otherwise a state could be written after its topic was deleted.
        """
        put: dict[str, bytes] = {}
        topics: dict[str, int] = {}
        for topic, index, state in states:
            put[keys.partition_key(topic.id, index)] = state.encoded()
            topic_key = keys.TOPICS + topic.name
            topics[topic_key] = self.created_of(topic_key)
        return Change({key: self.revision_of(key) for key in put}, {**topics, **(created or {})}, put=put)

    def assign_directory(self, topic_id: bytes, index: int, node_id: int, directory_id: bytes) -> Answer[ChangeResult]:
        """Record which log directory of a broker a partition's replica is in (KIP-858).

        The answer is UNKNOWN_TOPIC_OR_PARTITION if the topic was deleted meanwhile.
        """
        topic = self.image.topics_by_id.get(topic_id)
        if topic is None or node_id not in topic.partitions[index].replicas:
            return _unknown_topic()
        return self.change_partition(topic, index, topic.partitions[index].assigned(node_id, directory_id))

    def delete(self, topics: Sequence[TopicImage]) -> Answer[ChangeResult]:
        """Delete topics that exist, with the states of their partitions."""
        changes = []
        for chunk in _chunks(topics, self._store.largest_change // 2):
            names = [keys.TOPICS + topic.name for topic in chunk]
            states = [keys.partitions_key(topic.id) for topic in chunk]
            expect = {key: self.revision_of(key) for key in names}
            changes.append(Change(expect, delete=names, delete_under=states))
        return self._commit_all(changes) if changes else CHANGED

    # -- other resources --

    def unregister(self, node_id: int) -> Answer[ChangeResult]:
        """Remove the registration of a broker that is not live."""
        key = keys.broker_key(node_id)
        return self.commit(Change({key: self.revision_of(key)}, {keys.live_key(node_id): 0}, delete=[key]))

    def configure(self, kind: int, name: str, texts: Mapping[str, str]) -> Answer[ChangeResult]:
        """Replace the configs of a broker ("" for all of them), group or client-metrics subscription by `texts`."""
        key = keys.config_key(kind, name)
        return self._write({key: keys.compact(dict(texts))}) if texts else self._write({}, [key])

    def set_quotas(self, changed: Mapping[Entity, Mapping[str, float]]) -> Answer[ChangeResult]:
        """Replace the quotas of each entity; an empty mapping removes all of them."""
        put = {keys.quota_key(entity): keys.compact(dict(values)) for entity, values in changed.items() if values}
        return self._write(put, [keys.quota_key(entity) for entity, values in changed.items() if not values])

    def set_features(
        self, levels: Mapping[str, int], configs: Mapping[str, Mapping[str, str]] = MappingProxyType({})
    ) -> Answer[ChangeResult]:
        """Finalize feature levels; features that are not named keep their levels.

        configs  configs of brokers that are replaced in the same change, by node id as text, "" for all brokers
        """
        put, removed = keys.feature_levels(levels), []
        for name, texts in configs.items():
            key = keys.config_key(BROKER, name)
            if texts:
                put[key] = keys.compact(dict(texts))
            else:
                removed.append(key)
        return self._write(put, removed)

    def set_credentials(self, changed: Mapping[tuple[str, int], ScramCredential | None]) -> Answer[ChangeResult]:
        """Set credentials by user and mechanism; None removes one."""
        put = {keys.scram_key(*user): credential.encoded() for user, credential in changed.items() if credential}
        return self._write(put, [keys.scram_key(*user) for user, credential in changed.items() if credential is None])

    def set_tokens(self, changed: Mapping[str, DelegationToken | None]) -> Answer[ChangeResult]:
        """Set delegation tokens by id; None removes one."""
        put = {keys.TOKENS + token_id: token.encoded() for token_id, token in changed.items() if token is not None}
        return self._write(put, [keys.TOKENS + token_id for token_id, token in changed.items() if token is None])

    def set_acls(self, added: Iterable[Acl], removed: Iterable[Acl] = ()) -> Answer[ChangeResult]:
        """Add and remove ACLs, in several changes if the store demands it. Those that are there, or are not, are skipped."""
        changed: dict[str, bytes | None] = {keys.acl_key(acl): acl.encoded() for acl in added}
        changed |= dict.fromkeys(map(keys.acl_key, removed))
        missing = [key for key, value in changed.items() if (value is None) == (key in self.image.acls)]
        changes = []
        for first in range(0, len(missing), self._store.largest_change):
            chunk = missing[first : first + self._store.largest_change]
            put = {key: value for key in chunk if (value := changed[key]) is not None}
            delete = [key for key in chunk if changed[key] is None]
            changes.append(Change({key: self.revision_of(key) for key in chunk}, put=put, delete=delete))
        return self._commit_all(changes) if changes else CHANGED

    def producer_id_block(self) -> Answer[int]:
        """Reserve PRODUCER_ID_BLOCK producer ids and answer the first one; -1 when the store cannot be written."""
        # This does not wait for its turn. Of two concurrent calls the second fails the comparison of revisions, and reserves
        # the next block: no process assigns an id twice. A block of unknown outcome is never used, because the comparison
        # of the next call fails if it was reserved.
        first, key = self._next_producer_id, keys.PRODUCER_IDS

        def written(outcome: ChangeOutcome) -> Answer[int]:
            if outcome.error is not None:
                _logger.error("%s; no producer ids can be assigned", outcome.error)
                return -1
            if outcome.conflicts:
                entry = outcome.conflicts[key]
                self._next_producer_id = 0 if entry.value is None else int(entry.value)
                self._revisions[key] = entry.revision
                return self.producer_id_block()
            # The watch may deliver it later.
            if outcome.revision > self._revisions.get(key, 0):
                self._revisions[key] = outcome.revision
                self._next_producer_id = first + PRODUCER_ID_BLOCK
            return first

        put = {key: str(first + PRODUCER_ID_BLOCK).encode()}
        return after(self._store.change(Change({key: self.revision_of(key)}, put=put)), written)


def _chunks(topics: Sequence[TopicImage], largest: int) -> list[list[TopicImage]]:
    """Split topics so that the puts of each part are at most `largest`; a topic with more is a part of its own."""
    chunks: list[list[TopicImage]] = []
    room = 0
    for topic in topics:
        size = 1 + sum(not topic.has_default(partition) for partition in topic.partitions)
        if not chunks or size > room:
            chunks.append([])
            room = largest
        chunks[-1].append(topic)
        room -= size
    return chunks


def _unknown_topic() -> ChangeResult:
    return ChangeResult(UNKNOWN_TOPIC_OR_PARTITION, error(UNKNOWN_TOPIC_OR_PARTITION).message)
