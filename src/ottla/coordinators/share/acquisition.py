"""Acquisition: selects the records that a member gets. Released ones come first, then those never delivered.

The log is read batch by batch, never inside one; `LogBatch` is the header of a batch. Two ways to acquire:

    batch_optimized   whole batches, so that a batch goes to one member: the number of records is a hint, and the last batch is
                      taken whole
    record_limit      never more records than requested (KIP-1206)

A record that crashes every consumer must not bring its neighbours to the delivery limit. So a batch with a delivery count of at
least max(2, limit / 2) is delivered by itself and in parts: half of it, then a quarter; at the last attempt record by record.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Final, NamedTuple

from ottla.coordinators.share.window import ACQUIRED, ARCHIVED, InFlightBatch, InFlightWindow, Span

_FEWEST_ATTEMPTS_ALONE: Final = 2
"""Delivery limits up to this one allow no last attempt record by record."""


class LogBatch(NamedTuple):
    """Batch of the log, with inclusive offsets; `is_aborted` is True if it is hidden from readers of committed records."""

    first: int
    last: int
    is_aborted: bool = False


class Acquired(NamedTuple):
    """Records acquired by a member: offsets are inclusive."""

    first: int
    last: int
    delivery_count: int


class AcquireRequest(NamedTuple):
    """Limits of a member's request.

    max_records  number of records
    batch_size   number of records in one range of the response
    is_exact     record_limit: never more than max_records
    """

    max_records: int
    batch_size: int
    is_exact: bool


class Acquisition:
    """One acquisition of a member. `deadline` is the end of its locks, in ms."""

    def __init__(
        self,
        window: InFlightWindow,
        member: str,
        wish: AcquireRequest,
        deadline: int,
        max_locks: int,
        delivery_limit: int,
    ) -> None:
        self._window = window
        self._member = member
        self._wish = wish
        self._deadline = deadline
        self._max_locks = max_locks
        self._delivery_limit = delivery_limit
        self._isolate_from = max(_FEWEST_ATTEMPTS_ALONE, (delivery_limit + 1) // 2)
        self._taken: list[Acquired] = []
        self._count = 0
        self._most = 0

    def take(self, offset: int, batches: Sequence[LogBatch]) -> list[Acquired]:
        """Acquire the offsets of `batches` from `offset` on, the window's first free offset.

        Offsets missing in the log and aborted records are archived.
        """
        window = self._window
        if batches[0].first > offset:
            self._archive(offset, batches[0].first - 1)
        last = batches[-1].last
        self._most = min(self._wish.max_records, self._max_locks - len(window))
        if self._most <= 0:
            if offset >= window.end_offset:
                return []
            # The window is full: only released records in it can be acquired.
            self._most = min(self._wish.max_records, window.end_offset - offset)
            last = min(last, window.end_offset - 1)
        if self._take_released(offset, last, batches) and self._count < self._most and last >= window.end_offset:
            self._take_new(max(window.end_offset, batches[0].first), last, batches)
        aborted = [batch for batch in batches if batch.is_aborted] if self._taken else []
        return self._without(aborted) if aborted else self._taken

    def _took(self, first: int, last: int, delivery_count: int) -> None:
        taken = self._taken
        self._count += last - first + 1
        if taken and taken[-1].last + 1 == first and taken[-1].delivery_count == delivery_count > 1:
            taken[-1] = taken[-1]._replace(last=last)
        else:
            taken.append(Acquired(first, last, delivery_count))

    def _take_released(self, offset: int, last: int, batches: Sequence[LogBatch]) -> bool:
        """Take free offsets between `offset` and `last`; returns whether the response may hold further records."""
        free = [span for span in self._window.overlapping(offset, last) if span.is_free]
        for _, group in groupby(free, key=lambda span: id(span.batch)):
            if self._count >= self._most:
                return False
            spans = list(group)
            if not spans[0].delivery_count:
                self._take_unread(max(spans[0].first, offset), min(spans[0].last, last), batches)
                continue
            isolated = max(span.delivery_count for span in spans) >= self._isolate_from
            if isolated and self._count:
                return False
            before = self._count
            if isolated:
                self._take_carefully(spans, last)
            else:
                for span in spans:
                    room = self._most - self._count if self._wish.is_exact else len(span)
                    if room > 0:
                        self._take(span, min(span.last, last, span.first + room - 1))
            if isolated and self._count > before:
                return False
        return True

    def _take(self, span: Span, last: int) -> None:
        """Take the offsets of a free span up to `last`."""
        window = self._window
        span = window.cut(span, span.first, last)
        span.delivery_count += 1
        window.turn(span, ACQUIRED, self._member, self._deadline)
        self._took(span.first, span.last, span.delivery_count)

    def _take_carefully(self, spans: Sequence[Span], last: int) -> None:
        """Take a part of a batch that was delivered often."""
        most = self._most - self._count if self._wish.is_exact else spans[0].batch.size
        capped = False
        begun = self._count
        for span in spans:
            count = span.delivery_count
            is_last_attempt = self._delivery_limit > _FEWEST_ATTEMPTS_ALONE and count == self._delivery_limit - 1
            if is_last_attempt and self._count > begun:
                return
            if count >= self._isolate_from and not capped:
                capped = True
                most = min(most, max(1, span.batch.size >> (count - self._isolate_from + 1)))
            room = 1 if is_last_attempt else most - (self._count - begun)
            if room <= 0:
                return
            self._take(span, min(span.last, last, span.first + room - 1))
            if is_last_attempt:
                return

    def _take_unread(self, first: int, last: int, batches: Sequence[LogBatch]) -> None:
        """Take offsets that were acquired before a restart and have no written state, as if never delivered."""
        window = self._window
        for start, end in self._split(first, last, batches):
            (span,) = window.overlapping(start, start)
            span = window.cut(span, start, end)
            span.batch = InFlightBatch(end - start + 1)
            self._take(span, end)

    def _take_new(self, first: int, last: int, batches: Sequence[LogBatch]) -> None:
        window = self._window
        if not window.spans:
            window.start_offset = first
        for start, end in self._split(first, last, batches):
            window.add(Span(start, end, ACQUIRED, 1, self._member, self._deadline, InFlightBatch(end - start + 1)))
            self._took(start, end, 1)

    def _split(self, first: int, last: int, batches: Sequence[LogBatch]) -> list[tuple[int, int]]:
        """Ranges of the requested size, which end at batch boundaries."""
        room = self._most - self._count
        if room < last - first + 1:
            last_offset = first + room - 1
            if not self._wish.is_exact:
                last_offset = next(
                    (batch.last for batch in batches if batch.first <= last_offset <= batch.last), last_offset
                )
            last = min(last, last_offset)
        size = max(1, self._wish.batch_size)
        acquired = []
        if not self._wish.is_exact and last - first + 1 > size:
            for batch in batches:
                if batch.first > last:
                    break
                if batch.first - first >= size:
                    acquired.append((first, batch.first - 1))
                    first = batch.first
        acquired.append((first, last))
        return acquired

    def _archive(self, first: int, last: int) -> None:
        """Archive the free offsets of a range that holds no records."""
        window = self._window
        for span in list(window.overlapping(first, last)):
            if span.is_free:
                window.turn(window.cut(span, first, last), ARCHIVED)
        window.advance()

    def _without(self, aborted: Sequence[LogBatch]) -> list[Acquired]:
        """Return the taken ranges without aborted records, which are archived."""
        window = self._window
        kept: list[Acquired] = []
        for taken in self._taken:
            first = taken.first
            for batch in aborted:
                if batch.last < first or batch.first > taken.last:
                    continue
                if batch.first > first:
                    kept.append(taken._replace(first=first, last=batch.first - 1))
                end = min(batch.last, taken.last)
                for span in list(window.overlapping(max(first, batch.first), end)):
                    window.turn(window.cut(span, max(first, batch.first), end), ARCHIVED)
                first = end + 1
            if first <= taken.last:
                kept.append(taken._replace(first=first))
        window.advance()
        return kept
