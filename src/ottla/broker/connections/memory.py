"""Memory that all connections of a broker share: large frames, unread responses, and connections that are not authenticated.

Each has one bound for the broker. Where it is reached, the address that has most waits, or loses a connection, so that one
client's flood leaves the others alone. The networks of IPv6 count as one address: a client has as many addresses as it likes
in its own.

Turns of large frames. A frame of more than `least` bytes is received only in its turn:

    waiting    its connection is not read from; it has what came with the start of the frame
    receiving  it has room for the whole frame, from the announced size on
    serving    it is complete, and its request is not answered yet

The next turn goes to the address with the least room, in the order in which its connections came. A client that has a turn
and does not use it must not block others for ever: while any wait, a frame has to arrive at a pace that completes it in
TURN_MS, and its request has to be answered by then; otherwise its connection is closed. The client would not wait longer for
its response (request.timeout.ms).
"""

from collections import Counter, deque
from typing import Final, Generic, Protocol, TypeVar

from ottla.addresses import network_of
from ottla.environment import Cancellable, Clock, Timers

TURN_MS: Final = 30_000
"""Time for which a request may have a turn while others wait."""
_GRACE_MS: Final = 3_000
"""Time from the begin of a turn in which its pace is not checked."""
_CHECK_MS: Final = 1_000

H = TypeVar("H")


class LargeFrame(Protocol):
    """Connection with a large frame."""

    @property
    def received(self) -> int:
        """Bytes of the frame that have arrived."""

    def begin_turn(self) -> None:
        """Receive the rest of the frame."""

    def lose_turn(self) -> None:
        """Close the connection: it has had its turn for too long."""


class _Turn:
    """Turn of a frame of `size` bytes, from a network; `begin_ms` is -1 while it waits."""

    __slots__ = ("begin_ms", "network", "size")

    def __init__(self, network: str, size: int) -> None:
        self.network = network
        self.size = size
        self.begin_ms = -1


class FrameTurns:
    """Turns of the frames of more than `least` bytes, which take `most` bytes together; a larger one has its turn alone."""

    def __init__(self, least: int, most: int, clock: Clock, timers: Timers) -> None:
        self.least = least
        self._most = most
        self._clock = clock
        self._timers = timers
        self._turns: dict[LargeFrame, _Turn] = {}
        self._waiting: dict[str, deque[LargeFrame]] = {}
        self._taken: Counter[str] = Counter()
        self._crowded_ms = 0
        """Time since which frames have been waiting."""
        self._check: Cancellable | None = None

    @property
    def taken(self) -> int:
        """Bytes of all frames that have their turn."""
        return self._taken.total()

    def take(self, frame: LargeFrame, ip: str, size: int) -> bool:
        """Take a turn for a frame; False if it has to wait for `begin_turn`."""
        turn = self._turns[frame] = _Turn(network_of(ip), size)
        if not self._waiting and self._fits(size):
            self._begin(turn)
            return True
        if not self._waiting:
            self._crowded_ms = self._clock.now_ms()
        self._waiting.setdefault(turn.network, deque()).append(frame)
        if self._check is None:
            self._check = self._timers.call_later(_CHECK_MS, self._end_slow)
        return False

    def end(self, frame: LargeFrame) -> None:
        """End a turn, or the wait for one: the request is answered, or the connection is closed. No effect without one."""
        turn = self._turns.pop(frame, None)
        if turn is None:
            return
        if turn.begin_ms < 0:
            self._leave_queue(turn.network, frame)
        else:
            self._taken[turn.network] -= turn.size
            if not self._taken[turn.network]:
                del self._taken[turn.network]
        self._begin_next()

    def _fits(self, size: int) -> bool:
        return not self._taken or self.taken + size <= self._most

    def _begin(self, turn: _Turn) -> None:
        turn.begin_ms = self._clock.now_ms()
        self._taken[turn.network] += turn.size

    def _leave_queue(self, network: str, frame: LargeFrame) -> None:
        queue = self._waiting[network]
        queue.remove(frame)
        if not queue:
            del self._waiting[network]

    def _begin_next(self) -> None:
        """Begin the turns for which there is room. The next one is not passed over if it is too large: it would starve."""
        while self._waiting:
            network = min(self._waiting, key=lambda name: self._taken[name])
            frame = self._waiting[network][0]
            turn = self._turns[frame]
            if not self._fits(turn.size):
                return
            self._leave_queue(network, frame)
            if network in self._waiting:  # networks with the same room take turns
                self._waiting[network] = self._waiting.pop(network)
            self._begin(turn)
            frame.begin_turn()
        if self._check is not None:
            self._check.cancel()
            self._check = None

    def _end_slow(self) -> None:
        """Close the connections that use their turn too slowly for those that wait."""
        self._check = self._timers.call_later(_CHECK_MS, self._end_slow)
        now_ms = self._clock.now_ms()
        for frame, turn in list(self._turns.items()):
            if turn.begin_ms < 0:
                continue
            elapsed_ms = now_ms - max(turn.begin_ms, self._crowded_ms)
            is_late = elapsed_ms > _GRACE_MS and frame.received * TURN_MS < turn.size * elapsed_ms
            if is_late and frame in self._turns:
                frame.lose_turn()


class Shares(Generic[H]):
    """Amounts that connections hold, by address, in the order in which they came."""

    def __init__(self) -> None:
        self._amounts: dict[str, dict[H, int]] = {}
        self._sums: Counter[str] = Counter()
        self._networks: dict[H, str] = {}
        self.total = 0

    def __len__(self) -> int:
        return len(self._networks)

    def __contains__(self, holder: H) -> bool:
        return holder in self._networks

    def add(self, holder: H, ip: str, amount: int) -> None:
        """Add an amount of a connection, which has none yet."""
        network = self._networks[holder] = network_of(ip)
        self._amounts.setdefault(network, {})[holder] = amount
        self._sums[network] += amount
        self.total += amount

    def remove(self, holder: H) -> None:
        """Remove the amount of a connection; no effect without one."""
        network = self._networks.pop(holder, None)
        if network is None:
            return
        of_network = self._amounts[network]
        amount = of_network.pop(holder)
        self.total -= amount
        self._sums[network] -= amount
        if not of_network:
            del self._amounts[network], self._sums[network]

    def first_of_most(self) -> H:
        """Return the oldest connection of the address that has most. There must be one."""
        network = max(self._sums, key=self._sums.__getitem__)
        return next(iter(self._amounts[network]))


class Reader(Protocol):
    """Connection with responses that its client has not read."""

    def lose_responses(self) -> None:
        """Close the connection: its responses take too much memory."""


class Unread:
    """Responses that are not sent in full, which take `most` bytes together; one alone may take more.

    Above that the connection whose responses have waited longest is closed, at the address with most bytes.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._shares: Shares[Reader] = Shares()

    @property
    def total(self) -> int:
        """Bytes of all responses."""
        return self._shares.total

    def add(self, reader: Reader, ip: str, size: int) -> None:
        """Add the response of a connection that is not sent in full. May close connections, also this one."""
        self._shares.remove(reader)
        self._shares.add(reader, ip, size)
        while self._shares.total > self._most and len(self._shares) > 1:
            slowest = self._shares.first_of_most()
            slowest.lose_responses()
            self._shares.remove(slowest)

    def remove(self, reader: Reader) -> None:
        """Remove the response of a connection: it is sent, or the connection is closed."""
        self._shares.remove(reader)
