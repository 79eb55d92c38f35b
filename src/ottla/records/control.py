"""Control records: markers that a transaction coordinator writes to a data partition to end a transaction (KIP-98).

    key    version i16 (0) | type i16         ABORT 0, COMMIT 1; 2 to 6 belong to the metadata log; others are ignored
    value  version i16 (0) | coordinator epoch i32

A newer version of key or value is decoded as version 0, since new versions only append fields.
"""

import struct
from typing import Final, final

from ottla.records.batch import build
from ottla.records.errors import CorruptRecords
from ottla.records.record import Record

ABORT: Final = 0
COMMIT: Final = 1

_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")


@final
class Marker:
    """Marker that ends a transaction in a partition.

    type               ABORT, COMMIT, or another control type, which readers skip
    coordinator_epoch  epoch of the coordinator that wrote it; -1 for other types
    """

    def __init__(self, type: int, coordinator_epoch: int = -1) -> None:  # noqa: A002  (Kafka's noun)
        self.type = type
        self.coordinator_epoch = coordinator_epoch


def read_marker(key: bytes | None, value: bytes | None) -> Marker:
    """Decode the marker of a control record. Raises CorruptRecords if its key, or the value of an end marker, is too short."""
    if key is None or len(key) < _KEY.size:
        raise CorruptRecords("control record key cut short")
    version, kind = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptRecords(f"control record key of version {version}")
    if kind not in (ABORT, COMMIT):
        return Marker(kind)
    if value is None or len(value) < _VALUE.size:
        raise CorruptRecords("control record value cut short")
    version, epoch = _VALUE.unpack_from(value)
    if version < 0:
        raise CorruptRecords(f"control record value of version {version}")
    return Marker(kind, epoch)


def marker_key(marker_type: int) -> bytes:
    return _KEY.pack(0, marker_type)


def marker_value(coordinator_epoch: int) -> bytes:
    return _VALUE.pack(0, coordinator_epoch)


def build_marker(
    *,
    commit: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """Build the control batch that ends a transaction; `timestamp` in ms."""
    record = Record(base_offset, timestamp, marker_key(COMMIT if commit else ABORT), marker_value(coordinator_epoch))
    return build(
        [record],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
        leader_epoch=leader_epoch,
    )
