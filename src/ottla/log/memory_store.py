"""A store in memory that tracks what a disk would hold: for tests of what survives a crash.

A crash of the process leaves everything as it is. A loss of power leaves what was flushed, and a random part of the rest: of
a file's bytes since its last flush a prefix, perhaps with other bytes behind it; of the names that were created, changed and
removed in a directory since its last flush the first few, in order, as a journal keeps them.

    store = MemoryStore()
    log = Log(store, ...)
    after = store.power_loss(random.Random(7))
"""

import errno
import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class _Content:
    """The bytes of a file: as the system shows them (`data`), and as they are on disk (`durable`)."""

    __slots__ = ("data", "durable", "modified_ms")

    def __init__(self, data: bytes = b"", durable: bytes = b"") -> None:
        self.data = bytearray(data)
        self.durable = durable
        self.modified_ms = 0


class _Named(NamedTuple):
    """A name that was given (`new`), taken away (`old`), or both at once."""

    directory: Path
    old: Path | None
    new: Path | None
    content: _Content | None

    def apply(self, names: dict[Path, _Content]) -> None:
        if self.old is not None:
            names.pop(self.old, None)
        if self.new is not None and self.content is not None:
            names[self.new] = self.content


class MemoryFile:
    """An append-only file in a MemoryStore."""

    def __init__(self, store: "MemoryStore", path: Path) -> None:
        self._store = store
        self.path = path
        self.size = len(store.content(path).data) if store.exists(path) else 0

    def append(self, buffers: Sequence[bytes | memoryview]) -> None:
        data = b"".join(buffers)
        content = self._store.content(self.path)
        content.data[self.size :] = data
        self.size += len(data)

    def read(self, position: int, length: int) -> bytes:
        if not self._store.exists(self.path):
            return b""
        end = min(position + length, self.size)
        return bytes(self._store.content(self.path).data[position:end])

    def reserve(self, size: int) -> None:
        content = self._store.content(self.path)
        content.data.extend(bytes(max(0, size - len(content.data))))

    def truncate(self, size: int) -> None:
        if self._store.exists(self.path):
            del self._store.content(self.path).data[size:]
        self.size = size

    def move(self, path: Path) -> None:
        if self._store.exists(self.path):
            self._store.rename(self.path, path)
        self.path = path

    def moved(self, path: Path) -> None:
        self.path = path

    def flush(self) -> None:
        self._store.flush(self.path)

    def fileno(self) -> int:
        """There is no descriptor; the file is made, as opening one does."""
        self._store.content(self.path)
        return -1

    def close(self) -> None:
        """Nothing is held."""


class MemoryStore:
    """Files in memory."""

    durable = True

    def __init__(self) -> None:
        self._files: dict[Path, _Content] = {}
        self._durable: dict[Path, _Content] = {}
        """The content of each name on disk."""
        self._pending: list[_Named] = []
        """Changes of names since their directory was flushed."""

    def close(self) -> None: ...

    def exists(self, path: Path) -> bool:
        """Return True if there is a file of this name."""
        return path in self._files

    def content(self, path: Path) -> _Content:
        """The bytes of a file, which is made when it is missing."""
        if path not in self._files:
            self._name(None, path, _Content())
        return self._files[path]

    def _name(self, old: Path | None, new: Path | None, content: _Content | None) -> None:
        named = _Named((old or new or Path()).parent, old, new, content)
        named.apply(self._files)
        self._pending.append(named)

    def open(self, path: Path) -> MemoryFile:
        return MemoryFile(self, path)

    def names(self, directory: Path) -> list[str]:
        return sorted(path.name for path in self._files if path.parent == directory)

    def read_text(self, path: Path) -> str | None:
        return bytes(self._files[path].data).decode(errors="replace") if path in self._files else None

    def mapped(self, path: Path) -> bytes:
        return bytes(self._files[path].data) if path in self._files else b""

    def write(self, path: Path, data: bytes) -> None:
        self._name(None, path, _Content(data))

    def replace(self, path: Path, data: bytes) -> None:
        self._name(None, path, _Content(data, data))
        self.flush(path.parent)

    def flush(self, path: Path) -> None:
        if path in self._files:
            content = self._files[path]
            content.durable = bytes(content.data)
            return
        for named in self._pending:
            if named.directory == path:
                named.apply(self._durable)
        self._pending = [named for named in self._pending if named.directory != path]

    def flush_everything(self) -> None:
        for path in {path.parent for path in self._files} | set(self._files):
            self.flush(path)

    def make_directory(self, path: Path) -> None:
        """A directory is there as soon as a file is in it."""

    def modified_ms(self, path: Path) -> int:
        return self._files[path].modified_ms if path in self._files else 0

    def rename(self, old: Path, new: Path) -> None:
        if old not in self._files:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(old))
        self._name(old, new, self._files[old])

    def remove(self, path: Path) -> None:
        if path in self._files:
            self._name(path, None, None)

    def power_loss(self, chance: random.Random) -> "MemoryStore":
        """The store as it is found when the power is back."""
        names = dict(self._durable)
        kept: dict[Path, int] = {}
        for directory in sorted({named.directory for named in self._pending}):
            kept[directory] = chance.randint(0, sum(named.directory == directory for named in self._pending))
        for named in self._pending:
            if kept[named.directory]:
                kept[named.directory] -= 1
                named.apply(names)
        found = MemoryStore()
        for path, content in sorted(names.items()):
            data = _survived(content, chance)
            found._files[path] = found._durable[path] = _Content(data, data)
        return found


def _survived(content: _Content, chance: random.Random) -> bytes:
    data, durable = bytes(content.data), content.durable
    if not data.startswith(durable):  # truncated or rewritten since the flush: either version survives
        return data if chance.random() < 0.5 else durable
    kept = data[: chance.randint(len(durable), len(data))]
    if kept != data and chance.random() < 0.3:
        kept += chance.randbytes(chance.randint(1, len(data) - len(kept)))
    return kept
