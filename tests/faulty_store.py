"""Store that injects errors into another store, for tests of error handling.

    store = FaultyStore(MemoryStore(), lambda operation, path: OSError(errno.EIO, "Input/output error") if ... else None)

The operations are list, make directory, append, torn append (a part of the bytes is written, then it fails), read, short
read (half of the bytes, as of a file that lost its end), reserve, truncate, flush, write, replace, rename, remove, look up,
read times, read room and lock.
"""

import mmap
from collections.abc import Callable, Sequence
from pathlib import Path

from ottla.environment.files import LogFile, Store

Fault = Callable[[str, Path], OSError | None]


class FaultyFile:
    """File whose operations may fail."""

    def __init__(self, file: LogFile, path: Path, fault: Callable[[str, Path], None], fails: Fault) -> None:
        self._file = file
        self._path = path
        self._fault = fault
        self._fails = fails

    @property
    def size(self) -> int:
        return self._file.size

    @size.setter
    def size(self, size: int) -> None:
        self._file.size = size

    def append(self, buffers: Sequence[bytes | memoryview]) -> None:
        self._fault("append", self._path)
        torn = self._fails("torn append", self._path)
        if torn is not None:
            size = self._file.size
            data = b"".join(buffers)
            self._file.append((data[: len(data) // 2],))
            self._file.size = size
            raise torn
        self._file.append(buffers)

    def read(self, position: int, length: int) -> bytes:
        self._fault("read", self._path)
        data = self._file.read(position, length)
        return data[: len(data) // 2] if self._fails("short read", self._path) is not None else data

    def reserve(self, size: int) -> None:
        self._fault("reserve", self._path)
        self._file.reserve(size)

    def truncate(self, size: int) -> None:
        self._fault("truncate", self._path)
        self._file.truncate(size)

    def move(self, path: Path) -> None:
        self._fault("rename", self._path)
        self._file.move(path)
        self._path = path

    def moved(self, path: Path) -> None:
        self._file.moved(path)
        self._path = path

    def flush(self) -> None:
        self._fault("flush", self._path)
        self._file.flush()

    def fileno(self) -> int:
        return self._file.fileno()

    def close(self) -> None:
        self._file.close()


class FaultyStore:
    """Store with injected errors: `fails(operation, path)` returns the error to raise, None to let the operation pass."""

    def __init__(self, store: Store, fails: Fault) -> None:
        self._store = store
        self._fails = fails

    @property
    def durable(self) -> bool:
        return self._store.durable

    def close(self) -> None:
        self._store.close()

    def _fault(self, operation: str, path: Path) -> None:
        cause = self._fails(operation, path)
        if cause is not None:
            cause.filename = str(path)
            raise cause

    def open(self, path: Path) -> FaultyFile:
        return FaultyFile(self._store.open(path), path, self._fault, self._fails)

    def names(self, directory: Path) -> list[str]:
        self._fault("list", directory)
        return self._store.names(directory)

    def read_text(self, path: Path) -> str | None:
        self._fault("read", path)
        return self._store.read_text(path)

    def mapped(self, path: Path) -> bytes | mmap.mmap:
        self._fault("read", path)
        return self._store.mapped(path)

    def write(self, path: Path, data: bytes) -> None:
        self._fault("write", path)
        self._store.write(path, data)

    def replace(self, path: Path, data: bytes) -> None:
        self._fault("replace", path)
        self._store.replace(path, data)

    def flush(self, path: Path) -> None:
        self._fault("flush", path)
        self._store.flush(path)

    def flush_everything(self) -> None:
        self._store.flush_everything()

    def exists(self, path: Path) -> bool:
        self._fault("look up", path)
        return self._store.exists(path)

    def is_directory(self, path: Path) -> bool:
        self._fault("look up", path)
        return self._store.is_directory(path)

    def make_directory(self, path: Path, *, parents: bool = False) -> None:
        self._fault("make directory", path)
        self._store.make_directory(path, parents=parents)

    def modified_ms(self, path: Path) -> int:
        self._fault("read times", path)
        return self._store.modified_ms(path)

    def rename(self, old: Path, new: Path) -> None:
        self._fault("rename", old)
        self._store.rename(old, new)

    def remove(self, path: Path) -> None:
        self._fault("remove", path)
        self._store.remove(path)

    def remove_tree(self, path: Path) -> None:
        self._store.remove_tree(path)

    def room(self, path: Path) -> tuple[int, int]:
        self._fault("read room", path)
        return self._store.room(path)

    def lock(self, path: Path) -> Callable[[], None]:
        self._fault("lock", path)
        return self._store.lock(path)
