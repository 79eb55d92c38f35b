"""ACLs in a cluster: every broker decides by them, and the brokers themselves need CLUSTER_ACTION."""

from collections.abc import Iterator

import pytest

import ottla
from ottla.protocol.errors import CLUSTER_AUTHORIZATION_FAILED, NONE, TOPIC_AUTHORIZATION_FAILED
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.read_share_group_state import PartitionData, ReadShareGroupStateRequest, ReadStateData
from ottla.protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from ottla.testing import KafkaCluster
from tests.conformance.authorization.authorized import AUTHORIZER
from tests.conformance.authorization.bindings import Binding, create, delete, described
from tests.conformance.authorization.codes import (
    ALLOW,
    CLUSTER,
    CLUSTER_ACTION,
    CLUSTER_NAME,
    DELETE,
    DENY,
    DESCRIBE,
    TOPIC,
)
from tests.conformance.authorization.conftest import Authorized
from tests.conformance.conftest import Wire

PLAIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="broker" password="broker-secret" user_broker="broker-secret" user_alice="alice-secret";'
)
BROKER_RIGHT = Binding(CLUSTER_ACTION, CLUSTER, CLUSTER_NAME, "User:broker")


def configs(*super_users: str) -> dict[str, object]:
    """Clients on PLAINTEXT are the super user ANONYMOUS; brokers log in as "broker"."""
    return {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "inter.broker.listener.name": "SASL",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": PLAIN,
        "authorizer.class.name": AUTHORIZER,
        "super.users": ";".join(f"User:{name}" for name in ("ANONYMOUS", *super_users)),
        "default.replication.factor": 3,
        "offsets.topic.num.partitions": 3,
        "transaction.state.log.num.partitions": 3,
    }


def at(cluster: KafkaCluster, node_id: int) -> Authorized:
    """Return the listeners of one broker."""
    bound = cluster[node_id].broker.listeners.bound
    return Authorized({listener.name: address[1] for listener, address in bound}, is_kafka=False, offers={})


def until_in_force(cluster: KafkaCluster, acls: set[Binding]) -> None:
    """Wait until every broker has these ACLs and no others."""
    for node_id in cluster.brokers:
        wire = at(cluster, node_id).super_wire()
        for _ in range(10_000):
            if set(described(wire)) == acls:
                break
        else:
            raise AssertionError(f"broker {node_id} has {described(wire)}")
        wire.close()


def undelivered(cluster: KafkaCluster, topic: str, timeout_ms: int = 20_000) -> list[str]:
    """Errors of three records that all three replicas must have."""
    errors: list[str] = []
    with ottla.Producer(
        bootstrap_servers=cluster.bootstrap_servers, delivery_timeout_ms=timeout_ms, request_timeout_ms=1000
    ) as producer:
        for number in range(3):
            producer.produce(
                topic,
                str(number),
                partition=number,
                on_delivery=lambda error, _: errors.append(str(error)) if error else None,
            )
        producer.flush()
    return errors


def transact(cluster: KafkaCluster, topic: str, transactional_id: str) -> None:
    """Write to three partitions, each led by another broker, in a transaction."""
    with ottla.Producer(
        bootstrap_servers=cluster.bootstrap_servers, transactional_id=transactional_id, request_timeout_ms=2000
    ) as producer:
        producer.init_transactions(20)
        producer.begin_transaction()
        for partition in range(3):
            producer.produce(topic, "v", partition=partition)
        producer.commit_transaction(20)


@pytest.fixture(scope="module")
def trusting() -> Iterator[KafkaCluster]:
    """A cluster whose brokers are super users."""
    with KafkaCluster(3, configs("broker")) as cluster:
        cluster.create_topic("t", 3, min_insync_replicas=3)
        yield cluster


def topic_codes(cluster: KafkaCluster) -> list[int]:
    """Error codes of a Metadata request of alice to each broker."""
    codes = []
    for node_id in cluster.brokers:
        wire: Wire = at(cluster, node_id).user_wire("alice")
        request = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False)
        codes.append(wire.send(request, 12).topics[0].error_code)
        wire.close()
    return codes


def test_acls_reach_all_brokers(trusting: KafkaCluster) -> None:
    """Created at one broker, denied at a second, and deleted at a third."""
    allowed = Binding(DESCRIBE, TOPIC, "t", "User:alice")
    denied = allowed._replace(permission=DENY)
    assert topic_codes(trusting) == [TOPIC_AUTHORIZATION_FAILED] * 3
    one, two, three = (at(trusting, node_id).super_wire() for node_id in (1, 2, 3))
    create(one, allowed)
    until_in_force(trusting, {allowed})
    assert topic_codes(trusting) == [NONE] * 3
    create(two, denied)
    until_in_force(trusting, {allowed, denied})
    assert topic_codes(trusting) == [TOPIC_AUTHORIZATION_FAILED] * 3
    delete(three, denied)
    until_in_force(trusting, {allowed})
    assert topic_codes(trusting) == [NONE] * 3
    delete(one, allowed)
    until_in_force(trusting, set())
    for wire in (one, two, three):
        wire.close()


def test_a_restarted_broker_has_the_acls(trusting: KafkaCluster) -> None:
    allowed = Binding(DELETE, TOPIC, "t", "User:alice", ALLOW)
    wire = at(trusting, 1).super_wire()
    create(wire, allowed)
    trusting.kill(3)
    trusting.restart(3)
    until_in_force(trusting, {allowed})
    assert topic_codes(trusting) == [NONE] * 3
    delete(wire, allowed)
    wire.close()


def test_brokers_that_are_super_users(trusting: KafkaCluster) -> None:
    assert undelivered(trusting, "t") == []
    for number in range(3):  # their coordinators are different brokers
        transact(trusting, "t", f"tx{number}")


def test_brokers_need_cluster_action() -> None:
    with KafkaCluster(3, configs()) as cluster:
        cluster.create_topic("t", 3, min_insync_replicas=3)
        assert undelivered(cluster, "t", 3000) != []
        wire = at(cluster, 1).super_wire()
        create(wire, BROKER_RIGHT)
        wire.close()
        until_in_force(cluster, {BROKER_RIGHT})
        assert undelivered(cluster, "t") == []
        for number in range(3):
            transact(cluster, "t", f"tx{number}")


def test_a_client_without_cluster_action_is_no_broker(trusting: KafkaCluster) -> None:
    wire = at(trusting, 1).user_wire("alice")
    assert wire.send(AddPartitionsToTxnRequest(transactions=[]), 4).error_code == CLUSTER_AUTHORIZATION_FAILED
    wire.close()


def fetch_as_follower(cluster: KafkaCluster, leader: int, follower: int) -> tuple[int, int]:
    """Fetch partition 0 of topic "t" as alice, who calls herself a follower; return the errors of response and partition."""
    wire = at(cluster, leader).user_wire("alice")
    row = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    place = FetchTopic(topic="t", partitions=[row])
    response = wire.send(FetchRequest(max_wait_ms=0, min_bytes=1, replica_id=follower, topics=[place]), 12)
    wire.close()
    return response.error_code, response.responses[0].partitions[0].error_code


def leader_and_follower(cluster: KafkaCluster) -> tuple[int, int]:
    state = next(iter(cluster.brokers.values())).broker.image.topics["t"].partitions[0]
    return state.leader, next(node for node in state.replicas if node != state.leader)


def test_a_client_that_calls_itself_a_follower_is_denied(trusting: KafkaCluster) -> None:
    assert fetch_as_follower(trusting, *leader_and_follower(trusting)) == (NONE, TOPIC_AUTHORIZATION_FAILED)


def test_without_an_authorizer_a_client_may_call_itself_a_follower() -> None:
    """As in Apache Kafka (docs/security.md): a login alone does not tell brokers from clients."""
    open_configs = {
        name: value for name, value in configs().items() if name not in ("authorizer.class.name", "super.users")
    }
    with KafkaCluster(3, open_configs) as cluster:
        cluster.create_topic("t", 3)
        assert fetch_as_follower(cluster, *leader_and_follower(cluster)) == (NONE, NONE)
        wire = at(cluster, leader_and_follower(cluster)[0]).user_wire("alice")
        (marked,) = wire.send(markers_of_nobody("t"), 1).markers[0].topics[0].partitions
        assert marked.error_code == NONE
        state = ReadShareGroupStateRequest(group_id="g", topics=[])
        assert wire.send(state, 0).results == []
        wire.close()


def markers_of_nobody(topic: str) -> WriteTxnMarkersRequest:
    """Return a marker of a producer that has no transaction, for partition 0."""
    place = WritableTxnMarkerTopic(name=topic, partition_indexes=[0])
    marker = WritableTxnMarker(producer_id=4711, producer_epoch=0, transaction_result=True, topics=[place])
    return WriteTxnMarkersRequest(markers=[marker])


def test_markers_and_share_state_of_a_client_are_denied(trusting: KafkaCluster) -> None:
    wire = at(trusting, leader_and_follower(trusting)[0]).user_wire("alice")
    (marked,) = wire.send(markers_of_nobody("t"), 1).markers[0].topics[0].partitions
    assert marked.error_code == CLUSTER_AUTHORIZATION_FAILED
    place = ReadStateData(topic_id=bytes(16), partitions=[PartitionData(partition=0, leader_epoch=0)])
    (read,) = wire.send(ReadShareGroupStateRequest(group_id="g", topics=[place]), 0).results
    assert read.partitions[0].error_code == CLUSTER_AUTHORIZATION_FAILED
    wire.close()
