"""The metadata of this broker: the current image, and the one way in which it changes.

A change that this broker makes goes through five steps, each of which may have to wait:

    plan      a handler plans on an image; the change is bound to the revisions in it (`changes`)
    turn      wait until the earlier changes of this broker are made: first in, first out
    store     write the change, if what the plan is based on is still current
    watch     the store delivers the change, like those of other brokers, in the order of revisions: the image is replaced
    delta     call the listeners, one after the other, which may pause; then the change is answered

If something that the plan is based on was changed meanwhile, by another broker or by another request of this one, `commit`
raises Conflict once the image has it, and the handler plans again what is still open (`attempts`): what was made stays made.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from ottla.environment import Cancellable, Random
from ottla.metadata.image import BrokerImage, Delta, Image, UnknownFormat
from ottla.metadata.image.deltas import apply_entries, image_from
from ottla.metadata.plans.topics import TopicPlans
from ottla.metadata.refusal import CHANGED, ChangeResult, Refused
from ottla.metadata.store import Change, ChangeOutcome, Entry, MetadataStore, Snapshot, keys
from ottla.protocol.errors import (
    KAFKA_STORAGE_ERROR,
    REQUEST_TIMED_OUT,
)
from ottla.tasks.deferred import Answer, Deferred, Failed, awaitable, completed
from ottla.tasks.scheduler import Scheduler
from ottla.tasks.turns import Turns

_logger = logging.getLogger("ottla.metadata")
PRODUCER_ID_BLOCK: Final = 1000
_ENTRIES_OF_STEP: Final = 500
"""Number of entries, and of deliveries, that are applied in one turn of the loop, if they waited."""
_FEW_KEYS: Final = 50
"""Number of keys of a change that is made in the turn in which it comes."""
_TIMEOUT_MS: Final = 30_000
"""Maximum time for the watch to deliver a change, and for a plan to be made again."""
Listener = Callable[[Delta], Answer[object]]
"""Acts on a change of the metadata; a deferred answer comes when it has. It must not wait for a commit, which waits for it."""


class Conflict(Exception):
    """A change that was not made: what its plan is based on has changed. The image has that by now."""


def outdated() -> Refused:
    """Return the error of a plan that had conflicts for the whole timeout."""
    return Refused(REQUEST_TIMED_OUT, "The metadata was changed by other brokers at the same time.")


def _is_always_valid(image: Image) -> bool:
    del image
    return True


class _Wait:
    """Wait for a condition that becomes true with a newer image; the answer is False after a timeout."""

    __slots__ = ("answer", "is_met", "timer")

    def __init__(self, is_met: Callable[[], bool], answer: Deferred[bool]) -> None:
        self.is_met = is_met
        self.answer = answer
        self.timer: Cancellable | None = None


class Metadata:
    """The metadata image, and changes to it.

    snapshot   contents of the store
    single     this broker, if it is the only one: it is live and the controller without any key in the store
    failed     called with the reason, in one line, if the store must not be used any more

    Raises UnknownFormat if a newer release has written to the store, LookupError if it has no cluster id.
    """

    def __init__(
        self,
        store: MetadataStore,
        snapshot: Snapshot,
        *,
        random: Random,
        tasks: Scheduler,
        default_partitions: Callable[[], int],
        default_replicas: Callable[[], int],
        single: BrokerImage | None = None,
        failed: Callable[[str], None] = lambda reason: _logger.error("%s", reason),
    ) -> None:
        self._store = store
        self.tasks = tasks
        self._single = single
        self._on_failure = failed
        self._listeners: tuple[Listener, ...] = ()
        self._turns = Turns(tasks)
        self._deliveries: deque[tuple[int, Sequence[Entry], bool]] = deque()
        self._is_following = False
        """True while a task applies deliveries."""
        self._is_publishing = False
        """True while the listeners act on the current image."""
        self._waits: dict[_Wait, None] = {}
        self.plans = TopicPlans(lambda: self.image, random, default_partitions, default_replicas)
        self._newest_key, self._newest_revision = "", 0
        self._next_producer_id = self._producer_ids_revision = 0
        """Value and revision of the block of producer ids: noted when a change is answered, perhaps before its delivery."""
        self._note(snapshot.entries)
        self.image = self._own(image_from(snapshot))
        if not self.image.cluster_id:
            raise LookupError("the metadata store has no cluster id")
        self.applied = snapshot.revision
        """Revision of the newest image that all listeners have acted on."""

    def follow(self, *listeners: Listener) -> None:
        """Follow the store from the snapshot on. Each change is answered when the listeners have acted on it, in this order."""
        self._listeners = listeners
        self._store.watch(self.applied, self)

    @property
    def largest_change(self) -> int:
        """Maximum number of puts, of deletions and of comparisons in one change."""
        return self._store.largest_change

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
        self._wake()

    def reloaded(self, snapshot: Snapshot) -> None:
        """Apply the differences to the whole contents; see `Watcher`."""
        self._deliveries.append((snapshot.revision, snapshot.entries, True))
        self._wake()

    def failed(self, reason: str) -> None:
        """Report a store that must not be used any more; see `Watcher`."""
        self._on_failure(reason)

    def _wake(self) -> None:
        if not self._is_following:
            self._is_following = True
            self.tasks.call(lambda: self.tasks.background(self._follow(), "the metadata"))

    async def _follow(self) -> None:
        """Apply the deliveries, each after the listeners have acted on the one before."""
        entries_of_step = 0
        try:
            while self._deliveries:
                # Few entries, such as those of a failover, are applied at once: no request sees the image between them.
                entries_of_step += 1 + len(self._deliveries[0][1])
                if entries_of_step > _ENTRIES_OF_STEP:
                    entries_of_step = 0
                    await self.tasks.sleep(0)
                revision, entries, is_whole = self._deliveries.popleft()
                if is_whole:
                    older = self._older(entries)
                    if older is not None:
                        self._end(f"the metadata store was restored from a backup: {older}")
                        return
                    entries = self._differences(revision, entries)
                try:
                    delta = apply_entries(self.image, revision, entries)
                except UnknownFormat as cause:
                    self._end(str(cause))
                    return
                self._note(entries)
                await self._publish(delta)
        finally:
            self._is_following = False

    def _end(self, reason: str) -> None:
        self._deliveries.clear()
        self._on_failure(reason)

    async def _publish(self, delta: Delta) -> None:
        """Replace the image, call the listeners, and answer those who wait for the change."""
        # The image is replaced before any listener runs, and at once: a reader between two steps of the listeners sees the
        # whole change. The answer comes after the listeners, so that a client can use a topic as soon as it is created.
        self.image = self._own(delta.image)
        self._is_publishing = True
        for listener in self._listeners:
            try:
                await awaitable(listener(delta._replace(image=self.image)), self.tasks)
            except Failed:
                pass  # it has reported the error
            except Exception as error:  # noqa: BLE001  (the image is the new one: the others must act on it)
                self.tasks.on_error("a listener of the metadata", error)
        self._is_publishing = False
        self.applied = delta.image.revision
        for wait in [wait for wait in self._waits if wait.is_met()]:
            self._answer(wait, is_met=True)

    def _older(self, entries: Sequence[Entry]) -> str | None:
        """Return how the whole contents are older than the current image, which no change can cause; None if they are not."""
        image = self.image
        for entry in entries:
            known = image.revision_of(entry.key)
            # Producer ids are noted when the change is answered, which may be before it is delivered.
            if entry.revision <= image.revision and entry.revision != known and entry.key != keys.PRODUCER_IDS:
                return f"{entry.key} is of revision {entry.revision}, and was of {known or 'none'}"
        return None

    @property
    def newest(self) -> tuple[str, int]:
        """The key that was written last, and its revision, in the current image."""
        key, written = self._newest_key, self.image.written
        if key not in written:  # deleted
            key = self._newest_key = max(written, key=self.image.revision_of, default="")
        return key, self.image.revision_of(key)

    def _differences(self, revision: int, entries: Sequence[Entry]) -> list[Entry]:
        """Return the entries that were written since the current image, and a deletion for each missing one."""
        kept = {entry.key for entry in entries}
        newer = [entry for entry in entries if entry.revision > self.image.revision_of(entry.key)]
        deleted = [Entry(key, None, revision, 0) for key in self.image.written if key not in kept]
        return [*deleted, *newer]

    def _note(self, entries: Sequence[Entry]) -> None:
        """Note the newest key, and the block of producer ids. The image is still the one before these entries."""
        newest = self._newest_revision
        for entry in entries:
            if entry.value is None:
                continue
            if entry.revision >= newest:
                self._newest_key, newest = entry.key, entry.revision
            if entry.key == keys.PRODUCER_IDS and entry.revision > self._producer_ids_revision:
                self._next_producer_id, self._producer_ids_revision = int(entry.value), entry.revision
        self._newest_revision = newest

    def when(self, is_met: Callable[[], bool], timeout_ms: int = _TIMEOUT_MS) -> Deferred[bool]:
        """Answer True once `is_met()` is true, which is looked at now and after each delivery; False after a timeout, in ms."""
        if not self._is_publishing and is_met():
            return completed(True, self.tasks)
        wait = _Wait(is_met, Deferred(self.tasks))
        self._waits[wait] = None
        wait.timer = self.tasks.call_later(timeout_ms, lambda: self._answer(wait, is_met=False))
        return wait.answer

    def _answer(self, wait: _Wait, *, is_met: bool) -> None:
        del self._waits[wait]
        if wait.timer is not None:
            wait.timer.cancel()
        wait.answer.complete(is_met)

    def when_applied(self, revision: int) -> Deferred[bool]:
        """Answer True once all listeners have acted on an image of this revision or a newer one, False after a timeout."""
        return self.when(lambda: self.applied >= revision)

    # -- planning --

    def attempts(self, timeout_ms: int = _TIMEOUT_MS) -> Iterator[Image]:
        """Yield images to plan on: the current one, then for each repetition the newest one until the end of the timeout."""
        deadline_ms = self.tasks.clock.now_ms() + timeout_ms
        yield self.image
        while self.tasks.clock.now_ms() < deadline_ms:
            yield self.image

    async def apply(self, plan: Callable[[Image], Change]) -> None:
        """Make the change that `plan` returns for the newest image; plan again after each conflict, for 30 s at most.

        Raises Refused: what `plan` raises, and the error of a change that could not be made.
        """
        for image in self.attempts():
            change = plan(image)
            try:
                await self.commit(change)
            except Conflict:
                continue
            return
        raise outdated()

    async def result_of(self, plan: Callable[[Image], Change]) -> ChangeResult:
        """Make a change like `apply`; an error is the result."""
        try:
            await self.apply(plan)
        except Refused as refused:
            return ChangeResult(refused.code, refused.message)
        return CHANGED

    async def apply_all(self, plan: Callable[[Image, int], Iterable[Change]]) -> ChangeResult:
        """Make the changes that `plan` returns for an image and the largest size of a change; plan what is left again after
        each conflict. The result is the first error.
        """
        for image in self.attempts():
            try:
                for change in plan(image, self.largest_change):
                    await self.commit(change)
            except Conflict:
                continue
            except Refused as refused:
                return ChangeResult(refused.code, refused.message)
            return CHANGED
        late = outdated()
        return ChangeResult(late.code, late.message)

    def commit(self, change: Change, is_valid: Callable[[Image], bool] = _is_always_valid) -> Deferred[None]:
        """Make a change in its turn; complete when it has taken effect here.

        is_valid  checks in the turn, on the newest image, what the plan depends on beyond the compared keys

        Fails with Conflict, when the image has what it conflicts with, and with Refused if the store cannot make it.
        """
        return awaitable(self._turns.take(lambda: self.tasks.start(self._make(change, is_valid))), self.tasks)

    async def _make(self, change: Change, is_valid: Callable[[Image], bool]) -> None:
        if len(change.put) + len(change.delete) > _FEW_KEYS:
            await self.tasks.pace()  # a request may make many such changes, one after another
        if not (change.put or change.delete or change.delete_under):
            return
        if not is_valid(self.image):
            raise Conflict
        outcome = await awaitable(self._store.change(change), self.tasks)
        if outcome.is_unknown:
            _logger.warning("a change of the metadata has an unknown outcome: %s", outcome.error)
            raise Refused(REQUEST_TIMED_OUT, outcome.error)
        if outcome.error is not None:
            _logger.error("%s; metadata cannot be changed until this is repaired", outcome.error)
            raise Refused(KAFKA_STORAGE_ERROR, outcome.error)
        if outcome.conflicts:
            await self.when(partial(self._knows, change, outcome.conflicts))
            raise Conflict
        if not await self.when_applied(outcome.revision):
            raise Refused(REQUEST_TIMED_OUT, "The metadata store did not answer in time.")

    def _knows(self, change: Change, conflicts: Mapping[str, Entry]) -> bool:
        """Return True if the image has the conflicting changes, or newer ones."""
        image = self.image
        return all(
            (key not in change.expect or image.revision_of(key) != change.expect[key])
            and (key not in change.created or image.created_of(key) != change.created[key])
            for key in conflicts
        )

    async def submit(self, change: Change) -> ChangeOutcome:
        """Write a change outside of a turn; return when a change that was made has taken effect here.

        After a failed comparison, return when the image has the conflicting changes, so that a new plan is based on them.
        """
        outcome = await awaitable(self._store.change(change), self.tasks)
        if outcome.conflicts:
            await self.when(partial(self._knows, change, outcome.conflicts))
        elif outcome.revision:
            await self.when_applied(outcome.revision)
        return outcome

    async def producer_id_block(self) -> int:
        """Reserve PRODUCER_ID_BLOCK producer ids and return the first one; -1 when the store cannot be written."""
        # This does not wait for its turn. Of two concurrent calls the second fails the comparison of revisions, and reserves
        # the next block: no process assigns an id twice. A block of unknown outcome is never used, because the comparison
        # of the next call fails if it was reserved.
        key = keys.PRODUCER_IDS
        while True:
            first = self._next_producer_id
            put = {key: str(first + PRODUCER_ID_BLOCK).encode()}
            change = Change({key: self._producer_ids_revision}, put=put)
            outcome = await awaitable(self._store.change(change), self.tasks)
            if outcome.error is not None:
                _logger.error("%s; no producer ids can be assigned", outcome.error)
                return -1
            if outcome.conflicts:
                entry = outcome.conflicts[key]
                self._next_producer_id = 0 if entry.value is None else int(entry.value)
                self._producer_ids_revision = entry.revision
                continue
            # The watch may deliver it later.
            if outcome.revision > self._producer_ids_revision:
                self._producer_ids_revision = outcome.revision
                self._next_producer_id = first + PRODUCER_ID_BLOCK
            return first
