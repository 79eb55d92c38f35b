"""Admin requests about streams groups (KIP-1071): describe groups. Their offsets are those of consumer groups."""

from collections.abc import Iterable
from typing import NamedTuple

from ottla.client.admin.requests import Requests
from ottla.client.admin.results import Results
from ottla.client.coordinator import GROUP
from ottla.protocol.messages.streams_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
)

StreamsTask = tuple[str, int]
"""Subtopology id and partition."""


class StreamsTasks(NamedTuple):
    """Tasks of a member by role, in ascending order."""

    active: tuple[StreamsTask, ...]
    standby: tuple[StreamsTask, ...]
    warmup: tuple[StreamsTask, ...]


class StreamsInternalTopic(NamedTuple):
    """Repartition or changelog topic of a topology; `partitions` is 0 while the broker has not computed it."""

    name: str
    partitions: int
    replication_factor: int
    configs: dict[str, str]


class StreamsSubtopology(NamedTuple):
    """Subtopology: topics that it reads, repartition topics that it writes and reads, changelogs of its state."""

    subtopology_id: str
    source_topics: tuple[str, ...]
    repartition_sink_topics: tuple[str, ...]
    repartition_source_topics: tuple[StreamsInternalTopic, ...]
    state_changelog_topics: tuple[StreamsInternalTopic, ...]


class StreamsGroupMember(NamedTuple):
    """Member of a streams group, one thread; `host` is the address of the client, `user_endpoint` (host, port) the
    application's, for interactive queries. Offsets are sums of changelog offsets by task."""

    member_id: str
    client_id: str
    host: str
    member_epoch: int
    group_instance_id: str | None
    rack_id: str | None
    process_id: str
    topology_epoch: int
    user_endpoint: tuple[str, int] | None
    client_tags: dict[str, str]
    assignment: StreamsTasks
    target_assignment: StreamsTasks
    task_offsets: dict[StreamsTask, int]
    task_end_offsets: dict[StreamsTask, int]


class StreamsGroupDescription(NamedTuple):
    """Streams group; `coordinator` is (node, host, port)."""

    group_id: str
    state: str
    group_epoch: int
    assignment_epoch: int
    topology_epoch: int
    subtopologies: tuple[StreamsSubtopology, ...]
    members: tuple[StreamsGroupMember, ...]
    coordinator: tuple[int, str, int]


class StreamsGroups(Requests):
    """Requests about streams groups."""

    async def describe_streams_groups(
        self, groups: Iterable[str], *, timeout: float | None = None
    ) -> Results[str, StreamsGroupDescription]:
        """Describe the state, topology and members of streams groups."""

        async def one(group_id: str) -> StreamsGroupDescription:
            def code_of(answer: StreamsGroupDescribeResponse) -> tuple[int, str | None]:
                return answer.groups[0].error_code, answer.groups[0].error_message

            request = StreamsGroupDescribeRequest(group_ids=[group_id])
            answer = await self.at_coordinator(group_id, request, timeout, code_of)
            node = await self.metadata.coordinator(GROUP, group_id)
            return _description_from(answer.groups[0], (node, *self.metadata.network.brokers[node]))

        return await self.for_each(groups, one)


def _description_from(group: DescribedGroup, coordinator: tuple[int, str, int]) -> StreamsGroupDescription:
    topology = group.topology
    return StreamsGroupDescription(
        group.group_id,
        group.group_state,
        group.group_epoch,
        group.assignment_epoch,
        -1 if topology is None else topology.epoch,
        () if topology is None else tuple(map(_subtopology, topology.subtopologies or ())),
        tuple(map(_member, group.members)),
        coordinator,
    )


def _subtopology(row: Subtopology) -> StreamsSubtopology:
    return StreamsSubtopology(
        row.subtopology_id,
        tuple(row.source_topics),
        tuple(row.repartition_sink_topics),
        tuple(map(_topic, row.repartition_source_topics)),
        tuple(map(_topic, row.state_changelog_topics)),
    )


def _topic(row: TopicInfo) -> StreamsInternalTopic:
    configs = {config.key: config.value for config in row.topic_configs}
    return StreamsInternalTopic(row.name, row.partitions, row.replication_factor, configs)


def _member(member: Member) -> StreamsGroupMember:
    endpoint = member.user_endpoint
    return StreamsGroupMember(
        member.member_id,
        member.client_id,
        member.client_host,
        member.member_epoch,
        member.instance_id,
        member.rack_id,
        member.process_id,
        member.topology_epoch,
        None if endpoint is None else (endpoint.host, endpoint.port),
        {tag.key: tag.value for tag in member.client_tags},
        _assignment(member.assignment),
        _assignment(member.target_assignment),
        _offsets(member.task_offsets),
        _offsets(member.task_end_offsets),
    )


def _assignment(row: Assignment) -> StreamsTasks:
    return StreamsTasks(_tasks(row.active_tasks), _tasks(row.standby_tasks), _tasks(row.warmup_tasks))


def _tasks(rows: Iterable[TaskIds]) -> tuple[StreamsTask, ...]:
    return tuple(sorted((row.subtopology_id, partition) for row in rows for partition in row.partitions))


def _offsets(rows: Iterable[TaskOffset]) -> dict[StreamsTask, int]:
    return {(row.subtopology_id, row.partition): row.offset for row in rows}
