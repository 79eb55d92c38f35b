"""A metadata store in memory that several brokers share: for a cluster in one process, and for simulations.

`SharedMetadata` is the server: entries, leases and the history of changes. Each broker has a connection to it, a
`MemoryMetadataStore`. A request, an answer and a delivery to a watcher each travel for a latency, in order, so that no code of
a broker is called from within the code of another one:

    broker --- change ---> _Pipe ---> SharedMetadata
       ^                                |  deliveries to all connections, then the answer
       '---------------- _Pipe <--------'

Faults, for simulations: a connection that is cut, one that skips revisions, and a store that is frozen like an etcd without a
quorum, or compacted.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

from ottla.environment import Clock, Timers
from ottla.metadata.store import Change, ChangeOutcome, Entry, LeaseOutcome, Snapshot, Watcher
from ottla.metadata.store.validity import check
from ottla.tasks.alarm import Alarm
from ottla.tasks.deferred import Answer, Deferred
from ottla.tasks.queue import CallbackQueue

R = TypeVar("R")
_LONGEST_HISTORY: Final = 10_000
"""Maximum number of revisions kept for watchers; one that is further behind is given the whole contents."""
_TIMED_OUT: Final = "the metadata store did not answer in time"


class _Lease(NamedTuple):
    """Lease that ends at `deadline_ms` unless it is renewed."""

    ttl_ms: int
    deadline_ms: int


class SharedMetadata:
    """The data of a store in memory, shared by the connections of several brokers."""

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self.revision = 0
        self._clock = clock
        self._timers = timers
        self._entries: dict[str, Entry] = {}
        self._leases: dict[int, _Lease] = {}
        self._newest_lease = 0
        self._history: list[dict[str, Entry]] = []
        """Entries changed by each revision after `_compacted`."""
        self._compacted = 0
        self._connections: list[MemoryMetadataStore] = []
        self._frozen: list[Callable[[], None]] | None = None
        """Requests that wait for `thaw`; None if the store is not frozen."""
        self._alarm = Alarm(self._end_expired, clock, timers)

    def connect(
        self,
        *,
        latency: Callable[[], int] = lambda: 0,
        skip: Callable[[], bool] = lambda: False,
        timeout_ms: int = 2000,
        timers: Timers | None = None,
        tasks: CallbackQueue | None = None,
    ) -> "MemoryMetadataStore":
        """Open the connection of one broker.

        timers      timers of the broker, if it runs on another event loop than the store: then they are thread-safe
        tasks       queue of the broker
        latency     returns the milliseconds that the next request, answer or delivery takes
        skip        returns True if the next revision is delivered together with later ones
        timeout_ms  time after which a request without an answer fails
        """
        connection = MemoryMetadataStore(
            self,
            self._timers,
            timers or self._timers,
            tasks or CallbackQueue(timers or self._timers),
            latency,
            skip,
            timeout_ms,
        )
        self._connections.append(connection)
        return connection

    # -- faults --

    def freeze(self) -> None:
        """Stop serving: requests wait, and no lease ends."""
        if self._frozen is None:
            self._frozen = []
            self._alarm.cancel()

    def thaw(self) -> None:
        """Serve the requests that wait, in order. Every lease is renewed, as by a new leader of etcd."""
        waiting, self._frozen = self._frozen or [], None
        for lease in list(self._leases):
            self.renew(lease)
        for serve in waiting:
            serve()

    def compact(self) -> None:
        """Drop the history: a watcher that has not received all of it is given the whole contents instead."""
        self._history.clear()
        self._compacted = self.revision

    # -- requests that have arrived --

    def submit(self, serve: Callable[[], None]) -> None:
        """Serve a request, at `thaw` if the store is frozen."""
        if self._frozen is None:
            serve()
        else:
            self._frozen.append(serve)

    def snapshot(self) -> Snapshot:
        """Return the contents."""
        return Snapshot([self._entries[key] for key in sorted(self._entries)], self.revision)

    def change(self, change: Change) -> ChangeOutcome:
        """Carry out a transaction, and announce it to all connections."""
        compared = [(key, self._entry(key).revision, revision) for key, revision in change.expect.items()]
        compared += [(key, self._entry(key).created, created) for key, created in change.created.items()]
        conflicts = {key: self._entry(key) for key, actual, expected in compared if actual != expected}
        if conflicts:
            return ChangeOutcome(0, MappingProxyType(conflicts))
        if change.put and change.lease and change.lease not in self._leases:
            return ChangeOutcome(0, error=f"the lease {change.lease} has ended")
        under = tuple(change.delete_under)
        ending = [key for key in self._entries if key in change.delete or key.startswith(under)]
        revision = self.revision + 1
        changed = {key: Entry(key, None, revision, 0) for key in ending}
        for key, value in change.put.items():
            changed[key] = Entry(key, value, revision, self._entry(key).created or revision, change.lease)
        self._apply(changed)
        return ChangeOutcome(revision)

    def grant(self, ttl_ms: int) -> LeaseOutcome:
        """Create a lease."""
        self._newest_lease += 1
        self._leases[self._newest_lease] = _Lease(ttl_ms, 0)
        return self.renew(self._newest_lease)

    def renew(self, lease: int) -> LeaseOutcome:
        """Renew a lease."""
        if lease not in self._leases:
            return LeaseOutcome(0)
        ttl_ms = self._leases[lease].ttl_ms
        self._leases[lease] = _Lease(ttl_ms, self._clock.now_ms() + ttl_ms)
        self._alarm.set(self._leases[lease].deadline_ms)
        return LeaseOutcome(lease)

    def revoke(self, lease: int) -> bool:
        """End a lease, and delete its keys."""
        self._leases.pop(lease, None)
        ending = [entry.key for entry in self._entries.values() if lease and entry.lease == lease]
        if ending:
            self._apply({key: Entry(key, None, self.revision + 1, 0) for key in ending})
        return True

    # -- for the connections --

    def changes(self, after: int, upto: int) -> list[Entry] | None:
        """Return the newest entry of each key changed after a revision, by key; None if that history was dropped."""
        if after < self._compacted:
            return None
        newest: dict[str, Entry] = {}
        for changed in self._history[after - self._compacted : upto - self._compacted]:
            newest.update(changed)
        return [newest[key] for key in sorted(newest)]

    def disconnect(self, connection: "MemoryMetadataStore") -> None:
        """Announce no more changes to a connection."""
        if connection in self._connections:
            self._connections.remove(connection)

    def _entry(self, key: str) -> Entry:
        return self._entries.get(key) or Entry(key, None, 0, 0)

    def _apply(self, changed: dict[str, Entry]) -> None:
        """Make a revision of changed entries, and announce it."""
        self.revision += 1
        if len(self._history) == _LONGEST_HISTORY:
            del self._history[: _LONGEST_HISTORY // 2]
            self._compacted = self.revision - 1 - len(self._history)
        self._history.append(changed)
        for key, entry in changed.items():
            if entry.value is None:
                del self._entries[key]
            else:
                self._entries[key] = entry
        for connection in self._connections:
            connection.announce(self.revision)

    def _end_expired(self) -> None:
        """End the leases whose time is over, each with its own revision."""
        now = self._clock.now_ms()
        for lease in [lease for lease, held in self._leases.items() if held.deadline_ms <= now]:
            self.revoke(lease)
        for held in self._leases.values():
            self._alarm.set(held.deadline_ms)


class _Pipe:
    """One direction of a connection: messages arrive in the order in which they were sent."""

    def __init__(self, timers: Timers, latency: Callable[[], int]) -> None:
        self._timers = timers
        self._latency = latency
        self._messages: deque[Callable[[], None]] = deque()
        self._cuts = 0

    def send(self, arrive: Callable[[], None], *, delay_ms: int = 0) -> None:
        """Call `arrive` after the latency, or earlier if a later message is faster: it takes this one along."""
        self._messages.append(arrive)
        self._timers.call_later(self._latency() + delay_ms, partial(self._deliver, self._cuts))

    def cut(self) -> None:
        """Lose all messages under way."""
        self._messages.clear()
        self._cuts += 1

    def _deliver(self, cuts: int) -> None:
        # There are as many timers as messages, so the oldest message needs no check of its own time.
        if cuts == self._cuts:
            self._messages.popleft()()


class MemoryMetadataStore:
    """Connection of one broker to `SharedMetadata`; an implementation of `MetadataStore`."""

    largest_change: Final = 1000

    def __init__(
        self,
        shared: SharedMetadata,
        store_timers: Timers,
        timers: Timers,
        tasks: CallbackQueue,
        latency: Callable[[], int],
        skip: Callable[[], bool],
        timeout_ms: int,
    ) -> None:
        self._shared = shared
        self._timers = timers
        self._tasks = tasks
        self._skip = skip
        self._timeout_ms = timeout_ms
        self._requests = _Pipe(store_timers, latency)
        self._responses = _Pipe(timers, latency)
        self._watcher: Watcher | None = None
        self._delivered = 0
        self._is_cut = False
        self._is_closed = False

    # -- faults --

    def cut(self) -> None:
        """Cut the connection: nothing arrives in either direction, and what is under way is lost."""
        self._is_cut = True
        self._requests.cut()
        self._responses.cut()

    def heal(self) -> None:
        """Restore the connection; the watcher gets what it missed."""
        if self._is_cut:
            self._is_cut = False
            self._announce_missed()

    # -- requests of the broker --

    def load(self) -> Answer[Snapshot]:
        return self._request(self._shared.snapshot, Snapshot((), 0, _TIMED_OUT))

    def watch(self, revision: int, watcher: Watcher) -> None:
        """See `MetadataStore.watch`."""
        self._watcher = watcher
        self._delivered = revision
        self._announce_missed()

    def change(self, change: Change) -> Answer[ChangeOutcome]:
        """See `MetadataStore.change`. Raises ValueError if the change puts a key that it also deletes."""
        check(change)
        late = ChangeOutcome(0, error=_TIMED_OUT, is_unknown=True)
        return self._request(partial(self._shared.change, change), late, self._deliver_change)

    def grant(self, ttl_ms: int) -> Answer[LeaseOutcome]:
        return self._request(partial(self._shared.grant, ttl_ms), LeaseOutcome(0, _TIMED_OUT))

    def renew(self, lease: int) -> Answer[LeaseOutcome]:
        return self._request(partial(self._shared.renew, lease), LeaseOutcome(0, _TIMED_OUT))

    def revoke(self, lease: int) -> Answer[bool]:
        return self._request(partial(self._shared.revoke, lease), late=False)

    def close(self) -> None:
        """Close the connection. Requests under way arrive at the store; nothing is delivered, and no answer completes."""
        self._is_closed = True
        self._shared.disconnect(self)

    def _request(self, serve: Callable[[], R], late: R, before_answer: Callable[[R], None] | None = None) -> Answer[R]:
        """Send a request to the store, and return its response, or `late` at the end of the timeout."""
        answer: Deferred[R] = Deferred(self._tasks)
        if self._is_closed:
            return answer

        def end(response: R) -> None:
            if not answer.done and not self._is_closed:
                timeout.cancel()
                answer.complete(response)

        def arrive() -> None:
            self._shared.submit(respond)

        def respond() -> None:
            response = serve()
            self._respond(lambda: receive(response))

        def receive(response: R) -> None:
            if not answer.done and not self._is_closed:
                if before_answer is not None:
                    before_answer(response)
                end(response)

        timeout = self._timers.call_later(self._timeout_ms, lambda: end(late))
        if not self._is_cut:
            self._requests.send(arrive)
        return answer

    # -- deliveries --

    def announce(self, revision: int) -> None:
        """Send a revision to the watcher."""
        self._respond(partial(self._announced, revision))

    def _announce_missed(self) -> None:
        for revision in range(self._delivered + 1, self._shared.revision + 1):
            self.announce(revision)

    def _respond(self, arrive: Callable[[], None], *, delay_ms: int = 0) -> None:
        if not self._is_cut:
            self._responses.send(arrive, delay_ms=delay_ms)

    def _announced(self, revision: int) -> None:
        if revision <= self._delivered or self._watcher is None or self._is_closed:
            return
        if self._skip():
            self._respond(partial(self._announced, revision), delay_ms=1)  # alone, if no later revision comes before
        else:
            self._deliver(self._watcher, revision)

    def _deliver_change(self, outcome: ChangeOutcome) -> None:
        """Deliver a change to the own watcher before it is answered, also if it was skipped."""
        if self._watcher is not None and outcome.revision > self._delivered:
            self._deliver(self._watcher, outcome.revision)

    def _deliver(self, watcher: Watcher, revision: int) -> None:
        entries = self._shared.changes(self._delivered, revision)
        if entries is None:
            snapshot = self._shared.snapshot()
            self._delivered = snapshot.revision
            watcher.reloaded(snapshot)
        else:
            self._delivered = revision
            watcher.changed(revision, entries)
