"""The two indexes: their bytes, their answers."""

import struct
from pathlib import Path

from ottla.environment.disk import DiskStore
from ottla.log.index import OffsetIndex, TimeIndex

BASE = 1000


def offset_index(path: Path) -> OffsetIndex:
    index = OffsetIndex(DiskStore(), path.parent, path.name, BASE)
    index.start_empty()
    for last, position in ((1009, 500), (1019, 900), (1029, 1500)):
        index.append(last, position)
    return index


def test_an_offset_lies_behind_the_entry_before_it(tmp_path: Path) -> None:
    index = offset_index(tmp_path / "i")
    positions = {offset: index.position_before(offset) for offset in (1000, 1008, 1009, 1010, 1019, 1028, 1029, 5000)}
    assert positions == {1000: 0, 1008: 0, 1009: 500, 1010: 500, 1019: 900, 1028: 900, 1029: 1500, 5000: 1500}
    assert [index.boundary_before(position) for position in (0, 499, 500, 899, 9999)] == [0, 0, 500, 500, 1500]
    index.write()
    index.release()
    assert (index.is_sound(1501), index.is_sound(1500)) == (True, False)


def test_the_offset_index_is_kafkas_file(tmp_path: Path) -> None:
    offset_index(tmp_path / "i").write()
    assert (tmp_path / "i").read_bytes() == struct.pack(">6i", 9, 500, 19, 900, 29, 1500)
    loaded = OffsetIndex(DiskStore(), tmp_path, "i", BASE)
    assert (len(loaded), loaded.last_position(), loaded.position_before(1020)) == (3, 1500, 900)
    loaded.truncate(1019)
    assert (len(loaded), loaded.last_position()) == (1, 500)


def test_zeros_of_a_preallocated_file_and_half_entries_are_no_entries(tmp_path: Path) -> None:
    (tmp_path / "i").write_bytes(struct.pack(">2i", 9, 500) + bytes(83))
    offsets = OffsetIndex(DiskStore(), tmp_path, "i", BASE)
    assert not offsets.is_sound(1 << 30)
    offsets.resume(1 << 30)
    assert len(offsets) == 1
    (tmp_path / "t").write_bytes(struct.pack(">qi", 77, 9) + bytes(83))
    times = TimeIndex(DiskStore(), tmp_path, "t", BASE)
    assert not times.is_sound()
    times.resume()
    assert times.last() == (77, 1009)


def test_times_grow_or_are_passed_over(tmp_path: Path) -> None:
    index = TimeIndex(DiskStore(), tmp_path, "t", BASE)
    index.start_empty()
    assert index.last() == (-1, BASE)
    for timestamp, offset in ((100, 1009), (100, 1019), (90, 1029), (200, 1039)):
        index.append(timestamp, offset)
    assert (len(index), index.last()) == (2, (200, 1039))
    assert [index.offset_before(time) for time in (50, 100, 101, 200, 201)] == [1000, 1000, 1009, 1009, 1039]
    index.write()
    assert (tmp_path / "t").read_bytes() == struct.pack(">qiqi", 100, 9, 200, 39)
    loaded = TimeIndex(DiskStore(), tmp_path, "t", BASE)
    loaded.truncate(1039)
    assert loaded.last() == (100, 1009)
