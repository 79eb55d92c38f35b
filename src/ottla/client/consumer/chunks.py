"""Chunks: the record batches that one fetch returned for one partition.

A chunk holds the fetched bytes; they are decoded to records in the application's thread, one chunk at a time. Message sets of
brokers before 0.11 are converted to batches first.
"""

from collections import deque

from ottla.client.config import ClientConfig
from ottla.client.consumer.positions import PartitionState
from ottla.client.errors import CorruptBatch
from ottla.protocol.errors import CORRUPT_MESSAGE
from ottla.protocol.messages.fetch import AbortedTransaction, PartitionData
from ottla.records.batch import BatchHeader, crc_ok, read_records, records_of, scan
from ottla.records.control import ABORT, read_marker
from ottla.records.errors import CorruptRecords
from ottla.records.legacy import as_batch
from ottla.records.record import Origin, Record

_LIMIT = 2**31 - 1


class Chunk:
    """Contiguous whole batches of one partition.

    position     first requested offset; batches may begin before it
    next_offset  offset at which the next chunk begins
    version      version of the partition's state when the chunk was fetched
    """

    __slots__ = ("aborted", "check_crcs", "data", "next_offset", "position", "state", "version")

    def __init__(
        self,
        state: PartitionState,
        data: bytes,
        position: int,
        next_offset: int,
        aborted: list[AbortedTransaction],
        *,
        check_crcs: bool,
    ) -> None:
        self.state = state
        self.version = state.version
        self.data = data
        self.position = position
        self.next_offset = next_offset
        self.aborted = aborted
        self.check_crcs = check_crcs

    @property
    def stale(self) -> bool:
        """True if the position of the partition was changed since the fetch."""
        return self.version != self.state.version

    def batches(self) -> bytes:
        """Return the batches visible to the application, without aborted ones. Raises CorruptBatch."""
        scanned = scan(self.data)
        if self.check_crcs:
            for header in scanned.batches:
                if not crc_ok(self.data, header):
                    raise self._corrupt(f"the batch at offset {header.base_offset} fails its CRC")
        return without_aborted(self.data, scanned.batches, self.aborted)

    def records(self) -> list[Record]:
        """Return the records from `position` on. Raises CorruptBatch."""
        data = self.batches()
        topic, partition = self.state.partition
        records: list[Record] = []
        try:
            for header in scan(data).batches:
                if header.is_control or header.last_offset < self.position:
                    continue
                origin = Origin(topic, partition, header.timestamp_type, header.leader_epoch)
                read = read_records(data, header, origin)
                if header.base_offset < self.position:
                    read = [record for record in read if record.offset >= self.position]
                records += read
        except CorruptRecords as damage:
            raise self._corrupt(str(damage)) from None
        return records

    def _corrupt(self, why: str) -> CorruptBatch:
        return CorruptBatch(f"{self.state.partition}: {why}; seek past it to go on", CORRUPT_MESSAGE)


def modern(data: bytes) -> bytes:
    """Convert fetched data to batches of version 2; usually returns the same object. Raises CorruptRecords."""
    if len(data) < 17 or data[16] >= 2:
        return data
    return as_batch(data, _LIMIT)


def chunk_of(state: PartitionState, row: PartitionData, position: int, config: ClientConfig) -> Chunk | None:
    """Return the chunk that a fetch at `position` returned for a partition; None without a whole batch. Raises CorruptBatch."""
    data = bytes(row.records) if isinstance(row.records, bytes) else b""
    if not data:
        return None
    try:
        data = modern(data)
    except CorruptRecords as damage:
        raise CorruptBatch(f"{state.partition}: {damage}; seek past it to go on", CORRUPT_MESSAGE) from None
    scanned = scan(data)
    if not scanned.batches:
        if scanned.corrupt is not None:
            raise CorruptBatch(f"{state.partition}: {scanned.corrupt}; seek past it to go on", CORRUPT_MESSAGE)
        return None
    next_offset = max(position, scanned.batches[-1].next_offset)
    aborted = (row.aborted_transactions or []) if config.read_committed else []
    whole = data if scanned.end == len(data) else data[: scanned.end]
    return Chunk(state, whole, position, next_offset, aborted, check_crcs=config["check.crcs"])


def without_aborted(data: bytes, batches: list[BatchHeader], aborted: list[AbortedTransaction]) -> bytes:
    """Return `data` without the batches of aborted transactions; the same object if there is nothing to leave out.

    With read_committed the response lists aborted transactions (producer id and first offset). Transactional batches of a
    listed producer are left out up to the producer's abort marker (KIP-98), as in Kafka's consumer:

        data     | p1 | p2 | p1 | abort p1 | p2 | p1 | commit p2 | ...    aborted: (p1, first offset of the first p1)
        returned        p2                   p2   p1                      (markers are left out later)
    """
    if not aborted:
        return data
    opening = deque(sorted(aborted, key=lambda transaction: transaction.first_offset))
    open_now: set[int] = set()
    kept: list[bytes] = []
    begin = 0
    for header in batches:
        if not header.is_transactional:
            continue
        while opening and opening[0].first_offset <= header.last_offset:
            open_now.add(opening.popleft().producer_id)
        if header.is_control:
            if header.producer_id in open_now and _aborts(data, header):
                open_now.discard(header.producer_id)
        elif header.producer_id in open_now:
            kept.append(data[begin : header.start])
            begin = header.end
    if begin == 0 and not kept:
        return data
    kept.append(data[begin:])
    return b"".join(kept)


def _aborts(data: bytes, header: BatchHeader) -> bool:
    try:
        records = records_of(data[header.start : header.end])
        return bool(records) and read_marker(records[0].key, records[0].value).type == ABORT
    except CorruptRecords as error:
        raise CorruptBatch(f"the control batch at offset {header.base_offset}: {error}", CORRUPT_MESSAGE) from None
