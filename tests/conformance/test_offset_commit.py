"""OffsetCommit, over a socket."""

from typing import Any

import pytest

from ottla.protocol.errors import (
    FENCED_INSTANCE_ID,
    GROUP_ID_NOT_FOUND,
    ILLEGAL_GENERATION,
    NONE,
    OFFSET_METADATA_TOO_LARGE,
    REBALANCE_IN_PROGRESS,
    STALE_MEMBER_EPOCH,
    UNKNOWN_MEMBER_ID,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_VERSION,
)
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from ottla.testing import EmbeddedBroker

from .conftest import Topic, TopicFactory, Wire, versions
from .consumers import Consumer, configure, settle
from .members import Member, committed, described, new_group, stable, wait_for

API = OffsetCommitRequest


def commit(group_id: str, topic: Topic, version: int = 9, **fields: Any) -> OffsetCommitRequest:
    """A commit of offset 5 in partition 0, or of the (partition, offset, metadata) given."""
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata=metadata)
        for index, offset, metadata in fields.pop("partitions", [(0, 5, "")])
    ]
    row = OffsetCommitRequestTopic(partitions=partitions)
    if version >= 10:
        row.topic_id = fields.pop("topic_id", topic.id)
    else:
        row.name = fields.pop("name", topic.name)
    generation = {"generation_id_or_member_epoch": fields.pop("generation")} if "generation" in fields else {}
    return OffsetCommitRequest(group_id=group_id, topics=[row], **(fields | generation))


def codes(answer: Any) -> list[tuple[int, int]]:
    return [
        (partition.partition_index, partition.error_code) for topic in answer.topics for partition in topic.partitions
    ]


@pytest.mark.parametrize("version", [v for v in versions(API) if v > 0])
def test_a_consumer_without_a_group_only_commits(broker: Wire, topic: Topic, version: int) -> None:
    group_id = new_group(broker)
    answer = broker.send(commit(group_id, topic, version, partitions=[(0, 7, "note")]), version)
    assert codes(answer) == [(0, NONE)]
    assert answer.topics[0].name == (topic.name if version < 10 else "")
    assert answer.topics[0].topic_id == (topic.id if version >= 10 else bytes(16))
    assert committed(broker, group_id, topic.name) == (7, "note")
    group = described(broker, group_id)
    assert (group.group_state, group.protocol_type) == ("Empty", "")


def test_version_0_is_stored_with_the_others(broker: Wire, topic: Topic, ottla_only: None) -> None:
    """Apache Kafka kept these in ZooKeeper, and 4.x does not take them."""
    group_id = new_group(broker)
    assert codes(broker.send(commit(group_id, topic, 0), 0)) == [(0, NONE)]
    assert committed(broker, group_id, topic.name) == (5, "")


@pytest.mark.parametrize("first", ["commit", "fetch"])
def test_version_0_needs_no_coordinator_to_be_asked_for(ottla_only: None, first: str) -> None:
    """Kafka 0.8.1 had no FindCoordinator: nothing but these requests can create the offsets topic for its clients."""
    with EmbeddedBroker() as fresh:
        wire = Wire(fresh.address, is_kafka=False)
        topic = TopicFactory(wire)()
        asked = OffsetFetchRequestTopic(name=topic.name, partition_indexes=[0])
        fetch = OffsetFetchRequest(group_id="of 0.8.1", topics=[asked])
        if first == "fetch":
            (partition,) = wire.send(fetch, 0).topics[0].partitions
            assert (partition.committed_offset, partition.error_code) == (-1, UNKNOWN_TOPIC_OR_PARTITION)
        assert codes(wire.send(commit("of 0.8.1", topic, 0), 0)) == [(0, NONE)]
        (partition,) = wire.send(fetch, 0).topics[0].partitions
        assert (partition.committed_offset, partition.error_code) == (5, NONE)
        wire.close()


@pytest.mark.parametrize("version", [v for v in versions(API) if v >= 7])
@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, NONE),
        ({"member_id": "nobody"}, UNKNOWN_MEMBER_ID),
        ({"generation": 0}, ILLEGAL_GENERATION),
        ({"generation": 2}, ILLEGAL_GENERATION),
        ({"generation": -1}, ILLEGAL_GENERATION),
        ({"generation": -1, "member_id": ""}, UNKNOWN_MEMBER_ID),
        ({"group_instance_id": "i"}, UNKNOWN_MEMBER_ID),
    ],
)
def test_commits_to_a_live_group_need_a_member_and_its_generation(
    broker: Wire, topic: Topic, version: int, fields: dict[str, Any], code: int
) -> None:
    member = Member(broker, new_group(broker))
    stable(broker, member)
    body = {"member_id": member.member_id, "generation": 1} | fields
    assert codes(broker.send(commit(member.group_id, topic, version, **body), version)) == [(0, code)]


@pytest.mark.parametrize("version", [v for v in versions(API) if v > 0])
def test_a_generation_of_a_group_that_is_not_there(broker: Wire, topic: Topic, version: int) -> None:
    answer = broker.send(commit(new_group(broker), topic, version, generation=1, member_id="m"), version)
    assert codes(answer) == [(0, GROUP_ID_NOT_FOUND if version >= 9 else ILLEGAL_GENERATION)]


def test_commits_are_refused_while_the_leader_assigns(broker: Wire, topic: Topic) -> None:
    member = Member(broker, new_group(broker))
    member.join()
    answer = broker.send(commit(member.group_id, topic, generation=1, member_id=member.member_id), 9)
    assert codes(answer) == [(0, REBALANCE_IN_PROGRESS)]


def test_while_members_rejoin_the_last_generation_may_still_commit(broker: Wire, topic: Topic) -> None:
    group_id = new_group(broker)
    member, newcomer = Member(broker, group_id), Member(broker, group_id)
    stable(broker, member)
    newcomer.send_join()
    wait_for(lambda: described(broker, group_id).group_state == "PreparingRebalance")
    assert codes(broker.send(commit(group_id, topic, generation=1, member_id=member.member_id), 9)) == [(0, NONE)]


def test_a_fenced_instance_cannot_commit(broker: Wire, topic: Topic) -> None:
    group_id = new_group(broker)
    before = Member(broker, group_id, instance="i")
    stable(broker, before)
    Member(broker, group_id, instance="i").join()
    fields: dict[str, Any] = {"generation": 1, "member_id": before.member_id, "group_instance_id": "i"}
    assert codes(broker.send(commit(group_id, topic, **fields), 9)) == [(0, FENCED_INSTANCE_ID)]


def test_an_error_of_a_partition_does_not_affect_others(broker: Wire, make_topic: TopicFactory) -> None:
    topic = make_topic(3)
    partitions = [(9, 1, ""), (0, 6, "x" * 4097), (1, 7, "y" * 4096), (-1, 3, ""), (2, -5, None)]
    answer = broker.send(commit(new_group(broker), topic, partitions=partitions), 9)
    assert sorted(codes(answer)) == [
        (-1, UNKNOWN_TOPIC_OR_PARTITION),
        (0, OFFSET_METADATA_TOO_LARGE),
        (1, NONE),
        (2, NONE),
        (9, UNKNOWN_TOPIC_OR_PARTITION),
    ]


@pytest.mark.parametrize("name", ["no-such-topic", "not a name", ""])
def test_topics_that_are_not_there(broker: Wire, topic: Topic, name: str) -> None:
    answer = broker.send(commit(new_group(broker), topic, name=name), 9)
    assert codes(answer) == [(0, UNKNOWN_TOPIC_OR_PARTITION)]


@pytest.mark.parametrize("topic_id", [b"1" * 16, bytes(16)])
def test_topic_ids_that_are_not_there(broker: Wire, topic: Topic, topic_id: bytes) -> None:
    answer = broker.send(commit(new_group(broker), topic, 10, topic_id=topic_id), 10)
    assert codes(answer) == [(0, UNKNOWN_TOPIC_ID)]
    assert answer.topics[0].topic_id == topic_id


def test_nothing_to_commit(broker: Wire) -> None:
    assert broker.send(OffsetCommitRequest(group_id=new_group(broker)), 9).topics == []


def test_the_empty_group_id_may_commit(broker: Wire, topic: Topic) -> None:
    new_group(broker)
    assert codes(broker.send(commit("", topic), 9)) == [(0, NONE)]


@pytest.mark.parametrize("version", [v for v in versions(API) if v > 0])
def test_a_member_of_a_consumer_group_commits_from_version_9_on(broker: Wire, topic: Topic, version: int) -> None:
    if version == 1 and broker.is_kafka:
        pytest.skip("Apache Kafka 3, which serves version 1, has no consumer groups by default")
    member = Consumer(broker, new_group(broker))
    member.join(topic.name)
    request = commit(member.group_id, topic, version, member_id=member.member_id, generation=member.epoch)
    assert codes(broker.send(request, version)) == [(0, NONE if version >= 9 else UNSUPPORTED_VERSION)]


@pytest.mark.parametrize("version", [9, 10])
def test_commits_to_a_consumer_group_need_a_member_and_its_epoch(broker: Wire, topic: Topic, version: int) -> None:
    member = Consumer(broker, new_group(broker))
    member.join(topic.name)
    for fields, code in (
        ({"member_id": member.member_id, "generation": member.epoch + 1}, STALE_MEMBER_EPOCH),
        ({"member_id": member.member_id, "generation": member.epoch - 1}, STALE_MEMBER_EPOCH),
        ({"member_id": member.member_id, "generation": -1}, STALE_MEMBER_EPOCH),
        ({"member_id": "nobody", "generation": member.epoch}, UNKNOWN_MEMBER_ID),
        ({"member_id": "", "generation": -1}, UNKNOWN_MEMBER_ID),
    ):
        request = commit(member.group_id, topic, version, **fields)
        assert codes(broker.send(request, version)) == [(0, code)], fields
    assert committed(broker, member.group_id, topic.name)[0] == -1


def test_an_older_epoch_may_commit_partitions_assigned_in_it(broker: Wire, make_topic: TopicFactory) -> None:
    one, other, group_id = make_topic(), make_topic(), new_group(broker)
    configure(broker, group_id, consumer_assignment_interval_ms="0")
    member = Consumer(broker, group_id)
    member.join(one.name)
    before = member.epoch
    member.beat(subscribed_topic_names=[one.name, other.name])
    settle(broker, group_id, member, until=lambda: len(member.assigned) == 2)
    assert member.epoch == before + 1
    for topic, code in ((one, NONE), (other, STALE_MEMBER_EPOCH)):
        request = commit(group_id, topic, 9, member_id=member.member_id, generation=before)
        assert codes(broker.send(request, 9)) == [(0, code)]


def test_commits_without_a_member_are_accepted_by_an_empty_consumer_group(broker: Wire, topic: Topic) -> None:
    member = Consumer(broker, new_group(broker))
    member.join(topic.name)
    member.leave()
    assert codes(broker.send(commit(member.group_id, topic, 8, generation=-1), 8)) == [(0, NONE)]
    assert committed(broker, member.group_id, topic.name)[0] == 5
    late = commit(member.group_id, topic, 9, member_id=member.member_id, generation=member.epoch)
    assert codes(broker.send(late, 9)) == [(0, UNKNOWN_MEMBER_ID)]
