"""Metadata of the cluster at one revision: an immutable image, and the deltas from one image to the next.

Readers hold an image, which never changes; code that must act on changes subscribes to deltas.
"""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from ottla.security.quotas import Quotas
from ottla.security.scram import ScramCredential

OFFSETS_TOPIC: Final = "__consumer_offsets"
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
SHARE_STATE_TOPIC: Final = "__share_group_state"
UNASSIGNED: Final = bytes(16)
"""Directory id of a replica without an assigned log directory (`DirectoryId.UNASSIGNED` in Kafka)."""
INTERNAL_TOPICS: Final = frozenset((OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_STATE_TOPIC))


class PartitionImage(NamedTuple):
    """The replicas of a partition.

    replicas, isr  node ids; the preferred leader comes first
    leader         node id, -1 without a leader
    directories    directory id (16 bytes) of each replica's log directory (KIP-858), UNASSIGNED for a replica that was never
                   moved; empty when no replica was
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    directories: tuple[bytes, ...] = ()

    def directory_of(self, node_id: int) -> bytes:
        """Return the directory id that the replica on `node_id` is assigned to, or UNASSIGNED."""
        return self.directories[self.replicas.index(node_id)] if self.directories else UNASSIGNED

    def assigned(self, node_id: int, directory_id: bytes) -> "PartitionImage":
        """Return this partition with the replica on `node_id` assigned to another log directory."""
        old = self.directories or (UNASSIGNED,) * len(self.replicas)
        new = (directory_id if node == node_id else before for node, before in zip(self.replicas, old, strict=True))
        return self._replace(directories=tuple(new))

    def encoded(self) -> list[Any]:
        """Return the partition's part of a topic's JSON; directories are left out if none is assigned."""
        fields: list[Any] = [list(self.replicas), list(self.isr), self.leader, self.leader_epoch]
        return [*fields, [directory.hex() for directory in self.directories]] if self.directories else fields

    @classmethod
    def decoded(cls, fields: list[Any]) -> "PartitionImage":
        """Return the partition from its part of a topic's JSON."""
        replicas, isr, leader, epoch, *directories = fields
        ids = tuple(bytes.fromhex(directory) for directory in directories[0]) if directories else ()
        return cls(tuple(replicas), tuple(isr), leader, epoch, ids)


class TopicImage(NamedTuple):
    """A topic; `configs` are its overrides as text, under Kafka's names."""

    name: str
    id: bytes
    partitions: tuple[PartitionImage, ...]
    configs: Mapping[str, str]

    @property
    def is_internal(self) -> bool:
        """True for an internal topic, such as __consumer_offsets."""
        return self.name in INTERNAL_TOPICS

    def encoded(self) -> bytes:
        """Encode the topic as the value of its key in the metadata store."""
        partitions = [partition.encoded() for partition in self.partitions]
        fields = {"id": self.id.hex(), "partitions": partitions, "configs": dict(self.configs)}
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decoded(cls, name: str, value: bytes) -> "TopicImage":
        """Decode a topic from the value of its key in the metadata store."""
        fields: dict[str, Any] = json.loads(value)
        partitions = tuple(PartitionImage.decoded(partition) for partition in fields["partitions"])
        return cls(name, bytes.fromhex(fields["id"]), partitions, fields["configs"])


class BrokerImage(NamedTuple):
    """Live broker; host and port are the advertised ones, or ("", -1) for the address that a client connected to."""

    node_id: int
    host: str
    port: int
    rack: str | None


class Image(NamedTuple):
    """All metadata at `revision`.

    configs      texts by (resource type, name), for brokers, groups and client-metrics subscriptions; topics have their own
    features     finalized levels that differ from the release's own
    credentials  SCRAM credentials by user and mechanism
    """

    revision: int
    cluster_id: str
    controller_id: int
    brokers: Mapping[int, BrokerImage]
    topics: Mapping[str, TopicImage]
    topics_by_id: Mapping[bytes, TopicImage]
    configs: Mapping[tuple[int, str], Mapping[str, str]] = MappingProxyType({})
    features: Mapping[str, int] = MappingProxyType({})
    quotas: Quotas = MappingProxyType({})
    credentials: Mapping[tuple[str, int], ScramCredential] = MappingProxyType({})

    def configs_of(self, kind: int, name: str) -> Mapping[str, str]:
        """Return the config overrides of a resource other than a topic."""
        return self.configs.get((kind, name), _NOTHING)

    def with_topics(self, revision: int, changed: Mapping[str, TopicImage | None]) -> "Image":
        """Return the next image: `changed` topics replace the old ones, None removes a topic."""
        topics, by_id = dict(self.topics), dict(self.topics_by_id)
        for name, topic in changed.items():
            old = topics.pop(name, None)
            if old is not None:
                by_id.pop(old.id, None)
            if topic is not None:
                topics[name] = topic
                by_id[topic.id] = topic
        return self._replace(revision=revision, topics=topics, topics_by_id=by_id)


class Delta(NamedTuple):
    """Changes that led to `image`: changed or new topics, deleted topics, and the resource whose configs changed; `settings` is
    True if features, quotas or credentials changed.
    """

    image: Image
    changed: tuple[TopicImage, ...]
    deleted: tuple[TopicImage, ...]
    configured: tuple[int, str] | None = None
    settings: bool = False
