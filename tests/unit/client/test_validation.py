"""Positions and leader epochs (KIP-320) in virtual time: leaders that lack what was read, that metadata does not know yet."""

from typing import Any

import pytest

from ottla.client.consumer.core import ConsumerCore
from ottla.client.consumer.positions import PartitionState
from ottla.client.errors import KafkaError, LogTruncation, NotAuthorized
from ottla.client.groups import OffsetAndMetadata
from ottla.client.topics import TopicPartition
from ottla.protocol.errors import (
    FENCED_LEADER_EPOCH,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_OUT_OF_RANGE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_LEADER_EPOCH,
)
from ottla.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.messages.offset_for_leader_epoch import EpochEndOffset as EndOfEpoch
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from ottla.records.batch import build
from ottla.records.record import Record

from .world import TOPIC_ID, Broker, Later, World

PART = TopicPartition("t", 0)


class Log:
    """Partition 0 of topic t on one broker: (leader epoch, value) of each offset.

    epoch     the leader's
    tells     whether Fetch says that what was fetched last diverges
    refusals  error codes of the next OffsetForLeaderEpoch requests
    """

    def __init__(self, broker: Broker, epoch: int = 0) -> None:
        self.records: list[tuple[int, bytes]] = []
        self.epoch = epoch
        self.tells = False
        self.refusals: list[int] = []
        self.max_records = 1000
        self.broker = broker
        broker.topics["t"] = {0: broker.node}
        broker.on(FetchRequest, self._fetch)
        broker.on(OffsetForLeaderEpochRequest, self._end_of_epoch)
        broker.on(ListOffsetsRequest, self._list_offsets)

    def write(self, *values: str) -> None:
        self.records += [(self.epoch, value.encode()) for value in values]

    def elect(self, epoch: int, keep: int) -> None:
        """A leader that had only the first `keep` records takes over."""
        del self.records[keep:]
        self.epoch = epoch
        self.broker.epochs["t", 0] = epoch

    def _end(self, leader_epoch: int) -> tuple[int, int]:
        """(epoch, end) as a leader answers: of the newest epoch that is not newer than the one that is asked for."""
        if leader_epoch == self.epoch:
            return leader_epoch, len(self.records)
        known = [epoch for epoch, _ in self.records if epoch <= leader_epoch]
        if not known or leader_epoch > self.epoch:
            return -1, -1
        return known[-1], len(known)

    def _checked(self, current: int) -> int:
        if 0 <= current < self.epoch:
            return FENCED_LEADER_EPOCH
        return UNKNOWN_LEADER_EPOCH if current > self.epoch else NONE

    def _fetch(self, request: FetchRequest, version: int) -> FetchResponse | Later:
        rows = []
        for topic in request.topics:
            for part in topic.partitions:
                row = PartitionData(partition_index=0, error_code=self._checked(part.current_leader_epoch))
                row.high_watermark = row.last_stable_offset = len(self.records)
                rows.append(row)
                end = self._end(part.last_fetched_epoch) if part.last_fetched_epoch >= 0 else (1 << 30, 1 << 30)
                if row.error_code != NONE:
                    continue
                if self.tells and (end[0] < part.last_fetched_epoch or end[1] < part.fetch_offset):
                    row.diverging_epoch = EpochEndOffset(epoch=end[0], end_offset=end[1])
                elif part.fetch_offset > len(self.records):
                    row.error_code = OFFSET_OUT_OF_RANGE
                else:
                    row.records = self._batches(part.fetch_offset)
        answer = FetchResponse(
            responses=[FetchableTopicResponse(topic="" if version >= 13 else "t", topic_id=TOPIC_ID, partitions=rows)]
        )
        nothing = all(row.error_code == NONE and not row.records and row.diverging_epoch.end_offset < 0 for row in rows)
        return Later(50, answer) if nothing else answer

    def _batches(self, start: int) -> bytes:
        return b"".join(
            build([Record(offset, 0, None, value)], base_offset=offset, leader_epoch=epoch)
            for offset, (epoch, value) in list(enumerate(self.records))[start : start + self.max_records]
        )

    def _end_of_epoch(self, request: OffsetForLeaderEpochRequest, version: int) -> OffsetForLeaderEpochResponse:
        part = request.topics[0].partitions[0]
        code = self.refusals.pop(0) if self.refusals else self._checked(part.current_leader_epoch)
        row = EndOfEpoch(partition=0, error_code=code)
        if code == NONE:
            row.leader_epoch, row.end_offset = self._end(part.leader_epoch)
        return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic="t", partitions=[row])])

    def _list_offsets(self, request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        earliest = request.topics[0].partitions[0].timestamp == -2
        row = ListOffsetsPartitionResponse(partition_index=0, offset=0 if earliest else len(self.records))
        row.leader_epoch = self.records[0 if earliest else -1][0] if self.records else -1
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[row])])


class Reader:
    """A consumer of that partition."""

    def __init__(self, world: World, **configs: Any) -> None:
        self.world = world
        self.core = world.core(**({"auto_offset_reset": "earliest", "metadata_max_age_ms": 60_000} | configs))
        self.consumer = ConsumerCore(self.core)
        self.consumer.assign([PART])

    def read(self, count: int) -> list[str]:
        """The next records, as far as they come within ten seconds."""
        values: list[str] = []
        while len(values) < count:
            record = self.consumer.take()
            if record is not None:
                values.append((record.value or b"").decode())
            elif not self.world.run(self.core, self.consumer.wait(10_000)):
                break
        return values

    def hear(self) -> None:
        """Request the metadata again."""
        self.core.metadata.forget()
        self.world.advance(500)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def log(world: World) -> Log:
    made = Log(world.broker(), epoch=3)
    made.broker.epochs["t", 0] = 3
    return made


def asked(log: Log) -> list[tuple[int, int]]:
    """(epoch of the position, leader epoch) of each question."""
    partitions = [request.topics[0].partitions[0] for request in log.broker.sent(OffsetForLeaderEpochRequest)]
    return [(part.leader_epoch, part.current_leader_epoch) for part in partitions]


def test_a_position_that_the_new_leader_has_stays(world: World, log: Log) -> None:
    log.write("a", "b", "c")
    reader = Reader(world)
    assert reader.read(3) == ["a", "b", "c"]
    log.elect(5, keep=3)
    log.write("d")
    assert reader.read(1) == ["d"]
    # The position from ListOffsets, then the new leader: FENCED_LEADER_EPOCH told of it.
    assert asked(log) == [(3, 3), (3, 5)]
    assert reader.consumer.positions_to_commit() == {PART: OffsetAndMetadata(4, "", 5)}
    fetch = log.broker.sent(FetchRequest)[-1]
    assert not fetch.topics or fetch.topics[0].partitions[0].current_leader_epoch == 5


@pytest.mark.parametrize("tells", [False, True])
def test_a_truncated_log_is_read_again_from_its_divergence(world: World, log: Log, tells: bool) -> None:
    log.tells = tells
    log.write("a", "b", "c")
    reader = Reader(world)
    assert reader.read(3) == ["a", "b", "c"]
    log.elect(5, keep=1)
    log.write("B", "C", "D")
    assert reader.read(3) == ["B", "C", "D"]
    assert reader.consumer.positions_to_commit() == {PART: OffsetAndMetadata(4, "", 5)}


def test_truncated_records_that_were_only_fetched_are_not_returned(world: World, log: Log) -> None:
    log.write(*"abcdef")
    log.max_records = 4
    reader = Reader(world, auto_offset_reset="earliest")
    assert reader.read(2) == ["a", "b"]
    log.elect(5, keep=3)
    log.write("D")
    reader.hear()
    assert reader.read(5) == ["c", "D"]


@pytest.mark.parametrize("known", [True, False])
def test_without_a_reset_policy_truncation_raises_log_truncation(world: World, log: Log, known: bool) -> None:
    log.write("a", "b", "c")
    reader = Reader(world, auto_offset_reset="none")
    reader.consumer.seek(PART, 0)
    assert reader.read(3) == ["a", "b", "c"]
    log.elect(5, keep=1 if known else 0)
    log.write("B")
    with pytest.raises(
        LogTruncation, match=r"t-0: records before the position 3 are not in the log any more"
    ) as caught:
        reader.read(1)
    assert (caught.value.position, caught.value.diverging) == (3, 1 if known else -1)
    reader.consumer.seek(PART, caught.value.diverging if known else 0)
    assert reader.read(1) == ["B"]


def test_a_log_that_knows_nothing_of_the_epoch_is_read_by_policy(world: World, log: Log) -> None:
    log.write("a", "b", "c")
    reader = Reader(world)
    assert reader.read(3) == ["a", "b", "c"]
    log.elect(5, keep=0)
    log.write(*"ABCDE")
    assert reader.read(5) == list("ABCDE")


def test_an_older_epoch_beyond_the_position_diverges(world: World, log: Log) -> None:
    """Only Fetch can tell: the end of the older epoch lies behind the position."""
    log.tells = True
    log.write("a")
    log.elect(4, keep=1)
    log.write("b", "c")
    reader = Reader(world)
    assert reader.read(3) == ["a", "b", "c"]
    log.elect(5, keep=1)
    log.epoch = 3
    log.write(*"BCDE")
    log.epoch = 5
    assert reader.read(4) == list("BCDE")


def test_a_seek_with_an_epoch_is_validated(world: World, log: Log) -> None:
    log.write("a", "b")
    log.elect(5, keep=2)
    log.write("c", "d")
    reader = Reader(world)
    reader.consumer.seek(PART, OffsetAndMetadata(3, "", 3))
    assert reader.read(2) == ["c", "d"]  # epoch 3 ended at 2
    assert asked(log)[0] == (3, 5)
    reader.consumer.seek(PART, 3)
    assert reader.read(1) == ["d"]


def test_leaders_that_cannot_answer_are_asked_again(world: World, log: Log) -> None:
    log.write("a")
    log.refusals = [NOT_LEADER_OR_FOLLOWER, UNKNOWN_LEADER_EPOCH, FENCED_LEADER_EPOCH]
    reader = Reader(world)
    assert reader.read(1) == ["a"]
    assert asked(log) == [(3, 3)] * 4


def test_a_denied_validation_raises_not_authorized(world: World, log: Log) -> None:
    log.write("a")
    log.refusals = [TOPIC_AUTHORIZATION_FAILED]
    reader = Reader(world)
    with pytest.raises(NotAuthorized, match="validate the position in t-0"):
        reader.read(1)


@pytest.mark.parametrize("newest", [2, -1])
def test_old_brokers_get_no_validation_request(world: World, log: Log, newest: int) -> None:
    log.write("a")
    key = OffsetForLeaderEpochRequest.API
    if newest < 0:
        del log.broker.ranges[key]
    else:
        log.broker.ranges[key] = (0, newest)
    reader = Reader(world)
    assert reader.read(1) == ["a"]
    assert asked(log) == []


def test_a_leader_behind_the_metadata_is_waited_for(world: World, log: Log) -> None:
    log.write("a")
    log.broker.epochs["t", 0] = 4  # the controller has elected it, and it does not know yet
    reader = Reader(world)
    world.call_later(500, lambda: log.elect(4, keep=1))
    assert reader.read(1) == ["a"]
    assert world.now >= 1500


def test_metadata_of_a_broker_that_lags_behind_is_left_out(world: World, log: Log) -> None:
    log.write("a")
    reader = Reader(world)
    assert reader.read(1) == ["a"]
    log.elect(6, keep=1)
    reader.hear()
    log.broker.epochs["t", 0] = 5  # an answer from the past
    reader.hear()
    info = world.run(reader.core, reader.core.metadata.topic("t"))
    assert (info.leaders, info.epochs) == ({0: -1}, {0: 5})
    log.broker.epochs["t", 0] = 6
    log.write("b")
    reader.hear()
    assert reader.read(1) == ["b"]


def test_a_connection_that_breaks_while_positions_are_validated(world: World, log: Log) -> None:
    log.write("a")
    log.broker.on(OffsetForLeaderEpochRequest, "lost", log._end_of_epoch)
    reader = Reader(world)
    assert reader.read(1) == ["a"]


def test_every_position_has_the_epoch_of_the_record_before_it() -> None:
    state = PartitionState(PART)
    state.seek(0)
    for offset, epoch in ((0, 3), (10, 3), (20, 5), (30, 5), (40, 6)):
        state.note_epoch(offset, epoch)
    assert [state.epoch_before(offset) for offset in (0, 1, 20, 21, 40, 41)] == [-1, 3, 3, 5, 5, 6]
    state.position = 25
    state.note_epoch(50, 7)
    assert state.epochs == [(20, 5), (40, 6), (50, 7)]
    state.seek(70, 8)
    assert state.epoch_before(70) == 8
    assert state.begin_after(7) == -1


def test_log_truncation_is_a_kafka_error() -> None:
    assert issubclass(LogTruncation, KafkaError)
