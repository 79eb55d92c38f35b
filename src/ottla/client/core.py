"""Shared base of all clients: scheduler, network and metadata, built from a ClientConfig."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ottla.client.config import ClientConfig
from ottla.client.metadata import Metadata
from ottla.client.metrics import MetricValues, Sensor
from ottla.environment import Clock, Random, Timers, Transport, Workers
from ottla.net.connection import ConnectionSettings
from ottla.net.network import Network
from ottla.protocol.api import GET_TELEMETRY_SUBSCRIPTIONS
from ottla.tasks.deferred import Deferred, completed
from ottla.tasks.scheduler import Scheduler

if TYPE_CHECKING:
    from ottla.client.telemetry.pushing import MetricsPush

logger = logging.getLogger("ottla.client")


class ClientEnvironment(Protocol):
    """Clock, random numbers, timers, transport and threads of a client; the part of `Environment` that it uses."""

    @property
    def clock(self) -> Clock:
        """Return the clock."""

    @property
    def random(self) -> Random:
        """Return the source of random numbers for ids and jitter."""

    @property
    def timers(self) -> Timers:
        """Return the timers that schedule callbacks."""

    @property
    def transport(self) -> Transport:
        """Return the transport that opens connections."""

    @property
    def workers(self) -> Workers:
        """Return what starts background threads, for logins that take long."""


def connection_settings(
    config: ClientConfig, scheduler: Scheduler, environment: ClientEnvironment
) -> ConnectionSettings:
    """Return the configs of a client that its connections need. Raises InvalidClientConfig."""
    login = None
    if config["security.protocol"].startswith("SASL"):
        from ottla.client.credentials import credentials

        login = credentials(config, environment.random, scheduler, environment.workers)
    return ConnectionSettings(
        client_id=config["client.id"],
        request_timeout_ms=config["request.timeout.ms"],
        setup_timeout_ms=config["socket.connection.setup.timeout.ms"],
        setup_timeout_max_ms=config["socket.connection.setup.timeout.max.ms"],
        reconnect_backoff_ms=config["reconnect.backoff.ms"],
        reconnect_backoff_max_ms=config["reconnect.backoff.max.ms"],
        max_idle_ms=config["connections.max.idle.ms"],
        send_buffer=config["send.buffer.bytes"],
        receive_buffer=config["receive.buffer.bytes"],
        # A response to a fetch may exceed fetch.max.bytes by its headers.
        largest=max(config["receive.message.max.bytes"], min(config["fetch.max.bytes"] + (1 << 20), 0x7FFFFFFF)),
        credentials=login,
    )


class Core:
    """Core of one client, shared by producer, consumer and admin client. All its code runs on one thread.

    telemetry  pushes of the client's metrics; None before a broker takes metrics
    """

    def __init__(self, config: ClientConfig, environment: ClientEnvironment) -> None:
        self.config = config
        self.clock = environment.clock
        self.random = environment.random
        self.scheduler = Scheduler(environment.clock, environment.timers, _report)
        settings = connection_settings(config, self.scheduler, environment)
        transport = environment.transport
        if config["security.protocol"].endswith("SSL"):
            from ottla.client.tls import secure_transport

            transport = secure_transport(config, transport)
        self.network = Network(settings, self.scheduler, transport, environment.random)
        self.metadata = Metadata(config, self.network, self.scheduler, environment.random)
        self.telemetry: MetricsPush | None = None
        self._metrics: Callable[[], MetricValues] | None = None
        self._member_id: Callable[[], str] | None = None
        self._connections = Sensor()

    def observe(self, metrics: Callable[[], MetricValues], member_id: Callable[[], str]) -> None:
        """Measure connections, and push these metrics as soon as a broker takes metrics (enable.metrics.push).

        member_id  returns the member id in the group; "" without one
        """
        self._metrics, self._member_id = metrics, member_id
        self.network.changed.wait().listen(self._on_connection)

    def _on_connection(self, _: Deferred[None]) -> None:
        opened = self.network.opened_total - self._connections.total
        if opened:
            self._connections.record(opened, self.clock.now_ms())
        if self.network.closed:
            return
        self.network.changed.wait().listen(self._on_connection)
        if self.telemetry is None and self.config["enable.metrics.push"]:
            links = self.network.open_links()
            if any(GET_TELEMETRY_SUBSCRIPTIONS in link.versions for link in links):
                self._begin_pushes()

    def _begin_pushes(self) -> None:
        # Imported when it is needed: most brokers take no metrics.
        from ottla.client.telemetry.pushing import MetricsPush

        if self._metrics is not None and self._member_id is not None:
            self.telemetry = MetricsPush(
                self.network, self.config, self.random, metrics=self._metrics, member_id=self._member_id
            )

    def push_last(self, timeout_ms: int) -> Deferred[None]:
        """Push the metrics for the last time, if they are pushed; wait up to `timeout_ms`, and not for long."""
        if self.telemetry is None:
            return completed(None, self.scheduler)
        return self.scheduler.start(self.telemetry.close(timeout_ms), "last push of metrics")

    def connection_metrics(self) -> list[tuple[str, float]]:
        """Return the metrics of connections, which all clients have."""
        return [
            ("connection-creation-total", float(self.network.opened_total)),
            ("connection-creation-rate", self._connections.rate(self.clock.now_ms())),
            ("connection-count", float(self.network.open_count)),
        ]

    def close(self) -> None:
        """Close every connection."""
        if self.telemetry is not None:
            self.telemetry.stop()
        self.network.close()
        if self.network.settings.credentials is not None:
            self.network.settings.credentials.close()


def _report(name: str, error: BaseException) -> None:
    logger.error("%s: %s", name or "a task", error, exc_info=error)
