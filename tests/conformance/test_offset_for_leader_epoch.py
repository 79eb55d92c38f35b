"""OffsetForLeaderEpoch, over a socket, as a consumer asks it."""

import pytest

from ottla.protocol.errors import name_of
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

from .conftest import Topic, Wire, versions

API = OffsetForLeaderEpochRequest


def end_of(
    wire: Wire, topic: str, epoch: int, *, partition: int = 0, known: int = -1, version: int = 4
) -> tuple[str, int, int]:
    """(error, epoch, end offset)."""
    part = OffsetForLeaderPartition(partition=partition, leader_epoch=epoch)
    if version >= 2:
        part.current_leader_epoch = known
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[part])])
    if version >= 3:
        request.replica_id = -1
    result = wire.send(request, version).topics[0]
    assert (result.topic, result.partitions[0].partition) == (topic, partition)
    (answer,) = result.partitions
    return name_of(answer.error_code), answer.leader_epoch, answer.end_offset


@pytest.mark.parametrize("version", versions(API))
def test_the_current_epoch_ends_with_the_log(broker: Wire, topic: Topic, version: int) -> None:
    epoch = 0 if version >= 1 else -1  # version 0 does not say
    assert end_of(broker, topic.name, 0, version=version) == ("NONE", epoch, 0)
    topic.append(5)
    assert end_of(broker, topic.name, 0, version=version) == ("NONE", epoch, 5)
    assert end_of(broker, topic.name, 0, known=0, version=version) == ("NONE", epoch, 5)


@pytest.mark.parametrize("version", versions(API))
def test_unknown_epochs_have_no_end_offset(broker: Wire, topic: Topic, version: int) -> None:
    topic.append(5)
    for epoch in (1, 5, -1):
        assert end_of(broker, topic.name, epoch, version=version) == ("NONE", -1, -1)


@pytest.mark.parametrize("version", [v for v in versions(API) if v >= 2])
def test_a_reader_that_knows_another_epoch(broker: Wire, topic: Topic, version: int) -> None:
    assert end_of(broker, topic.name, 0, known=1, version=version) == ("UNKNOWN_LEADER_EPOCH", -1, -1)


@pytest.mark.parametrize("version", versions(API))
def test_unknown_topics_and_partitions(broker: Wire, topic: Topic, version: int) -> None:
    unknown = ("UNKNOWN_TOPIC_OR_PARTITION", -1, -1)
    assert end_of(broker, topic.name, 0, partition=9, version=version) == unknown
    assert end_of(broker, "no-such-topic", 0, version=version) == unknown
