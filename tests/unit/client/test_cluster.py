"""Finding topics and offsets, and doing it again when it failed, in virtual time."""

import pickle
from itertools import pairwise

import pytest

from ottla.client.errors import KafkaError, OffsetOutOfRange, RequestTimedOut, StaleMetadata, UnknownTopic, error_for
from ottla.client.offsets import list_offsets
from ottla.client.topics import LATEST, TopicPartition
from ottla.protocol import errors
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from tests.unit.client.world import Broker, World


def one_broker(code: int = 0) -> tuple[World, Broker]:
    """A broker with topic t of two partitions; or one that answers for every topic with an error."""
    world = World()
    broker = world.broker()
    broker.topics["t"] = {0: 1, 1: 1}
    if code:
        broker.on(MetadataRequest, MetadataResponse(topics=[MetadataResponseTopic(error_code=code, name="t")]))
    return world, broker


def test_a_missing_topic_raises_at_once() -> None:
    world, broker = one_broker(errors.UNKNOWN_TOPIC_OR_PARTITION)
    core = world.core()
    with pytest.raises(UnknownTopic, match="topic t does not exist"):
        world.run(core, core.metadata.topic("t"))
    assert broker.asked[MetadataRequest] == 1


def test_a_topic_that_the_broker_does_not_create_raises_after_max_block_ms() -> None:
    world, _ = one_broker(errors.UNKNOWN_TOPIC_OR_PARTITION)
    core = world.core(max_block_ms="3000")
    before = world.now
    with pytest.raises(UnknownTopic, match="the broker does not create it"):
        world.run(core, core.metadata.topic("t", create=True))
    assert 3000 <= world.now - before < 3100


def test_waits_double_up_to_their_limit() -> None:
    world, broker = one_broker()
    moments: list[int] = []

    def answer(request: MetadataRequest, version: int) -> MetadataResponse:
        moments.append(world.now)
        return MetadataResponse(topics=[MetadataResponseTopic(error_code=errors.LEADER_NOT_AVAILABLE, name="t")])

    broker.on(MetadataRequest, answer)
    core = world.core(default_api_timeout_ms="5000")
    with pytest.raises(RequestTimedOut, match="no success within 5000 ms; last: topic t: LEADER_NOT_AVAILABLE"):
        world.run(core, core.metadata.topic("t"))
    waits = [later - earlier for earlier, later in pairwise(moments)]
    assert waits[:6] == [pytest.approx(wait, abs=5) for wait in (100, 200, 400, 800, 1000, 1000)]


def test_a_topic_is_asked_for_once() -> None:
    world, broker = one_broker()
    core = world.core()
    for _ in range(2):
        partitions = world.run(core, core.metadata.partitions("t"))
        assert partitions == [TopicPartition("t", 0), TopicPartition("t", 1)]
    assert broker.asked[MetadataRequest] == 1


def test_offsets_of_partitions_that_moved_are_asked_for_again() -> None:
    world, broker = one_broker()
    asked: list[list[int]] = []

    def answer(request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        parts = [part.partition_index for part in request.topics[0].partitions]
        asked.append(parts)
        moved = len(asked) == 1
        rows = [
            ListOffsetsPartitionResponse(
                partition_index=number, error_code=errors.NOT_LEADER_OR_FOLLOWER if moved and number else 0, offset=5
            )
            for number in parts
        ]
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=rows)])

    broker.on(ListOffsetsRequest, answer)
    core = world.core()
    offsets = world.run(core, list_offsets(core, {TopicPartition("t", 0): LATEST, TopicPartition("t", 1): LATEST}))
    assert {str(part): answer.offset for part, answer in offsets.items()} == {"t-0": 5, "t-1": 5}
    assert asked == [[0, 1], [1]]


@pytest.mark.parametrize("row", errors.all_errors(), ids=lambda row: row.name)
def test_errors_are_as_retriable_as_the_table_says(row: errors.Error) -> None:
    if row.code == errors.NONE:
        return
    error = error_for(row.code, "fetch")
    assert error.name == row.name
    if row.code not in (errors.FENCED_LEADER_EPOCH, errors.UNKNOWN_LEADER_EPOCH):
        assert error.retriable is row.retriable or isinstance(error, StaleMetadata)


def test_errors_survive_the_way_from_process_to_process() -> None:
    error: KafkaError = OffsetOutOfRange("gone", 1)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.code) == (OffsetOutOfRange, "gone", 1)
