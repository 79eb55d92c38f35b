"""Replicas with a damaged log, in the metadata: when they leave the ISR, and in which leader epoch they may cut."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.memory_store import MemoryStore
from tests.unit.broker.test_log_directories import Machine
from tests.unit.metadata.stores import VirtualTime

from ottla.broker.cluster.offline_replicas import OfflineReplicas
from ottla.log.config import LogConfig
from ottla.log.log import Log, StorageError
from ottla.metadata.changes.elections import ElectionRules
from ottla.metadata.image import UNASSIGNED, BrokerImage, Liveness, PartitionImage, TopicImage
from ottla.metadata.image.stored import topic_entries
from ottla.metadata.metadata import Metadata
from ottla.metadata.store import Change, Snapshot, keys
from ottla.metadata.store.memory import SharedMetadata
from ottla.protocol.errors import KAFKA_STORAGE_ERROR
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.replication.partition import Partition
from ottla.tasks.scheduler import Scheduler

ID = b"t" * 16
OWN = 2
KEY = keys.partition_key(ID, 0)


class Cluster:
    """Brokers 1, 2 and 3 in a store, and the replica of broker 2 with its log."""

    def __init__(self, *, isr: tuple[int, ...] = (1, 2, 3), leader: int = 1, has_elr: bool = False) -> None:
        self.time = VirtualTime()
        self.queue = Scheduler(self.time, self.time)
        self.shared = SharedMetadata(self.time, self.time)
        self.placed = PartitionImage((1, 2, 3), isr, leader, 5, epoch=9, min_isr=2 if has_elr else 0)
        put = {keys.CLUSTER_ID: b"cluster", keys.METADATA_VERSION: str(keys.NEWEST_METADATA_VERSION).encode()}
        for node in (1, 2, 3):
            put[keys.broker_key(node)] = BrokerImage(node, f"b{node}", 9092, None, incarnation=f"{node}").encoded()
            put[keys.live_key(node)] = Liveness(f"{node}", 0, 0).encoded()
        put |= topic_entries(TopicImage("t", ID, (self.placed,), {}))
        self.shared.change(Change(put=put))
        snapshot: Snapshot = self.shared.snapshot()
        random: Any = None
        self.metadata = Metadata(
            self.shared.connect(),
            snapshot,
            random=random,
            tasks=self.queue,
            default_partitions=lambda: 1,
            default_replicas=lambda: 1,
        )
        log = Log(MemoryStore(), Path("/data/t-0"), LogConfig())
        self.partition = Partition("t", ID, 0, log, leader, 5, lambda _: None, self.queue)
        replicas: Any = SimpleNamespace(
            on_offline=[],
            on_online=[],
            on_damage=[],
            is_offline=lambda *_: False,
            find=lambda *_: self.partition,
            home_of=lambda _: SimpleNamespace(id=UNASSIGNED),
            all=lambda: [self.partition],
        )
        self.replicas = replicas
        rules = ElectionRules(self.placed.min_isr)
        self.offline = OfflineReplicas(OWN, self.metadata, replicas, self.queue, lambda _: rules)
        self.metadata.follow(
            lambda delta: self.partition.follow(self.state.leader, self.state.leader_epoch), self.offline.apply
        )
        self.offline.begin()

    @property
    def state(self) -> PartitionImage:
        """The state of the partition that broker 2 knows."""
        return self.metadata.image.topics["t"].partitions[0]

    def write(self, state: PartitionImage) -> None:
        """Replace the state of the partition, as another broker does."""
        self.shared.change(Change(put={KEY: state.encoded()}))

    def damage(self) -> None:
        self.partition.damaged_at, self.partition.damaged_in = 3, self.partition.leader_epoch
        for listener in self.replicas.on_damage:
            listener(self.partition)

    def settle(self, ms: int = 100) -> None:
        self.time.advance(ms)

    @property
    def may_cut(self) -> bool:
        return self.partition.may_cut_damage(self.state, OWN)


def test_a_follower_leaves_the_isr_in_a_new_leader_epoch() -> None:
    cluster = Cluster()
    cluster.damage()
    assert not cluster.may_cut
    cluster.settle()
    assert (cluster.state.isr, cluster.state.leader, cluster.state.leader_epoch) == ((1, 3), 1, 6)
    assert cluster.may_cut


def test_a_follower_outside_the_isr_waits_for_a_new_leader_epoch() -> None:
    cluster = Cluster(isr=(1, 3))
    cluster.damage()
    assert not cluster.may_cut, "the leader may have added it to the ISR, which is not delivered yet"
    cluster.settle()
    assert (cluster.state.isr, cluster.state.leader_epoch) == ((1, 3), 6)
    assert cluster.may_cut


def test_a_join_that_is_not_delivered_yet_is_undone_before_the_cut() -> None:
    cluster = Cluster(isr=(1, 3))
    cluster.settle()
    cluster.write(cluster.state._replace(isr=(1, 3, 2), epoch=10))
    cluster.damage()
    assert 2 not in cluster.state.isr
    assert not cluster.may_cut
    cluster.settle()
    assert (cluster.state.isr, cluster.state.leader_epoch) == ((1, 3), 6)


def test_a_replica_that_is_in_the_isr_again_before_its_cut_leaves_it_again() -> None:
    cluster = Cluster()
    cluster.damage()
    cluster.settle()
    cluster.write(cluster.state._replace(isr=(1, 3, 2), epoch=cluster.state.epoch + 1))
    cluster.settle()
    assert (cluster.state.isr, cluster.state.leader_epoch) == ((1, 3), 7)


def test_a_damaged_leader_leaves_the_isr_and_is_replaced() -> None:
    cluster = Cluster(leader=2)
    cluster.damage()
    cluster.settle()
    assert (cluster.state.isr, cluster.state.leader, cluster.state.leader_epoch) == ((1, 3), 1, 6)


def test_a_damaged_replica_is_not_eligible_either() -> None:
    cluster = Cluster(isr=(1, 2), has_elr=True)
    cluster.damage()
    cluster.settle()
    assert (cluster.state.isr, cluster.state.elr, cluster.state.leader_epoch) == ((1,), (), 6)
    assert cluster.may_cut


def test_a_follower_does_not_leave_the_isr_to_a_leader_that_is_not_live() -> None:
    cluster = Cluster(isr=(1, 2))
    cluster.shared.change(Change(delete=[keys.live_key(1)]))
    cluster.damage()
    cluster.settle(10_000)
    assert (cluster.state, cluster.may_cut) == (cluster.placed, False)
    cluster.shared.change(Change(put={keys.live_key(1): Liveness("1", 0, 0).encoded()}))
    cluster.settle()
    assert (cluster.state.isr, cluster.state.leader_epoch) == ((1,), 6)


def test_a_follower_does_not_leave_the_isr_to_a_leader_that_is_offline() -> None:
    cluster = Cluster(isr=(1, 2))
    cluster.write(cluster.placed._replace(offline=(1,), epoch=10))
    cluster.damage()
    cluster.settle(10_000)
    assert cluster.state.isr == (1, 2)


def test_one_timer_waits_for_another_leader_however_many_deltas_there_are() -> None:
    cluster = Cluster(isr=(1, 2))
    cluster.shared.change(Change(delete=[keys.live_key(1)]))
    cluster.damage()
    for number in range(20):
        cluster.write(cluster.state._replace(epoch=20 + number))
        cluster.settle(5)
    cluster.settle(3000)
    assert sum(one.callback is not None for _, _, one in cluster.time._due) <= 1


@pytest.mark.parametrize(("cause", "is_damage"), [(OSError(24, "Too many open files"), False), (None, True)])
@pytest.mark.replaces_code
def test_a_lack_of_file_descriptors_is_not_taken_for_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: OSError | None, is_damage: bool
) -> None:
    def failing(*_: object, **options: object) -> None:
        raise StorageError("cannot read") from cause

    with Machine(tmp_path) as machine:
        machine.create("t")
        machine.append("t", 3)
        monkeypatch.setattr(Log, "read", failing)
        fetch_partition = FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1 << 20)
        response: Any = machine.serve(FetchRequest(topics=[FetchTopic(topic="t", partitions=[fetch_partition])]), 11)
        assert response.responses[0].partitions[0].error_code == KAFKA_STORAGE_ERROR
        assert (machine.partition("t").damaged_at >= 0) == is_damage
