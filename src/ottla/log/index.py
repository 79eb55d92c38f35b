"""The two indexes of a segment: where does an offset lie, and which offset holds a timestamp?

    .index, 8 bytes an entry                      .timeindex, 12 bytes an entry
     0               4               8             0                               8              12
    +---------------+---------------+             +-------------------------------+---------------+
    | offset - base | position      |             | timestamp (ms)                | offset - base |
    +---------------+---------------+             +-------------------------------+---------------+
    last offset of a batch, where it begins       largest timestamp up to here, last offset of its batch

Both are sparse (an entry for about every index.interval.bytes of log) and sorted. They live in memory as arrays, which
bisect searches without making objects, and are written when the segment is closed or rolled: an index is a cache of the
log, and after an unclean stop it is rebuilt, never repaired. A closed segment's index is read on first use.
"""

from array import array
from bisect import bisect_left, bisect_right
from itertools import chain
from pathlib import Path
from struct import iter_unpack, pack
from typing import Final

from ottla.log.store import Store

OFFSET_ENTRY_SIZE: Final = 8
TIME_ENTRY_SIZE: Final = 12


class OffsetIndex:
    """Offset to position. Offsets given and returned are absolute."""

    __slots__ = ("_base", "_offsets", "_path", "_positions", "_store")

    def __init__(self, store: Store, path: Path, base_offset: int) -> None:
        self._store = store
        self._path = path
        self._base = base_offset
        self._offsets: array[int] | None = None
        self._positions: array[int] = array("i")

    def start_empty(self) -> None:
        """Forget what is on disk: the segment is new, or about to be scanned."""
        self._offsets = array("i")
        self._positions = array("i")

    def _loaded(self) -> "array[int]":
        offsets = self._offsets
        if offsets is None:
            offsets, self._positions = array("i"), array("i")
            for relative, position in iter_unpack(">ii", _whole_entries(self._store, self._path, OFFSET_ENTRY_SIZE)):
                if offsets and relative <= offsets[-1]:
                    break  # the zeros of a preallocated file
                offsets.append(relative)
                self._positions.append(position)
            self._offsets = offsets
        return offsets

    def __len__(self) -> int:
        return len(self._loaded())

    def append(self, last_offset: int, position: int) -> None:
        """Add the batch that begins at `position` and ends with `last_offset`."""
        self._loaded().append(last_offset - self._base)
        self._positions.append(position)

    def position_before(self, offset: int) -> int:
        """The position of a batch at or before the one that holds `offset`, 0 when there is no entry."""
        at = bisect_right(self._loaded(), offset - self._base)
        return self._positions[at - 1] if at else 0

    def boundary_before(self, position: int) -> int:
        """The last known beginning of a batch at or before `position`, 0 when there is no entry."""
        self._loaded()
        at = bisect_right(self._positions, position)
        return self._positions[at - 1] if at else 0

    def last_position(self) -> int:
        """The position of the newest entry, 0 when there is none."""
        self._loaded()
        return self._positions[-1] if self._positions else 0

    def fits(self, size: int) -> bool:
        """No entry points beyond a log of `size` bytes."""
        return self.last_position() <= size

    def truncate(self, offset: int) -> None:
        """Drop the entries of batches that end at `offset` or later."""
        at = bisect_left(self._loaded(), offset - self._base)
        del self._loaded()[at:]
        del self._positions[at:]

    def move(self, path: Path) -> None:
        """The file, if it was ever written, has another name from now on. Raises OSError."""
        self._loaded()
        if self._path.name in self._store.names(self._path.parent):
            self._store.rename(self._path, path)
        self._path = path

    def write(self) -> None:
        """Put the file in its place."""
        offsets = self._loaded()
        flat = chain.from_iterable(zip(offsets, self._positions, strict=True))
        self._store.replace(self._path, pack(f">{2 * len(offsets)}i", *flat))


class TimeIndex:
    """Timestamp to offset. Offsets given and returned are absolute, timestamps in ms."""

    __slots__ = ("_base", "_offsets", "_path", "_store", "_timestamps")

    def __init__(self, store: Store, path: Path, base_offset: int) -> None:
        self._store = store
        self._path = path
        self._base = base_offset
        self._timestamps: array[int] | None = None
        self._offsets: array[int] = array("i")

    def start_empty(self) -> None:
        """Forget what is on disk: the segment is new, or about to be scanned."""
        self._timestamps = array("q")
        self._offsets = array("i")

    def _loaded(self) -> "array[int]":
        timestamps = self._timestamps
        if timestamps is None:
            timestamps, self._offsets = array("q"), array("i")
            for timestamp, relative in iter_unpack(">qi", _whole_entries(self._store, self._path, TIME_ENTRY_SIZE)):
                if timestamps and timestamp <= timestamps[-1]:
                    break  # the zeros of a preallocated file
                timestamps.append(timestamp)
                self._offsets.append(relative)
            self._timestamps = timestamps
        return timestamps

    def __len__(self) -> int:
        return len(self._loaded())

    def append(self, timestamp: int, offset: int) -> None:
        """Add an entry when the timestamp has grown; others are passed over, as in Kafka."""
        timestamps = self._loaded()
        if timestamps and timestamp <= timestamps[-1]:
            return
        timestamps.append(timestamp)
        self._offsets.append(offset - self._base)

    def last(self) -> tuple[int, int]:
        """The newest entry as (timestamp, offset); (-1, base offset) when there is none."""
        timestamps = self._loaded()
        if not timestamps:
            return -1, self._base
        return timestamps[-1], self._base + self._offsets[-1]

    def offset_before(self, timestamp: int) -> int:
        """An offset at or before the first record with `timestamp` or later."""
        at = bisect_left(self._loaded(), timestamp)
        return self._base + self._offsets[at - 1] if at else self._base

    def truncate(self, offset: int) -> None:
        """Drop the entries of batches that end at `offset` or later."""
        at = bisect_left(self._offsets, offset - self._base) if self._loaded() else 0
        del self._loaded()[at:]
        del self._offsets[at:]

    def move(self, path: Path) -> None:
        """The file, if it was ever written, has another name from now on. Raises OSError."""
        self._loaded()
        if self._path.name in self._store.names(self._path.parent):
            self._store.rename(self._path, path)
        self._path = path

    def write(self) -> None:
        """Put the file in its place."""
        timestamps = self._loaded()
        flat = chain.from_iterable(zip(timestamps, self._offsets, strict=True))
        self._store.replace(self._path, pack(">" + "qi" * len(timestamps), *flat))


def _whole_entries(store: Store, path: Path, entry_size: int) -> bytes:
    file = store.open(path)
    data = file.read(0, file.size - file.size % entry_size)
    file.close()
    return data
