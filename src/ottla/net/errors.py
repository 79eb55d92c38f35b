"""Errors of a request: a lost connection, a timeout, an error code in the response.

KafkaError                       code, name and `retriable` as in the table of protocol/errors.py
├── RetriableError               the same request may succeed later
│   ├── ConnectionLost
│   ├── RebootstrapRequired
│   ├── RequestTimedOut
│   └── StaleMetadata
├── OffsetOutOfRange
├── RecordTooLarge
├── NotAuthorized
├── UnsupportedVersion
├── FencedError
└── SequenceLost

The clients' own errors are added to this tree in `client/errors.py`.
"""

from typing import ClassVar, Final

from ottla.protocol import errors as table


class KafkaError(Exception):
    """Base of all. `code` is the table's, -1 for what no broker said."""

    RETRIABLE: ClassVar[bool] = False

    def __init__(self, message: str, code: int = table.UNKNOWN_SERVER_ERROR) -> None:
        super().__init__(message)
        self.code = code

    @property
    def name(self) -> str:
        """Kafka's name of the code."""
        return table.name_of(self.code)

    @property
    def retriable(self) -> bool:
        """True if the same request may succeed later."""
        return self.RETRIABLE or table.error(self.code).retriable

    def __reduce__(self) -> tuple[type["KafkaError"], tuple[str, int]]:
        # Spark sends exceptions from process to process.
        return type(self), (str(self), self.code)


class RetriableError(KafkaError):
    """The same request may succeed later."""

    RETRIABLE: ClassVar[bool] = True


class ConnectionLost(RetriableError):
    """The broker went away before it answered."""


class RebootstrapRequired(RetriableError):
    """The address belongs to another broker or cluster than it did (KIP-1242): only the bootstrap addresses help."""


class RequestTimedOut(RetriableError):
    """No answer, or no success, within the time that was given."""


class StaleMetadata(RetriableError):
    """Another broker leads the partition now, or the topic is not known there (yet)."""


class OffsetOutOfRange(KafkaError):
    """The log no longer, or not yet, has the offset; `log_start` says where it begins, -1 if the broker did not."""

    log_start: int = -1


class RecordTooLarge(KafkaError):
    """A batch above max.message.bytes or message.max.bytes."""


class NotAuthorized(KafkaError):
    """The principal may not do this."""


class UnsupportedVersion(KafkaError):
    """The broker is too old for the request."""


class FencedError(KafkaError):
    """Another instance took over; this one must stop."""


class SequenceLost(KafkaError):
    """The broker misses batches that it had acknowledged to this idempotent producer."""


STALE_CODES: Final = frozenset(
    {
        table.UNKNOWN_TOPIC_OR_PARTITION,
        table.LEADER_NOT_AVAILABLE,
        table.NOT_LEADER_OR_FOLLOWER,
        table.REPLICA_NOT_AVAILABLE,
        table.KAFKA_STORAGE_ERROR,
        table.FENCED_LEADER_EPOCH,
        table.UNKNOWN_LEADER_EPOCH,
        table.UNKNOWN_TOPIC_ID,
        table.INCONSISTENT_TOPIC_ID,
        table.OFFSET_NOT_AVAILABLE,
    }
)

_CLASSES: Final[dict[int, type[KafkaError]]] = {
    **dict.fromkeys(STALE_CODES, StaleMetadata),
    table.REQUEST_TIMED_OUT: RequestTimedOut,
    table.OFFSET_OUT_OF_RANGE: OffsetOutOfRange,
    table.MESSAGE_TOO_LARGE: RecordTooLarge,
    table.RECORD_LIST_TOO_LARGE: RecordTooLarge,
    table.TOPIC_AUTHORIZATION_FAILED: NotAuthorized,
    table.GROUP_AUTHORIZATION_FAILED: NotAuthorized,
    table.CLUSTER_AUTHORIZATION_FAILED: NotAuthorized,
    table.UNSUPPORTED_VERSION: UnsupportedVersion,
    table.INVALID_PRODUCER_EPOCH: FencedError,
    table.PRODUCER_FENCED: FencedError,
    table.OUT_OF_ORDER_SEQUENCE_NUMBER: SequenceLost,
    table.UNKNOWN_PRODUCER_ID: SequenceLost,
}


def error_for(code: int, about: str, message: str | None = None) -> KafkaError:
    """The exception for an error code.

    about    what was being done, as the beginning of a sentence: "produce to t-0"
    message  the broker's own words; Kafka's sentence for the code unless given
    """
    row = table.error(code)
    cls = _CLASSES.get(code) or (RetriableError if row.retriable else KafkaError)
    return cls(f"{about}: {row.name}: {message or row.message}", code)
