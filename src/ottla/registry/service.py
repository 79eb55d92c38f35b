"""A registry that serves: its topic, its operations and its HTTP server on one event loop."""

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from socket import gethostname
from typing import Any, Final, NamedTuple, TypeVar

from ottla.addresses import address_text
from ottla.client.errors import KafkaError
from ottla.environment.http_server import Handler, HttpRequest, HttpResponse, HttpServer
from ottla.environment.thread import LoopThread
from ottla.observability.families import CONTENT_TYPE, Family, text_of
from ottla.registry.acls import follow_acls
from ottla.registry.checking import Checking
from ottla.registry.election import Identity
from ottla.registry.fencing import Fencing
from ottla.registry.forwarding import FORWARDED, CannotForward, forward
from ottla.registry.leadership import Leadership
from ottla.registry.login import Login
from ottla.registry.metrics import Figures, families
from ottla.registry.operations import Operations
from ottla.registry.permissions import Permissions
from ottla.registry.refusals import Refusal
from ottla.registry.rest import Rest, error_answer
from ottla.registry.security import RegistrySecurity
from ottla.registry.store import Store, WrongTopic
from ottla.schemas.protoc import ProtocProcess

T = TypeVar("T")
_logger = logging.getLogger("ottla.registry")
_FORWARD_THREADS: Final = 16
_WILDCARDS: Final = frozenset({"", "0.0.0.0", "::"})
_SUPERSEDED: Final = "another registry leads, and none is known to which changes can be sent"
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0


class RegistryConfig(NamedTuple):
    """Settings of a registry.

    client_configs  configs of its Kafka clients, with bootstrap.servers
    host, port      address of the HTTP server; port 0 takes a free port
    topic           topic of its state
    timeout_ms      limit of a write
    security        login and TLS of the HTTP server
    group           group of the election; "" for a registry that is the only one
    """

    client_configs: Mapping[str, object]
    host: str = "127.0.0.1"
    port: int = 8081
    topic: str = "_schemas"
    timeout_ms: int = 5_000
    security: RegistrySecurity = RegistrySecurity()
    group: str = "schema-registry"


class Service:
    """A registry on the running event loop.

    failure  why it has ended, None while it serves
    changes  increases before a change of the state is answered
    """

    def __init__(self, config: RegistryConfig, around: Callable[[Handler], Handler] = lambda handler: handler) -> None:
        self.answers: Counter[tuple[str, str, int]] = Counter()
        self.failure: str | None = None
        self.changes = 0
        self._config = config
        self._rest = Rest(self._count, self._forward)
        self._fencing = Fencing(f"schema-registry:{config.group}" if config.group else "")
        self._port = 0
        security, users = config.security, config.security.passwords
        self._permissions: Permissions | None = None
        if security.authorizes:
            self._permissions = Permissions(
                security.super_users, lambda: None if self._store is None else self._store.state
            )
        self._login = None if users is None else Login(users, security.read_only, self._permissions)
        self._served: Handler = self._handle if self._login is None else self._login.around(self._handle)
        self._store: Store | None = None
        self._leadership: Leadership | None = None
        self._server = HttpServer(around(self._serve_probe), error=error_answer)
        self._checking = Checking()
        self._protoc = ProtocProcess.acquire()
        self._forwarding = ThreadPoolExecutor(_FORWARD_THREADS, "ottla-forwarding")
        self._ready = asyncio.Event()
        self._ended = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._reading_acls: asyncio.Task[None] | None = None

    async def start(self) -> str:
        """Listen and begin to read the topic; return the URL. Raises OSError."""
        self._port = await self._server.start(self._config.host, self._config.port, self._config.security.tls)
        self._begin()
        if self._permissions is not None:
            reading = follow_acls(self._config.client_configs, self._permissions)
            self._reading_acls = asyncio.get_running_loop().create_task(reading)
        return f"{self._config.security.scheme}://{address_text(self._config.host, self._port)}"

    async def wait_ready(self) -> None:
        """Wait until the registry can register schemas. Raises WrongTopic."""
        waits = [asyncio.ensure_future(event.wait()) for event in (self._ready, self._ended)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        if self.failure is not None:
            raise WrongTopic(self.failure)

    async def wait_ended(self) -> str:
        """Wait until the registry cannot go on; return the reason."""
        await self._ended.wait()
        return self.failure or ""

    async def halt(self) -> None:
        """Stop reading and writing the topic; requests get 503 until `reset`."""
        await self._stop_running()

    async def reset(self) -> None:
        """Begin again, with what is in the topic now."""
        await self._stop_running()
        self._begin()

    async def stop(self) -> None:
        """End."""
        await self._server.stop()
        await self._stop_running()
        if self._reading_acls is not None:
            self._reading_acls.cancel()
            await asyncio.gather(self._reading_acls, return_exceptions=True)
        self._forwarding.shutdown(wait=False, cancel_futures=True)
        await asyncio.to_thread(self._checking.close)
        await asyncio.to_thread(self._protoc.release)
        if self._login is not None:
            self._login.close()

    @property
    def is_ready(self) -> bool:
        """True while schemas can be registered, here or by another registry that is known."""
        return self.leads or (self._leadership is not None and self._leadership.leader is not None)

    @property
    def leads(self) -> bool:
        """True while this registry writes."""
        return self._store is not None and self._store.leads

    def _begin(self) -> None:
        self._running = asyncio.get_running_loop().create_task(self._run())

    async def _stop_running(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running

    async def _run(self) -> None:
        """Keep the state; after an error of Kafka, begin again with an empty one."""
        pause = _FIRST_PAUSE_S
        while True:
            store = Store(self._config.client_configs, self._config.topic, self._on_change, self._fencing)
            operations = Operations(store, self._checking, self._config.timeout_ms)
            leadership = Leadership(store, self._config.client_configs, self._config.group, self._identity())
            electing: asyncio.Task[None] | None = None
            try:
                await store.open()
                await leadership.begin()
                self._store, self._leadership = store, leadership
                self._rest.operations = operations
                operations.restore_soon()
                self._ready.set()
                pause = _FIRST_PAUSE_S
                electing = asyncio.get_running_loop().create_task(leadership.run())
                await store.wait_failed()
            except WrongTopic as wrong:
                self.failure = self._rest.waiting_for = str(wrong)
                self._ended.set()
                return
            except KafkaError as failed:
                if self._rest.waiting_for != str(failed):  # once for each reason
                    _logger.warning("the registry begins again: %s", failed)
                self._rest.waiting_for = str(failed)
            finally:
                self._ready.clear()
                self._store = self._leadership = None
                self._rest.operations = None
                self._on_change()
                await operations.close()
                if electing is not None:
                    electing.cancel()
                    await asyncio.gather(electing, return_exceptions=True)
                await leadership.close()
                await store.close()
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _on_change(self) -> None:
        """Drop what was kept of an older state."""
        self.changes += 1
        self._rest.forget()
        if self._rest.operations is not None:
            self._rest.operations.restore_soon()

    async def ask(self, path: str) -> HttpResponse:
        """Return the response to a GET request of this process, which needs no login."""
        response = self._rest.handle(HttpRequest("GET", path, {}, b""))
        return response if isinstance(response, HttpResponse) else await response

    def _identity(self) -> Identity:
        """Return the address of this registry for the others."""
        host = self._config.host
        return Identity(self._config.security.scheme, gethostname() if host in _WILDCARDS else host, self._port)

    async def _forward(self, request: HttpRequest) -> HttpResponse | None:
        """Send a request to the registry that writes; None if that is not known, or the request was forwarded already."""
        leader = None if self._leadership is None else self._leadership.leader
        if leader is None or FORWARDED in request.headers:
            return None
        send = partial(forward, request, leader.url)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._forwarding, send)
        except CannotForward as failed:
            raise Refusal(50003, f"Error while forwarding the request to the leader: {failed}") from None

    def _serve_probe(self, request: HttpRequest) -> HttpResponse | Coroutine[Any, Any, HttpResponse]:
        """Answer probes, which need no login, and pass other requests on."""
        if request.target == "/livez":
            return HttpResponse(b"live\n")
        if request.target == "/readyz":
            if self.is_ready:
                return HttpResponse(b"ready\n")
            reason = self._rest.waiting_for if self._store is None else _SUPERSEDED
            return HttpResponse(f"{reason}\n".encode(), HTTPStatus.SERVICE_UNAVAILABLE)
        return self._served(request)

    def _handle(self, request: HttpRequest) -> HttpResponse | Coroutine[Any, Any, HttpResponse]:
        if request.target == "/metrics" and request.method in ("GET", "HEAD"):
            return HttpResponse("".join(text_of(self._families())).encode(), content_type=CONTENT_TYPE)
        return self._rest.handle(request)

    def _families(self) -> list[Family]:
        store = self._store
        lag = None if store is None else store.lag
        figures = Figures(self.answers, self._server.connections, self.leads, lag)
        return list(families(None if store is None else store.state, figures))

    async def read_metrics(self) -> list[Family]:
        """Return the metrics, for another page than that of the registry."""
        return self._families()

    def _count(self, method: str, path: str, status: int) -> None:
        self.answers[method, path, status] += 1


class RegistryThread:
    """A registry on an event loop in a thread of its own, for a process that does something else as well.

    Raises OSError if the address is taken.
    """

    def __init__(self, config: RegistryConfig, around: Callable[[Handler], Handler] = lambda handler: handler) -> None:
        self._thread = LoopThread.own("ottla-registry")
        self._lock = threading.Lock()
        self._is_stopped = False
        try:
            self.service = self._thread.call(lambda: Service(config, around))
            self.url = self.run(self.service.start())
        except BaseException:
            self._thread.release()
            raise

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop of the registry; return its result."""
        return self.begin(coroutine).result()

    def begin(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run a coroutine on the loop of the registry, without waiting for it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._thread.loop)

    def stop(self) -> None:
        """Stop the registry; does nothing a second time."""
        with self._lock:
            if self._is_stopped:
                return
            self._is_stopped = True
        self.run(self.service.stop())
        self._thread.release()
