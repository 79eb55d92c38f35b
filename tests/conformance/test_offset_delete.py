"""OffsetDelete, over a socket."""

from typing import Any

from ottla.protocol.errors import name_of
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

from .conftest import Topic, TopicFactory, Wire
from .consumers import Consumer
from .members import Member, committed, new_group, wait_for
from .test_delete_groups import commit

API = OffsetDeleteRequest


def delete(wire: Wire, group_id: str, topic: str, *partitions: int) -> tuple[str, dict[int, str]]:
    """The error of the whole, and of each partition."""
    parts = [OffsetDeleteRequestPartition(partition_index=index) for index in partitions]
    topics = [OffsetDeleteRequestTopic(name=topic, partitions=parts)] if partitions else []
    answer: Any = wire.send(OffsetDeleteRequest(group_id=group_id, topics=topics), 0)
    codes = {part.partition_index: name_of(part.error_code) for row in answer.topics for part in row.partitions}
    return name_of(answer.error_code), codes


def test_offsets_are_deleted_and_unknown_partitions_have_errors(broker: Wire, make_topic: TopicFactory) -> None:
    topic = make_topic(2)
    group_id = new_group(broker)
    commit(broker, group_id, topic)
    unknown = "UNKNOWN_TOPIC_OR_PARTITION"
    outcome = delete(broker, group_id, topic.name, 0, 1, 7, -1)
    assert outcome == ("NONE", {0: "NONE", 1: "NONE", 7: unknown, -1: unknown})
    assert committed(broker, group_id, topic.name)[0] == -1


def test_groups_that_cannot_be_asked(broker: Wire, topic: Topic) -> None:
    assert delete(broker, "nobody", topic.name, 0) == ("GROUP_ID_NOT_FOUND", {})
    assert delete(broker, "nobody", "no-such-topic", 0) == ("GROUP_ID_NOT_FOUND", {})
    assert delete(broker, "", topic.name, 0) == ("INVALID_GROUP_ID", {})


def test_an_unknown_topic_has_an_error_and_an_empty_list_has_none(broker: Wire, topic: Topic) -> None:
    group_id = new_group(broker)
    commit(broker, group_id, topic)
    assert delete(broker, group_id, "no-such-topic", 0) == ("NONE", {0: "UNKNOWN_TOPIC_OR_PARTITION"})
    assert delete(broker, group_id, topic.name) == ("NONE", {})


def subscription(topic: str) -> bytes:
    """A consumer's subscription, version 0."""
    return b"\0\0\0\0\0\1" + len(topic).to_bytes(2, "big") + topic.encode() + b"\0\0\0\0"


def test_topics_that_members_read_keep_their_offsets(broker: Wire, make_topic: TopicFactory) -> None:
    read, other = make_topic(), make_topic()
    member = Member(broker, new_group(broker))
    member.join(protocols=[("range", subscription(read.name))])
    assert delete(broker, member.group_id, read.name, 0) == ("NONE", {0: "GROUP_SUBSCRIBED_TO_TOPIC"})
    assert delete(broker, member.group_id, other.name, 0) == ("NONE", {0: "NONE"})


def test_members_of_another_protocol_keep_all(broker: Wire, topic: Topic) -> None:
    member = Member(broker, new_group(broker))
    member.join(protocol_type="connect", protocols=[("default", b"")])
    assert delete(broker, member.group_id, topic.name, 0) == ("NON_EMPTY_GROUP", {})


def test_topics_that_a_consumer_group_reads_keep_their_offsets(broker: Wire, make_topic: TopicFactory) -> None:
    read, matched, other = make_topic(), make_topic(), make_topic()
    member = Consumer(broker, new_group(broker))
    member.join(read.name, subscribed_topic_regex=matched.name)
    wait_for(lambda: delete(broker, member.group_id, matched.name, 0) == ("NONE", {0: "GROUP_SUBSCRIBED_TO_TOPIC"}))
    assert delete(broker, member.group_id, read.name, 0) == ("NONE", {0: "GROUP_SUBSCRIBED_TO_TOPIC"})
    assert delete(broker, member.group_id, other.name, 0) == ("NONE", {0: "NONE"})
    member.leave()
    assert delete(broker, member.group_id, read.name, 0) == ("NONE", {0: "NONE"})
