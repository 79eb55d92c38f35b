"""Committed offsets as blocks of records: the same bytes and state as by the codec and one after the other."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinators.groups.offset_commits import OffsetCommits
from ottla.coordinators.groups.state import Groups, GroupSettings
from ottla.protocol.messages.offset_commit import OffsetCommitRequestPartition

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
    assert together.offsets == one_by_one.offsets
    assert set(together.groups) == set(one_by_one.groups)
