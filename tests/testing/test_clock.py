"""The broker's clock: it stands still, it jumps, and everything that has a time goes with it."""

import threading
import time
from datetime import timedelta

import pytest

from ottla.protocol.errors import NONE
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.testing import Kafka
from tests.conformance.conftest import Topic, TopicFactory, Wire
from tests.conformance.consumers import Consumer
from tests.conformance.members import Member, described, new_group, stable
from tests.conformance.shares import ShareMember, group_name, initialize, ranges
from tests.conformance.transactions import TransactionalProducer

DAY = 86_400_000
WEEK = 7 * DAY


def fetch(topic: Topic, offset: int, wait_ms: int) -> FetchRequest:
    fetch_topic = FetchTopic(
        topic=topic.name, partitions=[FetchPartition(fetch_offset=offset, partition_max_bytes=1 << 20)]
    )
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20, topics=[fetch_topic])


def test_time_stands_still_and_jumps(kafka: Kafka) -> None:
    with kafka.freeze():
        first = kafka.produce("ticks", "").timestamp
        kafka.advance(1_234)
        assert kafka.produce("ticks", "").timestamp == first + 1_234
        kafka.advance(0)
        assert kafka.produce("ticks", "").timestamp == first + 1_234
    kafka.records("ticks", at_least=3)
    after = kafka.produce("ticks", "").timestamp
    assert first + 1_234 <= after < first + 61_234
    kafka.advance(DAY)
    assert kafka.produce("ticks", "").timestamp >= first + DAY
    kafka.advance(timedelta(days=2))
    assert kafka.produce("ticks", "").timestamp >= first + 3 * DAY
    for backwards in (-1, timedelta(milliseconds=-1)):
        with pytest.raises(ValueError, match="clock cannot go back"):
            kafka.advance(backwards)


def test_a_clock_that_runs_again_does_not_jump_back(kafka: Kafka) -> None:
    kafka.advance(DAY)
    before = kafka.produce("ticks", "").timestamp
    kafka.freeze()
    kafka.advance(DAY)
    kafka.thaw()
    assert kafka.produce("ticks", "").timestamp >= before + DAY
    kafka.restart()
    assert kafka.produce("ticks", "").timestamp >= before + DAY


def test_a_fetch_that_waits_is_answered_when_its_time_has_come(kafka: Kafka, wire: Wire, topic: Topic) -> None:
    began = time.monotonic()
    wire.send_only(fetch(topic, 0, 60_000), 11)
    kafka.freeze()
    kafka.advance(59_000)
    wire.another().send(fetch(topic, 0, 0), 11)  # the loop has been round, and has not answered the other one
    wire.socket().setblocking(False)
    with pytest.raises(BlockingIOError):
        wire.socket().recv(1)
    wire.socket().settimeout(30)
    kafka.advance(1_000)
    assert wire.receive().responses[0].partitions[0].records == b""
    assert time.monotonic() - began < 30


def test_a_frozen_broker_serves_all_that_does_not_wait(kafka: Kafka, wire: Wire) -> None:
    with kafka.freeze():
        topic = TopicFactory(wire)(name="orders")
        topic.append(3)
        member = Member(wire, new_group(wire))
        stable(wire, member)
        assert member.heartbeat() == "NONE"
        wire.send_only(fetch(topic, 3, 60_000), 11)
        kafka.produce("orders", "wakes the fetch")
        assert wire.receive().responses[0].partitions[0].high_watermark == 4


def test_the_session_of_a_classic_member_ends(kafka: Kafka, wire: Wire) -> None:
    member = Member(wire, new_group(wire))
    kafka.freeze()
    stable(wire, member)
    kafka.advance(9_999)
    assert member.heartbeat() == "NONE"
    kafka.advance(10_000)
    assert member.heartbeat() == "UNKNOWN_MEMBER_ID"
    assert described(wire, member.group_id).members == []


def test_the_session_of_a_consumer_ends(kafka: Kafka, wire: Wire, topic: Topic) -> None:
    consumer = Consumer(wire, new_group(wire))
    assert consumer.join(topic.name).error_code == NONE
    kafka.advance(46_000)
    assert consumer.beat().error_code != NONE


def test_a_rebalance_ends_without_a_silent_member(kafka: Kafka, wire: Wire) -> None:
    """One jump: the session of the silent one ends on the way, and the rebalance is then complete without it."""
    group = new_group(wire)
    silent, other = Member(wire, group), Member(wire, group)
    stable(wire, silent)
    other.send_join(rebalance_timeout_ms=600_000)
    kafka.advance(60_000)
    joined = other.receive_join()
    assert joined.error_code == NONE
    assert [member.member_id for member in joined.members] == [other.member_id]


@pytest.mark.kafka(**{"log.retention.check.interval.ms": 60_000})
def test_old_records_are_deleted(kafka: Kafka) -> None:
    kafka.create_topic("logs", retention_ms=WEEK)
    kafka.produce("logs", "old")
    kafka.advance(WEEK - DAY)
    kafka.produce("logs", "new")
    assert len(kafka.records("logs")) == 2
    kafka.advance(2 * DAY + WEEK)
    assert kafka.records("logs") == []


def test_advancing_by_a_month_takes_seconds(kafka: Kafka) -> None:
    kafka.produce("logs", "")
    began = time.monotonic()
    kafka.advance(30 * DAY)
    assert time.monotonic() - began < 10


def test_a_lock_of_a_share_group_ends(kafka: Kafka, wire: Wire, topic: Topic) -> None:
    for number in range(3):
        kafka.produce(topic.name, str(number))
    group = group_name()
    initialize(wire, group, topic)
    member, other = ShareMember(wire, group), ShareMember(wire.another(), group)
    kafka.freeze()
    assert ranges(member.take(topic, 3)) == [(0, 2, 1)]
    assert other.fetch(topic)[0].acquired == []
    kafka.advance(30_000)
    assert ranges(other.take(topic, 3)) == [(0, 2, 2)]


def test_a_transaction_times_out(kafka: Kafka, wire: Wire, topic: Topic) -> None:
    producer = TransactionalProducer(wire, timeout_ms=60_000)
    producer.add(topic)
    producer.produce(topic)
    kafka.advance(61_000 + 10_000)
    assert producer.described().state == "CompleteAbort"


def test_an_idle_connection_is_closed(kafka: Kafka, wire: Wire, topic: Topic) -> None:
    kafka.advance(DAY)
    assert wire.socket().recv(1) == b""


def test_the_clock_is_moved_while_the_broker_is_down(kafka: Kafka) -> None:
    before = kafka.produce("ticks", "").timestamp
    kafka.kill()
    kafka.freeze()
    kafka.advance(DAY)
    kafka.thaw()
    kafka.restart()
    assert kafka.produce("ticks", "").timestamp >= before + DAY


def test_a_request_in_another_thread_is_answered_after_the_jump(kafka: Kafka, wire: Wire, topic: Topic) -> None:
    """As a client's thread does, while the test moves the clock."""
    kafka.freeze()
    answers = []
    thread = threading.Thread(target=lambda: answers.append(wire.send(fetch(topic, 0, 500), 11)))
    thread.start()
    while thread.is_alive():
        kafka.advance(100)
        thread.join(0.01)
    assert answers[0].responses[0].partitions[0].error_code == NONE
