"""The in-flight window of a share partition: the state of each offset between its start and its end.

    start offset                                                 end offset (exclusive)
    |                                                            |
    +----------+-----+--------------+- - - -+--------------------+
    | acquired | ack.| available    |  gap  | acquired           |  never delivered
    | 0 - 99   | 100 | 101 - 120    |       | 130 - 229          |  from here on
    +----------+-----+--------------+- - - -+--------------------+

A `Span` is a run of offsets with one state: usually a whole batch that a member acquired, or parts of one that were
acknowledged differently. Ten thousand records in flight need as many spans only if no two neighbours have the same state.
Spans are in one list by offset and never overlap; offsets missing in the log (compaction) may lie between them.

A change that is being written to the share coordinator keeps the previous state in the spans, so that it can be reverted.
Source: KIP-932.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from operator import attrgetter
from typing import Final, NamedTuple

from ottla.coordinators.share.state_batches import StateBatch

AVAILABLE: Final = 0
ACQUIRED: Final = 1
ACKNOWLEDGED: Final = 2
ARCHIVING: Final = 3
ARCHIVED: Final = 4
"""States of offsets, with the numbers of StateBatch; ACQUIRED is never written."""
_FINAL: Final = frozenset((ACKNOWLEDGED, ARCHIVED))
_FAR: Final = 1 << 63
_last_of = attrgetter("last")


class Fate(NamedTuple):
    """State of a span before the change that is being written."""

    state: int
    delivery_count: int
    member: str
    deadline: int


class StateChange:
    """Change that is being written to the share coordinator; it is settled once, for all of its spans.

    first, last  range of their offsets, inclusive
    written      the states to write
    dead         records that go to the dead-letter topic after the write
    """

    __slots__ = ("dead", "first", "last", "written")

    def __init__(self) -> None:
        self.first = _FAR
        self.last = -1
        self.written: list[StateBatch] = []
        self.dead: list[DeadLetters] = []

    @property
    def holds(self) -> bool:
        """True if the change covers any span."""
        return self.last >= 0

    def write(self, span: "Span", state: int) -> None:
        """Add the state of a span to the states to be written."""
        written = self.written
        if written:
            last = written[-1]
            if last[1:] == (span.first - 1, state, span.delivery_count):
                written[-1] = last._replace(last_offset=span.last)
                return
        written.append(StateBatch(span.first, span.last, state, span.delivery_count))


class DeadLetters(NamedTuple):
    """Records for the dead-letter topic: offsets are inclusive, `message` is None when the reason is not known."""

    first: int
    last: int
    delivery_count: int
    message: str | None


class InFlightBatch:
    """Offsets acquired together: `size` is their number."""

    __slots__ = ("size",)

    def __init__(self, size: int) -> None:
        self.size = size


class Span:
    """Offsets `first` to `last` (inclusive) with one state.

    member    the member that has acquired them, "" if none has
    deadline  end of the lock of an acquired span, in ms
    batch     the batch they were acquired in
    change    the change that is being written, and `before` the state before it
    """

    __slots__ = ("batch", "before", "change", "deadline", "delivery_count", "first", "last", "member", "state")

    def __init__(
        self, first: int, last: int, state: int, delivery_count: int, member: str, deadline: int, batch: InFlightBatch
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.delivery_count = delivery_count
        self.member = member
        self.deadline = deadline
        self.batch = batch
        self.change: StateChange | None = None
        self.before: Fate | None = None

    @property
    def is_free(self) -> bool:
        """True if the span can be acquired."""
        return self.state == AVAILABLE and self.change is None

    @property
    def is_over(self) -> bool:
        """True if the span is in a final state, which is written."""
        return self.state in _FINAL and self.change is None

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __repr__(self) -> str:
        writing = " writing" if self.change is not None else ""
        return f"<{self.first}-{self.last} state {self.state} count {self.delivery_count} {self.member}{writing}>"

    def tail(self, first: int) -> "Span":
        """Return a copy of the span with the offsets from `first` on; the caller then shortens this one."""
        other = Span(first, self.last, self.state, self.delivery_count, self.member, self.deadline, self.batch)
        other.change, other.before = self.change, self.before
        return other


class InFlightWindow:
    """Spans of a share partition. `start_offset` is the first offset that is not done, `end_offset` (exclusive) the first that
    was never delivered; they are equal if nothing is in flight.
    """

    __slots__ = ("_free_from", "done", "end_offset", "spans", "start_offset")

    def __init__(self, start_offset: int) -> None:
        self.start_offset = start_offset
        self.end_offset = start_offset
        self.spans: list[Span] = []
        self.done = 0
        """Number of offsets in the window that are acknowledged or archived, or will be once that is written (KIP-1226)."""
        self._free_from = start_offset
        """No span below this offset is free."""

    def __len__(self) -> int:
        """Number of offsets in flight, done or not."""
        return self.end_offset - self.start_offset

    def next_free(self) -> int:
        """The first offset that may be acquired: one that was released, or the end offset."""
        spans = self.spans
        for at in range(bisect_left(spans, self._free_from, key=_last_of), len(spans)):
            if spans[at].is_free:
                self._free_from = spans[at].first
                return max(spans[at].first, self.start_offset)
        self._free_from = self.end_offset
        return self.end_offset

    def overlapping(self, first: int, last: int) -> Iterator[Span]:
        """Yield the spans with any of the offsets `first` to `last`, in order; the caller may split spans meanwhile."""
        spans = self.spans
        at = bisect_left(spans, first, key=_last_of)
        while at < len(spans) and spans[at].first <= last:
            span = spans[at]
            yield span
            at = bisect_right(spans, span.last, lo=at, key=_last_of)

    def cut(self, span: Span, first: int, last: int) -> Span:
        """Split off the part of a span between `first` and `last`, as a span of its own."""
        at = bisect_left(self.spans, span.last, key=_last_of)
        if first > span.first:
            rest = span.tail(first)
            span.last = first - 1
            at += 1
            self.spans.insert(at, rest)
            span = rest
        if last < span.last:
            self.spans.insert(at + 1, span.tail(last + 1))
            span.last = last
        return span

    def turn(self, span: Span, state: int, member: str = "", deadline: int = 0) -> None:
        """Set the state of a span, and its member if it is acquired."""
        if span.state in _FINAL:
            self.done -= len(span)
        if state in _FINAL:
            self.done += len(span)
        span.state, span.member, span.deadline = state, member, deadline
        if state == AVAILABLE:
            self._free_from = min(self._free_from, span.first)

    def begin(self, span: Span, change: StateChange, state: int, member: str = "", deadline: int = 0) -> None:
        """Set the state of a span as `turn` does, but pending until `change` is written."""
        span.change = change
        change.first, change.last = min(change.first, span.first), max(change.last, span.last)
        span.before = Fate(span.state, span.delivery_count, span.member, span.deadline)
        self.turn(span, state, member, deadline)

    def settle(self, change: StateChange, *, written: bool) -> None:
        """Complete a change that was written; otherwise restore the previous state."""
        for span in self.overlapping(change.first, change.last):
            before = span.before
            if span.change is not change or before is None:
                continue
            span.change = span.before = None
            if not written:
                self.turn(span, before.state, before.member, before.deadline)
                span.delivery_count = before.delivery_count
            elif span.state == AVAILABLE:
                self._free_from = min(self._free_from, span.first)
        if written:
            for first, last, _, _ in change.written:
                self._mend(first, last)

    def add(self, span: Span) -> None:
        """Insert a span into a range without spans."""
        if span.state in _FINAL:
            self.done += len(span)
        self.spans.insert(bisect_left(self.spans, span.first, key=_last_of), span)
        self.end_offset = max(self.end_offset, span.last + 1)

    def advance(self) -> bool:
        """Drop completed spans at the beginning; returns whether the start offset moved."""
        spans = self.spans
        done = 0
        while done < len(spans) and spans[done].is_over:
            done += 1
        if not done:
            return False
        self.done -= sum(map(len, spans[:done]))
        del spans[:done]
        self.start_offset = spans[0].first if spans else self.end_offset
        return True

    def begin_at(self, offset: int) -> None:
        """Move the window's start to `offset`, the new start of the log; spans below it are dropped, acquired or not."""
        spans = self.spans
        gone = bisect_left(spans, offset, key=_last_of)
        self.done -= sum(len(span) for span in spans[:gone] if span.state in _FINAL)
        del spans[:gone]
        if spans and spans[0].first < offset:
            if spans[0].state in _FINAL:
                self.done -= offset - spans[0].first
            spans[0].first = offset
        self.start_offset = offset
        self.end_offset = max(self.end_offset, offset)
        self.advance()

    def _mend(self, first: int, last: int) -> None:
        """Merge neighbours between `first` and `last` that are both done, or both free and alike."""
        spans = self.spans
        at = max(bisect_left(spans, first, key=_last_of) - 1, 0)
        while at + 1 < len(spans) and spans[at].first <= last:
            one, other = spans[at], spans[at + 1]
            if (
                one.last + 1 == other.first
                and one.change is None
                and other.change is None
                and (one.state in _FINAL) == (other.state in _FINAL)
                and (one.state in _FINAL or _are_alike(one, other))
            ):
                one.last = other.last
                del spans[at + 1]
            else:
                at += 1


def _are_alike(one: Span, other: Span) -> bool:
    """Return whether two spans of one batch are free and were delivered equally often."""
    return (
        one.state == other.state == AVAILABLE
        and one.batch is other.batch
        and one.delivery_count == other.delivery_count
    )
