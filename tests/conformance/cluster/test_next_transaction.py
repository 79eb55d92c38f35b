"""A transaction that begins when the markers of the one before may not be written yet: the coordinator is broker 1, broker 2
leads the partitions.
"""

from collections.abc import Callable

import pytest

from tests.conformance.conftest import Topic, Wire
from tests.conformance.transactions import TransactionalProducer

from .conftest import Cluster
from .coordinators import GROUP, TRANSACTION, coordinated_by

TRANSACTIONS = 20
Step = Callable[[TransactionalProducer, Topic, str], list[str]]


def add_offsets(producer: TransactionalProducer, topic: Topic, group_id: str) -> list[str]:
    return [producer.ask_add_offsets(group_id, 3)]


def add_partitions(producer: TransactionalProducer, topic: Topic, group_id: str) -> list[str]:
    return list(producer.ask_add({topic.name: [0]}, 3).values())


@pytest.fixture(name="topic")
def _topic(cluster: Cluster) -> Topic:
    return cluster.topic([2])


@pytest.fixture(name="producer")
def _producer(cluster: Cluster) -> TransactionalProducer:
    return TransactionalProducer(cluster[1], transactional_id=coordinated_by(cluster, TRANSACTION, 1))


def commit(producer: TransactionalProducer, coordinator: Wire) -> str:
    """Commit the transaction at its coordinator, and take the next epoch. Return the name of the error."""
    producer.wire = coordinator
    name, *identity = producer.ask_end(commit=True)
    producer._take(*identity)
    return name


def test_a_broker_waits_before_it_adds_a_partition(
    cluster: Cluster, topic: Topic, producer: TransactionalProducer
) -> None:
    answers = []
    for _ in range(TRANSACTIONS):
        producer.wire = cluster[2]
        answers.append(producer.ask_produce(topic)[0])
        producer.sequences[topic.name, 0] = 1
        answers.append(commit(producer, cluster[1]))
    assert answers == ["NONE"] * 2 * TRANSACTIONS


def test_a_broker_waits_before_it_adds_the_partition_of_offsets(
    cluster: Cluster, topic: Topic, producer: TransactionalProducer, request: pytest.FixtureRequest
) -> None:
    if request.config.getoption("--kafka-cluster"):
        pytest.skip("Apache Kafka waits with Produce only")
    group_id = coordinated_by(cluster, GROUP, 2)
    answers = []
    for number in range(TRANSACTIONS):
        producer.wire = cluster[2]
        answers += producer.ask_commit_offsets(group_id, topic, {0: number})
        answers.append(commit(producer, cluster[1]))
    assert answers == ["NONE"] * 2 * TRANSACTIONS


@pytest.mark.parametrize("step", [add_partitions, add_offsets])
def test_a_coordinator_waits_for_an_older_client(
    cluster: Cluster, topic: Topic, producer: TransactionalProducer, step: Step, request: pytest.FixtureRequest
) -> None:
    if request.config.getoption("--kafka-cluster"):
        pytest.skip("Apache Kafka answers CONCURRENT_TRANSACTIONS at once")
    group_id = coordinated_by(cluster, GROUP, 2)
    answers = []
    for _ in range(TRANSACTIONS):
        answers += step(producer, topic, group_id)
        answers.append(producer.ask_end(commit=True, version=3)[0])
    assert answers == ["NONE"] * 2 * TRANSACTIONS
