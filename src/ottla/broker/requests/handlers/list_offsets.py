"""ListOffsets: the offset of a point in time, of the beginning or of the end of a partition.

Authorization
    topic: DESCRIBE   TOPIC_AUTHORIZATION_FAILED; these topics come last

Behaviour
    timestamp        the first record at or after it; -1 with offset -1 without such a record
    -1               the log end: high watermark, or last stable offset for readers of committed data
    -2, -4           log start; without tiered storage everything is local
    -3               the record with the largest timestamp (KIP-734)
    -5, -6           nothing lies in another tier: offset -1
    other negatives  UNSUPPORTED_VERSION, whatever the partition is
    another isolation level            UNKNOWN_SERVER_ERROR for each
    a partition twice in one request   INVALID_REQUEST, once
    a topic without partitions         left out
    a negative number of offsets, in version 0   UNKNOWN_SERVER_ERROR
    high watermark below the beginning of the leader's epoch    OFFSET_NOT_AVAILABLE (before version 5 LEADER_NOT_AVAILABLE)
                                       for consumers that request the log end or a later time (KIP-207)
    a follower of the cluster          everything up to the log end

Versions
    0  a list of segment beginnings instead of one offset
    1  timestamp and offset
    2  isolation level
    4  leader epochs
    7  -3, 8  -4, 9  -5, 11  -6: UNSUPPORTED_VERSION before
"""

from collections import Counter
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.broker.broker import Broker
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_topic
from ottla.log import reading
from ottla.log.log import READ_COMMITTED, READ_UNCOMMITTED, StorageError
from ottla.protocol.errors import (
    INVALID_REQUEST,
    LEADER_NOT_AVAILABLE,
    OFFSET_NOT_AVAILABLE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_SERVER_ERROR,
    UNSUPPORTED_VERSION,
)
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.security.operations import AclOperation
from ottla.tasks.deferred import awaitable

if TYPE_CHECKING:
    from ottla.replication.partition import Partition

CONSUMER: Final = -1
DEBUGGING_REPLICA: Final = -2
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
_SINCE: Final = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


@handles(ListOffsetsRequest, rows="topics.partitions")
async def list_offsets(request: ListOffsetsRequest, broker: Broker) -> ListOffsetsResponse:
    response = ListOffsetsResponse()
    await awaitable(broker.tasks.run_pieces(_look_up(request, broker, response), "ListOffsets"), broker.tasks)
    return response


def _look_up(request: ListOffsetsRequest, broker: Broker, response: ListOffsetsResponse) -> Iterator[None]:
    """Fill in the response; yields in between while a search by timestamp decompresses a large batch."""
    committed = request.isolation_level == READ_COMMITTED
    version = request.context.version
    asked = Counter(
        (topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    )
    sensible = version == 0 or request.isolation_level in (READ_UNCOMMITTED, READ_COMMITTED)
    rows: dict[str, list[ListOffsetsPartitionResponse]] = {}
    denied: dict[str, list[ListOffsetsPartitionResponse]] = {}
    for topic in request.topics:
        is_allowed = may_use_topic(request.context, AclOperation.DESCRIBE, topic.name)
        for requested in topic.partitions:
            place = topic.name, requested.partition_index
            partition = broker.replicas.readable(
                *place,
                requested.current_leader_epoch,
                leader_only=request.replica_id != DEBUGGING_REPLICA,
            )
            if not sensible:
                answer = _error_row(requested, UNKNOWN_SERVER_ERROR)
            elif not is_allowed:
                denied.setdefault(topic.name, []).append(_error_row(requested, TOPIC_AUTHORIZATION_FAILED))
                continue
            elif version > 0 and asked[place] > 1:
                answer = _error_row(requested, INVALID_REQUEST)
                asked[place] = 0
            elif version > 0 and asked[place] == 0:
                continue  # the duplicate has its one error row already
            elif version > 0 and not _is_known(requested.timestamp, version):
                answer = _error_row(requested, UNSUPPORTED_VERSION)
            elif isinstance(partition, int):
                answer = _error_row(requested, partition)
            elif version == 0:
                answer = _old_style(requested, partition)
            else:
                reader = _Reader(request.replica_id, version, committed)
                answer = yield from _find(requested, partition, reader)
            rows.setdefault(topic.name, []).append(answer)
    response.topics = [
        ListOffsetsTopicResponse(name=name, partitions=answers) for name, answers in (*rows.items(), *denied.items())
    ]


def _is_known(timestamp: int, version: int) -> bool:
    return timestamp >= EARLIEST_PENDING_UPLOAD and version >= _SINCE.get(timestamp, 0)


class _Reader(NamedTuple):
    """Sender of a request: node id of a follower, below zero for clients; version; whether it reads committed records only."""

    replica_id: int
    version: int
    committed: bool

    def limit(self, partition: "Partition") -> int:
        """First offset that it may not read (exclusive limit)."""
        log = partition.log
        if self.replica_id != CONSUMER:
            return log.end_offset
        return log.last_stable_offset if self.committed else log.high_watermark

    def is_early(self, partition: "Partition") -> bool:
        """Return True while a new leader does not know yet what is committed."""
        leadership = partition.leadership
        if self.replica_id != CONSUMER or leadership is None:
            return False
        return partition.log.high_watermark < leadership.epoch_start


def _find(
    requested: ListOffsetsPartition, partition: "Partition", reader: _Reader
) -> Generator[None, None, ListOffsetsPartitionResponse]:
    try:
        position = yield from _position(requested.timestamp, partition, reader)
    except StorageError as cause:
        partition.log_damage(cause)
        return _error_row(requested, cause.code)
    if position is None:
        return _error_row(requested, OFFSET_NOT_AVAILABLE if reader.version >= 5 else LEADER_NOT_AVAILABLE)
    timestamp, offset, leader_epoch = position
    return ListOffsetsPartitionResponse(
        partition_index=requested.partition_index,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=leader_epoch if reader.version >= 4 else -1,
    )


def _position(
    timestamp: int, partition: "Partition", reader: _Reader
) -> Generator[None, None, tuple[int, int, int] | None]:
    """Return (timestamp, offset, leader epoch), -1 for unknown values; None if the offset is not available yet."""
    log = partition.log
    if timestamp == LATEST:
        return None if reader.is_early(partition) else (-1, reader.limit(partition), partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return -1, log.start_offset, log.epochs.epoch_at(log.start_offset)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return -1, -1, -1
    position = yield from (
        reading.find_newest(log) if timestamp == MAX_TIMESTAMP else reading.find_offset(log, timestamp)
    )
    if position is None or position[1] >= reader.limit(partition):
        return None if reader.is_early(partition) else (-1, -1, -1)
    return position


def _old_style(requested: ListOffsetsPartition, partition: "Partition") -> ListOffsetsPartitionResponse:
    """Return the row of version 0: base offsets of segments last written before the timestamp, newest first."""
    if requested.max_num_offsets < 0:
        return _error_row(requested, UNKNOWN_SERVER_ERROR)
    offsets = reading.offsets_before(partition.log, requested.timestamp)
    return ListOffsetsPartitionResponse(
        partition_index=requested.partition_index, old_style_offsets=offsets[: requested.max_num_offsets]
    )


def _error_row(requested: ListOffsetsPartition, code: int) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=requested.partition_index, error_code=code)
