"""File interface of the log: append-only files, small files that are replaced as a whole, mapped indexes, directories.

The log uses files and directories only through `Store`, so that a test can replace it (`tests/memory_store.py`,
`tests/faulty_store.py`). There are three levels of durability, as flushing is slow:

    append, write   write to the page cache: survives a crash of the process
    replace         writes and flushes to disk: survives a crash of the machine
    flush           flushes data of append and write to disk; flushing a directory flushes its names

A read of the log returns a `Region`, which is not copied but sent by sendfile. A store keeps a bounded number of files and
mappings open, independent of the number of partitions: a closed file is opened again by its path when it is used.
"""

import mmap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, final


class LogFile(Protocol):
    """Append-only file."""

    size: int

    def append(self, buffers: Sequence[bytes | memoryview]) -> None:
        """Write `buffers` at the end, all or nothing. Raises OSError."""

    def read(self, position: int, length: int) -> bytes:
        """Read at most `length` bytes from `position`; fewer at the end of the file. Raises OSError."""

    def reserve(self, size: int) -> None:
        """Preallocate `size` bytes on disk; the attribute `size` stays the number of appended bytes. Raises OSError."""

    def truncate(self, size: int) -> None:
        """Truncate the file to `size`, and release preallocated space. Raises OSError."""

    def move(self, path: Path) -> None:
        """Rename the file; open readers are not affected. Raises OSError."""

    def moved(self, path: Path) -> None:
        """Record a new path of the file, after a rename of its directory."""

    def flush(self) -> None:
        """Flush everything to disk. May be called by another thread. Raises OSError."""

    def fileno(self) -> int: ...

    def close(self) -> None: ...


class Store(Protocol):
    """Storage of files. Every method raises OSError when the disk fails.

    durable  False if files may be lost in a power failure: then nothing is flushed to disk
    """

    @property
    def durable(self) -> bool: ...

    def close(self) -> None:
        """Close all files and mappings; later use of one opens it again."""

    def open(self, path: Path) -> LogFile:
        """Return the file at `path`; a missing one is created by the first append."""

    def names(self, directory: Path) -> list[str]: ...

    def read_text(self, path: Path) -> str | None:
        """Read a small file as text, None if it is missing; invalid UTF-8 becomes U+FFFD."""

    def mapped(self, path: Path) -> bytes | mmap.mmap:
        """Return the bytes of a file that is complete; empty if it is missing. Valid until the next call of the store."""

    def write(self, path: Path, data: bytes) -> None:
        """Write a small file atomically for a crash of the process: write a temporary file, then rename it."""

    def replace(self, path: Path, data: bytes) -> None:
        """Write a small file atomically for a crash of the machine: flush the temporary file to disk before the rename."""

    def flush(self, path: Path) -> None:
        """Flush a file, or the names in a directory, to disk. May be called by another thread."""

    def flush_everything(self) -> None:
        """Flush all written data to disk."""

    def exists(self, path: Path) -> bool:
        """Return True if there is a file or directory at `path`."""

    def is_directory(self, path: Path) -> bool:
        """Return True if there is a directory at `path`."""

    def make_directory(self, path: Path, *, parents: bool = False) -> None:
        """Create a directory unless it exists. With `parents` create missing parents as well, and flush the names of new
        directories to disk.
        """

    def modified_ms(self, path: Path) -> int:
        """Return the time of the last write to a file, in ms since the epoch; 0 if it is missing."""

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file or directory. Raises FileNotFoundError if it is missing."""

    def remove(self, path: Path) -> None:
        """Remove a file if it exists."""

    def remove_tree(self, path: Path) -> None:
        """Remove a directory and its content, as far as possible. Never raises."""

    def room(self, path: Path) -> tuple[int, int]:
        """Return the total bytes of the volume of `path`, and the bytes free for this process."""

    def lock(self, path: Path) -> Callable[[], None]:
        """Lock the directory at `path` for one broker, and return a function that unlocks it. Raises BlockingIOError if another
        broker has it.
        """


@final
class Region:
    """Region of a file (`length` bytes from `position`), which a fetch sends without reading it."""

    __slots__ = ("file", "length", "position")

    def __init__(self, file: LogFile, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length

    def __len__(self) -> int:
        return self.length

    def read(self) -> bytes:
        """Read the bytes, for a connection that cannot use sendfile."""
        return self.file.read(self.position, self.length)
