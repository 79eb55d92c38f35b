"""AlterPartitionReassignments and ListPartitionReassignments, over a socket, where there is one broker."""

import pytest

from ottla.protocol.errors import name_of
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)

from .conftest import Topic, Wire, versions
from .test_incremental_alter_configs import node

API = AlterPartitionReassignmentsRequest
EMPTY = "The manual partition assignment includes an empty replica list."


def reassign(
    wire: Wire, topic: str, index: int, replicas: list[int] | None, version: int = 0
) -> tuple[str, str | None]:
    parts = [ReassignablePartition(partition_index=index, replicas=replicas)]
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=5000, topics=[ReassignableTopic(name=topic, partitions=parts)]
    )
    answer = wire.send(request, version)
    assert (answer.error_code, answer.error_message, answer.responses[0].name) == (0, None, topic)
    (result,) = answer.responses[0].partitions
    assert result.partition_index == index
    return name_of(result.error_code), result.error_message


@pytest.mark.parametrize("version", versions(API))
def test_replicas_that_stay_are_accepted_and_invalid_ones_refused(broker: Wire, topic: Topic, version: int) -> None:
    own = int(node(broker))
    assert reassign(broker, topic.name, 0, [own], version) == ("NONE", None)
    assert reassign(broker, topic.name, 0, None, version) == ("NO_REASSIGNMENT_IN_PROGRESS", None)
    for replicas, text in (
        ([], EMPTY),
        ([own, own], f"The manual partition assignment includes the broker {own} more than once."),
        ([77], "The manual partition assignment includes broker 77, but no such broker is registered."),
    ):
        assert reassign(broker, topic.name, 0, replicas, version) == ("INVALID_REPLICA_ASSIGNMENT", text)


@pytest.mark.parametrize("replicas", [[1], None], ids=["move", "take back"])
def test_what_is_not_there(broker: Wire, topic: Topic, replicas: list[int] | None) -> None:
    unknown = "UNKNOWN_TOPIC_OR_PARTITION"
    assert reassign(broker, topic.name, 9, replicas) == (unknown, f"Unable to find partition {topic.name}:9.")
    assert reassign(broker, "no-such", 0, replicas) == (unknown, "Unable to find a topic named no-such.")


def test_nothing_moves(broker: Wire, topic: Topic) -> None:
    named = [ListPartitionReassignmentsTopics(name=topic.name, partition_indexes=[0, 9])]
    for topics in (None, [], named):
        answer = broker.send(ListPartitionReassignmentsRequest(timeout_ms=5000, topics=topics), 0)
        assert (answer.error_code, answer.error_message, answer.topics) == (0, None, [])
