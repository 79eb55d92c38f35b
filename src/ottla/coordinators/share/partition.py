"""Share partition: the delivery state of a topic-partition for one share group.

The state is a window (`window.py`) that moves along the log. Four operations change it:

    acquire       a member gets records, with locks that end at a deadline        not written
    acknowledge   a member reports the outcome of records                         written, then answered
    release       a member has left: its records are free                         written
    expire        locks end: their records are free                               free at once, and written

The share coordinator keeps the states of offset ranges. A change applies at once, and its records are reserved until `settle`
completes it after a successful write, or reverts it after a failed one. Records that are acquired and not acknowledged when a
broker fails are free for the next leader: no record is lost, but the delivery is not counted.

Time is an argument, in ms of one clock. This module uses no log, socket or coordinator. Source: KIP-932.
"""

from collections.abc import Sequence
from typing import Final

from ottla.coordinators.share.acknowledgement import (
    Acknowledgement,
    DeliveryLimits,
    InvalidAcknowledgement,
    acknowledge,
    release,
)
from ottla.coordinators.share.acquisition import Acquired, AcquireRequest, Acquisition, LogBatch
from ottla.coordinators.share.state_batches import StateBatch
from ottla.coordinators.share.window import (
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    DeadLetters,
    InFlightBatch,
    InFlightWindow,
    Span,
    StateChange,
)

NEVER: Final = (1 << 63) - 1
UNINITIALIZED: Final = -1
"""Start offset of a share partition whose first offset share.auto.offset.reset determines."""


class SharePartition:
    """Share partition, built from its state at the share coordinator.

    start_offset  first offset of the partition's window
    batches       states of later offsets, sorted; offsets between them were acquired, but their outcome was not written
    """

    __slots__ = ("window",)

    def __init__(self, start_offset: int, batches: Sequence[StateBatch] = ()) -> None:
        self.window = window = InFlightWindow(start_offset)
        for first, last, state, delivery_count in batches:
            first = max(first, window.end_offset)
            if last < first:
                continue
            if first > window.end_offset:
                self._add(window.end_offset, first - 1, AVAILABLE, 0)
            self._add(first, last, state, delivery_count)
        window.advance()

    def _add(self, first: int, last: int, state: int, delivery_count: int) -> None:
        self.window.add(Span(first, last, state, delivery_count, "", 0, InFlightBatch(last - first + 1)))

    @property
    def start_offset(self) -> int:
        """The first offset that is neither acknowledged nor archived."""
        return self.window.start_offset

    @property
    def end_offset(self) -> int:
        """The first offset (exclusive end) that was never delivered."""
        return self.window.end_offset

    @property
    def delivery_complete_count(self) -> int:
        """Number of offsets from the start offset on that are acknowledged or archived (KIP-1226)."""
        return self.window.done

    def next_offset(self, rules: DeliveryLimits) -> int | None:
        """First offset to read for the next member; None when the window is full."""
        offset = self.window.next_free()
        if offset == self.window.end_offset and len(self.window) >= rules.max_locks:
            return None
        return offset

    def enough(self, offset: int, max_records: int) -> int:
        """Return the last offset to read for a member that fetches `max_records` from `offset` on."""
        window = self.window
        left = max_records
        for span in window.overlapping(offset, window.end_offset):
            if span.is_free:
                left -= len(span)
                if left <= 0:
                    return span.last + left
        return window.end_offset + left - 1

    def acquire(
        self,
        member: str,
        offset: int,
        batches: Sequence[LogBatch],
        wish: AcquireRequest,
        rules: DeliveryLimits,
        now: int,
    ) -> list[Acquired]:
        """Acquire records of `batches`, which were read from `offset` on, for a member."""
        if not batches or wish.max_records <= 0:
            return []
        deadline = now + rules.lock_ms
        acquisition = Acquisition(self.window, member, wish, deadline, rules.max_locks, rules.delivery_limit)
        return acquisition.take(offset, batches)

    def skip_below(self, offset: int) -> None:
        """Handle a log that begins at `offset`: earlier offsets leave the window."""
        if offset > self.window.start_offset:
            self.window.begin_at(offset)

    def skip_between(self, offset: int, end: int) -> None:
        """Handle a gap in the log from `offset` to `end` (exclusive): free offsets of that range are archived."""
        window = self.window
        for span in list(window.overlapping(offset, end - 1)):
            if span.is_free:
                window.turn(window.cut(span, offset, end - 1), ARCHIVED)
        window.advance()

    def acknowledge(
        self, member: str, batches: Sequence[Acknowledgement], rules: DeliveryLimits, now: int
    ) -> StateChange | InvalidAcknowledgement:
        """Apply a member's acknowledgements: returns a change to be written, or the error when none is applied."""
        change = StateChange()
        refused = acknowledge(self.window, member, batches, rules, now, change)
        if refused is None:
            return change
        self.window.settle(change, written=False)
        return refused

    def release(self, member: str, rules: DeliveryLimits) -> StateChange:
        """Release the records of a member that left; returns a change to be written."""
        window = self.window
        change = StateChange()
        for span in window.spans:
            if span.state == ACQUIRED and span.member == member and span.change is None:
                window.begin(span, change, release(span, rules, change))
        return change

    def expire(self, rules: DeliveryLimits, now: int) -> StateChange:
        """Free the records of locks that ended by `now`, even if the write fails later; returns the change."""
        window = self.window
        change = StateChange()
        for span in window.spans:
            if span.state == ACQUIRED and span.deadline <= now and span.change is None:
                window.turn(span, release(span, rules, change))
        return change

    def next_deadline(self) -> int:
        """Return the time at which the next lock ends; NEVER without locks."""
        return min((span.deadline for span in self.window.spans if span.state == ACQUIRED), default=NEVER)

    def archive(self, first: int, last: int) -> StateChange:
        """Archive records that are in the dead-letter topic, or cannot be written there; returns the change."""
        window = self.window
        change = StateChange()
        for span in list(window.overlapping(first, last)):
            if span.state == ARCHIVING and span.change is None:
                span = window.cut(span, first, last)
                window.turn(span, ARCHIVED)
                change.write(span, ARCHIVED)
        return change

    def pending_dead_letters(self) -> list[DeadLetters]:
        """Return the records that were being written to the dead-letter topic when the state was read."""
        return [
            DeadLetters(span.first, span.last, span.delivery_count, None)
            for span in self.window.spans
            if span.state == ARCHIVING
        ]

    def settle(self, change: StateChange, *, written: bool) -> list[DeadLetters]:
        """Complete a change that was written, or revert it, except for locks that have ended. Returns the records to write to
        the dead-letter topic.
        """
        self.window.settle(change, written=written)
        self.window.advance()
        return change.dead if written or not change.holds else []
