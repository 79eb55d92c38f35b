"""Record batches of one partition, as the broker stored them, from an offset up to an end.

Strategy: batches are never opened here. A fetch answer is walked from header to header: that gives the offset to go on from,
so the next fetch is on its way before the caller looks at this one; CRCs are checked on the way. With read_committed the
answer lists aborted transactions (producer id and first offset); a transactional batch of such a producer is left out until
the producer's abort marker comes by (KIP-98), as Kafka's consumer does it:

    data     | p1 | p2 | p1 | abort p1 | p2 | p1 | commit p2 | ...        aborted: (p1, first offset of the first p1)
    handed on       p2                   p2   p1                          (markers are left out too)
"""

from collections import deque
from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

from ottla.client.cluster import Cluster
from ottla.client.errors import (
    CorruptBatch,
    KafkaError,
    OffsetOutOfRange,
    RequestTimedOut,
    RetriableError,
    error_for,
)
from ottla.client.pool import Connection
from ottla.client.topics import TopicPartition
from ottla.protocol.errors import CORRUPT_MESSAGE, NONE, OFFSET_OUT_OF_RANGE
from ottla.protocol.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.protocol.schema import ZERO_UUID
from ottla.records.batch import BatchHeader, crc_ok, records_of, scan
from ottla.records.control import ABORT, read_marker
from ottla.records.errors import CorruptRecords

_NEWEST_WITHOUT_IDS = 12


class Fetched(NamedTuple):
    """What one fetch brought.

    data         whole batches, back to back; the first may begin before the offset asked for
    next_offset  where the next fetch goes on: past everything in the answer, also what was left out
    """

    data: bytes
    next_offset: int


def fetch_request(
    cluster: Cluster, connection: Connection, positions: dict[TopicPartition, int], max_wait_ms: int, min_bytes: int
) -> tuple[FetchRequest, int]:
    """A Fetch without a session (KIP-227) and the version to send it in: before 13 topics are named, then they have ids."""
    config = cluster.config
    ids = {part.topic: cluster.topic_id(part.topic) for part in positions}
    version = connection.version(FetchRequest, 32767 if all(ids.values()) else _NEWEST_WITHOUT_IDS)
    topics: dict[str, FetchTopic] = {}
    for part, offset in positions.items():
        topic = topics.setdefault(part.topic, FetchTopic(topic=part.topic, topic_id=ids[part.topic] or ZERO_UUID))
        limit = config["max.partition.fetch.bytes"]
        topic.partitions.append(
            FetchPartition(partition=part.partition, fetch_offset=offset, partition_max_bytes=limit)
        )
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=config["fetch.max.bytes"],
        isolation_level=int(config.read_committed),
        topics=list(topics.values()),
        rack_id=config["client.rack"],
    )
    return request, version


def fetch_batches(
    cluster: Cluster, partition: TopicPartition, start: int, end: int, *, timeout_ms: int = 120_000
) -> Iterator[Fetched]:
    """The batches that hold the offsets from `start` (inclusive) to `end` (exclusive), in order.

    timeout_ms  how long the broker may bring nothing before RequestTimedOut is raised

    A lost connection or a moved leader is retried from where the reading stood. Raises OffsetOutOfRange (with
    `log_start`), UnknownTopic, CorruptBatch, NotAuthorized, BrokersUnreachable.
    """
    position = start
    failures = 0
    progress = cluster.clock.now_ms()
    reading = _Reading(cluster, partition)
    try:
        while position < end:
            try:
                fetched = reading.take(position, end)
            except KafkaError as error:
                reading.drop()
                if not error.retriable or isinstance(error, OffsetOutOfRange):
                    raise
                waited = cluster.clock.now_ms() - progress
                if waited >= timeout_ms:
                    raise RequestTimedOut(
                        f"fetch of {partition} from offset {position}: nothing came in {waited} ms; last: {error}",
                        error.code,
                    ) from None
                failures += 1
                cluster.forget(partition.topic)
                cluster.pause(cluster.backoff_ms(failures))
                continue
            if fetched.next_offset > position:
                failures = 0
                progress = cluster.clock.now_ms()
                position = fetched.next_offset
                yield fetched
                # Whoever consumes may take long: that is not the broker's time.
                progress = cluster.clock.now_ms()
            elif cluster.clock.now_ms() - progress >= timeout_ms:
                raise RequestTimedOut(f"fetch of {partition}: no record at offset {position} after {timeout_ms} ms")
    finally:
        reading.drop()


class _Reading:
    """The open fetch of one partition: at most one is on its way while the caller works on the one before."""

    def __init__(self, cluster: Cluster, partition: TopicPartition) -> None:
        self._cluster = cluster
        self._partition = partition
        self._connection: Connection | None = None

    def take(self, position: int, end: int) -> Fetched:
        """The answer of the fetch at `position` (sent now unless it is on its way), and the next one sent."""
        if self._connection is None:
            self._send(position)
        connection = self._connection
        assert connection is not None
        answer: FetchResponse = connection.receive(self._deadline())
        self._connection = None
        found = whole_batches(answer, self._partition, position, self._cluster.config["check.crcs"])
        if position < found.next_offset < end:
            self._send(found.next_offset)
        if self._cluster.config.read_committed:
            return Fetched(without_aborted(found.data, found.batches, found.aborted), found.next_offset)
        return Fetched(found.data, found.next_offset)

    def _send(self, position: int) -> None:
        cluster = self._cluster
        node = cluster.leader(self._partition)
        connection = _idle(cluster, node)
        config = cluster.config
        request, version = fetch_request(
            cluster, connection, {self._partition: position}, config["fetch.max.wait.ms"], config["fetch.min.bytes"]
        )
        connection.send(request, version)
        self._connection = connection

    def _deadline(self) -> int:
        return self._cluster.deadline() + int(self._cluster.config["fetch.max.wait.ms"])

    def drop(self) -> None:
        """Give up what is on its way."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _idle(cluster: Cluster, node: int) -> Connection:
    """A connection on which no other reading waits; nearly always the first."""
    for number in count():
        connection = cluster.pool.broker(node, f"fetch {number}")
        if not connection.waiting:
            return connection
    raise AssertionError


class _Answer(NamedTuple):
    data: bytes
    batches: list[BatchHeader]
    aborted: list[AbortedTransaction]
    next_offset: int


def whole_batches(answer: FetchResponse, partition: TopicPartition, position: int, check_crcs: bool) -> _Answer:
    """The whole, intact batches of an answer for one partition. Raises KafkaError for its error codes, CorruptBatch."""
    about = f"fetch of {partition} from offset {position}"
    if answer.error_code != NONE:
        raise error_for(answer.error_code, about)
    rows: list[PartitionData] = [row for topic in answer.responses for row in topic.partitions]
    if len(rows) != 1 or rows[0].partition_index != partition.partition:
        raise RetriableError(f"{about}: the answer is about something else")
    row = rows[0]
    if row.error_code == OFFSET_OUT_OF_RANGE:
        error = OffsetOutOfRange(f"{about}: the log has no such offset", row.error_code)
        error.log_start = row.log_start_offset
        raise error
    if row.error_code != NONE:
        raise error_for(row.error_code, about)
    data = bytes(row.records) if isinstance(row.records, bytes) else b""
    found = scan(data)
    if found.corrupt is not None and not found.batches:
        raise CorruptBatch(f"{about}: {found.corrupt}", CORRUPT_MESSAGE)
    next_offset = position
    for header in found.batches:
        if check_crcs and not crc_ok(data, header):
            raise CorruptBatch(f"{partition}: the batch at offset {header.base_offset} fails its CRC", CORRUPT_MESSAGE)
        next_offset = max(next_offset, header.next_offset)
    return _Answer(data, found.batches, row.aborted_transactions or [], next_offset)


def without_aborted(data: bytes, batches: list[BatchHeader], aborted: list[AbortedTransaction]) -> bytes:
    """`data` without the batches of aborted transactions; the same object when there are none."""
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


def wait_for_records(cluster: Cluster, positions: dict[TopicPartition, int], wait_ms: int) -> bool:
    """Long-poll: whether something arrived at or after these offsets, after at most about `wait_ms`.

    Every leader is sent one Fetch, which it answers when it has something or after `wait_ms`; an answer that nobody waited
    for is taken in before the next one is asked for. Trouble of any kind counts as "something may have arrived".
    """
    open_now: list[Connection] = []
    try:
        for node, parts in cluster.by_leader(positions).items():
            connection = cluster.pool.broker(node, "wait")
            while connection.waiting:
                connection.receive(cluster.deadline())
            request, version = fetch_request(cluster, connection, {part: positions[part] for part in parts}, wait_ms, 1)
            request.max_bytes = 1
            connection.send(request, version)
            open_now.append(connection)
        patience = cluster.deadline()
        while open_now:
            for connection in list(open_now):
                # With several leaders the wait is shared out in short looks at each.
                if len(open_now) > 1 and not connection.readable(5):
                    continue
                answer: FetchResponse = connection.receive(patience)
                open_now.remove(connection)
                if any(row.records or row.error_code for topic in answer.responses for row in topic.partitions):
                    return True
        return False
    except KafkaError as error:
        if not error.retriable:
            raise
        cluster.forget()
        return True
