"""Errors as librdkafka has them, and their conversion from those of Ottla's client."""

import builtins
from typing import Any, ClassVar, Final

from ottla.client import errors as client_errors
from ottla.compat.librdkafka.codes import CODES, NUMBERS

_ALL_BROKERS_DOWN: Final = NUMBERS["_ALL_BROKERS_DOWN"]
_AUTHENTICATION: Final = NUMBERS["_AUTHENTICATION"]
_AUTO_OFFSET_RESET: Final = NUMBERS["_AUTO_OFFSET_RESET"]
_BAD_MSG: Final = NUMBERS["_BAD_MSG"]
_FAIL: Final = NUMBERS["_FAIL"]
_FENCED: Final = NUMBERS["_FENCED"]
_INVALID_ARG: Final = NUMBERS["_INVALID_ARG"]
_PURGE_QUEUE: Final = NUMBERS["_PURGE_QUEUE"]
_STATE: Final = NUMBERS["_STATE"]
_TIMED_OUT: Final = NUMBERS["_TIMED_OUT"]
_TRANSPORT: Final = NUMBERS["_TRANSPORT"]
_UNKNOWN_TOPIC: Final = NUMBERS["_UNKNOWN_TOPIC"]
_UNSUPPORTED_FEATURE: Final = NUMBERS["_UNSUPPORTED_FEATURE"]


class _Codes(type):
    """Metaclass by which every code is an attribute of KafkaError, without a second list of 188 names."""

    def __getattr__(cls, name: str) -> int:
        try:
            return NUMBERS[name]
        except KeyError:
            raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}") from None

    def __dir__(cls) -> list[str]:
        return sorted({*super().__dir__(), *NUMBERS})


class KafkaError(metaclass=_Codes):
    """Error of a request, a record or a client, as a value: KafkaException raises it.

    error               code: `KafkaError._TIMED_OUT`
    reason              text; that of the code by default
    fatal               whether the client cannot be used any more
    retriable           whether the same call of a transaction may succeed later
    txn_requires_abort  whether the transaction has to be aborted

    Compares equal to its code.
    """

    __slots__ = ("_code", "_fatal", "_reason", "_requires_abort", "_retriable")
    __match_args__: ClassVar = ("_code",)

    def __init__(
        self,
        error: int,
        reason: builtins.str | None = None,
        fatal: bool = False,
        retriable: bool = False,
        txn_requires_abort: bool = False,
    ) -> None:
        self._code = error.__index__()
        self._reason = reason
        self._fatal = bool(fatal)
        self._retriable = bool(retriable)
        self._requires_abort = bool(txn_requires_abort)

    def __getattr__(self, name: builtins.str) -> int:
        """Return a code, as the class does."""
        if name not in NUMBERS:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return NUMBERS[name]

    def code(self) -> int:
        """Return the code."""
        return self._code

    def name(self) -> builtins.str:
        """Return the name of the code."""
        row = CODES.get(self._code)
        return f"ERR_{self._code}?" if row is None else row[0]

    def str(self) -> builtins.str:
        """Return the text."""
        if self._reason is not None:
            return self._reason
        row = CODES.get(self._code)
        return f"Err-{self._code}?" if row is None else row[1]

    def fatal(self) -> bool:
        """Return whether the client cannot be used any more."""
        return self._fatal

    def retriable(self) -> bool:
        """Return whether the same call may succeed later."""
        return self._retriable

    def txn_requires_abort(self) -> bool:
        """Return whether the transaction has to be aborted."""
        return self._requires_abort

    def __repr__(self) -> builtins.str:
        fatal = "FATAL," if self._fatal else ""
        return f'KafkaError{{{fatal}code={self.name()},val={self._code},str="{self.str()}"}}'

    __str__ = __repr__

    def __hash__(self) -> int:
        return hash(self._code)

    def __eq__(self, other: object) -> bool:
        code = _code_of(other)
        return NotImplemented if code is None else self._code == code

    def __lt__(self, other: object) -> bool:
        code = _code_of(other)
        return NotImplemented if code is None else self._code < code

    def __le__(self, other: object) -> bool:
        code = _code_of(other)
        return NotImplemented if code is None else self._code <= code

    def __gt__(self, other: object) -> bool:
        code = _code_of(other)
        return NotImplemented if code is None else self._code > code

    def __ge__(self, other: object) -> bool:
        code = _code_of(other)
        return NotImplemented if code is None else self._code >= code

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._code, self.str(), self._fatal, self._retriable, self._requires_abort)


def _code_of(value: object) -> int | None:
    """Return the code of an error or a number; None for anything else."""
    if isinstance(value, KafkaError):
        return value._code
    return value if isinstance(value, int) else None


class KafkaException(Exception):
    """Exception with a KafkaError as its first argument."""


class IllegalStateException(RuntimeError):
    """A call in the wrong state of a client."""


class ConcurrentModificationException(RuntimeError):
    """Calls of a share consumer from several threads at once."""


def exception(code: str, reason: str | None = None, **flags: bool) -> KafkaException:
    """Return the exception for a code by its name."""
    return KafkaException(KafkaError(NUMBERS[code], reason, **flags))


_BY_CLASS: Final[tuple[tuple[type[client_errors.KafkaError], int], ...]] = (
    (client_errors.BrokersUnreachable, _TRANSPORT),
    (client_errors.ConnectionLost, _TRANSPORT),
    (client_errors.RequestTimedOut, _TIMED_OUT),
    (client_errors.UnknownTopic, _UNKNOWN_TOPIC),
    (client_errors.NoOffset, _AUTO_OFFSET_RESET),
    (client_errors.OffsetOutOfRange, _AUTO_OFFSET_RESET),
    (client_errors.CorruptBatch, _BAD_MSG),
    (client_errors.RecordTooLarge, 10),
    (client_errors.NotAuthenticated, _AUTHENTICATION),
    (client_errors.UnsupportedVersion, _UNSUPPORTED_FEATURE),
    (client_errors.FencedError, _FENCED),
    (client_errors.TransactionAborted, _PURGE_QUEUE),
    (client_errors.IllegalState, _STATE),
    (client_errors.InvalidClientConfig, _INVALID_ARG),
)
"""Classes of errors that no broker has sent, and their codes; the first that fits."""


def error_from(error: client_errors.KafkaError, **flags: bool) -> KafkaError:
    """Convert an error of Ottla's client: a code of a broker stays, others get one of librdkafka's own."""
    if isinstance(error, client_errors.FencedError):
        return KafkaError(_FENCED, str(error), fatal=True)
    if error.code > 0 and not isinstance(error, client_errors.OffsetOutOfRange | client_errors.NotAuthenticated):
        return KafkaError(error.code, None if error.code in CODES else str(error), **flags)
    code = next((code for kind, code in _BY_CLASS if isinstance(error, kind)), _FAIL)
    return KafkaError(code, str(error), **flags)


def exception_from(error: client_errors.KafkaError, **flags: bool) -> KafkaException:
    """Convert an error of Ottla's client to an exception."""
    return KafkaException(error_from(error, **flags))


def prefix_error(prefix: str, error: client_errors.KafkaError) -> KafkaException:
    """Return the exception for an error, with librdkafka's text after a prefix."""
    converted = error_from(error)
    return KafkaException(KafkaError(converted.code(), prefix + KafkaError(converted.code()).str(), converted.fatal()))
