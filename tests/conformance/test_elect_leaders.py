"""ElectLeaders, over a socket, where one broker leads everything."""

import pytest

from ottla.protocol.errors import name_of
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions

from .conftest import Topic, Wire, versions

API = ElectLeadersRequest


def elect(
    wire: Wire, version: int, partitions: list[tuple[str, list[int]]] | None, kind: int = 0
) -> tuple[str, dict[tuple[str, int], tuple[str, str | None]]]:
    topics = (
        None if partitions is None else [TopicPartitions(topic=name, partitions=parts) for name, parts in partitions]
    )
    request = ElectLeadersRequest(topic_partitions=topics, timeout_ms=5000)
    if version >= 1:
        request.election_type = kind
    answer = wire.send(request, version)
    results = {
        (topic.topic, part.partition_id): (name_of(part.error_code), part.error_message)
        for topic in answer.replica_election_results
        for part in topic.partition_result
    }
    return name_of(answer.error_code), results


@pytest.mark.parametrize("version", versions(API))
@pytest.mark.parametrize("kind", [0, 1], ids=["preferred", "unclean"])
def test_an_election_is_not_needed_while_there_is_a_leader(broker: Wire, topic: Topic, version: int, kind: int) -> None:
    outcome = elect(broker, version, [(topic.name, [0, 9]), ("no-such-topic", [0])], kind)
    assert outcome == (
        "NONE",
        {
            (topic.name, 0): ("ELECTION_NOT_NEEDED", "Leader election not needed for topic partition."),
            (topic.name, 9): ("UNKNOWN_TOPIC_OR_PARTITION", f"No such partition as {topic.name}-9"),
            ("no-such-topic", 0): ("UNKNOWN_TOPIC_OR_PARTITION", "No such topic as no-such-topic"),
        },
    )


def test_null_and_empty_lists_elect_no_leaders(broker: Wire, topic: Topic) -> None:
    answer = broker.send(ElectLeadersRequest(topic_partitions=None, timeout_ms=5000), 2)
    assert topic.name in {row.topic for row in answer.replica_election_results}
    assert elect(broker, 2, None) == ("NONE", {})
    assert elect(broker, 2, []) == ("NONE", {})


def test_another_kind_of_election(broker: Wire, topic: Topic) -> None:
    unknown = ("INVALID_REQUEST", "Unknown election type 7")
    assert elect(broker, 2, [(topic.name, [0])], 7) == ("INVALID_REQUEST", {(topic.name, 0): unknown})
    assert elect(broker, 2, [], 7) == ("NONE", {})
    assert elect(broker, 2, [(topic.name, [])], 7) == ("INVALID_REQUEST", {})
