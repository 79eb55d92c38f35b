"""Brokers of a simulation: complete `BrokerServer`s on simulated hosts, which can be killed and started again."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from ottla.broker.config import broker_config
from ottla.broker.lifecycle import BrokerServer, CannotStart
from ottla.environment import Environment
from ottla.log.directory import CLEAN_SHUTDOWN
from ottla.metadata.store import Change, ChangeOutcome, LeaseOutcome, MetadataStore, Snapshot, Watcher
from ottla.tasks.deferred import Answer, awaitable
from ottla.tasks.scheduler import Scheduler

from .checks import Start
from .disks import BrokerFiles, DiskState, HostDisk, Observer
from .hosts import Host, HostRandom, HostWorkers
from .metadata import StoreHost
from .network import HostNetwork, Network
from .world import SECOND_US

PORT: Final = 9092
DIRECTORIES: Final = (Path("/data"), Path("/data2"))
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
    "broker.session.timeout.ms": "6000",
    "log.segment.bytes": "1048576",
    "log.cleaner.backoff.ms": "5000",
    "auto.create.topics.enable": "false",
}
_RETRY_US: Final = SECOND_US
_SESSION_US: Final = 1000 * int(_CONFIGS["broker.session.timeout.ms"])
_PAUSES: Final = 0.2
_NS_OF_A_PASS: Final = 10_000_000


class CoinPauses:
    """CPU time of a process that stands still, or has used up a pass: whether a paced task pauses is drawn.

    Virtual time does not pass within an event, so that no task would ever pause by the time it takes.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._now_ns = 0

    def cpu_ns(self) -> int:
        """CPU time in ns."""
        if self._random.random() < _PAUSES:
            self._now_ns += _NS_OF_A_PASS
        return self._now_ns


class ObservedStore:
    """Metadata store of a broker; `revoked` is called with each lease before the broker revokes it."""

    def __init__(self, store: MetadataStore, revoked: Callable[[int], None]) -> None:
        self._store = store
        self._revoked = revoked

    @property
    def largest_change(self) -> int:
        """See `MetadataStore`."""
        return self._store.largest_change

    def load(self) -> Answer[Snapshot]:
        return self._store.load()

    def watch(self, revision: int, watcher: Watcher) -> None:
        self._store.watch(revision, watcher)

    def change(self, change: Change) -> Answer[ChangeOutcome]:
        return self._store.change(change)

    def grant(self, ttl_ms: int) -> Answer[LeaseOutcome]:
        return self._store.grant(ttl_ms)

    def renew(self, lease: int) -> Answer[LeaseOutcome]:
        return self._store.renew(lease)

    def revoke(self, lease: int) -> Answer[bool]:
        self._revoked(lease)
        return self._store.revoke(lease)

    def close(self) -> None:
        self._store.close()


class SimulatedBroker:
    """One broker with its host and disk.

    server      the running broker; None while no process runs
    is_serving  True from the end of its start to the beginning of its stop
    directories  its log directories
    wanted      True if the broker should run: a failed start is repeated
    starts      all starts of processes
    was_stopped  True if the process before the current one was stopped cleanly
    live_epoch  broker epoch with which it was live last
    replaced_us  time at which its disk was replaced last; -1 if it never was
    lost_power  called after a loss of power, with the node id
    served      called when the broker begins to serve requests
    left        called when it removes its own sign of life, at the end of a clean stop, with the us since its begin
    """

    def __init__(
        self,
        host: Host,
        network: Network,
        store: StoreHost,
        node_id: int,
        configs: dict[str, str],
        observer: Observer,
        directories: int = 1,
    ) -> None:
        self.directories = DIRECTORIES[:directories]
        self.host = host
        self.node_id = node_id
        self.disk = HostDisk(observer)
        self.server: BrokerServer | None = None
        self.is_serving = False
        self.should_run = False
        self.starts: list[Start] = []
        self.was_stopped = True
        self.live_epoch = 0
        self.replaced_us = -1
        self._session_ends_us = -1
        self.lost_power: Callable[[int], None] = lambda _: None
        self.served: Callable[[SimulatedBroker], None] = lambda _: None
        self.left: Callable[[SimulatedBroker, int], None] = lambda broker, us: None
        self._has_stopped = True
        self._stop_us = -1
        """Time at which a clean stop has begun; -1 without one."""
        self._network = network
        self.store = store
        self._chance = host.world.random(f"{host.name}/power")
        self._config = broker_config(
            {
                **_CONFIGS,
                **configs,
                "node.id": str(node_id),
                "log.dirs": ",".join(map(str, self.directories)),
                "listeners": f"PLAINTEXT://{host.name}:{PORT}",
            }
        )

    @property
    def name(self) -> str:
        """Name of the host."""
        return self.host.name

    @property
    def incarnation(self) -> str:
        """Name of the current process."""
        return f"{self.name}.{self.host.life.number}" if self.host.life is not None else self.name

    # -- start --

    def start(self) -> None:
        """Start a new process, unless one runs."""
        self.should_run = True
        if self.server is not None:
            return
        self.was_stopped, self._has_stopped = self._has_stopped, False
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
        self.starts.append(Start(self.name, world.now_us, awaited_us=max(self._session_ends_us - world.now_us, 0)))
        self._stop_us = -1
        pauses = CoinPauses(world.random(f"pauses of {self.name}, life {life.number}"))
        tasks = Scheduler(self.host.clock, life, _fail_the_run, pauses.cpu_ns)
        store = ObservedStore(self.store.connect(life, tasks), self._revoked)
        server = self.server = BrokerServer(self._config, environment, store, tasks)
        server.failed = lambda reason: life.run(partial(self._failed, reason))
        life.run(partial(self._open, server))

    def _open(self, server: BrokerServer) -> None:
        server.tasks.background(self._start(server), "start")

    async def _start(self, server: BrokerServer) -> None:
        try:
            await awaitable(server.start(), server.tasks)
        except CannotStart as cause:
            self._failed(str(cause))
            return
        if self.should_run:
            self.is_serving = True
            self.starts[-1] = self.starts[-1]._replace(serving_us=self.host.world.now_us)
            self.host.world.tell(self.name, "serves requests")
            self.served(self)

    def _failed(self, reason: str) -> None:
        """End a process that cannot go on, and start another one later."""
        self.host.world.tell(self.name, f"fails: {reason}")
        self.host.world.count("broker failures")
        had_served = self.starts[-1].serving_us >= 0
        self._end()
        if not had_served and self.disk.store.read_text(self.directories[0] / CLEAN_SHUTDOWN) is not None:
            self._has_stopped = self.was_stopped  # it failed before it opened a log
        self.restart_after(_RETRY_US)

    def restart_after(self, delay_us: int) -> None:
        """Start again after a delay, unless the broker is stopped meanwhile."""
        self.should_run = True
        self.host.world.call_after(delay_us, self._retry)

    def _retry(self) -> None:
        if self.should_run:
            self.start()

    # -- end --

    def stop(self) -> None:
        """Stop cleanly. A broker that is paused or has not started yet is killed, as a service manager does in the end."""
        self.should_run = False
        server = self.server
        if server is None:
            return
        if self.host.is_paused or not self.is_serving or self.host.life is None:
            self.kill()
            return
        self.is_serving = False
        self.host.world.tell(self.name, "stops cleanly")
        self.host.life.run(lambda: self._stop(server))

    def _revoked(self, lease: int) -> None:
        server = self.server
        is_own = server is not None and server.node is not None and server.node.membership.lease == lease
        if is_own and self._stop_us >= 0:
            self.left(self, self.host.world.now_us - self._stop_us)

    def _stop(self, server: BrokerServer) -> None:
        self._stop_us = self.host.world.now_us
        server.tasks.background(self._stopped(server), "stop")

    async def _stopped(self, server: BrokerServer) -> None:
        await awaitable(server.stop(), server.tasks)
        self.host.world.tell(self.name, "has stopped")
        self._end()
        self._has_stopped = True
        if self.should_run:
            self.restart_after(_RETRY_US)

    def kill(self) -> None:
        """End the process like kill -9: the page cache is kept."""
        self.should_run = False
        if self.server is not None:
            self.host.world.tell(self.name, "is killed")
            self._end()

    def lose_power(self) -> None:
        """End the process and lose what was not flushed; peers get no reset."""
        self.should_run = False
        self.host.world.tell(self.name, "loses power")
        self._end(silently=True)
        self.host.is_on = False
        self.disk.store.lose_power(self._chance)
        self.lost_power(self.node_id)

    def _end(self, *, silently: bool = False) -> None:
        self._network.end_life(self.host, silently=silently)
        self.store.disconnect(self.name)
        if self.starts:
            self.starts[-1] = self.starts[-1]._replace(ended_us=self.host.world.now_us)
        self.host.end_life()
        self.disk.store.end_process()
        self.server = None
        self.is_serving = False

    # -- disk --

    def directory_of(self, topic: str, index: int) -> Path:
        """Return the directory of a replica, in one of the log directories."""
        name = f"{topic}-{index}"
        there = (one / name for one in self.directories if self.disk.store.is_directory(one / name))
        return next(there, self.directories[0] / name)

    def was_replaced(self, *, is_whole: bool) -> None:
        """Note that the next process begins on another disk, as after an unclean stop.

        Where the whole disk is another one, it does not name the last process, and the session of that one is waited for.
        """
        self._has_stopped = False
        self.replaced_us = self.host.world.now_us
        if is_whole:
            self._session_ends_us = self.replaced_us + _SESSION_US

    def set_disk(self, state: DiskState) -> None:
        """Change the condition of the disk."""
        self.host.world.tell(self.name, f"disk is {state.value}")
        self.disk.state = state

    @property
    def has_offline(self) -> bool:
        """True if the broker runs without some of its partitions."""
        if self.server is None or not self.is_serving:
            return False
        broker = self.server.broker
        return any(broker.replicas.has_offline(topic) for topic in broker.image.topics.values())

    @property
    def is_damaged(self) -> bool:
        """True if the broker runs without its log directory, which has failed."""
        if self.server is None or not self.is_serving:
            return False
        return any(log_directory.offline is not None for log_directory in self.server.broker.replicas.directories)


def _fail_the_run(name: str, error: BaseException) -> None:
    """End the run with an exception that no code of the broker has caught."""
    raise AssertionError(f"{name} failed") from error
