"""Errors of the clients.

KafkaError                       code, name and `retriable` as in the table of protocol/errors.py
├── RetriableError               the same request may succeed later
│   ├── BrokersUnreachable
│   ├── ConnectionLost
│   ├── RebootstrapRequired
│   ├── RequestTimedOut
│   └── StaleMetadata
├── UnknownTopic
├── OffsetOutOfRange
│   └── LogTruncation
├── NoOffset
├── CorruptBatch
├── RecordTooLarge
├── NotAuthorized
├── UnsupportedVersion
├── FencedError
├── SequenceLost
├── TransactionAborted
├── BufferExhausted              also a BufferError
├── IllegalState                 the client is not in a state for this call
└── InvalidClientConfig          also a ValueError
"""

from ottla.net.errors import (
    STALE_CODES,
    ConnectionLost,
    FencedError,
    KafkaError,
    NotAuthorized,
    OffsetOutOfRange,
    RebootstrapRequired,
    RecordTooLarge,
    RequestTimedOut,
    RetriableError,
    SequenceLost,
    StaleMetadata,
    UnsupportedVersion,
    error_for,
)

__all__ = [
    "STALE_CODES",
    "BrokersUnreachable",
    "BufferExhausted",
    "ConnectionLost",
    "CorruptBatch",
    "FencedError",
    "IllegalState",
    "InvalidClientConfig",
    "KafkaError",
    "LogTruncation",
    "NoOffset",
    "NotAuthorized",
    "OffsetOutOfRange",
    "RebootstrapRequired",
    "RecordTooLarge",
    "RequestTimedOut",
    "RetriableError",
    "SequenceLost",
    "StaleMetadata",
    "TransactionAborted",
    "UnknownTopic",
    "UnsupportedVersion",
    "error_for",
]


class BrokersUnreachable(RetriableError):
    """None of the addresses answered in time; the message names them."""


class UnknownTopic(KafkaError):
    """The topic, or one of its partitions, does not exist."""

    @property
    def retriable(self) -> bool:
        return False


class LogTruncation(OffsetOutOfRange):
    """Records that were read are not in the log any more, and auto.offset.reset is "none" (KIP-320): another leader took over
    that did not have them.

    position   position of the consumer
    diverging  the first offset that may be another record than the one that was read; -1 if unknown
    """

    position: int = -1
    diverging: int = -1


class NoOffset(KafkaError):
    """The group has no committed offset, and auto.offset.reset is "none"."""


class CorruptBatch(KafkaError):
    """A batch failed its CRC or makes no sense; the message names topic, partition and offset."""

    @property
    def retriable(self) -> bool:
        return False


class TransactionAborted(KafkaError):
    """The record was part of a transaction that was aborted."""


class BufferExhausted(KafkaError, BufferError):
    """A producer's memory was full for longer than max.block.ms."""


class IllegalState(KafkaError):
    """The client is not in a state for this call: it is closed, not subscribed, or something must be done before."""


class InvalidClientConfig(KafkaError, ValueError):
    """A config that is not known, or a value that it cannot have."""
