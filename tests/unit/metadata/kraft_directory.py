"""A data directory as a stopped Apache Kafka leaves it, small: the metadata log from records, partitions without records."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ottla.protocol import codec
from ottla.protocol.messages import metadata_records as records
from ottla.protocol.schema import Message
from ottla.protocol.uuids import uuid_text
from ottla.protocol.wire import write_uvarint
from ottla.records.batch import build
from ottla.records.record import Record

CLUSTER: Final = "1SIVS7E6SqKSQyYHkfScFQ"
PLAIN: Final = bytes(range(16))


def value(message: Message, version: int | None = None) -> bytes:
    """A record's value as Kafka's controller frames it."""
    version = message.VERSIONS.last if version is None else version
    return write_uvarint(1) + write_uvarint(message.API) + write_uvarint(version) + codec.encode(message, version)


def batch(messages: Sequence[Message], base_offset: int = 0) -> bytes:
    logged = [Record(base_offset + number, 0, None, value(message)) for number, message in enumerate(messages)]
    return build(logged, base_offset=base_offset)


def topic(name: str, topic_id: bytes, partitions: int, replicas: Sequence[int] = (1,)) -> list[Message]:
    """The records of a topic that was made."""
    made: list[Message] = [records.TopicRecord(name=name, topic_id=topic_id)]
    for index in range(partitions):
        placed = list(replicas)
        made.append(
            records.PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=placed,
                isr=placed,
                leader=placed[0],
                leader_epoch=3,
                partition_epoch=3,
                directories=[bytes(16)] * len(placed),
            )
        )
    return made


def identify(path: Path, *, node_id: int = 1, cluster: str = CLUSTER, version: int = 1) -> None:
    """A log directory of a node, cleanly left."""
    path.mkdir(parents=True, exist_ok=True)
    directory_id = uuid_text(bytes([len(path.name)]) * 16)
    lines = [f"node.id={node_id}", f"directory.id={directory_id}", f"version={version}", f"cluster.id={cluster}"]
    (path / "meta.properties").write_text("#\n" + "\n".join(lines) + "\n")
    (path / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":12}')


def lay_out(path: Path, messages: Sequence[Message]) -> None:
    """The metadata log, and a directory for each partition of `messages`."""
    identify(path)
    log = path / "__cluster_metadata-0"
    log.mkdir()
    (log / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    (log / f"{0:020d}.log").write_bytes(batch(messages))
    names = {message.topic_id: message.name for message in messages if isinstance(message, records.TopicRecord)}
    for message in messages:
        if isinstance(message, records.PartitionRecord):
            add_partition(path, names[message.topic_id], message.partition_id, message.topic_id)


def add_partition(path: Path, name: str, index: int, topic_id: bytes) -> None:
    directory = path / f"{name}-{index}"
    directory.mkdir()
    (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {uuid_text(topic_id)}\n")
