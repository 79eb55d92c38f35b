"""Faults of a run: those of replicated_cluster, and leader elections and reassignments besides."""

import random
import time
from collections.abc import Callable, Sequence
from typing import Final

from ottla import Admin, ElectionType, TopicPartition
from ottla import KafkaError as OttlaError
from tests.crash.replicated_brokers import NODES, EtcdBrokers
from tests.crash.replicated_cluster import ReplicatedCluster
from tests.etcd_server import EtcdServer

_WITHIN_S: Final = 90


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
        return [*super().kinds(), *[self._elect] * 2, *[self._reassign] * 3]

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

    def close(self) -> None:
        """End all processes."""
        self.admin.close()
        super().close()
