"""Turns of reading: what connections take in one pass of the event loop, and in which order they come."""

from collections.abc import Callable

from ottla.broker.connections.read_turns import ReadTurns
from ottla.environment import Cancellable


class Loop:
    """Event loop of readable connections with a clock of its own; a look for events takes 100 us."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.calls: list[Callable[[], None]] = []
        self.turns = ReadTurns(self, lambda: self.now_ns)

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Cancellable:
        assert delay_ms == 0
        self.calls.append(callback)
        return NeverCancelled()

    def run_pass(self, readable: "list[Connection]") -> int:
        """Read those that do not pause; return the ns that the pass has taken."""
        self.now_ns += 100_000
        begun_ns = self.now_ns
        calls, self.calls = self.calls, []
        ready = [connection for connection in readable if not connection.is_paused]
        for call in calls:
            call()
        for connection in ready:
            connection.read(self)
        return self.now_ns - begun_ns


class NeverCancelled:
    def cancel(self) -> None:
        raise AssertionError


class Connection:
    """Connection whose reads take some time."""

    def __init__(self, cost_ns: int = 500_000) -> None:
        self.cost_ns = cost_ns
        self.reads = 0
        self.is_paused = False
        self.has_turn = False

    def read(self, loop: Loop) -> None:
        if self.has_turn:
            self.has_turn = False
        elif not loop.turns.may_read(self):
            return
        self.reads += 1
        loop.now_ns += self.cost_ns
        loop.turns.has_read()

    def wait_for_turn(self) -> None:
        self.is_paused = True

    def take_turn(self) -> None:
        self.is_paused = False
        self.has_turn = True


def test_few_connections_never_wait() -> None:
    loop, connections = Loop(), [Connection() for _ in range(10)]
    for _ in range(20):
        loop.run_pass(connections)
    assert [connection.reads for connection in connections] == [20] * 10
    assert loop.calls == []


def test_a_pass_over_a_thousand_connections_is_short_and_all_are_read_once() -> None:
    loop, connections = Loop(), [Connection() for _ in range(1000)]
    passes = []
    while any(connection.reads == 0 for connection in connections):
        passes.append(loop.run_pass([connection for connection in connections if connection.reads == 0]))
        assert len(passes) < 1000
    assert max(passes) <= 11_000_000
    assert [connection.reads for connection in connections] == [1] * 1000
    assert loop.calls == []
    assert loop.run_pass(connections[:1]) == 500_000  # without a turn: nobody waits


def test_connections_that_always_have_data_do_not_keep_others_out() -> None:
    loop = Loop()
    greedy, others = [Connection(2_000_000) for _ in range(10)], [Connection() for _ in range(100)]
    for _ in range(300):
        loop.run_pass([*greedy, *others])  # the loop always reports the greedy ones first
    counts = [connection.reads for connection in (*greedy, *others)]
    assert max(counts) - min(counts) <= 12


def test_a_closed_connection_leaves_the_queue() -> None:
    loop, connections = Loop(), [Connection() for _ in range(30)]
    loop.run_pass(connections)
    waiting = [connection for connection in connections if connection.is_paused]
    loop.turns.remove(waiting[0])
    loop.turns.remove(connections[0])
    for _ in range(5):
        loop.run_pass([])
    assert [connection.is_paused for connection in waiting] == [True] + [False] * (len(waiting) - 1)
