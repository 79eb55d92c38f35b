"""ListOffsets, over a socket."""

import pytest

from ottla.protocol.errors import (
    INVALID_REQUEST,
    NONE,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_VERSION,
)
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

from .conftest import Topic, Wire, versions

API = ListOffsetsRequest
FIRST = 1_700_000_000_000


def ask(name: str, timestamp: int, *, partition: int = 0, times: int = 1, epoch: int = -1) -> ListOffsetsRequest:
    row = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[row] * times)])


@pytest.mark.parametrize("version", [v for v in versions(API) if v > 0])
def test_ends_and_timestamps(broker: Wire, topic: Topic, version: int) -> None:
    topic.append(10)
    topic.append(5, timestamp=FIRST + 100)

    def look(timestamp: int) -> tuple[int, int, int]:
        answer = broker.send(ask(topic.name, timestamp), version).topics[0].partitions[0]
        return answer.error_code, answer.timestamp, answer.offset

    assert look(-1) == (NONE, -1, 15)
    assert look(-2) == (NONE, -1, 0)
    assert look(FIRST) == (NONE, FIRST, 0)
    assert look(FIRST + 5) == (NONE, FIRST + 5, 5)
    assert look(FIRST + 50) == (NONE, FIRST + 100, 10)
    assert look(FIRST + 104) == (NONE, FIRST + 104, 14)
    assert look(FIRST + 105) == (NONE, -1, -1)


@pytest.mark.parametrize("version", [v for v in versions(API) if v >= 7])
def test_the_newest_record_is_found_by_its_timestamp(broker: Wire, topic: Topic, version: int) -> None:
    topic.append(10, timestamp=FIRST + 1000)
    topic.append(10)
    answer = broker.send(ask(topic.name, -3), version).topics[0].partitions[0]
    assert (answer.timestamp, answer.offset) == (FIRST + 1009, 9)


def test_the_newest_record_of_an_empty_partition(broker: Wire, topic: Topic) -> None:
    answer = broker.send(ask(topic.name, -3), 7).topics[0].partitions[0]
    assert (answer.error_code, answer.timestamp, answer.offset) == (NONE, -1, -1)


@pytest.mark.parametrize(("timestamp", "version"), [(-3, 6), (-4, 7), (-5, 8), (-6, 10), (-7, 11)])
def test_special_timestamps_need_their_version(broker: Wire, topic: Topic, timestamp: int, version: int) -> None:
    answer = broker.send(ask(topic.name, timestamp), version).topics[0].partitions[0]
    assert answer.error_code == UNSUPPORTED_VERSION
    assert (answer.timestamp, answer.offset, answer.leader_epoch) == (-1, -1, -1)


def test_without_tiers_everything_is_local(broker: Wire, topic: Topic) -> None:
    topic.append(3)

    def look(timestamp: int) -> tuple[int, int]:
        answer = broker.send(ask(topic.name, timestamp), 11).topics[0].partitions[0]
        return answer.error_code, answer.offset

    assert look(-4) == (NONE, 0)
    assert look(-5) == (NONE, -1)
    assert look(-6) == (NONE, -1)


@pytest.mark.parametrize("version", [v for v in versions(API) if v > 0])
def test_unknown_topics_and_partitions(broker: Wire, topic: Topic, version: int) -> None:
    for request in (ask("no-such-topic", -1), ask(topic.name, -1, partition=7), ask(topic.name, -1, partition=-1)):
        answer = broker.send(request, version).topics[0].partitions[0]
        assert (answer.error_code, answer.offset) == (UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_leader_epochs_are_compared_with_the_current_one(broker: Wire, topic: Topic) -> None:
    topic.append(1)
    newer = broker.send(ask(topic.name, -1, epoch=1000), 4).topics[0].partitions[0]
    assert newer.error_code == UNKNOWN_LEADER_EPOCH
    current = broker.send(ask(topic.name, -1), 4).topics[0].partitions[0].leader_epoch
    assert broker.send(ask(topic.name, -1, epoch=current), 4).topics[0].partitions[0].error_code == NONE


def test_a_partition_named_twice_is_refused(broker: Wire, topic: Topic) -> None:
    topic.append(3)
    answer = broker.send(ask(topic.name, -1, times=2), 4).topics[0].partitions
    assert [(part.error_code, part.offset) for part in answer] == [(INVALID_REQUEST, -1)] * len(answer)
