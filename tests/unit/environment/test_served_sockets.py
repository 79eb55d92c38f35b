"""Responses on a real socket: bytes and regions of files arrive in order, whatever their lengths."""

import asyncio
import random
import socket
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ottla.environment.deferred_sends import DeferredSends
from ottla.environment.disk import DiskStore
from ottla.environment.files import LogFile, Region
from ottla.environment.listening import ServedSocket, Shared, SocketListen, Turns


class Receiver:
    """Connection whose client sends nothing."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def readable(self, receive: Callable[[Sequence[Any]], int]) -> None:
        raise AssertionError("the client sends nothing")

    def written(self) -> None:
        self.ended.set_result("written")

    def lost(self) -> None:
        self.ended.set_result("lost")


def shared(turns: Turns | None = None) -> Shared:
    return Shared(turns or Turns(), DeferredSends(asyncio.get_running_loop().call_soon))


async def send(pieces: Sequence[Any]) -> tuple[bytes, str]:
    """Write pieces to a socket; return what arrives, and how the write ended."""
    loop = asyncio.get_running_loop()
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    served, receiver = ServedSocket(loop, near, ("client", 0), shared()), Receiver()
    served.serve(receiver)
    served.pause_reading()
    receiver.ended.add_done_callback(lambda _: served.close())
    if served.write(pieces):
        receiver.written()
    arrived = bytearray()
    while data := await asyncio.wait_for(loop.sock_recv(far, 1 << 20), 10):
        arrived += data
    far.close()
    return bytes(arrived), receiver.ended.result()


@pytest.fixture
def file(tmp_path: Path, dice_seed: int) -> LogFile:
    file = DiskStore().open(tmp_path / "f")
    file.append([random.Random(dice_seed).randbytes(1_000_000)])
    return file


def test_bytes_and_regions_arrive_in_order(file: LogFile, dice_seed: int) -> None:
    content, dice = file.read(0, 1_000_000), random.Random(dice_seed)
    for _ in range(20):
        pieces: list[Any] = []
        expected = b""
        for _ in range(dice.randint(1, 12)):
            length = dice.choice((1, 3, 1_000, 16_384, 16_385, 200_000, 262_144, 600_000))
            position = dice.randrange(1_000_000 - length)
            part = content[position : position + length]
            expected += part
            pieces.append(dice.choice((part, memoryview(part), Region(file, position, length))))
        assert asyncio.run(send(pieces)) == (expected, "written")
    file.close()


@pytest.fixture
def read_lengths(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lengths of the regions that are read, instead of being sent by the kernel."""
    read, lengths = Region.read, list[int]()

    def counted(region: Region) -> bytes:
        lengths.append(region.length)
        return read(region)

    monkeypatch.setattr(Region, "read", counted)
    return lengths


@pytest.mark.replaces_code
def test_many_short_regions_are_not_read_at_once(file: LogFile, read_lengths: list[int]) -> None:
    content = file.read(0, 1_000_000)
    pieces = [Region(file, position, 10_000) for position in range(0, 1_000_000, 10_000)]
    assert asyncio.run(send(pieces)) == (content, "written")
    assert 200_000 <= sum(read_lengths) <= 262_144
    file.close()


@pytest.mark.replaces_code
def test_long_regions_do_not_count_among_those_that_are_read(file: LogFile, read_lengths: list[int]) -> None:
    content = file.read(0, 1_000_000)
    pieces = [Region(file, 0, 900_000), Region(file, 900_000, 100), b"end"]
    assert asyncio.run(send(pieces)) == (content[:900_100] + b"end", "written")
    assert read_lengths == [100]
    file.close()


@pytest.mark.parametrize("length", [1_000, 100_000])
def test_a_region_that_is_shorter_than_stated_loses_the_connection(file: LogFile, length: int) -> None:
    arrived, ended = asyncio.run(send([b"head", Region(file, 999_999, length), b"tail"]))
    assert ended == "lost"
    assert not arrived.endswith(b"tail")
    file.close()


async def first_sent(last_fd: int | None, position: int = 0) -> int:
    """Write a long region to a socket with room for it; return how much of it is sent at once. `last_fd` has sent last, and the
    region begins at `position`.
    """
    loop = asyncio.get_running_loop()
    near, far = socket.socketpair()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
    near.setblocking(False)
    turns = Turns()
    turns.last_fd = near.fileno() if last_fd is None else last_fd
    served = ServedSocket(loop, near, ("client", 0), shared(turns))
    served.serve(Receiver())
    with tempfile.TemporaryDirectory() as directory:
        file = DiskStore().open(Path(directory) / "f")
        file.append([bytes(1_000_000)])
        served.write([Region(file, position, 400_000), Region(file, 400_000, 100_000)])
        far.setblocking(False)
        arrived = 0
        with suppress(BlockingIOError):
            while True:
                arrived += len(far.recv(1 << 20))
        served.close()
        far.close()
        file.close()
    return arrived


@pytest.mark.skipif(sys.platform != "linux", reason="how much a socket takes is up to the system")
def test_sockets_take_turns_with_long_regions() -> None:
    """A client that is alone gets everything at once; otherwise 256 KB, to the end of a page, and the others are served before
    the rest.
    """
    assert asyncio.run(first_sent(last_fd=-1)) == 262_144
    assert asyncio.run(first_sent(last_fd=-1, position=1000)) == 261_144
    assert asyncio.run(first_sent(last_fd=None)) > 262_144


async def send_buffer_of_a_connection(size: int) -> int:
    """Return SO_SNDBUF of a connection that a listener with send buffers of `size` has accepted."""
    loop = asyncio.get_running_loop()
    accepted: asyncio.Future[Any] = loop.create_future()
    listening = SocketListen(loop)("127.0.0.1", 0, accepted.set_result, accepted.set_exception, send_buffer=size)
    with socket.create_connection(listening.address):
        incoming = await asyncio.wait_for(accepted, 10)
        buffer_size: int = incoming._socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        incoming.close()
        listening.close()
    return buffer_size


def test_the_size_of_send_buffers_is_set() -> None:
    with socket.socket() as plain:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 50_000)
        assert asyncio.run(send_buffer_of_a_connection(50_000)) == plain.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    assert asyncio.run(send_buffer_of_a_connection(-1)) != asyncio.run(send_buffer_of_a_connection(50_000))
