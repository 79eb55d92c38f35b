"""Description of a streams group for StreamsGroupDescribe: its epochs, topology, members and their tasks."""
# ruff: noqa: ARG001 - operations have one signature, whatever they need of it

from typing import NamedTuple

from ottla.coordinators.groups.listing import GroupName
from ottla.coordinators.groups.state import Groups
from ottla.coordinators.groups.streams.group import NO_EPOCH, StreamsGroup
from ottla.coordinators.groups.streams.member import Offsets, StreamsMember
from ottla.coordinators.groups.streams.subtopologies import GroupSubtopology, InternalTopic
from ottla.coordinators.groups.streams.tasks import Tasks, TaskSet, in_order
from ottla.coordinators.runtime import Millis, Result, operation
from ottla.protocol import errors
from ottla.protocol.messages.streams_group_describe import (
    Assignment,
    DescribedGroup,
    Endpoint,
    KeyValue,
    Member,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
    Topology,
)


class Description(NamedTuple):
    """Description of a group, and the epoch of its topology's stored description, negative without one."""

    group: DescribedGroup
    stored_epoch: int = NO_EPOCH


def _refuse(request: GroupName, code: int) -> Description:
    return Description(DescribedGroup(group_id=request.group_id, error_code=code))


@operation(_refuse)
def describe_streams(groups: Groups, request: GroupName, now: Millis) -> Result:
    """Describe a streams group (KIP-1071)."""
    group_id = request.group_id
    group = groups.streams_groups.get(group_id)
    if group is None:
        why = "is not a streams group" if groups.type_of(group_id) is not None else "not found"
        unknown = DescribedGroup(
            group_id=group_id, error_code=errors.GROUP_ID_NOT_FOUND, error_message=f"Group {group_id} {why}."
        )
        return Result(answers=((request, Description(unknown)),))
    described = DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        topology=_topology(group),
        members=[_member(group, member) for member in group.members.values()],
        assignor_name=groups.streams_assignor(group_id)[0],
    )
    return Result(answers=((request, Description(described, group.stored_description)),))


def _topology(group: StreamsGroup) -> Topology | None:
    if group.topology is None:
        return None
    sizes = {} if group.sized is None else dict(group.sized.sizes)
    return Topology(
        epoch=group.topology.epoch,
        subtopologies=[_subtopology(subtopology, sizes) for subtopology in group.topology.subtopologies],
    )


def _subtopology(subtopology: GroupSubtopology, sizes: dict[str, int]) -> Subtopology:
    return Subtopology(
        subtopology_id=subtopology.subtopology_id,
        source_topics=list(subtopology.sources),
        repartition_sink_topics=list(subtopology.sinks),
        state_changelog_topics=[_topic(topic, sizes) for topic in subtopology.changelogs],
        repartition_source_topics=[_topic(topic, sizes) for topic in subtopology.repartition_sources],
    )


def _topic(topic: InternalTopic, sizes: dict[str, int]) -> TopicInfo:
    return TopicInfo(
        name=topic.name,
        partitions=sizes.get(topic.name, topic.partitions),
        replication_factor=topic.replication_factor,
        topic_configs=[KeyValue(key=key, value=text) for key, text in topic.configs],
    )


def _member(group: StreamsGroup, member: StreamsMember) -> Member:
    description = member.description
    endpoint = description.endpoint
    return Member(
        member_id=member.member_id,
        member_epoch=member.current.epoch,
        instance_id=description.instance_id,
        rack_id=description.rack_id,
        client_id=description.client_id,
        client_host=description.client_host,
        topology_epoch=description.topology_epoch,
        process_id=description.process_id,
        user_endpoint=None if endpoint is None else Endpoint(host=endpoint[0], port=endpoint[1]),
        client_tags=[KeyValue(key=key, value=text) for key, text in description.client_tags],
        task_offsets=_offsets(member.offsets),
        task_end_offsets=_offsets(member.end_offsets),
        assignment=_assignment(member.current.assigned),
        target_assignment=_assignment(group.targets.get(member.member_id, TaskSet())),
    )


def _offsets(offsets: Offsets) -> list[TaskOffset]:
    return [
        TaskOffset(subtopology_id=subtopology_id, partition=partition, offset=offset)
        for subtopology_id, partition, offset in offsets
    ]


def _assignment(tasks: TaskSet) -> Assignment:
    return Assignment(
        active_tasks=_rows(tasks.active), standby_tasks=_rows(tasks.standby), warmup_tasks=_rows(tasks.warmup)
    )


def _rows(tasks: Tasks) -> list[TaskIds]:
    return [TaskIds(subtopology_id=name, partitions=partitions) for name, partitions in in_order(tasks)]
