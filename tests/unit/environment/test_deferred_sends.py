"""Deferred sends: which responses are kept, and for how long, with a loop in memory; and sockets send all of them in order."""

import asyncio
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla.environment.deferred_sends import MANY, MOST_HELD, DeferredSends
from ottla.environment.disk import DiskStore
from ottla.environment.files import Region
from ottla.environment.listening import ServedSocket, Shared, Turns


class Passes:
    """Event loop whose passes a test ends."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []
        self.sends = DeferredSends(self.calls.append)

    def end(self) -> None:
        (call,) = self.calls
        self.calls.clear()
        call()

    def serve(self, responses: int) -> list[bool]:
        """Pass with so many responses; returns which of them were to be kept."""
        kept = [self.respond() for _ in range(responses)]
        self.end()
        return kept

    def respond(self) -> bool:
        """Send a response, or keep it; returns whether it is kept."""
        if self.sends.should_hold():
            self.sends.hold(Socket(0, []))
            return True
        self.sends.on_sent()
        return False


class Socket:
    """Socket that notes when it sends."""

    def __init__(self, name: int, sent: list[int]) -> None:
        self.name = name
        self.sent = sent

    def send_held(self) -> None:
        self.sent.append(self.name)


def test_few_responses_leave_at_once() -> None:
    passes = Passes()
    for responses in (1, MANY - 1, MANY - 1, 2):
        assert passes.serve(responses) == [False] * responses


def test_many_responses_are_kept_but_the_first() -> None:
    passes = Passes()
    assert passes.serve(MANY) == [False] * MANY
    assert passes.serve(3) == [False, True, True]
    assert passes.serve(3) == [False] * 3


def test_kept_responses_are_sent_at_the_end_of_the_pass() -> None:
    passes, sent = Passes(), list[int]()
    passes.serve(MANY)
    assert not passes.respond()
    for name in range(MOST_HELD - 1):
        passes.sends.hold(Socket(name, sent))
    assert not sent
    passes.end()
    assert sent == list(range(MOST_HELD - 1))
    passes.serve(1)
    assert sent == list(range(MOST_HELD - 1))


def test_no_more_than_some_are_kept() -> None:
    passes, sent = Passes(), list[int]()
    passes.serve(MANY)
    assert not passes.respond()
    for name in range(2 * MOST_HELD + 1):
        passes.sends.hold(Socket(name, sent))
        assert len(sent) == (name + 1) // MOST_HELD * MOST_HELD
    passes.end()
    assert sent == list(range(2 * MOST_HELD + 1))


class Receiver:
    """Connection whose client sends nothing."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def readable(self, receive: Callable[[Sequence[Any]], int]) -> None:
        raise AssertionError("the client sends nothing")

    def written(self) -> None:
        self.events.append("written")

    def lost(self) -> None:
        self.events.append("lost")


class Client:
    """Client of a broker, and the broker's socket."""

    def __init__(self, passes: Passes) -> None:
        near, self.end = socket.socketpair()
        near.setblocking(False)
        self.end.setblocking(False)
        self.receiver = Receiver()
        shared = Shared(Turns(), passes.sends)
        self.served = ServedSocket(asyncio.get_running_loop(), near, ("client", 0), shared)
        self.served.serve(self.receiver)
        self.served.pause_reading()

    def arrived(self) -> bytes | None:
        """Return what has arrived, None at the end of the connection."""
        try:
            return self.end.recv(1 << 22) or None
        except BlockingIOError:
            return b""


@contextmanager
def keeping(count: int) -> Iterator[tuple[Passes, list[Client]]]:
    """Clients in a pass in which responses are kept, after the first."""
    passes = Passes()
    clients = [Client(passes) for _ in range(count)]
    passes.serve(MANY)
    assert not passes.respond()
    try:
        yield passes, clients
    finally:
        for client in clients:
            client.served.close()
            client.end.close()


def run(test: Callable[[], Any]) -> None:
    async def main() -> None:
        await asyncio.wait_for(test(), 10)

    asyncio.run(main())


def test_a_kept_response_leaves_at_the_end_of_the_pass() -> None:
    async def test() -> None:
        with keeping(3) as (passes, clients):
            assert all(client.served.write((b"answer",)) for client in clients)
            assert [client.arrived() for client in clients] == [b""] * 3
            passes.end()
            assert [client.arrived() for client in clients] == [b"answer"] * 3
            passes.serve(1)
            assert [client.arrived() for client in clients] == [b""] * 3

    run(test)


@pytest.mark.parametrize("following", ["bytes", "region", "several"])
def test_a_second_response_comes_after_the_kept_one(tmp_path: Path, following: str) -> None:
    async def test() -> None:
        file = DiskStore().open(tmp_path / "f")
        file.append([b"region" * 5_000])
        pieces = {"bytes": (b"2",), "region": (Region(file, 0, 30_000),), "several": (b"2", Region(file, 0, 6))}[
            following
        ]
        expected = {"bytes": b"2", "region": b"region" * 5_000, "several": b"2region"}[following]
        with keeping(1) as (passes, (client,)):
            assert client.served.write((b"1",))
            assert client.served.write(pieces)
            passes.end()
            assert client.arrived() == b"1" + expected
        file.close()

    run(test)


def test_a_connection_is_closed_after_its_kept_response() -> None:
    async def test() -> None:
        with keeping(2) as (passes, (closed, other)):
            for client in (closed, other):
                assert client.served.write((b"answer",))
            closed.served.close()
            assert (closed.arrived(), closed.arrived(), other.arrived()) == (b"answer", None, b"")
            passes.end()
            assert other.arrived() == b"answer"

    run(test)


def test_no_callback_follows_a_close() -> None:
    async def test() -> None:
        with keeping(1) as (passes, (client,)):
            assert client.served.write((b"answer",))
            client.end.close()
            client.served.close()
            passes.end()
            assert not client.receiver.events

    run(test)


def test_data_that_does_not_fit_into_the_socket_is_sent_later() -> None:
    async def test() -> None:
        with keeping(1) as (passes, (client,)):
            assert client.served.write((bytes(3_000_000),))
            passes.end()
            assert not client.served.write((b"end",))
            arrived = b""
            while not arrived.endswith(b"end"):
                arrived += client.arrived() or b""
                await asyncio.sleep(0)
            assert arrived == bytes(3_000_000) + b"end"
            assert client.receiver.events == ["written"]

    run(test)


def test_a_lost_connection_does_not_keep_the_others_waiting() -> None:
    async def test() -> None:
        with keeping(3) as (passes, clients):
            for client in clients:
                assert client.served.write((b"answer",))
            clients[1].end.close()
            passes.end()
            assert [client.receiver.events for client in clients] == [[], ["lost"], []]
            assert clients[0].arrived() == clients[2].arrived() == b"answer"

    run(test)
