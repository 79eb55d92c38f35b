"""Schedule of faults: every few virtual seconds another one begins, several at once, all of them drawn from the seed.

Each fault has a target, an effect and an end. A target has one fault at a time that concerns its process or disk. All faults
end at a fixed time, so that the checks at the end find brokers and clients that could recover.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from .brokers import SimulatedBroker
from .clients import SimulatedClient
from .disks import DiskState
from .etcd_host import EtcdStoreHost
from .hosts import Host
from .metadata import StoreHost
from .network import Network
from .older_stores import OlderStores
from .replication import Replication
from .world import MS_US, SECOND_US, Callback, World

_SHORT_PAUSE_MS: Final = (50, 4_000)
_LONG_PAUSE_MS: Final = (11_000, 14_000)
"""Longer than the session timeouts of brokers and groups."""
_OUTAGE_MS: Final = (200, 6_000)
_CUT_MS: Final = (300, 12_000)
_DISK_MS: Final = (500, 5_000)
_DAMAGE_MS: Final = (3_000, 15_000)
_READ_MS: Final = (0, 2_000)
_UNREAD: Final = 0.2
_ATTEMPTS: Final = 20
_COPY_AGE_MS: Final = (1_000, 15_000)
_SNAPSHOT_AGE_MS: Final = (4_000, 12_000)
_OLDER_MS: Final = (1_000, 40_000)
_FEWEST_LOST: Final = 10
"""Revisions that a restored store lacks: what brokers write before they notice it must not make up for them."""
_ON_DISKS: Final = ("full disk", "failing disk", "disk replaced", "one of two directories", "old copy")
"""Names of faults after which a broker may not know which revision it has applied."""
_ELECTED_AFTER_US: Final = 10 * SECOND_US
_SLOW_MS: Final = (1_000, 10_000)
_MOST_DRIFT_PPM: Final = 20_000
_JUMP_MS: Final = 1_500_000
"""Two clocks differ by less than message.timestamp.after.max.ms (1 h), above which records are refused."""


class _Active:
    """Running fault."""

    def __init__(self, name: str, targets: tuple[str, ...], begun_us: int, end: Callback) -> None:
        self.name = name
        self.targets = targets
        self.begun_us = begun_us
        self.end = end


class Faults:
    """Draws and applies faults.

    parallel     largest number of faults at a time
    gap_s        longest time from the begin of a fault to the next one; the shortest is a fifth of it
    length       factor of the durations of faults
    power_loss   True if a broker may lose power
    only_stops   True if the only faults are clean stops
    all_power    True if all brokers may lose power together: nothing acknowledged is lost then only if everything is flushed
    last_end_us  time at which the last fault ended
    intervals    begin and end of each fault that had a duration
    """

    def __init__(
        self,
        world: World,
        network: Network,
        stores: Sequence[StoreHost],
        brokers: Sequence[SimulatedBroker],
        clients: Sequence[SimulatedClient],
        older_stores: OlderStores,
        *,
        parallel: int,
        gap_s: float,
        length: float,
        power_loss: bool,
        all_power: bool,
        only_stops: bool = False,
    ) -> None:
        self._world = world
        self._network = network
        self._stores = stores
        self._brokers = brokers
        self._clients = clients
        self._older_stores = older_stores
        self._parallel = parallel
        self._length = length
        self._gap_us = (int(gap_s * SECOND_US / 5), int(gap_s * SECOND_US))
        self._random = world.random("faults")
        self._replication: Sequence[Replication] = ()
        self._active: dict[int, _Active] = {}
        self._number = 0
        self._ends_us = 0
        self.last_end_us = 0
        self.intervals: list[tuple[int, int]] = []
        self._kinds: list[tuple[int, Callable[[], None]]] = [
            (4, self._kill),
            (2, self._stop),
            (3, partial(self._pause_broker, _SHORT_PAUSE_MS)),
            (1, partial(self._pause_broker, _LONG_PAUSE_MS)),
            (3, self._reset),
            (3, partial(self._cut, one_way=False)),
            (3, partial(self._cut, one_way=True)),
            (2, self._slow),
            (1, self._jump),
            (1, self._drift),
            (1, partial(self._disk, DiskState.FULL)),
            (1, partial(self._disk, DiskState.FAILING)),
            (1, self._freeze),
            (1, self._slow_store),
            (2, self._cut_from_store),
            (1, self._compact),
            (2, self._kill_client),
            (2, self._pause_client),
        ]
        self._only_stops = only_stops
        if only_stops:
            self._kinds = [(1, self._stop)]
            return
        if any(isinstance(store, EtcdStoreHost) for store in stores):
            self._kinds += [(3, self._hang_watch), (1, self._restore_store)]
        if len(brokers) > 1:
            self._kinds += [
                (2, partial(self._cut_brokers, one_way=False)),
                (2, partial(self._cut_brokers, one_way=True)),
            ]
        if power_loss:
            self._kinds.append((2, self._lose_power))
        if all_power:
            self._kinds.append((1, self._lose_all_power))

    def observe(self, replication: Sequence[Replication]) -> None:
        """Add the faults that need to know which replicas have what: one observer a cluster."""
        self._replication = replication
        if not self._only_stops and any(len(one.nodes) > 1 for one in replication):
            self._kinds += [
                (3, self._damage_log),
                (1, self._replace_disk),
                (1, self._replace_directory),
                (1, self._restore_copy),
            ]

    def schedule(self, begin_us: int, end_us: int) -> None:
        """Begin faults from `begin_us` on; all end at `end_us`."""
        self._ends_us = end_us
        self.last_end_us = end_us
        self._world.call_at(begin_us, self._next)
        self._world.call_at(end_us, self._end_all)

    def _next(self) -> None:
        if self._world.now_us >= self._ends_us:
            return
        if len(self._active) < self._parallel:
            weights = [weight for weight, _ in self._kinds]
            self._random.choices(self._kinds, weights)[0][1]()
        self._world.call_after(self._random.randint(*self._gap_us), self._next)

    def _begin(
        self, name: str, targets: tuple[str, ...], duration_ms: tuple[int, int], apply: Callback, end: Callback
    ) -> None:
        """Apply a fault and schedule its end."""
        world = self._world
        self._number += 1
        number = self._number
        duration_us = int(self._random.randint(*duration_ms) * MS_US * self._length)
        self._active[number] = _Active(name, targets, world.now_us, end)
        world.count(f"fault: {name}")
        world.tell("faults", f"{name} {' '.join(targets)} for {duration_us / SECOND_US:.1f} s")
        apply()
        world.call_after(duration_us, partial(self._end, number))

    def _end(self, number: int) -> None:
        active = self._active.pop(number, None)
        if active is not None:
            self.intervals.append((active.begun_us, self._world.now_us))
            self._world.tell("faults", f"end of {active.name} {' '.join(active.targets)}")
            active.end()

    def _end_all(self) -> None:
        for number in list(self._active):
            self._end(number)
        for host in self._hosts():
            host.clock.drift(0)
        self._network.extra_us.clear()
        for broker in self._brokers:
            if broker.is_damaged or broker.has_offline:
                self._restart(broker)
        for replication in self._replication:
            for number in (1, 2):  # the first attempt may come before all brokers are back
                self._world.call_after(number * _ELECTED_AFTER_US, replication.elect_after_loss)

    def _is_free(self, name: str) -> bool:
        return not any(name == active.targets[0] for active in self._active.values())

    def _free_brokers(self) -> list[SimulatedBroker]:
        return [broker for broker in self._brokers if broker.is_serving and self._is_free(broker.name)]

    def _free_broker(self) -> SimulatedBroker | None:
        free = self._free_brokers()
        return self._random.choice(free) if free else None

    def _free_client(self) -> SimulatedClient | None:
        free = [one for one in self._clients if one.application is not None and self._is_free(one.name)]
        return self._random.choice(free) if free else None

    # -- processes --

    def _kill(self) -> None:
        broker = self._free_broker()
        if broker is not None:
            self._begin("kill", (broker.name,), _OUTAGE_MS, broker.kill, broker.start)

    def _stop(self) -> None:
        broker = self._free_broker()
        if broker is not None:
            self._begin("stop", (broker.name,), _OUTAGE_MS, broker.stop, broker.start)

    def _lose_power(self) -> None:
        broker = self._free_broker()
        if broker is not None:
            self._begin("power loss", (broker.name,), _OUTAGE_MS, broker.lose_power, broker.start)

    def _lose_all_power(self) -> None:
        self._world.count("fault: power loss of all")
        for broker in self._free_brokers():
            self._begin("power loss", (broker.name,), _OUTAGE_MS, broker.lose_power, broker.start)

    def _pause_broker(self, duration_ms: tuple[int, int]) -> None:
        broker = self._free_broker()
        if broker is not None:
            self._begin("pause", (broker.name,), duration_ms, broker.host.pause, broker.host.resume)

    def _kill_client(self) -> None:
        client = self._free_client()
        if client is not None:
            self._begin("kill client", (client.name,), _OUTAGE_MS, client.kill, client.start)

    def _pause_client(self) -> None:
        client = self._free_client()
        if client is not None:
            duration_ms = self._random.choice((_SHORT_PAUSE_MS, _SHORT_PAUSE_MS, _LONG_PAUSE_MS))
            self._begin("pause client", (client.name,), duration_ms, client.host.pause, client.host.resume)

    # -- network --

    def _hosts(self) -> list[Host]:
        return [*(broker.host for broker in self._brokers), *(client.host for client in self._clients)]

    def _reset(self) -> None:
        host = self._random.choice(self._hosts())
        endpoints = self._network.connections_of(host)
        if not endpoints:
            return
        some = endpoints if self._random.random() < 0.5 else [self._random.choice(endpoints)]
        self._world.count("fault: reset")
        self._world.tell("faults", f"reset of {len(some)} connections of {host.name}")
        for endpoint in some:
            self._network.tear(endpoint)

    def _cut(self, *, one_way: bool) -> None:
        broker = self._random.choice(self._brokers)
        self._cut_from(broker, [host for host in self._hosts() if host is not broker.host], one_way=one_way)

    def _cut_brokers(self, *, one_way: bool) -> None:
        broker = self._random.choice(self._brokers)
        self._cut_from(broker, [other.host for other in self._brokers if other is not broker], one_way=one_way)

    def _cut_from(self, broker: SimulatedBroker, others: list[Host], *, one_way: bool) -> None:
        if self._random.random() < 0.6:
            others = [self._random.choice(others)]
        directions = [(broker.name, host.name) for host in others]
        if not one_way:
            directions += [(host.name, broker.name) for host in others]
        elif self._random.random() < 0.5:
            directions = [(host, name) for name, host in directions]

        def apply() -> None:
            for direction in directions:
                self._network.cut(*direction)

        def heal() -> None:
            for direction in directions:
                self._network.heal(*direction)

        name = "one-way cut" if one_way else "cut"
        targets = (f"network of {broker.name}", "with", *(host.name for host in others))
        self._begin(name, targets, _CUT_MS, apply, heal)

    def _slow(self) -> None:
        host = self._random.choice(self._hosts())
        extra_us = self._random.randint(5, 400) * MS_US

        def apply() -> None:
            self._network.extra_us[host.name] = extra_us

        def end() -> None:
            self._network.extra_us.pop(host.name, None)

        self._begin("slow network", (f"latency of {host.name}",), _SLOW_MS, apply, end)

    # -- metadata store --

    def _freeze(self) -> None:
        store = self._random.choice(self._stores)
        if self._is_free(store.host.name):
            self._begin("frozen store", (store.host.name,), _CUT_MS, store.freeze, store.thaw)

    def _hang_watch(self) -> None:
        store = self._random.choice(self._stores)
        if isinstance(store, EtcdStoreHost):
            number = self._random.randrange(len(store.members))
            target = f"watch of {store.host.name}/{number}"
            if self._is_free(target):
                apply, end = partial(store.hang_watch, number), partial(store.release_watch, number)
                self._begin("hung watch", (target,), _CUT_MS, apply, end)

    def _restore_store(self) -> None:
        """Restore the store from a snapshot that is taken now, and put the newest contents back later."""
        store = self._random.choice(self._stores)
        if not isinstance(store, EtcdStoreHost) or store.older_since_us is not None:
            return
        taken = store.shared.snapshot()

        def restore() -> None:
            is_free = (
                self._world.now_us < self._ends_us and self._is_free(store.host.name) and store.older_since_us is None
            )
            is_on_good_disks = not any(active.name.startswith(_ON_DISKS) for active in self._active.values())
            lost = self._older_stores.known_revision(store) - taken.revision
            if is_free and is_on_good_disks and lost >= _FEWEST_LOST:
                self._begin(
                    "restored store", (store.host.name,), _OLDER_MS, partial(store.restore, taken), store.put_back
                )

        self._world.call_after(self._random.randint(*_SNAPSHOT_AGE_MS) * MS_US, restore)

    def _has_older_store(self, broker: SimulatedBroker) -> bool:
        return isinstance(broker.store, EtcdStoreHost) and broker.store.older_since_us is not None

    def _slow_store(self) -> None:
        store = self._random.choice(self._stores)
        if self._is_free(store.host.name):
            self._begin(
                "slow store", (store.host.name,), _CUT_MS, partial(store.set_slow, True), partial(store.set_slow, False)
            )

    def _cut_from_store(self) -> None:
        broker = self._random.choice(self._brokers)
        target = f"store of {broker.name}"
        if self._is_free(target):
            apply, end = partial(broker.store.cut, broker.name), partial(broker.store.heal, broker.name)
            self._begin("cut from the store", (target,), _CUT_MS, apply, end)

    def _compact(self) -> None:
        store = self._random.choice(self._stores)
        self._world.count("fault: compaction")
        self._world.tell("faults", f"compaction of {store.host.name}")
        store.compact()

    # -- clocks and disks --

    def _jump(self) -> None:
        host = self._random.choice(self._hosts())
        by_ms = self._random.randint(-_JUMP_MS, _JUMP_MS)
        self._world.count("fault: clock jump")
        self._world.tell("faults", f"clock of {host.name} jumps to {by_ms} ms from the true time")
        host.clock.set_wall(by_ms)

    def _drift(self) -> None:
        host = self._random.choice(self._hosts())
        by_ppm = self._random.randint(-_MOST_DRIFT_PPM, _MOST_DRIFT_PPM)
        self._world.count("fault: clock drift")
        self._world.tell("faults", f"clock of {host.name} drifts by {by_ppm} ppm")
        host.clock.drift(by_ppm)

    def _disk(self, state: DiskState) -> None:
        broker = self._free_broker()
        if broker is None or self._has_older_store(broker):
            return

        def end() -> None:
            broker.set_disk(DiskState.GOOD)
            if broker.is_damaged:
                self._restart(broker)

        self._begin(f"{state.value} disk", (broker.name,), _DISK_MS, partial(broker.set_disk, state), end)

    def _damage_log(self) -> None:
        """Overwrite records in the log of a replica, and read them there, mostly more than once."""
        replication = self._random.choice(self._replication)
        for _ in range(_ATTEMPTS):
            damage = replication.damage_log(self._random)
            if damage is not None:
                break
        else:
            return
        logs, broker, world = replication.damaged, damage.broker, self._world

        def begin() -> None:
            if self._random.random() >= _UNREAD:
                for _ in range(self._random.randint(1, 3)):
                    world.call_after(self._random.randint(*_READ_MS) * MS_US, partial(logs.read, damage))

        def end() -> None:
            logs.heal([damage])
            if broker.has_offline and self._is_free(broker.name):
                self._restart(broker)

        target = f"log of {broker.name}"
        targets = (target, f"{damage.topic}-{damage.place[1]}@{damage.offset}")
        self._begin("damaged log", targets, _DAMAGE_MS, begin, end)

    def _replaceable(self) -> tuple[SimulatedBroker, Replication] | None:
        """Choose a broker whose disk may be replaced: others have all that is on it."""
        broker = self._free_broker()
        replication = next((one for one in self._replication if broker and broker.node_id in one.nodes), None)
        if broker is None or replication is None or self._has_older_store(broker):
            return None
        return (broker, replication) if replication.may_replace_disk(broker) else None

    def _replace_disk(self, *, only_one: bool = False) -> None:
        chosen = self._replaceable()
        if chosen is None or (only_one and len(chosen[0].directories) < 2):
            return
        broker, replication = chosen
        directory = self._random.choice(broker.directories) if only_one else None

        def begin() -> None:
            broker.kill()
            replication.replace_disk(broker, directory)

        name = "one of two directories replaced" if only_one else "disk replaced by an empty one"
        self._begin(name, (broker.name,), _OUTAGE_MS, begin, broker.start)

    def _replace_directory(self) -> None:
        self._replace_disk(only_one=True)

    def _restore_copy(self) -> None:
        """Copy a disk, and replace it by the copy later, when another process has registered: a copy of the last one's disk
        cannot be told from the disk. A log that is damaged at the time would stay so in the copy, after its retry.
        """
        broker = self._free_broker()
        if broker is None or not self._is_free(f"log of {broker.name}"):
            return
        copied, copied_from = broker.disk.store.copied(), broker.incarnation

        def replace() -> None:
            replication = next(one for one in self._replication if broker.node_id in one.nodes)
            is_free = broker.is_serving and self._is_free(broker.name) and broker.incarnation != copied_from
            is_free = is_free and not self._has_older_store(broker)
            if self._world.now_us >= self._ends_us or not is_free or not replication.may_replace_disk(broker):
                return

            def begin() -> None:
                broker.kill()
                replication.restore_disk(broker, copied)

            self._begin("old copy of a disk", (broker.name,), _OUTAGE_MS, begin, broker.start)

        self._world.call_after(self._random.randint(*_COPY_AGE_MS) * MS_US, replace)

    def _restart(self, broker: SimulatedBroker) -> None:
        """Start a broker again whose log directory has failed, as an operator does after mending the disk."""
        broker.kill()
        broker.restart_after(SECOND_US)
