"""Frames: splits a stream of bytes into requests or responses.

     0               4
    +---------------+------------------- - - -
    | size (int32)  | size bytes: header, body
    +---------------+------------------- - - -

Strategy. All connections of a broker receive into one shared buffer, so an idle connection needs little memory; a complete
frame is copied once to `bytes` (the decoders are sixty times faster on bytes). Only an incomplete frame has memory of its
own: it is collected in `partial`, into which its rest is received directly, and copied once when it is complete. The size of
a frame comes first and may be wrong, so `partial` grows with the received bytes, to a small multiple of them, not to the
announced size. Buffers of finished frames are reused (`Rooms`): Python clears new memory and the kernel maps it page by page,
which takes longer than receiving.

Compiled with mypyc where there is a compiler.
"""

from typing import Final, final

from mypy_extensions import i64

from ottla.protocol.wire import PeerError

_LEAST_ROOM: Final = 1 << 12
_MOST_ADDED: Final = 1 << 20
"""Maximum growth of a buffer that is smaller than this, in bytes; larger ones double."""
_KEPT_ROOM: Final = 8 << 20
_SMALLEST_KEPT: Final = 1 << 16
_TLS_HANDSHAKE: Final = 0x1603
_TLS_ALERT: Final = 0x1503
"""First two bytes of a TLS connection, and of a refusal by TLS, which would be those of a size."""


@final
class Rooms:
    """Pool of buffers of finished frames, at most `_KEPT_ROOM` bytes, for all connections of an event loop."""

    def __init__(self) -> None:
        self.free: list[bytearray] = []
        self.size: int = 0

    def take(self, size: int) -> bytearray:
        """Return a buffer of at least this size."""
        free = self.free
        if free and len(free[-1]) >= size:
            room = free.pop()
            self.size -= len(room)
            return room
        return bytearray(size)

    def give(self, room: bytearray) -> None:
        """Return a buffer to the pool; the largest one is reused first."""
        free = self.free
        if len(room) < _SMALLEST_KEPT or self.size + len(room) > _KEPT_ROOM:
            return
        self.size += len(room)
        free.append(room)
        if len(free) > 1 and len(free[-2]) > len(room):
            free.sort(key=len)


@final
class FrameReader:
    """Splits the bytes received on one connection into frames. Raises PeerError for a frame of more than `limit` bytes.

    rooms   pool of buffers, shared with the other connections of the event loop
    config  the config that is the limit, for the error
    """

    def __init__(self, limit: int, rooms: Rooms | None = None, config: str = "socket.request.max.bytes") -> None:
        self.limit: int = limit
        self.config: str = config
        self.rooms: Rooms = rooms or Rooms()
        self.partial: bytearray | None = None
        self.have: int = 0
        self.need: int = 0  # size of the unfinished frame with its size field; 4 until the size field is complete
        self.finished: int = 0  # number of frames that were unfinished, and are complete

    def room(self) -> memoryview | None:
        """Return the memory for the rest of an unfinished frame, to be filled before the shared buffer; None without one."""
        partial = self.partial
        if partial is None:
            return None
        return memoryview(partial)[self.have : min(self.need, len(partial))]

    def feed(self, shared: bytearray, length: int) -> list[bytes]:
        """Return the frames, without their size fields, that `length` bytes at the start of `shared` complete."""
        start: i64 = 0
        end: i64 = length
        frames: list[bytes] = []
        while end - start >= 4:
            size: i64 = (shared[start] << 24) | (shared[start + 1] << 16) | (shared[start + 2] << 8) | shared[start + 3]
            if size > self.limit:
                raise self._oversized(size)
            if end - start < 4 + size:
                break
            frames.append(bytes(memoryview(shared)[start + 4 : start + 4 + size]))
            start += 4 + size
        if start < end:
            self._keep(shared, start, end)
        return frames

    def feed_rest(self, shared: bytearray, length: int) -> list[bytes]:
        """Return the frames that `length` bytes complete, which were received into `room()` first and then into `shared`."""
        partial = self.partial
        if partial is None:
            return self.feed(shared, length)
        fitted = min(length, min(self.need, len(partial)) - self.have)
        self.have += fitted
        frames: list[bytes] = []
        if self.have == self.need and self.need == 4:
            size = int.from_bytes(partial[:4], "big")
            if size > self.limit:
                raise self._oversized(size)
            self.need = 4 + size
        if self.have == self.need:
            frames.append(self._finished(partial))
        elif self.have == len(partial):
            self._grow(partial)
        if length > fitted:
            over = length - fitted
            if self.partial is not None:
                # The size field was split: the bytes after it are still in the shared buffer.
                taken = min(over, self.need - self.have)
                self._extend(shared, taken)
                shared_start = taken
                if self.have == self.need:
                    frames.append(self._finished(self.partial))
                shared[: over - shared_start] = shared[shared_start:over]
                over -= shared_start
            if over:
                frames.extend(self.feed(shared, over))
        return frames

    def release(self) -> None:
        """Release the memory of an unfinished frame: its connection is closed."""
        partial = self.partial
        if partial is not None:
            self.partial = None
            self.have = 0
            self.rooms.give(partial)

    def _keep(self, shared: bytearray, start: i64, end: i64) -> None:
        """Begin an unfinished frame with its received bytes."""
        have = end - start
        if have < 4:
            self.need = 4
        else:
            self.need = 4 + int.from_bytes(shared[start : start + 4], "big")
        self.partial = partial = self.rooms.take(min(self.need, max(_LEAST_ROOM, 4 * have)))
        partial[:have] = memoryview(shared)[start:end]
        self.have = have

    def _finished(self, partial: bytearray) -> bytes:
        frame = bytes(memoryview(partial)[4 : self.need])
        self.partial = None
        self.have = 0
        self.finished += 1
        self.rooms.give(partial)
        return frame

    def _extend(self, shared: bytearray, taken: int) -> None:
        partial = self.partial
        assert partial is not None
        while len(partial) < self.have + taken:
            self._grow(partial)
        partial[self.have : self.have + taken] = memoryview(shared)[:taken]
        self.have += taken

    def _grow(self, partial: bytearray) -> None:
        have = len(partial)
        partial.extend(bytes(min(self.need - have, max(have, min(3 * have, _MOST_ADDED)))))

    def _oversized(self, size: int) -> PeerError:
        if size >> 16 == _TLS_HANDSHAKE:
            return PeerError(
                "the first bytes are TLS, and this listener has none: the client uses it (security.protocol)"
            )
        if size >> 16 == _TLS_ALERT:
            return PeerError("the peer answered in TLS")
        if size >= 1 << 31:
            return PeerError(f"a frame says it is {size - (1 << 32)} bytes long")
        return PeerError(f"a frame of {size} bytes is larger than the {self.limit} allowed ({self.config})")
