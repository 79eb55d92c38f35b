"""Admin: brokers, features, log directories, replicas, producers and transactions."""

import asyncio
import socket
from collections.abc import Sequence
from typing import Any

import pytest

from ottla import Admin, ElectionType, KafkaError, TopicPartition
from ottla.client.admin.cluster import FeatureRange, FeatureUpdate
from ottla.client.admin.log_dirs import TopicPartitionReplica
from ottla.client.admin.requests import UnknownNode
from ottla.client.admin.transactions import AbortTransactionSpec
from ottla.environment import connecting
from ottla.protocol.api import METADATA
from ottla.testing.embedded import EmbeddedBroker
from tests.conformance.conftest import TopicFactory, Wire
from tests.conformance.members import wait_for
from tests.conformance.transactions import TransactionalProducer

from .conftest import Produce, fresh


@pytest.fixture
def node(admin: Admin) -> int:
    """The only broker."""
    (broker,) = admin.describe_cluster().nodes
    return broker.id


def test_the_cluster(admin: Admin, bootstrap_servers: str, node: int) -> None:
    cluster = admin.describe_cluster(include_fenced_brokers=True)
    assert (f"{cluster.nodes[0].host}:{cluster.nodes[0].port}", cluster.nodes[0].fenced) == (bootstrap_servers, False)
    assert cluster.cluster_id == admin.describe_cluster().cluster_id
    versions = admin.api_versions()
    assert versions[node][METADATA][1] >= 13
    assert isinstance(admin.api_versions([4711]).errors[4711], UnknownNode)


def test_every_address_of_a_name_is_tried(bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    host, _, port = bootstrap_servers.rpartition(":")
    resolve = connecting._resolve

    async def resolved(loop: asyncio.AbstractEventLoop, address: tuple[str, int]) -> Sequence[Any]:
        if address[0] != "cluster.test":
            return await resolve(loop, address)
        wheres = [("127.0.0.1", dead.getsockname()[1]), (host, int(port))]
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", where) for where in wheres]

    monkeypatch.setattr(connecting, "_resolve", resolved)
    with socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))  # nobody listens
        with Admin(bootstrap_servers=f"cluster.test:{port}") as admin:
            assert admin.describe_cluster().nodes


def test_features(admin: Admin, node: int) -> None:
    features = admin.describe_features(node)
    level = features.finalized["transaction.version"].max_version
    assert features.supported["transaction.version"] == FeatureRange(0, 2)
    assert features.supported == admin.describe_features().supported
    update = {"transaction.version": FeatureUpdate(level)}
    refused = admin.update_features({"odd.version": FeatureUpdate(1)}, validate_only=True)
    assert refused.errors["odd.version"].code != 0
    assert admin.update_features(update, validate_only=True).errors == {}


def test_log_directories(admin: Admin, node: int, topic: str, produce: Produce) -> None:
    produce(topic, 3)
    (directory,) = admin.describe_log_dirs([node], partitions=[TopicPartition(topic, 0)])[node].values()
    assert directory.error is None
    assert directory.replicas.keys() == {TopicPartition(topic, 0)}
    replica = directory.replicas[TopicPartition(topic, 0)]
    assert (replica.size > 60, replica.offset_lag, replica.is_future) == (True, 0, False)
    everything = admin.describe_log_dirs([node, 4711])
    ((path, whole),) = everything[node].items()
    assert TopicPartition(topic, 1) in whole.replicas
    assert whole.usable_bytes is not None
    assert isinstance(everything.errors[4711], UnknownNode)
    known = TopicPartitionReplica(topic, 0, node)
    assert admin.alter_replica_log_dirs({known: path}).check().successes == {known: None}
    assert admin.alter_replica_log_dirs({known: "/odd"}).errors[known].name == "LOG_DIR_NOT_FOUND"


def test_reassignments(admin: Admin, node: int, topic: str) -> None:
    place, absent = TopicPartition(topic, 0), TopicPartition(topic, 9)
    results = admin.alter_partition_reassignments({place: [node], absent: [node]})
    assert results.successes == {place: None}
    assert results.errors[absent].name == "UNKNOWN_TOPIC_OR_PARTITION"
    assert admin.list_partition_reassignments([place]) == {}
    assert admin.list_partition_reassignments() == {}
    cancelled = admin.alter_partition_reassignments({place: None}).errors[place]
    assert cancelled.name == "NO_REASSIGNMENT_IN_PROGRESS"
    nowhere = admin.alter_partition_reassignments({place: [4711]}).errors[place]
    assert nowhere.name == "INVALID_REPLICA_ASSIGNMENT"


def test_elections(admin: Admin, topic: str) -> None:
    place, absent = TopicPartition(topic, 0), TopicPartition(topic, 9)
    for kind in ElectionType:
        results = admin.elect_leaders(kind, [place, absent])
        assert results.errors[place].name == "ELECTION_NOT_NEEDED"
        assert results.errors[absent].name == "UNKNOWN_TOPIC_OR_PARTITION"
    assert admin.elect_leaders(ElectionType.PREFERRED).errors == {}


def test_transactions(admin: Admin, wire: Wire, node: int) -> None:
    subject = TopicFactory(wire)(1)
    place = TopicPartition(subject.name, 0)
    producer = TransactionalProducer(wire)
    producer.add(subject)
    producer.produce(subject, count=2)
    name = producer.transactional_id
    described = admin.describe_transactions([name, "nobody-" + name])
    transaction = described[name]
    assert (transaction.coordinator_id, transaction.state, transaction.producer_id) == (
        node,
        "Ongoing",
        producer.producer_id,
    )
    assert (transaction.transaction_timeout_ms, transaction.partitions) == (60_000, frozenset({place}))
    assert transaction.start_time_ms is not None
    assert described.errors["nobody-" + name].name == "TRANSACTIONAL_ID_NOT_FOUND"
    listed = admin.list_transactions(transactional_id_pattern=f".*{name}")[node]
    assert [(listing.transactional_id, listing.state) for listing in listed] == [(name, "Ongoing")]
    assert admin.list_transactions(producer_ids=[producer.producer_id], duration_ms=60_000)[node] == []
    (writer,) = admin.describe_producers([place])[place]
    assert (writer.producer_id, writer.last_sequence, writer.current_transaction_start_offset) == (
        producer.producer_id,
        1,
        0,
    )
    assert admin.describe_producers([place], broker_id=node)[place] == (writer,)
    fenced = admin.fence_producers([name])[name]
    assert (fenced.producer_id, fenced.producer_epoch > producer.epoch) == (producer.producer_id, True)
    wait_for(lambda: admin.describe_transactions([name])[name].state in ("Empty", "CompleteAbort"))
    wait_for(lambda: admin.describe_producers([place])[place][0].current_transaction_start_offset is None)


def test_a_transaction_is_aborted_by_hand(admin: Admin, wire: Wire) -> None:
    subject = TopicFactory(wire)(1)
    place = TopicPartition(subject.name, 0)
    producer = TransactionalProducer(wire)
    producer.add(subject)
    producer.produce(subject)
    (writer,) = admin.describe_producers([place])[place]
    spec = AbortTransactionSpec(place, writer.producer_id, writer.producer_epoch, writer.coordinator_epoch or 0)
    admin.abort_transaction(spec)
    (after,) = admin.describe_producers([place])[place]
    assert after.current_transaction_start_offset is None
    producer.begin_anew()
    producer.add(subject)
    producer.produce(subject)
    with pytest.raises(KafkaError, match="INVALID_PRODUCER_EPOCH"):
        admin.abort_transaction(spec)
    admin.force_terminate_transaction(producer.transactional_id)
    wait_for(lambda: admin.describe_producers([place])[place][0].current_transaction_start_offset is None)


def test_a_hanging_transaction_is_found_and_aborted() -> None:
    """Brokers that verify partitions of transactions let none begin."""
    with EmbeddedBroker({"transaction.partition.verification.enable": "false"}) as broker:
        wire = Wire(broker.address, is_kafka=False)
        subject = TopicFactory(wire)(2)
        known, hangs = TransactionalProducer(wire), TransactionalProducer(wire)
        known.add(subject, 1)
        known.produce(subject, 1)
        hangs.produce(subject, 0, version=11)  # the partition is in no transaction of the coordinator
        places = [TopicPartition(subject.name, index) for index in range(2)]
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            assert admin.find_hanging_transactions(places, older_than_ms=60_000) == []
            wait_for(lambda: admin.find_hanging_transactions(places, older_than_ms=0) != [])
            (hanging,) = admin.find_hanging_transactions(places, older_than_ms=0)
            assert (hanging.partition, hanging.producer.producer_id) == (places[0], hangs.producer_id)
            admin.abort_transaction(hanging.abort_spec)
            assert admin.find_hanging_transactions(places, older_than_ms=0) == []
        wire.close()


def test_missing_partitions_are_errors(admin: Admin) -> None:
    place = TopicPartition(fresh(), 0)
    assert admin.describe_producers([place]).errors[place].name == "UNKNOWN_TOPIC_OR_PARTITION"
