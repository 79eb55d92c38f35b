"""Changes of topics: plans, refusals, deltas, and the state after a restart."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.metadata import changes
from ottla.metadata.features import initial
from ottla.metadata.image import BrokerImage, Delta, Image, PartitionImage, TopicImage
from ottla.metadata.image.deltas import image_from
from ottla.metadata.image.stored import topic_entries
from ottla.metadata.metadata import Metadata
from ottla.metadata.plans.topics import RequestedTopic, TopicBatch, check_name
from ottla.metadata.refusal import ChangeResult, Refused
from ottla.metadata.store import Change, Entry, Snapshot, keys
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
from ottla.tasks.deferred import Deferred
from tests.queues import immediate_queue
from tests.unit.metadata.followed import follow, listen


class Counting:
    """Randomness that counts."""

    def __init__(self) -> None:
        self.count = 0

    def bytes16(self) -> bytes:
        self.count += 1
        return self.count.to_bytes(16, "big")

    def below(self, bound: int) -> int:
        return 0


def metadata_on(store: SqliteStore, partitions: int = 1) -> Metadata:
    single = BrokerImage(1, "", -1, None)
    tasks = immediate_queue()
    return follow(
        Metadata(
            store,
            store.load(),
            random=Counting(),
            tasks=tasks,
            default_partitions=lambda: partitions,
            default_replicas=lambda: 1,
            single=single,
        )
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    sqlite_store = SqliteStore(tmp_path / "metadata.db")
    sqlite_store.initialize("first")
    yield sqlite_store
    sqlite_store.close()


def make(metadata: Metadata, plan: Callable[[Image], Change]) -> ChangeResult:
    """Make a change, which the store answers at once."""
    return metadata.tasks.start(metadata.result_of(plan)).result()


def create(metadata: Metadata, topics: list[TopicImage]) -> ChangeResult:
    return make(metadata, lambda image: next(iter(changes.create_topics(image, topics, 100)))[1])


def delete(metadata: Metadata, topics: list[TopicImage]) -> ChangeResult:
    return make(metadata, lambda image: next(iter(changes.delete_topics(image, topics, 100)))[1])


def replace(metadata: Metadata, topic: TopicImage) -> ChangeResult:
    return make(metadata, lambda image: changes.replace_topics(image, [topic]))


def configure(metadata: Metadata, kind: int, name: str, texts: dict[str, str]) -> ChangeResult:
    return make(metadata, lambda image: changes.configure(image, kind, name, texts))


def started_on(store: SqliteStore) -> Metadata:
    return metadata_on(store, partitions=3)


def requested_topic(name: str = "t", partitions: int = -1, factor: int = -1, **rest: object) -> RequestedTopic:
    return RequestedTopic(name, partitions, factor, rest.get("assignments", {}), rest.get("configs", {}))  # type: ignore[arg-type]


def test_a_cluster_keeps_its_first_id(store: SqliteStore) -> None:
    store.initialize("second")
    assert store.cluster_id == "first"
    assert image_from(store.load()).cluster_id == "first"


def test_a_new_cluster_has_stored_the_levels_of_all_features(store: SqliteStore) -> None:
    assert image_from(store.load()).features == initial()


def test_created_topics_are_published_and_found_by_the_next_start(store: SqliteStore) -> None:
    metadata = started_on(store)
    deltas: list[Delta] = []
    listen(metadata, deltas.append)
    before = metadata.image
    topic = metadata.plans.plan(requested_topic(configs={"retention.ms": "7"}), TopicBatch())
    assert metadata.image is before
    create(metadata, [topic])
    assert (before.topics, deltas) == ({}, [Delta(metadata.image, (topic,), before=before)])
    assert metadata.image.topics_by_id[topic.id] is metadata.image.topics["t"]
    assert len(topic.partitions) == 3
    again = image_from(store.load())
    assert (again.topics, again.revision) == ({"t": topic}, metadata.image.revision)


def test_deleted_topics_are_gone(store: SqliteStore) -> None:
    metadata = started_on(store)
    deltas: list[Delta] = []
    create(
        metadata,
        [
            metadata.plans.plan(requested_topic("a"), TopicBatch()),
            metadata.plans.plan(requested_topic("b"), TopicBatch()),
        ],
    )
    listen(metadata, deltas.append)
    before = metadata.image
    gone = before.topics["a"]
    delete(metadata, [gone])
    assert deltas == [Delta(metadata.image, (), (gone,), before=before)]
    assert (list(metadata.image.topics), gone.id in metadata.image.topics_by_id) == (["b"], False)
    assert list(image_from(store.load()).topics) == ["b"]


def test_configs_of_brokers_and_groups_survive(store: SqliteStore) -> None:
    metadata = started_on(store)
    deltas: list[Delta] = []
    listen(metadata, deltas.append)
    configure(metadata, 4, "", {"log.retention.ms": "5"})
    configure(metadata, 32, "a/b", {"consumer.session.timeout.ms": "50000"})
    assert [delta.configured for delta in deltas] == [{(4, "")}, {(32, "a/b")}]
    again = started_on(store)
    assert (
        again.image.configs
        == metadata.image.configs
        == {
            (4, ""): {"log.retention.ms": "5"},
            (32, "a/b"): {"consumer.session.timeout.ms": "50000"},
        }
    )
    configure(again, 4, "", {})
    assert image_from(store.load()).configs_of(4, "") == {}


def test_grown_topics_keep_their_partitions(store: SqliteStore) -> None:
    metadata = started_on(store)
    topic = metadata.plans.plan(requested_topic(partitions=2), TopicBatch())
    create(metadata, [topic])
    grown = metadata.plans.grow(topic, 4, None)
    assert grown.partitions[:2] == topic.partitions
    assert len(grown.partitions) == 4
    replace(metadata, grown)
    assert image_from(store.load()).topics["t"] == grown
    delete(metadata, [grown])
    refused = replace(metadata, grown)
    assert isinstance(refused, ChangeResult)
    assert refused.error_code == UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (requested_topic("old"), TOPIC_ALREADY_EXISTS),
        (requested_topic("a.b"), INVALID_TOPIC_EXCEPTION),
        (requested_topic(partitions=0), INVALID_PARTITIONS),
        (requested_topic(partitions=-2), INVALID_PARTITIONS),
        (requested_topic(factor=0), INVALID_REPLICATION_FACTOR),
        (requested_topic(factor=2), INVALID_REPLICATION_FACTOR),
        (requested_topic(factor=1, assignments={0: [1]}), INVALID_REQUEST),
        (requested_topic(partitions=1, assignments={0: [1]}), INVALID_REQUEST),
        (requested_topic(assignments={1: [1]}), INVALID_REPLICA_ASSIGNMENT),
        (requested_topic(assignments={0: []}), INVALID_REPLICA_ASSIGNMENT),
        (requested_topic(assignments={0: [1, 1]}), INVALID_REPLICA_ASSIGNMENT),
        (requested_topic(assignments={0: [2]}), INVALID_REPLICA_ASSIGNMENT),
        (requested_topic(configs={"retention.ms": None}), INVALID_CONFIG),
        (requested_topic(configs={"retention.ms": "x"}), INVALID_CONFIG),
        (requested_topic(configs={"no.such": "1"}), INVALID_CONFIG),
    ],
)
def test_invalid_topics_are_refused(store: SqliteStore, topic: RequestedTopic, code: int) -> None:
    metadata = started_on(store)
    create(
        metadata,
        [
            metadata.plans.plan(requested_topic("old"), TopicBatch()),
            metadata.plans.plan(requested_topic("a_b"), TopicBatch()),
        ],
    )
    revision = store.revision
    with pytest.raises(Refused) as refused:
        metadata.plans.plan(topic, TopicBatch())
    assert refused.value.code == code
    assert store.revision == revision


@pytest.mark.parametrize("name", ["", ".", "..", "a" * 250, "a b", "é", "a/b"])
def test_invalid_topic_names_are_refused(name: str) -> None:
    with pytest.raises(Refused, match="Topic name is invalid: "):
        check_name(name)


def test_a_topic_comes_back_from_its_bytes() -> None:
    topic = TopicImage("t", bytes(range(16)), (PartitionImage((1, 2), (2,), 2, 7),), {"retention.ms": "7"})
    assert image_from(Snapshot(entries_of(topic), 1)).topics["t"] == topic
    moved = topic.with_partition(0, topic.partitions[0].assigned(2, bytes(range(16, 32))))
    assert image_from(Snapshot(entries_of(moved), 1)).topics_by_id[topic.id] == moved
    assert moved.partitions[0].directory_of(2) == bytes(range(16, 32))
    assert moved.partitions[0].directory_of(1) == topic.partitions[0].directory_of(2) == bytes(16)
    assert not topic.is_internal
    assert topic._replace(name="__consumer_offsets").is_internal


def entries_of(topic: TopicImage) -> list[Entry]:
    return [Entry(key, value, 1, 1) for key, value in topic_entries(topic).items()]


def test_thousands_of_deliveries_wait_for_a_slow_listener(store: SqliteStore) -> None:
    metadata = started_on(store)
    held: list[Deferred[None]] = []

    def act_slowly(_: Delta) -> Deferred[None] | None:
        if held:
            return None
        held.append(Deferred(metadata.tasks))
        return held[0]

    listen(metadata, act_slowly)
    for number in range(5000):
        entry = Entry(keys.config_key(32, "g"), b'{"consumer.session.timeout.ms":"45000"}', number + 10, 10)
        metadata.changed(number + 10, [entry])
    assert metadata.applied < 10
    held[0].complete(None)
    assert metadata.applied == 5009
