"""Reassignments in simulated runs: an administrator that moves the partitions which others use, and the checks of them."""

from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Final

from ottla.client.errors import KafkaError, RequestTimedOut
from ottla.client.topics import TopicPartition
from ottla.metadata.changes.reassignment import is_reassigned, original_of
from ottla.metadata.image import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC, Image, PartitionImage
from ottla.protocol.errors import (
    INVALID_REPLICA_ASSIGNMENT,
    NO_REASSIGNMENT_IN_PROGRESS,
    REQUEST_TIMED_OUT,
    UNKNOWN_TOPIC_OR_PARTITION,
)

from .applications import HASTY, TOPICS, AdminApplication
from .brokers import SimulatedBroker
from .checks import Violation

_PLACES: Final = (
    *(TopicPartition(name, index) for name, count in TOPICS.items() for index in range(count)),
    *(TopicPartition(name, index) for name in (OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC) for index in range(2)),
    TopicPartition(SHARE_STATE_TOPIC, 0),
)
_ERRORS: Final = (UNKNOWN_TOPIC_OR_PARTITION, REQUEST_TIMED_OUT)
_ERRORS_OF_CANCELLING: Final = (*_ERRORS, NO_REASSIGNMENT_IN_PROGRESS, INVALID_REPLICA_ASSIGNMENT)
_CANCELLED: Final = 0.15
_SEVERAL: Final = 0.3
_WEIGHTS: Final = (2, 6, 3, 1)
"""Weights of one, two, three or four replicas for a partition."""


class Reassigner(AdminApplication):
    """Admin client that moves partitions of the workload to other brokers, and changes the number of their replicas."""

    async def run(self) -> None:
        process = self.process
        nodes = [int(name.removeprefix("b")) for name in process.cluster.brokers]
        while not process.is_stopping:
            count = process.chance.randint(2, 4) if process.chance.random() < _SEVERAL else 1
            moves = {place: self._target(place, nodes) for place in process.chance.sample(_PLACES, count)}
            process.tell(f"reassigns {', '.join(f'{place} to {replicas}' for place, replicas in moves.items())}")
            try:
                results = await self._admin.alter_partition_reassignments(moves, timeout=10)
                for place, error in results.errors.items():
                    if not isinstance(error, RequestTimedOut) and error.code not in (
                        _ERRORS_OF_CANCELLING if moves[place] is None else _ERRORS
                    ):
                        process.unexpected(f"reassign {place} to {moves[place]}", error)
                for _ in results.successes:
                    process.world.count("reassignments requested")
                await self._admin.list_partition_reassignments(timeout=10)
                process.step()
            except KafkaError as error:
                process.note_error("reassign", error)
            await self._core.scheduler.sleep(process.chance.randint(200, 3_000))

    def _target(self, place: TopicPartition, nodes: Sequence[int]) -> list[int] | None:
        """Return the new replicas, the preferred leader first, mostly two; None to cancel.

        A power loss may take the records of a single replica: only the topic from which they may be lost anyway gets one.
        """
        chance = self.process.chance
        if chance.random() < _CANCELLED:
            return None
        least = min(1 if place.topic == HASTY else 2, len(nodes))
        count = chance.choices(range(least, len(nodes) + 1), _WEIGHTS[least - 1 : len(nodes)])[0]
        return chance.sample(nodes, count)


def completed_early(old: PartitionImage, new: PartitionImage, *, allows_unclean: bool) -> bool:
    """Return True if replicas were removed before all of the others were in sync.

    The original replicas need only one that is in sync: they have been assigned all the time. An unclean election needs none.
    """
    if set(old.replicas) <= set(new.replicas):
        return False
    in_sync = [node for node in new.replicas if node in old.isr]
    if is_reassigned(old) and set(new.replicas) == set(original_of(old)):
        return not in_sync and not allows_unclean
    return len(in_sync) < len(new.replicas) or not set(new.replicas) <= set(new.isr)


def reassignments_end(image: Image) -> list[Violation]:
    """At rest no reassignment is in progress."""
    return [
        Violation("reassignments end", f"{topic.name}-{index} is still {partition}", (f"{topic.name}-{index}",))
        for topic in image.topics.values()
        for index, partition in enumerate(topic.partitions)
        if is_reassigned(partition)
    ]


def logs_of_replicas(brokers: Iterable[SimulatedBroker], image: Image) -> list[Violation]:
    """At rest a broker has a log for each of its replicas, and for no other partition of a topic that exists."""
    violations = []
    for broker in brokers:
        names = {PurePath(name).name for one in broker.directories for name in broker.disk.store.names(one)}
        for topic in image.topics.values():
            for index, partition in enumerate(topic.partitions):
                name = f"{topic.name}-{index}"
                if (name in names) != (broker.node_id in partition.replicas):
                    text = f"{broker.name} {'has' if name in names else 'lacks'} a log of {name}, {partition.replicas}"
                    violations.append(Violation("logs of replicas", text, (broker.name, name)))
    return violations
