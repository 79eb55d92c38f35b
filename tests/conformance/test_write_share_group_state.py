"""WriteShareGroupState, over a socket. What many writes add up to is thrown by dice, and held against a plain dictionary."""

import random

import pytest

from ottla.protocol.messages.write_share_group_state import (
    PartitionData,
    WriteShareGroupStateRequest,
    WriteStateData,
)

from .conftest import Topic, Wire, versions
from .share_members import initialize, read, share_group, summary, write

API = WriteShareGroupStateRequest
DONE = ("NONE", None)
UNINITIALIZED = ("INVALID_REQUEST", "Write operation on uninitialized share partition not allowed.")


def test_more_deliveries_win_and_then_the_higher_state(broker: Wire, topic: Topic) -> None:
    group_id = share_group(broker)
    initialize(broker, group_id, topic.id)

    def after(*batches: tuple[int, int, int, int], start_offset: int = -1) -> list[tuple[int, int, int, int]]:
        assert write(broker, group_id, topic.id, batches, start_offset=start_offset) == DONE
        return read(broker, group_id, topic.id).batches

    assert after((0, 9, 2, 3)) == [(0, 9, 2, 3)]
    assert after((0, 9, 0, 1)) == [(0, 9, 2, 3)]
    assert after((5, 14, 0, 4)) == [(0, 4, 2, 3), (5, 14, 0, 4)]
    assert after(start_offset=3) == [(3, 4, 2, 3), (5, 14, 0, 4)]
    assert after((0, 20, 4, 1), start_offset=1) == [(3, 4, 2, 3), (5, 14, 0, 4), (15, 20, 4, 1)]
    several = [(100, 110, 2, 2), (105, 115, 0, 1), (116, 120, 0, 1), (90, 130, 0, 0)]
    assert after(*several)[3:] == [(90, 99, 0, 0), (100, 110, 2, 2), (111, 120, 0, 1), (121, 130, 0, 0)]
    assert after(start_offset=131) == []
    assert read(broker, group_id, topic.id).start_offset == 131


@pytest.mark.parametrize("seed", range(6))
def test_many_writes(broker: Wire, topic: Topic, seed: int) -> None:
    dice, group_id = random.Random(seed), share_group(broker)
    initialize(broker, group_id, topic.id)
    states: dict[int, tuple[int, int]] = {}
    start = 0
    for _ in range(40):
        batches = []
        for _ in range(dice.randrange(4)):
            first = dice.randrange(start, start + 40)
            batches.append((first, first + dice.randrange(12), dice.choice((0, 2, 3, 4)), dice.randrange(1, 5)))
        start += dice.choice((0, 0, 0, 0, 3, 7))
        assert write(broker, group_id, topic.id, batches, start_offset=start) == DONE
        for first, last, state, count in batches:
            for offset in range(first, last + 1):
                states[offset] = max(states.get(offset, (-1, -1)), (count, state))
    expected: list[tuple[int, int, int, int]] = []
    for offset in sorted(offset for offset in states if offset >= start):
        count, state = states[offset]
        if expected and expected[-1][1:] == (offset - 1, state, count):
            expected[-1] = (expected[-1][0], offset, state, count)
        else:
            expected.append((offset, offset, state, count))
    assert read(broker, group_id, topic.id) == ("NONE", None, 0, start, expected)


def test_the_delivery_complete_count_belongs_to_its_start_offset(broker: Wire, topic: Topic) -> None:
    group_id = share_group(broker)
    initialize(broker, group_id, topic.id)

    def after(start_offset: int, complete: int) -> tuple[int, int]:
        assert write(broker, group_id, topic.id, start_offset=start_offset, complete=complete) == DONE
        return summary(broker, group_id, topic.id)[4:]

    assert after(3, 5) == (3, 5)
    assert after(3, 4) == (3, 5)
    assert after(3, -1) == (3, 5)
    assert after(2, 9) == (3, 5)
    assert after(-1, 4) == (3, 5)
    assert after(7, -1) == (7, -1)
    assert after(8, 1) == (8, 1)
    assert after(8, 0) == (8, 1)


@pytest.mark.parametrize("version", versions(API))
def test_version_0_has_no_count(broker: Wire, topic: Topic, version: int) -> None:
    group_id = share_group(broker)
    initialize(broker, group_id, topic.id)
    written = write(broker, group_id, topic.id, start_offset=1, complete=4, version=version)
    assert (written, summary(broker, group_id, topic.id)[5]) == (DONE, -1 if version == 0 else 4)


def test_older_state_and_leader_epochs_are_fenced(broker: Wire, topic: Topic) -> None:
    group_id = share_group(broker)
    initialize(broker, group_id, topic.id, state_epoch=2)
    batch = [(0, 1, 2, 1)]
    assert write(broker, group_id, topic.id, batch, state_epoch=1)[0] == "FENCED_STATE_EPOCH"
    assert read(broker, group_id, topic.id, leader_epoch=3).error == "NONE"
    assert write(broker, group_id, topic.id, batch, state_epoch=1, leader_epoch=2)[0] == "FENCED_LEADER_EPOCH"
    assert write(broker, group_id, topic.id, batch, state_epoch=2, leader_epoch=2)[0] == "FENCED_LEADER_EPOCH"
    assert read(broker, group_id, topic.id, leader_epoch=3).batches == []


def test_a_write_changes_no_epoch(broker: Wire, topic: Topic) -> None:
    group_id = share_group(broker)
    initialize(broker, group_id, topic.id, state_epoch=2)
    assert write(broker, group_id, topic.id, [(0, 1, 2, 1)], state_epoch=5, leader_epoch=3) == DONE
    assert summary(broker, group_id, topic.id)[2:4] == (2, 0)
    assert write(broker, group_id, topic.id, [(2, 2, 2, 1)], state_epoch=2, leader_epoch=0) == DONE
    assert read(broker, group_id, topic.id) == ("NONE", None, 2, 0, [(0, 2, 2, 1)])


def test_invalid_requests_are_refused(broker: Wire, topic: Topic) -> None:
    group_id = share_group(broker)
    negative = "The {} cannot be a negative number."
    assert write(broker, group_id, topic.id) == UNINITIALIZED
    assert write(broker, group_id, bytes(16)) == UNINITIALIZED
    assert write(broker, group_id, b"x" * 16) == UNINITIALIZED
    initialize(broker, group_id, topic.id)
    assert write(broker, group_id, topic.id, partition=1) == UNINITIALIZED
    wrong = write(broker, group_id, topic.id, partition=-1, state_epoch=-1, leader_epoch=-1)
    assert wrong == ("INVALID_REQUEST", negative.format("partition id"))
    wrong = write(broker, group_id, topic.id, state_epoch=-1, leader_epoch=-1)
    assert wrong == ("INVALID_REQUEST", negative.format("leader epoch"))
    wrong = write(broker, group_id, topic.id, state_epoch=-1)
    assert wrong == ("INVALID_REQUEST", negative.format("state epoch"))


def test_a_batch_that_ends_before_it_begins(broker: Wire, topic: Topic) -> None:
    """Kafka 4.4 stumbles over it (UNKNOWN_SERVER_ERROR); here it is the sender's fault. Nothing is written by either."""
    group_id = share_group(broker)
    initialize(broker, group_id, topic.id)
    code, _ = write(broker, group_id, topic.id, [(0, 3, 2, 1), (40, 30, 4, 1)])
    assert code == ("UNKNOWN_SERVER_ERROR" if broker.is_kafka else "INVALID_REQUEST")
    assert read(broker, group_id, topic.id).batches == []


def test_nothing_to_do(broker: Wire, topic: Topic) -> None:
    group_id = share_group(broker)
    part = PartitionData(partition=0, state_epoch=0, leader_epoch=0, start_offset=0, state_batches=[])
    whole = WriteStateData(topic_id=topic.id, partitions=[part])
    empty = WriteStateData(topic_id=topic.id, partitions=[])
    for name, topics in (("", [whole]), (group_id, []), (group_id, [empty]), (group_id, [whole, empty])):
        assert broker.send(WriteShareGroupStateRequest(group_id=name, topics=topics), 1).results == []
