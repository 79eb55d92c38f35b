"""Share session with one node: fetches, and acknowledgements of records (KIP-932).

A session belongs to one connection. It opens with epoch 0; each request, fetch or acknowledgement, raises the epoch by one,
so only one request is in flight at a time. Requests contain only the partitions that are added to or removed from the
session. When the session is lost, by an error or with its connection, the broker releases the records acquired in it: their
acknowledgements fail, and the next fetch opens a new session.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from ottla.client.core import Core
from ottla.client.errors import ConnectionLost, CorruptBatch, KafkaError, Permission, RequestTimedOut, error_for
from ottla.client.share.delivery import AcknowledgeType, AcquiredBatch, Home, Run
from ottla.client.share.sensors import ShareSensors
from ottla.client.topics import TopicPartition
from ottla.net.connection import Link
from ottla.protocol import errors as table
from ottla.protocol.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from ottla.protocol.messages.share_fetch import AcknowledgementBatch as FetchedBatch
from ottla.protocol.messages.share_fetch import (
    AcquiredRecords,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
)
from ottla.records.batch import crc_ok, read_records, scan
from ottla.records.errors import CorruptRecords
from ottla.records.record import Origin, Record

_FINAL: Final = -1
_LONGEST_EPOCH: Final = 2**31 - 1
PURPOSE: Final = "share"
_LOST: Final = frozenset({table.SHARE_SESSION_NOT_FOUND, table.INVALID_SHARE_SESSION_EPOCH})

AcknowledgedCallback = Callable[[Home, list[Run], KafkaError | None], None]
"""Callback for acknowledgements and their error, None if they were accepted."""
TopicIdPartition = tuple[bytes, int]


class FetchLimits(NamedTuple):
    """Limits of one fetch: number of records, and time that the broker may wait for the first."""

    records: int
    wait_ms: int


class FetchedRecords(NamedTuple):
    """Result of a fetch; `failure` is an error to raise in the application in addition to the records."""

    acquired: list[AcquiredBatch]
    failure: KafkaError | None


class NodeShareSession:
    """Share session with one node.

    busy      True if a request is in flight or about to be sent; set by the caller before `fetch` or `acknowledge`
    number    counter of the sessions opened to the node
    lock_ms   acquisition lock timeout of records, 0 before the broker has returned it
    """

    def __init__(
        self,
        core: Core,
        group_id: str,
        member_id: str,
        node: int,
        on_acknowledged: AcknowledgedCallback,
        sensors: ShareSensors,
    ) -> None:
        self.node = node
        self.number = 0
        self.busy = False
        self.lock_ms = 0
        self._core = core
        self._group_id = group_id
        self._member_id = member_id
        self._on_acknowledged = on_acknowledged
        self._sensors = sensors
        self._epoch = 0
        self._link: Link | None = None
        self._included: set[TopicIdPartition] = set()
        self._queued: dict[Home, list[Run]] = {}

    def _permissions(self, *partitions: TopicPartition) -> tuple[Permission, ...]:
        """Return the permissions that requests of the session need."""
        topics = tuple(partition.topic for partition in partitions)
        return (
            Permission("Read", "group", (self._group_id,)),
            *([Permission("Read", "topic", topics)] if topics else []),
        )

    @property
    def has_acknowledgements(self) -> bool:
        """True if there are acknowledgements to send."""
        return bool(self._queued)

    def queue(self, home: Home, runs: Iterable[Run]) -> None:
        """Queue acknowledgements for the next request; those of a lost session fail at once."""
        acknowledgements = list(runs)
        if not acknowledgements:
            return
        if home.session != self.number or self._epoch == 0:
            lost = error_for(table.SHARE_SESSION_NOT_FOUND, f"acknowledge records of {home.partition}")
            self._on_acknowledged(home, acknowledgements, lost)
            return
        self._queued.setdefault(home, []).extend(acknowledgements)

    # -- requests --

    async def fetch(self, partitions: dict[TopicIdPartition, TopicPartition], limits: FetchLimits) -> FetchedRecords:
        """Send one ShareFetch of these partitions with the queued acknowledgements; both fail together. Raises KafkaError."""
        sent: dict[Home, list[Run]] = {}
        try:
            link = await self._connect()
            if self._epoch != 0 and _renews(self._queued):
                await self._acknowledge(link, _LONGEST_EPOCH)
            version = link.version(ShareFetchRequest)
            request = self._request(partitions, limits)
            sent = self._add_acknowledgements(request)
            timeout_ms = request.max_wait_ms + self._core.config["request.timeout.ms"]
            self._record_sent(sent)
            sent_ms = self._core.clock.now_ms()
            answer = await link.request(request, version, timeout_ms=timeout_ms)
            if answer.error_code != table.NONE:
                about = f"share fetch of node {self.node}"
                raise error_for(answer.error_code, about, answer.error_message, *self._permissions())
            self.lock_ms = answer.acquisition_lock_timeout_ms or self.lock_ms
            self._next_epoch()
            self._included = set(partitions)
            self._record_fetch(answer, sent_ms)
            return self._process_response(answer, partitions, sent)
        except KafkaError as error:
            self._on_failed(error, sent)
            raise
        finally:
            self.busy = False

    async def acknowledge(self) -> None:
        """Send the queued acknowledgements in a request of their own. Raises KafkaError."""
        try:
            link = await self._connect()
            if self._queued:
                await self._acknowledge(link, _LONGEST_EPOCH)
        except KafkaError as error:
            self._on_failed(error, {})
            raise
        finally:
            self.busy = False

    async def end(self) -> None:
        """Send the queued acknowledgements, and release everything else. Raises KafkaError."""
        if self._epoch == 0 or self._link is None or not self._link.usable:
            self._drop_session(error_for(table.SHARE_SESSION_NOT_FOUND, f"share session with node {self.node}"))
            return
        self.busy = True
        try:
            await self._acknowledge(self._link, _FINAL)
        except KafkaError as error:
            self._on_failed(error, {})
            raise
        finally:
            self.busy = False
            self._epoch = 0

    async def _connect(self) -> Link:
        """Return the connection of the session. A new connection means that the session was lost."""
        link = await self._core.network.ready(self.node, PURPOSE)
        if link is not self._link:
            self._drop_session(ConnectionLost(f"the share session with node {self.node} went with its connection"))
            self._link = link
        if self._epoch == 0:
            self.number += 1
        return link

    def _request(self, partitions: dict[TopicIdPartition, TopicPartition], limits: FetchLimits) -> ShareFetchRequest:
        config = self._core.config
        request = ShareFetchRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=self._epoch,
            max_wait_ms=limits.wait_ms,
            min_bytes=config["fetch.min.bytes"],
            max_bytes=config["fetch.max.bytes"],
            max_records=limits.records,
            batch_size=limits.records,
            share_acquire_mode=int(config["share.acquire.mode"] == "record_limit"),
        )
        topics: dict[bytes, FetchTopic] = {}
        for topic_id, index in partitions:
            if self._epoch == 0 or (topic_id, index) not in self._included:
                topic = topics.setdefault(topic_id, FetchTopic(topic_id=topic_id))
                topic.partitions.append(FetchPartition(partition_index=index))
        request.topics = list(topics.values())
        forgotten: dict[bytes, ForgottenTopic] = {}
        for topic_id, index in sorted(self._included - partitions.keys()) if self._epoch else ():
            forgotten.setdefault(topic_id, ForgottenTopic(topic_id=topic_id)).partitions.append(index)
        request.forgotten_topics_data = list(forgotten.values())
        return request

    def _add_acknowledgements(self, request: ShareFetchRequest) -> dict[Home, list[Run]]:
        """Move the queued acknowledgements into a fetch, and return them."""
        if self._epoch == 0:
            return {}
        sent, self._queued = self._queued, {}
        topics = {topic.topic_id: topic for topic in request.topics}
        for home, acknowledgements in sent.items():
            batches = [
                FetchedBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
                for first, last, kind in acknowledgements
            ]
            topic = topics.setdefault(home.topic_id, FetchTopic(topic_id=home.topic_id))
            for partition in topic.partitions:
                if partition.partition_index == home.partition.partition:
                    partition.acknowledgement_batches += batches
                    break
            else:
                topic.partitions.append(
                    FetchPartition(partition_index=home.partition.partition, acknowledgement_batches=batches)
                )
        request.topics = list(topics.values())
        return sent

    async def _acknowledge(self, link: Link, final: int) -> None:
        """Send one ShareAcknowledge with all queued acknowledgements; `final` is _FINAL to end the session."""
        sent, self._queued = self._queued, {}
        topics: dict[bytes, AcknowledgeTopic] = {}
        for home, acknowledgements in sent.items():
            batches = [
                AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
                for first, last, kind in sorted(acknowledgements)
            ]
            topics.setdefault(home.topic_id, AcknowledgeTopic(topic_id=home.topic_id)).partitions.append(
                AcknowledgePartition(partition_index=home.partition.partition, acknowledgement_batches=batches)
            )
        request = ShareAcknowledgeRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=_FINAL if final == _FINAL else self._epoch,
            topics=list(topics.values()),
        )
        version = link.version(ShareAcknowledgeRequest)
        if version >= 2:
            request.is_renew_ack = _renews(sent)
        self._record_sent(sent)
        try:
            answer = await link.request(request, version)
            if answer.error_code != table.NONE:
                about = f"acknowledge records to node {self.node}"
                raise error_for(answer.error_code, about, answer.error_message, *self._permissions())
        except KafkaError as error:
            self._report(sent, error)
            raise
        self.lock_ms = answer.acquisition_lock_timeout_ms or self.lock_ms
        self._next_epoch()
        refused = {
            (topic.topic_id, row.partition_index): (row.error_code, row.error_message)
            for topic in answer.responses
            for row in topic.partitions
        }
        self._report_rows(sent, refused)

    def _record_sent(self, sent: dict[Home, list[Run]]) -> None:
        count = sum(number_of_records(runs) for runs in sent.values())
        if count:
            self._sensors.sent.record(count, self._core.clock.now_ms())

    def _record_fetch(self, answer: ShareFetchResponse, sent_ms: int) -> None:
        now_ms, size, records = self._core.clock.now_ms(), 0, 0
        for topic in answer.responses:
            for row in topic.partitions:
                acquired = sum(span.last_offset - span.first_offset + 1 for span in row.acquired_records)
                if acquired:
                    records += acquired
                    size += len(row.records or b"")
        self._sensors.record_response(self.node, now_ms - sent_ms, answer.throttle_time_ms, size, records, now_ms)

    def _next_epoch(self) -> None:
        self._epoch = 1 if self._epoch == _LONGEST_EPOCH else self._epoch + 1

    # -- responses --

    def _report(self, sent: dict[Home, list[Run]], error: KafkaError | None) -> None:
        for home, acknowledgements in sent.items():
            self._on_acknowledged(home, acknowledgements, error)

    def _report_rows(self, sent: dict[Home, list[Run]], codes: dict[TopicIdPartition, tuple[int, str | None]]) -> None:
        for home, acknowledgements in sent.items():
            code, message = codes.get((home.topic_id, home.partition.partition), (table.NONE, None))
            about = f"acknowledge records of {home.partition}"
            error = error_for(code, about, message, *self._permissions(home.partition)) if code != table.NONE else None
            self._on_acknowledged(home, acknowledgements, error)

    def _on_failed(self, error: KafkaError, sent: dict[Home, list[Run]]) -> None:
        self._report(sent, error)
        if error.code in _LOST or isinstance(error, ConnectionLost | RequestTimedOut):
            self._drop_session(error)

    def _drop_session(self, error: KafkaError) -> None:
        """End the session; its queued acknowledgements fail."""
        self._epoch = 0
        self._included.clear()
        sent, self._queued = self._queued, {}
        self._report(sent, error)

    def _process_response(
        self,
        answer: ShareFetchResponse,
        partitions: dict[TopicIdPartition, TopicPartition],
        sent: dict[Home, list[Run]],
    ) -> FetchedRecords:
        """Return the records in the answer, and report the results of the acknowledgements that were sent."""
        codes: dict[TopicIdPartition, tuple[int, str | None]] = {}
        acquired = []
        failure: KafkaError | None = None
        for topic in answer.responses:
            for row in topic.partitions:
                where = (topic.topic_id, row.partition_index)
                codes[where] = (row.acknowledge_error_code, row.acknowledge_error_message)
                partition = partitions.get(where)
                if partition is None:
                    continue
                if row.error_code != table.NONE:
                    error = error_for(
                        row.error_code, f"share fetch of {partition}", row.error_message, *self._permissions(partition)
                    )
                    self._core.metadata.forget(partition.topic)
                    failure = failure if error.retriable else error
                elif row.acquired_records:
                    home = Home(self.node, self.number, topic.topic_id, partition)
                    try:
                        acquired.append(AcquiredBatch(home, _ranges(row), self._records(partition, row)))
                    except CorruptRecords as damage:
                        # No member can process these records: another delivery would fail as well.
                        self.queue(home, [Run(first, last, AcknowledgeType.REJECT) for first, last in _ranges(row)])
                        failure = CorruptBatch(f"{partition}: {damage}", table.CORRUPT_MESSAGE)
        self._report_rows(sent, codes)
        return FetchedRecords(acquired, failure)

    def _records(self, partition: TopicPartition, row: PartitionData) -> list[Record]:
        """Return the acquired records of a response. Raises CorruptRecords."""
        data = bytes(row.records or b"")
        records: list[Record] = []
        for header in scan(data).batches:
            ours = [
                span
                for span in row.acquired_records
                if span.first_offset <= header.last_offset and header.base_offset <= span.last_offset
            ]
            if header.is_control or not ours:
                continue
            if self._core.config["check.crcs"] and not crc_ok(data, header):
                raise CorruptRecords(f"the batch at offset {header.base_offset} fails its CRC")
            origins = [Origin(*partition, header.timestamp_type, -1, span.delivery_count) for span in ours]
            read = read_records(data, header, origins[0])
            if len(ours) > 1 or header.base_offset < ours[0].first_offset or header.last_offset > ours[0].last_offset:
                read = _within(read, ours, origins)
            records += read
        return records


def number_of_records(runs: Iterable[Run]) -> int:
    """Return the number of records that are acknowledged; offsets without a record do not count."""
    return sum(last - first + 1 for first, last, kind in runs if kind)


def _renews(sent: dict[Home, list[Run]]) -> bool:
    return any(run.kind == AcknowledgeType.RENEW for acknowledgements in sent.values() for run in acknowledgements)


def _ranges(row: PartitionData) -> list[tuple[int, int]]:
    return [(span.first_offset, span.last_offset) for span in row.acquired_records]


def _within(records: list[Record], ours: list[AcquiredRecords], origins: list[Origin]) -> list[Record]:
    """Return the records within the acquired ranges, each with the delivery count of its range."""
    kept = []
    for span, origin in zip(ours, origins, strict=True):
        for record in records:
            if span.first_offset <= record.offset <= span.last_offset:
                record.origin = origin
                kept.append(record)
    return kept
