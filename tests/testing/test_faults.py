"""Faults on request, seen over a socket: what fails, waits, is dropped, refused, throttled, moved, expired or too new."""

import socket
import time
from typing import Any

import pytest

from ottla.broker.requests.handlers import SERVED
from ottla.coordinators.partitions import partition_of
from ottla.protocol import api
from ottla.protocol.api import APIS
from ottla.protocol.errors import NONE, UNKNOWN_SERVER_ERROR, name_of
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.batch import build
from ottla.records.record import Record
from ottla.testing import Kafka
from tests.conformance.conftest import Closed, Topic, TopicFactory, Wire
from tests.conformance.consumers import Consumer
from tests.conformance.members import Member, described, new_group, stable
from tests.conformance.share_members import Sharer, share_group
from tests.conformance.shares import ACCEPT, ShareMember, group_name, initialize
from tests.conformance.transactions import TransactionalProducer

from .samples import codes_in, sample

BATCH = build([Record(0, 1_700_000_000_000, b"k", b"v")])
SOFTWARE: dict[str, Any] = {"client_software_name": "t", "client_software_version": "1"}


def produce(topic: Topic, **fields: Any) -> str:
    answer = topic.produce(BATCH, **fields)
    return name_of(answer.error_code)


def fetch(topic: Topic, session: int = 0, epoch: int = -1, *, includes_topic: bool = True) -> FetchRequest:
    partition = FetchPartition(fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic=topic.name, partitions=[partition])] if includes_topic else []
    return FetchRequest(max_bytes=1 << 20, session_id=session, session_epoch=epoch, topics=topics)


def coordinator(wire: Wire, key: str, key_type: int = 0) -> str:
    answer = wire.send(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 4)
    return name_of(answer.coordinators[0].error_code)


# Fail.


def test_the_next_requests_fail_and_the_others_do_not(kafka: Kafka, topic: Topic) -> None:
    fault = kafka.fail("Produce", 2, error="NOT_LEADER_OR_FOLLOWER")
    assert [produce(topic) for _ in range(3)] == ["NOT_LEADER_OR_FOLLOWER", "NOT_LEADER_OR_FOLLOWER", "NONE"]
    assert (fault.hits, fault.left) == (2, 0)
    assert len(kafka.records("orders")) == 1


def test_a_block_ends_a_failure(kafka: Kafka, topic: Topic) -> None:
    with kafka.fail("Produce", None, error="KAFKA_STORAGE_ERROR") as fault:
        assert [produce(topic) for _ in range(3)] == ["KAFKA_STORAGE_ERROR"] * 3
        assert (fault.hits, fault.left) == (3, None)
    assert produce(topic) == "NONE"


def test_failures_come_in_the_order_in_which_they_were_asked_for(kafka: Kafka, topic: Topic) -> None:
    kafka.fail("Produce", error="NOT_LEADER_OR_FOLLOWER")
    kafka.fail("Fetch", error="OFFSET_OUT_OF_RANGE")
    kafka.fail("Produce", error="MESSAGE_TOO_LARGE")
    assert [produce(topic) for _ in range(3)] == ["NOT_LEADER_OR_FOLLOWER", "MESSAGE_TOO_LARGE", "NONE"]


def test_without_faults_requests_go_straight_to_the_handlers(kafka: Kafka) -> None:
    assert kafka.server.pipeline.answer == kafka.server.pipeline.serve
    fault = kafka.fail("Produce", error="NOT_LEADER_OR_FOLLOWER")
    assert kafka.server.pipeline.answer != kafka.server.pipeline.serve
    fault.end()
    fault.end()
    assert kafka.server.pipeline.answer == kafka.server.pipeline.serve


def test_a_fault_is_waited_for(kafka: Kafka, topic: Topic) -> None:
    fault = kafka.fail("Produce", 2, error="NOT_LEADER_OR_FOLLOWER")
    produce(topic)
    fault.wait()
    with pytest.raises(TimeoutError, match=r"Produce: 1 of 2 requests arrived within 0\.01 s"):
        fault.wait(2, timeout=0.01)


def test_a_failed_produce_without_acknowledgement_closes_the_connection(kafka: Kafka, topic: Topic) -> None:
    kafka.fail("Produce", error="NOT_LEADER_OR_FOLLOWER")
    data = TopicProduceData(name="orders", partition_data=[PartitionProduceData(records=BATCH)])
    topic.wire.send_only(ProduceRequest(acks=0, timeout_ms=1000, topic_data=[data]), 9, expect_answer=False)
    with pytest.raises(Closed):
        topic.wire.receive()
    assert kafka.records("orders") == []


def test_a_failed_fetch_names_the_partitions_of_its_session(kafka: Kafka, wire: Wire, topic: Topic) -> None:
    """Kafka's own broker answers so too: the session goes on, and the next answer holds the partition again."""
    topic.append(2)
    session = wire.send(fetch(topic, epoch=0), 11).session_id
    kafka.fail("Fetch", error="NOT_LEADER_OR_FOLLOWER")
    failed = wire.send(fetch(topic, session, 1, includes_topic=False), 11)
    assert (failed.error_code, failed.session_id) == (NONE, session)
    assert name_of(failed.responses[0].partitions[0].error_code) == "NOT_LEADER_OR_FOLLOWER"
    after = wire.send(fetch(topic, session, 2, includes_topic=False), 11)
    assert after.error_code == NONE
    assert after.responses[0].partitions[0].high_watermark == 2


def test_a_session_can_begin_with_a_failure_or_be_refused(kafka: Kafka, wire: Wire, topic: Topic) -> None:
    kafka.fail("Fetch", error="NOT_LEADER_OR_FOLLOWER")
    began = wire.send(fetch(topic, epoch=0), 11)
    assert began.session_id > 0
    kafka.fail("Fetch", error="NOT_LEADER_OR_FOLLOWER")
    assert name_of(wire.send(fetch(topic, began.session_id, 7), 11).error_code) == "INVALID_FETCH_SESSION_EPOCH"
    kafka.fail("Fetch", error="FETCH_SESSION_ID_NOT_FOUND")
    refused = wire.send(fetch(topic, began.session_id, 1), 11)
    assert name_of(refused.error_code) == "FETCH_SESSION_ID_NOT_FOUND"
    assert refused.responses == []


def test_a_failed_share_fetch_names_the_partitions_of_its_session(kafka: Kafka, wire: Wire, topic: Topic) -> None:
    """The session goes on; acknowledgements that came with the fetch were not carried out, and the answer says so."""
    kafka.produce("orders", "one")
    group = group_name()
    initialize(wire, group, topic)
    member = ShareMember(wire, group)
    kafka.fail("ShareFetch", error="NOT_LEADER_OR_FOLLOWER")
    assert member.fetch(topic)[0].error == "NOT_LEADER_OR_FOLLOWER"
    member.take(topic, 1)
    kafka.fail("ShareFetch", 2, error="NOT_LEADER_OR_FOLLOWER")
    assert member.fetch(topic)[0].error == "NOT_LEADER_OR_FOLLOWER"
    refused = member.fetch(topic, acks={0: [(0, 0, ACCEPT)]})[0]
    assert (refused.error, refused.acknowledged) == ("NOT_LEADER_OR_FOLLOWER", "NOT_LEADER_OR_FOLLOWER")
    kafka.fail("ShareAcknowledge", error="NOT_LEADER_OR_FOLLOWER")
    assert member.acknowledge(topic, (0, 0, ACCEPT)) == "NOT_LEADER_OR_FOLLOWER"
    assert member.acknowledge(topic, (0, 0, ACCEPT)) == "NONE"


def test_failed_metadata_still_names_the_brokers(kafka: Kafka, wire: Wire, topic: Topic) -> None:
    """A client that hears of no broker at all would give up; Kafka's own answer lists them beside an error of a topic."""
    kafka.fail("Metadata", 2, error="LEADER_NOT_AVAILABLE")
    for topics in ([MetadataRequestTopic(name="orders"), MetadataRequestTopic(name="made-by-nobody")], None):
        answer = wire.send(MetadataRequest(topics=topics), 12)
        assert len(answer.brokers) == 1
        assert {(row.name, name_of(row.error_code)) for row in answer.topics} >= {("orders", "LEADER_NOT_AVAILABLE")}
        assert all(row.partitions == [] for row in answer.topics)
    assert kafka.topics() == ["orders"]
    assert wire.send(MetadataRequest(topics=None), 12).topics[0].error_code == NONE


def test_metadata_fails_as_a_whole(kafka: Kafka, wire: Wire) -> None:
    kafka.fail("Metadata", error="REBOOTSTRAP_REQUIRED")
    assert name_of(wire.send(MetadataRequest(topics=None), 13).error_code) == "REBOOTSTRAP_REQUIRED"


@pytest.mark.parametrize("key", SERVED, ids=lambda key: APIS[key].name)
def test_every_api_can_fail(kafka: Kafka, wire: Wire, key: int) -> None:
    with kafka.fail(APIS[key].name, error="UNKNOWN_SERVER_ERROR") as fault:
        version = SERVED[key].versions.last
        answer = wire.send(sample(key, version), version)
    assert UNKNOWN_SERVER_ERROR in [code for _, code in codes_in(answer)]
    assert fault.hits == 1


@pytest.mark.parametrize(
    ("name", "error", "nearest"),
    [
        ("Produces", "NOT_COORDINATOR", "Produce"),
        ("Produce", "NOT_LEADER", "NOT_LEADER_OR_FOLLOWER"),
        ("Produce", "NOT_LEADR", "NOT_LEADER_OR_FOLLOWER"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_nearest(kafka: Kafka, name: str, error: str, nearest: str) -> None:
    with pytest.raises(ValueError, match=rf"did you mean {nearest}\?"):
        kafka.fail(name, error=error)


# Delay.


def test_a_request_waits_before_it_is_carried_out(kafka: Kafka, topic: Topic) -> None:
    kafka.freeze()
    kafka.delay("Produce", 60_000, 1)
    data = TopicProduceData(name="orders", partition_data=[PartitionProduceData(records=BATCH)])
    topic.wire.send_only(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data]), 9)
    other = Wire(kafka.address, is_kafka=False)
    assert other.send(MetadataRequest(topics=None), 12).topics[0].name == "orders"  # others are not held up
    kafka.advance(59_999)
    assert kafka.records("orders") == []
    kafka.advance(1)
    assert topic.wire.receive().responses[0].partition_responses[0].error_code == NONE
    assert len(kafka.records("orders")) == 1
    assert produce(topic) == "NONE"
    other.close()


def test_a_delay_goes_by_real_time_too(kafka: Kafka, topic: Topic) -> None:
    with kafka.delay("Produce", 100):
        began = time.monotonic()
        assert produce(topic) == "NONE"
        assert 0.09 < time.monotonic() - began < 20


def test_a_delay_and_a_failure_go_together(kafka: Kafka, topic: Topic) -> None:
    kafka.freeze()
    kafka.delay("Produce", 1_000, 1)
    kafka.fail("Produce", error="NOT_LEADER_OR_FOLLOWER")
    data = TopicProduceData(name="orders", partition_data=[PartitionProduceData(records=BATCH)])
    topic.wire.send_only(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data]), 9)
    topic.wire.another().send(MetadataRequest(topics=None), 12)
    kafka.advance(1_000)
    answer = topic.wire.receive().responses[0].partition_responses[0]
    assert name_of(answer.error_code) == "NOT_LEADER_OR_FOLLOWER"


def test_requests_without_a_response_are_delayed(kafka: Kafka, topic: Topic) -> None:
    """The connection goes on when it has been carried out, or is closed when it could not be."""
    kafka.delay("Produce", 10, 1)
    data = TopicProduceData(name="orders", partition_data=[PartitionProduceData(records=BATCH)])
    topic.wire.send_only(ProduceRequest(acks=0, timeout_ms=1000, topic_data=[data]), 9, expect_answer=False)
    assert topic.wire.send(MetadataRequest(topics=None), 12).topics[0].name == "orders"
    assert len(kafka.records("orders")) == 1
    kafka.delay("Produce", 10, 1)
    data.name = "unknown"
    topic.wire.send_only(ProduceRequest(acks=0, timeout_ms=1000, topic_data=[data]), 9, expect_answer=False)
    with pytest.raises(Closed):
        topic.wire.receive()


def test_a_delayed_request_is_served_after_its_client_has_disconnected(kafka: Kafka, topic: Topic) -> None:
    kafka.freeze()
    fault = kafka.delay("Produce", 1_000, 1)
    data = TopicProduceData(name="orders", partition_data=[PartitionProduceData(records=BATCH)])
    topic.wire.send_only(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data]), 9)
    fault.wait()
    topic.wire.close()
    kafka.advance(1_000)
    assert len(kafka.records("orders")) == 1


# Drop.


@pytest.mark.parametrize("carried_out", [False, True])
def test_a_connection_is_dropped_before_or_after(kafka: Kafka, topic: Topic, carried_out: bool) -> None:
    kafka.drop("Produce", carried_out=carried_out)
    with pytest.raises(Closed):
        produce(topic)
    assert len(kafka.records("orders")) == carried_out
    assert produce(topic) == "NONE"


def test_an_idempotent_batch_that_was_carried_out_is_taken_once(kafka: Kafka, wire: Wire, topic: Topic) -> None:
    """The client's connection is gone; it sends the batch again, and gets the offset that it had."""
    batch = build([Record(0, 1_700_000_000_000, b"k", b"v")], producer_id=1, producer_epoch=0, base_sequence=0)
    kafka.drop("Produce", carried_out=True)
    with pytest.raises(Closed):
        topic.produce(batch)
    assert topic.produce(batch).base_offset == 0
    assert len(kafka.records("orders")) == 1


def test_a_waiting_request_is_dropped_when_it_completes(kafka: Kafka, wire: Wire, topic: Topic) -> None:
    kafka.drop("Fetch", carried_out=True)
    request = fetch(topic)
    request.max_wait_ms, request.min_bytes = 30_000, 1
    wire.send_only(request, 11)
    kafka.produce("orders", "wakes it")
    with pytest.raises(Closed):
        wire.receive()


# Refuse.


def test_new_connections_are_refused_and_old_ones_stay(kafka: Kafka, topic: Topic) -> None:
    with kafka.refuse():
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(kafka.address, timeout=5)
        assert produce(topic) == "NONE"
        kafka.refuse()
    other = Wire(kafka.address, is_kafka=False)
    assert other.send(MetadataRequest(topics=None), 12).topics[0].name == "orders"
    other.close()
    kafka.accept()


def test_a_restart_accepts_again(kafka: Kafka) -> None:
    kafka.refuse()
    kafka.restart()
    socket.create_connection(kafka.address, timeout=5).close()


# Throttle.


def test_every_answer_says_that_it_is_throttled(kafka: Kafka, wire: Wire, topic: Topic) -> None:
    topic.append(1)
    kafka.freeze()
    with kafka.throttle(5_000):
        assert wire.send(MetadataRequest(topics=None), 12).throttle_time_ms == 5_000
        wire.send_only(fetch(topic), 11)
        other = wire.another()
        assert other.send(MetadataRequest(topics=None), 12).throttle_time_ms == 5_000
        kafka.advance(5_000)  # the connection was left alone until now
        answer = wire.receive()
        assert answer.throttle_time_ms == 5_000
        assert answer.responses[0].partitions[0].records
    kafka.advance(5_000)
    assert wire.send(MetadataRequest(topics=None), 12).throttle_time_ms == 0


def test_a_throttle_outlives_a_restart(kafka: Kafka) -> None:
    kafka.throttle(1)
    kafka.restart()
    wire = Wire(kafka.address, is_kafka=False)
    assert wire.send(MetadataRequest(topics=None), 12).throttle_time_ms == 1
    kafka.heal()
    assert wire.send(MetadataRequest(topics=None), 12).throttle_time_ms == 0
    wire.close()


# Coordinators.


def test_a_coordinator_is_elsewhere_until_it_is_looked_for(kafka: Kafka, wire: Wire) -> None:
    group = new_group(wire)
    while partition(group) != partition(""):  # no key at all is not the key of a partition
        group = new_group(wire)
    member = Member(wire, group)
    stable(wire, member)
    kafka.move_coordinator(member.group_id)
    assert [member.heartbeat(), member.heartbeat()] == ["NOT_COORDINATOR"] * 2
    other = next(name for name in map(str, range(100)) if partition(name) != partition(member.group_id))
    assert coordinator(wire, other) == "NONE"  # whoever looks for another one does not bring it back
    assert member.heartbeat() == "NOT_COORDINATOR"
    assert coordinator(wire, member.group_id) == "NONE"
    assert member.heartbeat() == "NONE"


def partition(group: str) -> int:
    """Of __consumer_offsets."""
    return partition_of(group, 50)


def test_members_waiting_for_a_rebalance_get_not_coordinator(kafka: Kafka, wire: Wire) -> None:
    group = new_group(wire)
    first, second = Member(wire, group), Member(wire, group)
    stable(wire, first)
    second.send_join()
    second.wire.another().send(MetadataRequest(topics=[]), 12)
    assert first.heartbeat() == "REBALANCE_IN_PROGRESS"
    kafka.move_coordinator(group)
    assert name_of(second.receive_join().error_code) == "NOT_COORDINATOR"


def test_the_coordinator_of_transactions_moves(kafka: Kafka, wire: Wire, topic: Topic) -> None:
    producer = TransactionalProducer(wire)
    producer.add(topic)
    producer.produce(topic)
    kafka.move_coordinator(transactional_id=producer.transactional_id)
    assert producer.ask_end(commit=True)[0] == "NOT_COORDINATOR"
    assert coordinator(wire, producer.transactional_id, 1) == "NONE"
    producer.end(commit=True)
    assert len(kafka.records("orders", isolation_level="read_committed")) == 1


def test_moving_the_coordinator_of_an_unknown_group_raises(kafka: Kafka) -> None:
    with pytest.raises(LookupError, match="g has no coordinator yet"):
        kafka.move_coordinator("g")
    with pytest.raises(TypeError):
        kafka.move_coordinator()


def test_a_coordinator_is_here_again_after_a_restart(kafka: Kafka, wire: Wire) -> None:
    member = Member(wire, new_group(wire))
    stable(wire, member)
    kafka.move_coordinator(member.group_id)
    kafka.restart()
    again = Wire(kafka.address, is_kafka=False)
    assert coordinator(again, member.group_id) == "NONE"
    assert len(described(again, member.group_id).members) == 1
    again.close()


# Sessions.


def test_the_session_of_one_member_or_of_all_expires(kafka: Kafka, wire: Wire) -> None:
    group = new_group(wire)
    wire.client_id = "the-client"
    one, other = Member(wire, group), Member(wire, group, "an-instance")
    stable(wire, one, other)
    kafka.expire_session(group, "an-instance")
    assert other.heartbeat() == "UNKNOWN_MEMBER_ID"
    assert one.heartbeat() == "REBALANCE_IN_PROGRESS"
    kafka.expire_session(group, one.member_id)
    assert one.heartbeat() == "UNKNOWN_MEMBER_ID"
    with pytest.raises(LookupError, match=f"group {group} has no member"):
        kafka.expire_session(group)


def test_the_session_of_a_consumer_expires(kafka: Kafka, wire: Wire, topic: Topic) -> None:
    group = new_group(wire)
    one, other = Consumer(wire, group), Consumer(wire, group)
    for member in (one, other):
        assert member.join(topic.name).error_code == NONE
    kafka.expire_session(group, one.member_id)
    assert name_of(one.beat().error_code) == "UNKNOWN_MEMBER_ID"
    assert other.beat().error_code == NONE
    kafka.expire_session(group)
    assert name_of(other.beat().error_code) == "UNKNOWN_MEMBER_ID"


def test_the_session_of_a_sharer_expires(kafka: Kafka, wire: Wire, topic: Topic) -> None:
    sharer = Sharer(wire, share_group(wire))
    sharer.join(topic.name)
    kafka.expire_session(sharer.group_id, sharer.member_id)
    assert name_of(sharer.beat().error_code) == "UNKNOWN_MEMBER_ID"
    with pytest.raises(LookupError, match="has no member nobody"):
        kafka.expire_session(sharer.group_id, "nobody")


# Versions.


def versions(wire: Wire, version: int = 3) -> dict[int, tuple[int, int]]:
    answer = wire.send(ApiVersionsRequest(**SOFTWARE), version)
    assert answer.error_code == NONE
    return {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}


def test_an_older_release_says_and_serves_what_it_did(kafka: Kafka, wire: Wire, topic: Topic) -> None:
    with kafka.pin_versions("2.8.1"):
        supported = versions(wire)
        assert supported[api.PRODUCE] == (0, 9)
        assert supported[api.FETCH] == (0, 12)
        assert api.CONSUMER_GROUP_HEARTBEAT not in supported
        assert wire.send(ApiVersionsRequest(**SOFTWARE), 3).finalized_features == []
        assert produce(topic, version=9) == "NONE"
        with pytest.raises(Closed):
            produce(topic, version=11)
        with pytest.raises(Closed):
            wire.send(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    assert versions(wire)[api.PRODUCE] == (0, 13)


def test_a_version_of_api_versions_that_is_too_new_is_answered(kafka: Kafka, wire: Wire) -> None:
    """In version 0, since 2.4 with the range that is known (KIP-511)."""
    kafka.pin_versions("2.8")
    answer = wire.send(ApiVersionsRequest(**SOFTWARE), 4)
    assert name_of(answer.error_code) == "UNSUPPORTED_VERSION"
    assert [(row.api_key, row.max_version) for row in answer.api_keys] == [(api.API_VERSIONS, 3)]
    kafka.pin_versions("2.3")
    answer = wire.send(ApiVersionsRequest(**SOFTWARE), 3)
    assert (name_of(answer.error_code), answer.api_keys) == ("UNSUPPORTED_VERSION", [])
    assert versions(wire, 2)[api.API_VERSIONS] == (0, 2)


def test_api_versions_closes_the_connection_before_0_10(kafka: Kafka, wire: Wire) -> None:
    kafka.pin_versions("0.9")
    with pytest.raises(Closed):
        wire.send(ApiVersionsRequest(), 0)
    assert wire.send(MetadataRequest(topics=[]), 0).brokers


def test_kafka_4_says_that_it_serves_old_produce(kafka: Kafka, wire: Wire, topic: Topic) -> None:
    """ApiKeys.PRODUCE_API_VERSIONS_RESPONSE_MIN_VERSION of Kafka 4.0 is 0 (KAFKA-18659)."""
    kafka.pin_versions("4.0")
    assert versions(wire)[api.PRODUCE] == (0, 12)
    assert wire.send(ApiVersionsRequest(**SOFTWARE), 4).finalized_features != []
    with pytest.raises(Closed):
        produce(topic, version=2)


def test_faults_and_an_older_release_go_together(kafka: Kafka, wire: Wire) -> None:
    kafka.pin_versions("2.8")
    kafka.fail("ApiVersions", error="INVALID_REQUEST")
    assert name_of(wire.send(ApiVersionsRequest(**SOFTWARE), 3).error_code) == "INVALID_REQUEST"
    assert versions(wire)[api.PRODUCE] == (0, 9)


# All together.


def test_faults_outlive_a_restart(kafka: Kafka, topic: Topic) -> None:
    kafka.fail("ListGroups", error="COORDINATOR_NOT_AVAILABLE")
    kafka.kill()
    kafka.fail("ListGroups", error="NOT_COORDINATOR")
    kafka.restart()
    wire = Wire(kafka.address, is_kafka=False)
    error_names = [name_of(wire.send(ListGroupsRequest(), 4).error_code) for _ in range(3)]
    assert error_names == ["COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "NONE"]
    wire.close()


def test_heal_removes_all_faults(kafka: Kafka, wire: Wire, topic: Topic) -> None:
    member = Member(wire, new_group(wire))
    stable(wire, member)
    kafka.fail("Produce", None, error="NOT_LEADER_OR_FOLLOWER")
    kafka.delay("Metadata", 3_600_000)
    kafka.drop("Fetch", None)
    kafka.refuse()
    kafka.throttle(3_600_000)
    kafka.move_coordinator(member.group_id)
    kafka.pin_versions("0.8.0")
    kafka.freeze()
    kafka.heal()
    assert produce(topic) == "NONE"
    assert wire.send(fetch(topic), 11).throttle_time_ms == 0
    assert member.heartbeat() == "NONE"
    other = Wire(kafka.address, is_kafka=False)
    assert versions(other)[api.PRODUCE] == (0, 13)
    other.close()
    assert kafka.server.pipeline.answer == kafka.server.pipeline.serve
    assert TopicFactory(wire)(name="another").append(1) == 0
