"""Eligible leader replicas (KIP-966): members that leave an ISR below min.insync.replicas, and elections of them.

Brokers 1 and 2 run all the time: Apache Kafka's three nodes are a quorum too. The default of min.insync.replicas is 2.
"""

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from ottla.protocol.errors import INVALID_CONFIG, NONE, name_of
from ottla.protocol.messages.alter_configs import AlterableConfig as Replaced
from ottla.protocol.messages.alter_configs import AlterConfigsRequest
from ottla.protocol.messages.alter_configs import AlterConfigsResource as ReplacedResource
from ottla.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.records.batch import build
from ottla.records.record import Record
from tests.conformance.conftest import Topic

from .conftest import Cluster, fetch
from .reassigning import DONE, listed, reassign

FEATURE = "eligible.leader.replicas.version"
TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
UPGRADE, SAFE = 1, 2
PREFERRED, UNCLEAN = 0, 1
MIN_ISR = "min.insync.replicas"
NO_BROKER_LEVEL = (INVALID_CONFIG, "Broker-level min.insync.replicas cannot be altered while ELR is enabled.")
NO_REMOVAL = (INVALID_CONFIG, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.")


class State(NamedTuple):
    leader: int
    epoch: int
    isr: list[int]
    elr: list[int]
    last_known: list[int]


@pytest.fixture(autouse=True)
def _as_before(cluster: Cluster) -> Iterator[None]:
    """All brokers run, the feature is on, and the default is 2."""
    yield
    if cluster.listed(1) != [1, 2, 3]:
        cluster.start(3)
    if not cluster.has_eligible_replicas:
        set_level(cluster, 1)
    assert alter(cluster, BROKER, "", "2")[0] == NONE


def state(cluster: Cluster, topic: Topic) -> State:
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=topic.name)])
    (row,) = cluster[1].send(request, 0).topics[0].partitions
    members = row.isr_nodes, row.eligible_leader_replicas, row.last_known_elr
    return State(row.leader_id, row.leader_epoch, *(sorted(nodes) for nodes in members))


def wait_for(cluster: Cluster, topic: Topic, holds: Callable[[State], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds(state(cluster, topic)):
        assert time.monotonic() < deadline, state(cluster, topic)
        time.sleep(0.01)


def alter(cluster: Cluster, kind: int, name: str, value: str | None) -> tuple[int, str | None]:
    """Set min.insync.replicas, or delete it."""
    config = AlterableConfig(name=MIN_ISR, config_operation=SET if value else DELETE, value=value)
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
    (row,) = cluster[1].send(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    return row.error_code, row.error_message


def replace(cluster: Cluster, name: str, configs: dict[str, str]) -> tuple[int, str | None]:
    """Replace all configs of a broker, or of all."""
    rows = [Replaced(name=config, value=value) for config, value in configs.items()]
    resource = ReplacedResource(resource_type=BROKER, resource_name=name, configs=rows)
    (row,) = cluster[1].send(AlterConfigsRequest(resources=[resource]), 2).responses
    return row.error_code, row.error_message


def set_level(cluster: Cluster, level: int) -> None:
    update = FeatureUpdateKey(feature=FEATURE, max_version_level=level, upgrade_type=UPGRADE if level else SAFE)
    answer = cluster[1].send(UpdateFeaturesRequest(feature_updates=[update]), 2)
    assert answer.error_code == NONE, answer.error_message
    cluster.wait(lambda: cluster.has_eligible_replicas == bool(level))


def elect(cluster: Cluster, kind: int, topic: Topic) -> str:
    row = TopicPartitions(topic=topic.name, partitions=[0])
    request = ElectLeadersRequest(election_type=kind, topic_partitions=[row], timeout_ms=10_000)
    (result,) = cluster[1].send(request, 2).replica_election_results
    return name_of(result.partition_result[0].error_code)


def produce(cluster: Cluster, topic: Topic, acks: int) -> str:
    batch = build([Record(0, 1_700_000_000_000, b"k", b"v")])
    return name_of(Topic(cluster[1], topic.name, topic.id).produce(batch, acks=acks).error_code)


def high_watermark(cluster: Cluster, topic: Topic) -> int:
    return int(fetch(cluster[1], topic, 0).high_watermark)


def test_a_member_that_leaves_a_small_isr_becomes_eligible(cluster: Cluster) -> None:
    pair, large, strict = (
        cluster.topic([1, 3]),
        cluster.topic([1, 2, 3]),
        cluster.topic([1, 2, 3], min_insync_replicas="3"),
    )
    loose = cluster.topic([1, 3], min_insync_replicas="1")
    cluster.stop(3)
    assert state(cluster, pair) == (1, 0, [1], [3], [])
    assert state(cluster, strict) == (1, 0, [1, 2], [3], [])
    assert state(cluster, large) == (1, 0, [1, 2], [], [])
    assert state(cluster, loose) == (1, 0, [1], [], [])
    cluster.start(3)
    for topic in (pair, loose):
        wait_for(cluster, topic, lambda now: now == (1, 0, [1, 3], [], []))
    for topic in (large, strict):
        wait_for(cluster, topic, lambda now: now == (1, 0, [1, 2, 3], [], []))


def test_a_leader_that_leaves_a_small_isr_becomes_eligible(cluster: Cluster) -> None:
    topic = cluster.topic([3, 1])
    cluster.stop(3)
    assert state(cluster, topic) == (1, 1, [1], [3], [])
    assert elect(cluster, PREFERRED, topic) == "PREFERRED_LEADER_NOT_AVAILABLE"
    assert elect(cluster, UNCLEAN, topic) == "ELECTION_NOT_NEEDED"
    cluster.start(3)
    wait_for(cluster, topic, lambda now: now.isr == [1, 3] and now.elr == [])
    assert state(cluster, topic).last_known == []


def test_nothing_is_committed_by_a_small_isr(cluster: Cluster) -> None:
    topic = cluster.topic([1, 3])
    assert produce(cluster, topic, -1) == "NONE"
    cluster.wait(lambda: high_watermark(cluster, topic) == 1)
    cluster.stop(3)
    assert produce(cluster, topic, -1) == "NOT_ENOUGH_REPLICAS"
    assert produce(cluster, topic, 1) == "NONE"
    time.sleep(0.5)
    row = fetch(cluster[1], topic, 0)
    assert (row.high_watermark, row.last_stable_offset) == (1, 1)
    assert state(cluster, topic) == (1, 0, [1], [3], [])
    cluster.start(3)
    wait_for(cluster, topic, lambda now: now == (1, 0, [1, 3], [], []))
    cluster.wait(lambda: high_watermark(cluster, topic) == 2)


def test_a_topics_new_minimum_empties_the_elr(cluster: Cluster) -> None:
    topic, other = cluster.topic([1, 3]), cluster.topic([1, 3])
    cluster.stop(3)
    assert state(cluster, topic).elr == state(cluster, other).elr == [3]
    assert alter(cluster, TOPIC, topic.name, "1") == (NONE, None)
    wait_for(cluster, topic, lambda now: now == (1, 0, [1], [], []))
    assert produce(cluster, topic, -1) == "NONE"
    assert alter(cluster, TOPIC, topic.name, None) == (NONE, None)
    cluster.wait(lambda: produce(cluster, topic, -1) == "NOT_ENOUGH_REPLICAS")
    assert state(cluster, topic) == (1, 0, [1], [], [])
    assert state(cluster, other) == (1, 0, [1], [3], [])
    cluster.start(3)
    wait_for(cluster, topic, lambda now: now == (1, 0, [1, 3], [], []))


def test_a_new_default_empties_the_elr_of_topics_without_a_value(cluster: Cluster) -> None:
    topic = cluster.topic([1, 3])
    cluster.stop(3)
    assert state(cluster, topic) == (1, 0, [1], [3], [])
    assert alter(cluster, BROKER, "", "1") == (NONE, None)
    wait_for(cluster, topic, lambda now: now == (1, 0, [1], [], []))
    assert produce(cluster, topic, -1) == "NONE"
    assert alter(cluster, BROKER, "", "2") == (NONE, None)
    cluster.wait(lambda: produce(cluster, topic, -1) == "NOT_ENOUGH_REPLICAS")
    cluster.start(3)
    wait_for(cluster, topic, lambda now: now == (1, 0, [1, 3], [], []))
    cluster.stop(3)
    assert state(cluster, topic) == (1, 0, [1], [3], [])


def test_an_eligible_replica_leads_again(cluster: Cluster) -> None:
    topic = cluster.topic([3])
    cluster.stop(3)
    assert state(cluster, topic) == (-1, 1, [], [3], [3])
    assert elect(cluster, PREFERRED, topic) == "PREFERRED_LEADER_NOT_AVAILABLE"
    assert elect(cluster, UNCLEAN, topic) == "ELIGIBLE_LEADERS_NOT_AVAILABLE"
    cluster.start(3)
    wait_for(cluster, topic, lambda now: now == (3, 2, [3], [], []))


def test_the_last_known_leader_leads_again_after_an_unclean_stop(cluster: Cluster) -> None:
    topic, pair = cluster.topic([3]), cluster.topic([3, 1])
    cluster.kill(3)
    wait_for(cluster, topic, lambda now: now == (-1, 1, [], [3], [3]))
    wait_for(cluster, pair, lambda now: now == (1, 1, [1], [3], []))
    cluster.start(3)
    wait_for(cluster, topic, lambda now: now == (3, 2, [3], [], []))
    wait_for(cluster, pair, lambda now: now == (1, 1, [1, 3], [], []))


def test_a_removed_replica_is_not_eligible(cluster: Cluster) -> None:
    """Apache Kafka keeps it in the ELR of a partition whose ISR is below the minimum then: it may become the leader."""
    topic = cluster.topic([1, 2, 3])
    assert reassign(cluster, topic.name, (0, [1])) == [DONE]
    cluster.wait(lambda: listed(cluster, topic.name) == {})
    assert state(cluster, topic) == (1, 1, [1], [2, 3] if cluster.is_kafka else [], [])


def test_brokers_have_no_minimum_of_their_own(cluster: Cluster) -> None:
    assert alter(cluster, BROKER, "1", "1") == NO_BROKER_LEVEL
    assert alter(cluster, BROKER, "1", None) == NO_BROKER_LEVEL
    assert replace(cluster, "1", {MIN_ISR: "1"}) == NO_BROKER_LEVEL
    assert alter(cluster, BROKER, "", None) == NO_REMOVAL
    assert replace(cluster, "", {"num.recovery.threads.per.data.dir": "2"}) == NO_REMOVAL
    assert replace(cluster, "", {MIN_ISR: "2"}) == (NONE, None)


def test_the_feature_is_turned_off_and_on(cluster: Cluster) -> None:
    topic, single = cluster.topic([1, 3]), cluster.topic([3])
    cluster.stop(3)
    assert state(cluster, topic) == (1, 0, [1], [3], [])
    set_level(cluster, 0)
    assert alter(cluster, BROKER, "1", "2") == (NONE, None)
    assert produce(cluster, topic, -1) == "NOT_ENOUGH_REPLICAS"
    cluster.start(3)
    wait_for(cluster, topic, lambda now: now == (1, 0, [1, 3], [], []))
    wait_for(cluster, single, lambda now: (now.leader, now.isr, now.elr) == (3, [3], []))
    cluster.stop(3)
    assert state(cluster, topic) == (1, 0, [1], [], [])
    assert (state(cluster, single).leader, state(cluster, single).isr) == (-1, [3])
    set_level(cluster, 1)
    assert alter(cluster, BROKER, "1", "2") == NO_BROKER_LEVEL
    cluster.start(3)
    wait_for(cluster, topic, lambda now: now == (1, 0, [1, 3], [], []))
    wait_for(cluster, single, lambda now: (now.leader, now.isr, now.elr) == (3, [3], []))
    cluster.stop(3)
    assert state(cluster, topic) == (1, 0, [1], [3], [])
    assert state(cluster, single)[2:4] == ([], [3])


def test_a_missing_default_is_set_when_the_feature_is_turned_on(cluster: Cluster) -> None:
    set_level(cluster, 0)
    assert alter(cluster, BROKER, "", None) == (NONE, None)
    set_level(cluster, 1)
    assert alter(cluster, BROKER, "", None) == NO_REMOVAL
    topic = cluster.topic([1, 3])
    cluster.stop(3)
    assert state(cluster, topic) == (1, 0, [1], [3], [])  # the default is that of the start-up configs, 2


def test_a_partition_without_a_leader_keeps_its_elr_over_a_new_minimum(cluster: Cluster) -> None:
    """Apache Kafka empties it, and elects no leader when all replicas are back."""
    topic = cluster.topic([3])
    cluster.stop(3)
    assert state(cluster, topic) == (-1, 1, [], [3], [3])
    assert alter(cluster, TOPIC, topic.name, "1") == (NONE, None)
    if cluster.is_kafka:
        wait_for(cluster, topic, lambda now: now == (-1, 1, [], [], []))
        cluster.start(3)
        time.sleep(3)
        assert state(cluster, topic) == (-1, 1, [], [], [])
    else:
        time.sleep(0.2)
        assert state(cluster, topic) == (-1, 1, [], [3], [3])
        cluster.start(3)
        wait_for(cluster, topic, lambda now: now == (3, 2, [3], [], []))


def test_the_elr_is_emptied_when_the_feature_is_turned_off(cluster: Cluster) -> None:
    """Apache Kafka does so with the next change of the partition."""
    topic = cluster.topic([1, 3])
    cluster.stop(3)
    set_level(cluster, 0)
    if cluster.is_kafka:
        time.sleep(1)
        assert state(cluster, topic) == (1, 0, [1], [3], [])
    else:
        wait_for(cluster, topic, lambda now: now == (1, 0, [1], [], []))
