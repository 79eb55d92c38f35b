"""Fetch sessions (KIP-227): epochs, what changes between two fetches, and who has to go when the cache is full."""

from pathlib import Path

import pytest
from tests.queues import manual_queue, run_queue

from ottla.broker.requests.fetch_session import FetchSession, FetchSessions, RequestedPartition
from ottla.environment.disk import DiskStore
from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.protocol.errors import (
    FETCH_SESSION_ID_NOT_FOUND,
    FETCH_SESSION_TOPIC_ID_ERROR,
    INVALID_FETCH_SESSION_EPOCH,
    NONE,
)
from ottla.replication.partition import Partition

IDLE_MS = 1000


class Scripted:
    """Randomness from a list."""

    def __init__(self, *numbers: int) -> None:
        self._numbers = list(numbers)

    def bytes16(self) -> bytes:
        return bytes(16)

    def below(self, bound: int) -> int:
        return self._numbers.pop(0)


def begin_session(sessions: FetchSessions, now_ms: int = 0, instead_of: int = 0) -> FetchSession:
    session = sessions.begin(instead_of, now_ms, by_id=True)
    assert session is not None
    return session


def test_epochs_follow_one_another_and_wrap_to_1() -> None:
    sessions = FetchSessions(2, IDLE_MS, Scripted(6), manual_queue())
    session = begin_session(sessions)
    assert (session.id, session.epoch) == (7, 1)
    assert sessions.resume(7, 1, 0, by_id=True) == (NONE, session)
    assert sessions.resume(7, 1, 0, by_id=True) == (INVALID_FETCH_SESSION_EPOCH, None)
    assert sessions.resume(7, 2, 0, by_id=True) == (NONE, session)
    session.epoch = 2**31 - 1
    assert sessions.resume(7, 2**31 - 1, 0, by_id=True) == (NONE, session)
    assert session.epoch == 1


def test_unknown_sessions_and_names_in_place_of_ids_are_errors() -> None:
    sessions = FetchSessions(2, IDLE_MS, Scripted(6), manual_queue())
    begin_session(sessions)
    assert sessions.resume(8, 1, 0, by_id=True) == (FETCH_SESSION_ID_NOT_FOUND, None)
    assert sessions.resume(7, 1, 0, by_id=False) == (FETCH_SESSION_TOPIC_ID_ERROR, None)
    sessions.end(7)
    sessions.end(7)
    assert sessions.resume(7, 1, 0, by_id=True) == (FETCH_SESSION_ID_NOT_FOUND, None)


def test_ids_are_not_given_twice() -> None:
    sessions = FetchSessions(3, IDLE_MS, Scripted(6, 6, 6, 8), manual_queue())
    assert [begin_session(sessions).id, begin_session(sessions).id] == [7, 9]


def test_a_new_session_takes_the_place_of_the_old_one() -> None:
    sessions = FetchSessions(1, IDLE_MS, Scripted(6, 8), manual_queue())
    begin_session(sessions)
    assert begin_session(sessions, instead_of=7).id == 9
    assert len(sessions) == 1


def test_a_full_cache_gives_up_the_one_that_was_idle_longest() -> None:
    sessions = FetchSessions(2, IDLE_MS, Scripted(0, 1, 2), manual_queue())
    begin_session(sessions, 0)
    begin_session(sessions, 10)
    assert sessions.resume(1, 1, 20, by_id=True)[0] == NONE
    assert sessions.begin(0, IDLE_MS + 9, by_id=True) is None
    assert begin_session(sessions, IDLE_MS + 10).id == 3
    assert sessions.resume(2, 1, IDLE_MS + 10, by_id=True)[0] == FETCH_SESSION_ID_NOT_FOUND
    assert sessions.resume(1, 2, IDLE_MS + 10, by_id=True)[0] == NONE


def test_a_cache_without_slots_begins_no_session() -> None:
    assert FetchSessions(0, IDLE_MS, Scripted(), manual_queue()).begin(0, 10**9, by_id=True) is None


@pytest.fixture
def session() -> FetchSession:
    session = FetchSession(7, 0, manual_queue(), by_id=False)
    session.update([RequestedPartition("t", bytes(16), index, -1, 0, 100) for index in range(3)], [])
    return session


def test_a_fetch_updates_and_removes_partitions_of_its_session(session: FetchSession) -> None:
    held = session.partitions["t", bytes(16), 1]
    held.last_high_watermark = 5
    session.update([RequestedPartition("t", bytes(16), 1, 4, 9, 50)], [("t", bytes(16), 0), ("u", bytes(16), 0)])
    assert [index for _, _, index in session.partitions] == [1, 2]
    assert session.partitions["t", bytes(16), 1] is held
    assert (held.current_epoch, held.fetch_offset, held.max_bytes, held.last_high_watermark) == (4, 9, 50, 5)


def test_a_follower_gets_a_session_although_the_cache_is_full_and_its_abandoned_ones_end() -> None:
    sessions = FetchSessions(1, IDLE_MS, Scripted(1, 2, 3, 4), manual_queue())
    consumer = begin_session(sessions)
    abandoned = sessions.begin(0, 0, by_id=True, is_of_follower=True)
    assert abandoned is not None
    used = sessions.begin(0, IDLE_MS - 1, by_id=True, is_of_follower=True)
    assert used is not None
    assert len(sessions) == 3
    newest = sessions.begin(0, IDLE_MS, by_id=True, is_of_follower=True)
    assert newest is not None
    assert sessions.resume(abandoned.id, 1, IDLE_MS, by_id=True) == (FETCH_SESSION_ID_NOT_FOUND, None)
    for kept in (consumer, used, newest):
        assert sessions.resume(kept.id, 1, IDLE_MS, by_id=True) == (NONE, kept)


def test_the_fetch_of_a_follower_waits_for_the_log_end_and_not_for_the_high_watermark(tmp_path: Path) -> None:
    queue = manual_queue()
    partition = Partition("t", bytes(16), 0, Log(DiskStore(), tmp_path, LogConfig()), 1, 0, lambda _: None, queue)
    session = FetchSession(1, 0, queue, by_id=True, is_of_follower=True)
    requested = RequestedPartition("t", bytes(16), 0, -1, 0, 1000)
    session.update([requested], ())
    requested.watch(partition)
    session.settle(requested)
    wakes: list[str] = []
    session.watchers.add(lambda: wakes.append("woken"))
    partition.watchers.wake()
    run_queue(queue)
    assert wakes == []
    assert session.due() == [requested]  # the next response has the new high watermark
    partition.end_watchers.wake()
    run_queue(queue)
    assert wakes == ["woken"]
    session.close()
    assert not partition.watchers.marks
    assert not partition.end_watchers.marks
    partition.log.close(clean=False)
