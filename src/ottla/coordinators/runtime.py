"""The coordinator runtime: decide, append, replay, answer once committed.

One runtime serves one internal topic (__consumer_offsets, __transaction_state, __share_group_state). Each partition that this
broker leads has a state in memory. The steps:

    operation(state, request, now) -> Result(records, answers, timers)
        |
        +-- records are appended to the partition as one batch
        |      if that fails, the result is dropped, and every request that it would have answered gets the mapped error
        +-- replay(record) changes the state: the same code that loads the partition after a restart
        +-- timers are set
        +-- answers go out when everything appended so far is committed, in order; also those without records, since
            they may show the effect of an uncommitted record
        +-- outgoing messages (work for other parts of the broker) go to `send` at the same time

Records of an open transaction (offsets committed by a producer) are appended with the producer's id and epoch, and kept apart
in the state by producer id; the transaction's marker then applies or discards them.

A request that a result does not answer is parked: a later result, of another request or of a timer, answers it.

A timer is identified by (operation, arguments): setting it again moves it. All timers of a runtime share one heap. Moving a
timer to a later deadline only updates a dictionary; the heap is corrected at the old deadline, so that the heartbeats of ten
thousand members do not touch the heap. This module uses no task, socket or file.

One file, because the order of append, replay, timers, answers and messages is one invariant, which all parts must keep.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeVar

from ottla.coordinators.loading import Loader, ReplayRun
from ottla.coordinators.log import CoordinatorLog, Ending
from ottla.coordinators.partitions import partition_of
from ottla.coordinators.readiness import NotReady
from ottla.coordinators.records import CoordinatorRecord, CoordinatorState, RecordBlock
from ottla.environment import Clock
from ottla.protocol import errors
from ottla.tasks.deferred import Answer, Deferred
from ottla.tasks.queue import CallbackQueue

Millis = int
S = TypeVar("S", bound=CoordinatorState)
Q = TypeVar("Q")
R = TypeVar("R")


class Timer(NamedTuple):
    """Timer that calls `operation(state, *arguments, now)` after `delay_ms`; a delay of None cancels it."""

    operation: Callable[..., "Result"]
    arguments: tuple[Any, ...]
    delay_ms: Millis | None


class Result(NamedTuple):
    """Outcome of an operation.

    records  appended as one batch, then replayed
    answers  (request, response): the caller's request, or parked ones
    timers   set, moved or cancelled once the records are appended
    then     called with (state, now) after the replay, for changes in memory and answers that require the records in the log
    producer (producer id, epoch) of the transaction that the records belong to
    outgoing passed to the runtime's `send` once everything appended so far is committed
    refused  called with (state, error code, now) when the append fails, instead of answering all requests with the error
    """

    records: Sequence[CoordinatorRecord] = ()
    answers: Sequence[tuple[Any, Any]] = ()
    timers: Sequence[Timer] = ()
    then: Callable[[Any, Millis], "Result"] | None = None
    refused: Callable[[Any, int, Millis], "Result"] | None = None
    producer: tuple[int, int] | None = None
    outgoing: Sequence[Any] = ()


NOTHING: Final = Result()


class Operation(Generic[Q, R]):
    """Operation of a coordinator: a decision about a request, and its error response.

    decide  (state, request, now) -> Result; `now` is milliseconds since the epoch
    refuse  (request, error code) -> response, used if the coordinator cannot decide
    check   (request) -> NONE, or the error of a request that is invalid at any coordinator
    """

    __slots__ = ("check", "decide", "refuse")

    def __init__(
        self,
        decide: Callable[[Any, Q, Millis], Result],
        refuse: Callable[[Q, int], R],
        check: Callable[[Q], int] | None = None,
    ) -> None:
        self.decide = decide
        self.refuse = refuse
        self.check = check

    def __call__(self, state: Any, request: Q, now: Millis) -> Result:
        return self.decide(state, request, now)


def operation(
    refuse: Callable[[Q, int], R], check: Callable[[Q], int] | None = None
) -> Callable[[Callable[[Any, Q, Millis], Result]], Operation[Q, R]]:
    """Return a decorator that makes an Operation of a function."""
    return lambda decide: Operation(decide, refuse, check)


COORDINATOR_UNAVAILABLE: Final = frozenset(
    (errors.COORDINATOR_LOAD_IN_PROGRESS, errors.COORDINATOR_NOT_AVAILABLE, errors.NOT_COORDINATOR)
)
"""Errors of a coordinator that is expected to be available again, here or at another broker."""


def coordinator_error(code: int) -> int:
    """Return the error for a coordinator's client after an append failed with `code`."""
    return _CLIENT_ERRORS.get(code, code)


_CLIENT_ERRORS: Final = {
    errors.UNKNOWN_TOPIC_OR_PARTITION: errors.COORDINATOR_NOT_AVAILABLE,
    errors.NOT_ENOUGH_REPLICAS: errors.COORDINATOR_NOT_AVAILABLE,
    errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND: errors.COORDINATOR_NOT_AVAILABLE,
    errors.REQUEST_TIMED_OUT: errors.COORDINATOR_NOT_AVAILABLE,
    errors.NOT_LEADER_OR_FOLLOWER: errors.NOT_COORDINATOR,
    errors.KAFKA_STORAGE_ERROR: errors.NOT_COORDINATOR,
    errors.MESSAGE_TOO_LARGE: errors.UNKNOWN_SERVER_ERROR,
    errors.RECORD_LIST_TOO_LARGE: errors.UNKNOWN_SERVER_ERROR,
    errors.INVALID_FETCH_SIZE: errors.UNKNOWN_SERVER_ERROR,
    errors.NETWORK_EXCEPTION: errors.COORDINATOR_LOAD_IN_PROGRESS,
}

_RETRY_MS: Final = 100
"""Delay before a timer whose operation raised NotReady runs again."""


_Waiting = tuple[Any, Deferred[Any], Any, Callable[[Any, int], Any]]
"""Request, its pending answer, the response to send, and the function that builds an error response."""


class _Shard(Generic[S]):
    """One partition that this broker leads."""

    __slots__ = (
        "deferred",
        "loader",
        "log",
        "outgoing",
        "parked",
        "partition",
        "state",
        "timers",
        "written",
    )

    def __init__(self, partition: int, state: S, log: CoordinatorLog, loader: Loader[S]) -> None:
        self.partition = partition
        self.state = state
        self.log = log
        self.loader: Loader[S] | None = loader
        """None once the partition is loaded, so that requests can be decided."""
        self.written = 0
        """End offset (exclusive) of the last append."""
        self.parked: dict[int, tuple[Any, Deferred[Any], Callable[[Any, int], Any]]] = {}
        """Requests without an answer yet, by `id` of the request object: equal requests of two members are two requests. The
        entry holds the object, so that its identity is not reused before the answer."""
        self.deferred: deque[tuple[int, Millis, list[_Waiting]]] = deque()
        """Answers that wait for a commit: (end offset, deadline, answers) in the order of appending."""
        self.timers: dict[tuple[Any, ...], list[int]] = {}
        """Timers that are set: (operation, arguments) -> [deadline, number of the entry in the heap]."""
        self.outgoing: deque[tuple[int, Sequence[Any]]] = deque()
        """Messages that wait for a commit: (end offset, messages) in the order of appending."""


class Runtime(Generic[S]):
    """Runs operations on the partitions of one internal topic that this broker leads."""

    def __init__(
        self,
        *,
        partitions: int,
        new_state: Callable[[int], S],
        decode: Callable[[bytes, bytes | None], CoordinatorRecord | None],
        loaded: Callable[[S, Millis], Result],
        clock: Clock,
        tasks: CallbackQueue,
        alarm: Callable[[Millis], None] = lambda deadline: None,  # noqa: ARG005
        commit_timeout_ms: Millis = 5000,
        send: Callable[[int, Any], None] = lambda partition, message: None,  # noqa: ARG005
        locate: Callable[[S, int], None] | None = None,
        replay_run: ReplayRun[S] | None = None,
    ) -> None:
        """partitions         number of partitions of the internal topic
        new_state          returns an empty state for a partition's number
        decode             key and value as a Record; None for a type of record that a newer release wrote
        loaded             called once a partition is loaded, mostly to start timers
        tasks              queue of completions: an answer never reaches its connection inside `run_on`
        alarm              called with a deadline that is earlier than all that `next_deadline` has returned before
        send               called with (partition, message) for the `outgoing` of results
        commit_timeout_ms  maximum time that an answer waits for its records to be committed (offsets.commit.timeout.ms)
        locate             called with (state, offset) before a record is replayed, for a state that needs its offset
        replay_run         replays records together while a partition is loaded; not with `locate`
        """
        self.partitions = partitions
        self._new_state = new_state
        self._decode = decode
        self._loaded = loaded
        self._alarm = alarm
        self._clock = clock
        self._tasks = tasks
        self._commit_timeout_ms = commit_timeout_ms
        self._send = send
        self._locate = locate
        self._replay_run = replay_run
        self._shards: dict[int, _Shard[S]] = {}
        self._heap: list[tuple[Millis, int, int, tuple[Any, ...]]] = []
        """Entries (deadline, number, partition, timer); an entry is void unless its timer has the same number."""
        self._numbers = 0
        self._live_timers = 0

    # Partitions come and go.

    def load(self, partition: int, log: CoordinatorLog) -> None:
        """Become the coordinator of `partition`, which repeated calls of `load_more` then load.

        Its requests are answered with COORDINATOR_LOAD_IN_PROGRESS until it is loaded.
        """
        self.unload(partition)
        state = self._new_state(partition)
        loader = Loader(state, log.read(), self._decode, self._locate, self._replay_run)
        self._shards[partition] = _Shard(partition, state, log, loader)
        log.watch(partial(self.on_committed, partition))

    def load_more(self, partition: int, records: int = 1000) -> bool:
        """Replay up to `records` more records; returns True when the partition is loaded, or was unloaded meanwhile."""
        shard = self._shards.get(partition)
        if shard is None or shard.loader is None:
            return True
        if not shard.loader.replay(records):
            return False
        shard.loader = None
        # The replayed records are in the state, committed or not: no answer may reveal them before they are committed.
        shard.written = shard.log.end_offset()
        self._settle(shard, self._loaded(shard.state, self._clock.wall_ms()), {}, self._clock.now_ms())
        return True

    def unload(self, partition: int) -> None:
        """Stop being the coordinator of `partition`: parked requests get NOT_COORDINATOR, the state is dropped."""
        shard = self._shards.pop(partition, None)
        if shard is None:
            return
        shard.log.close()
        self._live_timers -= len(shard.timers)
        for _, _, answers in shard.deferred:
            for request, pending, _, refuse in answers:
                pending.complete(refuse(request, errors.NOT_COORDINATOR))
        for request, pending, refuse in list(shard.parked.values()):
            pending.complete(refuse(request, errors.NOT_COORDINATOR))

    def on_committed(self, partition: int) -> None:
        """Advance the high watermark of `partition`: send the answers and outgoing messages that waited for it."""
        shard = self._shards.get(partition)
        if shard is None or not (shard.deferred or shard.outgoing):
            return
        reached = shard.log.committed_offset()
        # In the order of the log, and through one queue: an answer that permits a batch is sent before the markers that end
        # its transaction.
        while True:
            answers_at = shard.deferred[0][0] if shard.deferred else reached + 1
            messages_at = shard.outgoing[0][0] if shard.outgoing else reached + 1
            if min(answers_at, messages_at) > reached:
                return
            if answers_at <= messages_at:
                for _, pending, response, _ in shard.deferred.popleft()[2]:
                    pending.complete(response)
            else:
                for message in shard.outgoing.popleft()[1]:
                    self._tasks.call(partial(self._send, partition, message))

    # Requests.

    def partition_of(self, key: str) -> int:
        """The partition that holds `key`."""
        return partition_of(key, self.partitions)

    def availability(self, partition: int) -> int:
        """Return the error of requests to `partition`: COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR or NONE."""
        shard = self._shards.get(partition)
        if shard is None:
            return errors.NOT_COORDINATOR
        return errors.NONE if shard.loader is None else errors.COORDINATOR_LOAD_IN_PROGRESS

    def run(self, key: str, operation: Operation[Q, R], request: Q) -> Answer[R]:
        """Decide about `request` in the state of the partition that holds `key`."""
        return self.run_on(partition_of(key, self.partitions), operation, request)

    def run_on(self, partition: int, operation: Operation[Q, R], request: Q) -> Answer[R]:
        """Decide about `request` in the state of `partition`."""
        # Errors that any coordinator would return come first: the client must not look for another coordinator because of them.
        if operation.check is not None and (code := operation.check(request)) != errors.NONE:
            return operation.refuse(request, code)
        shard = self._shards.get(partition)
        if shard is None or shard.loader is not None:
            return operation.refuse(request, self.availability(partition))
        try:
            result = operation.decide(shard.state, request, self._clock.wall_ms())
        except NotReady:  # a retriable error: the client asks again soon
            return operation.refuse(request, errors.COORDINATOR_LOAD_IN_PROGRESS)
        pending: Deferred[R]
        if (
            not result.then
            and not result.outgoing
            and not result.refused
            and not shard.deferred
            and len(result.answers) == 1
            and result.answers[0][0] is request
        ):
            # The fast path (heartbeat, commit, fetch of offsets): one answer, to the caller, without consequences, and no
            # deferred answer that it could overtake. It does what `_settle` does, in the same order, without parking.
            if result.records and (code := self._write(shard, result)) != errors.NONE:
                return operation.refuse(request, code)
            if result.timers:
                self._set_timers(shard, result.timers, self._clock.now_ms())
            response: R = result.answers[0][1]
            if shard.written <= shard.log.committed_offset():
                return response
            pending = Deferred(self._tasks)
            self._defer(shard, [(request, pending, response, operation.refuse)], self._clock.now_ms())
            return pending
        answered: dict[int, Any] = {}
        # Parked before the result is settled: an answer may come from `then`, or from a later result.
        pending = Deferred(self._tasks)
        shard.parked[id(request)] = (request, pending, operation.refuse)
        self._settle(shard, result, answered, self._clock.now_ms(), own=id(request))
        if id(request) in answered:
            known: R = answered[id(request)]
            return known
        return pending

    def end_transaction(self, partition: int, ending: Ending) -> int:
        """Write the marker that ends a producer's transaction in `partition`; returns an error code."""
        shard = self._shards.get(partition)
        if shard is None or shard.loader is not None:
            return self.availability(partition)
        appended = shard.log.append_marker(ending)
        if appended.error_code != errors.NONE:
            return appended.error_code
        shard.written = appended.end_offset
        shard.state.replay_end(ending.producer_id, commit=ending.commit)
        return errors.NONE

    def leads(self, partition: int) -> bool:
        """Return whether this broker is, or is about to be, the coordinator of `partition`."""
        return partition in self._shards

    def states(self) -> list[S]:
        """Return the states of all loaded partitions, for operations on all of them (ListGroups)."""
        return [shard.state for shard in self._shards.values() if shard.loader is None]

    def state_of(self, partition: int) -> S | None:
        """The state of a loaded partition."""
        shard = self._shards.get(partition)
        return shard.state if shard is not None and shard.loader is None else None

    def active_partitions(self) -> list[int]:
        """The partitions that are loaded."""
        return [number for number, shard in self._shards.items() if shard.loader is None]

    @property
    def loading_partitions(self) -> int:
        """Number of partitions that are being read."""
        return sum(shard.loader is not None for shard in self._shards.values())

    @property
    def is_loading(self) -> bool:
        """True if any partition is still being read."""
        return any(shard.loader is not None for shard in self._shards.values())

    # Time.

    def next_deadline(self) -> Millis | None:
        """Return the next time (monotonic clock) at which `advance` has work; None without any."""
        while self._heap:
            _, number, partition, timer = self._heap[0]
            shard = self._shards.get(partition)
            entry = shard.timers.get(timer) if shard else None
            if entry is not None and entry[1] == number:
                break
            heapq.heappop(self._heap)
        nearest = self._heap[0][0] if self._heap else None
        for shard in self._shards.values():
            if shard.deferred and (nearest is None or shard.deferred[0][1] < nearest):
                nearest = shard.deferred[0][1]
        return nearest

    def advance(self, now_ms: Millis) -> None:
        """Run everything due by `now_ms` (monotonic clock)."""
        for shard in list(self._shards.values()):
            while shard.deferred and shard.deferred[0][1] <= now_ms:
                code = coordinator_error(errors.REQUEST_TIMED_OUT)
                for request, pending, _, refuse in shard.deferred.popleft()[2]:
                    pending.complete(refuse(request, code))
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            _, number, partition, timer = heapq.heappop(heap)
            due = self._shards.get(partition)
            entry = due.timers.get(timer) if due else None
            if due is None or entry is None or entry[1] != number:
                continue
            if entry[0] > now_ms:  # moved since it was pushed: push it again at its new deadline
                self._numbers = entry[1] = self._numbers + 1
                heapq.heappush(heap, (entry[0], entry[1], partition, timer))
                continue
            del due.timers[timer]
            self._live_timers -= 1
            try:
                result = timer[0](due.state, *timer[1], self._clock.wall_ms())
            except NotReady:
                result = Result(timers=[Timer(timer[0], timer[1], _RETRY_MS)])
            self._settle(due, result, {}, now_ms)

    # Internals.

    def _settle(self, shard: _Shard[S], result: Result, answered: dict[int, Any], now_ms: Millis, own: int = 0) -> None:
        """Append, replay, set timers, answer. An immediate answer to the request `own` goes into `answered`."""
        if result.records and (code := self._write(shard, result)) != errors.NONE:
            self._refuse(shard, result, code, answered, now_ms, own)
            return
        # The records are in the state from here on. Timers and answers follow, then messages: their receiver may run further
        # operations, which rely on all of this. `then` comes last, with the records in the log.
        if result.timers:
            self._set_timers(shard, result.timers, now_ms)
        if result.answers:
            self._answer(shard, result.answers, answered, now_ms, own)
        if result.outgoing:
            shard.outgoing.append((shard.written, result.outgoing))
            self.on_committed(shard.partition)
        if result.then is not None:
            self._settle(shard, result.then(shard.state, self._clock.wall_ms()), answered, now_ms, own)

    def _write(self, shard: _Shard[S], result: Result) -> int:
        """Append the records of `result` and replay them; returns the error for the callers."""
        block = result.records if isinstance(result.records, RecordBlock) else None
        encoded = [record.encoded() for record in result.records] if block is None else block.encoded()
        appended = shard.log.append(encoded, result.producer)
        if appended.error_code != errors.NONE:
            return coordinator_error(appended.error_code)
        shard.written = appended.end_offset  # before the replay, whose effects are not committed yet
        if self._locate is not None:
            for offset, record in enumerate(result.records, appended.end_offset - len(result.records)):
                self._locate(shard.state, offset)
                shard.state.replay(record)
        elif result.producer is None and block is not None:
            block.replay(shard.state)
        elif result.producer is None:
            replay = shard.state.replay
            for record in result.records:
                replay(record)
        else:
            for record in result.records:
                shard.state.replay_pending(record, result.producer[0])
        return errors.NONE

    def _defer(self, shard: _Shard[S], answers: list[_Waiting], now_ms: Millis) -> None:
        """Defer answers until everything written is committed."""
        shard.deferred.append((shard.written, now_ms + self._commit_timeout_ms, answers))
        self._alarm(now_ms + self._commit_timeout_ms)

    def _answer(
        self, shard: _Shard[S], answers: Sequence[tuple[Any, Any]], answered: dict[int, Any], now_ms: Millis, own: int
    ) -> None:
        """Send `answers`, or defer them until everything written is committed."""
        waiting = []
        for request, response in answers:
            _, pending, refuse = shard.parked.pop(id(request))
            waiting.append((request, pending, response, refuse))
        if shard.deferred or shard.written > shard.log.committed_offset():
            self._defer(shard, waiting, now_ms)
            return
        for request, pending, response, _ in waiting:
            if id(request) == own:
                answered[own] = response
            else:
                pending.complete(response)

    def _refuse(
        self, shard: _Shard[S], result: Result, code: int, answered: dict[int, Any], now_ms: Millis, own: int
    ) -> None:
        """Handle a failed append: call the result's `refused` if it has one; else the caller and all requests that it
        would have answered get the error.
        """
        if result.refused is not None:
            self._settle(shard, result.refused(shard.state, code, self._clock.wall_ms()), answered, now_ms, own)
            return
        waiting = {id(request) for request, _ in result.answers} | ({own} if own in shard.parked else set())
        refusals = [
            (request, refuse(request, code))
            for request, _, refuse in [shard.parked[identity] for identity in shard.parked if identity in waiting]
        ]
        self._answer(shard, refusals, answered, now_ms, own)

    def _set_timers(self, shard: _Shard[S], timers: Iterable[Timer], now_ms: Millis) -> None:
        for operation, arguments, delay_ms in timers:
            timer = (operation, arguments)
            entry = shard.timers.get(timer)
            if delay_ms is None:
                if entry is not None:
                    del shard.timers[timer]
                    self._live_timers -= 1
                continue
            deadline = now_ms + delay_ms
            if entry is not None and deadline >= entry[0]:
                entry[0] = deadline
                continue
            self._numbers += 1
            if entry is None:
                self._live_timers += 1
            shard.timers[timer] = [deadline, self._numbers]
            heapq.heappush(self._heap, (deadline, self._numbers, shard.partition, timer))
            if self._heap[0][1] == self._numbers:
                self._alarm(deadline)
        if len(self._heap) > 2 * self._live_timers + 1000:
            self._sweep()

    def _sweep(self) -> None:
        """Remove the void entries of the heap if they are the majority."""
        kept = []
        for entry in self._heap:
            shard = self._shards.get(entry[2])
            timer = shard.timers.get(entry[3]) if shard else None
            if timer is not None and timer[1] == entry[1]:
                kept.append(entry)
        heapq.heapify(kept)
        self._heap[:] = kept
