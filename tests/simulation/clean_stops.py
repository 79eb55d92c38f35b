"""Observation of clean stops: what a broker leaves behind when it removes its own sign of life."""

from collections.abc import Iterable, Sequence
from typing import Final

from ottla.metadata.image import Delta, Image, TopicImage

from .brokers import SimulatedBroker
from .checks import Violation
from .world import MS_US, World

_EXPECTED: Final = (
    "TransactionAborted: the transaction was aborted before",
    "acknowledge: StaleMetadata: ",
    "acknowledge: ConnectionLost: ",
)
_LIMIT_US: Final = 19_500 * MS_US
"""A broker that could not hand over in 20 s, by a clock that may be 20,000 ppm too fast, ends nevertheless."""


class CleanStops:
    """Observer of the clean stops of one cluster.

    A broker that is not the last one ends when it leads nothing, is in the ISR of no partition that has other members, and
    every other live broker has applied the last of its moves.

    violations  of these rules
    """

    def __init__(self, world: World, brokers: Sequence[SimulatedBroker]) -> None:
        self.violations: list[Violation] = []
        self._world = world
        self._brokers = {broker.node_id: broker for broker in brokers}
        self._image: Image | None = None
        self._last_moves: dict[int, int] = {}
        """Revision at which a partition was last taken from a broker, by node id."""
        self._last_change = 0
        """Revision of the last change of topics or partitions."""

    def applied(self, delta: Delta) -> None:
        """Look at the difference that a new revision of the store makes."""
        self._image = delta.image
        if delta.changed or delta.moved or delta.deleted:
            self._last_change = delta.image.revision
        for topic, indexes in _touched(delta):
            known = delta.before.topics_by_id.get(topic.id)
            for index in indexes:
                if known is None or index >= len(known.partitions):
                    continue
                old, new = known.partitions[index], topic.partitions[index]
                # The last member of the ISR of a partition without a leader holds nothing: an unclean election takes nothing
                # from it.
                holders = {old.leader, *old.isr} if len(old.isr) > 1 else {old.leader}
                for node in holders - {new.leader, *new.isr}:
                    self._last_moves[node] = delta.image.revision
                if old.leader != new.leader:
                    self._last_moves[old.leader] = delta.image.revision

    def left(self, broker: SimulatedBroker, after_us: int) -> None:
        """Check a broker that removes its sign of life, `after_us` after its stop began."""
        server = broker.server
        if self._image is None or server is None or after_us >= _LIMIT_US:
            return
        own = server.broker.image
        # The stop is not handed over without a session, and without a broker that could take over.
        others = [node for node in own.live if node != broker.node_id]
        if broker.node_id not in own.brokers or not any(own.is_active(node) for node in others):
            return
        self._world.count("clean stops checked")
        held = _held(own, broker.node_id)
        if own.revision >= self._last_change:  # otherwise others have changed what this broker cannot know yet
            held += _held(self._image, broker.node_id)
        if held:
            text = f"{broker.name} leads or replicates {', '.join(dict.fromkeys(held))} when it ends"
            self._add_violation("stopped without partitions", text, broker.name)
        last = self._last_moves.get(broker.node_id, 0)
        if last < own.registered[broker.node_id].epoch:
            return  # moves away from an earlier process, which was killed
        for node in others:
            other = self._brokers[node]
            # A broker that is starting loads what is written by then.
            if not other.is_serving or other.server is None or node not in own.brokers:
                continue
            if other.server.broker.metadata.applied < last:
                text = (
                    f"{broker.name} ends before {other.name} has applied its last move: {last}, and not "
                    f"{other.server.broker.metadata.applied}"
                )
                self._add_violation("moves known", text, broker.name, other.name)

    def _add_violation(self, check: str, text: str, *about: str) -> None:
        self._world.tell("checks", f"{check}: {text}")
        self.violations.append(Violation(check, text, about, self._world.now_us))


def _touched(delta: Delta) -> Iterable[tuple[TopicImage, Iterable[int]]]:
    for topic in delta.changed:
        yield topic, range(len(topic.partitions))
    for name, indexes in delta.moved.items():
        yield delta.image.topics[name], indexes


def _held(image: Image, node: int) -> list[str]:
    """Return the partitions that a broker leads, or is in the ISR of beside others."""
    return [
        f"{topic.name}-{index}"
        for topic in image.topics.values()
        for index, partition in enumerate(topic.partitions)
        if partition.leader == node or (node in partition.isr and len(partition.isr) > 1)
    ]


def errors_of_stops(errors: Iterable[tuple[int, str, str]]) -> list[Violation]:
    """In a run whose only faults are clean stops, one at a time, no client sees an error; rows are (us, client, text).

    Records of transactions that the application aborts fail, and so do acknowledgements of a share group at a broker that has
    ceased to lead the partition, or has ended since: their records are delivered again, as with Apache Kafka.
    """
    return [
        Violation("stops unnoticed", f"{client}: {text}", (client,), at_us)
        for at_us, client, text in errors
        if not any(expected in text for expected in _EXPECTED)
    ]
