"""Control records: the format's vector, and keys and values from other versions."""

import pytest

from ottla.records.batch import read_header, records_of
from ottla.records.control import ABORT, COMMIT, build_marker, marker_key, marker_value, read_marker
from ottla.records.errors import CorruptRecords

COMMIT_AT_7 = bytes.fromhex(
    "0000000000000007000000420000000402ce16e9180030000000000000018bcfe568000000018bcfe5680000000000000003e80002ffffffff"
    "000000012000000008000000010c00000000000300"
)


def test_the_vector_is_written_and_read() -> None:
    written = build_marker(
        commit=True,
        producer_id=1000,
        producer_epoch=2,
        coordinator_epoch=3,
        timestamp=1_700_000_000_000,
        base_offset=7,
        leader_epoch=4,
    )
    assert written == COMMIT_AT_7
    header = read_header(COMMIT_AT_7, 0)
    assert header.is_control
    assert header.is_transactional
    [record] = records_of(COMMIT_AT_7)
    marker = read_marker(record.key, record.value)
    assert (record.offset, marker.type, marker.coordinator_epoch) == (7, COMMIT, 3)


def test_newer_versions_are_read_as_the_known_one() -> None:
    marker = read_marker(bytes.fromhex("00050000ff"), bytes.fromhex("0009000000070000"))
    assert (marker.type, marker.coordinator_epoch) == (ABORT, 7)


def test_other_types_are_passed_on_without_their_value() -> None:
    assert read_marker(marker_key(2), None).type == 2


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, marker_value(1)),
        (b"\0\0\0", marker_value(1)),
        (marker_key(COMMIT), None),
        (marker_key(COMMIT), b"\0\0\0\0\0"),
        (b"\xff\xff\0\0", marker_value(1)),
        (marker_key(ABORT), b"\xff\xff\0\0\0\0"),
    ],
)
def test_malformed_control_records_raise_corrupt_records(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(CorruptRecords):
        read_marker(key, value)
