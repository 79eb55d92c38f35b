"""DescribeTopicPartitions, over a socket."""

import pytest

from ottla.protocol.errors import INVALID_REQUEST, INVALID_TOPIC_EXCEPTION, NONE, UNKNOWN_TOPIC_OR_PARTITION
from ottla.protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest

from .conftest import TopicFactory, Wire, versions

API = DescribeTopicPartitionsRequest


def ask(*names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=Cursor(topic_name=cursor[0], partition_index=cursor[1]) if cursor else None,
    )


def pages(broker: Wire, *names: str, limit: int) -> list[list[tuple[str, int]]]:
    """(topic, partition) of every page."""
    all_pages = []
    cursor = None
    while True:
        answer = broker.send(ask(*names, limit=limit, cursor=cursor), 0)
        all_pages.append([(topic.name, part.partition_index) for topic in answer.topics for part in topic.partitions])
        if answer.next_cursor is None:
            return all_pages
        cursor = answer.next_cursor.topic_name, answer.next_cursor.partition_index


@pytest.mark.parametrize("version", versions(API))
def test_a_topic_and_its_partitions(broker: Wire, make_topic: TopicFactory, version: int) -> None:
    topic = make_topic(3)
    answer = broker.send(ask(topic.name), version)
    assert answer.next_cursor is None
    (described,) = answer.topics
    assert (described.error_code, described.name, described.topic_id, described.is_internal) == (
        NONE,
        topic.name,
        topic.id,
        False,
    )
    assert described.topic_authorized_operations == 0b1101_1111_1000
    assert [part.partition_index for part in described.partitions] == [0, 1, 2]
    for part in described.partitions:
        node = part.leader_id
        assert (part.error_code, part.leader_epoch, part.offline_replicas) == (NONE, 0, [])
        assert (part.replica_nodes, part.isr_nodes) == ([node], [node])
        assert (part.eligible_leader_replicas, part.last_known_elr) == ([], [])


def test_topics_come_sorted_and_once(broker: Wire, make_topic: TopicFactory) -> None:
    names = sorted(make_topic().name for _ in range(3))
    answer = broker.send(ask(names[2], names[0], names[1], names[0]), 0)
    assert [topic.name for topic in answer.topics] == names


def test_no_names_are_all_topics(broker: Wire, make_topic: TopicFactory) -> None:
    names = {make_topic().name for _ in range(2)}
    listed = {name for page in pages(broker, limit=100_000) for name, _ in page}
    assert names <= listed


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 7, 8, 100])
def test_pages_hold_every_partition_once(broker: Wire, make_topic: TopicFactory, limit: int) -> None:
    first, second, third = sorted((make_topic(3), make_topic(1), make_topic(4)), key=lambda topic: topic.name)
    all_pages = pages(broker, first.name, second.name, third.name, limit=limit)
    assert all(len(page) <= limit for page in all_pages)
    parts = [entry for page in all_pages for entry in page]
    assert parts == sorted(set(parts))
    assert len(parts) == 8
    assert [len(page) for page in all_pages[:-1]] == [limit] * (len(all_pages) - 1)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_one(broker: Wire, make_topic: TopicFactory, limit: int) -> None:
    answer = broker.send(ask(make_topic(3).name, limit=limit), 0)
    assert len(answer.topics[0].partitions) == 1
    assert answer.next_cursor.partition_index == 1


def test_a_cursor_says_where_to_begin(broker: Wire, make_topic: TopicFactory) -> None:
    first, second = sorted((make_topic(3), make_topic(2)), key=lambda topic: topic.name)

    def partitions_from(cursor: tuple[str, int]) -> list[tuple[str, int]]:
        topics = broker.send(ask(first.name, second.name, cursor=cursor), 0).topics
        return [(topic.name, part.partition_index) for topic in topics for part in topic.partitions]

    everything = partitions_from((first.name, 0))
    assert len(everything) == 5
    assert partitions_from((first.name, 1)) == everything[1:]
    assert partitions_from((second.name, 1)) == [entry for entry in everything if entry[0] == second.name][1:]
    assert partitions_from((first.name, 99)) == partitions_from((second.name, 0))


def test_a_cursor_at_no_partition_or_at_a_topic_not_named_is_refused(broker: Wire, make_topic: TopicFactory) -> None:
    one, two = make_topic(), make_topic()
    for cursor in ((one.name, -1), ("zz", 0), ("", 0), ("with space", 0)):
        answer = broker.send(ask(one.name, two.name, cursor=cursor), 0)
        assert [row.error_code for row in answer.topics] == [INVALID_REQUEST] * 2
        assert not any(row.partitions for row in answer.topics)
    assert broker.send(ask(cursor=(one.name, -1)), 0).topics == []


def test_a_cursor_over_all_topics_may_be_at_one_that_is_gone(broker: Wire, make_topic: TopicFactory) -> None:
    topic = make_topic()
    answer = broker.send(ask(limit=1, cursor=(topic.name[:-1], 5)), 0)
    assert answer.topics[0].name > topic.name[:-1]
    assert broker.send(ask(cursor=("zzzz", 0)), 0).topics == []


@pytest.mark.parametrize("name", ["no-such-topic", "with space", "a" * 250, ".", "ü"])
def test_unknown_and_illegal_names(broker: Wire, name: str) -> None:
    (topic,) = broker.send(ask(name), 0).topics
    legal = name == "no-such-topic"
    assert topic.error_code == (UNKNOWN_TOPIC_OR_PARTITION if legal else INVALID_TOPIC_EXCEPTION)
    assert (topic.name, topic.topic_id, topic.partitions) == (name, bytes(16), [])
    assert topic.topic_authorized_operations == 0b1101_1111_1000


def test_unknown_topics_take_their_place_among_the_others(broker: Wire, make_topic: TopicFactory) -> None:
    topic = make_topic(2)
    answer = broker.send(ask(topic.name, topic.name + "-not"), 0)
    assert [(row.name, row.error_code) for row in answer.topics] == [
        (topic.name, NONE),
        (topic.name + "-not", UNKNOWN_TOPIC_OR_PARTITION),
    ]
