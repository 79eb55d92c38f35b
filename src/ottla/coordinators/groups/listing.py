"""Administration of groups: describe, list, delete."""
# ruff: noqa: ARG001, ARG005 - operations, refusals and timers have one signature each, whatever they need of it

from collections.abc import Iterator

from ottla.coordinators.groups.classic.group import CONSUMER, ClassicGroup, State
from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.coordinators.groups.consumer.member import ConsumerMember, Owned, Target
from ottla.coordinators.groups.records import group_tombstone
from ottla.coordinators.groups.share import records as share_records
from ottla.coordinators.groups.share.group import SHARE, ShareMember
from ottla.coordinators.groups.state import Groups
from ottla.coordinators.groups.streams.group import NOT_READY, STREAMS
from ottla.coordinators.offsets import all_offset_tombstones
from ottla.coordinators.runtime import Millis, Result, operation
from ottla.protocol import errors
from ottla.protocol.messages import share_group_describe
from ottla.protocol.messages.consumer_group_describe import (
    Assignment,
    Member,
    TopicPartitions,
)
from ottla.protocol.messages.consumer_group_describe import (
    DescribedGroup as DescribedConsumerGroup,
)
from ottla.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from ottla.protocol.messages.list_groups import ListedGroup
from ottla.protocol.messages.share_group_describe import DescribedGroup as DescribedShareGroup

CLASSIC = "classic"
"""The type of a classic group as ListGroups spells it (KIP-848)."""


class GroupName:
    """Query or deletion of one group."""

    __slots__ = ("group_id",)

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id


def _refuse_describe(request: GroupName, code: int) -> DescribedGroup:
    return DescribedGroup(group_id=request.group_id, error_code=code)


@operation(_refuse_describe)
def describe(groups: Groups, request: GroupName, now: Millis) -> Result:
    """Describe a group: its state and members; their metadata only when it is stable.

    An unknown group is Dead, with GROUP_ID_NOT_FOUND (left out in versions before 6); so are groups of other types, which
    `describe_consumer`, `describe_share` and `describe_streams` describe.
    """
    group = groups.get(request.group_id)
    if group is None:
        is_other = groups.type_of(request.group_id) is not None
        unknown = DescribedGroup(
            group_id=request.group_id,
            group_state="Dead",
            error_code=errors.GROUP_ID_NOT_FOUND,
            error_message=f"Group {request.group_id} {'is not a classic group' if is_other else 'not found'}.",
        )
        return Result(answers=((request, unknown),))
    return Result(answers=((request, _describe_classic(group)),))


def _describe_classic(group: ClassicGroup) -> DescribedGroup:
    protocol = (group.protocol or "") if group.state is State.STABLE else None
    members = [
        DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=b"" if protocol is None else member.metadata(protocol),
            member_assignment=member.assignment,
        )
        for member in group.members.values()
    ]
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol or "",
        members=members,
    )


def _refuse_describe_consumer(request: GroupName, code: int) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(group_id=request.group_id, error_code=code)


@operation(_refuse_describe_consumer)
def describe_consumer(groups: Groups, request: GroupName, now: Millis) -> Result:
    """Describe a consumer group: its epochs, and the current and target assignment of each member."""
    group_id = request.group_id
    group = groups.consumer_groups.get(group_id)
    if group is None:
        is_other = groups.type_of(group_id) is not None
        why = "is not a consumer group" if is_other else "not found"
        unknown = DescribedConsumerGroup(
            group_id=group_id, error_code=errors.GROUP_ID_NOT_FOUND, error_message=f"Group {group_id} {why}."
        )
        return Result(answers=((request, unknown),))
    descriptions = {member_id: member.description for member_id, member in group.members.items()}
    described = DescribedConsumerGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.preferred_assignor(groups.settings.consumer.assignors[0], descriptions),
        members=[_describe_member(groups, group, member) for member in group.members.values()],
    )
    return Result(answers=((request, described),))


def _describe_member(groups: Groups, group: ConsumerGroup, member: ConsumerMember) -> Member:
    description = member.description
    return Member(
        member_id=member.member_id,
        instance_id=description.instance_id,
        rack_id=description.rack_id,
        member_epoch=member.current.epoch,
        client_id=description.client_id,
        client_host=description.client_host,
        subscribed_topic_names=sorted(description.topics),
        subscribed_topic_regex=description.regex,
        assignment=_to_assignment(groups, _partitions_of(member)),
        target_assignment=_to_assignment(groups, group.targets.get(member.member_id, {})),
        member_type=0 if member.is_classic else 1,
    )


def _partitions_of(member: ConsumerMember) -> Owned:
    """Return the partitions that a member has: those assigned to it, and those that it has not given back yet."""
    assigned, revoking = member.current.assigned, member.current.revoking
    if not revoking:
        return assigned
    return {
        topic_id: {**assigned.get(topic_id, {}), **revoking.get(topic_id, {})}
        for topic_id in dict.fromkeys([*assigned, *revoking])
    }


def _to_assignment(groups: Groups, partitions: Owned | Target) -> Assignment:
    """Return partitions with the names of their topics; deleted topics are left out."""
    topics = groups.topology.image.topics_by_id
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=topics[topic_id].name, partitions=sorted(numbers))
            for topic_id, numbers in partitions.items()
            if topic_id in topics
        ]
    )


def _refuse_describe_share(request: GroupName, code: int) -> DescribedShareGroup:
    return DescribedShareGroup(group_id=request.group_id, error_code=code, error_message=errors.error(code).message)


@operation(_refuse_describe_share)
def describe_share(groups: Groups, request: GroupName, now: Millis) -> Result:
    """Describe a share group: its epochs, and the assignment of each member (KIP-932)."""
    group_id = request.group_id
    group = groups.share_groups.get(group_id)
    if group is None:
        is_other = groups.type_of(group_id) is not None
        why = "is not a share group" if is_other else "not found"
        unknown = DescribedShareGroup(
            group_id=group_id, error_code=errors.GROUP_ID_NOT_FOUND, error_message=f"Group {group_id} {why}."
        )
        return Result(answers=((request, unknown),))
    described = DescribedShareGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name="simple",
        members=[_describe_share_member(groups, member) for member in group.members.values()],
    )
    return Result(answers=((request, described),))


def _describe_share_member(groups: Groups, member: ShareMember) -> share_group_describe.Member:
    description, topics = member.description, groups.topology.image.topics_by_id
    return share_group_describe.Member(
        member_id=member.member_id,
        rack_id=description.rack_id,
        member_epoch=member.epoch,
        client_id=description.client_id,
        client_host=description.client_host,
        subscribed_topic_names=sorted(description.topics),
        assignment=share_group_describe.Assignment(
            topic_partitions=[
                share_group_describe.TopicPartitions(
                    topic_id=topic_id, topic_name=topics[topic_id].name, partitions=sorted(numbers)
                )
                for topic_id, numbers in member.assigned.items()
                if topic_id in topics
            ]
        ),
    )


def list_groups(groups: Groups, states: frozenset[str], types: frozenset[str]) -> Iterator[ListedGroup]:
    """Yield the groups of a partition. `states` and `types` are names in lower case; an empty set matches all."""
    if not types or CLASSIC in types:
        for group in groups.groups.values():
            if not states or group.state.value.lower() in states:
                yield ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type or "",
                    group_state=group.state.value,
                    group_type=CLASSIC,
                )
    if not types or CONSUMER in types:
        for consumer_group in groups.consumer_groups.values():
            state = consumer_group.state
            if not states or state.lower() in states:
                yield ListedGroup(
                    group_id=consumer_group.group_id, protocol_type=CONSUMER, group_state=state, group_type=CONSUMER
                )
    if not types or SHARE in types:
        for share_group in groups.share_groups.values():
            state = share_group.state
            if not states or state.lower() in states:
                yield ListedGroup(
                    group_id=share_group.group_id, protocol_type=SHARE, group_state=state, group_type=SHARE
                )
    if not types or STREAMS in types:
        for streams_group in groups.streams_groups.values():
            state = streams_group.state
            if not states or ("not_ready" if state == NOT_READY else state.lower()) in states:
                yield ListedGroup(
                    group_id=streams_group.group_id, protocol_type=STREAMS, group_state=state, group_type=STREAMS
                )


@operation(lambda request, code: code)
def delete(groups: Groups, request: GroupName, now: Millis) -> Result:
    """Delete a group without members and all its offsets. The answer is an error code."""
    group_id = request.group_id
    if group_id in groups.share_groups:
        empty = groups.share_groups[group_id].is_empty
        answer = request, errors.NONE if empty else errors.NON_EMPTY_GROUP
        return Result(share_records.group_tombstones(group_id) if empty else (), (answer,))
    group = groups.groups.get(group_id) or groups.consumer_groups.get(group_id) or groups.streams_groups.get(group_id)
    if group is None:
        return Result(answers=((request, errors.GROUP_ID_NOT_FOUND),))
    if not group.is_empty:
        return Result(answers=((request, errors.NON_EMPTY_GROUP),))
    ends = [group_tombstone(group_id)] if isinstance(group, ClassicGroup) else group.tombstones()
    return Result([*all_offset_tombstones(groups, group_id), *ends], ((request, errors.NONE),))
