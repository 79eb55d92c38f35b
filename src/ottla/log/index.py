"""Indexes of a segment: offset to position, timestamp to offset, and aborted transactions.

    .index, 8 bytes an entry                      .timeindex, 12 bytes an entry
     0               4               8             0                               8              12
    +---------------+---------------+             +-------------------------------+---------------+
    | offset - base | position      |             | timestamp (ms)                | offset - base |
    +---------------+---------------+             +-------------------------------+---------------+
    last offset of a batch, where it begins       largest timestamp up to here, last offset of its batch

    .txnindex, 34 bytes an entry, for each aborted transaction in the order of their ends; no file without one
     0     2             10             18            26                   34
    +-----+-------------+--------------+-------------+--------------------+
    | 0   | producer id | first offset | last offset | last stable offset |
    +-----+-------------+--------------+-------------+--------------------+
                                        of the marker, once it was written

The first two are sparse (an entry for about every index.interval.bytes of log) and sorted. Those of the segment that is
written to live in memory as arrays, which bisect searches without making objects, and are written when the segment is rolled
or closed. From then on they are searched in place, in a mapping that the store keeps while it is in use. An index is a cache
of the log: after an unclean stop it is rebuilt, never repaired.
"""

import mmap
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import chain
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from ottla.environment.files import Store
from ottla.records.checksum import crc32c

OFFSET_ENTRY_SIZE: Final = 8
TIME_ENTRY_SIZE: Final = 12
_OFFSET_ENTRY: Final = Struct(">ii")
_TIME_ENTRY: Final = Struct(">qi")
_ABORTED_ENTRY: Final = Struct(">hqqqq")


class Checksum(NamedTuple):
    """Size of a file in bytes, and the CRC-32C of its content."""

    size: int
    crc: int


def checksum_of(data: bytes) -> Checksum:
    """Return size and CRC-32C of a file's content."""
    return Checksum(len(data), crc32c(data))


class _IndexFile:
    """Index file, which may not exist. Its path is computed on use, as most segments are only opened."""

    __slots__ = ("_checksum", "_directory", "_is_checked", "_name", "_path", "_rebuild", "_store")

    def __init__(self, store: Store, directory: Path, name: str) -> None:
        self._store = store
        self._directory = directory
        self._name = name
        self._path: Path | None = None
        self._checksum: Checksum | None = None
        self._is_checked = True
        self._rebuild: Callable[[], None] | None = None

    def expect(self, checksum: Checksum, rebuild: Callable[[], None] | None = None) -> None:
        """Compare the file with the checksum of the last clean stop before it is used.

        rebuild  called if it differs: writes the file again
        """
        self._checksum, self._is_checked, self._rebuild = checksum, False, rebuild

    def checksum(self) -> Checksum:
        """Return the checksum of the file, from its content if it is not known. Raises OSError."""
        if self._checksum is None:
            self._checksum = checksum_of(self._store.mapped(self.path)[:])
        return self._checksum

    def is_as_expected(self) -> bool:
        """Return whether the file has the expected checksum. Raises OSError."""
        return self._is_checked or checksum_of(self._store.mapped(self.path)[:]) == self._checksum

    @property
    def path(self) -> Path:
        """Path of the file, which need not exist."""
        if self._path is None:
            self._path = self._directory / self._name
        return self._path

    def _mapped(self) -> bytes | mmap.mmap:
        if not self._is_checked:
            if self.is_as_expected():
                self._is_checked = True
            elif self._rebuild is not None:
                self._rebuild()
        return self._store.mapped(self.path)

    def _put(self, data: bytes) -> None:
        """Write the file. Raises OSError."""
        self._store.write(self.path, data)
        self._checksum, self._is_checked = checksum_of(data), True

    def move(self, name: str) -> None:
        """Rename the file if it exists. Raises OSError; the file keeps its old name then."""
        with suppress(FileNotFoundError):
            self._store.rename(self.path, self._directory / name)
        self.moved(self._directory, name)

    def moved(self, directory: Path, name: str) -> None:
        """Record a new path of the file, after a rename of its directory."""
        self._directory, self._name, self._path = directory, name, None


class OffsetIndex(_IndexFile):
    """Index of offset to position. Arguments and results are absolute offsets."""

    __slots__ = ("_base", "_offsets", "_positions")

    def __init__(self, store: Store, directory: Path, name: str, base_offset: int) -> None:
        super().__init__(store, directory, name)
        self._base = base_offset
        self._offsets: array[int] | None = None
        """Entries in memory; None while the file is used."""
        self._positions: array[int] = array("i")

    def start_empty(self) -> None:
        """Start with no entries and ignore the file, for a new segment or before a scan."""
        self._offsets = array("i")
        self._positions = array("i")

    def resume(self, size: int) -> bool:
        """Load the file into memory, as the segment of `size` bytes becomes active again. Returns `is_sound`."""
        flat = array("i")
        data = self._mapped()
        flat.frombytes(data[: len(data) - len(data) % OFFSET_ENTRY_SIZE])
        if sys.byteorder == "little":
            flat.byteswap()
        offsets, positions = flat[0::2], flat[1::2]
        count = _ascending(offsets)
        self._offsets, self._positions = offsets[:count], positions[:count]
        return self._is_sound(data, size)

    def __len__(self) -> int:
        if self._offsets is not None:
            return len(self._offsets)
        return len(self._mapped()) // OFFSET_ENTRY_SIZE

    def append(self, last_offset: int, position: int) -> None:
        """Add an entry for the batch that begins at `position` and ends with `last_offset`."""
        assert self._offsets is not None
        self._offsets.append(last_offset - self._base)
        self._positions.append(position)

    @staticmethod
    def _entry(data: bytes | mmap.mmap, at: int) -> tuple[int, int]:
        """Decode (offset - base, position) of an entry on disk."""
        relative, position = _OFFSET_ENTRY.unpack_from(data, at * OFFSET_ENTRY_SIZE)
        return relative, position

    def _on_disk(self) -> tuple[bytes | mmap.mmap, range]:
        """Return the mapped file, and the range of its entries."""
        data = self._mapped()
        return data, range(len(data) // OFFSET_ENTRY_SIZE)

    def position_before(self, offset: int) -> int:
        """Return the position of a batch at or before the one with `offset`, 0 without an entry."""
        if self._offsets is not None:
            at = bisect_right(self._offsets, offset - self._base)
            return self._positions[at - 1] if at else 0
        data, entries = self._on_disk()
        at = bisect_right(entries, offset - self._base, key=lambda at: self._entry(data, at)[0])
        return self._entry(data, at - 1)[1] if at else 0

    def entry_before(self, offset: int) -> tuple[int, int]:
        """Return the entry of `position_before` as (position, last offset of the batch there); (0, -1) without an entry."""
        if self._offsets is not None:
            at = bisect_right(self._offsets, offset - self._base)
            return (self._positions[at - 1], self._base + self._offsets[at - 1]) if at else (0, -1)
        data, entries = self._on_disk()
        at = bisect_right(entries, offset - self._base, key=lambda at: self._entry(data, at)[0])
        if not at:
            return 0, -1
        relative, position = self._entry(data, at - 1)
        return position, self._base + relative

    def boundary_before(self, position: int) -> int:
        """Return the last indexed batch start at or before `position`, 0 without an entry."""
        if self._offsets is not None:
            at = bisect_right(self._positions, position)
            return self._positions[at - 1] if at else 0
        data, entries = self._on_disk()
        at = bisect_right(entries, position, key=lambda at: self._entry(data, at)[1])
        return self._entry(data, at - 1)[1] if at else 0

    def offset_bound(self, position: int) -> int | None:
        """Return an upper bound (exclusive) of the offsets of batches that end up to `position`; None beyond the last entry."""
        if self._offsets is not None:
            at = bisect_left(self._positions, position)
            return self._base + self._offsets[at] + 1 if at < len(self._positions) else None
        data, entries = self._on_disk()
        at = bisect_left(entries, position, key=lambda at: self._entry(data, at)[1])
        return self._base + self._entry(data, at)[0] + 1 if at < len(entries) else None

    def last_position(self) -> int:
        """Return the position of the newest entry, 0 if the index is empty."""
        if self._offsets is not None:
            return self._positions[-1] if self._positions else 0
        data, entries = self._on_disk()
        return self._entry(data, len(entries) - 1)[1] if entries else 0

    def is_sound(self, size: int) -> bool:
        """Return True if the file can belong to a log of `size` bytes: whole entries, the last one inside."""
        return self._is_sound(self._mapped(), size)

    def _is_sound(self, data: bytes | mmap.mmap, size: int) -> bool:
        count, rest = divmod(len(data), OFFSET_ENTRY_SIZE)
        if rest:
            return False
        if not count:
            return True
        relative, position = self._entry(data, count - 1)
        return relative >= 0 and 0 < position < size

    def truncate(self, offset: int) -> None:
        """Remove the entries of batches that end at `offset` or later."""
        if self._offsets is None:
            self.resume(0)
        assert self._offsets is not None
        at = bisect_left(self._offsets, offset - self._base)
        del self._offsets[at:]
        del self._positions[at:]

    def write(self) -> None:
        """Write the entries to the file. Raises OSError."""
        if self._offsets is None:
            return
        flat = array("i", chain.from_iterable(zip(self._offsets, self._positions, strict=True)))
        if sys.byteorder == "little":
            flat.byteswap()
        self._put(flat.tobytes())

    def release(self) -> None:
        """Free the entries in memory, and use the written file from now on."""
        self._offsets, self._positions = None, array("i")


class TimeIndex(_IndexFile):
    """Index of timestamp to offset. Arguments and results are absolute offsets, and timestamps in ms."""

    __slots__ = ("_base", "_offsets", "_timestamps")

    def __init__(self, store: Store, directory: Path, name: str, base_offset: int) -> None:
        super().__init__(store, directory, name)
        self._base = base_offset
        self._timestamps: array[int] | None = None
        """Entries in memory; None while the file is used."""
        self._offsets: array[int] = array("i")

    def start_empty(self) -> None:
        """Start with no entries and ignore the file, for a new segment or before a scan."""
        self._timestamps = array("q")
        self._offsets = array("i")

    def resume(self) -> bool:
        """Load the file into memory, as the segment becomes active again. Returns `is_sound`."""
        data = self._mapped()
        entries = list(_TIME_ENTRY.iter_unpack(data[: len(data) - len(data) % TIME_ENTRY_SIZE]))
        timestamps = array("q", (timestamp for timestamp, _ in entries))
        count = _ascending(timestamps)
        self._timestamps = timestamps[:count]
        self._offsets = array("i", (relative for _, relative in entries[:count]))
        return self._is_sound(data)

    def __len__(self) -> int:
        if self._timestamps is not None:
            return len(self._timestamps)
        return len(self._mapped()) // TIME_ENTRY_SIZE

    @staticmethod
    def _entry(data: bytes | mmap.mmap, at: int) -> tuple[int, int]:
        """Decode (timestamp, offset - base) of an entry on disk."""
        timestamp, relative = _TIME_ENTRY.unpack_from(data, at * TIME_ENTRY_SIZE)
        return timestamp, relative

    def _on_disk(self) -> tuple[bytes | mmap.mmap, range]:
        """Return the mapped file, and the range of its entries."""
        data = self._mapped()
        return data, range(len(data) // TIME_ENTRY_SIZE)

    def append(self, timestamp: int, offset: int) -> None:
        """Add an entry if the timestamp is greater than the last one, as in Kafka."""
        timestamps = self._timestamps
        assert timestamps is not None
        if timestamps and timestamp <= timestamps[-1]:
            return
        timestamps.append(timestamp)
        self._offsets.append(offset - self._base)

    def last(self) -> tuple[int, int]:
        """Return the newest entry as (timestamp, offset); (-1, base offset) if the index is empty."""
        if self._timestamps is not None:
            return (self._timestamps[-1], self._base + self._offsets[-1]) if self._timestamps else (-1, self._base)
        data, entries = self._on_disk()
        if not entries:
            return -1, self._base
        timestamp, relative = self._entry(data, len(entries) - 1)
        return timestamp, self._base + relative

    def offset_before(self, timestamp: int) -> int:
        """Return an offset at or before the first record with `timestamp` or later."""
        if self._timestamps is not None:
            at = bisect_left(self._timestamps, timestamp)
            return self._base + self._offsets[at - 1] if at else self._base
        data, entries = self._on_disk()
        at = bisect_left(entries, timestamp, key=lambda at: self._entry(data, at)[0])
        return self._base + self._entry(data, at - 1)[1] if at else self._base

    def is_sound(self) -> bool:
        """Return True if the file has whole, ascending entries, none before the base offset."""
        return self._is_sound(self._mapped())

    def _is_sound(self, data: bytes | mmap.mmap) -> bool:
        count, rest = divmod(len(data), TIME_ENTRY_SIZE)
        if rest:
            return False
        if not count:
            return True
        last = self._entry(data, count - 1)
        return last[1] >= 0 and (count == 1 or last > self._entry(data, 0))

    def truncate(self, offset: int) -> None:
        """Remove the entries of batches that end at `offset` or later."""
        if self._timestamps is None:
            self.resume()
        assert self._timestamps is not None
        at = bisect_left(self._offsets, offset - self._base)
        del self._timestamps[at:]
        del self._offsets[at:]

    def write(self) -> None:
        """Write the entries to the file. Raises OSError."""
        if self._timestamps is None:
            return
        entries = zip(self._timestamps, self._offsets, strict=True)
        self._put(b"".join(_TIME_ENTRY.pack(*entry) for entry in entries))

    def release(self) -> None:
        """Free the entries in memory, and use the written file from now on."""
        self._timestamps, self._offsets = None, array("i")


class Aborted(NamedTuple):
    """Aborted transaction: offsets are inclusive; `last_offset` is that of its marker, and `last_stable_offset` (exclusive)
    the last stable offset after the marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex(_IndexFile):
    """Index of the aborted transactions that ended in a segment."""

    __slots__ = ("_entries",)

    def __init__(self, store: Store, directory: Path, name: str) -> None:
        super().__init__(store, directory, name)
        self._entries: list[Aborted] | None = None
        """Entries in memory; None while the file is used."""

    def start_empty(self) -> None:
        """Start with no entries and ignore the file, for a new segment or before a scan."""
        self._entries = []

    def resume(self) -> bool:
        """Load the file into memory, as the segment becomes active again. Returns `is_sound`."""
        data = self._mapped()
        self._entries = list(self._decoded(data))
        return self._is_sound(data)

    @staticmethod
    def _decoded(data: bytes | mmap.mmap) -> Iterable[Aborted]:
        whole = data[: len(data) - len(data) % _ABORTED_ENTRY.size]
        return (Aborted(*fields) for _, *fields in _ABORTED_ENTRY.iter_unpack(whole))

    def entries(self) -> Iterable[Aborted]:
        """Return all entries, in the order of the markers."""
        return self._decoded(self._mapped()) if self._entries is None else self._entries

    def append(self, aborted: Aborted) -> None:
        """Add an aborted transaction."""
        assert self._entries is not None
        self._entries.append(aborted)

    def truncate(self, offset: int) -> None:
        """Remove transactions that ended at `offset` or later."""
        self._entries = [aborted for aborted in self.entries() if aborted.last_offset < offset]

    def is_sound(self) -> bool:
        """Return True if the file holds whole entries of version 0 only."""
        return self._is_sound(self._mapped())

    @staticmethod
    def _is_sound(data: bytes | mmap.mmap) -> bool:
        return len(data) % _ABORTED_ENTRY.size == 0 and all(
            version == 0 for version, *_ in _ABORTED_ENTRY.iter_unpack(data[:])
        )

    def write(self) -> None:
        """Write the file, or remove it if there are no entries. Raises OSError."""
        if self._entries is None:
            return
        if self._entries:
            self._put(b"".join(_ABORTED_ENTRY.pack(0, *aborted) for aborted in self._entries))
        else:
            self._store.remove(self.path)
            self._checksum, self._is_checked = checksum_of(b""), True

    def release(self) -> None:
        """Free the entries in memory, and use the written file from now on."""
        self._entries = None


def _ascending(values: "array[int]") -> int:
    """Return the length of the ascending prefix; the rest are zeros of a preallocated file."""
    return next((at for at in range(1, len(values)) if values[at] <= values[at - 1]), len(values))
