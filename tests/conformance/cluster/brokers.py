"""Three brokers of Ottla, or three nodes of Apache Kafka, that can be stopped and started."""

import subprocess
import threading
from pathlib import Path
from typing import Final, Protocol

from ottla.testing import KafkaCluster

NODES: Final = (1, 2, 3)
WITHIN_S: Final = 60
SCRIPT: Final = Path(__file__).parents[3] / "bench" / "reference" / "kafka-cluster"


class Brokers(Protocol):
    """Brokers 1, 2 and 3, in the racks RACK1 to RACK3, with RackAwareReplicaSelector.

    addresses  by node id
    """

    addresses: dict[int, tuple[str, int]]
    is_kafka: bool

    def stop(self, node_id: int) -> None: ...

    def kill(self, node_id: int) -> None: ...

    def start(self, node_id: int) -> None: ...

    def freeze(self, node_id: int) -> None:
        """Stop a broker's code without closing its connections, as SIGSTOP does: its session goes on for a while."""

    def thaw(self, node_id: int) -> None:
        """End what `freeze` began."""


class OttlaBrokers:
    """Brokers in this process."""

    is_kafka = False

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self._thawed: dict[int, threading.Event] = {}
        self.addresses = {node_id: broker.address for node_id, broker in cluster.brokers.items()}

    def stop(self, node_id: int) -> None:
        self._cluster.stop(node_id)

    def kill(self, node_id: int) -> None:
        self._cluster.kill(node_id)

    def start(self, node_id: int) -> None:
        self._cluster.restart(node_id)

    def freeze(self, node_id: int) -> None:
        frozen, self._thawed[node_id] = threading.Event(), threading.Event()

        def wait() -> None:
            frozen.set()
            self._thawed[node_id].wait(WITHIN_S)

        self._cluster[node_id]._loop.call_soon_threadsafe(wait)
        assert frozen.wait(WITHIN_S)

    def thaw(self, node_id: int) -> None:
        self._thawed.pop(node_id).set()


class KafkaNodes:
    """Nodes that `bench/reference/kafka-cluster start 3 PORT DIRECTORY` has started."""

    is_kafka = True

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        count, port = map(int, (directory / "shape").read_text().split())
        assert count == len(NODES)
        self.addresses = {node_id: ("127.0.0.1", port + node_id - 1) for node_id in NODES}

    def _run(self, verb: str, node_id: int) -> None:
        subprocess.run([SCRIPT, verb, str(node_id), self._directory], check=True, timeout=60)

    def stop(self, node_id: int) -> None:
        self._run("down", node_id)

    def kill(self, node_id: int) -> None:
        self._run("kill", node_id)

    def start(self, node_id: int) -> None:
        self._run("up", node_id)

    def freeze(self, node_id: int) -> None:
        self._run("freeze", node_id)

    def thaw(self, node_id: int) -> None:
        self._run("thaw", node_id)
