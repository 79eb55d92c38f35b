"""Broker in a thread of this process, for tests and scripts."""

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import CancelledError
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from ottla.addresses import address_text
from ottla.broker.broker import Broker
from ottla.broker.config import broker_config
from ottla.broker.lifecycle import BrokerServer, CannotStart
from ottla.broker.process import EphemeralDirectory
from ottla.environment.disk import DiskStore
from ottla.environment.process import process_environment
from ottla.observability.client_metrics import ClientMetrics
from ottla.tasks.deferred import Answer, Deferred

R = TypeVar("R")


async def _cancel_tasks() -> None:
    """Cancel the pending calls of other threads before the event loop is closed."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class EmbeddedBroker:
    """Broker for the duration of a `with` block.

    configs   Kafka's names and values, as in server.properties
    data_dir  data directory; by default a temporary one, which is removed at the end

    Raises CannotStart and InvalidConfig as `ottla serve` does.
    """

    def __init__(
        self, configs: Mapping[str, str] | None = None, *, data_dir: Path | None = None, port: int = 0
    ) -> None:
        self._temporary = EphemeralDirectory() if data_dir is None else None
        self.data_dir = data_dir or (self._temporary.path if self._temporary else Path())
        self._configs = {
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.dirs": str(self.data_dir),
            **(configs or {}),
        }
        self._reserved: list[socket.socket] = []
        self._thread: threading.Thread | None = None
        self._call_lock = threading.Lock()
        self._process = os.getpid()
        self._is_closed = False
        try:
            self._start_broker()
        except BaseException:
            self._remove()
            raise

    @property
    def broker(self) -> Broker:
        """Services of the broker, for use on its thread."""
        return self.server.broker

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the first listener."""
        return self.broker.listeners.bound[0][1]

    @property
    def bootstrap_servers(self) -> str:
        """Bootstrap servers for clients: "127.0.0.1:port"."""
        host, port = self.address
        return address_text(host, port)

    def client_metrics(self) -> dict[bytes, ClientMetrics]:
        """Return the newest metrics pushed by each client (KIP-714) as OTLP, by client instance id."""
        return self.broker.telemetry.received.instances()

    @property
    def _is_running(self) -> bool:
        return self._thread is not None

    def _new_server(self, loop: asyncio.AbstractEventLoop) -> BrokerServer:
        config = broker_config(options=map("=".join, self._configs.items()))
        return BrokerServer(config, process_environment(loop, files=self._files()))

    def _start(self) -> None:
        """Start the server; called before the thread of the broker."""
        self.server.start()

    def _files(self) -> DiskStore:
        """Return the file store; a temporary directory needs no fsync."""
        return DiskStore(durable=self._temporary is None)

    def _start_broker(self) -> None:
        """Start a broker on the data directory, and on the ports of the previous one."""
        self._loop = asyncio.new_event_loop()
        self._release_ports()
        try:
            self.server = self._new_server(self._loop)
            self._start()
        except BaseException:
            self._loop.close()
            raise
        self._thread = threading.Thread(target=self._run, name="ottla-broker", daemon=True)
        self._thread.start()

    def _end(self, end: Callable[[BrokerServer], object]) -> None:
        """End the broker with `BrokerServer.stop` or `.kill`. Its ports stay reserved until the next start or `close`."""
        self._check_process()
        with self._call_lock:
            thread, self._thread = self._thread, None
        if thread is None:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        thread.join()
        end(self.server)
        self._loop.close()
        self._reserve_ports()
        self._keep_listeners()

    def _keep_listeners(self) -> None:
        """Let the next start listen on the same ports."""
        bound = [
            f"{listener.name}://{address_text(host, port)}" for listener, (host, port) in self.broker.listeners.bound
        ]
        self._configs["listeners"] = ",".join(bound)

    def _stop_thread(self) -> None:
        """End the thread of the broker, and close its event loop."""
        with self._call_lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
            self._loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        # In this thread: the one that ends the broker may run an event loop of its own, as a cell of a notebook does.
        self._loop.run_until_complete(_cancel_tasks())

    def _call(self, function: Callable[[], R]) -> R:
        """Run `function` on the thread of the broker; return its result or raise its exception."""

        async def run() -> R:
            return function()

        return self._await(run)

    def _ask(self, function: Callable[[], Answer[R]]) -> R:
        """Run a function like `_call`, and wait for its answer if that is pending."""

        async def run() -> R:
            answer = function()
            if not isinstance(answer, Deferred):
                return answer
            response: asyncio.Future[R] = self._loop.create_future()
            answer.listen(lambda ended: _set_outcome(response, ended))
            return await response

        return self._await(run)

    def _await(self, function: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Run a coroutine like `_call`. Raises RuntimeError if the broker is down, or goes down meanwhile."""
        self._check_process()
        with self._call_lock:
            if self._thread is None:
                raise RuntimeError("the broker is down: restart() starts it again")
            future = asyncio.run_coroutine_threadsafe(function(), self._loop)
        try:
            return future.result()
        except CancelledError:
            raise RuntimeError("the broker went down") from None

    def _check_process(self) -> None:
        """Raise RuntimeError after `close`, and in a forked process: it has the memory of the broker, but not its thread."""
        if self._is_closed:
            raise RuntimeError("the broker is closed: its `with` block or its test has ended")
        if os.getpid() != self._process:
            raise RuntimeError(
                f"this broker runs in process {self._process}: a forked process may connect to it, not control it"
            )

    def _reserve_ports(self) -> None:
        """Bind the ports without listening: clients get connection refused, and no other process can take a port."""
        for _, (host, port) in self.broker.listeners.bound:
            sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._reserved.append(sock)
            with contextlib.suppress(OSError):  # taken by another process: a restart will fail
                sock.bind((host, port))

    def _release_ports(self) -> None:
        for sock in self._reserved:
            sock.close()
        self._reserved.clear()

    def close(self) -> None:
        """Stop the broker: cleanly, or without a flush if its directory is temporary. Does nothing in a forked process."""
        if os.getpid() != self._process or self._is_closed:
            return
        self._end(BrokerServer.stop if self._temporary is None else BrokerServer.kill)
        self._release_ports()
        self._remove()
        self._is_closed = True

    def _remove(self) -> None:
        if self._temporary is not None:
            self._temporary.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _set_outcome(response: "asyncio.Future[R]", answer: Deferred[R]) -> None:
    if answer.error is None:
        response.set_result(answer.result())
    elif isinstance(answer.error, CannotStart):
        response.set_exception(answer.error)
    else:
        response.set_exception(RuntimeError("it failed, as the log says"))
