"""A world for coordinators: a log in memory, a clock that only moves when told, chance that repeats itself."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

from ottla.coordinators.groups.coordinator import on_loaded
from ottla.coordinators.groups.records import decode_record
from ottla.coordinators.groups.state import Groups, GroupSettings
from ottla.coordinators.log import CoordinatorAppend, Ending, LoggedBatch
from ottla.coordinators.records import CoordinatorState
from ottla.coordinators.runtime import Operation, Runtime
from ottla.coordinators.topology import Topology
from ottla.protocol.context import RequestContext
from ottla.protocol.errors import NONE
from ottla.records.record import Record
from ottla.tasks.deferred import Answer, Deferred
from tests.queues import manual_queue, run_queue

S = TypeVar("S", bound=CoordinatorState)
Q = TypeVar("Q")
R = TypeVar("R")
T = TypeVar("T")
EPOCH = 1_700_000_000_000
"""The wall clock at virtual time 0, in ms."""


class Logged(NamedTuple):
    """An appended record, or a marker, which has no key."""

    key: bytes | None
    value: bytes | None
    producer_id: int = -1
    commit: bool | None = None
    offset: int = -1


class MemoryLog:
    """A partition in memory. `fails_with` refuses appends; `holds` keeps them uncommitted."""

    def __init__(self) -> None:
        self.logged: list[Logged] = []
        self.batches: list[int] = []
        self.fails_with = NONE
        self.holds = False
        self.watchers: list[Callable[[], None]] = []
        self._committed = 0

    @property
    def records(self) -> list[tuple[bytes, bytes | None]]:
        """Key and value of what was appended, markers left out."""
        return [(entry.key, entry.value) for entry in self.logged if entry.key is not None]

    def append(
        self, records: Sequence[tuple[bytes, bytes | None]], producer: tuple[int, int] | None
    ) -> CoordinatorAppend:
        return self._append(
            [
                Logged(key, value, producer[0] if producer else -1, None, at)
                for at, (key, value) in enumerate(records, len(self.logged))
            ]
        )

    def append_marker(self, ending: Ending) -> CoordinatorAppend:
        return self._append([Logged(None, None, ending.producer_id, ending.commit)])

    def _append(self, logged: list[Logged]) -> CoordinatorAppend:
        if self.fails_with != NONE:
            return CoordinatorAppend(self.fails_with)
        self.logged += logged
        self.batches.append(len(logged))
        if not self.holds:
            self._committed = len(self.logged)
        return CoordinatorAppend(NONE, len(self.logged))

    def committed_offset(self) -> int:
        return self._committed

    def end_offset(self) -> int:
        return len(self.logged)

    def watch(self, committed: Callable[[], None]) -> None:
        self.watchers.append(committed)

    def close(self) -> None:
        self.watchers.clear()

    def release(self) -> None:
        self.holds = False
        self._committed = len(self.logged)

    def compact(self, *, drop_tombstones: bool) -> None:
        """Keep the newest record of every key, in the order in which they stand."""
        newest = {entry.key: place for place, entry in enumerate(self.logged)}
        self.logged = [
            entry
            for place, entry in enumerate(self.logged)
            if newest[entry.key] == place and not (drop_tombstones and entry.value is None)
        ]
        self._committed = len(self.logged)

    def read(self) -> Iterator[LoggedBatch]:
        """Records that stand together are one batch if no transaction divides them."""
        for (producer_id, commit), some in groupby(list(self.logged), lambda entry: (entry.producer_id, entry.commit)):
            if commit is not None:
                yield from (LoggedBatch((), producer_id, commit) for _ in some)
            else:
                yield LoggedBatch([Record(entry.offset, -1, entry.key, entry.value) for entry in some], producer_id)


class VirtualClock:
    def __init__(self) -> None:
        self.now = 0

    def wall_ms(self) -> int:
        return EPOCH + self.now

    def now_ms(self) -> int:
        return self.now


class CountingRandom:
    def __init__(self) -> None:
        self.count = 0

    def bytes16(self) -> bytes:
        self.count += 1
        return self.count.to_bytes(16, "big")

    def below(self, bound: int) -> int:
        self.count += 1
        return self.count % bound


class SettledRuntime(Runtime[S]):
    """Runtime whose completions have all taken effect when one of its methods returns."""

    def __init__(self, **arguments: Any) -> None:
        self.queue = manual_queue()
        self._depth = 0
        super().__init__(tasks=self.queue, **arguments)

    def _settled(self, act: Callable[[], T]) -> T:
        self._depth += 1
        try:
            return act()
        finally:
            self._depth -= 1
            if not self._depth:
                run_queue(self.queue)

    def load_more(self, partition: int, records: int = 1000) -> bool:
        return self._settled(partial(super().load_more, partition, records))

    def unload(self, partition: int) -> None:
        self._settled(partial(super().unload, partition))

    def on_committed(self, partition: int) -> None:
        self._settled(partial(super().on_committed, partition))

    def run_on(self, partition: int, operation: Operation[Q, R], request: Q) -> Answer[R]:
        return self._settled(partial(super().run_on, partition, operation, request))

    def advance(self, now_ms: int) -> None:
        self._settled(partial(super().advance, now_ms))


class World:
    """One group coordinator with one partition."""

    def __init__(self, settings: GroupSettings | None = None) -> None:
        self.settings = settings or GroupSettings(initial_rebalance_delay_ms=0)
        self.clock = VirtualClock()
        self.random = CountingRandom()
        self.log = MemoryLog()
        self.topology = Topology()
        self.alarms: list[int] = []
        self.sent: list[Any] = []
        """Messages of the runtime to other components."""
        self.start()

    def start(self) -> None:
        """A coordinator that knows what the log says, and nothing else."""
        self.runtime: SettledRuntime[Groups] = SettledRuntime(
            partitions=1,
            new_state=lambda partition: Groups(self.settings, self.random, self.topology),
            decode=decode_record,
            loaded=on_loaded,
            clock=self.clock,
            alarm=self.alarms.append,
            send=lambda partition, message: self.sent.append(message),
        )
        self.runtime.load(0, self.log)
        while not self.runtime.load_more(0):
            pass

    @property
    def groups(self) -> Groups:
        return self.runtime.states()[0]

    def run(self, operation: Operation[Any, Any], request: Any, version: int = 9, client: str = "c") -> Any:
        """The answer, or the Deferred that will have it."""
        if hasattr(type(request), "API"):
            request.context = RequestContext(version=version, client_id=client, client_host="/h")
        return self.runtime.run(getattr(request, "group_id", ""), operation, request)

    def now(self, operation: Operation[Any, Any], request: Any, version: int = 9) -> Any:
        """The answer, which must be there at once."""
        answer = self.run(operation, request, version)
        assert not isinstance(answer, Deferred)
        return answer

    def advance(self, to: int) -> None:
        """Let time pass, stopping wherever something is due."""
        while (deadline := self.runtime.next_deadline()) is not None and deadline <= to:
            self.clock.now = max(self.clock.now, deadline)
            self.runtime.advance(self.clock.now)
        self.clock.now = to
