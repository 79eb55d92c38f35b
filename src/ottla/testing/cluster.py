"""Cluster of brokers in this process, each on a thread of its own, with a metadata store in memory.

The test plays the part of the machine: a broker that is killed loses its sign of life at once, as with `ottla serve --brokers`,
where the parent process notices the end of a child.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ottla.broker.config import broker_config
from ottla.broker.coordination.internal_topics import replication_factors
from ottla.broker.lifecycle import BrokerServer
from ottla.broker.process import EphemeralDirectory
from ottla.client.errors import KafkaError
from ottla.client.producer.contents import Content, Headers, as_bytes
from ottla.client.topics import TopicPartition
from ottla.coordinators.partitions import partition_of
from ottla.environment import Address, Receiver, Stream
from ottla.environment.asyncio_transport import ThreadsafeTimers
from ottla.environment.disk import DiskStore
from ottla.environment.process import process_environment
from ottla.environment.system import SystemClock
from ottla.metadata.image import NO_LEADER, OFFSETS_TOPIC, Image
from ottla.metadata.store.memory import MemoryMetadataStore, SharedMetadata
from ottla.protocol.errors import GROUP_ID_NOT_FOUND, LEADER_NOT_AVAILABLE
from ottla.records.record import Record
from ottla.tasks.deferred import Deferred
from ottla.testing.calls import checks_calls, existing
from ottla.testing.clock import MovableTimers
from ottla.testing.contents import Contents, GroupStatus, unknown_topic
from ottla.testing.faults import ActiveChange
from ottla.testing.kafka import Kafka, check_record, choose_partition, config_texts
from ottla.testing.security import security_of

_POLL_INTERVAL_S: Final = 0.002
_TIMEOUT_S: Final = 30.0


class _StoreThread:
    """The metadata store of a cluster, on a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self.shared = SharedMetadata(SystemClock(), ThreadsafeTimers(self._loop))
        self._thread = threading.Thread(target=self._loop.run_forever, name="ottla-metadata", daemon=True)
        self._thread.start()

    def call(self, work: Callable[[], object]) -> None:
        """Run `work` on the thread, and wait for its end."""

        async def run() -> None:
            work()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(_TIMEOUT_S)

    def close(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _Links:
    """Transport of a broker on which the links to some ports can be cut."""

    def __init__(self, loop: asyncio.AbstractEventLoop, cut_ports: set[int]) -> None:
        self._transport = process_environment(loop).transport
        self._cut_ports = cut_ports
        self._open: dict[_Link, None] = {}

    def open(
        self, address: Address, receiver: Receiver, *, send_buffer: int = -1, receive_buffer: int = -1
    ) -> Callable[[], None]:
        """See `Transport.open`; a link that is cut is refused."""
        link = _Link(receiver, address[1])
        if address[1] in self._cut_ports:
            address = address[0], 1  # no broker listens there: the connection is refused
        self._open[link] = None
        return self._transport.open(address, link, send_buffer=send_buffer, receive_buffer=receive_buffer)

    def cut(self) -> None:
        """Break the open connections to the ports that are cut."""
        for link in list(self._open):
            if link.port in self._cut_ports:
                self._open.pop(link)
                link.cut()


class _Link:
    """Connection of a broker to another one."""

    def __init__(self, receiver: Receiver, port: int) -> None:
        self.port = port
        self._receiver = receiver
        self._stream: Stream | None = None

    def resolved(self) -> None:
        self._receiver.resolved()

    def connected(self, stream: Stream) -> None:
        self._stream = stream
        self._receiver.connected(stream)

    def readable(self, receive_into: Callable[..., int]) -> None:
        self._receiver.readable(receive_into)

    def lost(self, reason: str) -> None:
        self._stream = None
        self._receiver.lost(reason)

    def rejected(self, reason: str) -> None:
        self._stream = None
        self._receiver.rejected(reason)

    def cut(self) -> None:
        """Break the connection."""
        if self._stream is not None:
            self._stream.close()
            self.lost("the connection was cut")


@checks_calls
class ClusterBroker(Kafka):
    """One broker of a cluster; it has all methods of the fixture `kafka`."""

    def __init__(self, cluster: "KafkaCluster", node_id: int, configs: Mapping[str, object], data_dir: Path) -> None:
        self.node_id = node_id
        self._cluster = cluster
        self._cut_ports: set[int] = set()
        super().__init__({"node.id": node_id, **configs}, data_dir=data_dir)

    @property
    def is_running(self) -> bool:
        """True unless the broker was killed or stopped."""
        return self._is_running

    def _files(self) -> DiskStore:
        return DiskStore(durable=False)

    def _new_server(self, loop: asyncio.AbstractEventLoop) -> BrokerServer:
        self._timers = MovableTimers(loop, self._clock)
        self._links = _Links(loop, self._cut_ports)
        self.store: MemoryMetadataStore = self._cluster.metadata.connect(timers=ThreadsafeTimers(loop))
        environment = process_environment(loop, clock=self._clock, timers=self._timers, files=self._files())
        config = broker_config(options=map("=".join, self._configs.items()))
        return BrokerServer(config, replace(environment, transport=self._links), self.store)

    def _start_broker(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._release_ports()
        self.server = self._new_server(self._loop)
        self._thread = threading.Thread(target=self._run, name=f"ottla-broker-{self.node_id}", daemon=True)
        self._thread.start()
        try:
            self._ask(self.server.start)
        except BaseException:
            self._stop_thread()
            raise
        self._call(lambda: self._faults.attach(self.server))

    def _end(self, end: Callable[[BrokerServer], object]) -> None:
        self._check_process()
        if not self._is_running:
            return

        def end_server() -> object:
            answer = end(self.server)
            return answer if isinstance(answer, Deferred) else None

        self._ask(end_server)
        self._stop_thread()
        self._reserve_ports()
        self._keep_listeners()

    def kill(self) -> None:
        """Stop the broker at once, as kill -9 does; see `Kafka.kill`. The cluster notices it, as the end of a process."""
        lease = self._call(lambda: self.server.node.membership.lease if self.server.node is not None else 0)
        super().kill()
        self._cluster.end_lease(lease)

    def cut(self, port: int, *, is_cut: bool) -> None:
        """Cut or restore the links of this broker to a port of another one."""

        def change() -> None:
            if is_cut:
                self._cut_ports.add(port)
                self._links.cut()
            else:
                self._cut_ports.discard(port)

        if self._is_running:
            self._call(change)
        else:
            change()

    def close(self) -> None:
        """Stop the broker without a flush."""
        if not self._is_closed:
            self._end(BrokerServer.kill)
            self._release_ports()
            self._is_closed = True


@checks_calls
class KafkaCluster(Contents):
    """Cluster of brokers for the duration of a `with` block, each on a free port of 127.0.0.1.

    size     number of brokers; their node ids are 1 to `size`
    configs  Kafka's names and values, for every broker; names may have `_` instead of `.`
    racks    broker.rack of each broker; none by default
    brokers  the brokers by node id, each with all methods of the fixture `kafka`
    """

    def __init__(
        self, size: int = 3, configs: Mapping[str, object] | None = None, *, racks: Sequence[str] = ()
    ) -> None:
        if size < 1:
            raise ValueError(f"a cluster has at least one broker, not {size}")
        if racks and len(racks) != size:
            raise ValueError(f"racks must name one rack for each of the {size} brokers, but names {len(racks)}")
        self._is_closed = False
        self._directory = EphemeralDirectory()
        self._store = _StoreThread()
        self.metadata = self._store.shared
        self.brokers: dict[int, ClusterBroker] = {}
        try:
            self._security = security_of(configs or {})
            own = config_texts({name: value for name, value in (configs or {}).items() if name != "security"})
            config = broker_config(options=map("=".join, own.items()))
            values = {**replication_factors(config, size), **own, "security": self._security}
            for node_id in range(1, size + 1):
                home = self._directory.path / str(node_id)
                rack = {"broker.rack": racks[node_id - 1]} if racks else {}
                self.brokers[node_id] = ClusterBroker(self, node_id, {**values, **rack}, home)
            self._wait(lambda: all(self._sees_all(broker) for broker in self.brokers.values()))
        except BaseException:
            self.close()
            raise

    def _sees_all(self, broker: ClusterBroker) -> bool:
        image = broker.broker.image
        return len(image.brokers) == len(self.brokers) and image.controller_id in image.brokers

    @property
    def bootstrap_servers(self) -> str:
        """Bootstrap servers for clients: the addresses of all brokers."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values())

    @property
    def client_config(self) -> dict[str, str]:
        """Return the configs of a client of this cluster, under Kafka's names: addresses and security."""
        secured = self._security.client_configs if self._security is not None else {}
        return {"bootstrap.servers": self.bootstrap_servers, **secured}

    @property
    def running(self) -> list[ClusterBroker]:
        """The brokers that were not killed or stopped, by node id."""
        return [broker for broker in self.brokers.values() if broker.is_running]

    @property
    def image(self) -> Image:
        """The metadata image of the running broker that has the newest one."""
        return max((broker.broker.image for broker in self._all), key=lambda image: image.revision)

    @property
    def _all(self) -> list[ClusterBroker]:
        """The running brokers. Raises RuntimeError if all are down."""
        if self._is_closed:
            raise RuntimeError("the cluster is closed: its `with` block or its test has ended")
        running = self.running
        if not running:
            raise RuntimeError("no broker of the cluster is running: restart(n) starts one")
        return running

    @property
    def _any(self) -> ClusterBroker:
        return self._all[0]

    def __getitem__(self, node_id: int) -> ClusterBroker:
        __tracebackhide__ = True
        broker = self.brokers.get(node_id)
        if broker is None:
            raise LookupError(f"there is no broker {node_id!r}; node ids: {existing(map(str, self.brokers))}")
        return broker

    def __repr__(self) -> str:
        down = ", ".join(str(node_id) for node_id, broker in self.brokers.items() if not broker.is_running)
        return f"<{type(self).__name__} of {len(self.brokers)} brokers{', down: ' if down else ''}{down}>"

    # Topics and records.

    def create_topic(self, name: str, partitions: int = 1, *, replication_factor: int = -1, **configs: object) -> None:
        """Create a topic, and wait until all running brokers have it; see `Kafka.create_topic`."""
        self._any.create_topic(name, partitions, replication_factor=replication_factor, **configs)
        self._wait(lambda: all(name in broker.broker.image.topics for broker in self.running))

    def delete_topic(self, name: str) -> None:
        """Delete a topic, and wait until no running broker has it. Raises UnknownTopic."""
        self._any.delete_topic(name)
        self._wait(lambda: all(name not in broker.broker.image.topics for broker in self.running))

    def topics(self) -> list[str]:
        """Return the names of all topics except internal ones."""
        return sorted(topic.name for topic in self.image.topics.values() if not topic.is_internal)

    def produce(
        self,
        topic: str,
        value: Content,
        key: Content = None,
        *,
        partition: int | None = None,
        headers: Headers = (),
        timestamp: int | None = None,
    ) -> Record:
        """Append a record at the leader of its partition, and return it; see `Kafka.produce`.

        It does not wait for other replicas. Raises UnknownTopic, and KafkaError if the partition has no leader.
        """
        check_record(topic, value, key, headers, timestamp)
        if topic not in self.image.topics and self._any.broker.config.flag("auto.create.topics.enable"):
            self.create_topic(topic, -1)
        known = self.image.topics.get(topic)
        if known is None:
            raise unknown_topic(topic, self.topics())
        index = choose_partition(known, as_bytes(key), partition)
        leader = self._leader(topic, index)
        return leader.produce(topic, value, key, partition=index, headers=headers, timestamp=timestamp)

    def _read(self, topic: str, index: int | None, *, committed: bool) -> list[Record] | None:
        known = self.image.topics.get(topic)
        if known is None:
            return None
        indexes = range(len(known.partitions)) if index is None else [choose_partition(known, None, index)]
        level = "read_committed" if committed else "read_uncommitted"
        return [
            record
            for number in indexes
            for record in self._leader(topic, number).records(topic, partition=number, isolation_level=level)
        ]

    def _leader(self, topic: str, index: int) -> ClusterBroker:
        """Return the broker that leads a partition, after an election under way. Raises KafkaError without a leader."""

        def is_decided() -> bool:
            image = self.image
            in_sync = image.topics[topic].partitions[index].isr
            return self.leader_of(topic, index) != NO_LEADER or not any(node_id in image.brokers for node_id in in_sync)

        self._wait(is_decided)
        node_id = self.leader_of(topic, index)
        if node_id == NO_LEADER:
            raise KafkaError(f"{topic}-{index} has no live leader: restart its broker", LEADER_NOT_AVAILABLE)
        broker = self.brokers[node_id]
        self._wait(lambda: not isinstance(broker.broker.replicas.leader(topic, index), int))
        return broker

    # Groups.

    def _group_statuses(self) -> dict[str, GroupStatus]:
        return {name: status for broker in self._all for name, status in broker._group_statuses().items()}

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """Return the committed offsets of a group by topic-partition; empty for a group without any."""
        return {partition: offset for broker in self._all for partition, offset in broker.committed(group).items()}

    def delete_group(self, group: str) -> None:
        """Delete a group without members, and its committed offsets. Raises KafkaError as Kafka would."""
        known = self._group_statuses()
        if group not in known:
            raise KafkaError(f"group {group} does not exist; existing groups: {existing(known)}", GROUP_ID_NOT_FOUND)
        self.brokers[self.coordinator_of(group)].delete_group(group)

    def leader_of(self, topic: str, partition: int) -> int:
        """Return the node id of the live leader of a partition; -1 without one. Raises LookupError for an unknown partition."""
        image = self.image
        known = image.topics.get(topic)
        if known is None or not 0 <= partition < len(known.partitions):
            raise LookupError(f"there is no partition {topic}-{partition}")
        leader = known.partitions[partition].leader
        return leader if leader in image.brokers else NO_LEADER

    def coordinator_of(self, group: str) -> int:
        """Return the node id of the coordinator of a group; -1 without one. Raises LookupError before the first group."""
        topic = self.image.topics.get(OFFSETS_TOPIC)
        if topic is None:
            raise LookupError("no group has been used yet")
        return self.leader_of(OFFSETS_TOPIC, partition_of(group, len(topic.partitions)))

    # Starting, stopping and links.

    def kill(self, node_id: int) -> None:
        """Stop a broker at once, as kill -9 does, and wait until the others have noticed it."""
        self[node_id].kill()
        self._wait(lambda: all(node_id not in broker.broker.image.brokers for broker in self.running))

    def stop(self, node_id: int) -> None:
        """Stop a broker cleanly, and wait until the others have noticed it."""
        self[node_id].stop()
        self._wait(lambda: all(node_id not in broker.broker.image.brokers for broker in self.running))

    def restart(self, node_id: int) -> None:
        """Start a broker again on the same port and directory, after a clean stop unless it was killed, and wait until all
        brokers see it.
        """
        self[node_id].restart()
        self._wait(lambda: all(node_id in broker.broker.image.brokers for broker in self.running))

    def disconnect(self, one: int, other: int) -> ActiveChange:
        """Cut the links between two brokers, in both directions, until `reconnect`; clients reach both."""
        for source, target in ((one, other), (other, one)):
            self[source].cut(self[target].address[1], is_cut=True)
        return ActiveChange(lambda: self.reconnect(one, other))

    def reconnect(self, one: int, other: int) -> None:
        """Restore the links between two brokers."""
        for source, target in ((one, other), (other, one)):
            self[source].cut(self[target].address[1], is_cut=False)

    def heal(self) -> None:
        """End all faults of all brokers, and restore all links."""
        nodes = list(self.brokers)
        for number, one in enumerate(nodes):
            for other in nodes[number + 1 :]:
                self.reconnect(one, other)
        for broker in self.brokers.values():
            broker.heal()

    # Faults at every broker.

    def fail(self, api: str, count: int | None = 1, *, error: str) -> ActiveChange:
        """Fail requests at every broker; see `Kafka.fail`."""
        return self._at_all(lambda broker: broker.fail(api, count, error=error))

    def delay(self, api: str, ms: int | timedelta, count: int | None = None) -> ActiveChange:
        """Delay requests at every broker; see `Kafka.delay`."""
        return self._at_all(lambda broker: broker.delay(api, ms, count))

    def drop(self, api: str, count: int | None = 1, *, carried_out: bool = False) -> ActiveChange:
        """Close connections at every broker; see `Kafka.drop`."""
        return self._at_all(lambda broker: broker.drop(api, count, carried_out=carried_out))

    def throttle(self, ms: int | timedelta) -> ActiveChange:
        """Set the throttle time at every broker; see `Kafka.throttle`."""
        return self._at_all(lambda broker: broker.throttle(ms))

    def pin_versions(self, release: str) -> ActiveChange:
        """Serve the API versions of an older release at every broker; see `Kafka.pin_versions`."""
        return self._at_all(lambda broker: broker.pin_versions(release))

    def _at_all(self, change: Callable[[ClusterBroker], ActiveChange]) -> ActiveChange:
        changes = [change(broker) for broker in self.brokers.values()]

        def end() -> None:
            for active in changes:
                active.end()

        return ActiveChange(end)

    def end_lease(self, lease: int) -> None:
        """End the lease of a broker that was killed."""
        if lease:
            self._store.call(lambda: self.metadata.revoke(lease))

    def _wait(self, is_met: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _TIMEOUT_S
        while not is_met():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the cluster has not agreed after {_TIMEOUT_S:.0f} s")
            time.sleep(_POLL_INTERVAL_S)

    def close(self) -> None:
        """Stop all brokers without a flush, and remove their directories."""
        if self._is_closed:
            return
        self._is_closed = True
        with ExitStack() as ending:
            ending.callback(self._directory.remove)
            ending.callback(self._store.close)
            for broker in self.brokers.values():
                ending.callback(broker.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
