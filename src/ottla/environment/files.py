"""The file interface of the log: append-only files, small files that are replaced whole, closed indexes that are mapped, and
directories.

Everything the log does with files and directories goes through `Store`, so that a test can put another one in its place
(`log/memory_store.py`, `log/faulty_store.py`). Three strengths of writing, because only what must survive the machine is worth
waiting for:

    append, write   in the system's cache: survives the process
    replace         as write, and flushed to disk when it returns
    flush           flushes what append and write left in the cache to disk; flushing a directory flushes its names

A `Region` is what a read returns: nothing is copied until the socket takes it by sendfile. A store keeps a bounded number of
files and of mappings open, whatever the number of partitions: a file is opened again by its name when it is needed.
"""

import mmap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, final


class LogFile(Protocol):
    """An append-only file."""

    size: int

    def append(self, buffers: Sequence[bytes | memoryview]) -> None:
        """Write `buffers` at the end, all or nothing. Raises OSError."""

    def read(self, position: int, length: int) -> bytes:
        """At most `length` bytes from `position`; fewer at the end of the file. Raises OSError."""

    def reserve(self, size: int) -> None:
        """Preallocate `size` bytes on disk; the attribute `size` stays what was appended. Raises OSError."""

    def truncate(self, size: int) -> None:
        """Cut the file at `size`, and give back what was reserved. Raises OSError."""

    def move(self, path: Path) -> None:
        """Give the file another name; who reads it goes on. Raises OSError."""

    def moved(self, path: Path) -> None:
        """The file has another name already, because its directory has."""

    def flush(self) -> None:
        """Flush everything to disk. May be called by another thread. Raises OSError."""

    def fileno(self) -> int: ...

    def close(self) -> None: ...


class Store(Protocol):
    """Storage of the files. Every method raises OSError when the disk fails.

    durable  False if nothing waits for the disk, because the files may be lost with the power
    """

    @property
    def durable(self) -> bool: ...

    def close(self) -> None:
        """Close every file and every mapping; one that is used nevertheless is opened again."""

    def open(self, path: Path) -> LogFile:
        """The file at `path`; it comes into being with the first append."""

    def names(self, directory: Path) -> list[str]: ...

    def read_text(self, path: Path) -> str | None:
        """The whole text of a small file, None when it is missing; bytes that are no UTF-8 become U+FFFD."""

    def mapped(self, path: Path) -> bytes | mmap.mmap:
        """The bytes of a file that is not written to any more; empty when it is missing. Good until the next call."""

    def write(self, path: Path, data: bytes) -> None:
        """Write a small file so that a crash of the process leaves the old or the new one: beside it, then renamed."""

    def replace(self, path: Path, data: bytes) -> None:
        """As `write`, and the new file is flushed to disk before it takes the name."""

    def flush(self, path: Path) -> None:
        """Flush a file, or the names in a directory, to disk. May be called by another thread."""

    def flush_everything(self) -> None:
        """Flush all that was written to disk."""

    def exists(self, path: Path) -> bool:
        """Return whether there is a file or directory at `path`."""

    def is_directory(self, path: Path) -> bool:
        """Return whether there is a directory at `path`."""

    def make_directory(self, path: Path, *, parents: bool = False) -> None:
        """Make a directory unless it is there. With `parents` also those above it, and the names of new ones are on disk when
        this returns.
        """

    def modified_ms(self, path: Path) -> int:
        """Return the time of the last write to a file, in ms since the epoch; 0 if it is missing."""

    def rename(self, old: Path, new: Path) -> None:
        """Give a file or directory another name. Raises FileNotFoundError if it is missing."""

    def remove(self, path: Path) -> None:
        """Take a file away if it is there."""

    def remove_tree(self, path: Path) -> None:
        """Remove a directory and all that is in it, as far as that is possible. Never raises."""

    def room(self, path: Path) -> tuple[int, int]:
        """Bytes of the volume that `path` is on: in all, and free for this process."""

    def lock(self, path: Path) -> Callable[[], None]:
        """Lock the directory at `path` for one broker, and return a function that unlocks it. Raises BlockingIOError if another
        broker has it.
        """


@final
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
        """The bytes themselves, for a consumer that cannot take a file."""
        return self.file.read(self.position, self.length)
