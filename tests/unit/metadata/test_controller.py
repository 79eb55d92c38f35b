"""Who changes topics: plans, refusals, deltas, and what another start finds."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.metadata.controller import (
    PRODUCER_ID_BLOCK,
    Controller,
    RequestedTopic,
    check_name,
)
from ottla.metadata.image import BrokerImage, Delta, PartitionImage, TopicImage
from ottla.metadata.placement import place
from ottla.metadata.refusal import ChangeResult, Refused
from ottla.metadata.store.sqlite import SqliteStore
from ottla.protocol.errors import (
    INVALID_CONFIG,
    INVALID_PARTITIONS,
    INVALID_REPLICA_ASSIGNMENT,
    INVALID_REPLICATION_FACTOR,
    INVALID_REQUEST,
    INVALID_TOPIC_EXCEPTION,
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_TOPIC_OR_PARTITION,
)


class Counting:
    """Randomness that counts."""

    def __init__(self) -> None:
        self.given = 0

    def bytes16(self) -> bytes:
        self.given += 1
        return self.given.to_bytes(16, "big")

    def below(self, bound: int) -> int:
        return 0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    found = SqliteStore(tmp_path / "metadata.db")
    found.initialize("first")
    yield found
    found.close()


def controller_of(store: SqliteStore) -> Controller:
    return Controller(store, Counting(), BrokerImage(1, "", -1, None), lambda: 3, lambda: 1)


def wanted(name: str = "t", partitions: int = -1, factor: int = -1, **rest: object) -> RequestedTopic:
    return RequestedTopic(name, partitions, factor, rest.get("assignments", {}), rest.get("configs", {}))  # type: ignore[arg-type]


def test_a_cluster_keeps_its_first_id(store: SqliteStore) -> None:
    store.initialize("second")
    assert store.cluster_id == "first"
    assert controller_of(store).image.cluster_id == "first"


def test_created_topics_are_published_and_found_by_the_next_start(store: SqliteStore) -> None:
    controller = controller_of(store)
    deltas: list[Delta] = []
    controller.subscribe(deltas.append)
    before = controller.image
    topic = controller.plan(wanted(configs={"retention.ms": "7"}), {})
    assert controller.image is before
    controller.create([topic])
    assert (before.topics, deltas) == ({}, [Delta(controller.image, (topic,), ())])
    assert controller.image.topics_by_id[topic.id] is topic
    assert len(topic.partitions) == 3
    again = controller_of(store).image
    assert (again.topics, again.revision) == ({"t": topic}, controller.image.revision)


def test_deleted_topics_are_gone(store: SqliteStore) -> None:
    controller = controller_of(store)
    deltas: list[Delta] = []
    controller.create([controller.plan(wanted("a"), {}), controller.plan(wanted("b"), {})])
    controller.subscribe(deltas.append)
    gone = controller.image.topics["a"]
    controller.delete([gone])
    assert deltas == [Delta(controller.image, (), (gone,))]
    assert (list(controller.image.topics), gone.id in controller.image.topics_by_id) == (["b"], False)
    assert list(controller_of(store).image.topics) == ["b"]


def test_configs_of_brokers_and_groups_survive(store: SqliteStore) -> None:
    controller = controller_of(store)
    deltas: list[Delta] = []
    controller.subscribe(deltas.append)
    controller.configure(4, "", {"log.retention.ms": "5"})
    controller.configure(32, "a/b", {"consumer.session.timeout.ms": "50000"})
    assert [delta.configured for delta in deltas] == [(4, ""), (32, "a/b")]
    again = controller_of(store)
    assert (
        again.image.configs
        == controller.image.configs
        == {
            (4, ""): {"log.retention.ms": "5"},
            (32, "a/b"): {"consumer.session.timeout.ms": "50000"},
        }
    )
    again.configure(4, "", {})
    assert controller_of(store).image.configs_of(4, "") == {}


def test_grown_topics_keep_their_partitions(store: SqliteStore) -> None:
    controller = controller_of(store)
    topic = controller.plan(wanted(partitions=2), {})
    controller.create([topic])
    grown = controller.grow(topic, 4, None)
    assert grown.partitions[:2] == topic.partitions
    assert len(grown.partitions) == 4
    controller.change(grown)
    assert controller_of(store).image.topics["t"] == grown
    controller.delete([grown])
    refused = controller.change(grown)
    assert isinstance(refused, ChangeResult)
    assert refused.error_code == UNKNOWN_TOPIC_OR_PARTITION


def test_a_slower_controller_is_refused(store: SqliteStore) -> None:
    one, two = controller_of(store), controller_of(store)
    one.create([one.plan(wanted(), {})])
    refused = two.create([two.plan(wanted(), {}), two.plan(wanted("u"), {})])
    assert refused == ChangeResult(TOPIC_ALREADY_EXISTS, "Topic 't' already exists.")
    assert list(controller_of(store).image.topics) == ["t"]


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (wanted("old"), TOPIC_ALREADY_EXISTS),
        (wanted("a.b"), INVALID_TOPIC_EXCEPTION),
        (wanted(partitions=0), INVALID_PARTITIONS),
        (wanted(partitions=-2), INVALID_PARTITIONS),
        (wanted(factor=0), INVALID_REPLICATION_FACTOR),
        (wanted(factor=2), INVALID_REPLICATION_FACTOR),
        (wanted(factor=1, assignments={0: [1]}), INVALID_REQUEST),
        (wanted(partitions=1, assignments={0: [1]}), INVALID_REQUEST),
        (wanted(assignments={1: [1]}), INVALID_REPLICA_ASSIGNMENT),
        (wanted(assignments={0: []}), INVALID_REPLICA_ASSIGNMENT),
        (wanted(assignments={0: [1, 1]}), INVALID_REPLICA_ASSIGNMENT),
        (wanted(assignments={0: [2]}), INVALID_REPLICA_ASSIGNMENT),
        (wanted(configs={"retention.ms": None}), INVALID_CONFIG),
        (wanted(configs={"retention.ms": "x"}), INVALID_CONFIG),
        (wanted(configs={"no.such": "1"}), INVALID_CONFIG),
    ],
)
def test_what_is_refused(store: SqliteStore, topic: RequestedTopic, code: int) -> None:
    controller = controller_of(store)
    controller.create([controller.plan(wanted("old"), {}), controller.plan(wanted("a_b"), {})])
    revision = store.revision
    with pytest.raises(Refused) as refused:
        controller.plan(topic, {})
    assert refused.value.code == code
    assert store.revision == revision


@pytest.mark.parametrize("name", ["", ".", "..", "a" * 250, "a b", "é", "a/b"])
def test_names_that_no_topic_has(name: str) -> None:
    with pytest.raises(Refused, match="Topic name is invalid: "):
        check_name(name)


def test_producer_ids_come_in_blocks_that_nobody_shares(store: SqliteStore) -> None:
    one, two = controller_of(store), controller_of(store)
    blocks = [each.producer_id_block() for each in (one, two, two, one)]
    assert blocks == [number * PRODUCER_ID_BLOCK for number in range(4)]


def test_replicas_go_round() -> None:
    placed = place(4, 2, [1, 2, 3], 2)
    assert [part.replicas for part in placed] == [(3, 1), (1, 2), (2, 3), (3, 1)]
    assert [part.leader for part in placed] == [3, 1, 2, 3]
    assert place(0, 1, [1], 0) == []


def test_a_topic_comes_back_from_its_bytes() -> None:
    topic = TopicImage("t", bytes(range(16)), (PartitionImage((1, 2), (2,), 2, 7),), {"retention.ms": "7"})
    assert TopicImage.decoded("t", topic.encoded()) == topic
    moved = topic._replace(partitions=(topic.partitions[0].assigned(2, bytes(range(16, 32))),))
    assert TopicImage.decoded("t", moved.encoded()) == moved
    assert moved.partitions[0].directory_of(2) == bytes(range(16, 32))
    assert moved.partitions[0].directory_of(1) == topic.partitions[0].directory_of(2) == bytes(16)
    assert not topic.is_internal
    assert topic._replace(name="__consumer_offsets").is_internal
