"""Metrics and health of a broker over HTTP, for `ottla serve --metrics`.

The HTTP server has threads of its own. Each request is computed on the event loop of the broker, in steps, and written as text
in its thread.
"""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus
from typing import NamedTuple, TypeVar

from ottla.addresses import address_text
from ottla.broker.lifecycle import BrokerServer, CannotStart
from ottla.broker.metrics.collection import BrokerMetrics, Reading
from ottla.broker.metrics.health import Health, HealthCheck
from ottla.broker.metrics.selection import TopicSelection
from ottla.environment.http_server import HttpResponse, serve_pages
from ottla.environment.system import thread_cpu_ns
from ottla.observability.families import Family

R = TypeVar("R")
_TIMEOUT_S = 10


class BrokerUnavailable(Exception):
    """The event loop of the broker has not answered in time, or has failed to."""


class Exposed(NamedTuple):
    """Address of the HTTP server, and the topics with metrics of their own (see `TopicSelection`).

    further  return metrics of other services of the process; called in the thread of a request
    """

    host: str
    port: int
    topics: str = ""
    further: Sequence[Callable[[], Iterable[Family]]] = ()

    def serve(self, server: BrokerServer) -> tuple[str, Callable[[], None]]:
        """Serve; returns the address of the metrics and a function that stops the server. Called on the event loop of the
        broker. Raises CannotStart.
        """
        from ottla.observability.metrics import (
            broker_page,
        )  # late: its packages take longer to load than a broker to start

        loop = asyncio.get_running_loop()
        metrics = BrokerMetrics(server, thread_cpu_ns, TopicSelection(self.topics))
        check = HealthCheck(server)

        def compute(begin: Callable[[Callable[[R], None], Callable[[], None]], None]) -> R:
            """Compute a value on the event loop, and wait for it."""
            answer: concurrent.futures.Future[R] = concurrent.futures.Future()

            def on_failed() -> None:
                answer.set_exception(BrokerUnavailable("the metrics could not be read: the log says why"))

            loop.call_soon_threadsafe(lambda: begin(answer.set_result, on_failed))
            try:
                return answer.result(timeout=_TIMEOUT_S)
            except concurrent.futures.TimeoutError:
                raise BrokerUnavailable(f"the event loop has not answered within {_TIMEOUT_S} s") from None

        one_at_a_time = threading.Lock()

        def metrics_page(accept: str) -> HttpResponse:
            with one_at_a_time:  # each takes megabytes, and time of the event loop
                reading: Reading = compute(metrics.read)
                others = [family for read in self.further for family in read()]
                return broker_page([*reading.families, *others], reading.clients, accept)

        def live_page(accept: str) -> HttpResponse:  # noqa: ARG001
            def begin(done: Callable[[bytes], None], failed: Callable[[], None]) -> None:  # noqa: ARG001
                done(b"live\n")

            return HttpResponse(compute(begin))

        def ready_page(accept: str) -> HttpResponse:  # noqa: ARG001
            def begin(done: Callable[[Health], None], failed: Callable[[], None]) -> None:  # noqa: ARG001
                done(check.look())

            health = compute(begin)
            return HttpResponse(
                health.text.encode(), HTTPStatus.OK if health.is_ready else HTTPStatus.SERVICE_UNAVAILABLE
            )

        pages = {"/metrics": metrics_page, "/livez": live_page, "/readyz": ready_page}
        try:
            port, stop = serve_pages(self.host, self.port, pages)
        except OSError as error:
            where = address_text(self.host, self.port)
            raise CannotStart(f"cannot serve metrics on {where}: {error.strerror or error}") from None
        return f"http://{address_text(self.host, port)}/metrics", stop
