"""Store in memory that tracks the flushed content of a simulated disk, for tests of crashes.

A crash of the process loses nothing. A power failure keeps flushed data and a random part of the rest: of a file's bytes since
its last flush a prefix, perhaps followed by garbage; of the name changes in a directory since its last flush the first few,
in order, as with a journal.

    store = MemoryStore()
    directory = LogDirectory(store, Path("/data"))
    after = store.power_loss(random.Random(7))

Writing a file creates missing directories, which are flushed to disk at once.
"""

import errno
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

_ROOM = 1 << 40


class _FileNode:
    """Bytes of a file: current (`data`), and on disk (`durable`).

    The first `unchanged` bytes of both are equal, so that a flush copies only what was written since the one before.
    """

    __slots__ = ("data", "durable", "modified_ms", "unchanged")

    def __init__(self, data: bytes = b"", durable: bytes = b"") -> None:
        self.data = bytearray(data)
        self.durable = bytearray(durable)
        self.unchanged = len(durable) if data.startswith(durable) else 0
        self.modified_ms = 0

    def cut(self, size: int) -> None:
        """Remove the bytes from position `size` on."""
        del self.data[size:]
        self.unchanged = min(self.unchanged, size)

    def flush(self) -> None:
        unchanged = self.unchanged
        if len(self.durable) != unchanged or len(self.data) != unchanged:
            self.durable[unchanged:] = memoryview(self.data)[unchanged:]
            self.unchanged = len(self.data)


class _NameChange(NamedTuple):
    """Change of a directory: `old` is removed, then `node` gets the name `new`."""

    old: str | None
    new: str | None
    node: "_Node | None"

    def apply(self, names: "dict[str, _Node]") -> None:
        if self.old is not None:
            names.pop(self.old, None)
        if self.new is not None and self.node is not None:
            names[self.new] = self.node


class _DirectoryNode:
    """Names in a directory: current, on disk, and the changes between the two."""

    __slots__ = ("durable", "names", "pending")

    def __init__(self) -> None:
        self.names: dict[str, _Node] = {}
        self.durable: dict[str, _Node] = {}
        self.pending: list[_NameChange] = []

    def change(self, old: str | None, new: str | None, node: "_Node | None") -> None:
        named = _NameChange(old, new, node)
        named.apply(self.names)
        self.pending.append(named)

    def flush(self) -> None:
        self.durable = dict(self.names)
        self.pending.clear()


_Node = _FileNode | _DirectoryNode


class MemoryFile:
    """Append-only file in a MemoryStore."""

    def __init__(self, store: "MemoryStore", path: Path) -> None:
        self._store = store
        self.path = path
        self.size = len(store.content(path).data) if store.exists(path) else 0

    def append(self, buffers: Sequence[bytes | memoryview]) -> None:
        data = b"".join(buffers)
        content = self._store.content(self.path)
        content.cut(self.size)
        content.data += data
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
            self._store.content(self.path).cut(size)
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
        """Create the file, as opening does; there is no descriptor."""
        self._store.content(self.path)
        return -1

    def close(self) -> None:
        """Do nothing: there is no descriptor."""


class MemoryStore:
    """Files and directories in memory."""

    durable = True

    def __init__(self) -> None:
        self._root = _DirectoryNode()
        self._locked: set[Path] = set()

    def close(self) -> None: ...

    def _node(self, path: Path) -> _Node | None:
        node: _Node | None = self._root
        for name in path.parts[1:] if path.is_absolute() else path.parts:
            node = node.names.get(name) if isinstance(node, _DirectoryNode) else None
        return node

    def _file(self, path: Path) -> _FileNode | None:
        node = self._node(path)
        return node if isinstance(node, _FileNode) else None

    def _parent(self, path: Path) -> _DirectoryNode:
        """Return the parent directory of `path`. Missing ones are created, on disk as well."""
        directory = self._root
        for name in path.parts[1:-1] if path.is_absolute() else path.parts[:-1]:
            node = directory.names.get(name)
            if node is None:
                node = directory.names[name] = directory.durable[name] = _DirectoryNode()
            if not isinstance(node, _DirectoryNode):
                raise NotADirectoryError(errno.ENOTDIR, "Not a directory", str(path))
            directory = node
        return directory

    def content(self, path: Path) -> _FileNode:
        """Return the node of a file, which is created if it is missing."""
        content = self._file(path)
        if content is None:
            content = _FileNode()
            self._parent(path).change(None, path.name, content)
        return content

    def exists(self, path: Path) -> bool:
        return self._node(path) is not None

    def is_directory(self, path: Path) -> bool:
        return isinstance(self._node(path), _DirectoryNode)

    def open(self, path: Path) -> MemoryFile:
        return MemoryFile(self, path)

    def names(self, directory: Path) -> list[str]:
        node = self._node(directory)
        return sorted(node.names) if isinstance(node, _DirectoryNode) else []

    def read_text(self, path: Path) -> str | None:
        content = self._file(path)
        return None if content is None else bytes(content.data).decode(errors="replace")

    def mapped(self, path: Path) -> bytes:
        content = self._file(path)
        return b"" if content is None else bytes(content.data)

    def write(self, path: Path, data: bytes) -> None:
        self._parent(path).change(None, path.name, _FileNode(data))

    def replace(self, path: Path, data: bytes) -> None:
        self._parent(path).change(None, path.name, _FileNode(data, data))
        self.flush(path.parent)

    def flush(self, path: Path) -> None:
        node = self._node(path)
        if node is not None:
            node.flush()

    def flush_everything(self) -> None:
        for node in _nodes(self._root):
            node.flush()

    def make_directory(self, path: Path, *, parents: bool = False) -> None:
        if self._file(path) is not None:
            raise FileExistsError(errno.EEXIST, "File exists", str(path))
        if self.exists(path):
            return
        self._parent(path).change(None, path.name, _DirectoryNode())
        if parents:
            self.flush(path.parent)

    def modified_ms(self, path: Path) -> int:
        content = self._file(path)
        return 0 if content is None else content.modified_ms

    def rename(self, old: Path, new: Path) -> None:
        node = self._node(old)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(old))
        if old.parent != new.parent:
            self._parent(old).change(old.name, None, None)
            self._parent(new).change(None, new.name, node)
        else:
            self._parent(old).change(old.name, new.name, node)

    def remove(self, path: Path) -> None:
        if self._file(path) is not None:
            self._parent(path).change(path.name, None, None)

    def remove_tree(self, path: Path) -> None:
        if self.is_directory(path):
            self._parent(path).change(path.name, None, None)

    def room(self, path: Path) -> tuple[int, int]:
        return _ROOM, _ROOM

    def lock(self, path: Path) -> Callable[[], None]:
        if path in self._locked:
            raise BlockingIOError(f"{path} is in use by another broker")
        self._locked.add(path)
        return lambda: self._locked.discard(path)

    def power_loss(self, chance: random.Random) -> "MemoryStore":
        """Return the store as it is after a power failure."""
        after = MemoryStore()
        _survive(self._root, after._root, chance)
        return after


def _nodes(directory: _DirectoryNode) -> Iterator[_Node]:
    yield directory
    for node in directory.names.values():
        if isinstance(node, _DirectoryNode):
            yield from _nodes(node)
        else:
            yield node


def _survive(before: _DirectoryNode, after: _DirectoryNode, chance: random.Random) -> None:
    """Fill `after` with the part of `before`, and of its subdirectories, that survives on disk."""
    names = dict(before.durable)
    if before.pending:
        for change in before.pending[: chance.randint(0, len(before.pending))]:
            change.apply(names)
    for name, node in sorted(names.items()):
        if isinstance(node, _DirectoryNode):
            directory = after.names[name] = after.durable[name] = _DirectoryNode()
            _survive(node, directory, chance)
        else:
            data = _surviving_bytes(node, chance)
            after.names[name] = after.durable[name] = _FileNode(data, data)


def _surviving_bytes(content: _FileNode, chance: random.Random) -> bytes:
    data, durable = bytes(content.data), bytes(content.durable)
    if not data.startswith(durable):  # truncated or rewritten since the flush: either version survives
        return data if chance.random() < 0.5 else durable
    kept = data[: chance.randint(len(durable), len(data))]
    if kept != data and chance.random() < 0.3:
        kept += chance.randbytes(chance.randint(1, len(data) - len(kept)))
    return kept
