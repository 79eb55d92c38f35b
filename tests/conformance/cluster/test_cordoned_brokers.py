"""cordoned.log.dirs in a cluster: a broker all of whose directories are cordoned gets no new replicas (KIP-1066)."""

import uuid
from collections.abc import Iterator

import pytest

from ottla.metadata.plans.cordons import CORDONED
from ottla.protocol.errors import name_of
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

from .brokers import NODES
from .conftest import Cluster, create
from .reassigning import DONE, Outcome, reassign

BROKER = 4
MANUAL = "The manual partition assignment includes broker {}, but all its log directories are cordoned."
TOO_FEW = (
    "Unable to replicate the partition {} time(s): The target replication factor of {} cannot be reached because only 2 "
    "broker(s) are registered or some brokers have all their log directories cordoned."
)


def refused(node_id: int) -> Outcome:
    return "INVALID_REPLICA_ASSIGNMENT", MANUAL.format(node_id)


def place(cluster: Cluster, factor: int, *, count: int = 1, is_validated: bool = False, via: int = 1) -> Outcome:
    """Let a broker place the replicas of a new topic, and return the outcome."""
    return _place(cluster, f"t-{uuid.uuid4().hex[:12]}", factor, count, is_validated=is_validated, via=via)


def _place(
    cluster: Cluster, name: str, factor: int, count: int, *, is_validated: bool = False, via: int = 1
) -> Outcome:
    topic = CreatableTopic(name=name, num_partitions=count, replication_factor=factor)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=is_validated)
    row = cluster[via].send(request, 7).topics[0]
    return name_of(row.error_code), row.error_message


def set_cordons(cluster: Cluster, node_id: int, value: str | None, *, via: int | None = None) -> Outcome:
    """Set the config of a broker, or remove it (None)."""
    config = AlterableConfig(name=CORDONED, config_operation=0 if value is not None else 1, value=value)
    resource = AlterConfigsResource(resource_type=BROKER, resource_name=str(node_id), configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    row = cluster[via or node_id].send(request, 1).responses[0]
    return name_of(row.error_code), row.error_message


def cordon(cluster: Cluster, *node_ids: int) -> None:
    """Cordon brokers, and wait until all brokers know it."""
    for node_id in node_ids:
        assert set_cordons(cluster, node_id, "*") == DONE
    most = len(NODES) - len(node_ids)
    for via in NODES:
        cluster.wait(lambda via=via: place(cluster, most + 1, is_validated=True, via=via) != DONE)  # type: ignore[misc]


def grow(cluster: Cluster, name: str, count: int, *assigned: list[int]) -> Outcome:
    rows = [CreatePartitionsAssignment(broker_ids=replicas) for replicas in assigned] or None
    topic = CreatePartitionsTopic(name=name, count=count, assignments=rows)
    row = cluster[1].send(CreatePartitionsRequest(topics=[topic], timeout_ms=10_000), 3).results[0]
    return name_of(row.error_code), row.error_message


@pytest.fixture(autouse=True)
def _without_cordons(cluster: Cluster) -> Iterator[None]:
    yield
    for node_id in NODES:
        assert set_cordons(cluster, node_id, None) == DONE
    for via in NODES:
        cluster.wait(lambda via=via: place(cluster, len(NODES), is_validated=True, via=via) == DONE)  # type: ignore[misc]


def replicas_of(cluster: Cluster, name: str) -> set[int]:
    """Return the brokers that have replicas of a topic, once its metadata has arrived."""
    cluster.wait(lambda: name_of(cluster.described(name).error_code) == "NONE")
    return {node_id for row in cluster.described(name).partitions for node_id in row.replica_nodes}


def test_a_cordoned_broker_gets_no_replicas_of_new_partitions(cluster: Cluster) -> None:
    cordon(cluster, 3)
    for factor in (3, 4):
        text = TOO_FEW.format(factor, factor)
        assert place(cluster, factor) == ("INVALID_REPLICATION_FACTOR", text)
    name = f"t-{uuid.uuid4().hex[:12]}"
    assert _place(cluster, name, 2, 6) == DONE
    assert replicas_of(cluster, name) == {1, 2}
    assert grow(cluster, name, 12) == DONE
    cluster.wait(lambda: len(cluster.described(name).partitions) == 12)
    assert replicas_of(cluster, name) == {1, 2}


def test_partitions_are_not_assigned_to_a_cordoned_broker(cluster: Cluster) -> None:
    topic = cluster.topic([1, 2]).name
    cordon(cluster, 3)
    for replicas in ([3], [1, 3], [3, 9], [9, 3], [3, 3]):
        row = create(cluster[1], f"t-{uuid.uuid4().hex[:12]}", [replicas])
        assert (name_of(row.error_code), row.error_message) == refused(3)
    assert grow(cluster, topic, 2, [1, 3]) == refused(3)


def test_partitions_are_not_reassigned_to_a_cordoned_broker_but_away_from_it(cluster: Cluster) -> None:
    topic = cluster.topic([1, 2]).name
    cordon(cluster, 2)
    for replicas in ([2, 1], [1, 2, 3], [2, 9], [2, 2]):
        assert reassign(cluster, topic, (0, replicas)) == [refused(2)]
    assert reassign(cluster, topic, (0, [1, 3])) == [DONE]
    cluster.wait_for_isr(topic, 1, 3)


def test_no_topic_is_created_where_all_brokers_are_cordoned(cluster: Cluster) -> None:
    cordon(cluster, *NODES)
    text = "All brokers are currently fenced, or have all their log directories cordoned."
    assert place(cluster, 1) == ("INVALID_REPLICATION_FACTOR", f"Unable to replicate the partition 1 time(s): {text}")
    row = create(cluster[1], f"t-{uuid.uuid4().hex[:12]}", [[1]])
    assert (name_of(row.error_code), row.error_message) == refused(1)


def test_a_broker_cordons_its_own_directories_only(cluster: Cluster) -> None:
    text = "Unexpected broker id, expected 1, but received 3"
    assert set_cordons(cluster, 3, "*", via=1) == ("INVALID_REQUEST", text)
