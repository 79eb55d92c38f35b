"""The file interface of the log: an append-only file that can be read at a position, and regions of it.

Everything the log writes goes through `Store`, so that a test can put another one in its place. A file is opened when it is
first used and knows its size without asking the disk. A `Region` is what a read returns: nothing is copied until the socket
takes it by sendfile.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol


class LogFile(Protocol):
    """An append-only file."""

    size: int

    def append(self, buffers: Sequence[bytes | memoryview]) -> None:
        """Write `buffers` at the end, all or nothing. Raises OSError."""

    def read(self, position: int, length: int) -> bytes:
        """At most `length` bytes from `position`; fewer at the end of the file. Raises OSError."""

    def truncate(self, size: int) -> None: ...

    def move(self, path: Path) -> None:
        """Give the file another name; who reads it goes on. Raises OSError."""

    def flush(self) -> None:
        """Return when everything is on the medium. Raises OSError."""

    def fileno(self) -> int: ...

    def close(self) -> None: ...


class Store(Protocol):
    """Where files live."""

    def open(self, path: Path) -> LogFile:
        """The file at `path`, made when it is missing. Raises OSError."""

    def names(self, directory: Path) -> list[str]: ...

    def read_text(self, path: Path) -> str | None:
        """The whole text of a small file, None when it is missing; bytes that are no UTF-8 become U+FFFD."""

    def replace(self, path: Path, data: bytes) -> None:
        """Write a small file so that a crash leaves the old or the new one: beside it, flushed, renamed."""

    def rename(self, old: Path, new: Path) -> None: ...

    def remove(self, path: Path) -> None: ...


class Region:
    """`length` bytes of `file` from `position`: what a fetch sends without reading it."""

    __slots__ = ("file", "length", "position")

    def __init__(self, file: LogFile, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length

    def __len__(self) -> int:
        return self.length

    def read(self) -> bytes:
        """The bytes themselves, for who cannot take a file."""
        return self.file.read(self.position, self.length)


class DiskFile:
    """A file of the operating system, opened on first use."""

    __slots__ = ("_fd", "path", "size")

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self.size = size
        self._fd = -1

    def fileno(self) -> int:
        if self._fd < 0:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        return self._fd

    def append(self, buffers: Sequence[bytes | memoryview]) -> None:
        fd = self._fd if self._fd >= 0 else self.fileno()
        start = self.size
        wanted = sum(map(len, buffers))
        try:
            written = os.pwritev(fd, buffers, start)
            if written < wanted:
                self._append_rest(fd, b"".join(buffers), written)
        except OSError:
            with suppress(OSError):
                os.ftruncate(fd, start)
            raise
        self.size = start + wanted

    def _append_rest(self, fd: int, data: bytes, written: int) -> None:
        """Go on where the kernel took only a part, as it may on a nearly full disk."""
        while written < len(data):
            written += os.pwrite(fd, memoryview(data)[written:], self.size + written)

    def read(self, position: int, length: int) -> bytes:
        return os.pread(self.fileno(), min(length, max(0, self.size - position)), position)

    def truncate(self, size: int) -> None:
        os.ftruncate(self.fileno(), size)
        self.size = size

    def move(self, path: Path) -> None:
        if self.size or self.path.exists():
            self.path.replace(path)
        self.path = path

    def flush(self) -> None:
        if self._fd >= 0:
            os.fsync(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class DiskStore:
    """The file system."""

    def open(self, path: Path) -> DiskFile:
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            size = 0
        return DiskFile(path, size)

    def names(self, directory: Path) -> list[str]:
        return sorted(os.listdir(directory))

    def read_text(self, path: Path) -> str | None:
        try:
            return path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None

    def replace(self, path: Path, data: bytes) -> None:
        beside = path.with_name(path.name + ".tmp")
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)

    def rename(self, old: Path, new: Path) -> None:
        old.replace(new)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)
