"""Placement of the replicas of new partitions, as Kafka's StripedReplicaPlacer does it.

Leaders go round the racks, and within a rack round its brokers; the other replicas of a partition are in the racks after the
leader's, so that the loss of a rack costs as few replicas as possible. Active brokers come before those that are fenced or
stop, and a leader is always active. After as many partitions as there are active brokers all lists are shuffled, so that the
same pairs of brokers do not share every partition.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Final, TypeVar

from ottla.environment import Random
from ottla.metadata.image import NO_LEADER, BrokerImage, Image, PartitionImage

_NONE_LEFT: Final = -1
T = TypeVar("T")


class _Brokers:
    """Brokers of one rack, from which each placement takes them in another order."""

    def __init__(self, nodes: Iterable[int]) -> None:
        self._nodes = sorted(nodes)
        self._placement = 0
        self._taken = 0
        self._offset = 0

    def shuffle(self, random: Random) -> None:
        """Shuffle the brokers, and begin with the first placement."""
        _shuffle(self._nodes, random)
        self._placement = self._taken = self._offset = 0

    def take(self, placement: int) -> int:
        """Return the next broker for a placement, _NONE_LEFT after the last one."""
        if not self._nodes:
            return _NONE_LEFT
        if placement != self._placement:
            self._placement = placement
            self._taken = 0
            self._offset = (self._offset + 1) % len(self._nodes)
        if self._taken == len(self._nodes):
            return _NONE_LEFT
        node = self._nodes[(self._taken + self._offset) % len(self._nodes)]
        self._taken += 1
        return node


class _Rack:
    def __init__(self, live: Iterable[int], fenced: Iterable[int]) -> None:
        self.live = _Brokers(live)
        self.fenced = _Brokers(fenced)

    def take(self, placement: int) -> int:
        """Return the next broker for a placement: live ones first."""
        node = self.live.take(placement)
        return node if node != _NONE_LEFT else self.fenced.take(placement)


class ReplicaPlacer:
    """Places partitions on the registered brokers of an image but for cordoned ones; at least one of the others is live and
    does not stop."""

    def __init__(self, image: Image, random: Random, cordoned: frozenset[int] = frozenset()) -> None:
        self._random = random
        self._live = image.active - cordoned
        by_rack: dict[str, list[int]] = {}
        for node in image.registered.values():
            if node.node_id in cordoned:
                continue
            by_rack.setdefault(_rack_name(node), []).append(node.node_id)
        self._racks = [
            _Rack((node for node in nodes if node in self._live), (node for node in nodes if node not in self._live))
            for _, nodes in sorted(by_rack.items())
        ]
        self._placement = 0
        self._first_rack = 0
        self._placed: dict[tuple[int, ...], PartitionImage] = {}
        """Partitions with the same replicas share one object."""
        self._shuffle()

    def _shuffle(self) -> None:
        _shuffle(self._racks, self._random)
        for rack in self._racks:
            rack.live.shuffle(self._random)
            rack.fenced.shuffle(self._random)
        self._placement = 0

    def place(self, replication_factor: int) -> PartitionImage:
        """Place the replicas of one partition; `replication_factor` is at most the number of registered brokers."""
        if self._placement == len(self._live):
            self._shuffle()
        self._first_rack %= len(self._racks)
        leaders_rack = self._first_rack
        while (leader := self._racks[leaders_rack].live.take(self._placement)) == _NONE_LEFT:
            leaders_rack = (leaders_rack + 1) % len(self._racks)
        replicas = [leader]
        rack = self._first_rack
        while len(replicas) < replication_factor:
            if rack == leaders_rack:
                leaders_rack = -1  # passed over in the first round only
            elif (node := self._racks[rack].take(self._placement)) != _NONE_LEFT:
                replicas.append(node)
            rack = (rack + 1) % len(self._racks)
        self._placement += 1
        self._first_rack += 1
        key = tuple(replicas)
        placed = self._placed.get(key)
        if placed is None:
            placed = self._placed[key] = assigned(replicas, self._live)
        return placed


def assigned(replicas: Sequence[int], live: Collection[int]) -> PartitionImage:
    """Return a new partition with these replicas: the live ones are in sync, and the first of them leads."""
    isr = tuple(node for node in replicas if node in live)
    return PartitionImage(tuple(replicas), isr, isr[0] if isr else NO_LEADER, 0)


def _rack_name(node: BrokerImage) -> str:
    return node.rack or ""


def _shuffle(items: list[T], random: Random) -> None:
    for last in range(len(items) - 1, 0, -1):
        other = random.below(last + 1)
        items[last], items[other] = items[other], items[last]
