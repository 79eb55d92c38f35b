"""Shared base of all clients: scheduler, network and metadata, built from a ClientConfig."""

import logging
from typing import Protocol

from ottla.client.config import ClientConfig
from ottla.client.metadata import Metadata
from ottla.client.network import Network
from ottla.client.scheduler import Scheduler
from ottla.environment import Clock, Random, Timers, Transport

logger = logging.getLogger("ottla.client")


class Surroundings(Protocol):
    """Environment of a client: clock, random, timers and transport; `loop.py` has the real one."""

    @property
    def clock(self) -> Clock:
        """The time."""

    @property
    def random(self) -> Random:
        """Random numbers, for ids and jitter."""

    @property
    def timers(self) -> Timers:
        """Calls back later."""

    @property
    def transport(self) -> Transport:
        """Opens connections."""


class Core:
    """One client without its role. Everything of it runs on one thread."""

    def __init__(self, config: ClientConfig, surroundings: Surroundings) -> None:
        self.config = config
        self.clock = surroundings.clock
        self.random = surroundings.random
        self.scheduler = Scheduler(surroundings.clock, surroundings.timers, _unheard)
        self.network = Network(config, self.scheduler, surroundings.transport, surroundings.random)
        self.metadata = Metadata(config, self.network, self.scheduler, surroundings.random)

    def close(self) -> None:
        """Give up every connection."""
        self.network.close()


def _unheard(name: str, error: BaseException) -> None:
    logger.error("%s: %s", name or "a task", error, exc_info=error)
