"""Chunks: the record batches that one fetch returned for one partition.

A chunk refers to the batches where they are in the response; they are decoded to records in the application's thread, one chunk
at a time. Message sets of brokers before 0.11 are converted to batches first.
"""

from collections import deque
from typing import Any, NamedTuple

from ottla.client.config import ClientConfig
from ottla.client.consumer.positions import PartitionState
from ottla.client.errors import CorruptBatch
from ottla.protocol.errors import CORRUPT_MESSAGE
from ottla.protocol.messages.fetch import AbortedTransaction
from ottla.records.batch import BatchHeader, crc_ok, read_records, records_of, scan
from ottla.records.control import ABORT, read_marker
from ottla.records.errors import CorruptRecords
from ottla.records.legacy import as_batch
from ottla.records.record import Origin, Record

_LIMIT = 2**31 - 1


class Batches(NamedTuple):
    """Whole batches, one after another: `data[start:end]`."""

    data: bytes
    start: int
    end: int

    def copy(self) -> bytes:
        """Return the batches alone."""
        return self.data[self.start : self.end]


class Chunk:
    """Contiguous whole batches of one partition.

    A chunk keeps its response in memory. Chunks are read in the order in which they came, so at most one response is partly
    read: the others are as large as what is unread in them.

    fetched      the batches as they were fetched
    position     first requested offset; batches may begin before it
    next_offset  offset at which the next chunk begins
    version      version of the partition's state when the chunk was fetched
    """

    __slots__ = ("aborted", "check_crcs", "fetched", "next_offset", "position", "state", "version")

    def __init__(
        self,
        state: PartitionState,
        fetched: Batches,
        position: int,
        next_offset: int,
        aborted: list[AbortedTransaction],
        *,
        check_crcs: bool,
    ) -> None:
        self.state = state
        self.version = state.version
        self.fetched = fetched
        self.position = position
        self.next_offset = next_offset
        self.aborted = aborted
        self.check_crcs = check_crcs

    @property
    def stale(self) -> bool:
        """True if the position of the partition was changed since the fetch."""
        return self.version != self.state.version

    @property
    def size(self) -> int:
        """Return the number of fetched bytes."""
        return self.fetched.end - self.fetched.start

    def batches(self) -> Batches:
        """Return the batches visible to the application, without aborted ones. Raises CorruptBatch."""
        data = self.fetched.data
        headers = scan(*self.fetched).batches
        if self.check_crcs:
            for header in headers:
                if not crc_ok(data, header):
                    raise self._corrupt(f"the batch at offset {header.base_offset} fails its CRC")
        return without_aborted(self.fetched, headers, self.aborted)

    def records(self) -> list[Record]:
        """Return the records from `position` on. Raises CorruptBatch."""
        batches = self.batches()
        data = batches.data
        topic, partition = self.state.partition
        records: list[Record] = []
        try:
            for header in scan(*batches).batches:
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


def modern(fetched: Batches) -> Batches:
    """Convert fetched data to batches of version 2; usually returns the same object. Raises CorruptRecords."""
    data, start, end = fetched
    if end - start < 17 or data[start + 16] >= 2:
        return fetched
    converted = as_batch(data[start:end], _LIMIT)
    return Batches(converted, 0, len(converted))


def chunk_of(state: PartitionState, frame: bytes, row: Any, position: int, config: ClientConfig) -> Chunk | None:
    """Return the chunk that a fetch at `position` returned for a partition; None without a whole batch. Raises CorruptBatch.

    frame, row  response, and the row of the partition in it, whose records are (start, end)
    """
    start, end = row.records or (0, 0)
    if start == end:
        return None
    try:
        fetched = modern(Batches(frame, start, end))
    except CorruptRecords as damage:
        raise CorruptBatch(f"{state.partition}: {damage}; seek past it to go on", CORRUPT_MESSAGE) from None
    scanned = scan(*fetched)
    if not scanned.batches:
        if scanned.corrupt is not None:
            raise CorruptBatch(f"{state.partition}: {scanned.corrupt}; seek past it to go on", CORRUPT_MESSAGE)
        return None
    next_offset = max(position, scanned.batches[-1].next_offset)
    aborted = row.aborted_transactions if row.aborted_transactions and config.read_committed else []
    whole = fetched if scanned.end == fetched.end else Batches(fetched.data, fetched.start, scanned.end)
    return Chunk(state, whole, position, next_offset, aborted, check_crcs=config["check.crcs"])


def without_aborted(batches: Batches, headers: list[BatchHeader], aborted: list[AbortedTransaction]) -> Batches:
    """Return batches without those of aborted transactions; the same object if there is nothing to leave out.

    With read_committed the response lists aborted transactions (producer id and first offset). Transactional batches of a
    listed producer are left out up to the producer's abort marker (KIP-98), as in Kafka's consumer:

        data     | p1 | p2 | p1 | abort p1 | p2 | p1 | commit p2 | ...    aborted: (p1, first offset of the first p1)
        returned        p2                   p2   p1                      (markers are left out later)
    """
    if not aborted:
        return batches
    data = batches.data
    opening = deque(sorted(aborted, key=lambda transaction: transaction.first_offset))
    open_now: set[int] = set()
    kept: list[bytes] = []
    begin = batches.start
    for header in headers:
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
    if begin == batches.start and not kept:
        return batches
    kept.append(data[begin : batches.end])
    left = b"".join(kept)
    return Batches(left, 0, len(left))


def _aborts(data: bytes, header: BatchHeader) -> bool:
    try:
        records = records_of(data[header.start : header.end])
        return bool(records) and read_marker(records[0].key, records[0].value).type == ABORT
    except CorruptRecords as error:
        raise CorruptBatch(f"the control batch at offset {header.base_offset}: {error}", CORRUPT_MESSAGE) from None
