"""Two brokers that change the metadata of one store at the same time, on virtual time."""

from collections.abc import Callable

import pytest

from ottla.metadata import changes
from ottla.metadata.image import BrokerImage, Delta, Endpoint, Image, Liveness, TopicImage
from ottla.metadata.metadata import PRODUCER_ID_BLOCK, Metadata
from ottla.metadata.plans.topics import RequestedTopic, TopicBatch
from ottla.metadata.refusal import CHANGED, ChangeResult, Refused
from ottla.metadata.store import Change, keys
from ottla.metadata.store.memory import MemoryMetadataStore, SharedMetadata
from ottla.protocol.errors import REQUEST_TIMED_OUT, TOPIC_ALREADY_EXISTS, UNKNOWN_TOPIC_OR_PARTITION
from ottla.tasks.deferred import Deferred
from ottla.tasks.scheduler import Scheduler
from tests.queues import unexpected
from tests.unit.metadata.followed import follow, listen

from .stores import VirtualTime
from .test_metadata import Counting


class Cluster:
    """A store with two live brokers, each with its view of the metadata."""

    def __init__(self) -> None:
        self.time = VirtualTime()
        self.shared = SharedMetadata(self.time, self.time)
        put = {keys.CLUSTER_ID: b"c"}
        for node in (1, 2):
            endpoints = (Endpoint("PLAINTEXT", "h", 9090 + node),)
            put[keys.broker_key(node)] = BrokerImage(node, "", -1, None, 0, f"i{node}", endpoints).encoded()
            put[keys.live_key(node)] = Liveness(f"i{node}", 0, 0).encoded()
        assert self.shared.change(Change(put=put)).revision == 1
        self.skips = False
        self.stores: list[MemoryMetadataStore] = []
        self.one, self.two = self._broker(), self._broker()

    def _broker(self) -> Metadata:
        store = self.shared.connect(latency=lambda: 3, skip=lambda: self.skips)
        self.stores.append(store)
        tasks = Scheduler(self.time, self.time)
        return follow(
            Metadata(
                store,
                self.shared.snapshot(),
                random=Counting(),
                tasks=tasks,
                default_partitions=lambda: 1,
                default_replicas=lambda: 1,
            )
        )

    def settle(self) -> None:
        self.time.advance(60_000)

    def ask(self, broker: Metadata, plan: Callable[[Image], Change]) -> list[ChangeResult]:
        """Make a change; its result is put into the list when it comes."""
        results: list[ChangeResult] = []
        broker.tasks.start(broker.result_of(plan)).then(results.append, unexpected)
        return results


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def create(broker: Metadata, name: str, partitions: int = 1) -> Callable[[Image], Change]:
    def plan(image: Image) -> Change:
        planned = broker.plans.plan(RequestedTopic(name, partitions, 1, {}, {}), TopicBatch())
        ((_, change),) = changes.create_topics(image, [planned], 100)
        return change

    return plan


def delete(name: str) -> Callable[[Image], Change]:
    return lambda image: next(changes.delete_left(image, [image.topics[name]], 100))


def topic(image: Image, name: str) -> TopicImage:
    known = image.topics.get(name)
    if known is None:
        raise Refused(UNKNOWN_TOPIC_OR_PARTITION, None)
    return known


def alter(name: str, config: str, text: str) -> Callable[[Image], Change]:
    def plan(image: Image) -> Change:
        known = topic(image, name)
        return changes.replace_topics(image, [known._replace(configs={**known.configs, config: text})])

    return plan


def grow(broker: Metadata, name: str, count: int) -> Callable[[Image], Change]:
    return lambda image: changes.replace_topics(image, [broker.plans.grow(topic(image, name), count, None)])


def test_a_change_of_one_broker_reaches_the_other(cluster: Cluster) -> None:
    results = cluster.ask(cluster.one, create(cluster.one, "t", 2))
    assert results == []
    cluster.settle()
    assert results == [CHANGED]
    assert cluster.one.image == cluster.two.image
    assert {partition.leader for partition in cluster.two.image.topics["t"].partitions} == {1, 2}


def test_the_same_topic_at_two_brokers_is_created_once(cluster: Cluster) -> None:
    first, second = (
        cluster.ask(cluster.one, create(cluster.one, "t")),
        cluster.ask(cluster.two, create(cluster.two, "t")),
    )
    cluster.settle()
    assert (first, second) == ([CHANGED], [ChangeResult(TOPIC_ALREADY_EXISTS, "Topic 't' already exists.")])


def test_two_configs_and_more_partitions_at_the_same_time_are_all_kept(cluster: Cluster) -> None:
    cluster.ask(cluster.one, create(cluster.one, "t"))
    cluster.settle()
    results = [
        cluster.ask(cluster.one, alter("t", "retention.ms", "5")),
        cluster.ask(cluster.two, alter("t", "segment.ms", "7")),
        cluster.ask(cluster.one, grow(cluster.one, "t", 3)),
        cluster.ask(cluster.two, alter("t", "retention.ms", "9")),
    ]
    cluster.settle()
    assert results == [[CHANGED]] * 4
    known = cluster.one.image.topics["t"]
    assert known.configs["segment.ms"] == "7"
    assert known.configs["retention.ms"] in ("5", "9")
    assert len(known.partitions) == 3
    assert cluster.two.image == cluster.one.image


def test_a_change_of_a_topic_that_is_deleted_at_the_other_broker(cluster: Cluster) -> None:
    cluster.ask(cluster.one, create(cluster.one, "t"))
    cluster.settle()
    deleted = cluster.ask(cluster.one, delete("t"))
    altered = cluster.ask(cluster.two, alter("t", "retention.ms", "5"))
    cluster.settle()
    assert (deleted, altered) == ([CHANGED], [ChangeResult(UNKNOWN_TOPIC_OR_PARTITION, None)])
    assert [entry.key for entry in cluster.shared.snapshot().entries if "/topics/" in entry.key] == []


def test_a_new_partition_is_not_put_on_a_broker_that_was_fenced_meanwhile(cluster: Cluster) -> None:
    results = cluster.ask(cluster.one, create(cluster.one, "t", 4))
    cluster.shared.change(Change(delete=[keys.live_key(2)]))
    cluster.settle()
    assert results == [CHANGED]
    assert {partition.leader for partition in cluster.one.image.topics["t"].partitions} == {1}


def test_a_deletion_removes_the_states_of_partitions(cluster: Cluster) -> None:
    cluster.ask(cluster.one, create(cluster.one, "t"))
    cluster.settle()
    known = cluster.one.image.topics["t"]
    state = known.partitions[0]._replace(leader_epoch=4, epoch=1)
    cluster.ask(cluster.one, lambda image: changes.partition_states(image, [(known, 0, state)]))
    cluster.settle()
    assert cluster.two.image.topics["t"].partitions[0] == state
    late = changes.partition_states(cluster.two.image, [(known, 0, state._replace(epoch=2))])
    cluster.ask(cluster.one, delete("t"))
    cluster.settle()
    # Planned before the deletion, written after it: the comparison of the topic keeps it from becoming an orphan.
    unguarded = late._replace(expect={}, created={})
    assert cluster.shared.change(late).conflicts
    assert not [entry for entry in cluster.shared.snapshot().entries if entry.key.startswith(keys.PARTITIONS)]
    assert cluster.shared.change(unguarded).revision, "the guard was needed"


def test_an_unknown_outcome_is_answered_with_a_time_out(cluster: Cluster) -> None:
    results = cluster.ask(cluster.one, create(cluster.one, "t"))
    cluster.time.advance(4)
    cluster.stores[0].cut()
    cluster.settle()
    assert [result.error_code for result in results] == [REQUEST_TIMED_OUT]
    assert "t" not in cluster.one.image.topics
    cluster.stores[0].heal()
    cluster.settle()
    assert "t" in cluster.one.image.topics, "it was carried out all the same"


def test_no_block_of_producer_ids_is_given_to_two_brokers(cluster: Cluster) -> None:
    blocks: list[int] = []
    for broker in (cluster.one, cluster.two, cluster.two, cluster.one):
        answer = broker.tasks.start(broker.producer_id_block())
        assert isinstance(answer, Deferred)
        answer.then(blocks.append, unexpected)
    cluster.settle()
    assert sorted(blocks) == [number * PRODUCER_ID_BLOCK for number in range(4)]
    lost = cluster.one.tasks.start(cluster.one.producer_id_block())
    assert isinstance(lost, Deferred)
    lost.then(blocks.append, unexpected)
    cluster.time.advance(4)  # it arrives, and its answer is lost
    cluster.stores[0].cut()
    cluster.settle()
    assert blocks.pop() == -1
    cluster.stores[0].heal()
    cluster.settle()
    again = cluster.one.tasks.start(cluster.one.producer_id_block())
    assert isinstance(again, Deferred)
    again.then(blocks.append, unexpected)
    cluster.settle()
    assert blocks[-1] == 5 * PRODUCER_ID_BLOCK, "the block of unknown outcome is skipped"


def test_a_topic_that_was_deleted_and_created_again_between_two_deliveries(cluster: Cluster) -> None:
    cluster.ask(cluster.one, create(cluster.one, "t", 2))
    cluster.settle()
    old = cluster.two.image.topics["t"]
    deltas: list[Delta] = []
    listen(cluster.two, deltas.append)
    cluster.stores[1].cut()
    cluster.ask(cluster.one, delete("t"))
    cluster.settle()
    cluster.ask(cluster.one, create(cluster.one, "t", 3))
    cluster.settle()
    cluster.skips = True
    cluster.stores[1].heal()
    cluster.time.advance(3)
    cluster.skips = False
    cluster.settle()
    assert cluster.two.image == cluster.one.image
    deleted = [gone.id for delta in deltas for gone in delta.deleted]
    created = [len(new.partitions) for delta in deltas for new in delta.changed]
    assert (deleted, created) == ([old.id], [3])


def test_a_broker_that_missed_a_compacted_history_loads_everything(cluster: Cluster) -> None:
    for name in ("a", "b"):
        cluster.ask(cluster.one, create(cluster.one, name))
    cluster.settle()
    cluster.stores[1].cut()
    cluster.ask(cluster.one, delete("a"))
    cluster.ask(cluster.one, create(cluster.one, "c"))
    cluster.settle()
    cluster.shared.compact()
    deltas: list[Delta] = []
    listen(cluster.two, deltas.append)
    cluster.stores[1].heal()
    cluster.settle()
    assert cluster.two.image == cluster.one.image
    (delta,) = deltas
    assert ([old.name for old in delta.deleted], [new.name for new in delta.changed]) == (["a"], ["c"])
