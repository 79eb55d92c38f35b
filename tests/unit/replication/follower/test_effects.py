"""Effects of fetches on a follower's log."""

import logging
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from tests.memory_store import MemoryStore
from tests.queues import immediate_queue

from ottla.log.config import LogConfig
from ottla.log.flush import Flush
from ottla.log.log import Log, StorageError
from ottla.protocol import errors
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.records.batch import build
from ottla.records.record import Record
from ottla.replication.follower.effects import LogEffects
from ottla.replication.follower.fetching import Fetching, FetchLimits
from ottla.replication.follower.followed import FollowedPartition, LookUp, Truncate
from ottla.replication.partition import Partition
from ottla.tasks.deferred import Answer

ID = b"t" * 16


def batch(offset: int, count: int = 1, *, epoch: int = 5, size: int = 10) -> bytes:
    records = [Record(offset + at, 1, None, b"v" * size) for at in range(count)]
    return build(records, base_offset=offset, leader_epoch=epoch)


class Follower:
    """A machine and a log, whose leader the test plays."""

    def __init__(self, *, flush_messages: int = (1 << 63) - 1, epoch: int = 5, segment_bytes: int = 1 << 30) -> None:
        self.now = 0
        self.ms_a_look = 0
        self.checkpoints = self.cuts = 0
        self.steps = 0
        self.queue = immediate_queue()
        self.look_ups: list[LookUp] = []
        self.stopped: list[tuple[FollowedPartition, int]] = []
        self.flushes = 0
        config = LogConfig(flush_messages=flush_messages, segment_bytes=segment_bytes)
        self.store = MemoryStore()
        self.log = Log(self.store, Path("/data/t-0"), config, high_watermark=0)
        self.partition: Partition | None = Partition("t", ID, 0, self.log, 1, epoch, self._flush, self.queue)
        self.machine = Fetching(2, 9, FetchLimits())
        self.effects = LogEffects(
            self,
            self.queue,
            find=lambda followed: self.partition,
            checkpoint=self._checkpoint,
            flush=self._cut,
            look_up=lambda machine, effect: self.look_ups.append(effect),
            resumed=lambda machine: None,
            failed=lambda followed, failures: self.stopped.append((followed, failures)),
            damaged=lambda partition, offset: self.damage(offset),
        )
        self._begin(epoch)

    def _begin(self, epoch: int) -> None:
        """Follow in a leader epoch."""
        assert self.partition is not None
        self.partition.follow(1, epoch)
        begun = self.machine.follow("t", ID, 0, epoch)
        assert begun is not None
        self._run([begun], b"")

    def overwrite(self, segment: int, number: int) -> None:
        """Overwrite the header of a batch of one record in a segment."""
        path = self.log.segments[segment].path
        size = len(batch(0))
        self.store.content(path).data[number * size : number * size + 30] = b"\xff" * 30

    def damage(self, offset: int) -> None:
        """Report that an offset could not be read."""
        assert self.partition is not None
        self.partition.damaged_at, self.partition.damaged_in = offset, self.partition.leader_epoch
        self.machine.unfollow(ID, 0)

    def now_ms(self) -> int:
        self.now += self.ms_a_look
        return self.now

    def wall_ms(self) -> int:
        return 1

    def _checkpoint(self) -> Answer[None]:
        self.checkpoints += 1
        return None

    def _cut(self, flush: Flush, done: Callable[[OSError | None], None]) -> None:
        flush.run()
        self.cuts += 1
        done(None)

    def _flush(self, partition: Partition) -> None:
        del partition
        self.flushes += 1

    def _run(self, effects: list[object], frame: bytes) -> None:
        for _ in self.effects.steps(self.machine, effects, frame):  # type: ignore[arg-type]
            self.steps += 1

    def receive(self, frame: bytes, *, code: int = 0, high_watermark: int = 0, start: int = 0) -> None:
        """Answer the next request with these records."""
        request = self.machine.request(self.now)
        assert request is not None
        row = PartitionData(
            partition_index=0,
            error_code=code,
            high_watermark=high_watermark,
            log_start_offset=start,
            aborted_transactions=None,
        )
        row.records = (3, 3 + len(frame))
        response = FetchResponse(session_id=7, responses=[FetchableTopicResponse(topic_id=ID, partitions=[row])])
        self._run(list(self.machine.on_response(request, response, self.now)), b"..." + frame)

    def next_offset(self) -> int | None:
        """Return the fetch offset of the next request, None if none is due."""
        request = self.machine.request(self.now)
        if request is None:
            return None
        return request.topics[0].partitions[0].fetch_offset


def test_the_high_watermark_is_that_of_the_leader_up_to_the_own_end() -> None:
    follower = Follower()
    follower.receive(batch(0, 3), high_watermark=2)
    assert (follower.log.end_offset, follower.log.high_watermark) == (3, 2)
    follower.receive(batch(3), high_watermark=9)
    assert (follower.log.end_offset, follower.log.high_watermark) == (4, 4)
    follower.receive(b"", high_watermark=1)
    assert follower.log.high_watermark == 4, "a new leader may be behind"
    follower.receive(b"", high_watermark=4, start=2)
    assert follower.log.start_offset == 2


def test_watchers_are_woken_when_the_high_watermark_moves() -> None:
    follower = Follower()
    woken: list[int] = []
    assert follower.partition is not None
    follower.partition.watchers.add(lambda: woken.append(1))
    follower.receive(batch(0), high_watermark=0)
    assert not woken
    follower.receive(b"", high_watermark=1)
    assert woken == [1]


def test_a_batch_of_a_higher_epoch_is_not_appended() -> None:
    follower = Follower()
    follower.receive(batch(0) + batch(1, epoch=6) + batch(2))
    assert follower.log.end_offset == 1
    follower.receive(batch(1, epoch=6))
    assert follower.log.end_offset == 1
    assert follower.next_offset() is None, "it backs off"
    assert follower.machine.due_ms() == 20


def test_the_next_fetch_waits_for_the_flush() -> None:
    follower = Follower(flush_messages=1)
    follower.receive(batch(0))
    assert (follower.flushes, follower.log.end_offset) == (1, 1)
    assert follower.next_offset() is None
    follower.log.flush()
    assert follower.partition is not None
    follower.partition.advance()
    assert follower.next_offset() == 1


def test_damaged_batches_are_logged_once_and_wait_for_the_flush(caplog: pytest.LogCaptureFixture) -> None:
    follower = Follower(flush_messages=1)
    damaged = bytearray(batch(1))
    damaged[-1] ^= 1
    with caplog.at_level(logging.ERROR):
        follower.receive(batch(0) + damaged)
        assert follower.machine.due_ms() is None
        follower.log.flush()
        assert follower.partition is not None
        follower.partition.advance()
        follower.now += 20
        assert follower.machine.request(follower.now) is not None
    assert len(caplog.records) == 1
    assert follower.log.end_offset == 1


def test_a_long_append_is_done_in_steps() -> None:
    follower = Follower()
    follower.ms_a_look = 4
    frame = b"".join(batch(offset, size=30_000) for offset in range(20))
    follower.receive(frame)
    assert follower.log.end_offset == 20
    assert follower.steps >= 3


def test_a_batch_larger_than_a_piece_is_appended() -> None:
    follower = Follower()
    follower.receive(batch(0, size=300_000) + batch(1, size=300_000))
    assert follower.log.end_offset == 2


def test_a_log_begins_within_the_first_batch_of_the_leader() -> None:
    follower = Follower()
    follower.log.restart_at(11)
    assert follower.partition is not None
    follower.partition.follow(1, 7)
    begun = follower.machine.follow("t", ID, 0, 7)
    follower._run([begun], b"")
    follower.receive(batch(10, 5), start=12, high_watermark=15)
    assert (follower.log.start_offset, follower.log.end_offset, follower.log.high_watermark) == (12, 15, 15)
    assert (follower.checkpoints, follower.cuts) == (0, 0)


def _followed(follower: Follower) -> FollowedPartition:
    followed = follower.machine.find(ID, 0)
    assert followed is not None
    return followed


def test_a_log_that_this_broker_leads_by_now_is_not_changed() -> None:
    follower = Follower()
    follower.receive(batch(0, 12))
    assert follower.partition is not None
    follower.partition.follow(2, 6)  # elected: the fetcher learns of it in a later step
    follower._run([Truncate(_followed(follower), 5, 3)], b"")
    follower.receive(batch(12))
    assert (follower.log.end_offset, follower.cuts) == (12, 0)


def test_a_truncation_ends_when_this_broker_becomes_leader() -> None:
    follower = Follower()
    follower.receive(batch(0, 12))
    partition = follower.partition
    assert partition is not None

    def truncation() -> Generator[Flush | None]:
        yield None  # a step of a longer one
        yield from follower.log.truncation(3)

    steps = follower.effects._cut(follower.machine, Truncate(_followed(follower), 5, 3), partition, truncation())
    assert next(steps) is None
    partition.follow(2, 6)
    assert list(steps) == []
    assert follower.log.end_offset == 12


def test_the_recovery_point_on_disk_is_lowered_before_a_truncation() -> None:
    """A crash between the cut and its checkpoints leaves no recovery point beyond the end, which would look like damage."""
    follower = Follower()
    for offset in range(6):
        follower.receive(batch(offset))
    log = follower.log
    log.recovery_point = 6
    written: list[tuple[int, int]] = []

    def checkpoint() -> Answer[None]:
        written.append((log.recovery_point, log.end_offset))
        return None

    follower.effects._checkpoint = checkpoint
    follower._run([Truncate(_followed(follower), 5, 4)], b"")
    assert log.end_offset == 4
    assert [end for _, end in written] == [6, 4]
    assert all(recovery_point <= 4 for recovery_point, _ in written)


@pytest.mark.replaces_code
def test_a_failed_write_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    follower = Follower()
    follower.receive(batch(0))

    def failing(*_: object) -> None:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(Partition, "append_fetched", failing)
        follower.receive(batch(1))
    assert [(followed.key, failures) for followed, failures in follower.stopped] == [((ID, 0), 1)]
    assert follower.machine.find(ID, 0) is None
    follower._begin(5)
    assert _followed(follower).position.offset == 1


@pytest.mark.replaces_code
def test_failures_of_a_partition_are_counted_until_a_success() -> None:
    follower = Follower()
    follower.receive(batch(0, 12))
    follower.damage(5)

    def failing(offset: int) -> Generator[None]:
        yield
        raise OSError(13, f"Permission denied at {offset}")

    damage_cut, follower.log.damage_cut = follower.log.damage_cut, failing  # type: ignore[assignment, method-assign]
    for epoch in (6, 7, 8):
        follower._begin(epoch)
    assert [failures for _, failures in follower.stopped] == [1, 2, 3]
    follower.log.damage_cut = damage_cut  # type: ignore[method-assign]
    follower._begin(9)
    follower.damage(5)
    follower.log.damage_cut = failing  # type: ignore[assignment, method-assign]
    follower._begin(10)
    assert [failures for _, failures in follower.stopped] == [1, 2, 3, 1]


@pytest.mark.replaces_code
def test_a_lack_of_file_descriptors_is_retried_soon() -> None:
    follower = Follower()
    follower.receive(batch(0, 12))
    follower.damage(5)

    def failing(offset: int) -> Generator[None]:
        yield
        raise StorageError(f"Too many open files at {offset}") from OSError(24, "Too many open files")

    follower.log.damage_cut = failing  # type: ignore[assignment, method-assign]
    for epoch in (6, 7, 8):
        follower._begin(epoch)
    assert [failures for _, failures in follower.stopped] == [1, 1, 1]


def test_a_log_that_cannot_be_read_twice_without_damage_is_fetched_as_a_whole() -> None:
    follower = Follower()
    for offset in range(10):
        follower.receive(batch(offset))
    follower.damage(5)
    follower._begin(6)
    assert follower.log.end_offset == 10, "the error may have passed"
    follower.damage(5)
    follower._begin(7)
    assert (follower.log.start_offset, follower.log.end_offset) == (0, 0)


def test_damage_is_cut_in_a_later_leader_epoch_only() -> None:
    follower = Follower()
    for offset in range(10):
        follower.receive(batch(offset))
    follower.overwrite(0, 6)
    follower.damage(8)
    follower._begin(5)
    assert (follower.log.end_offset, len(follower.machine)) == (10, 0)
    follower._begin(6)
    assert (follower.log.end_offset, _followed(follower).position.offset) == (6, 6)
    assert follower.partition is not None
    assert follower.partition.damaged_at == -1


@pytest.mark.replaces_code
def test_damage_remains_if_the_leader_changes_before_its_cut() -> None:
    follower = Follower()
    for offset in range(10):
        follower.receive(batch(offset))
    follower.overwrite(0, 6)
    follower.damage(8)
    partition = follower.partition
    assert partition is not None
    damage_cut = follower.log.damage_cut

    def in_steps(offset: int) -> Generator[Flush | None, None, int]:
        yield None
        partition.follow(3, 7)
        yield None
        return (yield from damage_cut(offset))

    follower.log.damage_cut = in_steps  # type: ignore[method-assign]
    follower._begin(6)
    assert (partition.damaged_at, follower.log.end_offset) == (8, 10)
    follower.log.damage_cut = damage_cut  # type: ignore[method-assign]
    follower._begin(7)
    assert (partition.damaged_at, follower.log.end_offset) == (-1, 6)


@pytest.mark.replaces_code
def test_a_log_that_cannot_be_cut_at_its_damage_is_fetched_as_a_whole() -> None:
    follower = Follower(segment_bytes=400)
    for offset in range(20):
        follower.receive(batch(offset))
    assert len(follower.log.segments) > 3
    follower.overwrite(0, 1)  # the producers of a log that is cut later are read from here on
    last = len(follower.log.segments) - 1
    follower.overwrite(last, 1)
    follower.damage(follower.log.segments[last].base_offset)
    follower._begin(6)
    assert (follower.log.start_offset, follower.log.end_offset, _followed(follower).position.offset) == (0, 0, 0)
    assert not follower.stopped


@pytest.mark.parametrize(("segment", "end"), [(-1, 18), (0, 0)])
@pytest.mark.replaces_code
def test_damage_that_a_truncation_meets_is_cut_in_a_later_epoch(segment: int, end: int) -> None:
    follower = Follower(segment_bytes=400)
    for offset in range(20):
        follower.receive(batch(offset))
    last = len(follower.log.segments) - 1
    first = follower.log.segments[segment].base_offset
    number = 1 if segment == 0 else 18 - first
    follower.overwrite(segment % (last + 1), number)
    for name in list(follower.store.names(follower.log.directory)):
        if name.endswith(".snapshot"):  # then the truncation reads from the beginning
            follower.store.remove(follower.log.directory / name)
    follower._run([Truncate(_followed(follower), 5, 19)], b"")
    assert follower.partition is not None
    assert (follower.partition.damaged_at, follower.partition.damaged_in) == (19, 5)
    assert (len(follower.machine), follower.stopped) == (0, [])
    follower._begin(6)
    if segment == 0:  # not in the segment of the truncation: it meets the damage again
        follower._run([Truncate(_followed(follower), 6, 19)], b"")
        follower._begin(7)
    assert (follower.log.start_offset, follower.log.end_offset, follower.partition.damaged_at) == (0, end, -1)


@pytest.mark.replaces_code
def test_an_unexpected_exception_in_one_partition_does_not_hold_the_others(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = Follower()
    other = follower.machine.follow("t", ID, 1, 5)
    with monkeypatch.context() as patch:
        patch.setattr(Partition, "append_fetched", lambda *_: 1 // 0)
        request = follower.machine.request(0)
        assert request is not None
        frame = b"..." + batch(0)
        row = PartitionData(partition_index=0, error_code=0, high_watermark=0, aborted_transactions=None)
        row.records = (3, len(frame))
        response = FetchResponse(session_id=7, responses=[FetchableTopicResponse(topic_id=ID, partitions=[row])])
        follower._run([*follower.machine.on_response(request, response, 0), other], frame)
    assert "an effect on t-0 failed" in caplog.text
    assert follower.next_offset() == 0, "the other partition is fetched"
    assert follower.machine.due_ms() == 20, "the first one later"


def test_a_log_that_the_leader_has_deleted_is_replaced() -> None:
    follower = Follower()
    follower.receive(batch(0, 12))
    follower.receive(batch(10, 5), start=13, high_watermark=15)
    assert (follower.log.start_offset, follower.log.end_offset, follower.log.high_watermark) == (13, 15, 15)
    assert (follower.checkpoints, follower.cuts) == (1, 1)


def test_an_offset_out_of_range_is_looked_up() -> None:
    follower = Follower()
    follower.receive(b"", code=errors.OFFSET_OUT_OF_RANGE)
    assert len(follower.look_ups) == 1


def test_a_partition_whose_log_is_offline_is_not_followed() -> None:
    follower = Follower()
    follower.partition = None
    follower.receive(batch(0))
    assert len(follower.machine) == 0


@pytest.mark.parametrize(
    ("high_watermark", "offset", "text"),
    [
        (10, 4, "is truncated from 10 to 4: offsets 4 to 7, which were committed, are removed, because node 1"),
        (0, 0, "is truncated from 10 to 0: all of its records are removed, because node 1, the leader in epoch 5"),
    ],
)
def test_a_truncation_of_committed_or_all_records_is_an_error(
    caplog: pytest.LogCaptureFixture, high_watermark: int, offset: int, text: str
) -> None:
    follower = Follower()
    follower.receive(batch(0, 4) + batch(4, 6), high_watermark=high_watermark)
    follower.log.high_watermark = min(high_watermark, 8)
    with caplog.at_level(logging.INFO):
        follower._run([Truncate(_followed(follower), 5, offset)], b"")
    line = next(record for record in caplog.records if "is truncated from" in record.getMessage())
    assert line.levelno == logging.ERROR
    assert text in line.getMessage()


def test_the_checkpoints_are_written_once_for_all_cuts_of_a_response() -> None:
    store, written = MemoryStore(), list[list[int]]()
    logs = [Log(store, Path(f"/data/t-{index}"), LogConfig(), high_watermark=0) for index in range(30)]
    partitions = [
        Partition("t", ID, index, log, 1, 5, lambda _: None, immediate_queue()) for index, log in enumerate(logs)
    ]
    records = batch(0, 4) + batch(4, 6)
    for log in logs:
        log.append_replicated(records, 0, len(records), 5, 1)
        log.high_watermark = 4
        log.recovery_point = 10

    def checkpoint() -> Answer[None]:
        # Those on disk are not beyond the end that a log has at any time from now on.
        assert all(log.recovery_point <= min(4, log.end_offset) for log in logs)
        written.append([log.end_offset for log in logs])
        return None

    machine, follower = Fetching(2, 9, FetchLimits()), Follower()
    effects = LogEffects(
        follower,
        follower.queue,
        find=lambda followed: partitions[followed.key[1]],
        checkpoint=checkpoint,
        flush=follower._cut,
        look_up=lambda machine, effect: None,
        resumed=lambda machine: None,
        failed=lambda followed, failures: None,
        damaged=lambda partition, offset: None,
    )
    begun = [machine.follow("t", ID, index, 5) for index in range(30)]
    cuts = [Truncate(effect.partition, 5, 4) for effect in begun if effect is not None]
    for _ in effects.steps(machine, cuts):
        pass
    assert written == [[10] * 30, [4] * 30]
    request = machine.request(0)
    assert request is not None
    rows = request.topics[0].partitions
    assert [row.fetch_offset for row in rows] == [4] * 30
