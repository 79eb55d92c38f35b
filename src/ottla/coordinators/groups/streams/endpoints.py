"""Endpoints of the members of a streams group, for interactive queries: which host has the state of which partitions.

The table has an epoch, in memory only. A member gets the table when its epoch differs from the group's.
"""

from collections.abc import Iterable, Mapping

from ottla.coordinators.groups.streams.member import Description
from ottla.coordinators.groups.streams.subtopologies import GroupTopology
from ottla.coordinators.groups.streams.tasks import Tasks, TaskSet, in_order
from ottla.protocol.messages.streams_group_heartbeat import Endpoint, EndpointToPartitions, TopicPartition


def endpoint_table(
    members: Iterable[tuple[Description, TaskSet]], topology: GroupTopology | None, sizes: Mapping[str, int]
) -> list[EndpointToPartitions]:
    """Return one row for each member with an endpoint.

    sizes  number of partitions of the topics that tasks read
    """
    return [
        EndpointToPartitions(
            user_endpoint=Endpoint(host=description.endpoint[0], port=description.endpoint[1]),
            active_partitions=_partitions(tasks.active, topology, sizes),
            standby_partitions=_partitions(tasks.standby, topology, sizes),
        )
        for description, tasks in members
        if description.endpoint is not None
    ]


def _partitions(tasks: Tasks, topology: GroupTopology | None, sizes: Mapping[str, int]) -> list[TopicPartition]:
    """Return the partitions that tasks read: a task reads the partition with its number of each input that has one."""
    by_topic: dict[str, set[int]] = {}
    inputs = {} if topology is None else {row.subtopology_id: list(row.inputs) for row in topology.subtopologies}
    for subtopology_id, numbers in in_order(tasks):
        if subtopology_id in inputs:
            for name in inputs[subtopology_id]:
                by_topic.setdefault(name, set()).update(number for number in numbers if number < sizes.get(name, 0))
    return [
        TopicPartition(topic=name, partitions=sorted(numbers)) for name, numbers in sorted(by_topic.items()) if numbers
    ]
