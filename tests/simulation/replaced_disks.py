"""Disks that are replaced during a run, and the check that a replica whose log is gone is no leader before it is in sync again.

A disk is replaced while its broker is down: by an empty one, one of two log directories by an empty one, or all of it by an old
copy. Where the newest records were there only, the partition has no leader until the operator elects one uncleanly.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from ottla.metadata.image import NO_LEADER, Image, PartitionImage, TopicImage
from ottla.protocol.connection import ClientConnection, open_envelope
from ottla.protocol.context import RequestContext
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions

from .brokers import SimulatedBroker
from .world import World

CHECK: Final = "replaced disk"
_UNCLEAN: Final = 1
_VERSION: Final = 2
Place = tuple[str, int]
"""Topic id and index of a partition."""


class ReplacedDisks:
    """Replicas of one cluster whose logs are gone, or old, and have not been in sync since."""

    def __init__(self, world: World, brokers: Mapping[int, SimulatedBroker]) -> None:
        self._world = world
        self._brokers = brokers
        self._lost: dict[Place, dict[int, int]] = {}
        """Broker epoch at the time of the replacement, by node id."""

    def lost(self, place: Place) -> set[int]:
        """Return the replicas of a partition whose logs are gone."""
        return set(self._lost.get(place, ()))

    def may_replace(self, image: Image, node: int, unsound: Mapping[Place, set[int]]) -> bool:
        """Return True if another sound replica in sync, of a broker that runs, has what is on the disk of a node.

        unsound  replicas that have lost their page cache
        """
        for topic in image.topics.values():
            for index, partition in enumerate(topic.partitions):
                place = topic.id.hex(), index
                if node not in partition.replicas:
                    continue
                others = set(partition.isr) - {node} - self.lost(place) - unsound.get(place, set())
                if not any(self._brokers[other].is_serving and other in image.brokers for other in others):
                    return False
        return True

    def replace(self, image: Image, broker: SimulatedBroker, directory: Path | None = None) -> None:
        """Replace the disk of a broker that does not run, or only one of its log directories, by an empty one."""
        kept = [] if directory is None else [one for one in broker.directories if one != directory]
        names = {name for one in kept for name in broker.disk.store.names(one)}
        for one in broker.directories:
            if one not in kept:
                broker.disk.store.wipe(one)
        self._note(image, broker, names, is_whole=directory is None)

    def restore(self, image: Image, broker: SimulatedBroker, copy: object) -> None:
        """Replace the disk of a broker that does not run by an old copy."""
        broker.disk.store.restore(copy)
        self._note(image, broker, set(), is_whole=True)

    def _note(self, image: Image, broker: SimulatedBroker, kept: set[str], *, is_whole: bool) -> None:
        broker.was_replaced(is_whole=is_whole)
        registered = image.registered.get(broker.node_id)
        for topic in image.topics.values():
            for index, partition in enumerate(topic.partitions):
                if broker.node_id in partition.replicas and f"{topic.name}-{index}" not in kept:
                    epoch = -1 if registered is None else registered.epoch
                    self._lost.setdefault((topic.id.hex(), index), {})[broker.node_id] = epoch

    def changed(
        self, topic: TopicImage, index: int, old: PartitionImage, new: PartitionImage, image: Image
    ) -> str | None:
        """Look at a new state of a partition; return how it violates the check."""
        place = topic.id.hex(), index
        lost = self._lost.get(place)
        if not lost:
            return None
        violation = None
        leader = new.leader
        is_elected = leader != NO_LEADER and new.leader_epoch != old.leader_epoch and leader in lost
        if is_elected and self._is_back(leader, lost, image) and len(new.replicas) > 1:
            kept = [
                node for node in new.replicas if node not in lost and node not in old.offline and image.is_active(node)
            ]
            if kept or not new.is_recovering or old.last_known_leader == leader:
                violation = (
                    f"{topic.name}-{index}: node {leader} is elected after its disk was replaced: {old} -> {new}"
                )
        for node in list(lost):
            is_new = self._is_back(node, lost, image) and (
                (node in new.isr and node not in old.isr) or (is_elected and leader == node)
            )
            if is_new or node not in new.replicas:
                del lost[node]
        return violation

    @staticmethod
    def _is_back(node: int, lost: Mapping[int, int], image: Image) -> bool:
        """Return True if a broker has registered again since its disk was replaced."""
        registered = image.registered.get(node)
        return registered is not None and registered.epoch != lost[node]

    def became_live(self, node: int, image: Image) -> Iterable[str]:
        """Iterate over the partitions whose state still counts on a log that is gone, when its broker is live again."""
        for place, lost in self._lost.items():
            partition = image.partition(bytes.fromhex(place[0]), place[1])
            if partition is None or node not in lost or len(partition.replicas) == 1:
                continue
            if node in (partition.leader, *partition.isr, *partition.elr, partition.last_known_leader):
                name = image.topics_by_id[bytes.fromhex(place[0])].name
                yield f"{name}-{place[1]}: node {node} is live again with another disk, and not out of {partition}"

    def elect(self, image: Image) -> None:
        """Elect leaders uncleanly where the newest records are gone, as an operator does: of topics too that were created when
        the disk was replaced, and are in the metadata only.
        """
        leaderless: dict[str, list[int]] = {}
        for topic in image.topics.values():
            for index, partition in enumerate(topic.partitions):
                is_lost = (topic.id.hex(), index) in self._lost or partition.replaced
                has_last = partition.isr or partition.elr or partition.last_known_leader != NO_LEADER
                if is_lost and partition.leader == NO_LEADER and not has_last:
                    leaderless.setdefault(topic.name, []).append(index)
        broker = self._brokers.get(image.controller_id)
        if not leaderless or broker is None or not broker.is_serving or broker.host.life is None:
            return
        self._world.count("replaced disk: the operator elects leaders")
        topics = [TopicPartitions(topic=name, partitions=indexes) for name, indexes in leaderless.items()]
        request = ElectLeadersRequest(election_type=_UNCLEAN, topic_partitions=topics, timeout_ms=10_000)
        frame = b"".join(bytes(piece) for piece in ClientConnection("operator").request(request, _VERSION))[4:]
        server, life = broker.server, broker.host.life
        assert server is not None
        assert life is not None
        context = RequestContext(version=_VERSION, client_id="operator", client_host="/operator")
        life.run(lambda: _served(server.pipeline.serve(open_envelope(frame), context)))


def _served(response: object) -> None:
    """Leave a response alone: the next revision of the metadata shows what came of the request."""
    del response
