"""Fetches of a follower: requests, and the effect of each row, by the rules of KIP-227, KIP-320 and KIP-595.

One file, because every test plays rows into the same one fetcher of a follower; the rules of a row differ by its error only.
"""

from typing import Any

import pytest

from ottla.protocol import errors
from ottla.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.replication.follower.fetching import Fetching, FetchLimits
from ottla.replication.follower.followed import (
    EARLIEST,
    LATEST,
    Append,
    Begin,
    Diverge,
    Effect,
    FollowedPartition,
    LookUp,
    Position,
    Restart,
    Truncate,
)

ID = b"t" * 16
OTHER = b"u" * 16
SESSION = 77


def row(index: int, code: int = errors.NONE, *, records: bytes = b"", end: int = 0, start: int = 0) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=end,
        log_start_offset=start,
        aborted_transactions=None,
        records=records,
    )


def response(*rows: PartitionData, session: int = SESSION, code: int = errors.NONE) -> FetchResponse:
    topics = [FetchableTopicResponse(topic_id=ID, partitions=list(rows))] if rows else []
    return FetchResponse(error_code=code, session_id=session, responses=topics)


def named(request: FetchRequest | None) -> list[tuple[int, int, int, int, int]]:
    """Return index, leader epoch, fetch offset, last fetched epoch and log start offset of each partition."""
    assert request is not None
    return [
        (row.partition, row.current_leader_epoch, row.fetch_offset, row.last_fetched_epoch, row.log_start_offset)
        for topic in request.topics
        for row in topic.partitions
    ]


def forgotten(request: FetchRequest | None) -> list[int]:
    assert request is not None
    return [index for topic in request.forgotten_topics_data for index in topic.partitions]


def session_of(request: FetchRequest | None) -> tuple[int, int]:
    assert request is not None
    return request.session_id, request.session_epoch


class World:
    """A machine with the time of its last event, and the partitions of the leader's session."""

    def __init__(self, *indexes: int, limits: FetchLimits | None = None) -> None:
        self.now = 1000
        self.machine = Fetching(2, 9, limits or FetchLimits())
        self.session: dict[int, tuple[int, int, int, int, int]] = {}
        for index in indexes:
            self.follow(index)

    def follow(self, index: int, epoch: int = 5, position: Position | None = None) -> FollowedPartition:
        begun = self.machine.follow("t", ID, index, epoch)
        assert begun is not None
        assert begun == Begin(begun.partition, epoch)
        self.machine.resume(begun.partition, position or Position(10, 4, 0))
        return begun.partition

    def send(self) -> FetchRequest:
        request = self.machine.request(self.now)
        assert request is not None
        if request.session_epoch == 0:
            self.session.clear()
        for index in forgotten(request):
            del self.session[index]
        self.session.update((values[0], values) for values in named(request))
        return request

    def fetched(self) -> list[tuple[int, int, int, int, int]]:
        """Send the next request, and return the values of all partitions that it fetches."""
        self.send()
        return sorted(self.session.values())

    def answer(self, request: FetchRequest, *rows: PartitionData, **fields: Any) -> list[Effect]:
        return self.machine.on_response(request, response(*rows, **fields), self.now)

    def exchange(self, *rows: PartitionData, **fields: Any) -> list[Effect]:
        """Send the next request, and answer it."""
        return self.answer(self.send(), *rows, **fields)

    def partition(self, index: int) -> FollowedPartition:
        partition = self.machine.find(ID, index)
        assert partition is not None
        return partition

    def resume(self, effect: Effect, offset: int = 10, epoch: int = 4, start: int = 0) -> None:
        self.machine.resume(effect.partition, Position(offset, epoch, start))

    def sleeps(self) -> int:
        """Return the time until the next request is due, and let it pass."""
        assert self.machine.request(self.now) is None
        due = self.machine.due_ms()
        assert due is not None
        waited, self.now = due - self.now, due
        return waited


# -- requests --


def test_a_request_has_the_state_of_the_replica_and_the_limits() -> None:
    request = World(0, limits=FetchLimits(3, 400, 5_000, 60_000, 1000)).send()
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (2, 9)
    assert (request.replica_id, request.isolation_level) == (-1, 0)
    assert (request.min_bytes, request.max_wait_ms, request.max_bytes) == (3, 400, 60_000)
    assert request.topics[0].topic_id == ID
    assert request.topics[0].partitions[0].partition_max_bytes == 5_000


def test_nothing_is_sent_without_a_partition_or_while_a_request_runs() -> None:
    world = World()
    assert world.machine.request(world.now) is None
    assert world.machine.due_ms() is None
    world.follow(0)
    world.send()
    assert world.machine.request(world.now) is None
    assert world.machine.due_ms() is None


def test_a_busy_partition_is_not_fetched() -> None:
    world = World()
    begun = world.machine.follow("t", ID, 0, 5)
    assert begun is not None
    assert world.machine.request(world.now) is None
    world.resume(begun)
    assert named(world.send()) == [(0, 5, 10, 4, 0)]


def test_an_incremental_request_names_only_what_is_new() -> None:
    world = World(0, 1, 2)
    first = world.send()
    assert session_of(first) == (0, 0)
    assert named(first) == [(0, 5, 10, 4, 0), (1, 5, 10, 4, 0), (2, 5, 10, 4, 0)]
    (appended,) = world.answer(first, row(1, records=b"batch", end=12))
    world.resume(appended, 12, 5)
    second = world.send()
    assert (session_of(second), named(second)) == ((SESSION, 1), [(1, 5, 12, 5, 0)])
    world.answer(second)
    third = world.send()
    assert (session_of(third), third.topics, third.forgotten_topics_data) == ((SESSION, 2), [], [])


def test_a_new_log_start_is_named() -> None:
    world = World(0)
    (appended,) = world.exchange(row(0, start=4))
    assert isinstance(appended, Append)
    assert appended.start_offset == 4
    world.resume(appended, start=4)
    assert named(world.send()) == [(0, 5, 10, 4, 4)]


def test_a_moved_high_watermark_names_nothing() -> None:
    world = World(0)
    (appended,) = world.exchange(row(0, end=9))
    assert isinstance(appended, Append)
    assert (appended.high_watermark, appended.epoch, appended.records) == (9, 5, b"")
    world.resume(appended)
    assert world.send().topics == []


def test_an_unfollowed_partition_is_forgotten_and_its_rows_are_void() -> None:
    world = World(0, 1)
    request = world.send()
    world.machine.unfollow(ID, 0)
    assert world.answer(request, row(0, records=b"batch")) == []
    following = world.send()
    assert (named(following), forgotten(following)) == ([], [0])


@pytest.mark.parametrize("epoch", [5, 6])
def test_a_partition_that_is_followed_again_is_forgotten_then_named(epoch: int) -> None:
    """The leader returns only what is new in the session: a row that was lost with the old epoch would not be repeated."""
    world = World(0, 1)
    world.exchange()
    if epoch == 5:
        world.machine.unfollow(ID, 0)
    world.follow(0, epoch)
    request = world.send()
    assert (named(request), forgotten(request), request.max_wait_ms) == ([], [0], 0)
    world.answer(request)
    request = world.send()
    assert (named(request), forgotten(request), request.max_wait_ms) == ([(0, epoch, 10, 4, 0)], [], 500)


def test_the_last_partition_leaves_without_a_request() -> None:
    world = World(0)
    world.exchange()
    world.machine.unfollow(ID, 0)
    assert world.machine.request(world.now) is None
    world.follow(1)
    request = world.send()
    assert (session_of(request), named(request), forgotten(request)) == ((SESSION, 1), [(1, 5, 10, 4, 0)], [0])


def test_a_flush_that_takes_long_takes_its_partition_out_of_the_session() -> None:
    world = World(0, 1)
    (appended,) = world.exchange(row(0, records=b"batch", end=11))
    assert world.sleeps() == 20
    request = world.send()
    assert (named(request), forgotten(request)) == ([], [0])
    world.answer(request)
    world.resume(appended, 11)
    assert named(world.send()) == [(0, 5, 11, 4, 0)]


def test_a_flush_that_is_short_keeps_its_partition_in_the_session() -> None:
    world = World(0, 1)
    (appended,) = world.exchange(row(0, records=b"batch", end=11))
    assert world.machine.request(world.now) is None
    world.now += 5
    world.resume(appended, 11)
    request = world.send()
    assert (named(request), forgotten(request)) == ([(0, 5, 11, 4, 0)], [])


def test_a_request_waits_briefly_at_the_leader_while_partitions_are_busy() -> None:
    world = World(0)
    begun = world.machine.follow("t", ID, 1, 5)
    assert begun is not None
    request = world.send()
    assert (named(request), request.max_wait_ms) == ([(0, 5, 10, 4, 0)], 20)
    world.answer(request)
    world.resume(begun)
    assert world.send().max_wait_ms == 500


def test_many_partitions_are_named_in_several_requests() -> None:
    world = World(*range(2_500))
    request = world.send()
    assert (len(named(request)), request.max_wait_ms) == (1000, 0)
    world.answer(request)
    request = world.send()
    assert (len(named(request)), request.max_wait_ms, session_of(request)) == (1000, 0, (SESSION, 1))
    world.answer(request)
    request = world.send()
    assert (len(named(request)), request.max_wait_ms) == (500, 500)


def test_partitions_rotate_without_a_session() -> None:
    world = World(0, 1, 2)
    effects = world.exchange(row(0, records=b"batch"), session=0)
    world.resume(effects[0], 11)
    request = world.send()
    assert session_of(request) == (0, 0)
    assert [index for index, *_ in named(request)] == [1, 2, 0]


# -- rows that do not count --


def test_a_row_of_an_older_leader_epoch_does_not_count() -> None:
    world = World(0)
    request = world.send()
    world.follow(0, epoch=6)
    assert world.answer(request, row(0, records=b"batch")) == []
    world.exchange()
    assert world.fetched() == [(0, 6, 10, 4, 0)]


def test_a_row_of_another_fetch_offset_does_not_count() -> None:
    world = World(0)
    request = world.send()
    world.follow(0, epoch=6, position=Position(8, 4, 0))
    world.machine.request_aside(world.now)
    assert world.answer(request, row(0, records=b"batch")) == []


def test_a_second_row_of_the_same_partition_does_not_count() -> None:
    world = World(0)
    assert len(world.exchange(row(0, records=b"batch"), row(0, records=b"batch"))) == 1


def test_a_row_of_an_unknown_partition_does_not_count() -> None:
    assert World(0).exchange(row(7, records=b"batch")) == []


def test_a_response_counts_once() -> None:
    world = World(0)
    request = world.send()
    (appended,) = world.answer(request, row(0, end=10))
    world.resume(appended)
    assert world.answer(request, row(0, records=b"batch")) == []


def test_a_response_after_the_connection_was_given_up_does_not_count() -> None:
    world = World(0)
    request = world.send()
    world.machine.on_failure(request, world.now)
    assert world.answer(request, row(0, records=b"batch")) == []


def test_an_effect_is_void_after_a_newer_epoch_or_when_unfollowed() -> None:
    world = World(0, 1)
    first, second = world.exchange(row(0, records=b"batch"), row(1, records=b"batch"))
    assert world.machine.is_current(first)
    world.machine.follow("t", ID, 0, 6)
    world.machine.unfollow(ID, 1)
    assert not world.machine.is_current(first)
    assert not world.machine.is_current(second)
    world.follow(1)
    assert not world.machine.is_current(second)


def test_an_older_or_equal_epoch_changes_nothing() -> None:
    world = World(0)
    assert world.machine.follow("t", ID, 0, 5) is None
    assert world.machine.follow("t", ID, 0, 4) is None
    assert named(world.send()) == [(0, 5, 10, 4, 0)]


# -- errors of a partition --


def test_divergence_truncates_by_epoch() -> None:
    world = World(0)
    diverged = row(0, records=b"batch")
    diverged.diverging_epoch = EpochEndOffset(epoch=3, end_offset=7)
    (effect,) = world.exchange(diverged)
    assert effect == Diverge(world.partition(0), 5, 3, 7)
    world.resume(effect, 7, 3)
    assert named(world.send()) == [(0, 5, 7, 3, 0)]


def test_a_fenced_epoch_stops_until_the_metadata_brings_a_newer_one() -> None:
    world = World(0, 1)
    assert world.exchange(row(0, errors.FENCED_LEADER_EPOCH)) == []
    request = world.send()
    assert (named(request), forgotten(request)) == ([], [0])
    world.answer(request)
    world.machine.leader_restarted()
    world.now += 1_000_000
    request = world.send()
    assert named(request) == [(1, 5, 10, 4, 0)]
    world.answer(request)
    world.follow(0, epoch=6)
    assert named(world.send()) == [(0, 6, 10, 4, 0)]


@pytest.mark.parametrize(
    "code",
    [
        errors.UNKNOWN_LEADER_EPOCH,
        errors.NOT_LEADER_OR_FOLLOWER,
        errors.UNKNOWN_TOPIC_ID,
        errors.UNKNOWN_TOPIC_OR_PARTITION,
        errors.INCONSISTENT_TOPIC_ID,
        errors.KAFKA_STORAGE_ERROR,
        errors.CORRUPT_MESSAGE,
        errors.UNKNOWN_SERVER_ERROR,
    ],
)
def test_other_errors_back_off_longer_each_time(code: int) -> None:
    world = World(0)
    world.exchange(row(0, code))
    waits = []
    for _ in range(8):
        waits.append(world.sleeps())
        request = world.send()
        assert world.session == {0: (0, 5, 10, 4, 0)}
        assert world.answer(request, row(0, code)) == []
    assert waits == [20, 40, 80, 160, 320, 640, 1000, 1000]
    world.sleeps()
    (appended,) = world.exchange(row(0))
    world.resume(appended)
    world.exchange(row(0, code))
    assert world.sleeps() == 20


def test_a_partition_in_its_back_off_is_not_in_the_session() -> None:
    world = World(0, 1)
    world.exchange(row(0, errors.NOT_LEADER_OR_FOLLOWER))
    request = world.send()
    assert (named(request), forgotten(request)) == ([], [0])
    world.answer(request)
    world.now += 20
    assert named(world.send()) == [(0, 5, 10, 4, 0)]


def test_a_partition_with_an_error_is_named_again() -> None:
    """The leader records positions only when they are named, and has recorded none where it returned an error."""
    world = World(0, 1)
    world.exchange(row(1, errors.UNKNOWN_TOPIC_OR_PARTITION))
    world.now += 20
    request = world.send()
    assert (named(request), forgotten(request)) == ([(1, 5, 10, 4, 0)], [])


def test_the_longest_back_off_is_configured() -> None:
    world = World(0, limits=FetchLimits(backoff_ms=50))
    world.exchange(row(0, errors.UNKNOWN_LEADER_EPOCH))
    assert world.sleeps() == 20
    world.exchange(row(0, errors.UNKNOWN_LEADER_EPOCH))
    assert world.sleeps() == 40
    world.exchange(row(0, errors.UNKNOWN_LEADER_EPOCH))
    assert world.sleeps() == 50


def test_a_newer_epoch_ends_a_back_off() -> None:
    world = World(0)
    for _ in range(6):
        world.exchange(row(0, errors.UNKNOWN_LEADER_EPOCH))
        world.sleeps()
    world.exchange(row(0, errors.UNKNOWN_LEADER_EPOCH))
    assert world.machine.request(world.now) is None
    world.follow(0, epoch=6)
    world.exchange()
    assert world.exchange(row(0, errors.UNKNOWN_LEADER_EPOCH)) == []
    assert world.sleeps() == 20


def test_a_registration_of_the_leader_ends_back_offs_and_begins_a_session() -> None:
    world = World(0, 1)
    world.exchange(row(0, errors.NOT_LEADER_OR_FOLLOWER))
    world.machine.on_failure(world.send(), world.now)
    assert world.machine.request(world.now) is None
    world.machine.leader_restarted()
    request = world.send()
    assert session_of(request) == (0, 0)
    assert sorted(index for index, *_ in named(request)) == [0, 1]


def test_a_response_of_the_former_incarnation_does_not_count() -> None:
    world = World(0)
    request = world.send()
    world.machine.leader_restarted()
    assert world.answer(request, row(0, records=b"batch")) == []


def test_damaged_batches_are_fetched_again_from_the_intact_end() -> None:
    world = World(0)
    (appended,) = world.exchange(row(0, records=b"batch"))
    world.machine.pause(appended.partition, world.now, Position(11, 5, 0))
    assert world.sleeps() == 20
    world.exchange()
    (appended,) = world.exchange(row(0, records=b"batch"))
    world.machine.pause(appended.partition, world.now)
    assert world.sleeps() == 40
    world.exchange()
    assert world.fetched() == [(0, 5, 11, 5, 0)]


# -- an offset out of range --


def test_an_offset_beyond_the_leaders_end_truncates() -> None:
    world = World(0)
    (latest,) = world.exchange(row(0, errors.OFFSET_OUT_OF_RANGE))
    assert latest == LookUp(world.partition(0), 5, LATEST)
    assert isinstance(latest, LookUp)
    truncate = world.machine.on_looked_up(latest, 6, world.now)
    assert truncate == Truncate(world.partition(0), 5, 6)
    world.resume(truncate, 6, 3)
    assert named(world.send()) == [(0, 5, 6, 3, 0)]


def test_an_offset_below_the_leaders_start_begins_the_log_again() -> None:
    world = World(0)
    (latest,) = world.exchange(row(0, errors.OFFSET_OUT_OF_RANGE))
    assert isinstance(latest, LookUp)
    earliest = world.machine.on_looked_up(latest, 90, world.now)
    assert earliest == LookUp(world.partition(0), 5, EARLIEST)
    assert isinstance(earliest, LookUp)
    restart = world.machine.on_looked_up(earliest, 50, world.now)
    assert restart == Restart(world.partition(0), 5, 50)
    world.resume(restart, 50, -1, 50)
    assert named(world.send()) == [(0, 5, 50, -1, 50)]


def lose_offset(world: World) -> Effect | None:
    """Answer OFFSET_OUT_OF_RANGE for offset 10, of a log from 5 to 90."""
    (latest,) = world.exchange(row(0, errors.OFFSET_OUT_OF_RANGE))
    assert isinstance(latest, LookUp)
    earliest = world.machine.on_looked_up(latest, 90, world.now)
    assert isinstance(earliest, LookUp)
    return world.machine.on_looked_up(earliest, 5, world.now)


def test_an_offset_that_the_leader_has_is_fetched_again() -> None:
    world = World(0)
    assert lose_offset(world) is None
    assert world.sleeps() == 20
    (appended,) = world.exchange(row(0))
    world.resume(appended)
    assert lose_offset(world) is None


def test_a_log_whose_epochs_the_leader_does_not_know_begins_again() -> None:
    world = World(0)
    assert lose_offset(world) is None
    world.sleeps()
    assert lose_offset(world) == Restart(world.partition(0), 5, 5)


@pytest.mark.parametrize("steps", [1, 2])
def test_a_failed_look_up_backs_off(steps: int) -> None:
    world = World(0)
    (effect,) = world.exchange(row(0, errors.OFFSET_OUT_OF_RANGE))
    assert isinstance(effect, LookUp)
    if steps == 2:
        following = world.machine.on_looked_up(effect, 90, world.now)
        assert isinstance(following, LookUp)
        effect = following
    assert world.machine.on_looked_up(effect, None, world.now) is None
    assert world.sleeps() == 20
    assert world.fetched() == [(0, 5, 10, 4, 0)]


# -- errors of a session --


@pytest.mark.parametrize(
    ("code", "replaced"),
    [
        (errors.FETCH_SESSION_ID_NOT_FOUND, 0),
        (errors.INVALID_FETCH_SESSION_EPOCH, SESSION),
        (errors.FETCH_SESSION_TOPIC_ID_ERROR, SESSION),
    ],
)
def test_a_lost_session_begins_again_at_once(code: int, replaced: int) -> None:
    world = World(0, 1)
    world.exchange()
    world.exchange(code=code, session=0)
    request = world.send()
    assert (session_of(request), len(named(request))) == ((replaced, 0), 2)
    world.answer(request, code=code, session=0)
    assert world.sleeps() == 40
    assert session_of(world.send()) == (replaced, 0)


def test_another_error_of_a_response_backs_off() -> None:
    world = World(0)
    waits = []
    for _ in range(8):
        world.exchange(code=errors.UNKNOWN_SERVER_ERROR, session=0)
        waits.append(world.sleeps())
    assert waits == [20, 40, 80, 160, 320, 640, 1000, 1000]
    world.exchange()
    world.exchange(code=errors.UNKNOWN_SERVER_ERROR, session=0)
    assert world.sleeps() == 20


def test_a_lost_connection_backs_off_and_begins_a_session() -> None:
    world = World(0, 1)
    (appended,) = world.exchange(row(0, records=b"batch"))
    world.resume(appended, 11)
    waits = []
    for _ in range(7):
        request = world.send()
        world.machine.on_failure(request, world.now)
        waits.append(world.sleeps())
    assert waits == [20, 40, 80, 160, 320, 640, 1000]
    request = world.send()
    assert (session_of(request), named(request)) == ((SESSION, 0), [(1, 5, 10, 4, 0), (0, 5, 11, 4, 0)])


def test_a_session_that_the_leader_ends_begins_again() -> None:
    world = World(0)
    world.exchange()
    world.exchange(session=0)
    request = world.send()
    assert (session_of(request), named(request)) == ((0, 0), [(0, 5, 10, 4, 0)])


def test_session_epochs_wrap_around() -> None:
    world = World(0)
    world.exchange()
    world.machine._session_epoch = 0x7FFFFFFF
    assert session_of(world.send()) == (SESSION, 0x7FFFFFFF)
    world.machine.on_response(world.machine._sent, response(), world.now)  # type: ignore[arg-type]
    assert session_of(world.send()) == (SESSION, 1)


# -- requests outside of the session --


def test_partitions_that_become_ready_while_a_request_waits_are_fetched_at_once() -> None:
    world = World(0)
    waiting = world.send()
    world.follow(1)
    aside = world.machine.request_aside(world.now)
    assert aside is not None
    assert (session_of(aside), named(aside), aside.max_wait_ms) == ((0, -1), [(1, 5, 10, 4, 0)], 20)
    assert world.machine.request_aside(world.now) is None
    (appended,) = world.answer(aside, row(1, records=b"batch"), session=0)
    world.resume(appended, 11)
    again = world.machine.request_aside(world.now)
    assert again is not None
    assert named(again) == [(1, 5, 11, 4, 0)]
    world.answer(waiting)
    assert world.machine.request(world.now) is None, "it joins the session after its own request"
    world.answer(again, session=0)
    following = world.send()
    assert (session_of(following), named(following)) == ((SESSION, 1), [(1, 5, 11, 4, 0)])


def test_a_request_outside_of_the_session_does_not_delay_it_for_long() -> None:
    world = World(0)
    waiting = world.send()
    world.follow(1)
    aside = world.machine.request_aside(world.now)
    assert aside is not None
    world.answer(waiting)
    assert world.sleeps() == 120
    assert named(world.send()) == [(1, 5, 10, 4, 0)]
    assert world.answer(aside, row(1, records=b"batch"), session=0) == []


@pytest.mark.parametrize("ends", ["answered", "failed"])
def test_a_position_is_repeated_after_a_late_request_with_an_older_one(ends: str) -> None:
    """The leader took the older position for the last one; a partition without new records stayed out of the ISR."""
    world = World(0)
    waiting = world.send()
    world.follow(1)
    late = world.machine.request_aside(world.now)
    assert late is not None
    world.answer(waiting)
    world.sleeps()
    (appended,) = world.answer(world.send(), row(1, records=b"batch"))
    world.resume(appended, 11)
    newer = world.send()
    assert named(newer) == [(1, 5, 11, 4, 0)]
    world.answer(newer)
    waiting = world.send()
    assert named(waiting) == []
    if ends == "answered":
        assert world.answer(late, row(1, records=b"batch"), session=0) == []
    else:
        world.machine.on_failure(late, world.now)
    world.answer(waiting)
    assert named(world.send()) == [(1, 5, 11, 4, 0)]
    world.answer(world.machine._sent)  # type: ignore[arg-type]
    assert named(world.send()) == []


def test_a_failure_outside_of_the_session_waits_for_the_session() -> None:
    world = World(0)
    waiting = world.send()
    world.follow(1)
    aside = world.machine.request_aside(world.now)
    assert aside is not None
    world.machine.on_failure(aside, world.now)
    assert world.machine.request_aside(world.now) is None
    world.answer(waiting)
    assert named(world.send()) == [(1, 5, 10, 4, 0)]


def test_a_row_outside_of_the_session_counts_only_for_its_offset_and_epoch() -> None:
    world = World(0)
    world.send()
    world.follow(1)
    aside = world.machine.request_aside(world.now)
    assert aside is not None
    world.follow(1, epoch=6)
    assert world.answer(aside, row(1, records=b"batch"), session=0) == []


def test_other_topics_are_named_by_their_ids() -> None:
    world = World(0)
    begun = world.machine.follow("u", OTHER, 0, 1)
    assert begun is not None
    world.machine.resume(begun.partition, Position(0, -1, 0))
    request = world.send()
    assert [(topic.topic_id, len(topic.partitions)) for topic in request.topics] == [(ID, 1), (OTHER, 1)]
