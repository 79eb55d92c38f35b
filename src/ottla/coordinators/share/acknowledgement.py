"""Acknowledgements: the outcomes that a member reports for the records that it has acquired.

    0 gap      there is no such record            archived
    1 accept   processed                          acknowledged
    2 release  to be delivered again              available, or archived when the delivery limit is reached
    3 reject   not to be processed                archived
    4 renew    still being processed (KIP-1222)   the lock starts again

Records to be archived, except gaps, go to the dead-letter topic first if the group has one (KIP-1191): their state is archiving
until they are written. A request applies all of its batches or none. Error codes and messages are Apache Kafka's.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from ottla.coordinators.share.window import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    DeadLetters,
    InFlightWindow,
    Span,
    StateChange,
)
from ottla.protocol.errors import INVALID_RECORD_STATE, INVALID_REQUEST

GAP: Final = 0
ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
RENEW: Final = 4
REJECTED: Final = "Offset rejected by client."
TOO_OFTEN: Final = "Offset delivery count exceeded the threshold."


class Acknowledgement(NamedTuple):
    """Acknowledgement of the offsets `first` to `last` (inclusive): one type for all, or one for each."""

    first: int
    last: int
    types: Sequence[int]

    def runs(self) -> Iterator[tuple[int, int, int]]:
        """First offset, last offset and type of each run of one type."""
        if len(self.types) == 1:
            yield self.first, self.last, self.types[0]
            return
        first = self.first
        for kind, group in groupby(self.types):
            last = first + sum(1 for _ in group) - 1
            yield first, last, kind
            first = last + 1


class InvalidAcknowledgement(NamedTuple):
    """Error of a request that is not applied."""

    error_code: int
    message: str


class DeliveryLimits(NamedTuple):
    """Current configs of a share group for deliveries.

    lock_ms         duration of an acquisition lock
    delivery_limit  maximum number of deliveries of a record
    max_locks       maximum number of records in flight
    renews          True if locks can be renewed
    has_dead_letters  True if records that no member could process go to a dead-letter topic
    """

    lock_ms: int
    delivery_limit: int
    max_locks: int
    renews: bool = True
    has_dead_letters: bool = False


def acknowledge(
    window: InFlightWindow,
    member: str,
    batches: Sequence[Acknowledgement],
    rules: DeliveryLimits,
    now: int,
    change: StateChange,
) -> InvalidAcknowledgement | None:
    """Begin `change` with all of `batches`; if an error is returned, the caller reverts the change."""
    for batch in batches:
        if batch.last < window.start_offset:
            continue
        refused = _missing(window, batch)
        if refused is not None:
            return refused
        for first, last, kind in batch.runs():
            for span in list(window.overlapping(max(first, window.start_offset), last)):
                refused = _not_acknowledgeable(span, member, kind, rules)
                if refused is not None:
                    return refused
                _begin(window, window.cut(span, max(first, span.first), last), kind, rules, now, change)
    return None


def release(span: Span, rules: DeliveryLimits, change: StateChange) -> int:
    """Return the next state of a released span; the state to write, and dead letters, are added to `change`."""
    if span.delivery_count < rules.delivery_limit:
        state = AVAILABLE
    else:
        state = ARCHIVING if rules.has_dead_letters else ARCHIVED
        if rules.has_dead_letters:
            change.dead.append(DeadLetters(span.first, span.last, span.delivery_count, TOO_OFTEN))
    change.write(span, state)
    return state


def _begin(window: InFlightWindow, span: Span, kind: int, rules: DeliveryLimits, now: int, change: StateChange) -> None:
    if kind == RENEW:
        window.begin(span, change, ACQUIRED, span.member, now + rules.lock_ms)
        return
    if kind == RELEASE:
        window.begin(span, change, release(span, rules, change))
        return
    state = ACKNOWLEDGED if kind == ACCEPT else ARCHIVED
    if kind == REJECT and rules.has_dead_letters:
        state = ARCHIVING
        change.dead.append(DeadLetters(span.first, span.last, span.delivery_count, REJECTED))
    change.write(span, state)
    window.begin(span, change, state)


def _missing(window: InFlightWindow, batch: Acknowledgement) -> InvalidAcknowledgement | None:
    """Return an error if an acknowledged offset was never delivered."""
    spans = window.spans
    begun_below = batch.first < window.start_offset <= batch.last
    if not begun_below and (not spans or batch.first < spans[0].first):
        return InvalidAcknowledgement(
            INVALID_RECORD_STATE, "Batch record not found. The request batch offsets are not found in the cache."
        )
    at = bisect_right(spans, batch.last, key=lambda span: span.first)
    last = spans[at - 1].last if at else -1
    for offset, name in ((batch.first, "first"), (batch.last, "last")):
        if last < offset:
            return InvalidAcknowledgement(
                INVALID_REQUEST, f"Batch record not found. The {name} offset in request is past acquired records."
            )
    return None


def _not_acknowledgeable(span: Span, member: str, kind: int, rules: DeliveryLimits) -> InvalidAcknowledgement | None:
    is_whole = len(span) == span.batch.size
    what = "batch" if is_whole else "offset"
    if span.state != ACQUIRED or not span.member:
        return InvalidAcknowledgement(
            INVALID_RECORD_STATE,
            f"The {what} cannot be acknowledged. The {what} is not in the acquired state."
            if is_whole
            else "The offset cannot be acknowledged. The offset is not acquired.",
        )
    if span.member != member:
        return InvalidAcknowledgement(
            INVALID_RECORD_STATE, f"Member is not the owner of {'batch record' if is_whole else 'offset'}"
        )
    if span.change is not None:
        return InvalidAcknowledgement(
            INVALID_RECORD_STATE,
            "The record state is invalid. The acknowledgement of delivery could not be completed.",
        )
    if kind == RENEW and not rules.renews:
        return InvalidAcknowledgement(INVALID_RECORD_STATE, "Renewing acquisition locks is not enabled for the group.")
    return None
