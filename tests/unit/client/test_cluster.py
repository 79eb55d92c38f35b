"""Finding topics and offsets, and doing it again when it failed."""

import pickle

import pytest

from ottla.client.errors import KafkaError, OffsetOutOfRange, RequestTimedOut, StaleMetadata, UnknownTopic, error_for
from ottla.client.topics import LATEST, TopicPartition
from ottla.protocol import errors
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from tests.unit.client.peer import Peer, cluster_with


def missing(code: int) -> Peer:
    peer = Peer()
    peer.answers[MetadataRequest] = lambda _: MetadataResponse(
        topics=[MetadataResponseTopic(error_code=code, name="t")]
    )
    return peer


def test_a_missing_topic_is_told_at_once() -> None:
    cluster, time = cluster_with(missing(errors.UNKNOWN_TOPIC_OR_PARTITION))
    with pytest.raises(UnknownTopic, match="topic t does not exist"):
        cluster.topic("t")
    assert time.pauses == []


def test_a_topic_that_the_broker_does_not_create_is_told_after_max_block_ms() -> None:
    cluster, time = cluster_with(missing(errors.UNKNOWN_TOPIC_OR_PARTITION), {"max.block.ms": "3000"})
    with pytest.raises(UnknownTopic, match="the broker does not create it"):
        cluster.topic("t", create=True)
    assert sum(time.pauses) == 3000


def test_waits_double_up_to_their_limit() -> None:
    cluster, time = cluster_with(missing(errors.LEADER_NOT_AVAILABLE), {"default.api.timeout.ms": "5000"})
    with pytest.raises(RequestTimedOut, match="no success within 5000 ms; last: topic t: LEADER_NOT_AVAILABLE"):
        cluster.topic("t")
    assert time.pauses[:6] == [100, 200, 400, 800, 1000, 1000]


def test_a_topic_is_asked_for_once() -> None:
    peer = Peer(partitions=2)
    cluster, _ = cluster_with(peer)
    assert cluster.partitions("t") == cluster.partitions("t") == [TopicPartition("t", 0), TopicPartition("t", 1)]
    assert peer.asked == ["MetadataRequest"]


def test_offsets_of_partitions_that_moved_are_asked_for_again() -> None:
    peer = Peer(partitions=2)
    asked: list[list[int]] = []

    def answer(request: ListOffsetsRequest) -> ListOffsetsResponse:
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

    peer.answers[ListOffsetsRequest] = answer
    cluster, _ = cluster_with(peer)
    found = cluster.list_offsets({TopicPartition("t", 0): LATEST, TopicPartition("t", 1): LATEST})
    assert {str(part): answer.offset for part, answer in found.items()} == {"t-0": 5, "t-1": 5}
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
