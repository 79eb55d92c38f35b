"""The broker that coordinates a key: leader of the key's partition of an internal topic."""

from collections.abc import Callable

from ottla.coordinators.partitions import partition_of
from ottla.metadata.image import NO_LEADER, Image


class CoordinatorRouting:
    """Finds coordinators in the metadata.

    image  returns the current image
    """

    def __init__(self, node_id: int, image: Callable[[], Image]) -> None:
        self.node_id = node_id
        self._image = image

    def coordinator(self, topic: str, key: str) -> int:
        """Return the node id of the live coordinator of `key` in an internal topic; NO_LEADER if there is none."""
        known = self._image().topics.get(topic)
        return NO_LEADER if known is None else self.leader(topic, partition_of(key, len(known.partitions)))

    def leader(self, topic: str, index: int) -> int:
        """Return the node id of the live leader of a partition; NO_LEADER if there is none."""
        image = self._image()
        known = image.topics.get(topic)
        if known is None or not 0 <= index < len(known.partitions):
            return NO_LEADER
        leader = known.partitions[index].leader
        return leader if leader in image.brokers else NO_LEADER

    def exists(self, topic: str, index: int) -> bool:
        """Return True if the metadata of this broker has a partition."""
        known = self._image().topics.get(topic)
        return known is not None and 0 <= index < len(known.partitions)

    def is_remote(self, node_id: int) -> bool:
        """Return True for another live broker."""
        return node_id not in (NO_LEADER, self.node_id)
