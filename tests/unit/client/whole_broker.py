"""Ottla's broker in the virtual time of `world.py`: no sockets, no threads, no waiting; its logs are on the disk.

Interactions of clients through a broker can so be tested a thousand times: minutes of heartbeats take milliseconds.
"""

import asyncio
import random
from pathlib import Path

from ottla.broker.config import broker_config
from ottla.broker.lifecycle import BrokerServer
from ottla.client.topics import TopicPartition
from ottla.environment.disk import DiskStore
from ottla.environment.process import process_environment
from ottla.log import reading
from ottla.metadata import changes
from ottla.metadata.image import OFFSETS_TOPIC, Image
from ottla.metadata.plans.topics import RequestedTopic, TopicBatch
from ottla.protocol import codec
from ottla.protocol.connection import Envelope
from ottla.protocol.context import Peer, RequestContext
from ottla.protocol.errors import NONE
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.schema import Request
from ottla.records.batch import BatchHeader, build
from ottla.records.control import ABORT, read_marker
from ottla.records.record import Record
from tests.queues import drain

from .world import LOST, Answer, Broker, Wire, World

_CONFIGS = {
    "group.consumer.assignment.interval.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
    "group.share.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "node.id": "1",
}


class _Chance:
    """Repeats itself."""

    def __init__(self) -> None:
        self._dice = random.Random(9)

    def bytes16(self) -> bytes:
        return self._dice.randbytes(16)

    def below(self, bound: int) -> int:
        return self._dice.randrange(bound)


class WholeBroker(Broker):
    """Ottla's broker at one:9092.

    losses  how many of the next requests break their connection, before they are carried out
    """

    def __init__(self, world: World, directory: Path, **configs: str) -> None:
        super().__init__(world, "one", 1)
        broker_configs = {**_CONFIGS, **{name.replace("_", "."): value for name, value in configs.items()}}
        world.brokers["one", 9092] = self
        self._loop = asyncio.new_event_loop()
        files = DiskStore(durable=False)
        environment = process_environment(self._loop, clock=world, random=_Chance(), timers=world, files=files)
        self._server = BrokerServer(broker_config({**broker_configs, "log.dirs": str(directory)}), environment)
        self._server.open()
        self._broker = self._server.broker
        self._peers: dict[Wire | None, Peer] = {}
        self._moved = False
        self.losses = 0

    def create_topic(self, name: str, partitions: int) -> None:
        metadata = self._broker.metadata
        topic = metadata.plans.plan(RequestedTopic(name, partitions, 1, {}, {}), TopicBatch())
        for _, change in changes.create_topics(metadata.image, [topic], metadata.largest_change):
            metadata.commit(change)
        drain(self._server.tasks)

    def delete_topic(self, name: str) -> None:
        metadata = self._broker.metadata
        for change in changes.delete_left(metadata.image, [metadata.image.topics[name]], metadata.largest_change):
            metadata.commit(change)
        drain(self._server.tasks)

    @property
    def image(self) -> Image:
        return self._broker.image

    def records(self, partition: TopicPartition, *, committed: bool = False) -> list[Record]:
        """Every record of a partition; `committed`: those that a reader of committed records sees in the end."""
        replica = self._broker.replicas.find(*partition)
        assert replica is not None
        seen: list[Record] = []
        open_now: dict[int, list[Record]] = {}
        for header, records in reading.batches(replica.log):
            if not header.is_transactional or not committed:
                seen += [] if header.is_control else records
            elif not header.is_control:
                open_now.setdefault(header.producer_id, []).extend(records)
            else:
                ended = open_now.pop(header.producer_id, [])
                if read_marker(records[0].key, records[0].value).type != ABORT:
                    seen += ended
        return sorted(seen, key=lambda record: record.offset)

    def headers(self, partition: TopicPartition) -> list[BatchHeader]:
        """The headers of all batches of a partition."""
        replica = self._broker.replicas.find(*partition)
        assert replica is not None
        return [header for header, _ in reading.batches(replica.log)]

    @property
    def is_troubled(self) -> bool:
        """Return whether the next requests will fail."""
        return self.losses > 0 or self._moved

    def append(self, partition: TopicPartition, *values: bytes) -> None:
        """Append records in one batch, like those of a producer."""
        replica = self._broker.replicas.find(*partition)
        assert replica is not None
        batch = build([Record(offset, 0, None, value) for offset, value in enumerate(values)])
        assert replica.append(batch, 0, len(batch), self._world.wall_ms()).error_code == NONE

    def move_coordinators(self) -> None:
        """Move the coordinators to another broker until a client looks them up."""
        if OFFSETS_TOPIC in self._broker.image.topics and not self._moved:
            self._moved = True
            self._broker.coordination.resign(OFFSETS_TOPIC, 0)

    def answer(self, envelope: Envelope) -> Answer:
        kind: type[Request] = envelope.api.request_class()
        self.asked[kind] += 1
        if self.losses:
            self.losses -= 1
            return LOST
        if kind is FindCoordinatorRequest and self._moved:
            self._moved = False
            self._broker.coordination.take_back(self._broker.image.topics[OFFSETS_TOPIC], 0)
        request = codec.decode(kind, envelope.version, envelope.frame, envelope.body)[0]
        self.requests.append((request, envelope.version))
        context = RequestContext(
            version=envelope.version,
            client_id=envelope.client_id,
            client_host="/h",
            address=("one", 9092),
            peer=self._peers.setdefault(self.speaker, Peer(len(self._peers))),
        )
        return self._server.pipeline.serve(envelope, context)

    def hung_up(self, wire: Wire) -> None:
        peer = self._peers.pop(wire, None)
        if peer is not None:
            for closed in peer.closed:
                closed(peer)

    def close(self) -> None:
        """Let go of its files."""
        self._server.stop()
        self._loop.close()
