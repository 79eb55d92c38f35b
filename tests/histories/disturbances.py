"""Faults of a run: those of replicated_cluster, and besides them leader elections, reassignments, replaced disks and a restored
etcd.
"""

import base64
import random
import shutil
import time
from collections.abc import Callable, Sequence
from typing import Final

from ottla import Admin, ElectionType, TopicPartition
from ottla import KafkaError as OttlaError
from tests.crash.brokers import wait_until
from tests.crash.replicated_brokers import NODES, EtcdBrokers
from tests.crash.replicated_cluster import ReplicatedCluster
from tests.etcd_server import EtcdServer

_WITHIN_S: Final = 90
_ENDED_S: Final = 30.0
"""Time in which every broker notices that etcd was restored, and ends."""
_RENEWED_S: Final = 3.0
"""Time in which every broker renews its lease, and learns the newest revision."""
_LOST: Final = 20
"""Revisions that a restored etcd lacks at least: what brokers write before they notice it must not make up for them."""
_OTHER_KEY: Final = base64.b64encode(b"/other").decode()


class DisturbedCluster(ReplicatedCluster):
    """Cluster whose partitions also change their leaders and replicas.

    errors  errors of administrative requests; they are expected while brokers die
    """

    def __init__(
        self,
        brokers: EtcdBrokers,
        dice: random.Random,
        etcd: Sequence[EtcdServer],
        partitions: Sequence[TopicPartition],
    ) -> None:
        super().__init__(brokers, dice, etcd)
        self._partitions = partitions
        self.admin = Admin(bootstrap_servers=self.servers, request_timeout_ms=5000, default_api_timeout_ms=15_000)
        self.errors = 0

    def kinds(self) -> list[Callable[[], None]]:
        rare = [self._replace_disk, self._restore_etcd]
        return [*super().kinds(), *[self._elect] * 2, *[self._reassign] * 3, *rare]

    def _elect(self) -> None:
        """Give leaderships back to the preferred leaders."""
        try:
            self.admin.elect_leaders(ElectionType.PREFERRED)
        except OttlaError:
            self.errors += 1

    def _reassign(self) -> None:
        """Change the preferred leaders of some partitions, and sometimes take a replica away for a moment."""
        chosen = self._dice.sample(self._partitions, self._dice.randint(1, len(self._partitions)))
        whole = {partition: self._dice.sample(NODES, len(NODES)) for partition in chosen}
        if self._dice.random() < 0.5:
            self.faults[-1] += " to two replicas and back"
            self._alter({partition: nodes[1:] for partition, nodes in whole.items()})
            time.sleep(self._dice.choice((0.0, 0.5, 2.0)))
            if self._dice.random() < 0.3:
                self.faults[-1] += ", with a kill"
                self._kill(self._dice.choice(NODES))
        deadline = time.monotonic() + _WITHIN_S
        while not self._alter(whole):  # until it is accepted: all partitions have three replicas after each fault
            assert time.monotonic() < deadline, "a reassignment is not accepted in time"
            time.sleep(0.5)
        if self._dice.random() < 0.5:
            self._elect()

    def _alter(self, replicas: dict[TopicPartition, list[int]]) -> bool:
        try:
            results = self.admin.alter_partition_reassignments(replicas)
        except OttlaError:
            self.errors += 1
            return False
        self.errors += len(results.errors)
        return not results.errors

    def _replace_disk(self) -> None:
        """Kill a broker and start it with an empty disk; the others have all that was on it."""
        self.wait_until_whole()
        node_id = self._dice.choice(NODES)
        killed = self._end(node_id)
        shutil.rmtree(self.brokers.directory(node_id))
        time.sleep(self._dice.choice((0.0, 0.3, 1.5)))
        self._start(killed)
        self.wait_until_whole()

    def _restore_etcd(self) -> None:
        """Restore etcd from a backup, on which no broker goes on, and put the newest contents back when all have ended."""
        copies = {member: member.directory / f"{member.data.name}-copy" for member in self._etcd}
        self._restart_etcd(lambda: [shutil.copytree(member.data, copy) for member, copy in copies.items()])
        self.wait_until_whole()
        self._kill(self._dice.choice(NODES))  # replicas leave their ISRs and come back: the backup lacks that
        for _ in range(_LOST):  # a broker that is back soon changes little
            self._etcd[0].post("/v3/kv/put", {"key": _OTHER_KEY, "value": ""})
        time.sleep(_RENEWED_S)
        self.wait_until_whole()

        def exchange() -> None:
            for member, copy in copies.items():
                aside = copy.with_name(f"{copy.name}-aside")
                member.data.rename(aside)
                copy.rename(member.data)
                aside.rename(copy)

        running = [(node_id, self.brokers.pid(node_id)) for node_id in NODES]
        self._restart_etcd(exchange)
        for node_id, _ in running:
            wait_until(lambda node_id=node_id: not self.brokers.pid(node_id), _ENDED_S)  # type: ignore[misc]
            self.brokers.ended(node_id)
        self._restart_etcd(exchange)
        for copy in copies.values():
            shutil.rmtree(copy)
        self._start(running)

    def _restart_etcd(self, meanwhile: Callable[[], object]) -> None:
        """Do something while no member of etcd runs."""
        for member in self._etcd:
            member.kill()
        meanwhile()
        for member in self._etcd:
            member.start(wait=False)
        for member in self._etcd:
            member.wait()

    def close(self) -> None:
        """End all processes."""
        self.admin.close()
        super().close()
