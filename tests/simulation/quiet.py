"""A quiet cluster: all clients die soon, and nothing happens for an hour of virtual time.

What only dense traffic keeps going is found here: each periodic duty of a broker has its check.

 5 s   a transactional producer, a producer, members of a classic and of a consumer group, a member of a share group
15 s   all of them are dead, or hang; the transaction stays open
16 s   the coordinator of the transaction loses its session for a moment: another broker leads its partitions, which was never
       asked for a coordinator
 2 min  checks of what has a timeout of some seconds
60 min  checks of what has one of some minutes
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from ottla.client.consumer.core import ConsumerCore
from ottla.client.consumer.rebalance import Listeners
from ottla.client.core import Core
from ottla.client.share.consumer import ShareConsumerCore
from ottla.coordinators.share.window import ACQUIRED
from ottla.metadata.image import TRANSACTION_STATE_TOPIC
from ottla.metadata.image.deltas import image_from
from ottla.replication.partition import Partition

from .applications import LEDGER, PLAIN, SHARE_GROUP, Writer
from .brokers import SimulatedBroker
from .checks import Violation
from .clients import Application, ClientProcess, Polling, SimulatedClient
from .results import Settings
from .run import Simulation
from .world import SECOND_US

TRANSACTION: Final = "open transaction aborted"
SESSIONS: Final = "sessions of members end"
LOCKS: Final = "share locks end"
RETENTION: Final = "old segments removed"
PRODUCERS: Final = "producer ids expire"
IDENTITIES: Final = "transactional ids expire"
OFFSETS: Final = "offsets of empty groups expire"
LEADERS: Final = "preferred leaders elected"
DUTIES: Final = (TRANSACTION, SESSIONS, LOCKS, RETENTION, PRODUCERS, IDENTITIES, OFFSETS, LEADERS)
_CONFIGS: Final = (
    ("log.retention.ms", "600000"),
    ("producer.id.expiration.ms", "900000"),
    ("offsets.retention.minutes", "20"),
    ("transactional.id.expiration.ms", "1200000"),
    ("transaction.remove.expired.transaction.cleanup.interval.ms", "600000"),
)
_BEGIN_US: Final = 5 * SECOND_US
DEAD_US: Final = 15 * SECOND_US
_SOON_US: Final = 120 * SECOND_US
_MINUTES: Final = 62.0
SHORTEST_MINUTES: Final = 33.0
"""All duties are due by then; a shorter run checks those that are due soon."""
_RECORDS: Final = 30
_HOLDING: Final = "holding-member"
Create = Callable[[ClientProcess], Application]


class _OpenTransaction(Writer):
    """Producer that leaves a transaction open."""

    def __init__(self, process: ClientProcess) -> None:
        super().__init__(process, transactional_id="abandoned", transaction_timeout_ms="20000")

    @property
    def records_acknowledgements(self) -> bool:
        return False

    async def run(self) -> None:
        transactions = self.producer.transactional()
        await transactions.init(20_000)
        transactions.begin()
        for number in range(_RECORDS):
            await self.write(LEDGER, f"open#{number}", "k", lambda error: None)
        await self.producer.flush(30_000)
        await self.main.scheduler.sleep(3_600_000)


class _ShortProducer(Writer):
    """Producer of a few records."""

    @property
    def records_acknowledgements(self) -> bool:
        return False

    async def run(self) -> None:
        for number in range(_RECORDS):
            await self.write(PLAIN, f"short#{number}", f"k{number}", lambda error: None)
        await self.producer.flush(30_000)
        await self.main.scheduler.sleep(3_600_000)


class _Member(Application):
    """Member of a group that commits what it has read."""

    def __init__(self, process: ClientProcess, protocol: str) -> None:
        super().__init__(process)
        session = {"session_timeout_ms": "8000", "heartbeat_interval_ms": "2000"} if protocol == "classic" else {}
        configs = {"group_protocol": protocol, "enable_auto_commit": "false", "auto_offset_reset": "earliest"}
        self._core = process.core(group_id=f"quiet-{protocol}", **configs, **session)
        self._consumer = ConsumerCore(self._core)

    @property
    def main(self) -> Core:
        return self._core

    async def run(self) -> None:
        self._consumer.subscribe([PLAIN], None, Listeners())
        polling = Polling(self._consumer)
        while True:
            if await polling.records(1_000):
                await self._consumer.commit(self._consumer.positions_to_commit(), 5_000)
                self.process.world.count("quiet: commits")


class _HoldingMember(Application):
    """Member of a share group that acknowledges nothing."""

    def __init__(self, process: ClientProcess) -> None:
        super().__init__(process)
        self._core = process.core(group_id=SHARE_GROUP, share_acknowledgement_mode="explicit", max_poll_records="5")
        self._consumer = ShareConsumerCore(self._core)

    @property
    def main(self) -> Core:
        return self._core

    async def run(self) -> None:
        self._consumer.subscribe([PLAIN])
        while not await self._consumer.poll(1_000):
            pass
        self.process.world.count("quiet: records held")
        await self._core.scheduler.sleep(3_600_000)


_APPLICATIONS: Final[dict[str, Create]] = {
    "open-transaction": _OpenTransaction,
    "short-producer": _ShortProducer,
    "classic-member": partial(_Member, protocol="classic"),
    "consumer-member": partial(_Member, protocol="consumer"),
    _HOLDING: _HoldingMember,
}


class QuietSimulation(Simulation):
    """Run of a quiet cluster.

    seen     duties for which there was something to do, so that no check passes for want of it
    clients  names of the clients
    """

    def __init__(self, seed: int, minutes: float = _MINUTES, clients: Iterable[str] = tuple(_APPLICATIONS)) -> None:
        workload = Settings(minutes=minutes, parallel=0, roles=("none",), replicas=3, configs=_CONFIGS)
        super().__init__(seed, workload)
        self.seen: set[str] = set()
        self._quiet = [self._quiet_client(name, create) for name, create in _APPLICATIONS.items() if name in clients]
        self.world.call_at(_BEGIN_US, self._begin)
        self.world.call_at(DEAD_US, self._kill_clients)
        self.world.call_at(DEAD_US + SECOND_US, self._move_coordinator)
        self.world.call_at(_SOON_US, self._check_soon)

    def _quiet_client(self, name: str, create: Create) -> SimulatedClient:
        return self._client(self.clusters[0], name, create)

    def _begin(self) -> None:
        for client in self._quiet:
            client.start()

    def _kill_clients(self) -> None:
        self._look_at_work()
        for client in self._quiet:
            if client.role == _HOLDING:
                client.host.pause()  # an end of its connection would release what it holds
            else:
                client.kill()

    def _look_at_work(self) -> None:
        """Note what there is to do."""
        for broker in self.brokers:
            assert broker.server is not None
            for partition in broker.server.broker.replicas.all():
                if partition.log.last_stable_offset < partition.log.high_watermark:
                    self.seen.add(TRANSACTION)
                if partition.topic == PLAIN and partition.log.end_offset:
                    self.seen.add(RETENTION)
                if len(partition.log.producers):
                    self.seen.add(PRODUCERS)
        if any(self._members()):
            self.seen.add(SESSIONS)
        if any(self._committed()):
            self.seen.add(OFFSETS)
        if any(self._transactions()):
            self.seen.add(IDENTITIES)

    def _move_coordinator(self) -> None:
        """End the sessions of the brokers that coordinate transactions: they are live again at once, without leaderships."""
        image = image_from(self.stores[0].snapshot())
        for node in dict.fromkeys(partition.leader for partition in image.topics[TRANSACTION_STATE_TOPIC].partitions):
            self.stores[0].shared.revoke(image.live[node].lease)
        self.world.call_after(SECOND_US, self._look_at_locks)

    def _look_at_locks(self) -> None:
        """Note the locks at brokers that still lead their partitions."""
        if any(self._locked()):
            self.seen.add(LOCKS)

    # -- what there is to do --

    def _serving(self) -> Iterator[SimulatedBroker]:
        return (broker for broker in self.brokers if broker.server is not None and broker.is_serving)

    def _replicas(self) -> Iterator[tuple[str, Partition]]:
        for broker in self._serving():
            assert broker.server is not None
            for partition in broker.server.broker.replicas.all():
                yield f"{partition.topic}-{partition.index} on {broker.name}", partition

    def _locked(self) -> Iterator[str]:
        for broker in self._serving():
            assert broker.server is not None
            shares = broker.server.broker.used_share_partitions
            for group, partitions in () if shares is None else shares._shared.items():
                for place, led in partitions.items():
                    state = led.state
                    if state is not None and any(span.state == ACQUIRED for span in state.window.spans):
                        yield f"{group} {place} on {broker.name}"

    def _members(self) -> Iterator[str]:
        for broker in self._serving():
            assert broker.server is not None
            coordination = broker.server.broker.used_coordination
            for state in () if coordination is None else coordination.groups.states():
                for groups in (state.groups, state.consumer_groups, state.share_groups):
                    for name, group in groups.items():
                        if group.members:
                            yield f"{name} on {broker.name}"

    def _committed(self) -> Iterator[str]:
        for broker in self._serving():
            assert broker.server is not None
            coordination = broker.server.broker.used_coordination
            for state in () if coordination is None else coordination.groups.states():
                yield from (f"{name} on {broker.name}" for name in state.offsets if state.offsets[name])

    def _transactions(self) -> Iterator[str]:
        for broker in self._serving():
            assert broker.server is not None
            coordination = broker.server.broker.used_coordination
            for state in () if coordination is None else coordination.transactions.states():
                yield from (f"{name} on {broker.name}" for name in state.transactions)

    # -- checks --

    def _audit(self) -> None:
        """Read nothing: the records are past their retention."""

    def _neglected(self, duty: str, what: Iterator[str]) -> None:
        for text in what:
            self.violations.append(Violation(duty, text, (), self.world.now_us))

    def _check_soon(self) -> None:
        open_logs = (name for name, one in self._replicas() if one.log.last_stable_offset < one.log.high_watermark)
        self._neglected(TRANSACTION, open_logs)
        self._neglected(SESSIONS, self._members())
        self._neglected(LOCKS, self._locked())
        image = image_from(self.stores[0].snapshot())
        if any(one.leader != one.replicas[0] for topic in image.topics.values() for one in topic.partitions):
            self.seen.add(LEADERS)

    def _check(self) -> None:
        if self.settings.minutes >= SHORTEST_MINUTES:
            self._check_late()
        super()._check()

    def _check_late(self) -> None:
        image = image_from(self.stores[0].snapshot())
        self._neglected(
            LEADERS,
            (
                f"{topic.name}-{index}: {one}"
                for topic in image.topics.values()
                for index, one in enumerate(topic.partitions)
                if one.leader != one.replicas[0]
            ),
        )
        ordinary = [(name, one) for name, one in self._replicas() if one.topic in (PLAIN, LEDGER)]
        self._neglected(RETENTION, (name for name, one in ordinary if one.log.start_offset < one.log.end_offset))
        self._neglected(PRODUCERS, (name for name, one in ordinary if len(one.log.producers)))
        self._neglected(OFFSETS, self._committed())
        self._neglected(IDENTITIES, self._transactions())
