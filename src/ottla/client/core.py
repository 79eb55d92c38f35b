"""Shared base of all clients: scheduler, network and metadata, built from a ClientConfig."""

import logging
from typing import Protocol

from ottla.client.config import ClientConfig
from ottla.client.metadata import Metadata
from ottla.environment import Clock, Random, Timers, Transport, Workers
from ottla.net.connection import ConnectionSettings
from ottla.net.network import Network
from ottla.tasks.scheduler import Scheduler

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
    """Core of one client, shared by producer, consumer and admin client. All its code runs on one thread."""

    def __init__(self, config: ClientConfig, environment: ClientEnvironment) -> None:
        self.config = config
        self.clock = environment.clock
        self.random = environment.random
        self.scheduler = Scheduler(environment.clock, environment.timers, _report)
        settings = connection_settings(config, self.scheduler, environment)
        transport = environment.transport
        if config["security.protocol"].endswith("SSL"):
            from ottla.client.tls import secured_transport

            transport = secured_transport(config, transport)
        self.network = Network(settings, self.scheduler, transport, environment.random)
        self.metadata = Metadata(config, self.network, self.scheduler, environment.random)

    def close(self) -> None:
        """Close every connection."""
        self.network.close()
        if self.network.settings.credentials is not None:
            self.network.settings.credentials.close()


def _report(name: str, error: BaseException) -> None:
    logger.error("%s: %s", name or "a task", error, exc_info=error)
