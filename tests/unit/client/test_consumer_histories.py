"""Random histories of consumers in virtual time: members come and go while nodes freeze, die and lose answers; some commit
automatically, and topics may be deleted and created again.

The checker: every record is read; a partition is read from where the group had committed, never from before the last commit
that was acknowledged and never past what was read; and from there record by record. A recreated topic is read from its own
beginning, whatever was committed or read of the deleted one. `--seed N` repeats a history, `--soak N`
runs N times as many. Records come in transactions, some of them aborted; queues are small, so that fetches wait for room.
"""

import contextlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.client.consumer.commits import Commits
from ottla.client.consumer.core import ConsumerCore
from ottla.client.consumer.rebalance import Handover, Listeners
from ottla.client.errors import KafkaError, UnknownTopic
from ottla.client.groups import GroupMetadata, OffsetAndMetadata
from ottla.client.topics import TopicPartition
from ottla.protocol.errors import (
    COORDINATOR_LOAD_IN_PROGRESS,
    FENCED_LEADER_EPOCH,
    KAFKA_STORAGE_ERROR,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_NOT_AVAILABLE,
    UNKNOWN_LEADER_EPOCH,
    UNSTABLE_OFFSET_COMMIT,
)
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.list_offsets import ListOffsetsRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest
from ottla.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from ottla.protocol.schema import ZERO_UUID, Request
from ottla.records.record import Record
from ottla.tasks.scheduler import Cancelled

from .test_producer_histories import Faults
from .test_producer_outages import Application
from .whole_cluster import WholeCluster
from .world import World, kill

ROUNDS = 5
PARTITIONS = 3
PARTS = [TopicPartition("t", index) for index in range(PARTITIONS)]
_LEADER_CODES = (NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH)
KINDS: dict[type[Request], tuple[int, ...]] = {
    FetchRequest: (*_LEADER_CODES, OFFSET_NOT_AVAILABLE),
    ListOffsetsRequest: _LEADER_CODES,
    OffsetForLeaderEpochRequest: _LEADER_CODES,
    OffsetFetchRequest: (UNSTABLE_OFFSET_COMMIT, COORDINATOR_LOAD_IN_PROGRESS),
    OffsetCommitRequest: (COORDINATOR_LOAD_IN_PROGRESS,),
    HeartbeatRequest: (COORDINATOR_LOAD_IN_PROGRESS,),
    ConsumerGroupHeartbeatRequest: (COORDINATOR_LOAD_IN_PROGRESS,),
    MetadataRequest: (),
    FindCoordinatorRequest: (),
}
PROTOCOLS = {
    "range": {"partition_assignment_strategy": "range"},
    "cooperative-sticky": {"partition_assignment_strategy": "cooperative-sticky"},
    "consumer": {"group_protocol": "consumer"},
}


class Jump(AssertionError):
    """A position is not where it may be."""


class Member:
    """A member whose application reads, works and commits.

    at  the offset that is read next of each partition, by the checker's account; missing before the first record
    """

    def __init__(self, history: "History", name: str) -> None:
        self.history = history
        self.name = name
        dice = history.dice
        self.core = history.cluster.core(
            group_id="g",
            client_id=name,
            auto_offset_reset=history.policy,
            enable_auto_commit=str(history.automatic).lower(),
            auto_commit_interval_ms=dice.choice([500, 5000]),
            isolation_level="read_committed",
            max_partition_fetch_bytes=dice.choice([1, 300, 1 << 20]),
            request_timeout_ms=dice.choice([5000, 30_000]),
            **history.protocol,
        )
        self.consumer = ConsumerCore(self.core)
        self.at: dict[TopicPartition, int] = {}
        self.generation = history.generation
        commits: Any = self.consumer._commits
        self._send = commits._send
        commits._send = self._note_commit
        self.begin()
        self.task = self.core.scheduler.background(self._work(), name)

    def begin(self) -> None:
        self.consumer.subscribe(["t"], None, Listeners(self.got, self.gave, self.gave))

    def got(self, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            self.at.pop(partition, None)

    def gave(self, partitions: list[TopicPartition]) -> None:
        self.got(partitions)

    async def _work(self) -> None:
        history, dice = self.history, self.history.dice
        try:
            while True:
                for record in self.consumer.take_many(dice.choice([1, 5, 50])):
                    self._read(record)
                await self.core.scheduler.sleep(dice.choice([0, 0, 10, 400]))
                if not history.automatic and dice.random() < 0.3:
                    await self._commit()
                try:
                    heard = await self.consumer.wait(dice.choice([0, 100, 1000]))
                except UnknownTopic:
                    assert history.recreates
                    continue
                if isinstance(heard, Handover):
                    heard.listener(heard.partitions)
                    heard.done.complete(None)
        except Cancelled:
            raise
        except BaseException as error:
            history.errors.append(error)
            raise

    def _read(self, record: Record) -> None:
        history = self.history
        generation = history.generations[record.value or b""]
        if generation < history.generation:
            return  # fetched before the topic was deleted
        if generation > self.generation:
            self.at.clear()
            self.generation = generation
        partition = TopicPartition(record.topic, record.partition)
        history.was_read(partition, self.at.get(partition), record.offset)
        self.at[partition] = record.offset + 1

    async def _commit(self) -> None:
        offsets = {part: offset for part, offset in self.at.items() if part in self.consumer.assignment}
        with contextlib.suppress(KafkaError):
            # Offsets that the application names are taken for those of the topic that exists.
            await self.consumer.commit(None if self.history.recreates else offsets, 5000)

    async def _note_commit(self, commit: Any, partitions: dict[TopicPartition, bytes], *rest: Any) -> None:
        """Send a commit, and note what it commits of the topic that exists."""
        history = self.history
        generation = history.generation
        offsets = {
            part: commit.offsets[part].offset
            for part, topic_id in partitions.items()
            if topic_id in (history.topic_id, ZERO_UUID)
        }
        for partition, offset in offsets.items():
            history.tried.setdefault(partition, {0}).add(offset)
        await self._send(commit, partitions, *rest)
        if generation == history.generation:
            for partition, offset in offsets.items():
                history.committed[partition] = max(offset, history.committed.get(partition, 0))

    def close(self) -> None:
        self.task.cancel()
        self.core.scheduler.background(self.consumer.close(10_000), "close")

    def die(self) -> None:
        """Its process is killed."""
        self.task.cancel()
        kill(self.core, self.consumer)


class Assigned(Member):
    """A consumer without a group."""

    def begin(self) -> None:
        self.consumer.assign(PARTS)

    async def _commit(self) -> None:
        """Nothing is kept."""


class History:
    """Members of a group, and what they read.

    committed    the newest offset of each partition whose commit was acknowledged
    tried        all offsets that were ever committed, with or without an answer
    automatic    whether members commit automatically
    recreates    whether the topic is deleted and created again
    generation   number of topics that had the name before
    generations  of each value the generation of the topic it was produced to
    """

    recreates = False

    def __init__(self, directory: Path, seed: int, protocol: dict[str, str]) -> None:
        self.dice = random.Random(seed)
        self.automatic = self.dice.random() < 0.5
        self.generation = 0
        self.generations: dict[bytes, int] = {}
        self.protocol: dict[str, Any] = protocol
        self.policy = "earliest"
        self.world = World()
        self.cluster = WholeCluster(self.world, directory, group_consumer_session_timeout_ms="45000")
        for topic in ("t", "u"):
            self.cluster.engine.create_topic(topic, PARTITIONS)
        self.errors: list[BaseException] = []
        self.members: list[Member] = []
        self.read: dict[TopicPartition, set[int]] = {part: set() for part in PARTS}
        self.committed: dict[TopicPartition, int] = {}
        self.tried: dict[TopicPartition, set[int]] = {}
        self.count = 0
        self.writer = Application(self.cluster, transactional_id="tx", linger_ms=0, batch_size=200)
        self.writer.run(self.writer.producer.transactional().init(None))
        self.faults = Faults(self.cluster, self.dice, KINDS)

    def was_read(self, partition: TopicPartition, expected: int | None, offset: int) -> None:
        """A record was read: behind the one before it, or where the group may begin."""
        visible = [record.offset for record in self.cluster.engine.records(partition, committed=True)]
        read = self.read[partition]
        if expected is not None:
            following = next(visible_offset for visible_offset in visible if visible_offset >= expected)
            if following != offset:
                raise Jump(f"{partition}: after {expected - 1} came {offset}, not {following}")
        else:
            begins = {
                next((visible_offset for visible_offset in visible if visible_offset >= at), -1)
                for at in self.tried.get(partition, {0})
            }
            if offset not in begins or offset < self.floor(partition):
                raise Jump(f"{partition}: reading began at {offset}; committed were {sorted(begins)}")
        read.add(offset)

    def floor(self, partition: TopicPartition) -> int:
        """Lowest offset at which reading may begin."""
        if self.recreates and self.protocol.get("group_protocol") == "consumer":
            # A member goes on with a recreated topic by name, until its heartbeat revokes the partition of the deleted one;
            # the coordinator may have assigned that of the new one to another member, and both commit.
            return 0
        return min(self.committed.get(partition, 0), max(self.read[partition], default=0) + 1)

    def join(self) -> None:
        self.count += 1
        self.members.append(Member(self, f"m{self.count}"))

    def produce(self) -> None:
        """One transaction."""
        dice = self.dice
        self.writer.begin()
        for _ in range(dice.randint(1, 8)):
            self.count += 1
            value = b"%060d" % self.count
            self.generations[value] = self.generation
            self.writer.produce("t", dice.randrange(PARTITIONS), value)
        if dice.random() < 0.25:
            self.writer.abort()
        else:
            self.writer.commit()

    @property
    def topic_id(self) -> bytes:
        """Id of the topic that exists."""
        topic = self.cluster.engine.image.topics.get("t")
        return topic.id if topic is not None else ZERO_UUID

    def recreate(self) -> None:
        """Delete the topic, and create it again at once or after a while; nothing of it is read or committed then."""
        self.cluster.engine.delete_topic("t")
        self.generation += 1
        self.committed.clear()
        self.tried.clear()
        for read in self.read.values():
            read.clear()
        self.advance(self.dice.choice([0, 0, 100, 2000, 10_000]))
        self.cluster.engine.create_topic("t", PARTITIONS)

    def run(self, steps: int) -> None:
        dice = self.dice
        self.join()
        verbs = ["produce", "produce", "produce", "fault", "fault", "join", "leave", "wait"]
        if self.recreates:
            verbs.append("recreate")
        for _ in range(steps):
            verb = dice.choice(verbs)
            if verb == "produce":
                self.produce()
            elif verb == "recreate":
                self.recreate()
            elif verb == "fault":
                self.faults.step()
            elif verb == "join" and len(self.members) < 3:
                self.join()
            elif verb == "leave" and len(self.members) > 1:
                member = self.members.pop(dice.randrange(len(self.members)))
                member.close() if dice.random() < 0.7 else member.die()
            self.advance(dice.choice([1, 50, 500, 5000]))
        self.faults.end()
        self.advance(180_000)  # sessions of the dead end, requests to the frozen time out, the group is balanced
        self.produce()
        # Nothing is wrong any more: what is there is read within seconds.
        for _ in range(20):
            self.advance(1000)

    def advance(self, milliseconds: int) -> None:
        self.world.advance(milliseconds)
        if self.errors:
            raise self.errors[0]

    def check(self) -> None:
        for partition, read in self.read.items():
            visible = {record.offset for record in self.cluster.engine.records(partition, committed=True)}
            missing = sorted(visible - read)
            assert not missing, f"{partition}: never read: {missing} of {len(visible)}"
            assert read <= visible, f"{partition}: not committed, and read: {sorted(read - visible)}"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_positions_never_jump_and_every_record_is_read(
    tmp_path: Path, dice_seed: int, rounds: int, protocol: str, made: list[WholeCluster]
) -> None:
    for number in range(rounds):
        print(f"--seed {dice_seed + number}")  # noqa: T201  (shown when the test fails)
        history = History(tmp_path / str(number), dice_seed + number, PROTOCOLS[protocol])
        made.append(history.cluster)
        history.run(40)
        history.check()


class RecreationHistory(History):
    """The topic is deleted and created again meanwhile."""

    recreates = True


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_record_of_a_recreated_topic_is_read(
    tmp_path: Path, dice_seed: int, rounds: int, protocol: str, made: list[WholeCluster]
) -> None:
    for number in range(rounds):
        print(f"--seed {dice_seed + number}")  # noqa: T201  (shown when the test fails)
        history = RecreationHistory(tmp_path / str(number), dice_seed + number, PROTOCOLS[protocol])
        made.append(history.cluster)
        history.run(40)
        history.check()


def test_a_consumer_without_a_group_reads_on_within_seconds(
    tmp_path: Path, dice_seed: int, rounds: int, made: list[WholeCluster]
) -> None:
    """One partition stood still for 24 s after failovers, without an error."""
    for number in range(rounds):
        print(f"--seed {dice_seed + number}")  # noqa: T201  (shown when the test fails)
        history = History(tmp_path / str(number), dice_seed + number, {})
        made.append(history.cluster)
        history.members.append(Assigned(history, "reader"))
        for _ in range(12):
            for _ in range(5):
                history.faults.step()
                history.produce()
                history.advance(history.dice.choice([1, 50, 500, 5000]))
            history.faults.end()
            history.advance(12_000)
            history.check()
            history.faults.active = True


def test_the_checker_finds_positions_that_are_reset_though_offsets_are_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: list[WholeCluster]
) -> None:
    async def fetch_once(
        commits: Commits, partitions: list[TopicPartition], member: Callable[[], GroupMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        try:
            return await commits._fetch(partitions, member(), "", stable=True)
        except KafkaError:
            return {}

    def run(seed: int) -> None:
        history = History(tmp_path / str(seed), seed, PROTOCOLS["consumer"])
        made.append(history.cluster)
        history.run(40)

    monkeypatch.setattr(Commits, "fetch", fetch_once)
    with pytest.raises(Jump, match="reading began at"):
        list(map(run, range(60)))


def test_the_checker_finds_offsets_that_are_committed_to_a_recreated_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: list[WholeCluster]
) -> None:
    async def current_ids(commits: Commits, commit: Any, *, by_id: bool) -> tuple[dict[TopicPartition, bytes], None]:
        del by_id
        ids = await commits._ids({part.topic for part in commit.offsets})
        return {part: ids[part.topic] for part in commit.offsets}, None

    def run(seed: int) -> None:
        history = RecreationHistory(tmp_path / str(seed), seed, PROTOCOLS["range"])
        made.append(history.cluster)
        history.run(40)
        history.check()

    monkeypatch.setattr(Commits, "_partitions", current_ids)
    with pytest.raises(AssertionError, match=r"never read|reading began at"):
        list(map(run, range(60)))
