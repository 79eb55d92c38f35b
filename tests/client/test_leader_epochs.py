"""Leader epochs of positions (KIP-320) against a broker: what it refuses on the way, and the epochs that are committed."""

from collections.abc import Iterator

import pytest

from ottla import Admin, Consumer, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from ottla.client.errors import NoOffset
from ottla.testing import Kafka

from .conftest import QUICK, Produce, fresh


def next_offset(consumer: Consumer) -> int:
    record = consumer.poll(10)
    assert record is not None
    return record.offset


@pytest.fixture
def kafka() -> Iterator[Kafka]:
    """A broker of one's own, whose requests fail when they are told to."""
    with Kafka(QUICK) as broker:
        yield broker


@pytest.mark.parametrize("error", ["FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "NOT_LEADER_OR_FOLLOWER"])
@pytest.mark.parametrize("api", ["Fetch", "OffsetForLeaderEpoch"])
def test_a_leader_that_refuses_for_a_while(kafka: Kafka, api: str, error: str) -> None:
    kafka.create_topic("t")
    with Producer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        producer.produce_many("t", [str(number) for number in range(20)])
    fault = kafka.fail(api, 2, error=error)
    with Consumer(bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("t", 0)])
        values = [record.value for _ in range(20) if (record := consumer.poll(10)) is not None]
    assert values == [b"%d" % number for number in range(20)]
    assert fault.left == 0


def test_reading_goes_on_over_a_restart(kafka: Kafka) -> None:
    """The broker leads with another epoch then, which has everything of the one before."""
    kafka.create_topic("t")
    kafka.produce("t", "before")
    with Consumer(
        bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest", group_id="g", enable_auto_commit=False
    ) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        assert consumer.poll(10) is not None
        kafka.restart()
        kafka.produce("t", "after")
        record = consumer.poll(20)
        assert record is not None
        assert record.value == b"after"
        committed = consumer.commit()
    assert committed[TopicPartition("t", 0)] == OffsetAndMetadata(2, "", record.leader_epoch)


def test_committed_epochs_are_those_of_the_records_before(
    bootstrap_servers: str, topic: str, produce: Produce, admin: Admin
) -> None:
    produce(topic, 3)
    partition = TopicPartition(topic, 0)
    group = fresh("g")
    configs = {"bootstrap_servers": bootstrap_servers, "group_id": group, "auto_offset_reset": "earliest"}
    with Consumer(**configs) as consumer:
        consumer.assign([partition])
        record = consumer.poll(10)
        assert record is not None
        consumer.commit()
        assert consumer.committed([partition])[partition] == OffsetAndMetadata(1, "", record.leader_epoch)
    with Consumer(**configs) as again:
        again.assign([partition])  # what is committed is validated
        assert next_offset(again) == 1
        again.seek(partition, OffsetAndMetadata(2, "", record.leader_epoch))
        assert next_offset(again) == 2


def test_an_epoch_that_the_log_never_had(bootstrap_servers: str, topic: str, produce: Produce) -> None:
    """Whoever comes with an epoch that the leader does not know has read another log: auto.offset.reset decides."""
    produce(topic, 3)
    partition = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        consumer.seek(partition, OffsetAndMetadata(2, "", 1000))
        assert next_offset(consumer) == 0


def test_a_seek_comes_before_the_missing_policy(bootstrap_servers: str, topic: str, produce: Produce) -> None:
    produce(topic, 3)
    partition = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="none") as consumer:
        consumer.assign([partition])
        with pytest.raises(NoOffset):
            consumer.poll(1)
        consumer.seek(partition, 1)
        assert next_offset(consumer) == 1


def test_a_recreated_topic_has_its_own_epochs(bootstrap_servers: str, admin: Admin, produce: Produce) -> None:
    name = fresh()
    for count in (3, 2):
        admin.create_topics([NewTopic(name, 1, 1)]).check()
        produce(name, count)
        with Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(name, 0)])
            assert len(consumer.consume(count, timeout=10)) == count
        admin.delete_topics([name]).check()
