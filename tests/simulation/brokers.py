"""Brokers of a simulation: complete `BrokerServer`s on simulated hosts, which can be killed and started again."""

from functools import partial
from typing import Final

from ottla.broker.config import broker_config
from ottla.broker.lifecycle import BrokerServer, CannotStart
from ottla.environment import Environment

from .disks import BrokerFiles, DiskState, HostDisk, Observer
from .hosts import Host, HostRandom, HostWorkers
from .isolated import broker_server
from .network import HostNetwork, Network
from .world import SECOND_US

PORT: Final = 9092
_DIRECTORY: Final = "/data"
_CONFIGS: Final = {
    "num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "100",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "10000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "2000",
    "group.share.min.session.timeout.ms": "6000",
    "group.share.session.timeout.ms": "10000",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "2000",
    "group.share.record.lock.duration.ms": "15000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "2000",
    "log.segment.bytes": "1048576",
    "log.cleaner.backoff.ms": "5000",
    "auto.create.topics.enable": "false",
}
_RETRY_US: Final = SECOND_US


class SimulatedBroker:
    """One broker with its host and disk.

    server  the running broker; None while it does not run
    wanted  True if the broker should run: a failed start is repeated
    """

    def __init__(self, host: Host, network: Network, node_id: int, configs: dict[str, str], observer: Observer) -> None:
        self.host = host
        self.node_id = node_id
        self.disk = HostDisk(observer)
        self.server: BrokerServer | None = None
        self.wanted = False
        self._network = network
        self._chance = host.world.random(f"{host.name}/power")
        self._config = broker_config(
            {
                **_CONFIGS,
                **configs,
                "node.id": str(node_id),
                "log.dirs": _DIRECTORY,
                "listeners": f"PLAINTEXT://{host.name}:{PORT}",
            }
        )

    @property
    def name(self) -> str:
        """Name of the host."""
        return self.host.name

    def start(self) -> None:
        """Start a new process, unless one runs."""
        self.wanted = True
        if self.server is not None:
            return
        was_off = not self.host.is_on
        life = self.host.begin_life()
        if was_off:
            self._network.power_on(self.host)
        network = HostNetwork(self._network, life)
        environment = Environment(
            self.host.clock,
            self.host.clock.now_ns,
            HostRandom(life),
            life,
            lambda name: name,
            network,
            network,
            HostWorkers(life),
            BrokerFiles(self.disk),
        )
        world = self.host.world
        world.tell(self.name, f"starts, life {life.number}")
        world.count("broker starts")
        server = broker_server(self._config, environment)
        try:
            server.start()
        except CannotStart as cause:
            world.tell(self.name, f"cannot start: {cause}")
            self._end()
            world.call_after(_RETRY_US, self._retry)
            return
        self.server = server

    def _retry(self) -> None:
        if self.wanted and self.server is None:
            self.start()

    def stop(self) -> None:
        """Stop cleanly. A paused broker cannot, and is killed, as a service manager does after its time limit."""
        self.wanted = False
        if self.host.is_paused:
            self.kill()
        elif self.server is not None:
            self.host.world.tell(self.name, "stops cleanly")
            self.server.stop()
            self._end()

    def kill(self) -> None:
        """End the process like kill -9: the page cache is kept."""
        self.wanted = False
        if self.server is not None:
            self.host.world.tell(self.name, "is killed")
            self._end()

    def lose_power(self) -> None:
        """End the process and lose what was not flushed; peers get no reset."""
        self.wanted = False
        self.host.world.tell(self.name, "loses power")
        self._end(silently=True)
        self.host.is_on = False
        self.disk.store.lose_power(self._chance)

    def _end(self, *, silently: bool = False) -> None:
        self._network.end_life(self.host, silently=silently)
        self.host.end_life()
        self.disk.store.end_process()
        self.server = None

    def set_disk(self, state: DiskState) -> None:
        """Change the condition of the disk."""
        self.host.world.tell(self.name, f"disk is {state.value}")
        self.disk.state = state

    def restart_after(self, delay_us: int) -> None:
        """Start again after a delay."""
        self.wanted = True
        self.host.world.call_after(delay_us, partial(self._retry))

    @property
    def is_damaged(self) -> bool:
        """True if the broker runs without its log directory, which has failed."""
        if self.server is None:
            return False
        return any(log_directory.offline is not None for log_directory in self.server.broker.replicas.directories)
