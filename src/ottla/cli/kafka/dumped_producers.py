"""Dump of a producer snapshot for `ottla dump-log`: the producers of a partition and the last batch of each."""

from pathlib import Path

from ottla.cli.kafka.dumped_records import Dump, optional_long
from ottla.protocol.codec import decode
from ottla.protocol.messages.producer_snapshot import ProducerSnapshot
from ottla.protocol.wire import PeerError
from ottla.records.checksum import crc32c

_VERSION = 1
_AFTER_CRC = 6


def dump_producers(path: Path, dump: Dump) -> None:
    """Dump a producer snapshot (.snapshot). Raises OSError."""
    data = path.read_bytes()
    try:
        if int.from_bytes(data[:2], "big", signed=True) != _VERSION:
            raise PeerError(f"version {int.from_bytes(data[:2], 'big', signed=True)} is not known")
        snapshot, _ = decode(ProducerSnapshot, _VERSION, data, 2)
    except PeerError as error:
        dump.problem(f"{path} cannot be read", [f"  {error}"])
        return
    if crc32c(data[_AFTER_CRC:]) != snapshot.crc:
        dump.problem(f"{path} fails its CRC", [])
    for entry in snapshot.producer_entries:
        open_from = entry.current_txn_first_offset if entry.current_txn_first_offset >= 0 else None
        line = (
            f"producerId: {entry.producer_id} producerEpoch: {entry.epoch} coordinatorEpoch: {entry.coordinator_epoch} "
            f"currentTxnFirstOffset: {optional_long(open_from)} lastTimestamp: {entry.timestamp}"
        )
        document = {
            "producer_id": entry.producer_id,
            "producer_epoch": entry.epoch,
            "coordinator_epoch": entry.coordinator_epoch,
            "current_txn_first_offset": open_from,
            "last_timestamp": entry.timestamp,
        }
        if entry.last_offset >= 0:
            first = (entry.last_sequence - entry.offset_delta) & 0x7FFFFFFF
            line += (
                f" firstSequence: {first} lastSequence: {entry.last_sequence} lastOffset: {entry.last_offset} "
                f"offsetDelta: {entry.offset_delta} timestamp: {entry.timestamp}"
            )
            document |= {
                "first_sequence": first,
                "last_sequence": entry.last_sequence,
                "last_offset": entry.last_offset,
                "offset_delta": entry.offset_delta,
            }
        dump.entry(line, document)
