"""Consumer groups of both protocols: described, their offsets listed, moved and deleted, their members removed."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from ottla.client.admin.requests import Requests, by_topic, refusal
from ottla.client.admin.results import Results
from ottla.client.coordinator import GROUP
from ottla.client.errors import KafkaError, Permission
from ottla.client.groups import OffsetAndMetadata
from ottla.client.permissions import AclOperation, authorized_operations
from ottla.client.topics import TopicPartition
from ottla.coordinators.groups.classic.embedded import decode_assignment, decode_subscription
from ottla.net.connection import Link
from ottla.protocol.errors import GROUP_ID_NOT_FOUND, NONE, UNSUPPORTED_VERSION
from ottla.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from ottla.protocol.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from ottla.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from ottla.protocol.wire import PeerError

CLASSIC = "classic"
CONSUMER = "consumer"
_BY_NAME = 9
"""Newest version of OffsetFetch and OffsetCommit that identifies topics by name; later ones use ids (KIP-848)."""


class GroupMember(NamedTuple):
    """Member of a consumer group; `host` is the address of the client.

    member_epoch       None for a member of a classic group
    target_assignment  assignment that the member is to reach; None for a member of a classic group
    upgraded           whether a member of a KIP-848 group uses the new protocol; None if the broker does not return it
    subscription       topics subscribed by name; `subscription_regex` is the pattern of a subscription by pattern
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    member_epoch: int | None = None
    target_assignment: tuple[TopicPartition, ...] | None = None
    upgraded: bool | None = None
    rack_id: str | None = None
    subscription: frozenset[str] = frozenset()
    subscription_regex: str | None = None


class ConsumerGroupDescription(NamedTuple):
    """Consumer group; `coordinator` is (node, host, port).

    type             "classic" or "consumer" (KIP-848)
    protocol_type    "consumer"; "" for a group with offsets only; other values for groups of other applications
    assignor         assignor selected for the group, "" without members
    group_epoch      None for a classic group, likewise `assignment_epoch`
    authorized_operations  operations that this client is authorized for; None unless requested
    """

    group_id: str
    type: str
    state: str
    protocol_type: str
    assignor: str
    members: tuple[GroupMember, ...]
    coordinator: tuple[int, str, int]
    group_epoch: int | None = None
    assignment_epoch: int | None = None
    authorized_operations: tuple[AclOperation, ...] | None = None


class ConsumerGroups(Requests):
    """Requests about consumer groups."""

    async def describe_consumer_groups(
        self, groups: Iterable[str], *, include_authorized_operations: bool = False, timeout: float | None = None
    ) -> Results[str, ConsumerGroupDescription]:
        """Describe the state and members of groups of both protocols. For a missing group, brokers before Kafka 4.0 return
        the state Dead, later ones GROUP_ID_NOT_FOUND.

        include_authorized_operations  also return what this client is authorized for (KIP-430; since Kafka 2.3)
        """
        include = include_authorized_operations

        async def one(group_id: str) -> ConsumerGroupDescription:
            try:
                return await self._consumer_group(group_id, include, timeout)
            except KafkaError as error:
                if error.code not in (GROUP_ID_NOT_FOUND, UNSUPPORTED_VERSION):
                    raise
            return await self._classic_group(group_id, include, timeout)

        return await self.for_each(groups, one)

    async def describe_classic_groups(
        self, groups: Iterable[str], *, include_authorized_operations: bool = False, timeout: float | None = None
    ) -> Results[str, ConsumerGroupDescription]:
        """Describe classic groups of any protocol type, including those of Kafka Connect.

        include_authorized_operations  also return what this client is authorized for (KIP-430; since Kafka 2.3)
        """
        include = include_authorized_operations
        return await self.for_each(groups, lambda group_id: self._classic_group(group_id, include, timeout))

    async def _consumer_group(
        self, group_id: str, include_operations: bool, timeout: float | None
    ) -> ConsumerGroupDescription:
        def code_of(answer: ConsumerGroupDescribeResponse) -> tuple[int, str | None]:
            return answer.groups[0].error_code, answer.groups[0].error_message

        request = ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=include_operations)
        answer = await self.at_coordinator(group_id, request, timeout, code_of)
        return _description_from(answer.groups[0], await self._coordinator(group_id))

    async def _classic_group(
        self, group_id: str, include_operations: bool, timeout: float | None
    ) -> ConsumerGroupDescription:
        def code_of(answer: DescribeGroupsResponse) -> tuple[int, str | None]:
            return answer.groups[0].error_code, answer.groups[0].error_message

        def request(link: Link) -> DescribeGroupsRequest:
            link.version(DescribeGroupsRequest, oldest=3 if include_operations else 0)
            return DescribeGroupsRequest(groups=[group_id], include_authorized_operations=include_operations)

        answer = await self.at_coordinator(group_id, request, timeout, code_of)
        return _classic_description_from(answer.groups[0], await self._coordinator(group_id))

    async def _coordinator(self, group_id: str) -> tuple[int, str, int]:
        node = await self.metadata.coordinator(GROUP, group_id)
        return node, *self.metadata.network.brokers[node]

    async def list_consumer_group_offsets(
        self,
        groups: Iterable[str] | Mapping[str, Iterable[TopicPartition] | None],
        *,
        require_stable: bool = False,
        timeout: float | None = None,
    ) -> Results[str, dict[TopicPartition, OffsetAndMetadata]]:
        """List the committed offsets of each group, for these partitions or (None; since Kafka 0.10.2) for all.

        require_stable  wait for open transactions that commit offsets (KIP-447; since Kafka 2.5)
        """
        requested = dict(groups) if isinstance(groups, Mapping) else dict.fromkeys(groups)

        async def one(group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
            asked = requested[group_id]
            partitions = None if asked is None else by_topic(asked)

            def request(link: Link) -> OffsetFetchRequest:
                oldest = max(2 if partitions is None else 1, 7 if require_stable else 0)
                version = link.version(OffsetFetchRequest, _BY_NAME, oldest=oldest)
                return _offset_fetch(group_id, partitions, version, require_stable=require_stable)

            answer = await self.at_coordinator(group_id, request, timeout, _offset_fetch_error, newest=_BY_NAME)
            return _offsets_from(answer)

        return await self.for_each(requested, one)

    async def alter_consumer_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        *,
        timeout: float | None = None,
    ) -> Results[TopicPartition, None]:
        """Set the committed offsets of a group without members. A group with members responds UNKNOWN_MEMBER_ID."""

        async def ask(partitions: list[TopicPartition]) -> dict[TopicPartition, KafkaError | None]:
            topics: dict[str, OffsetCommitRequestTopic] = {}
            for partition in partitions:
                value = offsets[partition]
                committed = value if isinstance(value, OffsetAndMetadata) else OffsetAndMetadata(value)
                topics.setdefault(partition.topic, OffsetCommitRequestTopic(name=partition.topic)).partitions.append(
                    OffsetCommitRequestPartition(
                        partition_index=partition.partition,
                        committed_offset=committed.offset,
                        committed_leader_epoch=committed.leader_epoch,
                        committed_metadata=committed.metadata,
                    )
                )
            request = OffsetCommitRequest(group_id=group_id, topics=list(topics.values()))
            coordinator = self.coordinator(group_id)
            answer = await coordinator.request(request, newest=_BY_NAME)
            outcomes: dict[TopicPartition, KafkaError | None] = {}
            for topic in answer.topics:
                for row in topic.partitions:
                    partition = TopicPartition(topic.name, row.partition_index)
                    coordinator.note(row.error_code)
                    outcomes[partition] = refusal(
                        row.error_code,
                        f"move group {group_id} on {partition}",
                        None,
                        *_reading(group_id, partition.topic),
                    )
            return outcomes

        return await self.repeating(f"move group {group_id}", offsets, ask, timeout)

    async def delete_consumer_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> Results[TopicPartition, None]:
        """Delete the committed offsets of partitions that no member of the group subscribes to (since Kafka 2.4).

        Raises the error of the group.
        """

        def code_of(answer: OffsetDeleteResponse) -> tuple[int, str | None]:
            return answer.error_code, None

        request = OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                OffsetDeleteRequestTopic(
                    name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
                )
                for name, indexes in by_topic(partitions).items()
            ],
        )
        answer = await self.at_coordinator(group_id, request, timeout, code_of, operation="Delete")
        results = Results[TopicPartition, None]()
        for topic in answer.topics:
            for row in topic.partitions:
                partition = TopicPartition(topic.name, row.partition_index)
                about = f"delete the offset of group {group_id} in {partition}"
                results.put(
                    partition, None, refusal(row.error_code, about, None, Permission("Read", "topic", (topic.name,)))
                )
        return results

    async def remove_members_from_consumer_group(
        self,
        group_id: str,
        instance_ids: Iterable[str] | None = None,
        *,
        reason: str = "",
        timeout: float | None = None,
    ) -> Results[str, None]:
        """Remove static members by instance id or (None) all members, as if they had left (KIP-345; since Kafka 2.4).

        Results are by instance id, or by member id for members without one. Raises the error of the group.
        """
        if instance_ids is None:
            described = (await self.describe_consumer_groups([group_id], timeout=timeout))[group_id]
            identities = [(member.member_id, member.group_instance_id) for member in described.members]
        else:
            identities = [("", instance_id) for instance_id in instance_ids]
        results = Results[str, None]()
        if not identities:
            return results

        def code_of(answer: LeaveGroupResponse) -> tuple[int, str | None]:
            return answer.error_code, None

        request = LeaveGroupRequest(
            group_id=group_id,
            members=[
                MemberIdentity(
                    member_id="" if instance is not None else member_id,
                    group_instance_id=instance,
                    reason=reason or "member was removed by an admin",
                )
                for member_id, instance in identities
            ],
        )

        answer = await self.at_coordinator(group_id, request, timeout, code_of, operation="Read")
        for row in answer.members:
            name = row.group_instance_id or row.member_id
            results.put(
                name,
                None,
                refusal(row.error_code, f"remove member {name} of group {group_id}", None, *_reading(group_id)),
            )
        return results


def _offset_fetch(
    group_id: str, partitions: Mapping[str, list[int]] | None, version: int, *, require_stable: bool
) -> OffsetFetchRequest:
    request = OffsetFetchRequest(require_stable=require_stable)
    if version >= 8:
        topics = None
        if partitions is not None:
            topics = [OffsetFetchRequestTopics(name=name, partition_indexes=its) for name, its in partitions.items()]
        request.groups = [OffsetFetchRequestGroup(group_id=group_id, topics=topics)]
        return request
    request.group_id = group_id
    request.topics = None
    if partitions is not None:
        request.topics = [OffsetFetchRequestTopic(name=name, partition_indexes=its) for name, its in partitions.items()]
    return request


def _reading(group_id: str, *topics: str) -> tuple[Permission, ...]:
    """Return the permissions of a member of the group that reads these topics."""
    return (Permission("Read", "group", (group_id,)), *([Permission("Read", "topic", topics)] if topics else []))


def _offset_fetch_error(answer: OffsetFetchResponse) -> tuple[int, str | None]:
    """Return the error of the group, else the first error of a partition: version 1 has no error of the group."""
    if answer.groups:
        group = answer.groups[0]
        rows = [row.error_code for topic in group.topics for row in topic.partitions]
        return group.error_code or next(filter(None, rows), NONE), None
    rows = [row.error_code for topic in answer.topics for row in topic.partitions]
    return answer.error_code or next(filter(None, rows), NONE), None


def _offsets_from(answer: OffsetFetchResponse) -> dict[TopicPartition, OffsetAndMetadata]:
    topics = answer.groups[0].topics if answer.groups else answer.topics
    return {
        TopicPartition(topic.name, row.partition_index): OffsetAndMetadata(
            row.committed_offset, row.metadata or "", row.committed_leader_epoch
        )
        for topic in topics
        for row in topic.partitions
        if row.committed_offset >= 0
    }


def _description_from(group: DescribedConsumerGroup, coordinator: tuple[int, str, int]) -> ConsumerGroupDescription:
    members = tuple(
        GroupMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            _partitions_from(member.assignment),
            member.member_epoch,
            _partitions_from(member.target_assignment),
            None if member.member_type < 0 else member.member_type == 1,
            member.rack_id,
            frozenset(member.subscribed_topic_names),
            member.subscribed_topic_regex or None,
        )
        for member in group.members
    )
    return ConsumerGroupDescription(
        group.group_id,
        CONSUMER,
        group.group_state,
        "consumer",
        group.assignor_name,
        members,
        coordinator,
        group.group_epoch,
        group.assignment_epoch,
        authorized_operations(group.authorized_operations),
    )


def _partitions_from(assignment: Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic_name, index) for topic in assignment.topic_partitions for index in topic.partitions
    )


def _classic_description_from(group: DescribedGroup, coordinator: tuple[int, str, int]) -> ConsumerGroupDescription:
    return ConsumerGroupDescription(
        group.group_id,
        CLASSIC,
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        tuple(_classic_member(member, group.protocol_type) for member in group.members),
        coordinator,
        authorized_operations=authorized_operations(group.authorized_operations),
    )


def _classic_member(member: DescribedGroupMember, protocol_type: str) -> GroupMember:
    """Convert a member of a classic group; only assignments of protocol type "consumer" are decoded."""
    assignment: tuple[TopicPartition, ...] = ()
    subscription: frozenset[str] = frozenset()
    if protocol_type == "consumer":
        with suppress(PeerError):
            assigned = decode_assignment(member.member_assignment).assigned_partitions
            assignment = tuple(TopicPartition(topic.topic, index) for topic in assigned for index in topic.partitions)
        with suppress(PeerError):
            subscription = frozenset(decode_subscription(member.member_metadata).topics)
    return GroupMember(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        assignment,
        subscription=subscription,
    )
