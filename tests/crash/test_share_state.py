"""Share groups are there after kill -9: members and their partitions, and every delivery state that was acknowledged."""

import random
from collections.abc import Iterator

import pytest

from tests.conformance.conftest import TopicFactory
from tests.conformance.consumers import configure
from tests.conformance.members import wait_for
from tests.conformance.share_members import (
    Sharer,
    all_of,
    alter,
    altered,
    described,
    initialize,
    offsets,
    places,
    read,
    settle,
    share_group,
    summary,
    write,
)

from .conftest import Process, Start

SHORT = (
    "-o",
    "share.coordinator.snapshot.update.records.per.snapshot=7",
    "-o",
    "share.coordinator.state.topic.prune.interval.ms=20",
    "-o",
    "share.coordinator.cold.partition.snapshot.interval.ms=50",
    "-o",
    "share.coordinator.state.topic.segment.bytes=1048576",
    "-o",
    "log.initial.task.delay.ms=50",
    "-o",
    "log.retention.check.interval.ms=50",
    "-o",
    "log.segment.delete.delay.ms=0",
)
"""Snapshots, pruning and new segments all the time."""
Batch = tuple[int, int, int, int]


def again(start: Start, process: Process, *options: str) -> Process:
    """The broker after kill -9, when both coordinators have read their logs."""
    process.kill()
    restarted = start(*options)
    share_group(restarted.wire())
    return restarted


def writes(dice: random.Random) -> Iterator[tuple[int, list[Batch]]]:
    """Start offsets and batches as a share partition writes them: what is acknowledged, what is given up, what goes back."""
    start = 0
    while True:
        start += dice.choice((0, 0, 0, 1, 5))
        first = dice.randrange(start, start + 50)
        batch = first, first + dice.randrange(10), dice.choice((0, 2, 4)), dice.randrange(1, 6)
        yield start, [batch] if dice.random() < 0.9 else []


@pytest.mark.parametrize("options", [(), SHORT], ids=["plain", "pruned"])
def test_delivery_states_survive_kill_9(start: Start, dice: random.Random, options: tuple[str, ...]) -> None:
    process = start(*options)
    wire = process.wire()
    topic, group_id = TopicFactory(wire)(3), share_group(wire)
    coming = [writes(dice) for _ in range(3)]
    for partition in range(3):
        initialize(wire, group_id, topic.id, partition, state_epoch=1)
        read(wire, group_id, topic.id, partition, leader_epoch=2)
    for _ in range(4):
        for _ in range(60):
            partition = dice.randrange(3)
            offset, batches = next(coming[partition])
            written = write(
                wire,
                group_id,
                topic.id,
                batches,
                partition=partition,
                state_epoch=1,
                leader_epoch=2,
                start_offset=offset,
                complete=dice.randrange(5),
            )
            assert written == ("NONE", None)
        states = [read(wire, group_id, topic.id, partition, leader_epoch=2) for partition in range(3)]
        stood = [summary(wire, group_id, topic.id, partition) for partition in range(3)]
        process = again(start, process, *options)
        wire = process.wire()
        assert [read(wire, group_id, topic.id, partition, leader_epoch=2) for partition in range(3)] == states
        assert [summary(wire, group_id, topic.id, partition) for partition in range(3)] == stood
        assert read(wire, group_id, topic.id, leader_epoch=1).error == "FENCED_LEADER_EPOCH"


def test_the_log_of_states_stays_short(start: Start) -> None:
    process = start(*SHORT)
    wire = process.wire()
    topic, group_id = TopicFactory(wire)(1), share_group(wire)
    initialize(wire, group_id, topic.id)

    def kept() -> int:
        return sum(
            path.stat().st_size
            for directory in process.data_dir.glob("__share_group_state-*")
            for path in directory.glob("*.log")
        )

    for offset in range(0, 6000, 2):
        window = [(position, position, 2, 1) for position in range(offset, offset + 60, 2)]
        assert write(wire, group_id, topic.id, window, start_offset=offset) == ("NONE", None)
    wait_for(lambda: kept() < 1 << 20)  # of more than two segments
    state = read(wire, group_id, topic.id)
    assert (state.start_offset, len(state.batches)) == (5998, 30)
    process = again(start, process, *SHORT)
    assert read(process.wire(), group_id, topic.id) == state


def test_members_keep_their_partitions(start: Start) -> None:
    process = start()
    wire = process.wire()
    topic, group_id = TopicFactory(wire)(4), share_group(wire)
    configure(wire, group_id, share_assignment_interval_ms="0")
    members = [Sharer(wire, group_id) for _ in range(3)]
    for member in members:
        member.join(topic.name)
    settle(all_of(topic, 4), *members)
    before = described(wire, group_id)
    process = again(start, process)
    wire = process.wire()
    after = described(wire, group_id)
    assert after.members == before.members
    assert (after.group_state, after.group_epoch, after.assignment_epoch) == (
        "Stable",
        before.group_epoch,
        before.group_epoch,
    )
    for member in members:
        member.wire = wire
        answer = member.beat()
        assert (answer.error_code, answer.member_epoch, answer.assignment) == (0, before.group_epoch, None)
    for member in members:
        member.leave()
    start_offsets = {index: 10 + index for index in range(4)}
    assert set(altered(alter(wire, group_id, [(topic.name, start_offsets)])).values()) == {("NONE", None)}
    process = again(start, process)
    wire = process.wire()
    assert {place[1]: stands for place, (stands, _) in places(offsets(wire, group_id)).items()} == start_offsets
