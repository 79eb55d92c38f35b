"""Store on the file system of the operating system."""

import mmap
import os
import shutil
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from mypy_extensions import mypyc_attr

from ottla.environment import private_files

_DATA_SYNC: Final[Callable[[int], None]] = getattr(os, "fdatasync", os.fsync)
"""fdatasync, which flushes the bytes and size of a file but not its times; fsync where the system lacks it."""
_SMALL: Final = 1 << 14
"""Size up to which files are read rather than mapped, in bytes."""
_MOST_MAPPINGS: Final = 512
_FILES_PER_LOG_FILE: Final = 4
"""Divisor of the process's limit of open files: a fourth is for log files, the rest for sockets."""


class DiskFile:
    """Log file that is opened on use, and closed by its store to stay within the limit of open files."""

    __slots__ = ("_fd", "_reserved", "_store", "in_use", "path", "size")

    def __init__(self, store: "DiskStore", path: Path, size: int) -> None:
        self._store = store
        self.path = path
        self.size = size
        self.in_use = False
        self._fd = -1
        self._reserved = False

    def fileno(self) -> int:
        self.in_use = True
        if self._fd < 0:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, private_files.FILE_MODE)
            self._store.on_opened(self)
        return self._fd

    def append(self, buffers: Sequence[bytes | memoryview]) -> None:
        fd = self.fileno()
        start = self.size
        size = sum(map(len, buffers))
        try:
            written = os.pwritev(fd, buffers, start)
            if written < size:
                self._append_rest(fd, b"".join(buffers), written)
        except OSError as cause:
            with suppress(OSError):
                os.ftruncate(fd, start)
            cause.filename = str(self.path)
            raise
        self.size = start + size

    def _append_rest(self, fd: int, data: bytes, written: int) -> None:
        """Write the rest after a partial write, which may occur on a nearly full disk."""
        while written < len(data):
            written += os.pwrite(fd, memoryview(data)[written:], self.size + written)

    def read(self, position: int, length: int) -> bytes:
        fd = self.fileno()
        try:
            return os.pread(fd, min(length, max(0, self.size - position)), position)
        except OSError as cause:
            cause.filename = str(self.path)
            raise

    def reserve(self, size: int) -> None:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self.fileno(), 0, size)
        else:
            os.ftruncate(self.fileno(), size)
        self._reserved = True

    def truncate(self, size: int) -> None:
        if size != self.size or self._reserved:
            os.ftruncate(self.fileno(), size)
        self.size = size
        self._reserved = False

    def move(self, path: Path) -> None:
        if self.size or self.path.exists():
            self.path.replace(path)
        self.path = path

    def moved(self, path: Path) -> None:
        self.path = path

    def flush(self) -> None:
        self._store.flush(self.path, _DATA_SYNC)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._store.on_closed(self)


@mypyc_attr(allow_interpreted_subclasses=True)  # tests let it fail
class DiskStore:
    """Store on the file system.

    most_files  maximum number of open log files
    durable     False if files may be lost in a power failure: then nothing is flushed to disk
    """

    def __init__(self, most_files: int | None = None, *, durable: bool = True) -> None:
        self.durable = durable
        self._most_files = _room_for_files() if most_files is None else most_files
        self._open: dict[DiskFile, None] = {}
        self._mappings: OrderedDict[Path, mmap.mmap] = OrderedDict()

    def open(self, path: Path) -> DiskFile:
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            size = 0
        return DiskFile(self, path, size)

    def on_opened(self, file: DiskFile) -> None:
        """Record an opened file; if too many are open, close the one opened longest ago and not used since."""
        files = self._open
        files[file] = None
        while len(files) > self._most_files:
            oldest = next(iter(files))
            if oldest.in_use:
                oldest.in_use = False
                del files[oldest]
                files[oldest] = None
            else:
                oldest.close()

    def on_closed(self, file: DiskFile) -> None:
        """Record a closed file."""
        self._open.pop(file, None)

    @property
    def open_files(self) -> int:
        """Number of open files."""
        return len(self._open)

    @property
    def mappings(self) -> int:
        """Number of mapped files."""
        return len(self._mappings)

    def close(self) -> None:
        """Close all files and mappings; later use of one opens it again."""
        for file in tuple(self._open):
            file.close()
        for mapping in self._mappings.values():
            mapping.close()
        self._mappings.clear()

    def names(self, directory: Path) -> list[str]:
        return sorted(os.listdir(directory))

    def read_text(self, path: Path) -> str | None:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            data = os.read(fd, _SMALL)
            while len(data) % _SMALL == 0 and (more := os.read(fd, _SMALL)):
                data += more
        finally:
            os.close(fd)
        return data.decode("utf-8", "replace")

    def mapped(self, path: Path) -> bytes | mmap.mmap:
        mapping = self._mappings.get(path) if self._mappings else None
        if mapping is not None:
            self._mappings.move_to_end(path)
            return mapping
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return b""
        try:
            size = os.fstat(fd).st_size
            if size <= _SMALL:
                return os.read(fd, size)
            mapping = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
        finally:
            os.close(fd)
        self._mappings[path] = mapping
        if len(self._mappings) > _MOST_MAPPINGS:
            self._mappings.popitem(last=False)[1].close()
        return mapping

    def _unmap(self, path: Path) -> None:
        mapping = self._mappings.pop(path, None)
        if mapping is not None:
            mapping.close()

    def write(self, path: Path, data: bytes) -> None:
        self._put(path, data, durable=False)

    def replace(self, path: Path, data: bytes) -> None:
        self._put(path, data, durable=True)

    def _put(self, path: Path, data: bytes, *, durable: bool) -> None:
        self._unmap(path)
        beside = path.with_name(path.name + ".tmp")
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, private_files.FILE_MODE)
        try:
            view = memoryview(data)
            while view:
                written = os.write(fd, view)
                view = view[written:]
            if durable and self.durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        beside.replace(path)
        if durable:
            self.flush(path.parent)

    def flush(self, path: Path, sync: Callable[[int], None] = os.fsync) -> None:
        if not self.durable:
            return
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # removed in the meantime, or never written to
        try:
            sync(fd)
        finally:
            os.close(fd)

    def flush_everything(self) -> None:
        if self.durable:
            os.sync()

    def exists(self, path: Path) -> bool:
        return path.exists()

    def is_directory(self, path: Path) -> bool:
        return path.is_dir()

    def make_directory(self, path: Path, *, parents: bool = False) -> None:
        if not parents:
            path.mkdir(mode=private_files.DIRECTORY_MODE, exist_ok=True)
        elif not path.is_dir():
            if not path.parent.exists():
                self.make_directory(path.parent, parents=True)
            path.mkdir(mode=private_files.DIRECTORY_MODE, exist_ok=True)
            with suppress(PermissionError):  # a directory may be writable but not readable
                self.flush(path.parent)

    def modified_ms(self, path: Path) -> int:
        try:
            return path.stat().st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return 0

    def rename(self, old: Path, new: Path) -> None:
        self._unmap(old)
        self._unmap(new)
        old.replace(new)
        if self._mappings and new.is_dir():
            # The paths may belong to other files later, as with a partition that moves to another directory and back.
            for mapped in [path for path in self._mappings if path.parent in (old, new)]:
                self._unmap(mapped)

    def remove(self, path: Path) -> None:
        self._unmap(path)
        path.unlink(missing_ok=True)

    def remove_tree(self, path: Path) -> None:
        shutil.rmtree(path, ignore_errors=True)

    def room(self, path: Path) -> tuple[int, int]:
        total, _, free = shutil.disk_usage(path)
        return total, free

    def lock(self, path: Path) -> Callable[[], None]:
        return partial(os.close, lock_directory(path))


def lock_directory(path: Path) -> int:
    """Lock the directory: by flock against other Ottla brokers, by a POSIX lock (Java's FileLock) against Apache Kafka.

    The lock ends when the returned file descriptor is closed, in all processes that inherited it. Raises BlockingIOError if
    another process has it.
    """
    import fcntl

    fd = os.open(path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, private_files.FILE_MODE)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as cause:
        os.close(fd)
        raise BlockingIOError(f"{path} is in use by another broker") from cause
    return fd


def _room_for_files() -> int:
    """Return the maximum number of open log files: a fourth of the process's limit, at least 16; the rest is for sockets."""
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 100_000 if soft == resource.RLIM_INFINITY else max(16, soft // _FILES_PER_LOG_FILE)
