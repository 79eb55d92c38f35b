"""Formatters of the coordinators' internal topics: records as JSON."""

from collections.abc import Callable, Container, Mapping
from typing import Any, BinaryIO

from ottla.cli.record_json import compact, whole
from ottla.coordinators.groups.records import decode_record as group_record
from ottla.coordinators.share.records import decode_record as share_state_record
from ottla.coordinators.transactions.state import decode_record as transaction_record
from ottla.protocol.wire import PeerError
from ottla.records.record import Record


class CoordinatorRecordFormatter:
    """Formatter of records of an internal topic as JSON, one per line (Kafka's formatters write no line ends).

    read   decoder of the topic's records
    kinds  record types to write, None for all; records of unknown types are skipped
    """

    def __init__(self, read: Callable[[bytes, bytes | None], Any], kinds: Container[int] | None = None) -> None:
        self._read = read
        self._kinds = kinds

    def write(self, record: Record, out: BinaryIO) -> None:
        """Write one record as JSON. Raises ValueError for a malformed one."""
        if record.key is None:
            return
        try:
            entry = whole(self._read, record.key, record.value)
        except (PeerError, ValueError, IndexError) as error:
            raise ValueError(f"Could not read record at offset {record.offset} due to: {error}") from None
        if entry is not None and (self._kinds is None or entry[0] in self._kinds):
            out.write(compact(entry[1]).encode() + b"\n")


def group_metadata(properties: Mapping[str, str]) -> CoordinatorRecordFormatter:
    """Return the formatter of classic groups of __consumer_offsets."""
    del properties
    return CoordinatorRecordFormatter(group_record, (2,))


def offsets(properties: Mapping[str, str]) -> CoordinatorRecordFormatter:
    """Return the formatter of committed offsets of __consumer_offsets."""
    del properties
    return CoordinatorRecordFormatter(group_record, (0, 1))


def share_groups(properties: Mapping[str, str]) -> CoordinatorRecordFormatter:
    """Return the formatter of share groups of __consumer_offsets."""
    del properties
    return CoordinatorRecordFormatter(group_record, range(10, 16))


def share_state(properties: Mapping[str, str]) -> CoordinatorRecordFormatter:
    """Return the formatter of share partitions of __share_group_state."""
    del properties
    return CoordinatorRecordFormatter(share_state_record)


def transactions(properties: Mapping[str, str]) -> CoordinatorRecordFormatter:
    """Return the formatter of transactions of __transaction_state."""
    del properties
    return CoordinatorRecordFormatter(transaction_record)
