"""What the cluster agrees on, at one revision: an immutable image, and the deltas that lead from one to the next.

Who needs metadata holds an image and never sees it change under its hands; who must act on changes subscribes to deltas.
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
INTERNAL_TOPICS: Final = frozenset((OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_STATE_TOPIC))


class PartitionImage(NamedTuple):
    """Who holds a partition. Node ids; `leader` is -1 while there is none."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int


class TopicImage(NamedTuple):
    """A topic; `configs` are its overrides as text, under Kafka's names."""

    name: str
    id: bytes
    partitions: tuple[PartitionImage, ...]
    configs: Mapping[str, str]

    @property
    def is_internal(self) -> bool:
        """Whether it belongs to the brokers themselves."""
        return self.name in INTERNAL_TOPICS

    def encoded(self) -> bytes:
        """The value of the topic's key in the metadata store."""
        partitions = [[list(p.replicas), list(p.isr), p.leader, p.leader_epoch] for p in self.partitions]
        fields = {"id": self.id.hex(), "partitions": partitions, "configs": dict(self.configs)}
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decoded(cls, name: str, value: bytes) -> "TopicImage":
        """The inverse of `encoded`."""
        fields: dict[str, Any] = json.loads(value)
        partitions = tuple(
            PartitionImage(tuple(replicas), tuple(isr), leader, epoch)
            for replicas, isr, leader, epoch in fields["partitions"]
        )
        return cls(name, bytes.fromhex(fields["id"]), partitions, fields["configs"])


class BrokerImage(NamedTuple):
    """A live broker; host and port are its advertised ones, ("", -1) for "whatever the client dialled"."""

    node_id: int
    host: str
    port: int
    rack: str | None


class Image(NamedTuple):
    """Everything, at `revision`. `configs` are those of brokers, groups and client-metrics subscriptions, as texts by
    (resource type, name); a topic has its own. `features` are finalized levels other than the release's own, `credentials`
    are those of SCRAM by user and mechanism.
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
        """The configs that a resource other than a topic has of its own."""
        return self.configs.get((kind, name), _NOTHING)

    def with_topics(self, revision: int, changed: Mapping[str, TopicImage | None]) -> "Image":
        """The next image: `changed` topics replace the old ones, None takes one away."""
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
    """What changed on the way to `image`: topics that came or changed, those that went, and the resource whose configs did;
    `settings` is true when it was features, quotas or credentials."""

    image: Image
    changed: tuple[TopicImage, ...]
    deleted: tuple[TopicImage, ...]
    configured: tuple[int, str] | None = None
    settings: bool = False
