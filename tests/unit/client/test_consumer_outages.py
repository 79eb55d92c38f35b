"""Consumers and a cluster whose nodes freeze, die and lose answers: what users saw, in virtual time.

One file, because the stories share their cluster, and each is told by what the user of one consumer saw.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.client.consumer import fetcher
from ottla.client.consumer.chunks import Chunk
from ottla.client.consumer.core import ConsumerCore
from ottla.client.consumer.rebalance import Handover, Listeners
from ottla.client.errors import BrokersUnreachable, CorruptBatch, KafkaError, OffsetOutOfRange, UnknownTopic
from ottla.client.groups import OffsetAndMetadata
from ottla.client.share.consumer import ShareConsumerCore
from ottla.client.topics import TopicPartition
from ottla.protocol.errors import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    STALE_MEMBER_EPOCH,
    UNSTABLE_OFFSET_COMMIT,
)
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest
from ottla.records.record import Record

from .test_producer_outages import Application
from .whole_cluster import UNHEARD, Fate, Unreplicated, WholeCluster
from .world import World

PROTOCOLS = ["classic", "consumer"]
PARTS = [TopicPartition("t", index) for index in range(3)]


class Reader:
    """A consumer whose application polls all the while.

    read   (partition, offset, value) of every record, in the order of reading
    error  what poll raised, which ends the application
    """

    def __init__(self, cluster: WholeCluster, name: str = "reader", **configs: Any) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.core = cluster.core(**({"client_id": name, "auto_offset_reset": "earliest"} | configs))
        self.consumer = ConsumerCore(self.core)
        self.read: list[tuple[TopicPartition, int, bytes | None]] = []
        self.error: BaseException | None = None
        self.task: Any = None

    def subscribe(self, *topics: str) -> "Reader":
        self.consumer.subscribe(list(topics) or ["t"], None, Listeners())
        return self.begin()

    def assign(self, *partitions: TopicPartition) -> "Reader":
        self.consumer.assign(partitions)
        return self.begin()

    def begin(self) -> "Reader":
        self.task = self.core.scheduler.background(self._work(), "application")
        return self

    async def _work(self) -> None:
        try:
            while True:
                for record in self.consumer.take_many(100):
                    self.read.append((TopicPartition(record.topic, record.partition), record.offset, record.value))
                heard = await self.consumer.wait(200)
                if isinstance(heard, Handover):
                    heard.listener(heard.partitions)
                    heard.done.complete(None)
        except KafkaError as error:
            self.error = error

    def offsets(self, partition: TopicPartition) -> list[int]:
        return [offset for where, offset, _ in self.read if where == partition]

    def run(self, coroutine: Any) -> Any:
        return self.world.run(self.core, coroutine)

    def close(self) -> None:
        self.task.cancel()
        self.run(self.consumer.close(10_000))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[WholeCluster]:
    made = WholeCluster(World(), tmp_path)
    made.engine.create_topic("t", 3)
    made.engine.create_topic("u", 3)
    yield made
    made.close()


def produce(cluster: WholeCluster, first: int, last: int, *partitions: TopicPartition) -> None:
    """Records with the values first to last, one after the other."""
    for partition in partitions or PARTS:
        for number in range(first, last + 1):
            cluster.engine.append(partition, b"%d" % number)


def commit(cluster: WholeCluster, group: str, **offsets: int) -> None:
    """Commit offsets of a group without members: t0=5 is offset 5 of t-0."""
    reader = Reader(cluster, "committer", group_id=group)
    positions = {TopicPartition(name[0], int(name[1:])): OffsetAndMetadata(offset) for name, offset in offsets.items()}
    reader.run(reader.consumer._commits.commit(positions, lambda: reader.consumer.group_metadata))
    reader.core.close()


# -- committed offsets --


@pytest.mark.parametrize("code", [UNSTABLE_OFFSET_COMMIT, COORDINATOR_LOAD_IN_PROGRESS])
@pytest.mark.parametrize("policy", ["earliest", "latest"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_committed_offsets_are_found_though_members_come_and_go(
    cluster: WholeCluster, protocol: str, policy: str, code: int
) -> None:
    """OffsetFetch had to wait, another member joined, and positions were reset by policy: with latest records were never
    read, with earliest all were read again."""
    produce(cluster, 0, 99)
    commit(cluster, "g", t0=50, t1=50, t2=50)
    configs = {"group_id": "g", "group_protocol": protocol, "auto_offset_reset": policy, "enable_auto_commit": "false"}
    for node in cluster.nodes.values():
        node.fate(OffsetFetchRequest, *[code] * 20)
    first = Reader(cluster, "first", **configs).subscribe()
    cluster.world.advance(4000)
    second = Reader(cluster, "second", **configs).subscribe()
    cluster.world.advance(8000)
    second.close()
    cluster.world.advance(5000)
    third = Reader(cluster, "third", **configs).subscribe()
    cluster.world.advance(60_000)
    for node in cluster.nodes.values():
        assert not node.fates.get(OffsetFetchRequest.API) or node.node != cluster.coordinators[0]
    read = {(part, offset) for reader in (first, second, third) for part, offset, _ in reader.read}
    assert read == {(part, offset) for part in PARTS for offset in range(50, 100)}


def test_a_partition_that_is_assigned_during_a_search_has_its_committed_offset_looked_up(cluster: WholeCluster) -> None:
    """It was reset by policy together with those that were asked about."""
    produce(cluster, 0, 99)
    commit(cluster, "g", t0=50, t1=50, t2=50)
    reader = Reader(cluster, group_id="g", auto_offset_reset="latest").assign(PARTS[0])
    cluster.nodes[1].fate(OffsetFetchRequest, *[UNSTABLE_OFFSET_COMMIT] * 8)
    cluster.world.advance(500)
    reader.consumer.assign(PARTS)
    cluster.world.advance(30_000)
    assert {part: reader.offsets(part) for part in PARTS} == {part: list(range(50, 100)) for part in PARTS}


def test_a_commit_under_a_stale_epoch_is_repeated_under_the_new_one(cluster: WholeCluster) -> None:
    """As Kafka's consumer does (KIP-848)."""
    produce(cluster, 0, 9)
    reader = Reader(cluster, group_id="g", group_protocol="consumer", enable_auto_commit="false").subscribe()
    cluster.world.advance(10_000)
    cluster.nodes[1].fate(OffsetCommitRequest, STALE_MEMBER_EPOCH, STALE_MEMBER_EPOCH)
    reader.run(reader.consumer.commit(None, 10_000))
    assert reader.run(reader.consumer.committed(PARTS, None))[PARTS[0]].offset == 10


@pytest.mark.parametrize("fate", [UNHEARD, Unreplicated(COORDINATOR_NOT_AVAILABLE)], ids=["lost", "not replicated"])
def test_an_assignment_whose_answer_was_lost_is_asked_for_again(cluster: WholeCluster, fate: Fate) -> None:
    """The coordinator sends an assignment once: the member kept what it had, and one partition stayed without a reader."""
    configs = {"group_id": "g", "group_protocol": "consumer", "enable_auto_commit": "false"}
    first = Reader(cluster, "first", **configs).subscribe()
    cluster.world.advance(10_000)
    assert first.consumer.assignment == PARTS
    second = Reader(cluster, "second", **configs).subscribe()
    cluster.world.advance(100)
    cluster.nodes[1].fate(ConsumerGroupHeartbeatRequest, fate, fate)  # the first is to give up a partition
    cluster.world.advance(60_000)
    assert sorted(first.consumer.assignment + second.consumer.assignment) == PARTS
    second.close()
    cluster.nodes[1].fate(ConsumerGroupHeartbeatRequest, fate)
    cluster.world.advance(60_000)
    assert first.consumer.assignment == PARTS


# -- an application that does not poll --


@pytest.mark.parametrize("phase", [0, 1700])
@pytest.mark.parametrize("limit_ms", [500, 4000, 10_000, 60_000])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_that_does_not_poll_leaves_its_group_in_time(
    cluster: WholeCluster, protocol: str, limit_ms: int, phase: int
) -> None:
    """With 4 s it left after 9 s: polls were looked at with every heartbeat only."""
    configs = {"group_id": "g", "group_protocol": protocol, "max_poll_interval_ms": str(limit_ms)}
    reader = Reader(cluster, **configs).subscribe()
    cluster.world.advance(10_000 + phase)
    assert reader.consumer.group_metadata.generation > 0
    reader.task.cancel()
    waited = 0
    while reader.consumer.group_metadata.generation > 0:
        cluster.world.advance(10)
        waited += 10
        assert waited < 2 * limit_ms + 10_000
    assert 0.9 * limit_ms - 200 < waited < 1.2 * limit_ms + 50  # its last poll began up to 200 ms before
    reader.begin()
    cluster.world.advance(10_000)
    assert reader.consumer.group_metadata.generation > 0
    assert reader.consumer.assignment == PARTS


# -- a topic that is deleted and created again --


@pytest.mark.parametrize("policy", ["earliest", "latest"])
@pytest.mark.parametrize("count", [3, 30])
def test_a_recreated_topic_is_read_from_its_beginning(cluster: WholeCluster, count: int, policy: str) -> None:
    """Its records were skipped, or read, by what the offset of the deleted topic happened to be."""
    produce(cluster, 0, 9, PARTS[0])
    reader = Reader(cluster, auto_offset_reset=policy).assign(PARTS[0])
    cluster.world.advance(3000)
    produce(cluster, 10, 19, PARTS[0])
    cluster.world.advance(3000)
    before = len(reader.read)
    cluster.engine.delete_topic("t")
    cluster.engine.create_topic("t", 1)
    produce(cluster, 100, 99 + count, PARTS[0])
    cluster.world.advance(30_000)
    assert [value for _, _, value in reader.read[before:]] == [b"%d" % number for number in range(100, 100 + count)]


@pytest.mark.parametrize("count", [0, 10])
def test_a_recreated_topic_whose_position_is_the_same_is_read(cluster: WholeCluster, count: int) -> None:
    """The fetch session kept the id of the deleted topic: nothing was read any more, with 8,000 fetches a second."""
    produce(cluster, 0, count - 1, PARTS[0])
    reader = Reader(cluster).assign(PARTS[0])
    cluster.world.advance(3000)
    cluster.engine.delete_topic("t")
    cluster.world.advance(1000)
    cluster.engine.create_topic("t", 1)
    produce(cluster, 0, count - 1, PARTS[0])
    cluster.world.advance(3000)
    produce(cluster, 100, 109, PARTS[0])
    before = reader.consumer.metrics().value("fetch-total")
    cluster.world.advance(20_000)
    assert reader.offsets(PARTS[0])[count:] == list(range(count + 10))
    assert reader.consumer.metrics().value("fetch-total") - before < 100


@pytest.mark.replaces_code
def test_a_fetch_session_with_a_partition_that_was_not_requested_begins_again(
    cluster: WholeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers about it were ignored, and came at once."""
    monkeypatch.setattr(fetcher, "_forgotten", lambda before, requested, *, by_id: [])
    reader = Reader(cluster).assign(PARTS[0])
    cluster.world.advance(3000)
    cluster.engine.delete_topic("t")
    cluster.engine.create_topic("t", 1)
    produce(cluster, 0, 9, PARTS[0])
    cluster.world.advance(20_000)
    assert reader.offsets(PARTS[0]) == list(range(10))
    assert reader.consumer.metrics().value("fetch-total") < 200


def test_a_recreated_topic_is_an_error_without_a_reset_policy(cluster: WholeCluster) -> None:
    produce(cluster, 0, 9, PARTS[0])
    reader = Reader(cluster, auto_offset_reset="none")
    reader.consumer.assign(PARTS[:1])
    reader.consumer.seek(PARTS[0], 0)
    reader.begin()
    cluster.world.advance(3000)
    cluster.engine.delete_topic("t")
    cluster.engine.create_topic("t", 1)
    produce(cluster, 0, 30, PARTS[0])
    cluster.world.advance(30_000)
    assert isinstance(reader.error, OffsetOutOfRange)
    assert "t was deleted and created again" in str(reader.error)
    assert len(reader.read) == 10


@pytest.mark.parametrize("version", [9, 10])
@pytest.mark.parametrize("gap", [0, 2000, 8000])
@pytest.mark.parametrize("policy", ["earliest", "latest"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_reads_a_recreated_topic_from_its_beginning(
    cluster: WholeCluster, protocol: str, policy: str, gap: int, version: int
) -> None:
    """An automatic commit that failed while the topic was gone was repeated: the old offsets were those of the new topic."""
    cluster.newest[OffsetCommitRequest.API] = version
    reader = Reader(cluster, group_id="g", group_protocol=protocol, auto_offset_reset=policy).subscribe()
    cluster.world.advance(10_000)
    produce(cluster, 0, 49)
    cluster.world.advance(7000)
    produce(cluster, 50, 59)
    cluster.world.advance(300)
    before = len(reader.read)
    cluster.engine.delete_topic("t")
    cluster.world.advance(gap)
    cluster.engine.create_topic("t", 3)
    produce(cluster, 100, 199)
    cluster.world.advance(60_000)
    read = [(part, value) for part, _, value in reader.read[before:] if int(value or b"") >= 100]
    assert sorted(read) == [(part, b"%d" % number) for part in PARTS for number in range(100, 200)]


@pytest.mark.parametrize("version", [9, 10])
def test_a_commit_is_not_repeated_into_a_recreated_topic(cluster: WholeCluster, version: int) -> None:
    """The next consumer of the group skipped as many records of the new topic as had been read of the deleted one."""
    cluster.newest[OffsetCommitRequest.API] = version
    configs = {"group_id": "g", "enable_auto_commit": "false"}
    reader = Reader(cluster, "first", **configs).assign(*PARTS)
    produce(cluster, 0, 49)
    cluster.world.advance(5000)
    cluster.engine.delete_topic("t")
    commits = [
        reader.core.scheduler.start(reader.consumer.commit(offsets, 30_000))
        for offsets in (None, {PARTS[0]: OffsetAndMetadata(50)})
    ]
    cluster.world.advance(2000)
    cluster.engine.create_topic("t", 3)
    produce(cluster, 100, 199)
    cluster.world.advance(5000)
    for committing in commits:
        assert isinstance(committing.error, UnknownTopic)
        assert "t was deleted and created again" in str(committing.error)
    reader.close()
    second = Reader(cluster, "second", **configs).assign(*PARTS)
    cluster.world.advance(10_000)
    assert {part: len(second.offsets(part)) for part in PARTS} == dict.fromkeys(PARTS, 100)


@pytest.mark.parametrize("protocol", ["none", *PROTOCOLS])
def test_one_stale_metadata_answer_does_not_stop_a_consumer(cluster: WholeCluster, protocol: str) -> None:
    """The id of a deleted topic, which the consumer had never seen, retired that of the live one: nothing was read any more."""
    stale = cluster.engine.image.topics["t"].id
    cluster.engine.delete_topic("t")
    cluster.engine.create_topic("t", 3)
    produce(cluster, 0, 9)
    if protocol == "none":
        reader = Reader(cluster).assign(*PARTS)
    else:
        reader = Reader(cluster, group_id="g", group_protocol=protocol).subscribe()
    cluster.world.advance(10_000)
    seen = cluster.as_seen
    answers = [stale]

    def lagging(answer: Any) -> Any:
        for topic in seen(answer).topics:
            if topic.name == "t" and answers:
                topic.topic_id = answers.pop()
        return answer

    cluster.as_seen = lagging  # type: ignore[method-assign]
    cluster.lead("t", 0, 2)  # metadata is looked up again
    produce(cluster, 10, 19)
    cluster.world.advance(20_000)
    assert not answers
    assert {part: reader.offsets(part) for part in PARTS} == {part: list(range(20)) for part in PARTS}


def test_a_member_reads_a_topic_that_is_recreated_twice_within_a_heartbeat(cluster: WholeCluster) -> None:
    """Assigned the topic that was deleted again before its name was known, the member did not report that it had nothing of
    it, and got no partition any more (KIP-848)."""
    configs = {"group_id": "g", "group_protocol": "consumer"}
    readers = [Reader(cluster, name, **configs).subscribe() for name in ("first", "second")]
    cluster.world.advance(20_000)
    members: list[Any] = [reader.consumer._membership for reader in readers]
    cluster.engine.delete_topic("t")
    cluster.engine.create_topic("t", 3)
    between = cluster.engine.image.topics["t"].id
    for _ in range(10_000):
        cluster.world.advance(1)
        if any(topic_id == between for member in members for topic_id, _ in member._target or ()):
            break
    cluster.engine.delete_topic("t")
    cluster.engine.create_topic("t", 3)
    produce(cluster, 100, 109)
    cluster.world.advance(60_000)
    read = {(part, value) for reader in readers for part, _, value in reader.read}
    assert read == {(part, b"%d" % number) for part in PARTS for number in range(100, 110)}


# -- automatic commits --


@pytest.mark.parametrize("code", [STALE_MEMBER_EPOCH, COORDINATOR_LOAD_IN_PROGRESS])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_automatic_commit_that_fails_does_not_overwrite_the_next_owner_s(
    cluster: WholeCluster, protocol: str, code: int
) -> None:
    """It was repeated with the positions that it had, after the partition had gone to another member: read twice."""
    configs: dict[str, Any] = {"group_protocol": protocol, "group_id": "g", "auto_commit_interval_ms": 1000}
    if protocol == "classic":
        configs["partition_assignment_strategy"] = "cooperative-sticky"
    first = Reader(cluster, "first", **configs).subscribe()
    cluster.world.advance(10_000)
    produce(cluster, 0, 9)
    cluster.nodes[1].fate(OffsetCommitRequest, *[code] * 8)
    cluster.world.advance(1500)
    second = Reader(cluster, "second", **configs).subscribe()
    for number in range(40):
        produce(cluster, 10 + number, 10 + number)
        cluster.world.advance(500)
    assert second.consumer.assignment
    for part in PARTS:
        assert sorted(first.offsets(part) + second.offsets(part)) == list(range(50))


# -- the time of a poll --


@pytest.mark.parametrize("timeout_ms", [0, 1000])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_poll_keeps_to_its_timeout_while_a_rebalance_commits(
    cluster: WholeCluster, protocol: str, timeout_ms: int
) -> None:
    """A frozen coordinator kept it for 30 s."""
    configs = {"group_id": "g", "group_protocol": protocol}
    produce(cluster, 0, 9)
    first = Reader(cluster, "first", **configs).subscribe()
    cluster.world.advance(10_000)
    first.task.cancel()
    produce(cluster, 10, 19)
    cluster.world.advance(1000)  # fetched, and not taken yet
    second = Reader(cluster, "second", **configs).subscribe()
    cluster.world.advance(5500)  # the first one learns of the rebalance
    cluster.nodes[1].freeze()
    for _ in range(5):
        before = cluster.world.now
        assert first.run(first.consumer.wait(timeout_ms)) is False
        assert cluster.world.now - before <= timeout_ms
        assert first.consumer.take() is None  # another member reads what was not committed
        cluster.world.advance(10)
    cluster.nodes[1].thaw()
    first.begin()
    cluster.world.advance(60_000)
    assert first.error is None
    assert sorted(first.consumer.assignment + second.consumer.assignment) == PARTS
    for part in PARTS:
        assert sorted(first.offsets(part) + second.offsets(part)) == list(range(20))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_rebalance_goes_on_when_the_application_polls_without_a_timeout(cluster: WholeCluster, protocol: str) -> None:
    configs = {"group_id": "g", "group_protocol": protocol}
    first = Reader(cluster, "first", **configs).subscribe()
    cluster.world.advance(10_000)
    first.task.cancel()
    second = Reader(cluster, "second", **configs).subscribe()
    for _ in range(200):
        assert first.run(first.consumer.wait(0)) is False
        cluster.world.advance(100)
    assert sorted(first.consumer.assignment + second.consumer.assignment) == PARTS
    assert second.consumer.assignment


@pytest.mark.replaces_code
def test_records_before_a_corrupt_batch_are_read(cluster: WholeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list that was longer than what came before the batch was lost."""
    records = Chunk.records

    def damaged(chunk: Chunk) -> list[Record]:
        if chunk.state.partition == PARTS[1]:
            raise CorruptBatch("the batch fails its CRC")
        return records(chunk)

    monkeypatch.setattr(Chunk, "records", damaged)
    produce(cluster, 0, 9, PARTS[0])
    reader = Reader(cluster).assign(PARTS[0])
    cluster.world.advance(3000)
    reader.task.cancel()
    produce(cluster, 10, 19, PARTS[0])
    reader.consumer.assign(PARTS[:2])
    cluster.world.advance(3000)
    produce(cluster, 0, 9, PARTS[1])
    cluster.world.advance(3000)
    assert len(reader.consumer.take_many(100)) == 10
    assert reader.consumer.take_many(100) == []
    with pytest.raises(CorruptBatch):
        reader.run(reader.consumer.wait(1000))


# -- leaving --


def test_closing_a_consumer_that_is_joining_takes_no_time(tmp_path: Path) -> None:
    """Its LeaveGroup waited behind the JoinGroup, until the rebalance was over: 3 s by default."""
    cluster = WholeCluster(World(), tmp_path, group_initial_rebalance_delay_ms="3000")
    cluster.engine.create_topic("t", 3)
    first = Reader(cluster, "first", group_id="g").subscribe()
    cluster.world.advance(1000)
    before = cluster.world.now
    first.close()
    assert cluster.world.now - before < 100
    second = Reader(cluster, "second", group_id="g").subscribe()
    cluster.world.advance(8000)  # a session of the first one would last 45 s
    assert second.consumer.assignment == PARTS
    cluster.close()


# -- what the log says --


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_brokers_that_cannot_be_reached_are_logged_every_few_seconds(
    cluster: WholeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing was printed or logged for 100 s."""
    for node in cluster.nodes.values():
        node.kill()
    reader = Reader(cluster).assign(*PARTS)
    cluster.world.advance(1000)
    first = warnings(caplog)
    assert first == [f"broker {host}:9092: Connection refused" for host in ("one", "two", "three")]
    cluster.world.advance(60_000)
    assert 24 <= len(warnings(caplog)) - len(first) <= 36  # three addresses, every 5 s
    assert any(
        re.fullmatch(r"broker two:9092: Connection refused \(\d+ attempts in \d+ s\)", warning)
        for warning in warnings(caplog)
    )
    for node in cluster.nodes.values():
        node.start()
    caplog.clear()
    caplog.set_level("INFO", "ottla.client")
    cluster.world.advance(10_000)
    assert "answers again after 6" in caplog.text
    assert not warnings(caplog)
    assert reader.error is None


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_topic_that_is_missing_is_logged_and_read_once_it_is_there(
    cluster: WholeCluster, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    configs = {"group_id": "g", "group_protocol": protocol, "allow_auto_create_topics": "false"}
    reader = Reader(cluster, **configs).subscribe("t", "late")
    cluster.world.advance(5000)
    assert [warning for warning in warnings(caplog) if warning.startswith("topic late does not exist")]
    cluster.world.advance(60_000)
    assert len(warnings(caplog)) <= 8
    cluster.engine.create_topic("late", 1)
    produce(cluster, 0, 4, TopicPartition("late", 0))
    cluster.world.advance(15_000)
    assert reader.offsets(TopicPartition("late", 0)) == list(range(5))


def test_a_share_group_s_missing_topic_is_logged(cluster: WholeCluster, caplog: pytest.LogCaptureFixture) -> None:
    core = cluster.core(group_id="s")
    consumer = ShareConsumerCore(core)
    consumer.subscribe(["late"])
    for _ in range(6):
        cluster.world.run(core, consumer.poll(1000))
    assert [warning for warning in warnings(caplog) if warning.startswith("topic late does not exist")]


def test_a_topic_that_is_created_on_first_use_is_not_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cluster = WholeCluster(World(), tmp_path, auto_create_topics_enable="true")
    app = Application(cluster)
    app.produce("made", 0, b"a")
    app.flush()
    cluster.close()
    assert not warnings(caplog)


# -- outages --


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_polling_outlives_an_outage(cluster: WholeCluster, protocol: str) -> None:
    produce(cluster, 0, 9)
    reader = Reader(cluster, group_id="g", group_protocol=protocol).subscribe()
    cluster.world.advance(10_000)
    for node in cluster.nodes.values():
        node.kill()
    committing = reader.core.scheduler.start(reader.consumer.commit(None, 50_000))
    cluster.world.advance(30_000)
    for node in cluster.nodes.values():
        node.start()
    cluster.world.finish(committing)
    produce(cluster, 10, 19)
    cluster.world.advance(60_000)
    assert reader.error is None
    assert {part: sorted(set(reader.offsets(part))) for part in PARTS} == {part: list(range(20)) for part in PARTS}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_commit_waits_for_brokers_until_its_timeout(cluster: WholeCluster, protocol: str) -> None:
    produce(cluster, 0, 9)
    reader = Reader(cluster, group_id="g", group_protocol=protocol).subscribe()
    cluster.world.advance(10_000)
    for node in cluster.nodes.values():
        node.kill()
    before = cluster.world.now
    with pytest.raises(BrokersUnreachable, match=r"one:9092.*two:9092.*three:9092"):
        reader.run(reader.consumer.commit(None, 25_000))
    assert 24_900 <= cluster.world.now - before <= 25_100


def test_share_polls_outlive_an_outage(cluster: WholeCluster) -> None:
    core = cluster.core(group_id="s")
    consumer = ShareConsumerCore(core)
    consumer.subscribe(["t"])
    cluster.world.advance(5000)
    cluster.world.run(core, consumer.poll(1000))
    for node in cluster.nodes.values():
        node.kill()
    cluster.world.advance(1000)
    before = cluster.world.now
    assert cluster.world.run(core, consumer.poll(15_000)) == []
    assert cluster.world.now - before <= 15_100
    for node in cluster.nodes.values():
        node.start()
    cluster.world.run(core, consumer.poll(5000))


def test_a_metadata_request_to_a_frozen_node_stops_no_partition_of_another(cluster: WholeCluster) -> None:
    """All partitions of the topic waited for it, up to request.timeout.ms, without an error."""
    produce(cluster, 0, 9)
    reader = Reader(cluster).assign(*PARTS)
    cluster.world.advance(3000)
    cluster.nodes[1].freeze()  # the one that has been asked for metadata so far
    cluster.fail_over(1)
    cluster.lead("t", 1, 3)
    produce(cluster, 10, 19)
    cluster.world.advance(6000)
    assert {part: reader.offsets(part) for part in PARTS[1:]} == {part: list(range(20)) for part in PARTS[1:]}


def test_a_partition_whose_leader_froze_is_read_from_the_next_one(cluster: WholeCluster) -> None:
    """The consumer waited for the answer of the frozen node, up to request.timeout.ms, without an error."""
    produce(cluster, 0, 9)
    reader = Reader(cluster).assign(*PARTS)
    cluster.world.advance(3000)
    cluster.nodes[3].freeze()
    cluster.world.advance(1000)
    cluster.fail_over(3)
    produce(cluster, 10, 19)
    cluster.world.advance(6000)
    assert reader.offsets(PARTS[2]) == list(range(20))
    cluster.nodes[3].thaw()
    cluster.world.advance(3000)
    assert reader.offsets(PARTS[2]) == list(range(20))
