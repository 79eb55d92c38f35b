"""Topology: the part of the cluster metadata that coordinators use, namely topics and the configs of groups.

All partitions of __consumer_offsets share one object, to which the broker passes each new image.
"""

import hashlib
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from ottla.metadata.configs.alteration import BROKER, GROUP
from ottla.metadata.image import BrokerImage, Image, TopicImage

_NOTHING: Final = Image(0, "", -1, MappingProxyType({}), MappingProxyType({}), MappingProxyType({}))


class Topology:
    """Metadata for the coordinators; `node_id` is this broker's."""

    __slots__ = ("_hashes", "image", "newest_topic", "node_id")

    def __init__(self, node_id: int = -1, image: Image = _NOTHING) -> None:
        self.node_id = node_id
        self.image = image
        self.newest_topic = image.revision
        """The revision of the last image with a new topic."""
        self._hashes: dict[str, tuple[TopicImage, Mapping[int, BrokerImage], bytes]] = {}

    def advance(self, image: Image, differing: Iterable[str] | None = None) -> set[str]:
        """Switch to the next image. Returns the names of topics that were created, changed or deleted.

        differing  these names, if they are known; a topic with another leader or ISR only is not among them. None: compare
        """
        before, after = self.image.topics, image.topics
        self.image = image
        if differing is None:
            names = before.keys() | after.keys()
            differing = {name for name in names if before.get(name) is not after.get(name)}
        changed = set(differing)
        if any(name in after and name not in before for name in changed):
            self.newest_topic = image.revision
        for name in changed:
            self._hashes.pop(name, None)
        return changed

    def integer(self, group_id: str, group_config: str, broker_config: str, otherwise: int) -> int:
        """Return a config in ms: the group's own value, else the operator's value for the brokers, else `otherwise`."""
        configs = self.image.configs
        if not configs:
            return otherwise
        own = self.image.configs_of(GROUP, group_id)
        if group_config in own:
            return int(own[group_config])
        for name in (str(self.node_id), ""):
            texts = self.image.configs_of(BROKER, name)
            if broker_config in texts:
                return int(texts[broker_config])
        return otherwise

    def topic_ids(self, names: Iterable[str]) -> frozenset[bytes]:
        """Return the ids of the topics of `names` that exist."""
        topics = self.image.topics
        return frozenset(topics[name].id for name in names if name in topics)

    def metadata_hash(self, names: Iterable[str]) -> int:
        """Return a hash (int64) that changes with the topics, their partitions and their racks; 0 for no topics.

        Kafka (KIP-1101) uses another hash function. Hashes are only compared for equality, so that a group which moves between
        Kafka and Ottla rebalances once.
        """
        topics = self.image.topics
        known = sorted(name for name in names if name in topics)
        if not known:
            return 0
        digest = hashlib.blake2b(digest_size=8)
        for name in known:
            digest.update(self._topic_hash(topics[name]))
        return int.from_bytes(digest.digest(), "big", signed=True)

    def _topic_hash(self, topic: TopicImage) -> bytes:
        brokers = self.image.brokers
        kept = self._hashes.get(topic.name)
        if kept is not None and kept[0] is topic and kept[1] is brokers:
            return kept[2]
        digest = hashlib.blake2b(digest_size=8)
        digest.update(topic.id + topic.name.encode() + len(topic.partitions).to_bytes(4, "big"))
        for number, partition in enumerate(topic.partitions):
            racks = sorted(
                rack for node in partition.replicas if node in brokers and (rack := brokers[node].rack) is not None
            )
            if racks:
                digest.update(number.to_bytes(4, "big") + "\0".join(racks).encode())
        self._hashes[topic.name] = topic, brokers, digest.digest()
        return digest.digest()
