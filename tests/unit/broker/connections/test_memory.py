"""Memory that connections share: turns of large frames, and who loses what where a bound is reached."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from ottla.addresses import network_of
from ottla.broker.connections.memory import TURN_MS, FrameTurns, Shares, Unread

MB = 1 << 20


class Time:
    """A clock and its timers."""

    def __init__(self) -> None:
        self.now = 1000
        self._due: list[tuple[int, Callable[[], None], list[bool]]] = []

    def now_ms(self) -> int:
        return self.now

    def wall_ms(self) -> int:
        return self.now

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Any:
        is_cancelled: list[bool] = []
        self._due.append((self.now + delay_ms, callback, is_cancelled))

        class Call:
            def cancel(self) -> None:
                is_cancelled.append(True)

        return Call()

    @property
    def waiting(self) -> int:
        """Number of timers that are set."""
        return sum(not is_cancelled for _, _, is_cancelled in self._due)

    def pass_ms(self, ms: int) -> None:
        end = self.now + ms
        while self._due and min(self._due, key=lambda due: due[0])[0] <= end:
            first = min(self._due, key=lambda due: due[0])
            self._due.remove(first)
            self.now = first[0]
            if not first[2]:
                first[1]()
        self.now = end


class Frame:
    """A frame of `size` bytes."""

    def __init__(self, turns: FrameTurns, ip: str, size: int) -> None:
        self._turns = turns
        self.size = size
        self.received = 0
        self.is_lost = False
        self.has_turn = turns.take(self, ip, size)

    def begin_turn(self) -> None:
        assert not self.has_turn
        self.has_turn = True

    def lose_turn(self) -> None:
        self.is_lost = True
        self._turns.end(self)

    def end(self) -> None:
        self._turns.end(self)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def turns(time: Time) -> FrameTurns:
    return FrameTurns(MB, 100 * MB, time, time)


def test_frames_have_turns_while_there_is_room(turns: FrameTurns) -> None:
    frames = [Frame(turns, "a", 30 * MB) for _ in range(5)]
    assert [frame.has_turn for frame in frames] == [True, True, True, False, False]
    frames[1].end()
    assert [frame.has_turn for frame in frames] == [True, True, True, True, False]
    assert turns.taken == 90 * MB


def test_a_frame_larger_than_all_room_has_its_turn_alone(turns: FrameTurns) -> None:
    first, large, small = Frame(turns, "a", 2 * MB), Frame(turns, "b", 300 * MB), Frame(turns, "c", 2 * MB)
    assert (first.has_turn, large.has_turn, small.has_turn) == (True, False, False)
    first.end()
    assert (large.has_turn, small.has_turn) == (True, False)
    large.end()
    assert small.has_turn


def test_the_next_turn_is_that_of_the_address_with_the_least_room(turns: FrameTurns) -> None:
    flood = [Frame(turns, "flood", 50 * MB) for _ in range(20)]
    other = Frame(turns, "other", 50 * MB)
    flood[0].end()
    assert other.has_turn
    assert [frame.has_turn for frame in flood[:4]] == [True, True, False, False]


def test_addresses_with_the_same_room_take_turns(turns: FrameTurns) -> None:
    holder = Frame(turns, "x", 100 * MB)
    waiting = [Frame(turns, ip, 100 * MB) for ip in ("a", "a", "b", "b", "c", "c")]
    order = []
    while any(not frame.has_turn for frame in waiting):
        holder.end()
        holder = next(frame for frame in waiting if frame.has_turn and frame not in order)
        order.append(holder)
    assert [waiting.index(frame) for frame in order] == [0, 2, 4, 1, 3, 5]


def test_a_slow_client_keeps_its_turn_while_no_other_waits(turns: FrameTurns, time: Time) -> None:
    frame = Frame(turns, "a", 100 * MB)
    time.pass_ms(10 * TURN_MS)
    assert not frame.is_lost
    assert time.waiting == 0


@pytest.mark.parametrize(("rate", "lost_after_ms"), [(0, 5_000), (0.5, 5_000), (0.9, 5_000), (1.3, None)])
def test_a_slow_client_loses_its_turn_when_others_wait(
    turns: FrameTurns, time: Time, rate: float, lost_after_ms: int | None
) -> None:
    """`rate` of the pace that completes the frame within a turn. It does not matter how long it was slow before."""
    slow = Frame(turns, "slow", 100 * MB)
    time.pass_ms(50_000)
    begin = time.now
    other = Frame(turns, "other", 2 * MB)
    while time.now - begin < TURN_MS - 1000 and not slow.is_lost:
        time.pass_ms(500)
        slow.received = int((time.now - begin) / TURN_MS * slow.size * rate)
    assert slow.is_lost == other.has_turn == (lost_after_ms is not None)
    if lost_after_ms is not None:
        assert time.now - begin <= lost_after_ms


def test_a_request_that_is_not_answered_loses_its_turn_in_the_end(turns: FrameTurns, time: Time) -> None:
    waiting = Frame(turns, "a", 100 * MB)
    waiting.received = waiting.size
    other = Frame(turns, "b", 2 * MB)
    time.pass_ms(TURN_MS - 1)
    assert not waiting.is_lost
    time.pass_ms(2000)
    assert (waiting.is_lost, other.has_turn) == (True, True)


def test_random_turns_stay_within_the_room_and_end(dice_seed: int, turns: FrameTurns, time: Time) -> None:
    """Frames of any size come, are received at any pace, and are given up; every honest one is complete in the end."""
    rng = random.Random(dice_seed)
    frames: list[Frame] = []
    honest: list[tuple[Frame, int]] = []
    for step in range(4000):
        if step < 3000 and rng.random() < 0.2:
            frame = Frame(turns, f"a{rng.randrange(6)}", rng.randrange(MB, 120 * MB))
            frames.append(frame)
            if rng.random() < 0.3:
                honest.append((frame, step))
        time.pass_ms(200)
        holders = [frame for frame in frames if frame.has_turn and not frame.is_lost]
        assert sum(frame.size for frame in holders) == turns.taken
        assert turns.taken <= 100 * MB or len(holders) == 1
        for frame in holders:
            is_honest = any(frame is other for other, _ in honest)
            frame.received += (frame.size if is_honest else rng.randrange(frame.size)) // 20
            if frame.received >= frame.size or (not is_honest and rng.random() < 0.01):
                frames.remove(frame)
                frame.end()
        for frame in [frame for frame in frames if frame.is_lost]:
            frames.remove(frame)
            assert not any(frame is other for other, _ in honest)
    time.pass_ms(1000 * TURN_MS)
    assert turns.taken == 0 or not any(not frame.has_turn for frame in frames)
    assert all(frame.has_turn for frame, _ in honest)


def test_an_ipv6_address_counts_as_its_network() -> None:
    assert network_of("10.0.0.1") == "10.0.0.1"
    assert network_of("2001:db8:1:2:3::4") == network_of("2001:db8:1:2:ffff::9") != network_of("2001:db8:1:3::4")
    assert network_of("::ffff:10.0.0.1") == "10.0.0.1"
    assert network_of("fe80::1%eth0") == network_of("fe80::2")
    assert network_of("no:address") == "no:address"


def test_the_oldest_of_the_address_with_most_is_first() -> None:
    shares: Shares[str] = Shares()
    for name, ip, amount in (("old", "a", 3), ("b1", "b", 2), ("b2", "b", 2), ("c", "c", 1)):
        shares.add(name, ip, amount)
    assert (shares.total, len(shares), shares.first_of_most()) == (8, 4, "b1")
    shares.remove("b1")
    assert shares.first_of_most() == "old"
    for name in ("old", "b2", "c", "unknown"):
        shares.remove(name)
    assert (shares.total, len(shares)) == (0, 0)


class NoReader:
    def __init__(self) -> None:
        self.is_closed = False

    def lose_responses(self) -> None:
        self.is_closed = True


def test_unread_responses_beyond_the_bound_close_the_oldest_of_the_address_with_most() -> None:
    unread = Unread(10)
    readers = [NoReader() for _ in range(5)]
    for reader, ip in zip(readers, "abbbc", strict=True):
        unread.add(reader, ip, 3)
    assert [reader.is_closed for reader in readers] == [False, True, True, False, False]
    assert unread.total == 9
    unread.remove(readers[3])
    unread.remove(readers[3])
    assert unread.total == 6


def test_one_response_may_be_larger_than_the_bound() -> None:
    unread = Unread(10)
    reader = NoReader()
    unread.add(reader, "a", 300)
    assert not reader.is_closed
    unread.add(NoReader(), "b", 1)
    assert reader.is_closed
