"""Requests of the admin client: sent by a few threads, with a future for each resource, and librdkafka's errors."""

from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from ottla.addresses import address_text
from ottla.client import blocking
from ottla.client.admin.results import Results
from ottla.client.errors import BrokersUnreachable, NotAuthenticated
from ottla.client.errors import KafkaError as ClientError
from ottla.client.metrics import MetricValues
from ottla.compat.librdkafka.codes import CODES
from ottla.compat.librdkafka.configs import settings
from ottla.compat.librdkafka.errors import KafkaError, KafkaException, error_from, exception
from ottla.compat.librdkafka.events import Events, statistics
from ottla.compat.librdkafka.handle import Handle
from ottla.protocol import errors as table
from ottla.tasks.deferred import Deferred

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
_MOST_SECONDS = 3600


@dataclass(eq=False)
class Node:
    """A broker."""

    id: int
    host: str
    port: int
    rack: str | None = None

    def __post_init__(self) -> None:
        self.id_string = str(self.id)

    def __str__(self) -> str:
        rack = f"(Rack - {self.rack})" if self.rack else ""
        return f"({self.id}) {address_text(self.host, self.port)} {rack}"


class Admin(Handle, blocking.Admin):
    """Ottla's admin client, which ends without a warning."""

    def ask(self, coroutine: Coroutine[Deferred[Any], Any, T]) -> T:
        """Run a coroutine on the client's loop; return its result."""
        return self._run(coroutine)

    @property
    def core(self) -> Any:
        """Return the core of the client, for requests that it has no method for."""
        return self._admin

    def nodes(self, timeout: float | None) -> Callable[[int], Node]:
        """Return a function from ids to nodes; unknown ids have no address."""
        rows = self.describe_cluster(timeout=timeout).nodes
        known = {row.id: Node(row.id, row.host, row.port, row.rack) for row in rows}
        return lambda number: known.get(number) or Node(number, "", -1)


def require(condition: object, error: type[Exception], text: str) -> None:
    """Raise an error of an argument unless a condition holds."""
    if not condition:
        raise error(text)


def every(values: Any, kind: type[T], error: type[Exception]) -> list[T]:
    """Return values as a list of one class. Raises an error of this class, and TypeError for what cannot be iterated."""
    listed = list(values)
    require(all(isinstance(value, kind) for value in listed), error, f"Expected list of {kind!r}")
    return listed


def distinct(values: Iterable[Hashable], text: str) -> None:
    """Raise KafkaException (_INVALID_ARG) if a value occurs twice."""
    listed = list(values)
    if len(set(listed)) < len(listed):
        raise exception("_INVALID_ARG", text)


def limit(request_timeout: float | None, operation_timeout: float | None = None) -> float | None:
    """Return the timeout of a request in seconds, None for that of the configs. Raises TypeError, ValueError."""
    for name, value, low in (("request_timeout", request_timeout, 0), ("operation_timeout", operation_timeout, -1)):
        if value is None:
            continue
        require(isinstance(value, int | float), TypeError, f"must be real number, not {type(value).__name__}")
        within = low <= value * 1000 <= _MOST_SECONDS * 1000
        reason = f'Invalid value type for "{name}": expecting integer in range {low}..{_MOST_SECONDS * 1000}'
        require(within, ValueError, reason)
    return request_timeout


def message(error: ClientError) -> str:
    """Return the message of the broker in an error, "" without one."""
    return str(error).partition(f": {error.name}: ")[2]


def kafka_error(error: ClientError) -> KafkaError:
    """Convert an error: a code of the broker stays, with the message that it has sent; without a broker it is a timeout."""
    if isinstance(error, BrokersUnreachable):
        return KafkaError(KafkaError._TIMED_OUT, str(error))
    if error.code not in CODES or error.code <= 0 or isinstance(error, NotAuthenticated):
        return error_from(error)
    text = message(error)
    return KafkaError(error.code, None if text == table.error(error.code).message else text or None)


def failure(error: ClientError) -> KafkaException:
    """Return the exception for an error."""
    return KafkaException(kafka_error(error))


def _nothing(_: Any) -> None:
    """Convert the result of a request that returns nothing."""


class Requests:
    """Shared base of the parts of the admin client."""

    _handle: Handle

    def __init__(self, conf: Mapping[str, Any], **kwargs: Any) -> None:
        self._settings = settings("admin client", (dict(conf),), kwargs)
        self._handle = self._admin = Admin(self._settings.client)  # type: ignore[arg-type]  # Blocking takes parsed configs, too
        self._executor = ThreadPoolExecutor(4, "ottla-admin")
        self._events = Events(self._settings, self._statistics)
        self._admin.report_to(self._events)

    def _statistics(self) -> dict[str, Any]:
        return statistics("producer", self._admin.config["client.id"], 0, MetricValues(), self._admin.brokers())

    def _future(self, request: Callable[[], T]) -> "Future[T]":
        """Call a request in the background; return the future of its result."""

        def run() -> T:
            try:
                return request()
            except ClientError as error:
                raise failure(error) from error

        return self._executor.submit(run)

    def _futures(
        self,
        keys: Iterable[K],
        request: Callable[[], Results[Any, Any]],
        convert: Callable[[Any], Any] = _nothing,
        *,
        name: Callable[[K], Any] | None = None,
    ) -> dict[K, "Future[Any]"]:
        """Call a request in the background; return a future for each key.

        convert  function from a result to that of the future
        name     function from a key to that of the results
        """
        futures: dict[K, Future[Any]] = {key: Future() for key in keys}
        for future in futures.values():
            future.set_running_or_notify_cancel()

        def run() -> None:
            for key, future in futures.items():
                try:
                    future.set_result(convert(results()[key if name is None else name(key)]))
                except ClientError as error:
                    future.set_exception(failure(error))
                except Exception as error:  # noqa: BLE001  (the future has it)
                    future.set_exception(error)

        sent = self._future(request)
        results = sent.result
        sent.add_done_callback(lambda _: run())
        return futures
