"""A cluster of three brokers in processes of their own, and its random faults: kills, pauses and cut connections."""

import contextlib
import os
import random
import signal
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.etcd_server import EtcdServer

from .brokers import wait_until
from .cut_connections import NetworkPath, Node
from .replicated_brokers import CLIENTS, NODES, EtcdBrokers, SupervisedBrokers, member_of, node_of

WITHIN_S: Final = 90.0


def _signal(pid: int, number: signal.Signals) -> None:
    """Send a signal; a supervisor may have ended a process that was paused, and started it again."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


class ReplicatedCluster:
    """Brokers, and the faults that they suffer.

    kills   number of brokers killed so far
    faults  names of all faults, in their order
    """

    def __init__(
        self, brokers: EtcdBrokers | SupervisedBrokers, dice: random.Random, etcd: Sequence[EtcdServer]
    ) -> None:
        self.brokers = brokers
        self.kills = 0
        self.faults: list[str] = []
        self._dice = dice
        self._etcd = etcd
        self.servers = ",".join(f"127.0.0.1:{port}" for port in brokers.ports.values())
        self._admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        wait_until(lambda: self.live() == set(NODES), WITHIN_S)

    def metadata(self) -> Any:
        """Return the metadata of any broker, None while none answers."""
        with contextlib.suppress(KafkaException):
            return self._admin.list_topics(timeout=2)
        return None

    def live(self) -> set[int]:
        """Return the brokers that are listed, and whose port accepts connections."""
        metadata = self.metadata()
        return set() if metadata is None else {node for node in metadata.brokers if self._accepts(node)}

    def _accepts(self, node_id: int) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.brokers.direct[node_id]), 1).close()
        except OSError:
            return False
        return True

    def is_whole(self) -> bool:
        """Return True if all brokers are live, and all replicas of all partitions in sync."""
        metadata = self.metadata()
        if metadata is None or set(metadata.brokers) != set(NODES):
            return False
        partitions = [row for topic in metadata.topics.values() for row in topic.partitions.values()]
        return all(row.leader in NODES and len(row.isrs) == len(NODES) for row in partitions)

    def wait_until_whole(self) -> float:
        """Wait for `is_whole`, and return the seconds that it took."""
        try:
            return wait_until(self.is_whole, WITHIN_S)
        except AssertionError:
            raise AssertionError(f"after {WITHIN_S:.0f} s these are not whole: {self._incomplete()}") from None

    def _incomplete(self) -> dict[str, tuple[int, list[int]]] | str:
        """Return leader and ISR of the partitions that lack some; or that no broker answers."""
        metadata = self.metadata()
        if metadata is None:
            return "no broker answers"
        return {
            f"{topic.topic}-{row.id}": (row.leader, row.isrs)
            for topic in metadata.topics.values()
            for row in topic.partitions.values()
            if row.leader not in NODES or len(row.isrs) < len(NODES)
        }

    # -- faults --

    def kinds(self) -> list[Callable[[], None]]:
        """Return the faults to choose from; each as often as it is in the list."""
        kinds: list[Callable[[], None]] = (
            [self._kill_one] * 6 + [self._kill_two] * 2 + [self._kill_all] + [self._kill_controller] * 2 + [self._pause]
        )
        if isinstance(self.brokers, EtcdBrokers):
            kinds += [self._restart, self._kill_etcd_leader, self._pause_etcd_leader]
            kinds += [self._cut_from_brokers] * 2 + [self._cut_from_etcd, self._cut_off, self._cut_from_clients]
            kinds += [self._reset_connections]
        return kinds

    def fail(self) -> None:
        """Let a random fault happen, and end it: all brokers are started again, not necessarily in sync."""
        fault = self._dice.choice(self.kinds())
        self.faults.append(fault.__name__.removeprefix("_"))
        fault()
        if self._dice.random() < 0.7:
            self.wait_until_whole()

    def _end(self, *nodes: int) -> list[tuple[int, int]]:
        """Kill brokers at the same time; return those that ran, with their processes."""
        killed = [(node_id, pid) for node_id in nodes if (pid := self.brokers.pid(node_id))]
        for _, pid in killed:
            _signal(pid, signal.SIGKILL)
        for node_id, _ in killed:
            self.brokers.ended(node_id)
        self.kills += len(killed)
        return killed

    def _start(self, killed: Sequence[tuple[int, int]]) -> None:
        """Start brokers that were killed, and wait until they serve clients."""
        for node_id, pid in killed:
            wait_until(lambda node_id=node_id, pid=pid: self.brokers.pid(node_id) != pid)  # type: ignore[misc]
            self.brokers.start(node_id)
        for node_id, _ in killed:
            wait_until(lambda node_id=node_id: self._accepts(node_id), WITHIN_S)  # type: ignore[misc]

    def _kill(self, *nodes: int) -> None:
        killed = self._end(*nodes)
        time.sleep(self._dice.choice((0.0, 0.3, 1.5)))
        self._start(killed)

    def _kill_one(self) -> None:
        self._kill(self._dice.choice(NODES))

    def _kill_two(self) -> None:
        self._kill(*self._dice.sample(NODES, 2))

    def _kill_all(self) -> None:
        """Kill all brokers at the same time: what was acknowledged is in the page cache."""
        self._kill(*NODES)

    def _kill_controller(self) -> None:
        metadata = self.metadata()
        if metadata is not None and metadata.controller_id in NODES:
            self._kill(metadata.controller_id)

    def _pause(self) -> None:
        """Stop a process for some seconds, sometimes longer than its session: it does not know that it was fenced."""
        pid = self.brokers.pid(self._dice.choice(NODES))
        if pid:
            _signal(pid, signal.SIGSTOP)
            time.sleep(self._dice.choice((0.5, 2.0, 5.0)))
            _signal(pid, signal.SIGCONT)

    def _restart(self) -> None:
        """Stop a broker cleanly, and start it again."""
        node_id = self._dice.choice(NODES)
        pid = self.brokers.pid(node_id)
        if pid:
            _signal(pid, signal.SIGTERM)
            self.brokers.ended(node_id)
            self._start([(node_id, pid)])

    # -- faults of etcd, and of the network --

    def _etcd_leader(self) -> EtcdServer:
        status = self._etcd[0].post("/v3/maintenance/status", {})
        return next(
            (
                server
                for server in self._etcd
                if server.post("/v3/maintenance/status", {})["header"]["member_id"] == status["leader"]
            ),
            self._etcd[0],
        )

    def _kill_etcd_leader(self) -> None:
        leader = self._etcd_leader()
        leader.kill()
        time.sleep(self._dice.choice((0.0, 1.0)))
        leader.start()

    def _pause_etcd_leader(self) -> None:
        leader = self._etcd_leader()
        leader.pause()
        time.sleep(self._dice.choice((0.5, 2.0, 5.0)))
        leader.resume()

    def _cut_from_brokers(self) -> None:
        """Cut a broker from one of the others, or both; it keeps its session."""
        node_id, *others = self._dice.sample(NODES, len(NODES))
        self._cut(node_id, [node_of(other) for other in others[self._dice.choice((0, 0, 1)) :]])

    def _cut_from_etcd(self) -> None:
        """Cut a broker from all members of etcd, or one; it may lose its session, and goes on serving what it knows."""
        members = [member_of(index) for index in range(len(self._etcd))]
        self._cut(self._dice.choice(NODES), members[self._dice.choice((0, 0, 0, 2)) :])

    def _cut_off(self) -> None:
        """Cut a broker from the others and from etcd; clients reach it."""
        node_id, *others = self._dice.sample(NODES, len(NODES))
        members = [member_of(index) for index in range(len(self._etcd))]
        self._cut(node_id, [*map(node_of, others), *members])

    def _cut_from_clients(self) -> None:
        """Cut a broker from all clients: in one direction it appends and its responses are lost."""
        self._cut(self._dice.choice(NODES), [CLIENTS])

    def _cut(self, node_id: int, others: Iterable[Node]) -> None:
        """Cut a broker from other nodes for some seconds, in one direction or both; sometimes a broker is killed meanwhile."""
        assert isinstance(self.brokers, EtcdBrokers)
        network, own = self.brokers.network, node_of(node_id)
        sent: list[NetworkPath] = [(own, other) for other in others]
        received: list[NetworkPath] = [(other, own) for other, own in ((there, here) for here, there in sent)]
        directions = {"out": sent, "in": received, "both": sent + received}
        direction = self._dice.choice(("out", "in", "both", "both"))
        self.faults[-1] += f" {direction}"
        network.cut(directions[direction])
        killed = []
        if self._dice.random() < 0.2:
            time.sleep(self._dice.uniform(0.0, 2.0))
            killed = self._end(self._dice.choice(NODES))
        time.sleep(self._dice.choice((0.5, 2.0, 5.0)))
        if self._dice.random() < 0.5:
            network.reset(directions[direction])
        network.cut(())
        self._start(killed)

    def _reset_connections(self) -> None:
        """Reset all connections of a broker, or only those of clients, several times."""
        assert isinstance(self.brokers, EtcdBrokers)
        own = node_of(self._dice.choice(NODES))
        others = [CLIENTS]
        if self._dice.random() < 0.5:
            others += [*map(node_of, NODES), *map(member_of, range(len(self._etcd)))]
        for _ in range(self._dice.choice((1, 5, 20))):
            self.brokers.network.reset([(own, other) for other in others if other != own])
            time.sleep(0.05)

    def close(self) -> None:
        """End all processes."""
        self.brokers.close()
