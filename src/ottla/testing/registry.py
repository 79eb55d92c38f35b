"""Schema registry beside a test broker, with faults."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from typing import Any, Final

from ottla.arguments import WrongArgument
from ottla.environment.http_server import Handler, HttpRequest, HttpResponse
from ottla.registry.local import LocalRegistry
from ottla.registry.service import RegistryConfig, RegistryThread
from ottla.testing.calls import checks_calls, milliseconds
from ottla.testing.faults import ActiveChange

_READY_TIMEOUT_S: Final = 30.0
_FIRST_ERROR: Final = 400
_LAST_ERROR: Final = 599


@checks_calls
class HttpFault(ActiveChange):
    """Fault of requests to the registry. `hits` counts the requests that it has met."""

    def __init__(
        self, end: Callable[[ActiveChange], object], status: int | None, delay_ms: int, count: int | None
    ) -> None:
        super().__init__(lambda: end(self))
        self.hits = 0
        self.status = status
        self.delay_ms = delay_ms
        self.left = count

    def take(self) -> bool:
        """Return whether the next request has this fault."""
        if self.left == 0:
            return False
        self.left = None if self.left is None else self.left - 1
        self.hits += 1
        return True


@checks_calls
class TestRegistry:
    """Schema registry of a test broker: `kafka.registry`. Its schemas are in the topic `_schemas` of the broker.

    url    address for clients
    topic  its topic
    local  what the broker asks
    """

    __test__ = False  # pytest collects classes that are named Test...

    def __init__(self, client_configs: Mapping[str, object]) -> None:
        self._faults: list[HttpFault] = []
        config = RegistryConfig(client_configs, port=0, group="")
        self.topic = config.topic
        self._thread = RegistryThread(config, self._with_faults)
        self.url = self._thread.url
        self.local = LocalRegistry(self._thread)
        try:
            self._wait_ready()
        except BaseException:
            self._thread.stop()
            raise

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"

    def fail(self, status: int = 500, count: int | None = 1) -> HttpFault:
        """Answer the next `count` requests with an HTTP status from 400 to 599; None: all requests until `end`.

        The requests are not executed. The body is an error in the form of a registry.
        """
        if not _FIRST_ERROR <= status <= _LAST_ERROR:
            raise WrongArgument(f"fail: status must be from {_FIRST_ERROR} to {_LAST_ERROR}, not {status}")
        return self._add(status, 0, count)

    def delay(self, ms: int | timedelta, count: int | None = None) -> HttpFault:
        """Delay requests by `ms` or a timedelta: all until `end`, or the next `count`."""
        return self._add(None, milliseconds(ms, "the delay is invalid"), count)

    def heal(self) -> None:
        """End all faults."""
        self._faults.clear()

    def halt(self) -> None:
        """Answer all requests with 503 until `resume`."""
        self._thread.run(self._thread.service.halt())

    def resume(self) -> None:
        """Begin again with what is in the topic, and wait until schemas can be registered."""
        self._thread.run(self._thread.service.reset())
        self._wait_ready()

    def close(self) -> None:
        """Stop the registry."""
        self._thread.stop()

    def _wait_ready(self) -> None:
        self._thread.run(asyncio.wait_for(self._thread.service.wait_ready(), _READY_TIMEOUT_S))

    def _add(self, status: int | None, delay_ms: int, count: int | None) -> HttpFault:
        if count is not None and count < 1:
            raise WrongArgument(f"count must be at least 1, or None for all requests, not {count}")
        fault = HttpFault(
            lambda ended: self._faults.remove(ended) if ended in self._faults else None, status, delay_ms, count
        )
        self._faults.append(fault)
        return fault

    def _with_faults(self, handler: Handler) -> Handler:
        def handle(request: HttpRequest) -> HttpResponse | Coroutine[Any, Any, HttpResponse]:
            faults = [fault for fault in self._faults if fault.take()]
            status = next((fault.status for fault in faults if fault.status is not None), None)
            delay_s = sum(fault.delay_ms for fault in faults) / 1000
            if delay_s:
                return respond_later(request, status, delay_s)
            return handler(request) if status is None else _failure(status)

        async def respond_later(request: HttpRequest, status: int | None, delay_s: float) -> HttpResponse:
            await asyncio.sleep(delay_s)
            if status is not None:
                return _failure(status)
            response = handler(request)
            return response if isinstance(response, HttpResponse) else await response

        return handle


def _failure(status: int) -> HttpResponse:
    error = {"error_code": status, "message": f"HTTP {status}, a fault of the test"}
    return HttpResponse(json.dumps(error).encode(), status, "application/vnd.schemaregistry.v1+json")
