"""A log against a list: whatever is appended, rolled, reopened or torn off, it holds what the list holds."""

import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.environment.disk import DiskStore
from ottla.log import reading
from ottla.log.config import LogConfig
from ottla.log.log import Log, OffsetNotInLog
from ottla.protocol.errors import NONE, OUT_OF_ORDER_SEQUENCE_NUMBER
from ottla.records import legacy
from ottla.records.batch import build, read_header, records_of
from ottla.records.record import Record

NOW = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=1200, index_interval_bytes=150)
PRODUCERS = st.integers(1, 3)
# (milliseconds before now, size of the value) of each record
SHAPES = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 60)), min_size=1, max_size=5)


class Batch(NamedTuple):
    """A batch that the log acknowledged; producer -1 stands for no producer."""

    base_offset: int
    records: list[Record]
    producer: int
    sequence: int

    @property
    def next_offset(self) -> int:
        return self.base_offset + len(self.records)


class LogAgainstList(RuleBasedStateMachine):
    """`batches` is the model."""

    @initialize()
    def begin(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="ottla-model-"))
        self.directory = self.home / "t-0"
        self.directory.mkdir()
        self.batches: list[Batch] = []
        self.checkpoint = 0
        self.log = self._open()

    def _open(self) -> Log:
        return Log(DiskStore(), self.directory, CONFIG, recovery_point=self.checkpoint)

    @property
    def end(self) -> int:
        return self.batches[-1].next_offset if self.batches else 0

    @property
    def records(self) -> list[Record]:
        return [record for batch in self.batches for record in batch.records]

    def _last_of(self, producer: int) -> Batch | None:
        return next((batch for batch in reversed(self.batches) if batch.producer == producer), None)

    def _send(self, records: list[Record], producer: int = -1, sequence: int = -1, codec: int = 0) -> tuple[int, int]:
        frame = b"header" + build(
            records, codec=codec, producer_id=producer, producer_epoch=min(producer, 0), base_sequence=sequence
        )
        answer = self.log.append(frame, 6, len(frame), 0, NOW)
        return answer.error_code, answer.base_offset

    @rule(shapes=SHAPES, producer=PRODUCERS | st.just(-1), codec=st.sampled_from([0, 0, 3]))
    def append(self, shapes: list[tuple[int, int]], producer: int, codec: int) -> None:
        base = self.end
        records = [Record(i, NOW - age, b"k%d" % base, b"." * size) for i, (age, size) in enumerate(shapes)]
        last = self._last_of(producer) if producer >= 0 else None
        sequence = -1 if producer < 0 else 0 if last is None else last.sequence + len(last.records)
        assert self._send(records, producer, sequence, codec) == (NONE, base)
        for record in records:
            record.offset += base
        self.batches.append(Batch(base, records, producer, sequence))

    @rule(producer=PRODUCERS)
    def a_repeated_batch_is_appended_once(self, producer: int) -> None:
        last = self._last_of(producer)
        if last is not None:
            again = [Record(i, one.timestamp, one.key, one.value) for i, one in enumerate(last.records)]
            assert self._send(again, producer, last.sequence) == (NONE, last.base_offset)

    @rule(producer=PRODUCERS, gap=st.integers(1, 9))
    def a_gap_is_refused(self, producer: int, gap: int) -> None:
        last = self._last_of(producer)
        if last is not None:
            sequence = last.sequence + len(last.records) + gap
            assert self._send([Record(0, NOW, b"k", b"v")], producer, sequence)[0] == OUT_OF_ORDER_SEQUENCE_NUMBER

    @precondition(lambda self: self.batches)
    @rule(data=st.data(), max_bytes=st.integers(0, 3000), whole_first=st.booleans())
    def read(self, data: st.DataObject, max_bytes: int, whole_first: bool) -> None:
        offset = data.draw(st.integers(0, self.end - 1), "offset")
        limit = data.draw(st.sampled_from([batch.next_offset for batch in self.batches]), "limit")
        region = self.log.read(offset, max_bytes, limit, whole_first=whole_first)
        if region is None:
            first = next(batch for batch in self.batches if batch.next_offset > offset)
            size = len(build(first.records, base_offset=first.base_offset))
            assert offset >= limit or (not whole_first and max_bytes < size)
            return
        content = region.read()
        start = next(batch.base_offset for batch in self.batches if batch.next_offset > offset)
        records = records_of(content)
        assert records == self.records[start : start + len(records)]
        assert start + len(records) <= limit
        assert len(content) <= max_bytes or (whole_first and read_header(content, 0).end == len(content))

    @rule(age=st.integers(-1, 201))
    def offset_by_time(self, age: int) -> None:
        timestamp = NOW - age
        first = next((record for record in self.records if record.timestamp >= timestamp), None)
        assert reading.offset_at(self.log, timestamp) == (None if first is None else (first.timestamp, first.offset, 0))

    @rule()
    def newest(self) -> None:
        newest = max(self.records, key=lambda record: record.timestamp, default=None)
        expected = None if newest is None else (newest.timestamp, newest.offset, 0)
        assert legacy.all_at_once(reading.find_newest(self.log)) == expected

    @rule(beyond=st.integers(1, 3))
    def beyond_the_end_there_is_nothing(self, beyond: int) -> None:
        assert self.log.read(self.end, 1000, self.end, whole_first=True) is None
        with pytest.raises(OffsetNotInLog):
            self.log.read(self.end + beyond, 1000, self.end, whole_first=True)

    @rule()
    def flush(self) -> None:
        self.log.flush()

    @rule()
    def write_the_recovery_point_down(self) -> None:
        self.checkpoint = self.log.recovery_point

    @rule()
    def reopen(self) -> None:
        self.log.close()
        self.checkpoint = self.log.recovery_point
        self.log = self._open()

    @rule(data=st.data(), garbage=st.binary(max_size=100))
    def crash(self, data: st.DataObject, garbage: bytes) -> None:
        """Crash: data that was not flushed may be lost from any byte on, and replaced by garbage."""
        self.log.close(clean=False)
        path = max(self.directory.glob("*.log"), default=self.directory / f"{0:020d}.log")  # made with the first append
        content = path.read_bytes() if path.exists() else b""
        ends = {int(path.stem): 0}  # offset after a batch: position after it
        position = 0
        while position < len(content):
            header = read_header(content, position)
            position = ends[header.next_offset] = header.end
        flushed = ends.get(self.log.recovery_point, 0)
        cut = data.draw(st.integers(flushed, len(content)), "cut")
        path.write_bytes(content[:cut] + garbage)
        left = max(offset for offset, at in ends.items() if at <= cut)
        self.batches = [batch for batch in self.batches if batch.next_offset <= left]
        self.log = self._open()

    @invariant()
    def the_log_is_the_list(self) -> None:
        assert self.log.end_offset == self.end
        assert self.log.start_offset == 0
        assert self.log.recovery_point <= self.end
        assert [record for _, records in reading.batches(self.log) for record in records] == self.records

    def teardown(self) -> None:
        self.log.close(clean=False)
        shutil.rmtree(self.home)


TestLogAgainstList = LogAgainstList.TestCase
TestLogAgainstList.settings = settings(max_examples=60, stateful_step_count=40, deadline=None, derandomize=True)
