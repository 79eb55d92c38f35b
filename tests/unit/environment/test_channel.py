"""Lines between the process of a broker and its parent: order, equal lines, an end that does not read, the end of a process."""

import asyncio
import socket
from collections.abc import Callable, Iterator

import pytest

from ottla.environment.channel import Channel


class Ends:
    """Both ends of a channel, on one event loop."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.lines: list[str] = []
        self.closed: list[str] = []
        self.sockets = socket.socketpair()
        first, second = self.sockets
        self.one = Channel(self.loop, first, self.lines.append, lambda: self.closed.append("one"))
        self.other = Channel(self.loop, second, self.lines.append, lambda: self.closed.append("other"))

    def until(self, condition: Callable[[], bool]) -> None:
        async def wait() -> None:
            async with asyncio.timeout(10):
                while not condition():
                    await asyncio.sleep(0)

        self.loop.run_until_complete(wait())


@pytest.fixture
def ends() -> Iterator[Ends]:
    opened = Ends()
    yield opened
    opened.one.close()
    opened.other.close()
    opened.loop.close()


def test_lines_arrive_in_order(ends: Ends) -> None:
    ends.one.send("listening PLAINTEXT://127.0.0.1:1")
    ends.one.send("changed")
    ends.until(lambda: len(ends.lines) == 2)
    assert ends.lines == ["listening PLAINTEXT://127.0.0.1:1", "changed"]


def test_equal_lines_that_arrive_together_are_passed_once(ends: Ends) -> None:
    for _ in range(50):
        ends.one.send("changed")
    ends.until(lambda: bool(ends.lines))
    ends.one.send("end")
    ends.until(lambda: "end" in ends.lines)
    assert ends.lines == ["changed", "end"]


def test_lines_for_an_end_that_does_not_read_are_dropped_whole(ends: Ends) -> None:
    ends.loop.remove_reader(ends.sockets[1])
    for number in range(200_000):
        ends.one.send(f"{number}")
    ends.loop.add_reader(ends.sockets[1], ends.other._read)
    ends.until(lambda: not ends.one._unsent)
    ends.one.send("last")
    ends.until(lambda: ends.lines[-1:] == ["last"])
    count = len(ends.lines) - 1
    assert 100 < count < 200_000
    assert ends.lines[:count] == [str(number) for number in range(count)]


def test_the_end_of_a_process_closes_the_other_end(ends: Ends) -> None:
    ends.one.send("last")
    ends.one.close()
    ends.until(lambda: bool(ends.closed))
    assert (ends.lines, ends.closed) == (["last"], ["other"])
    ends.other.send("ignored")
