"""Three brokers in processes of their own that replicate topics, over etcd or on one machine."""

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from tests.etcd_server import EtcdServer
from tests.free_ports import free_ports

from .brokers import BrokerProcesses
from .conftest import command
from .cut_connections import Network, Node, Source, process_of

NODES: Final = (1, 2, 3)
OPTIONS: Final = (
    "default.replication.factor=3",
    "min.insync.replicas=2",
    "group.initial.rebalance.delay.ms=0",
    "broker.session.timeout.ms=3000",
    "replica.lag.time.max.ms=3000",
    "offsets.topic.num.partitions=5",
    "transaction.state.log.num.partitions=5",
    "share.coordinator.state.topic.num.partitions=5",
    # A start after a kill checks the records since the last flush, which is at the last roll: long runs need small segments.
    "log.segment.bytes=1048576",
)


class Brokers(Protocol):
    """Brokers 1, 2 and 3 on fixed ports.

    ports   ports for clients
    direct  the same without proxies: they refuse connections while a broker does not run
    """

    ports: dict[int, int]
    direct: dict[int, int]

    def pid(self, node_id: int) -> int:
        """Return the process of a broker; 0 while it does not run."""
        ...

    def ended(self, node_id: int) -> None:
        """Take notice of a broker whose process was killed."""
        ...

    def start(self, node_id: int) -> None:
        """Start a broker that was killed, unless something else does."""
        ...

    def directory(self, node_id: int) -> Path:
        """Return the data directory of a broker."""
        ...

    def stop(self) -> None:
        """Stop all brokers cleanly."""
        ...

    def close(self) -> None:
        """End all processes."""
        ...


CLIENTS: Final = "clients"
"""Node of all clients in paths of the network."""


def node_of(node_id: int) -> Node:
    """Return the name of a broker in paths of the network."""
    return f"broker {node_id}"


def member_of(index: int) -> Node:
    """Return the name of a member of etcd in paths of the network."""
    return f"etcd {index}"


class EtcdBrokers:
    """`ottla serve --cluster etcd://...`, three times; standard error goes to a file for each broker.

    All connections pass through `network`: the addresses that a broker advertises, for clients and for other brokers, are those
    of proxies, and each broker has a proxy for each member of etcd.

    options  configs besides OPTIONS, as NAME=VALUE
    module   Python module that runs as a broker, with the arguments of the command `ottla`
    """

    def __init__(
        self, home: Path, etcd: Sequence[EtcdServer], options: Sequence[str] = (), module: str = "ottla"
    ) -> None:
        self._home = home
        self._options = (*OPTIONS, *options)
        self._module = module
        self.network = Network()
        ports = iter(free_ports(len(NODES) * (4 + len(etcd))))
        self.ports, self.direct, self._peers, self._direct_peers = (
            {node_id: next(ports) for node_id in NODES} for _ in range(4)
        )
        self._urls: dict[int, str] = {}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        for node_id in NODES:
            members = []
            for index, member in enumerate(etcd):
                port = next(ports)
                self.network.listen(port, _always(node_of(node_id)), member_of(index), member.port)
                members.append(f"127.0.0.1:{port}")
            self._urls[node_id] = f"etcd://{','.join(members)}/test/kills"
        for node_id in NODES:
            self.start(node_id)

    def _pids(self) -> dict[Node, int]:
        return {node_of(node_id): process.pid for node_id, process in self._processes.items()}

    def start(self, node_id: int) -> None:
        options = (
            f"node.id={node_id}",
            f"listeners={_listeners(self.direct[node_id], self._direct_peers[node_id])}",
            f"advertised.listeners={_listeners(self.ports[node_id], self._peers[node_id])}",
            "listener.security.protocol.map=CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT",
            "inter.broker.listener.name=INTERNAL",
            *self._options,
        )
        words = [word for option in options for word in ("-o", option)]
        place = ["--cluster", self._urls[node_id], "--data-dir", str(self.directory(node_id)), "--log-level", "warning"]
        with (self._home / f"broker{node_id}.log").open("ab") as log:
            self._processes[node_id] = subprocess.Popen(
                command(*place, *words, module=self._module), stdout=log, stderr=log
            )
        own = node_of(node_id)
        self.network.listen(self.ports[node_id], _always(CLIENTS), own, self.direct[node_id])
        self.network.listen(self._peers[node_id], process_of(self._pids), own, self._direct_peers[node_id])

    def ended(self, node_id: int) -> None:
        self._processes[node_id].wait()
        self.network.refuse(self.ports[node_id])
        self.network.refuse(self._peers[node_id])

    def pid(self, node_id: int) -> int:
        process = self._processes[node_id]
        return process.pid if process.poll() is None else 0

    def directory(self, node_id: int) -> Path:
        return self._home / f"broker{node_id}"

    def stop(self) -> None:
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self._processes.values():
            assert process.wait(30) == 0

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
        self.network.close()


def _listeners(port: int, peer_port: int) -> str:
    return f"CLIENT://127.0.0.1:{port},INTERNAL://127.0.0.1:{peer_port}"


def _always(node: Node) -> Source:
    return lambda client_port, port: node


class SupervisedBrokers:
    """`ottla serve --brokers 3`: its parent process starts a broker that was killed again."""

    def __init__(self, home: Path) -> None:
        words = [word for option in OPTIONS for word in ("-o", option)]
        self._processes = BrokerProcesses(home / "data", "--log-level", "warning", *words)
        self.ports = self.direct = self._processes.ports

    def ended(self, node_id: int) -> None:
        """Do nothing: the parent notices."""

    def start(self, node_id: int) -> None:
        """Do nothing: the parent starts it."""

    def pid(self, node_id: int) -> int:
        return self._processes.pids().get(node_id, 0)

    def directory(self, node_id: int) -> Path:
        return self._processes.data_dir / f"broker-{node_id}"

    def stop(self) -> None:
        self._processes.stop()

    def close(self) -> None:
        if self._processes.process.poll() is None:
            self._processes.close()
