"""Batches of a leader, which a follower appends byte for byte: checks before the write.

    magic         2 only: other formats are converted by the leader
    CRC           of each batch: nothing damaged on the way, or on the disk of the leader, is stored again
    offsets       ascending from the log end; compaction of the leader leaves gaps
    leader epoch  not above that of the fetch: such a batch was appended after the leader that was asked

Sequences and transactions are not checked: the leader did that before it assigned the offsets.
"""

from typing import NamedTuple

from ottla.log.recovery import marker_in
from ottla.records.batch import HEADER_SIZE, BatchHeader, crc_ok, read_header
from ottla.records.control import Marker
from ottla.records.errors import CorruptRecords


class ReplicatedBatch(NamedTuple):
    """Checked batch, with the marker if it is a control batch that compaction has not emptied."""

    header: BatchHeader
    marker: Marker | None


class CheckedBatches(NamedTuple):
    """Result of `check_batches`.

    batches  valid batches, in order
    end      position (exclusive) of the last valid batch
    problem  damage of the batch at `end`; None if the batches end there, or the rest is for a later fetch
    """

    batches: list[ReplicatedBatch]
    end: int
    problem: str | None


def check_batches(frame: bytes, start: int, end: int, epoch: int, next_offset: int) -> CheckedBatches:
    """Check the whole batches in `frame[start:end]` up to the first one of a leader epoch above `epoch`. Never raises.

    next_offset  log end offset of the follower: no batch may begin below it
    """
    batches: list[ReplicatedBatch] = []
    position = start
    while position + HEADER_SIZE <= end:
        try:
            header = read_header(frame, position)
            # A batch that is cut off, or of a later epoch, is fetched again: it is no damage.
            if header.end > end or header.leader_epoch > epoch:
                break
            if not crc_ok(frame, header):
                return CheckedBatches(batches, position, "the CRC of a batch is wrong")
            if header.base_offset < next_offset or header.next_offset <= header.base_offset:
                problem = f"a batch has offsets {header.base_offset} to {header.last_offset}, after {next_offset - 1}"
                return CheckedBatches(batches, position, problem)
            marker = marker_in(frame[position : header.end], header) if header.is_control else None
        except CorruptRecords as cause:
            return CheckedBatches(batches, position, str(cause))
        batches.append(ReplicatedBatch(header, marker))
        position, next_offset = header.end, header.next_offset
    return CheckedBatches(batches, position, None)
