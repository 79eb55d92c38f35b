"""The metadata store of a simulated cluster in a simulated etcd: brokers use the real client of etcd.

The members share one host. A broker has its own network to them, so that it can be cut off; what arrives at it runs as part of
its process.
"""

from collections.abc import Callable, Sequence
from typing import Final

from ottla.metadata.store import Entry, MetadataStore, Snapshot
from ottla.metadata.store.etcd.store import EtcdMetadataStore
from ottla.metadata.store.etcd.url import EtcdUrl
from ottla.tasks.scheduler import Scheduler

from .etcd import SimulatedEtcd, SimulatedMember, SimulatedNetwork
from .hosts import Host, Life
from .metadata import Revision, StoreHost

_NEVER_MS: Final = 86_400_000
_PREFIX: Final = "/simulated"
_ADDRESSES: Final = tuple((f"etcd{number}", 2379) for number in range(1, 4))


class EtcdStoreHost(StoreHost):
    """Host of a simulated etcd of three members, and its faults.

    older_since_us  time at which an older store was put in the place of `shared`; None if none is there
    """

    def __init__(self, host: Host, cluster: str) -> None:
        super().__init__(host, cluster)
        timers = host.life or host.begin_life()
        self._timers = timers
        self._etcd = SimulatedEtcd(timers, self.shared, host.world.random(f"{host.name}/etcd"))
        self._etcd.cluster_id += int(cluster.removeprefix("c"))
        self.members = [SimulatedMember(self._etcd, address) for address in _ADDRESSES]
        self._networks: dict[str, SimulatedNetwork] = {}
        self.older_since_us: int | None = None

    def connect(self, life: Life, tasks: Scheduler) -> MetadataStore:
        """Open the connection of a process."""
        name = life.host.name
        network = self._networks[name] = SimulatedNetwork(self._timers, self.latency, life)
        network.members = {member.address: member for member in self.members}
        network.is_cut = name in self._cuts
        return EtcdMetadataStore(EtcdUrl(_ADDRESSES, _PREFIX), tasks, network)

    def disconnect(self, name: str) -> None:
        """Close the connections of a process that has ended."""
        network = self._networks.pop(name, None)
        if network is not None:
            network.end_client()

    def cut(self, name: str) -> None:
        """Cut a broker off from etcd."""
        self._cuts[name] = None
        if name in self._networks:
            self._networks[name].is_cut = True

    def heal(self, name: str) -> None:
        """Let a broker reach etcd again."""
        self._cuts.pop(name, None)
        if name in self._networks:
            self._networks[name].heal()

    def freeze(self) -> None:
        """Take etcd's leader away."""
        self._etcd.freeze()

    def thaw(self) -> None:
        """Let etcd have a leader again."""
        self._etcd.thaw()

    def compact(self) -> None:
        """Drop the history."""
        self._etcd.compact()

    def is_cut(self, name: str) -> bool:
        """Return True if a broker is cut off."""
        return name in self._cuts

    def restore(self, taken: Snapshot) -> None:
        """Stop the members and start them with the contents of a snapshot, until `put_back`."""
        self._etcd.restore(taken)
        self.older_since_us = self.host.world.now_us
        self._restart_members()

    def put_back(self) -> None:
        """Stop the members and start them with the newest contents."""
        self._etcd.restore_shared(self.shared)
        self.older_since_us = None
        self._restart_members()

    def _restart_members(self) -> None:
        for member in self.members:
            member.kill()
            member.restart()

    def hang_watch(self, number: int) -> None:
        """Deliver nothing to the watches of a member, which goes on to answer requests."""
        self.members[number].delay_ms = _NEVER_MS

    def release_watch(self, number: int) -> None:
        """Deliver what comes from now on; a stream that was open meanwhile stays behind, unless it is opened again."""
        self.members[number].delay_ms = 0

    def snapshot(self) -> Snapshot:
        """Return the contents, without the prefix of the keys."""
        snapshot = self.shared.snapshot()
        return Snapshot(_stripped(snapshot.entries), snapshot.revision)

    def observe(self, applied: Callable[[Revision], None]) -> None:
        """Call `applied` with each revision from now on, without the prefix of the keys."""
        self.shared.applied = lambda revision: applied(revision._replace(entries=tuple(_stripped(revision.entries))))

    def revisions(self) -> Sequence[Revision]:
        """Return all revisions, without the prefix of the keys."""
        return [revision._replace(entries=tuple(_stripped(revision.entries))) for revision in self.shared.revisions]


def _stripped(entries: Sequence[Entry]) -> list[Entry]:
    return [entry._replace(key=entry.key.removeprefix(_PREFIX)) for entry in entries]
