"""Committed offsets as blocks of records: the same bytes and state as by the codec and one after the other."""

import gc
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinators.groups import committed_offset
from ottla.coordinators.groups.offset_commits import OffsetCommits, replay_run
from ottla.coordinators.groups.records import LegacyOffsetCommitKey, decode_record, offset_tombstone
from ottla.coordinators.groups.state import Groups, GroupSettings
from ottla.coordinators.records import CoordinatorRecord
from ottla.protocol.messages.offset_commit import OffsetCommitRequestPartition
from ottla.protocol.messages.offset_commit_record import OffsetCommitKey, OffsetCommitValue
from ottla.records.record import Record

from .world import CountingRandom

names = st.text(max_size=5)
ids = st.one_of(st.just(bytes(16)), st.binary(min_size=16, max_size=16))
partitions = st.builds(
    OffsetCommitRequestPartition,
    partition_index=st.integers(0, 5),
    committed_offset=st.integers(-(2**63), 2**63 - 1),
    committed_leader_epoch=st.integers(-1, 2**31 - 1),
    committed_metadata=st.one_of(st.none(), names),
    commit_timestamp=st.one_of(st.just(-1), st.integers(0, 2**62)),
)
topics = st.lists(st.tuples(names, ids, st.lists(partitions, max_size=4)), max_size=3)
Rows = list[tuple[str, bytes, list[OffsetCommitRequestPartition]]]
NOW = 1_700_000_000_000


def commits_of(group: str, expires: int, rows: Rows) -> OffsetCommits:
    commits = OffsetCommits(group, expires)
    for topic, topic_id, asked in rows:
        commits.add(topic, topic_id, asked, NOW)
    return commits


@given(group=names, expires=st.sampled_from([-1, NOW]), rows=topics)
def test_records_are_encoded_as_by_the_codec(group: str, expires: int, rows: Rows) -> None:
    commits = commits_of(group, expires, rows)
    assert commits.encoded() == [record.encoded() for record in commits]
    assert len(commits) == sum(len(asked) for _, _, asked in rows)


@given(rows=topics, is_pending=st.booleans())
def test_the_state_is_that_of_its_records(rows: Rows, is_pending: bool) -> None:
    commits = commits_of("g", -1, rows)
    together, one_by_one = Groups(GroupSettings(), CountingRandom()), Groups(GroupSettings(), CountingRandom())
    if is_pending and len(commits):
        for state in (together, one_by_one):
            state.replay_pending(commits[0], 7)
    commits.replay(together)
    for record in commits:
        one_by_one.replay(record)
    for state in (together, one_by_one):
        state.replay_end(7, commit=True)
    assert offsets_of(together) == offsets_of(one_by_one)
    assert set(together.groups) == set(one_by_one.groups)


def offsets_of(groups: Groups) -> list[tuple[str, str, int, OffsetCommitValue]]:
    return [
        (group, topic, index, committed.message())
        for group, topics in groups.offsets.items()
        for topic, partitions in topics.items()
        for index, committed in partitions.items()
    ]


def logged(pairs: Sequence[tuple[bytes, bytes | None]]) -> list[Record]:
    return [Record(offset, -1, key, value) for offset, (key, value) in enumerate(pairs)]


def other_records(group: str) -> st.SearchStrategy[tuple[bytes, bytes | None]]:
    """Records that end a run: tombstones, keys of the first type, other versions, and what other writers may append."""
    value = OffsetCommitValue(offset=7, leader_epoch=2, metadata="", commit_timestamp=NOW)
    key = OffsetCommitKey(group=group, topic="t", partition=1)
    plain_key, plain_value = CoordinatorRecord(key, value, 4).encoded()
    assert plain_value is not None
    return st.sampled_from(
        [
            offset_tombstone(group, "t", 1).encoded(),
            CoordinatorRecord(LegacyOffsetCommitKey(group=group, topic="t", partition=1), value, 3).encoded(),
            CoordinatorRecord(key, value, 3).encoded(),
            (plain_key, plain_value[:-1] + b"\1\5\1x"),  # an unknown tag
            (plain_key + b"\0\0\0\2", plain_value),  # bytes behind the key, which the codec leaves out
            (plain_key, plain_value + b"x"),
        ]
    )


@given(data=st.data(), group=names, rows=topics)
def test_a_run_is_loaded_as_its_records_one_by_one(data: st.DataObject, group: str, rows: Rows) -> None:
    pairs: list[tuple[bytes, bytes | None]] = list(commits_of(group, -1, rows).encoded())
    for place, pair in data.draw(st.lists(st.tuples(st.integers(0, len(pairs)), other_records(group)), max_size=3)):
        pairs.insert(place, pair)
    records = logged(pairs)
    together, one_by_one = Groups(GroupSettings(), CountingRandom()), Groups(GroupSettings(), CountingRandom())
    at = 0
    while at < len(records):
        end = data.draw(st.integers(at + 1, len(records)))
        reached = replay_run(together, records, at, end)
        assert at <= reached <= end
        if reached == at:
            replay_one(together, records[at])
            reached += 1
        at = reached
    for record in records:
        replay_one(one_by_one, record)
    assert offsets_of(together) == offsets_of(one_by_one)
    assert set(together.groups) == set(one_by_one.groups)


def replay_one(groups: Groups, record: Record) -> None:
    assert record.key is not None
    decoded = decode_record(record.key, record.value)
    assert decoded is not None
    groups.replay(decoded)


@pytest.mark.parametrize("topic_id", [bytes(16), bytes(range(16))])
def test_a_commit_is_one_run(topic_id: bytes) -> None:
    asked = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=9, committed_metadata="")
        for index in range(5)
    ]
    records = logged(commits_of("g", -1, [("t", topic_id, asked), ("u", topic_id, asked[:1])]).encoded())
    groups = Groups(GroupSettings(), CountingRandom())
    assert replay_run(groups, records, 0, 3) == 3
    assert replay_run(groups, records, 3, 6) == 5
    assert list(groups.offsets["g"]["t"]) == list(range(5))
    assert {value.topic_id for value in groups.offsets["g"]["t"].values()} == {topic_id}
    groups.replay_pending(CoordinatorRecord(OffsetCommitKey(group="g", topic="t", partition=0), None), 7)
    assert replay_run(groups, records, 5, 6) == 5, "a transaction is open: its order among the others matters"


def test_offsets_with_another_topic_id_are_another_run() -> None:
    asked = [OffsetCommitRequestPartition(partition_index=3, committed_offset=9, committed_metadata="")]
    first, second = b"1" * 16, b"2" * 16
    records = logged(commits_of("g", -1, [("t", first, asked), ("t", second, asked)]).encoded())
    groups = Groups(GroupSettings(), CountingRandom())
    assert replay_run(groups, records, 0, 2) == 1
    assert replay_run(groups, records, 1, 2) == 2
    assert groups.offsets["g"]["t"][3].topic_id == second


def test_metadata_that_looks_like_a_topic_id_is_left_to_the_codec() -> None:
    metadata = "a" * 8 + "\1\0\x10" + "b" * 7  # as long as the id and its tag, which would begin in the middle of it
    value = OffsetCommitValue(offset=7, leader_epoch=2, metadata=metadata, commit_timestamp=NOW)
    key = OffsetCommitKey(group="g", topic="t", partition=1)
    groups = Groups(GroupSettings(), CountingRandom())
    assert replay_run(groups, logged([CoordinatorRecord(key, value, 4).encoded()]), 0, 1) == 0


def test_the_garbage_collector_does_not_look_at_compiled_offsets() -> None:
    """A broker with a million of them stopped for 0.1 s in each full collection."""
    if committed_offset.__file__.endswith(".py"):
        pytest.skip("the modules are not compiled")
    assert not gc.is_tracked(committed_offset.CommittedOffset(7, -1, "metadata", NOW))
