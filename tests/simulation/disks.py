"""Simulated disks: page cache and flushed bytes of each host, a disk that is full or fails, and the batches ever written.

Every record batch appended to a segment is observed: a pair of epoch and offset of a partition must have one content in all
logs ever (`checks.one_content`).
"""

import copy
import errno
import random
import struct
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

from tests.faulty_store import FaultyStore
from tests.memory_store import MemoryFile, MemoryStore

_BATCH: Final = struct.Struct(">qiibIhi")
"""Base offset, length, leader epoch, magic, CRC, attributes, last offset delta: the first fields of a record batch."""
_PREFIX: Final = 12
"""Bytes before the part of a batch that its length field counts."""
_METADATA: Final = "partition.metadata"
_ROOM: Final = 1 << 40
_GROWING: Final = frozenset(("append", "torn append", "reserve", "write", "replace", "make directory"))


class WrittenBatch(NamedTuple):
    """Batch that a broker has appended; `content` is its CRC, which covers all but offset and epoch."""

    topic_id: str
    partition: int
    epoch: int
    base_offset: int
    content: int
    host: str
    at_us: int
    next_offset: int = 0


Observer = Callable[[str, int, int, int, int, int], None]
"""Called with topic id, partition, epoch, base offset, CRC and next offset of a batch."""


class _HostFile(MemoryFile):
    """File whose appended batches are observed, if it is a segment."""

    def __init__(self, store: "HostStore", path: Path) -> None:
        super().__init__(store, path)
        self._host_store = store

    def append(self, buffers: Sequence[bytes | memoryview]) -> None:
        super().append(buffers)
        if self.path.suffix == ".log":
            self._host_store.observe(self.path.parent, b"".join(buffers))


class HostStore(MemoryStore):
    """Disk of a host, which survives its processes."""

    def __init__(self, observer: Observer) -> None:
        super().__init__()
        self._observer = observer
        self._topic_ids: dict[Path, str] = {}

    def open(self, path: Path) -> MemoryFile:
        return _HostFile(self, path)

    def write(self, path: Path, data: bytes) -> None:
        super().write(path, data)
        if path.name == _METADATA:
            self._topic_ids[path.parent] = data.split()[-1].decode()

    def rename(self, old: Path, new: Path) -> None:
        super().rename(old, new)
        self._topic_ids.pop(old, None)

    def observe(self, directory: Path, data: bytes) -> None:
        """Report the batches in appended bytes."""
        topic_id = self._topic_ids.get(directory) or self._read_topic_id(directory)
        partition = int(directory.name.rpartition("-")[2])
        position = 0
        while position + _BATCH.size <= len(data):
            base_offset, length, epoch, magic, crc, _, delta = _BATCH.unpack_from(data, position)
            if magic >= 2:
                self._observer(topic_id, partition, epoch, base_offset, crc, base_offset + delta + 1)
            position += _PREFIX + length

    def _read_topic_id(self, directory: Path) -> str:
        topic_id = self._topic_ids[directory] = (self.read_text(directory / _METADATA) or "unknown").split()[-1]
        return topic_id

    def bytes_at(self, path: Path, position: int, size: int) -> bytes:
        """Return bytes of a file, which may fail to be read by its process; empty for a missing file."""
        return bytes(self.content(path).data[position : position + size]) if self.exists(path) else b""

    def overwrite(self, path: Path, position: int, data: bytes) -> None:
        """Replace bytes of a file, in the page cache and on the disk as far as they were flushed."""
        content = self.content(path)
        content.data[position : position + len(data)] = data
        kept = len(content.durable)
        content.durable[position : position + len(data)] = data
        del content.durable[kept:]

    def wipe(self, directory: Path) -> None:
        """Remove a directory with all that is in it, from the page cache and the disk."""
        parent = self._parent(directory)
        parent.change(directory.name, None, None)
        parent.flush()
        self._topic_ids.clear()

    def copied(self) -> object:
        """Return a copy of the disk, for `restore`."""
        return copy.deepcopy(self._root)

    def restore(self, root: object) -> None:
        """Replace the disk by a copy."""
        assert isinstance(root, type(self._root))
        self._root = root
        self._topic_ids.clear()

    def end_process(self) -> None:
        """Unlock what a killed process had locked."""
        self._locked.clear()

    def lose_power(self, chance: random.Random) -> None:
        """Keep flushed data, and a random part of the rest."""
        self._root = self.power_loss(chance)._root
        self._locked.clear()
        self._topic_ids.clear()


class DiskState(Enum):
    """Condition of a disk."""

    GOOD = "good"
    FULL = "full"
    FAILING = "failing"


class HostDisk:
    """Disk of a host with its condition."""

    def __init__(self, observer: Observer) -> None:
        self.store = HostStore(observer)
        self.state = DiskState.GOOD

    def failure(self, operation: str, path: Path) -> OSError | None:
        """Return the error of an operation; see `FaultyStore`."""
        if self.state is DiskState.GOOD or operation in ("short read", "torn append"):
            return None
        if self.state is DiskState.FAILING:
            return OSError(errno.EIO, "Input/output error")
        return OSError(errno.ENOSPC, "No space left on device") if operation in _GROWING else None


class BrokerFiles(FaultyStore):
    """Implementation of `Store` for one process on a host."""

    def __init__(self, disk: HostDisk) -> None:
        super().__init__(disk.store, disk.failure)
        self.disk = disk

    def room(self, path: Path) -> tuple[int, int]:
        return _ROOM, 0 if self.disk.state is DiskState.FULL else _ROOM
