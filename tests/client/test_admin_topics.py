"""Admin: topics, their partitions, their records."""

import asyncio
import os

import pytest

from ottla import EARLIEST, LATEST, Admin, KafkaError, NewPartitions, NewTopic, TopicPartition, aio
from ottla.client.errors import UnknownTopic
from ottla.protocol.errors import INVALID_PARTITIONS, TOPIC_ALREADY_EXISTS
from ottla.protocol.schema import ZERO_UUID
from tests.conformance.members import wait_for

from .conftest import Produce, fresh


def test_a_topic_is_made_described_and_deleted(admin: Admin) -> None:
    name = fresh()
    made = admin.create_topics([NewTopic(name, 3, 1, config={"retention.ms": "1000"})])[name]
    assert (made.num_partitions, made.replication_factor) == (3, 1)
    (node,) = (broker.id for broker in admin.describe_cluster().nodes)
    wait_for(lambda: name in admin.list_topics())
    for key in (name, made.topic_id):
        described = admin.describe_topics([key])[key]
        assert (described.name, described.topic_id, described.internal) == (name, made.topic_id, False)
        assert [
            (partition.partition, partition.leader, partition.leader_epoch) for partition in described.partitions
        ] == [(index, node, 0) for index in range(3)]
        assert all(
            partition.replicas == partition.isr == (node,) and partition.offline == ()
            for partition in described.partitions
        )
    assert name in admin.list_topics()
    again = admin.create_topics([name]).errors[name]
    assert (again.code, again.retriable) == (TOPIC_ALREADY_EXISTS, False)
    assert admin.delete_topics([name]).check().successes == {name: None}
    wait_for(lambda: name not in admin.list_topics())
    assert isinstance(admin.describe_topics([name]).errors[name], UnknownTopic)


def test_many_partitions_come_in_several_answers(admin: Admin) -> None:
    name = fresh()
    admin.create_topics([NewTopic(name, 7, 1)]).check()
    wait_for(lambda: name in admin.list_topics())
    described = admin.describe_topics([name], partitions_per_answer=3)[name]
    assert [partition.partition for partition in described.partitions] == list(range(7))
    admin.delete_topics([name]).check()


def test_topics_are_deleted_by_id(admin: Admin) -> None:
    name, unknown = fresh(), os.urandom(16)
    topic_id = admin.create_topics([NewTopic(name, 1, 1)])[name].topic_id
    results = admin.delete_topics([topic_id, unknown])
    assert results.successes == {topic_id: None}
    assert isinstance(results.errors[unknown], UnknownTopic)
    wait_for(lambda: name not in admin.list_topics())


def test_partitions_are_added(admin: Admin, topic: str) -> None:
    unknown = fresh()
    assert admin.create_partitions([NewPartitions(topic, 5)], validate_only=True).check().successes == {topic: None}
    assert len(admin.list_topics()[topic].leaders) == 2
    results = admin.create_partitions([NewPartitions(topic, 5), NewPartitions(unknown, 2)])
    assert results.successes == {topic: None}
    assert isinstance(results.errors[unknown], UnknownTopic)
    wait_for(lambda: len(admin.list_topics()[topic].leaders) == 5)
    assert admin.create_partitions([NewPartitions(topic, 2)]).errors[topic].code == INVALID_PARTITIONS
    (node,) = (broker.id for broker in admin.describe_cluster().nodes)
    admin.create_partitions([NewPartitions(topic, 6, ((node,),))]).check()
    wait_for(lambda: len(admin.describe_topics([topic])[topic].partitions) == 6)
    assert admin.describe_topics([topic])[topic].partitions[5].replicas == (node,)


def test_records_are_deleted(admin: Admin, topic: str, produce: Produce) -> None:
    produce(topic, 6)
    first, second, absent = (TopicPartition(topic, index) for index in (0, 1, 9))
    results = admin.delete_records({first: 4, second: -1, absent: 0})
    assert results.successes == {first: 4, second: 0}
    assert isinstance(results.errors[absent], UnknownTopic)
    assert admin.list_offsets({first: EARLIEST})[first].offset == 4
    assert admin.delete_records({first: 9}).errors[first].name == "OFFSET_OUT_OF_RANGE"
    assert admin.delete_records({first: -1})[first] == 6
    assert admin.list_offsets({first: LATEST})[first].offset == 6


def test_results_say_what_happened_to_each(admin: Admin, topic: str) -> None:
    unknown = fresh()
    results = admin.describe_topics([topic, unknown])
    assert set(results) == {topic, unknown}
    with pytest.raises(KafkaError, match=unknown):
        results.check()
    with pytest.raises(UnknownTopic):
        results[unknown]


def test_the_same_on_asyncio(bootstrap_servers: str, topic: str) -> None:
    async def described() -> list[int]:
        async with aio.Admin(bootstrap_servers=bootstrap_servers) as admin:
            descriptions = await admin.describe_topics([topic])
            assert descriptions[topic].topic_id != ZERO_UUID
            return [partition.partition for partition in descriptions[topic].partitions]

    assert asyncio.run(described()) == [0, 1]
