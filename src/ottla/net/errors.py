"""Errors of a request: a lost connection, a timeout, an error code in the response.

KafkaError                       code, name and `retriable` as in the table of protocol/errors.py
├── RetriableError               the same request may succeed later
│   ├── ConnectionLost
│   ├── RebootstrapRequired
│   ├── RequestTimedOut
│   └── StaleMetadata
├── OffsetOutOfRange
├── RecordTooLarge
├── NotAuthenticated
├── NotAuthorized
├── UnsupportedVersion
├── FencedError
└── SequenceLost

The clients' own errors are added to this tree in `client/errors.py`.
"""

import shlex
from typing import Any, ClassVar, Final, NamedTuple

from ottla.protocol import errors as table


class KafkaError(Exception):
    """Base class of the errors. `code` is an error code of the protocol, -1 (UNKNOWN_SERVER_ERROR) for local errors."""

    RETRIABLE: ClassVar[bool] = False

    def __init__(self, message: str, code: int = table.UNKNOWN_SERVER_ERROR) -> None:
        super().__init__(message)
        self.code = code

    @property
    def name(self) -> str:
        """Return Kafka's name of the code."""
        return table.name_of(self.code)

    @property
    def retriable(self) -> bool:
        """True if the same request may succeed later."""
        return self.RETRIABLE or table.error(self.code).retriable

    def __reduce__(self) -> tuple[type["KafkaError"], tuple[str, int], dict[str, Any]]:
        # Spark pickles exceptions to send them between processes; some classes have further attributes.
        return type(self), (str(self), self.code), dict(vars(self))


class RetriableError(KafkaError):
    """The same request may succeed later."""

    RETRIABLE: ClassVar[bool] = True


class ConnectionLost(RetriableError):
    """The connection was lost, or could not be opened, before the response."""


class RebootstrapRequired(RetriableError):
    """The address leads to another broker or cluster now (KIP-1242): the client must restart from the bootstrap servers."""


class RequestTimedOut(RetriableError):
    """No response, or no success, within the timeout."""


class StaleMetadata(RetriableError):
    """The metadata is outdated: the broker does not lead the partition, or does not know the topic yet."""


class OffsetOutOfRange(KafkaError):
    """The offset is below the log start offset or beyond the log end. `log_start` is the log start offset, -1 if unknown."""

    log_start: int = -1


class RecordTooLarge(KafkaError):
    """A batch is larger than max.message.bytes or message.max.bytes."""


class NotAuthenticated(KafkaError):
    """The broker did not accept the client's credentials or certificate, or the client did not accept the broker's."""


class NotAuthorized(KafkaError):
    """The principal is not authorized for the operation. The message names the missing permission, where it is known."""


class Permission(NamedTuple):
    """Operation on resources that a request needs.

    operation      as an option of `ottla acls`: "Write"
    resource_type  option of `ottla acls`: "topic", "group", "cluster", "transactional-id", "user-principal"
    names          none for the cluster
    """

    operation: str
    resource_type: str
    names: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """Return the command that grants it."""
        named = " ".join(f"--{self.resource_type} {shlex.quote(name)}" for name in self.names)
        return f"ottla acls --add {named or '--' + self.resource_type} --operation {self.operation} --allow-principal User:NAME"

    def __str__(self) -> str:
        kind = self.resource_type.replace("-", " ")
        resource = f"{kind} {', '.join(self.names)}" if self.names else f"the {kind}"
        return f"{self.operation} on {resource}"


class UnsupportedVersion(KafkaError):
    """The broker does not support the request, or no common version of it."""


class FencedError(KafkaError):
    """A newer instance has taken over; this one must stop."""


class SequenceLost(KafkaError):
    """The broker has lost batches that it had acknowledged to this idempotent producer."""


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
    table.SASL_AUTHENTICATION_FAILED: NotAuthenticated,
    table.UNSUPPORTED_SASL_MECHANISM: NotAuthenticated,
    table.ILLEGAL_SASL_STATE: NotAuthenticated,
    table.TOPIC_AUTHORIZATION_FAILED: NotAuthorized,
    table.GROUP_AUTHORIZATION_FAILED: NotAuthorized,
    table.CLUSTER_AUTHORIZATION_FAILED: NotAuthorized,
    table.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: NotAuthorized,
    table.DELEGATION_TOKEN_AUTHORIZATION_FAILED: NotAuthorized,
    table.UNSUPPORTED_VERSION: UnsupportedVersion,
    table.INVALID_PRODUCER_EPOCH: FencedError,
    table.PRODUCER_FENCED: FencedError,
    table.OUT_OF_ORDER_SEQUENCE_NUMBER: SequenceLost,
    table.UNKNOWN_PRODUCER_ID: SequenceLost,
}


_RESOURCE_TYPES: Final = {
    table.TOPIC_AUTHORIZATION_FAILED: "topic",
    table.GROUP_AUTHORIZATION_FAILED: "group",
    table.CLUSTER_AUTHORIZATION_FAILED: "cluster",
    table.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional-id",
    table.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "user-principal",
}


def error_for(code: int, about: str, message: str | None = None, *needed: Permission) -> KafkaError:
    """Return the exception for an error code.

    about    operation, as the beginning of the message: "produce to t-0"
    message  error message of the response; by default Kafka's sentence for the code
    needed   permissions that the request needs: the message of a denied one names that which matches the code, or the only one
    """
    row = table.error(code)
    cls = _CLASSES.get(code) or (RetriableError if row.retriable else KafkaError)
    if cls is not NotAuthorized:
        return cls(f"{about}: {row.name}: {message or row.message}", code)
    # Kafka's messages of denied cluster operations are dumps of its request object.
    sentence = row.message if not message or message.startswith("Request Request(") else message
    text = f"{about}: {row.name}: {sentence}"
    missing = [permission for permission in needed if permission.resource_type == _RESOURCE_TYPES[code]] or needed
    if len(missing) == 1:
        text += f" It needs {missing[0]}: {missing[0].command}"
    return cls(text, code)
