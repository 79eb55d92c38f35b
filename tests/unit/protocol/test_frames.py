"""Frames come out whole and in order, however the bytes were cut on their way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.frames import FrameReader, Rooms
from ottla.protocol.wire import PeerError


def receive(reader: FrameReader, stream: bytes, cuts: list[int]) -> list[bytes]:
    """Feed `stream` in pieces, as a server does: the rest of an unfinished frame first, then the shared buffer."""
    frames: list[bytes] = []
    at = 0
    for cut in [*cuts, len(stream)]:
        piece = stream[at : at + cut]
        at += len(piece)
        if not piece:
            continue
        room = reader.room()
        if room is None:
            frames += reader.feed(bytearray(piece), len(piece))
        else:
            fitted = min(len(room), len(piece))
            room[:fitted] = piece[:fitted]
            room.release()
            frames += reader.feed_rest(bytearray(piece[fitted:]), len(piece))
    return frames


@given(st.lists(st.binary(max_size=40), max_size=8), st.lists(st.integers(1, 30), max_size=40))
def test_any_cutting_gives_the_same_frames(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    reader = FrameReader(1000)
    assert receive(reader, stream, cuts) == bodies
    assert reader.room() is None


def test_a_large_frame_grows_with_what_arrives() -> None:
    body = bytes(range(256)) * 40_000
    stream = len(body).to_bytes(4, "big") + body
    assert receive(FrameReader(1 << 30), stream, [100, 700_000, 3_000_000, 1]) == [body]


def test_a_lying_size_costs_no_memory() -> None:
    reader = FrameReader(100 << 20)
    reader.feed(bytearray((90 << 20).to_bytes(4, "big") + b"x"), 5)
    assert reader.partial is not None
    assert len(reader.partial) <= 4096


def test_memory_follows_what_arrives() -> None:
    """100 MB announced, sent in small pieces: never more than four times what came, beside the first 4 KB."""
    reader = FrameReader(200 << 20)
    reader.feed(bytearray((100 << 20).to_bytes(4, "big") + b"x"), 5)
    arrived = 5
    while arrived < 3 << 20:
        room = reader.room()
        assert room is not None
        size = min(len(room), 10_000)
        room.release()
        reader.feed_rest(bytearray(), size)
        arrived += size
        assert reader.partial is not None
        assert len(reader.partial) <= max(4096, 4 * arrived)


def test_the_next_large_frame_is_received_into_what_the_last_one_left() -> None:
    rooms = Rooms()
    readers = [FrameReader(1 << 30, rooms) for _ in range(2)]
    bodies = [bytes([number]) * size for number, size in enumerate((3 << 20, 2 << 20, 500_000, 3 << 20))]
    seen = set()
    for number, body in enumerate(bodies):
        reader = readers[number % 2]
        stream = len(body).to_bytes(4, "big") + body
        frames = receive(reader, stream[:100], [])
        assert frames == []
        seen.add(id(reader.partial))
        assert receive(reader, stream[100:], [200_000, 1]) == [body]
    assert len(seen) == 1
    assert [len(room) for room in rooms.free] == [4 + (3 << 20)]


def test_what_frames_leave_is_kept_up_to_a_bound() -> None:
    rooms = Rooms()
    for size in (100, 5 << 20, 1 << 20, 4 << 20, 2 << 20):
        rooms.give(bytearray(size))
    assert [len(room) for room in rooms.free] == [1 << 20, 2 << 20, 5 << 20]
    assert [len(rooms.take(size)) for size in (3 << 20, 3 << 20, 1000)] == [5 << 20, 3 << 20, 2 << 20]
    assert rooms.size == 1 << 20


@pytest.mark.parametrize("size", [1001, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
def test_a_size_beyond_the_limit_is_refused(size: int) -> None:
    with pytest.raises(PeerError):
        FrameReader(1000).feed(bytearray(size.to_bytes(4, "big")), 4)


@pytest.mark.parametrize("size", [1001, 0xFFFFFFFF])
def test_a_split_size_beyond_the_limit_is_refused(size: int) -> None:
    with pytest.raises(PeerError):
        receive(FrameReader(1000), size.to_bytes(4, "big") + b"x", [3, 1])
