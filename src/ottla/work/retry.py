"""Retry topics and dead letters: a record whose work fails is tried again later, and others are not held up by it.

    orders ---> orders.retry-1 (after 10 s) ---> orders.retry-2 (after 60 s) ---> orders.dead

All records of a retry topic wait equally long, so that they are due in the order in which they came.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

ATTEMPT: Final = "retry-attempt"
DUE: Final = "retry-due-ms"
ORIGIN: Final = "retry-origin"
ERROR: Final = "retry-error"
_OWN: Final = frozenset({ATTEMPT, DUE, ORIGIN, ERROR})
_LONGEST_ERROR: Final = 1000


class Failed(NamedTuple):
    """A record to write for one that failed, with what a producer takes."""

    topic: str
    value: bytes | None
    key: bytes | None
    headers: list[tuple[str, str | bytes | None]]


class Retry:
    """Retry topics of a topic, and its dead letters. The topics are created by whoever runs the worker.

    topic        topic of the records
    delays       seconds before the second attempt, before the third, ...
    dead_letter  topic of the records whose last attempt has failed; None: the worker ends with the error
    producer     writes the records; one of `ottla` for Worker, one of `ottla.aio` for AsyncWorker

    A written record has the key, value and headers of the one that failed, and headers of its own: `retry-attempt` (2 for the
    second), `retry-due-ms`, `retry-origin` ("orders-3@1207") and `retry-error`.

    Raises ValueError for negative delays.
    """

    def __init__(self, topic: str, *, delays: Sequence[float], producer: Any, dead_letter: str | None = None) -> None:
        if any(delay < 0 for delay in delays):
            raise ValueError(f"delays are seconds, not {list(delays)}")
        self._topic = topic
        self._delays = [int(delay * 1000) for delay in delays]
        self._dead_letter = dead_letter
        self.producer = producer

    @property
    def topics(self) -> list[str]:
        """Return the topics to subscribe to: that of the records, and its retry topics."""
        return [self._topic, *(f"{self._topic}.retry-{number}" for number in range(1, len(self._delays) + 1))]

    @staticmethod
    def due_ms(record: Any) -> int:
        """Return when a record may be tried, in ms since the epoch: 0 for one that was not tried before."""
        return int(_header(record, DUE) or 0)

    def failed(self, record: Any, error: BaseException, now_ms: int) -> Failed | None:
        """Return the record to write for one whose attempt has failed; None if it was the last, and there are no dead
        letters.
        """
        attempt = int(_header(record, ATTEMPT) or 1)
        is_last = attempt > len(self._delays)
        if is_last and self._dead_letter is None:
            return None
        origin = _header(record, ORIGIN) or f"{record.topic}-{record.partition}@{record.offset}".encode()
        headers: list[tuple[str, str | bytes | None]] = [pair for pair in record.headers if pair[0] not in _OWN]
        headers += [(ATTEMPT, str(attempt + 1)), (ORIGIN, origin), (ERROR, _text(error))]
        if not is_last:
            headers.append((DUE, str(now_ms + self._delays[attempt - 1])))
        topic = self._dead_letter if is_last else self.topics[attempt]
        assert topic is not None
        raw = getattr(record, "record", record)  # that with bytes
        return Failed(topic, raw.value, raw.key, headers)


def _header(record: Any, name: str) -> bytes | None:
    value: bytes | None
    for header, value in reversed(record.headers):
        if header == name:
            return value
    return None


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:_LONGEST_ERROR]
