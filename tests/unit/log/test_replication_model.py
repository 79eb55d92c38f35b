"""Two replicas through changes of leader, transactions, compaction, deletion, restarts and losses of power: after the follower
has caught up both have the same log.
"""

import random
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.log import reading
from ottla.log.config import LogConfig
from ottla.log.flush import Flush
from ottla.log.log import Log, OffsetNotInLog
from ottla.protocol.errors import NONE
from ottla.records.batch import BatchHeader, build, records_of, scan
from ottla.records.control import ABORT, read_marker
from ottla.records.record import Record
from tests.memory_store import MemoryStore

NOW = 1_700_000_000_000
HOME = Path("/log/t-0")
KEYS = [b"a", b"b", b"c", b"d"]


class Checkpoint(NamedTuple):
    """Offsets of a replica as its directory has them."""

    recovery_point: int = 0
    high_watermark: int = 0
    start: int = 0


class Replicas:
    """Replica `leader` (0 or 1) leads in `epoch`; the other one follows."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.compacts = chance.random() < 0.4
        self.loses_records = not self.compacts and chance.random() < 0.3
        self.config = LogConfig(
            segment_bytes=chance.randint(300, 1200),
            index_interval_bytes=120,
            flush_messages=chance.choice([3, 1 << 62]),
            cleanup_policy=("compact",) if self.compacts else ("delete",),
            retention_bytes=3000,
            delete_retention_ms=1 << 40,  # a replica that fetches later than that misses tombstones
            min_cleanable_dirty_ratio=0.0,
        )
        self.stores = [MemoryStore(), MemoryStore()]
        self.checkpoints = [Checkpoint(), Checkpoint()]
        self.logs = [self._opened(0), self._opened(1)]
        self.flushes: list[Flush | None] = [None, None]
        self.leader = self.epoch = self.committed = 0
        self.was_compacted = self.has_lost_its_beginning = False
        self.now = NOW
        self.events: Counter[str] = Counter()
        self._lead()

    def step(self) -> None:
        """Do something, the usual more often than the rest."""
        rare = [
            self.delete_records,
            self.change_leader,
            self.catch_up,
            self.compact,
            self.compact,
            self.retain,
            self.restart,
            self.kill,
            self.lose_power,
        ]
        usual = [self.append] * 5 + [self.end_transaction] * 2 + [self.fetch] * 4
        usual += [self.flush, self.begin_flush, self.end_flush, self.checkpoint]
        event = self.chance.choice(rare if self.chance.random() < 0.15 else usual)
        self.events[event.__name__] += 1
        event()
        self.check()

    def _opened(self, which: int, *, clean: bool = False) -> Log:
        point, high_watermark, start = self.checkpoints[which]
        return Log(
            self.stores[which],
            HOME,
            self.config,
            recovery_point=point,
            high_watermark=high_watermark,
            log_start_offset=start,
            clean=clean,
            may_refill=which != getattr(self, "leader", -1),
        )

    def _checkpoint(self, which: int) -> None:
        log = self.logs[which]
        self.checkpoints[which] = Checkpoint(log.recovery_point, log.high_watermark, log.start_offset)

    def _checkpoint_start(self, which: int) -> None:
        log = self.logs[which]
        known = self.checkpoints[which]
        self.checkpoints[which] = known._replace(
            start=log.start_offset, high_watermark=max(known.high_watermark, log.start_offset)
        )

    def _lead(self) -> None:
        log = self.logs[self.leader]
        log.epochs.begin(self.epoch, log.end_offset)

    @property
    def leading(self) -> Log:
        return self.logs[self.leader]

    @property
    def following(self) -> Log:
        return self.logs[1 - self.leader]

    # The leader.

    def append(self) -> None:
        chance = self.chance
        producer = chance.choice([-1, -1, 1, 2, 3])
        pairs = [
            (chance.choice(KEYS), None if chance.random() < 0.2 else bytes(chance.randint(1, 40)))
            for _ in range(chance.randint(1, 3))
        ]
        known = next((one for one in self.leading.producers.active() if one.producer_id == producer), None)
        batch = build(
            [Record(at, self.now, key, value) for at, (key, value) in enumerate(pairs)],
            codec=chance.choice([0, 0, 1]),
            producer_id=producer,
            producer_epoch=-1 if producer < 0 else 0 if known is None else known.epoch,
            base_sequence=-1 if producer < 0 else 0 if known is None else known.last_sequence + 1,
            transactional=producer in (1, 2),
        )
        assert self.leading.append(batch, 0, len(batch), self.epoch, self.now).error_code == NONE

    def end_transaction(self) -> None:
        producer, raises = self.chance.randint(1, 2), self.chance.random() < 0.3
        known = next((one for one in self.leading.producers.active() if one.producer_id == producer), None)
        if known is None or known.transaction_start < 0:
            return
        self.leading.append_marker(
            producer,
            known.epoch + raises,
            max(known.coordinator_epoch, self.chance.randint(0, 2)),
            self.epoch,
            self.now,
            commit=self.chance.random() < 0.5,
            new_epoch=raises,
        )

    def delete_records(self) -> None:
        log = self.leading
        if log.start_offset < log.last_stable_offset:
            log.delete_records(self.chance.randint(log.start_offset, log.last_stable_offset))
            self._checkpoint_start(self.leader)

    def change_leader(self) -> None:
        if self.following.end_offset < self.committed and not self.loses_records:
            return
        self.leader = 1 - self.leader
        self.epoch += 1
        self._lead()

    # The follower.

    def fetch(self) -> None:
        self._fetch(self.chance.choice([1, 300, 900, 1 << 20]), self.chance.randint(0, 80))

    def _fetch(self, max_bytes: int, cut: int) -> bool:
        """One fetch, whose answer ends within a batch; True if there was nothing to do."""
        leader, follower = self.leading, self.following
        which = 1 - self.leader
        offset = follower.end_offset
        if offset < leader.start_offset:
            follower.restart_at(leader.start_offset)
            self.has_lost_its_beginning = True
            self._checkpoint(which)
            return False
        try:
            diverging = leader.divergence(follower.epochs.latest, offset)
        except OffsetNotInLog:
            pytest.fail("the leader began its epoch: it must know each older one")
        if diverging is None and offset > leader.end_offset:
            follower.truncate_to(leader.end_offset)  # what a follower does whose offset is out of range
            self._checkpoint(which)
            return False
        if diverging is not None:
            point = follower.truncation_point(*diverging)
            before = follower.end_offset, follower.epochs.latest
            follower.truncate_to(point)
            assert (follower.end_offset, follower.epochs.latest) < before
            self._checkpoint(which)
            return False
        region = leader.read(offset, max_bytes, leader.end_offset, whole_first=True)
        data = b"" if region is None else region.read()
        if data:
            first = scan(data).batches[0].end
            end = max(first, len(data) - cut)
            assert first <= follower.append_replicated(b"#" + data, 1, 1 + end, self.epoch, self.now) <= end
        leader.high_watermark = max(leader.high_watermark, min(follower.end_offset, leader.end_offset))
        follower.high_watermark = max(
            follower.start_offset, min(leader.high_watermark, follower.end_offset), follower.high_watermark
        )
        follower.raise_start(leader.start_offset)
        self._checkpoint_start(which)
        return not data and follower.end_offset == leader.end_offset

    def catch_up(self) -> None:
        for _ in range(10_000):
            if self._fetch(1 << 20, 0):
                break
        else:
            pytest.fail("the follower never reaches the end of its leader")
        self._fetch(1 << 20, 0)
        for log in self.logs:
            log.high_watermark = log.end_offset
        self._compare()

    # Both.

    def flush(self) -> None:
        which = self.chance.randint(0, 1)
        self.logs[which].flush()

    def begin_flush(self) -> None:
        which = self.chance.randint(0, 1)
        if self.flushes[which] is None:
            self.flushes[which] = flush = self.logs[which].begin_flush()
            flush.run()

    def end_flush(self) -> None:
        which = self.chance.randint(0, 1)
        flush = self.flushes[which]
        if flush is not None:
            self.logs[which].flushed(flush, self.now)
            self.flushes[which] = None

    def checkpoint(self) -> None:
        which = self.chance.randint(0, 1)
        self._checkpoint(which)

    def compact(self) -> None:
        """A pass, during which something else may happen to the log."""
        which, disturbed = self.chance.randint(0, 1), self.chance.randint(0, 6)
        log = self.logs[which]
        self.now += self.chance.choice([0, 3_600_000])
        if not log.dirtiness(self.now):
            return
        steps = log.compact(self.now)
        self.was_compacted = True
        for number, step in enumerate(steps):
            if number == disturbed:
                self.chance.choice([self.append, self.fetch, self.change_leader])()
                self.fetch()
            if isinstance(step, Flush):
                step.run()
            else:
                for segment in step:
                    segment.remove()

    def retain(self) -> None:
        which = self.chance.randint(0, 1)
        log = self.logs[which]
        for segment in (*log.retain(self.now), *log.take_discarded()):
            segment.remove()
            self.has_lost_its_beginning = True

    def restart(self) -> None:
        which = self.chance.randint(0, 1)
        self.logs[which].close()
        self._checkpoint(which)
        self._reopen(which, clean=True)

    def kill(self) -> None:
        which = self.chance.randint(0, 1)
        """The process ends; what it wrote stays."""
        log = self.logs[which]
        before = log.end_offset
        log.close(clean=False)
        self._reopen(which)
        if self.compacts and which != self.leader:
            # A gap that compaction has left looks like one that a power failure leaves: what follows is fetched again.
            assert self.logs[which].end_offset <= before
        else:
            assert self.logs[which].end_offset == before

    def lose_power(self) -> None:
        """Of the follower: what it had flushed is there, and what comes after it may be from any time."""
        which = 1 - self.leader
        log, point = self.logs[which], self.checkpoints[which].recovery_point
        flushed = [(header.base_offset, data) for header, data in batches(log) if header.next_offset <= point]
        self.stores[which] = self.stores[which].power_loss(self.chance)
        self._reopen(which)
        there = {header.base_offset: data for header, data in batches(self.logs[which])}
        if not self.was_compacted:
            start = self.logs[which].start_offset
            assert all(there.get(base) == data for base, data in flushed if base >= start)

    def _reopen(self, which: int, *, clean: bool = False) -> None:
        self.flushes[which] = None
        self.logs[which] = self._opened(which, clean=clean)
        assert not self.logs[which].was_cut
        if which == self.leader:
            self._lead()

    # What must hold.

    def _compare(self) -> None:
        leader, follower = self.leading, self.following
        start = max(leader.start_offset, follower.start_offset)
        assert leader.end_offset == follower.end_offset
        assert leader.last_stable_offset == follower.last_stable_offset
        assert committed(leader, start) == committed(follower, start)
        if self.was_compacted:
            return
        assert [data for _, data in batches(leader, start)] == [data for _, data in batches(follower, start)]
        ours, theirs = (
            {epoch: at for epoch, at in log.epochs._entries if at > start and at < log.end_offset} for log in self.logs
        )
        assert ours == theirs
        if not self.has_lost_its_beginning and leader.segments[0].base_offset == follower.segments[0].base_offset:
            assert by_producer(leader) == by_producer(follower)
            assert _ended(leader, 0) == _ended(follower, 0)

    def check(self) -> None:
        self.committed = max(self.committed, self.leading.high_watermark)
        for log in self.logs:
            assert log.start_offset <= log.high_watermark <= log.end_offset
            assert log.recovery_point <= log.end_offset
            assert log.segments[-1].next_offset == log.end_offset
            epochs = log.epochs._entries
            assert epochs == sorted(set(epochs))
            assert [at for _, at in epochs] == sorted(at for _, at in epochs)
            assert all(at <= log.end_offset for _, at in epochs)


def batches(log: Log, start: int | None = None) -> list[tuple[BatchHeader, bytes]]:
    """All batches from the one with `start` on, with their bytes."""
    offset = log.start_offset if start is None else start
    listed = []
    while (region := log.read(offset, 1 << 20, log.end_offset, whole_first=True)) is not None:
        data = region.read()
        scanned = scan(data)
        assert scanned.end == len(data)
        listed += [(header, data[header.start : header.end]) for header in scanned.batches]
        offset = scanned.batches[-1].next_offset
    return listed


def by_producer(log: Log) -> dict[int, tuple[int, ...]]:
    return {one.producer_id: tuple(one) for one in log.producers.active()}


def _ended(log: Log, start: int) -> dict[tuple[int, int], tuple[int, ...]]:
    """The aborted transactions by producer and marker."""
    entries = (entry for segment in log.segments for entry in segment.transaction_index.entries())
    return {(entry.producer_id, entry.last_offset): tuple(entry) for entry in entries if entry.last_offset >= start}


def committed(log: Log, start: int) -> dict[bytes, bytes]:
    """The newest value of each key, as a consumer with read_committed sees it; a tombstone counts as nothing."""
    newest: dict[bytes, bytes] = {}
    offset = start
    stable = log.last_stable_offset
    while (region := log.read(offset, 500, stable, whole_first=True)) is not None:
        data = region.read()
        aborted = sorted(reading.aborted_in(log, region, offset), key=lambda entry: entry.first_offset)
        skipped: set[int] = set()
        for header in scan(data).batches:
            while aborted and aborted[0].first_offset <= header.last_offset:
                skipped.add(aborted.pop(0).producer_id)
            records = records_of(data[header.start : header.end]) if header.count else []
            if header.is_control:
                if records and read_marker(records[0].key, records[0].value).type == ABORT:
                    skipped.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in skipped):
                for record in records:
                    assert record.key is not None
                    if record.offset >= start:
                        newest.pop(record.key, None)
                        if record.value is not None:
                            newest[record.key] = record.value
            offset = header.next_offset
    return newest


def run(seed: int) -> Counter[str]:
    """One history; return the number of its events by name."""
    replicas = Replicas(random.Random(seed))
    for _ in range(150):
        replicas.step()
    replicas.catch_up()
    return replicas.events


@pytest.mark.timeout(0)
def test_two_replicas_agree_after_any_history(request: pytest.FixtureRequest) -> None:
    """The same histories each time, so that a change is judged by what it does; with --soak many more."""
    events: Counter[str] = Counter()
    for seed in range(100 * int(request.config.getoption("--soak"))):
        try:
            events += run(seed)
        except Exception as cause:
            cause.add_note(f"seed {seed}")
            raise
    assert min(events.values()) > 50
