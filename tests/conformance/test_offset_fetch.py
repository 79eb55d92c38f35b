"""OffsetFetch, over a socket."""

from typing import Any

import pytest

from ottla.protocol.errors import NONE, STALE_MEMBER_EPOCH, UNKNOWN_MEMBER_ID, UNKNOWN_TOPIC_ID
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

from .conftest import Topic, TopicFactory, Wire, versions
from .consumers import Consumer
from .members import Member, new_group, stable
from .test_offset_commit import codes, commit

API = OffsetFetchRequest


def fetch(group_id: str, version: int, topics: list[tuple[Any, list[int]]] | None, **fields: Any) -> OffsetFetchRequest:
    """Ask for (topic name, or id from version 10 on, partitions), or None for everything."""
    if version < 8:
        old = None if topics is None else [OffsetFetchRequestTopic(name=n, partition_indexes=p) for n, p in topics]
        return OffsetFetchRequest(group_id=group_id, topics=old)
    key = "topic_id" if version >= 10 else "name"
    new = None if topics is None else [OffsetFetchRequestTopics(**{key: n, "partition_indexes": p}) for n, p in topics]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=new, **fields)])


def parts(answer: Any, version: int) -> list[tuple[Any, int, int, int, str]]:
    holder = answer if version < 8 else answer.groups[0]
    assert holder.error_code == NONE
    return [
        (
            topic.topic_id if version >= 10 else topic.name,
            partition.partition_index,
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.metadata,
        )
        for topic in holder.topics
        for partition in topic.partitions
        if partition.error_code == NONE
    ]


@pytest.mark.parametrize("version", [v for v in versions(API) if v > 0])
def test_what_was_committed(broker: Wire, make_topic: TopicFactory, version: int) -> None:
    group_id, topic = new_group(broker), make_topic(3)
    request = commit(group_id, topic, partitions=[(0, 7, "note"), (1, 0, None)])
    request.topics[0].partitions[0].committed_leader_epoch = 3
    assert codes(broker.send(request, 9)) == [(0, NONE), (1, NONE)]
    key = topic.id if version >= 10 else topic.name
    epoch = 3 if version >= 5 else -1
    answer = broker.send(fetch(group_id, version, [(key, [1, 0, 2, 7])]), version)
    assert parts(answer, version) == [
        (key, 1, 0, -1, ""),
        (key, 0, 7, epoch, "note"),
        (key, 2, -1, -1, ""),
        (key, 7, -1, -1, ""),
    ]
    if version >= 2:
        everything = broker.send(fetch(group_id, version, None), version)
        assert sorted(parts(everything, version)) == [(key, 0, 7, epoch, "note"), (key, 1, 0, -1, "")]


@pytest.mark.parametrize("version", [v for v in versions(API) if 0 < v < 10])
def test_topics_and_groups_that_are_not_there(broker: Wire, version: int) -> None:
    group_id = new_group(broker)
    answer = broker.send(fetch(group_id, version, [("no-such-topic", [0, 1])]), version)
    assert parts(answer, version) == [("no-such-topic", 0, -1, -1, ""), ("no-such-topic", 1, -1, -1, "")]
    if version >= 2:
        assert parts(broker.send(fetch(group_id, version, None), version), version) == []


def test_topic_ids_that_are_not_there(broker: Wire, topic: Topic) -> None:
    group_id = new_group(broker)
    asked = [(b"1" * 16, [0]), (topic.id, [0]), (bytes(16), [3])]
    topics = broker.send(fetch(group_id, 10, asked), 10).groups[0].topics
    rows = {row.topic_id: (row.partitions[0].error_code, row.partitions[0].committed_offset) for row in topics}
    assert rows == {b"1" * 16: (UNKNOWN_TOPIC_ID, -1), topic.id: (NONE, -1), bytes(16): (UNKNOWN_TOPIC_ID, -1)}


def test_several_groups_at_once(broker: Wire, topic: Topic) -> None:
    first, second = new_group(broker), new_group(broker)
    broker.send(commit(first, topic, partitions=[(0, 1, "")]), 9)
    broker.send(commit(second, topic, partitions=[(0, 2, "")]), 9)
    request = fetch(first, 8, None)
    request.groups += [*fetch(second, 8, [(topic.name, [0])]).groups, *fetch("no-such-group", 8, None).groups]
    groups = {group.group_id: group for group in broker.send(request, 8).groups}
    assert {
        group_id: [p.committed_offset for t in g.topics for p in t.partitions] for group_id, g in groups.items()
    } == {
        first: [1],
        second: [2],
        "no-such-group": [],
    }
    assert broker.send(OffsetFetchRequest(), 8).groups == []


def test_a_classic_group_does_not_ask_who_fetches(broker: Wire, topic: Topic) -> None:
    member = Member(broker, new_group(broker))
    stable(broker, member)
    broker.send(commit(member.group_id, topic, generation=1, member_id=member.member_id), 9)
    for fields in ({"member_id": member.member_id, "member_epoch": 1}, {"member_id": "nobody", "member_epoch": 9}):
        answer = broker.send(fetch(member.group_id, 9, [(topic.name, [0])], **fields), 9)
        assert parts(answer, 9) == [(topic.name, 0, 5, -1, "")]


def test_a_later_commit_replaces_an_earlier_one(broker: Wire, topic: Topic) -> None:
    group_id = new_group(broker)
    for offset in (9, 3):
        broker.send(commit(group_id, topic, partitions=[(0, offset, "")]), 9)
    assert parts(broker.send(fetch(group_id, 9, [(topic.name, [0])]), 9), 9)[0][2] == 3


@pytest.mark.parametrize("version", [9, 10])
def test_a_member_of_a_consumer_group_fetches_under_its_epoch(broker: Wire, topic: Topic, version: int) -> None:
    member = Consumer(broker, new_group(broker))
    member.join(topic.name)
    group_id, epoch = member.group_id, member.epoch
    broker.send(commit(group_id, topic, 9, member_id=member.member_id, generation=epoch), 9)
    asked = [(topic.id if version >= 10 else topic.name, [0])]
    for fields, code in (
        ({"member_id": member.member_id, "member_epoch": epoch}, NONE),
        ({"member_id": member.member_id, "member_epoch": epoch + 1}, STALE_MEMBER_EPOCH),
        ({"member_id": member.member_id, "member_epoch": epoch - 1}, STALE_MEMBER_EPOCH),
        ({"member_id": "nobody", "member_epoch": epoch}, UNKNOWN_MEMBER_ID),
        ({"member_id": "nobody", "member_epoch": -1}, UNKNOWN_MEMBER_ID),
        ({"member_id": None, "member_epoch": -1}, NONE),
        ({}, NONE),
    ):
        (group,) = broker.send(fetch(group_id, version, asked, **fields), version).groups
        assert group.error_code == code, fields
        offsets = [part.committed_offset for row in group.topics for part in row.partitions]
        assert offsets == ([5] if code == NONE else [])
