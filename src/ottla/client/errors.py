"""Errors of the clients.

KafkaError                       code, name and `retriable` as in the table of protocol/errors.py
├── RetriableError               the same request may succeed later
│   ├── BrokersUnreachable
│   ├── ConnectionLost
│   ├── RebootstrapRequired
│   ├── RequestTimedOut
│   └── StaleMetadata
├── BootstrapUnresolved          no bootstrap server has an address (bootstrap.resolve.timeout.ms)
├── UnknownTopic
├── OffsetOutOfRange
│   └── LogTruncation
├── NoOffset
├── CorruptBatch
├── RecordTooLarge
├── NotAuthenticated             wrong credentials or certificate
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
    NotAuthenticated,
    NotAuthorized,
    OffsetOutOfRange,
    Permission,
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
    "BootstrapUnresolved",
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
    "NotAuthenticated",
    "NotAuthorized",
    "OffsetOutOfRange",
    "Permission",
    "RebootstrapRequired",
    "RecordTooLarge",
    "RequestTimedOut",
    "RetriableError",
    "SequenceLost",
    "StaleMetadata",
    "TopicRecreated",
    "TransactionAborted",
    "UnknownTopic",
    "UnsupportedVersion",
    "error_for",
]


class BrokersUnreachable(RetriableError):
    """No bootstrap server or broker responded within the timeout; the message names the addresses."""


class BootstrapUnresolved(KafkaError):
    """No bootstrap server could be resolved within bootstrap.resolve.timeout.ms (KIP-909): every later call of the client
    raises it as well."""


class UnknownTopic(KafkaError):
    """The topic, or one of its partitions, does not exist."""

    @property
    def retriable(self) -> bool:
        return False


class TopicRecreated(UnknownTopic):
    """The topic was deleted and recreated: its id has changed."""


class LogTruncation(OffsetOutOfRange):
    """The log was truncated below the position, and auto.offset.reset is "none" (KIP-320): a new leader lacks records that
    were read.

    position   position of the consumer
    diverging  first offset at which the log may differ from the records that were read; -1 if unknown
    """

    position: int = -1
    diverging: int = -1


class NoOffset(KafkaError):
    """The group has no committed offset, and auto.offset.reset is "none"."""


class CorruptBatch(KafkaError):
    """A batch failed its CRC check or is malformed; the message names topic, partition and offset."""

    @property
    def retriable(self) -> bool:
        return False


class TransactionAborted(KafkaError):
    """The record was part of a transaction that was aborted."""


class BufferExhausted(KafkaError, BufferError):
    """A producer's memory was full for longer than max.block.ms."""


class IllegalState(KafkaError):
    """The client is in the wrong state for this call: for example closed, or not subscribed."""


class InvalidClientConfig(KafkaError, ValueError):
    """Unknown config, or invalid value of a config."""
