"""A transactional batch is appended only in the state of the partition in which its verification began (KIP-890).

The simulator found that a broker appended an unverified batch to a partition whose leader it became while another partition of
the same request was verified: the batch was in no transaction, and so it was neither committed nor aborted with the others.
"""

import threading
import time
from typing import Any

import pytest

from ottla.protocol.errors import NONE, NOT_LEADER_OR_FOLLOWER
from ottla.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.batch import build
from ottla.records.record import Record
from ottla.testing import KafkaCluster
from tests.conformance.conftest import Wire

DELAY_MS = 2500


def transactional(producer_id: int, epoch: int) -> bytes:
    return build(
        [Record(0, 1, None, b"v")], producer_id=producer_id, producer_epoch=epoch, base_sequence=0, transactional=True
    )


def coordinated_by(wire: Wire, node_id: int) -> str:
    """A transactional id whose coordinator is a broker."""
    for number in range(1000):
        name = f"id-{number}"
        (coordinator,) = wire.send(FindCoordinatorRequest(key_type=1, coordinator_keys=[name]), 4).coordinators
        if coordinator.error_code != NONE:
            time.sleep(0.05)
        elif coordinator.node_id == node_id:
            return name
    pytest.fail("no transactional id has this coordinator")


def test_a_partition_that_was_led_elsewhere_when_the_verification_began() -> None:
    with KafkaCluster(3) as cluster:
        wires = {node_id: Wire(broker.address, is_kafka=False) for node_id, broker in cluster.brokers.items()}
        placed = [
            CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2]),
            CreatableReplicaAssignment(partition_index=1, broker_ids=[2, 3]),
        ]
        topic = CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=placed)
        assert wires[2].send(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7).topics[0].error_code == NONE
        name = coordinated_by(wires[2], 3)
        producer = wires[3].send(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000), 4)
        assert producer.error_code == NONE
        batch = transactional(producer.producer_id, producer.producer_epoch)
        rows = [PartitionProduceData(index=index, records=batch) for index in (0, 1)]
        request = ProduceRequest(
            transactional_id=name,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name="t", partition_data=rows)],
        )
        cluster[3].delay("AddPartitionsToTxn", DELAY_MS)
        answers: list[Any] = []
        sender = threading.Thread(target=lambda: answers.append(wires[2].send(request, 12)))
        sender.start()
        time.sleep(0.3)
        cluster.kill(1)
        deadline = time.monotonic() + 10
        while cluster.leader_of("t", 0) != 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert not answers, "the leader must change before the verification ends"
        sender.join(30)
        (response,) = answers
        codes = {row.index: row.error_code for row in response.responses[0].partition_responses}
        assert codes == {0: NOT_LEADER_OR_FOLLOWER, 1: NONE}
        for wire in wires.values():
            wire.close()
