"""Interceptors of producers and consumers (KIP-42): Python objects that see records on their way.

    producer   on_send -> serializers -> batch ~~> broker -> on_acknowledgement
    consumer   fetch ~~> deserializers -> on_consume -> application;  commit ~~> broker -> on_commit

`interceptor.classes` has them in their order: classes or objects, or names as package.module:Name. Each has any of these:

    configure(configs)                             all configs of the client, when it is made
    on_send(record) -> ProducerRecord              in the thread of the caller
    on_acknowledgement(record, delivered, error)   one of the two is None; in the thread of the client, as soon as it is known
    on_consume(records) -> list of records         in the thread of the caller; what is left out is passed over
    on_commit(offsets)                             {TopicPartition: OffsetAndMetadata}, in the thread of the client
    close()

As in Apache Kafka an exception is logged and the next interceptor gets what there was before. Interceptors see records one by
one: Arrow tables and whole batches pass them by.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ottla.client.config import ClientConfig
from ottla.client.errors import InvalidClientConfig, KafkaError
from ottla.client.groups import OffsetAndMetadata
from ottla.client.named_objects import object_named
from ottla.client.producer.closed import Delivered, Listener
from ottla.client.topics import TopicPartition
from ottla.records.record import Header, Record

_logger = logging.getLogger("ottla.client")
CONFIG: Final = "interceptor.classes"
_METHODS: Final = ("on_send", "on_acknowledgement", "on_consume", "on_commit", "close")


class ProducerRecord(NamedTuple):
    """Record that is about to be sent.

    key, value  as they were given, before serializers
    partition   -1 if the partitioner chooses it
    timestamp   ms since the epoch; None for the time of the call
    """

    topic: str
    value: Any = None
    key: Any = None
    partition: int = -1
    timestamp: int | None = None
    headers: Sequence[Header] = ()


class Interceptors:
    """The interceptors of one client, in their order."""

    def __init__(self, interceptors: Sequence[Any]) -> None:
        self._methods: dict[str, list[Callable[..., Any]]] = {
            name: [getattr(one, name) for one in interceptors if callable(getattr(one, name, None))]
            for name in _METHODS
        }

    def before_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record that is to be sent in place of `record`."""
        for on_send in self._methods["on_send"]:
            result = _attempt(on_send, record)
            if isinstance(result, ProducerRecord):
                record = result
            elif result is not None:
                _logger.warning("%s returned %s, no ProducerRecord", _name(on_send), type(result).__name__)
        return record

    def listener(self, record: ProducerRecord, listener: Listener | None) -> "InterceptedRecord":
        """Return a listener of the outcome that informs the interceptors, and then `listener`."""
        return InterceptedRecord(self, record, listener)

    def on_acknowledgement(self, record: ProducerRecord, delivered: Delivered | None, error: Exception | None) -> None:
        """Report the outcome of a record."""
        for on_acknowledgement in self._methods["on_acknowledgement"]:
            _attempt(on_acknowledgement, record, delivered, error)

    def on_consume(self, records: list[Record]) -> list[Record]:
        """Return the records that the application gets in place of `records`."""
        for on_consume in self._methods["on_consume"]:
            result = _attempt(on_consume, records)
            if isinstance(result, list):
                records = result
            elif result is not None:
                _logger.warning("%s returned %s, no list", _name(on_consume), type(result).__name__)
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Report offsets that are committed."""
        for on_commit in self._methods["on_commit"]:
            _attempt(on_commit, dict(offsets))

    def close(self) -> None:
        """Close the interceptors, once."""
        while self._methods["close"]:
            _attempt(self._methods["close"].pop(0))


class InterceptedRecord:
    """Listener of the outcome of a record, of which the interceptors hear once.

    listener  that of the caller
    """

    __slots__ = ("_has_ended", "_interceptors", "_listener", "_record")

    def __init__(self, interceptors: Interceptors, record: ProducerRecord, listener: Listener | None) -> None:
        self._interceptors = interceptors
        self._record = record
        self._listener = listener
        self._has_ended = False

    def __call__(self, error: KafkaError | None, delivered: Delivered | None) -> None:
        self._end(delivered, error)
        if self._listener is not None:
            self._listener(error, delivered)

    def refuse(self, error: BaseException) -> None:
        """Report that the call that sends the record has ended with this error, which may be that it was cancelled."""
        self._end(None, error if isinstance(error, Exception) else KafkaError("the call was cancelled"))

    def _end(self, delivered: Delivered | None, error: Exception | None) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._interceptors.on_acknowledgement(self._record, delivered, error)


def _attempt(method: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return method(*arguments)
    except Exception:
        _logger.warning("%s raised", _name(method), exc_info=True)
        return None


def _name(method: Callable[..., Any]) -> str:
    return getattr(method, "__qualname__", repr(method))


def interceptors_of(config: ClientConfig) -> Interceptors | None:
    """Make the interceptors of a client; None if it has none. Raises InvalidClientConfig."""
    listed = config[CONFIG]
    if not listed:
        return None
    if isinstance(listed, str):
        listed = [name.strip() for name in listed.split(",") if name.strip()]
    elif not isinstance(listed, list | tuple):
        listed = [listed]
    return Interceptors([_make_interceptor(one, config) for one in listed])


def _make_interceptor(one: Any, config: ClientConfig) -> Any:
    named = object_named(one, CONFIG) if isinstance(one, str) else one
    try:
        interceptor = named() if isinstance(named, type) else named
        configure = getattr(interceptor, "configure", None)
        if callable(configure):
            configure(dict(config.by_name))
    except Exception as error:
        about = getattr(named, "__qualname__", type(named).__name__)
        raise InvalidClientConfig(f"{CONFIG}: {about} raised {type(error).__name__}: {error}") from error
    if not any(callable(getattr(interceptor, name, None)) for name in _METHODS):
        raise InvalidClientConfig(f"{CONFIG}: {named!r} has none of the methods {', '.join(_METHODS)}")
    return interceptor
