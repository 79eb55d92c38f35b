"""The in-flight window of a share partition: what became of each offset between its start and its end.

    start offset                                                 end offset (exclusive)
    |                                                            |
    +----------+-----+--------------+- - - -+--------------------+
    | acquired | ack.| available    |  gap  | acquired           |  never delivered
    | 0 - 99   | 100 | 101 - 120    |       | 130 - 229          |  from here on
    +----------+-----+--------------+- - - -+--------------------+

A `Span` is a run of offsets that share one fate: a whole batch that a member acquired, as a rule, and parts of one when they
were acknowledged otherwise. So ten thousand records in flight cost as many spans only if each has a state of its own.
Spans stand in one list by offset and never overlap; what the log does not hold (compacted offsets) may lie between them.

A change that is being written to the share coordinator keeps what was before in the spans, so that it can be taken back.
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
"""States, as a StateBatch numbers them; ACQUIRED is never written."""
_FINAL: Final = frozenset((ACKNOWLEDGED, ARCHIVED))
_FAR: Final = 1 << 63
_last_of = attrgetter("last")


class Fate(NamedTuple):
    """What a span was before the change that is being written."""

    state: int
    delivery_count: int
    member: str
    deadline: int


class Change:
    """A change on its way to the share coordinator, which is settled once, for all of its spans.

    first, last  between which offsets they lie, inclusive
    written      the states that it brings
    dead         what of it goes to the dead letters once it is written
    """

    __slots__ = ("dead", "first", "last", "written")

    def __init__(self) -> None:
        self.first = _FAR
        self.last = -1
        self.written: list[StateBatch] = []
        self.dead: list[DeadLetters] = []

    @property
    def holds(self) -> bool:
        """Whether its spans wait for it."""
        return self.last >= 0

    def write(self, span: "Span", state: int) -> None:
        """The state of a span is to be written."""
        written = self.written
        if written:
            last = written[-1]
            if last[1:] == (span.first - 1, state, span.delivery_count):
                written[-1] = last._replace(last_offset=span.last)
                return
        written.append(StateBatch(span.first, span.last, state, span.delivery_count))


class DeadLetters(NamedTuple):
    """Records that nobody will process: offsets are inclusive, `message` is None when nothing is known of the reason."""

    first: int
    last: int
    delivery_count: int
    message: str | None


class Batch:
    """What was acquired as one: `size` is the number of its offsets."""

    __slots__ = ("size",)

    def __init__(self, size: int) -> None:
        self.size = size


class Span:
    """Offsets `first` to `last` (inclusive) with one fate.

    member    who has acquired them, "" when nobody has
    deadline  when the lock of an acquired span ends, in ms
    batch     what they were acquired in
    change    the change that is being written, and `before` what they were
    """

    __slots__ = ("batch", "before", "change", "deadline", "delivery_count", "first", "last", "member", "state")

    def __init__(
        self, first: int, last: int, state: int, delivery_count: int, member: str, deadline: int, batch: Batch
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.delivery_count = delivery_count
        self.member = member
        self.deadline = deadline
        self.batch = batch
        self.change: Change | None = None
        self.before: Fate | None = None

    @property
    def is_free(self) -> bool:
        """Whether a member may acquire it."""
        return self.state == AVAILABLE and self.change is None

    @property
    def is_over(self) -> bool:
        """Whether nothing will happen to it any more."""
        return self.state in _FINAL and self.change is None

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __repr__(self) -> str:
        writing = " writing" if self.change is not None else ""
        return f"<{self.first}-{self.last} state {self.state} count {self.delivery_count} {self.member}{writing}>"

    def tail(self, first: int) -> "Span":
        """A span of the offsets from `first` on, with the same fate; this one still has them too."""
        other = Span(first, self.last, self.state, self.delivery_count, self.member, self.deadline, self.batch)
        other.change, other.before = self.change, self.before
        return other


class Window:
    """The spans of a share partition. `start_offset` is the first offset that is not done with, `end_offset` (exclusive) the
    first that nobody was ever given; both are equal when nothing is in flight.
    """

    __slots__ = ("_free_from", "done", "end_offset", "spans", "start_offset")

    def __init__(self, start_offset: int) -> None:
        self.start_offset = start_offset
        self.end_offset = start_offset
        self.spans: list[Span] = []
        self.done = 0
        """How many offsets of the window are acknowledged or archived, or will be once that is written (KIP-1226)."""
        self._free_from = start_offset
        """No span below it is free."""

    def __len__(self) -> int:
        """How many offsets are in flight, done with or not."""
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
        """The spans that hold any of the offsets `first` to `last`, in order. The list may be split meanwhile."""
        spans = self.spans
        at = bisect_left(spans, first, key=_last_of)
        while at < len(spans) and spans[at].first <= last:
            span = spans[at]
            yield span
            at = bisect_right(spans, span.last, lo=at, key=_last_of)

    def cut(self, span: Span, first: int, last: int) -> Span:
        """The part of a span that lies between `first` and `last`, as a span of its own."""
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
        """A span has another state from now on, and belongs to `member` if it is acquired."""
        if span.state in _FINAL:
            self.done -= len(span)
        if state in _FINAL:
            self.done += len(span)
        span.state, span.member, span.deadline = state, member, deadline
        if state == AVAILABLE:
            self._free_from = min(self._free_from, span.first)

    def begin(self, span: Span, change: Change, state: int, member: str = "", deadline: int = 0) -> None:
        """As `turn`, if `change` can be written."""
        span.change = change
        change.first, change.last = min(change.first, span.first), max(change.last, span.last)
        span.before = Fate(span.state, span.delivery_count, span.member, span.deadline)
        self.turn(span, state, member, deadline)

    def settle(self, change: Change, *, written: bool) -> None:
        """A change was written, or cannot be: then all is as it was."""
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
        """Put a span where there is none yet."""
        if span.state in _FINAL:
            self.done += len(span)
        self.spans.insert(bisect_left(self.spans, span.first, key=_last_of), span)
        self.end_offset = max(self.end_offset, span.last + 1)

    def advance(self) -> bool:
        """Forget what is done with at the beginning; returns whether the start offset moved."""
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
        """The log begins at `offset` now: what lies below is gone, whoever has it."""
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
        """Put neighbours between `first` and `last` together that are all done with, or alike and free."""
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
    """Whether two spans of one batch are free and were delivered as often."""
    return (
        one.state == other.state == AVAILABLE
        and one.batch is other.batch
        and one.delivery_count == other.delivery_count
    )
