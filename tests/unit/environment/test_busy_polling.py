"""Busy polling, with a clock and a loop in memory; and what sockets report to it."""

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from ottla.environment import IncomingConnection, Stream
from ottla.environment.asyncio_transport import AsyncioTransport
from ottla.environment.busy_polling import (
    CLIENT_GAP_NS,
    GAP_NS,
    LONG_PAUSE_NS,
    POLL_NS,
    SHORT_PAUSE_NS,
    SMALL_BYTES,
    YIELD_NS,
    BusyPolling,
)
from ottla.environment.client_process import client_process_environment
from ottla.environment.listening import SocketListen


class Loop:
    """Event loop whose turns a test runs: it would sleep while nothing is scheduled."""

    def __init__(self, longest_gap_ns: int = GAP_NS) -> None:
        self.now_ns = 1_000_000_000
        self.scheduled: list[Callable[[], None]] = []
        self.yields = 0
        self.yield_ns = 0
        self.polling = BusyPolling(
            cast("asyncio.AbstractEventLoop", self), lambda: self.now_ns, self._yielded, longest_gap_ns
        )

    def _yielded(self) -> None:
        self.yields += 1
        self.now_ns += self.yield_ns

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.scheduled.append(callback)

    @property
    def sleeps(self) -> bool:
        return not self.scheduled

    def respond(self, after_ns: int, *, taking_ns: int = 0, size: int = 100, response: int = 100) -> None:
        """Receive a request of `size` bytes `after_ns`, and respond with `response` bytes `taking_ns` later."""
        self.now_ns += after_ns
        self.polling.on_received(size)
        self.now_ns += taking_ns
        self.polling.on_sent(response)

    def turn(self, after_ns: int) -> None:
        self.now_ns += after_ns
        calls, self.scheduled = self.scheduled, []
        assert len(calls) <= 1
        for call in calls:
            call()


def test_the_loop_sleeps_after_single_responses() -> None:
    loop = Loop()
    for _ in range(5):
        loop.respond(GAP_NS)
        assert loop.sleeps


@pytest.mark.parametrize(
    ("gap_ns", "polling_ns"),
    [
        (0, POLL_NS),
        (POLL_NS // 2, POLL_NS),
        (POLL_NS, 2 * POLL_NS),
        (GAP_NS // 2, GAP_NS),
        (GAP_NS - 1, GAP_NS),
    ],
)
def test_the_loop_polls_for_twice_the_gap_after_responses_that_follow_each_other(gap_ns: int, polling_ns: int) -> None:
    loop = Loop()
    loop.respond(0)
    loop.respond(gap_ns)
    loop.turn(polling_ns - 1)
    assert not loop.sleeps
    loop.turn(1)
    assert loop.sleeps


def test_a_long_gap_is_remembered_for_some_requests() -> None:
    loop = Loop()
    loop.respond(0)
    loop.respond(GAP_NS // 2)
    loop.respond(0)
    loop.turn(GAP_NS * 3 // 4)
    assert not loop.sleeps  # the next request after the long gap may come as late as that one
    for _ in range(50):
        loop.respond(0)
    loop.turn(POLL_NS)
    assert loop.sleeps


def test_the_loop_polls_after_small_requests_only() -> None:
    loop = Loop()
    loop.respond(0)
    slept = []
    for size in (SMALL_BYTES + 1, SMALL_BYTES):
        loop.respond(1000, size=size)
        slept.append(loop.sleeps)
    assert slept == [True, False]


def test_the_loop_does_not_poll_for_a_client_that_reads_much() -> None:
    loop = Loop()
    loop.respond(0)
    for _ in range(3):
        loop.now_ns += GAP_NS  # the time of a response that is sent in pieces
        loop.respond(1000, response=SMALL_BYTES + 1)
        assert loop.sleeps
    loop.respond(0, response=SMALL_BYTES)
    loop.respond(0, response=SMALL_BYTES)
    assert not loop.sleeps


def test_the_time_that_requests_take_does_not_count() -> None:
    loop = Loop()
    slept = []
    for gap_ns in (GAP_NS, GAP_NS - 1):
        loop.respond(gap_ns, taking_ns=10 * GAP_NS)
        slept.append(loop.sleeps)
    assert slept == [True, False]


def test_each_response_prolongs_the_polling() -> None:
    loop = Loop()
    loop.respond(0)
    loop.respond(1000)
    for _ in range(10):
        loop.turn(POLL_NS // 4)
        loop.respond(POLL_NS // 4)
        assert not loop.sleeps
    loop.turn(POLL_NS)
    assert loop.sleeps


def test_polling_begins_again_with_the_next_burst() -> None:
    loop = Loop()
    for _ in range(2):
        loop.respond(GAP_NS)
        loop.respond(1000)
        assert not loop.sleeps
        loop.turn(POLL_NS)
        assert loop.sleeps


def test_turns_of_polling_without_a_message_yield_the_processor() -> None:
    """After a message other callbacks of the loop may be scheduled behind the polling."""
    loop = Loop()
    loop.respond(0)
    loop.respond(1000)
    loop.turn(1000)
    assert loop.yields == 0
    for turn in range(1, 4):
        loop.turn(1000)
        assert loop.yields == turn
    loop.turn(POLL_NS)
    assert loop.sleeps
    assert loop.yields == 3  # a loop that sleeps has nothing to yield


def pause_ns(loop: Loop) -> int:
    """Let a yield take long while the loop polls; return for how long it sleeps after responses that follow each other."""
    for _ in range(2):
        loop.respond(0)
    loop.turn(0)
    assert loop.scheduled
    loop.yield_ns = YIELD_NS + 1
    loop.turn(1000)
    loop.yield_ns = 0
    begun_ns = loop.now_ns
    while loop.sleeps:
        assert loop.now_ns - begun_ns < 2 * LONG_PAUSE_NS
        loop.respond(10_000)
    loop.turn(GAP_NS)
    assert not loop.scheduled
    return loop.now_ns - GAP_NS - begun_ns


def test_polling_pauses_while_other_threads_compute() -> None:
    loop = Loop()
    loop.respond(0)
    loop.respond(1000)
    loop.turn(0)
    loop.yield_ns = YIELD_NS
    loop.turn(1000)
    assert not loop.sleeps  # another broker may have worked for that long
    loop.yield_ns = 0
    loop.turn(GAP_NS)
    assert [pause_ns(loop) // 1_000_000 for _ in range(6)] == [10, 20, 40, 80, 160, 160]
    loop.now_ns += LONG_PAUSE_NS
    assert pause_ns(loop) == SHORT_PAUSE_NS


@pytest.mark.skipif(not hasattr(os, "sched_yield"), reason="this system has no sched_yield")
def test_the_processor_is_yielded_by_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    yields: list[None] = []
    monkeypatch.setattr(os, "sched_yield", lambda: yields.append(None))

    async def poll() -> None:
        polling = BusyPolling(asyncio.get_running_loop(), lambda: 0)
        for _ in range(2):
            polling.on_received(1)
            polling.on_sent(1)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run(poll())
    assert yields


def test_a_client_polls_for_a_broker_that_responds_as_one_on_its_machine_only() -> None:
    loop = Loop(CLIENT_GAP_NS)
    for _ in range(5):
        loop.respond(CLIENT_GAP_NS)
        assert loop.sleeps
    loop.respond(CLIENT_GAP_NS - 1)
    loop.turn(CLIENT_GAP_NS - 1)
    assert not loop.sleeps
    loop.turn(1)
    assert loop.sleeps


class Echo:
    """Connection that responds to what it receives with one byte."""

    def __init__(self, incoming: IncomingConnection) -> None:
        self.stream = incoming.accept()
        self.memory = bytearray(1 << 20)

    def readable(self, receive: Callable[[Sequence[Any]], int]) -> None:
        if receive((self.memory,)):
            self.stream.write((b"!",))
        else:
            self.stream.close()

    def written(self) -> None:
        pass

    def lost(self) -> None:
        pass


class Noted(BusyPolling):
    """Busy polling that notes its calls: the sizes of what was received, and below zero of what was sent."""

    __slots__ = ("calls",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.calls: list[int] = []

    def on_received(self, size: int) -> None:
        self.calls.append(size)
        super().on_received(size)

    def on_sent(self, size: int) -> None:
        self.calls.append(-size)
        super().on_sent(size)


@pytest.mark.replaces_code
def test_sockets_report_requests_and_responses() -> None:
    async def exchange() -> list[int]:
        loop = asyncio.get_running_loop()
        polling = Noted(loop)
        listen = SocketListen(loop, polling)
        listening = listen("127.0.0.1", 0, lambda incoming: incoming.serve(Echo(incoming)), lambda _: None)
        reader, writer = await asyncio.open_connection(*listening.address)
        for size in (7, 300):
            writer.write(bytes(size))
            assert await asyncio.wait_for(reader.readexactly(1), 10) == b"!"
        writer.close()
        await writer.wait_closed()
        while len(polling.calls) < 5:
            await asyncio.sleep(0)  # until the socket has noticed the end
        listening.close()
        return polling.calls

    assert asyncio.run(asyncio.wait_for(exchange(), 20)) == [7, -1, 300, -1, 0]


class Asking:
    """Receiver of a connection to a broker, which sends requests one after the other."""

    def __init__(self, requests: int = 2) -> None:
        self.memory = bytearray(1 << 16)
        self.left = requests
        self.ended = asyncio.Event()
        self.stream: Stream | None = None

    def connected(self, stream: Stream) -> None:
        self.stream = stream
        self._ask()

    def _ask(self) -> None:
        assert self.stream is not None
        self.left -= 1
        self.stream.write((b"?",))

    def readable(self, receive_into: Callable[[Any], int]) -> None:
        assert receive_into(self.memory) == 1
        if self.left:
            self._ask()
        else:
            assert self.stream is not None
            self.stream.close()
            self.ended.set()

    def resolved(self) -> None:
        pass

    def lost(self, reason: str) -> None:
        raise AssertionError(reason)

    def rejected(self, reason: str) -> None:
        raise AssertionError(reason)


@pytest.mark.replaces_code
def test_connections_to_other_brokers_report_what_they_send_and_receive() -> None:
    async def exchange() -> list[int]:
        loop = asyncio.get_running_loop()
        polling, asking = Noted(loop), Asking()
        listening = SocketListen(loop)("127.0.0.1", 0, lambda incoming: incoming.serve(Echo(incoming)), lambda _: None)
        AsyncioTransport(loop, polling).open(listening.address, asking)
        await asking.ended.wait()
        listening.close()
        return polling.calls

    assert asyncio.run(asyncio.wait_for(exchange(), 20)) == [-1, 1, -1, 1]


@pytest.mark.skipif(not hasattr(os, "sched_yield"), reason="this system has no sched_yield")
def test_clients_poll_for_responses(monkeypatch: pytest.MonkeyPatch) -> None:
    yields: list[None] = []
    monkeypatch.setattr(os, "sched_yield", lambda: yields.append(None))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)

    async def exchange() -> None:
        loop = asyncio.get_running_loop()
        asking = Asking(100)
        listening = SocketListen(loop)("127.0.0.1", 0, lambda incoming: incoming.serve(Echo(incoming)), lambda _: None)
        client_process_environment(loop).transport.open(listening.address, asking)
        await asking.ended.wait()
        listening.close()

    asyncio.run(asyncio.wait_for(exchange(), 20))
    assert yields
