"""What one fetch brought of one partition, and the records in it.

A chunk is still the bytes that came; it becomes records where they are wanted, in the application's thread, one chunk at a
time. Message sets of brokers before 0.11 are turned into batches first.
"""

from ottla.client.consumer.fetching import without_aborted
from ottla.client.consumer.positions import PartitionState
from ottla.client.errors import CorruptBatch
from ottla.protocol.errors import CORRUPT_MESSAGE
from ottla.protocol.messages.fetch import AbortedTransaction
from ottla.records.batch import crc_ok, read_records, scan
from ottla.records.errors import CorruptRecords
from ottla.records.legacy import as_batch
from ottla.records.record import Origin, Record

_LIMIT = 2**31 - 1


class Chunk:
    """Whole batches of one partition, back to back.

    position     offset from which records are wanted; batches may begin before it
    next_offset  where the next chunk goes on
    version      of the partition's state when it was fetched
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
        """Whether somebody has moved on since."""
        return self.version != self.state.version

    def batches(self) -> bytes:
        """The batches that the application may see, with all their records. Raises CorruptBatch."""
        found = scan(self.data)
        if self.check_crcs:
            for header in found.batches:
                if not crc_ok(self.data, header):
                    raise self._corrupt(f"the batch at offset {header.base_offset} fails its CRC")
        return without_aborted(self.data, found.batches, self.aborted)

    def records(self) -> list[Record]:
        """The records, from `position` on. Raises CorruptBatch."""
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
    """Batches of version 2, whatever came; the same object as a rule. Raises CorruptRecords."""
    if len(data) < 17 or data[16] >= 2:
        return data
    return as_batch(data, _LIMIT)
