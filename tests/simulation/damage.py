"""Damaged logs in a simulated run: bytes of a segment are overwritten on the disk of one replica, and read there.

Only committed records are overwritten that another sound replica in sync has, so that nothing may be lost. The bytes are
readable again, as after a retry of the disk, when no other replica in sync has them any more, and at the end of the fault.
"""

import random
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from ottla.broker.requests.pipeline import Pipeline
from ottla.metadata.image import Image, PartitionImage
from ottla.protocol.connection import ClientConnection, open_envelope
from ottla.protocol.context import RequestContext
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.replication.partition import Partition

from .brokers import SimulatedBroker
from .disks import DiskState
from .world import World

_HEADER: Final = struct.Struct(">qiibIhi")
"""Base offset, length, leader epoch, magic, CRC, attributes, last offset delta: the first fields of a record batch."""
_PREFIX: Final = 12
_OVERWRITTEN: Final = 61
"""Size of the header of a batch."""
_VERSION: Final = 12
"""A version of Fetch that followers serve, and with topic names."""
_OUTSIDE: Final = 0.25
"""Share of the damaged replicas that need not be in the ISR."""
Place = tuple[str, int]
"""Topic id and index of a partition."""


class Damage(NamedTuple):
    """Overwritten bytes.

    offset  first offset of the overwritten batch
    """

    broker: SimulatedBroker
    place: Place
    topic: str
    offset: int
    path: Path
    position: int
    original: bytes

    @property
    def is_there(self) -> bool:
        """True until the batch was cut off, or its segment removed."""
        return self.broker.disk.store.bytes_at(self.path, self.position, _OVERWRITTEN) == _inverted(self.original)


def _serve(pipeline: Pipeline, frame: bytes) -> None:
    pipeline.serve(open_envelope(frame), RequestContext(version=_VERSION, client_id="reader", client_host="/reader"))


def _inverted(data: bytes) -> bytes:
    return bytes(byte ^ 255 for byte in data)


class DamagedLogs:
    """Damaged logs of the brokers of one cluster."""

    def __init__(self, world: World, brokers: Mapping[int, SimulatedBroker]) -> None:
        self._world = world
        self._brokers = brokers
        self._damages: dict[Damage, None] = {}

    def is_damaged(self, node_id: int, place: Place) -> bool:
        """Return True if a replica has overwritten bytes."""
        return any((one.broker.node_id, one.place) == (node_id, place) and one.is_there for one in self._damages)

    def damage(self, image: Image, tainted: Mapping[Place, set[int]], chance: random.Random) -> Damage | None:
        """Overwrite a committed batch in the log of a replica; None if none was found that may be overwritten.

        tainted  replicas that have lost their page cache
        """
        topics = [topic for topic in image.topics.values() if any(len(one.isr) > 1 for one in topic.partitions)]
        if not topics:
            return None
        topic = chance.choice(topics)
        index = chance.randrange(len(topic.partitions))
        state, place = topic.partitions[index], (topic.id.hex(), index)
        node = chance.choice(state.replicas if chance.random() < _OUTSIDE else state.isr or state.replicas)
        partition = self._replica(node, topic.name, index)
        if partition is None or partition.log.config.is_compacted or any(one.place == place for one in self._damages):
            return None
        batch = self._batch(node, partition, chance)
        if batch is None or not self._sound(state, place, node, tainted, topic.name, batch.offset):
            return None
        self._brokers[node].disk.store.overwrite(batch.path, batch.position, _inverted(batch.original))
        self._damages[batch] = None
        role = "leader" if node == state.leader else "in sync" if node in state.isr else "out of sync"
        self._world.count(f"damaged log: {role}")
        return batch

    def _replica(self, node: int, topic: str, index: int) -> Partition | None:
        broker = self._brokers[node]
        if broker.server is None or not broker.is_serving or broker.disk.state is not DiskState.GOOD:
            return None
        return broker.server.broker.replicas.find(topic, index)

    def _sound(
        self, state: PartitionImage, place: Place, node: int, tainted: Mapping[Place, set[int]], topic: str, offset: int
    ) -> list[int]:
        """Return the other replicas in sync that have a record, and may become leader with it."""
        others = [one for one in state.isr if one != node and one not in tainted.get(place, ())]
        replicas = {one: self._replica(one, topic, place[1]) for one in others}
        return [one for one, replica in replicas.items() if replica is not None and replica.log.end_offset > offset]

    def _batch(self, node: int, partition: Partition, chance: random.Random) -> Damage | None:
        """Return a random committed batch of a replica."""
        log, store = partition.log, self._brokers[node].disk.store
        directory = self._brokers[node].directory_of(partition.topic, partition.index)
        batches: list[tuple[int, Path, int]] = []
        for path in (directory / name for name in store.names(directory) if name.endswith(".log")):
            data, position = store.content(path).data, 0
            while position + _HEADER.size <= len(data):
                base, length, _, magic, _, _, delta = _HEADER.unpack_from(data, position)
                if base + delta >= log.high_watermark or magic != 2 or length <= 0:
                    break
                if base >= log.start_offset:
                    batches.append((base, path, position))
                position += _PREFIX + length
        if not batches:
            return None
        base, path, position = chance.choice(batches)
        original = store.bytes_at(path, position, _OVERWRITTEN)
        place = partition.topic_id.hex(), partition.index
        return Damage(self._brokers[node], place, partition.topic, base, path, position, original)

    def read(self, damage: Damage) -> None:
        """Fetch the damaged batch from its broker, as a consumer does, if the broker serves requests."""
        broker = damage.broker
        if broker.server is None or not broker.is_serving or broker.host.life is None:
            return
        pipeline = broker.server.pipeline
        partition = FetchPartition(
            partition=damage.place[1], fetch_offset=damage.offset, last_fetched_epoch=-1, partition_max_bytes=1
        )  # to find the end of so few bytes the broker reads the header of the batch
        request = FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic=damage.topic, partitions=[partition])])
        frame = b"".join(bytes(piece) for piece in ClientConnection("reader").request(request, _VERSION))[4:]
        broker.host.life.run(lambda: _serve(pipeline, frame))

    def heal(self, damages: Iterable[Damage]) -> None:
        """Make overwritten bytes readable again."""
        for damage in damages:
            if damage not in self._damages:
                continue
            del self._damages[damage]
            if damage.is_there:
                self._world.count("damaged log: readable again")
                self._world.tell(damage.broker.name, f"{damage.topic}-{damage.place[1]}@{damage.offset} is readable")
                damage.broker.disk.store.overwrite(damage.path, damage.position, damage.original)
            else:
                self._world.count("damaged log: cut and fetched")

    def applied(self, image: Image, tainted: Mapping[Place, set[int]]) -> None:
        """Heal the logs whose damaged records no other replica in sync has any more."""
        for damage in list(self._damages):
            state = image.partition(bytes.fromhex(damage.place[0]), damage.place[1])
            node = damage.broker.node_id
            isr: Sequence[int] = () if state is None else state.isr
            if not any(one != node and one not in tainted.get(damage.place, ()) for one in isr):
                self.heal([damage])
