"""A log against a list of what it acknowledged, through transactions, compaction, retention, crashes, loss of power and
disks that fail: what was flushed is there, what is there is what was appended, and readers of committed data see nothing else.
"""

import errno
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from ottla.log import reading
from ottla.log.config import LogConfig
from ottla.log.flush import Flush
from ottla.log.log import Log, StorageError
from ottla.protocol.errors import NONE
from ottla.records.batch import build, records_of, scan
from ottla.records.control import read_marker
from ottla.records.record import Record
from tests.faulty_store import FaultyStore
from tests.memory_store import MemoryStore

NOW = 1_700_000_000_000
HOME = Path("/log/t-0")
KEYS = [b"a", b"b", b"c", b"d"]
PRODUCERS = st.integers(1, 3)


class Event(NamedTuple):
    """Something the log acknowledged: records, or a marker (`commit` is not None)."""

    offset: int
    pairs: tuple[tuple[bytes, bytes | None], ...]
    producer: int = -1
    is_transactional: bool = False
    commit: bool | None = None

    @property
    def end(self) -> int:
        return self.offset + max(1, len(self.pairs))


class Durability(RuleBasedStateMachine):
    """`events` is the model."""

    @initialize(
        compacts=st.booleans(), segment_bytes=st.integers(300, 1500), flush_messages=st.sampled_from([1, 7, 1 << 62])
    )
    def begin(self, compacts: bool, segment_bytes: int, flush_messages: int) -> None:
        self.chance = random.Random(7)
        self.memory = MemoryStore()
        self.failing: tuple[str, int] | None = None
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=120,
            flush_messages=flush_messages,
            cleanup_policy=("compact",) if compacts else ("delete",),
            retention_bytes=4000,
            delete_retention_ms=0,
        )
        self.events: list[Event] = []
        self.flushed = 0
        self.start = 0
        self.skipped = 0
        self.now = NOW
        self.was_compacted = False
        self.epochs: dict[int, int] = {}
        self.log = self._open()

    def _open(self, *, clean: bool = False) -> Log:
        point, start = self._checkpoint()
        store = FaultyStore(self.memory, self._fails)
        log = Log(store, HOME, self.config, recovery_point=point, log_start_offset=start, clean=clean)
        log.high_watermark = log.end_offset
        return log

    def _checkpoint(self) -> tuple[int, int]:
        """Return the values of the directory's checkpoints, which are never above the true ones."""
        return min(self.flushed, self.end), self.start

    def _fails(self, operation: str, path: Path) -> OSError | None:
        if self.failing is None or self.failing[0] != operation or path.suffix == ".tmp":
            return None
        kind, left = self.failing
        self.failing = (kind, left - 1) if left else None
        return None if left else OSError(errno.ENOSPC, "No space left on device")

    @property
    def end(self) -> int:
        return max(self.skipped, self.events[-1].end if self.events else 0)

    # What happens.

    def _settle(self) -> None:
        if self.log.wants_flush:
            self.log.flush()
            self.flushed = self.log.recovery_point
        assert self.config.flush_messages > 1 or self.flushed == self.end
        self.log.high_watermark = self.log.settled_offset

    def _open_transactions(self) -> dict[int, int]:
        """Producer -> offset at which its open transaction began."""
        begun: dict[int, int] = {}
        for event in self.events:
            if event.commit is not None:
                begun.pop(event.producer, None)
            elif event.is_transactional:
                begun.setdefault(event.producer, event.offset)
        return begun

    @rule(
        pairs=st.lists(
            st.tuples(st.sampled_from(KEYS), st.none() | st.binary(min_size=1, max_size=60)), min_size=1, max_size=4
        ),
        producer=PRODUCERS | st.just(-1),
        transactional=st.booleans(),
        codec=st.sampled_from([0, 0, 1]),
    )
    def append(self, pairs: list[tuple[bytes, bytes | None]], producer: int, transactional: bool, codec: int) -> None:
        transactional = (transactional or producer in self._open_transactions()) and producer > 0
        epoch = self.epochs.get(producer, 0)
        batch = build(
            [Record(at, self.now, key, value) for at, (key, value) in enumerate(pairs)],
            codec=codec,
            producer_id=producer,
            producer_epoch=epoch if producer > 0 else -1,
            base_sequence=self._sequence(producer),
            transactional=transactional,
        )
        answer = self.log.append(batch, 0, len(batch), 0, self.now)
        assert (answer.error_code, answer.base_offset) == (NONE, self.end)
        self.events.append(Event(self.end, tuple(pairs), producer, transactional))
        self._settle()

    def _sequence(self, producer: int) -> int:
        """Return the next sequence of a producer, whose epoch is bumped by each marker."""
        if producer < 0:
            return -1
        sequence = 0
        for event in self.events:
            if event.producer == producer:
                sequence = 0 if event.commit is not None else sequence + len(event.pairs)
        return sequence

    @rule(producer=PRODUCERS, commit=st.booleans())
    def end_transaction(self, producer: int, commit: bool) -> None:
        epoch = self.epochs[producer] = self.epochs.get(producer, 0) + 1
        answer = self.log.append_marker(producer, epoch, 0, 0, self.now, commit=commit, new_epoch=True)
        assert (answer.error_code, answer.base_offset) == (NONE, self.end)
        self.events.append(Event(self.end, (), producer, True, commit))
        self._settle()

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.flushed = self.log.recovery_point
        self._settle()

    @rule(ms=st.integers(1, 10))
    def time_passes(self, ms: int) -> None:
        self.now += ms

    @rule()
    def retain(self) -> None:
        for segment in self.log.retain(self.now):
            segment.remove()
        self.start = self.log.start_offset

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        if self.config.is_compacted:
            return
        offset = data.draw(st.integers(self.start, self.log.high_watermark))
        self.start = self.log.delete_records(offset)

    @rule(steps=st.integers(1, 40))
    def compact(self, steps: int) -> None:
        """As many steps of a pass as there is time for before the process is killed; or all."""
        if not self.log.dirtiness(self.now) or not self.config.is_compacted:
            return
        self.was_compacted = True
        work = self.log.compact(self.now)
        for _, step in zip(range(steps), work, strict=False):
            if isinstance(step, Flush):
                step.run()
            else:
                for segment in step:
                    segment.remove()
        if steps < 40:
            work.close()

    @rule()
    def stop_and_start(self) -> None:
        self.log.close()
        self.flushed = self.log.recovery_point
        self.memory = self.memory.power_loss(self.chance)  # a clean stop has flushed everything to disk
        self.log = self._open(clean=True)
        assert self.log.end_offset == self.end

    @rule()
    def crash(self) -> None:
        self.log = self._open()
        assert self.log.end_offset == self.end

    @rule(seed=st.integers(0, 1 << 30))
    def power_loss(self, seed: int) -> None:
        held = self.flushed
        self.memory = self.memory.power_loss(random.Random(seed))
        self.log = self._open()
        self._lost_behind(self.log.end_offset, held)

    def _lost_behind(self, end: int, held: int) -> None:
        """Remove events behind `end`: only data that was not flushed may be lost."""
        assert held <= end <= max(self.end, self.start)
        self.events = [event for event in self.events if event.end <= end]
        self._recount_epochs()
        if self.end < end:  # all of it was deleted before: the log begins anew where it is to begin
            assert end == self.start
            self.skipped = end

    def _recount_epochs(self) -> None:
        """Markers that are gone have taken their epochs with them."""
        for producer in self.epochs:
            markers = [event for event in self.events if event.producer == producer and event.commit is not None]
            self.epochs[producer] = len(markers)

    @rule(
        operation=st.sampled_from(["append", "torn append", "flush", "write", "rename", "read"]),
        after=st.integers(0, 3),
        pairs=st.lists(st.tuples(st.sampled_from(KEYS), st.binary(min_size=1, max_size=300)), min_size=1, max_size=4),
    )
    def the_disk_fails(self, operation: str, after: int, pairs: list[tuple[bytes, bytes | None]]) -> None:
        """Appends until the disk has failed once, then a restart without it."""
        self.failing = (operation, after)
        try:
            self.append(pairs, -1, False, 0)
            self.flush()
        except StorageError:
            pass
        self.failing = None
        # An append that was refused, or whose flush failed, may be there all the same; only then is it no event yet.
        ends = {self.end, self.log.end_offset}
        before = self.log.end_offset
        self.log = self._open()
        assert self.log.end_offset in ends
        if self.log.end_offset != self.end:
            assert self.log.end_offset == before
            self.events.append(Event(self.end, tuple(pairs)))

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        """Truncate as a follower does, and raise the epoch, since batches of the new leader have its own."""
        if self.config.is_compacted or not self.events:
            return
        cut = data.draw(
            st.sampled_from([event.offset for event in self.events if event.offset >= self.start] or [self.end])
        )
        self.log.truncate_to(cut)
        self.events = [event for event in self.events if event.offset < cut]
        self.flushed = min(self.flushed, cut)
        self._recount_epochs()
        self.log.flush()
        self.flushed = self.log.recovery_point

    # What must hold.

    def _decided(self) -> dict[int, bool]:
        """Offset of a transactional event -> whether it was committed; not there as long as it is open."""
        outcomes: dict[int, bool] = {}
        waiting: dict[int, list[int]] = {}
        for event in self.events:
            if event.commit is not None:
                outcomes |= dict.fromkeys(waiting.pop(event.producer, []), event.commit)
            elif event.is_transactional:
                waiting.setdefault(event.producer, []).append(event.offset)
        return outcomes

    def _records(self, limit: int) -> Iterator[tuple[int, bytes, bytes | None, int]]:
        """(offset, key, value, base offset of its batch) of every data record below `limit`."""
        for event in self.events:
            for at, (key, value) in enumerate(event.pairs):
                if self.start <= event.offset + at and event.offset < limit:
                    yield event.offset + at, key, value, event.offset

    def _read(self, limit: int, *, committed: bool) -> dict[int, tuple[bytes | None, bytes | None]]:
        """Return the records that a consumer gets, which skips aborted data as in KIP-98."""
        pairs: dict[int, tuple[bytes | None, bytes | None]] = {}
        offset = self.log.start_offset
        while (region := self.log.read(offset, 700, limit, whole_first=True)) is not None:
            data = region.read()
            aborted = sorted(reading.aborted_in(self.log, region, offset), key=lambda entry: entry.first_offset)
            skipped: set[int] = set()
            for header in scan(data).batches:
                while aborted and aborted[0].first_offset <= header.last_offset:
                    skipped.add(aborted.pop(0).producer_id)
                records = records_of(data[header.start : header.end]) if header.count else []
                if header.is_control:
                    if records and read_marker(records[0].key, records[0].value).type == 0:
                        skipped.discard(header.producer_id)
                elif not (committed and header.is_transactional and header.producer_id in skipped):
                    pairs |= {record.offset: (record.key, record.value) for record in records}
                offset = header.next_offset
        return {at: pair for at, pair in pairs.items() if at >= self.log.start_offset}

    @invariant()
    def it_holds_what_it_acknowledged(self) -> None:
        log = self.log
        decided = self._decided()
        is_open = self._open_transactions()
        stable = min([log.high_watermark, *is_open.values()])
        assert log.last_stable_offset == stable
        everything = self._read(log.high_watermark, committed=False)
        committed = self._read(stable, committed=True)
        newest: dict[bytes, int] = {}
        for offset, key, _, base in self._records(log.high_watermark):
            if decided.get(base, True) and base < stable:
                newest[key] = max(offset, newest.get(key, -1))
        acknowledged = {at: (key, value) for at, key, value, base in self._records(log.high_watermark)}
        visible = {at: (key, value) for at, key, value, base in self._records(stable) if decided.get(base, True)}
        if not self.was_compacted:
            assert everything == acknowledged
            assert committed == visible
            return
        assert everything.items() <= acknowledged.items()
        assert committed.items() <= visible.items()
        kept = {at for at, (key, value) in visible.items() if newest[key] == at and value is not None}
        assert kept <= committed.keys()

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close(clean=False)


@pytest.mark.timeout(0)
def test_any_history(request: pytest.FixtureRequest) -> None:
    """The same histories each time, so that a change is judged by what it does; with --soak many, and new ones each time."""
    soak = int(request.config.getoption("--soak"))
    history_settings = settings(max_examples=60 * soak, stateful_step_count=40, deadline=None, derandomize=soak == 1)
    run_state_machine_as_test(Durability, settings=history_settings)
