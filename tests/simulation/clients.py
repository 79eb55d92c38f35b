"""Processes of applications on simulated hosts: each uses the real client cores and records what it sees.

An application that meets an error which it cannot handle ends, and is started again after a second, as by a service manager.
"""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.client.config import ClientConfig
from ottla.client.consumer.core import ConsumerCore
from ottla.client.consumer.rebalance import Handover
from ottla.client.core import Core
from ottla.client.errors import KafkaError
from ottla.client.producer.core import ProducerCore
from ottla.environment import Clock, Random, Timers, Transport, Workers
from ottla.records.record import Record

from .brokers import PORT
from .history import History, PartitionKey, Step
from .hosts import Host, HostRandom, HostWorkers, Life
from .network import HostNetwork, Network
from .world import MS_US, SECOND_US, World

_RESTART_US: Final = SECOND_US
_CONFIGS: Final[Mapping[str, str]] = {
    "request.timeout.ms": "4000",
    "default.api.timeout.ms": "15000",
    "max.block.ms": "20000",
    "delivery.timeout.ms": "60000",
    "socket.connection.setup.timeout.ms": "2000",
    "socket.connection.setup.timeout.max.ms": "4000",
    "metadata.max.age.ms": "20000",
}


class Cluster:
    """Cluster as its clients know it.

    name     name in the history
    brokers  host names of its brokers
    """

    def __init__(self, name: str, brokers: tuple[str, ...]) -> None:
        self.name = name
        self.brokers = brokers

    @property
    def bootstrap(self) -> str:
        """Value of bootstrap.servers."""
        return ",".join(f"{broker}:{PORT}" for broker in self.brokers)


class ClientProcess:
    """Environment of one life of an application: the part of `Environment` that the client core uses."""

    def __init__(self, client: "SimulatedClient", life: Life, network: Network) -> None:
        self.client = client
        self.life = life
        self.clock: Clock = life.host.clock
        self.random: Random = HostRandom(life)
        self.timers: Timers = life
        self.transport: Transport = HostNetwork(network, life)
        self.workers: Workers = HostWorkers(life)
        self.name = f"{life.host.name}.{life.number}"
        self.world: World = life.host.world
        self.history: History = client.history
        self.cluster = client.cluster
        self.chance = self.world.random(f"{self.name}/application")

    # -- cores --

    def core(self, **configs: str) -> Core:
        """Create the core of a client."""
        names = {name.replace("_", "."): value for name, value in configs.items()}
        servers = {"bootstrap.servers": self.cluster.bootstrap, "client.id": self.name}
        return Core(ClientConfig({**_CONFIGS, **servers, **names}), self)

    def producer(self, **configs: str) -> ProducerCore:
        """Create a producer, with acks=all unless they are given."""
        woken = False

        def look() -> None:
            nonlocal woken
            woken = False
            producer.sender.take_in()

        def wake() -> None:
            nonlocal woken
            if not woken:
                woken = True
                self.life.call_later(0, look)

        producer = ProducerCore(self.core(**{"acks": "all", **configs}), contextlib.nullcontext(), wake)
        return producer

    # -- records of what happens --

    @property
    def now_us(self) -> int:
        """Return the time of the run."""
        return self.world.now_us

    @property
    def is_stopping(self) -> bool:
        """True when applications write nothing new any more."""
        return self.world.now_us >= self.client.stops_us

    def key(self, topic: str, partition: int) -> PartitionKey:
        """Return a partition of the cluster."""
        return PartitionKey(self.cluster.name, topic, partition)

    def step(self) -> None:
        """Record progress."""
        self.history.steps.append(Step(self.life.host.name, self.world.now_us))

    def tell(self, text: str) -> None:
        """Add a line to the story of the run."""
        self.world.tell(self.name, text)

    def note_error(self, doing: str, error: KafkaError) -> None:
        """Add an error that the application handles to the story."""
        self.world.count("client errors")
        text = f"{doing}: {type(error).__name__}: {error}"
        self.history.errors.append((self.world.now_us, self.name, text))
        self.tell(text)

    def unexpected(self, doing: str, error: KafkaError) -> None:
        """Report an error that no fault explains."""
        self.life.host.failed(f"{doing}: {type(error).__name__}: {error}")


class Application:
    """Code of an application; a new object for each process."""

    def __init__(self, process: ClientProcess) -> None:
        self.process = process

    async def run(self) -> None:
        """Run until the end; raises KafkaError to be started again."""
        raise NotImplementedError

    @property
    def main(self) -> Core:
        """Return the core whose scheduler runs the application."""
        raise NotImplementedError

    def at_rest(self) -> None:
        """Record the state at the end of the run."""


class SimulatedClient:
    """Application on its own host, which can be killed and started again.

    stops_us   time from which nothing new is written
    number     number of clients of this role that the cluster had before
    """

    def __init__(
        self,
        host: Host,
        role: str,
        network: Network,
        cluster: Cluster,
        history: History,
        create: Callable[[ClientProcess], Application],
        stops_us: int,
        number: int = 0,
    ) -> None:
        self.host = host
        self.role = role
        self.cluster = cluster
        self.history = history
        self.stops_us = stops_us
        self.number = number
        self.application: Application | None = None
        self.is_done = False
        self._network = network
        self._create = create
        self._ended: list[Application] = []
        """Applications of earlier lives: kept, so that the end of the run collects their coroutines, and not a moment that
        the garbage collector chooses."""

    @property
    def name(self) -> str:
        """Name of the host."""
        return self.host.name

    def start(self) -> None:
        """Start a process, unless one runs."""
        if self.application is not None or self.is_done:
            return
        life = self.host.begin_life()
        process = ClientProcess(self, life, self._network)
        self.host.world.tell(self.name, f"starts, life {life.number}")
        application = self.application = self._create(process)
        life.after_us(MS_US, lambda: self._begin(application))

    def _begin(self, application: Application) -> None:
        application.main.scheduler.background(self._run(application), application.process.name)

    async def _run(self, application: Application) -> None:
        try:
            await application.run()
        except KafkaError as error:
            application.process.note_error("ends", error)
            self.host.world.count("client restarts")
            self._restart()
        except Exception as error:
            self.host.failed(f"{type(error).__name__}: {error}")
            raise
        else:
            self.is_done = True

    def _restart(self) -> None:
        self.kill()
        self.host.world.call_after(_RESTART_US, self.start)

    def kill(self) -> None:
        """End the process like kill -9."""
        if self.application is not None:
            self._ended.append(self.application)
            self.application = None
            self._network.end_life(self.host, silently=False)
            self.host.end_life()


class Polling:
    """Loop of a consumer's application: waits, runs listeners, takes records."""

    def __init__(self, consumer: ConsumerCore) -> None:
        self._consumer = consumer

    async def records(self, timeout_ms: int, most: int = 200) -> list[Record]:
        """Return fetched records; an empty list after the timeout."""
        consumer = self._consumer
        records = consumer.take_many(most)
        if records:
            return records
        event: Any = await consumer.wait(timeout_ms)
        while isinstance(event, Handover):
            event.listener(event.partitions)
            event.done.complete(None)
            event = await consumer.wait(timeout_ms)
        return consumer.take_many(most) if event else []
