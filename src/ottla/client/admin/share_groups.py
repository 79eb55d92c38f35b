"""Admin requests about share groups (KIP-932): describe groups; list, alter and delete their offsets."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.client.admin.requests import Requests, by_topic, refusal
from ottla.client.admin.results import Results
from ottla.client.coordinator import GROUP
from ottla.client.errors import Permission
from ottla.client.permissions import AclOperation, authorized_operations
from ottla.client.topics import TopicPartition
from ottla.protocol.errors import NONE
from ottla.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from ottla.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from ottla.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
)
from ottla.protocol.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)


class ShareGroupMember(NamedTuple):
    """Member of a share group; `host` is the address of the client."""

    member_id: str
    client_id: str
    host: str
    member_epoch: int
    rack_id: str | None
    subscription: frozenset[str]
    assignment: tuple[TopicPartition, ...]


class ShareGroupDescription(NamedTuple):
    """Share group; `coordinator` is (node, host, port).

    authorized_operations  operations that this client is authorized for; None unless requested
    """

    group_id: str
    state: str
    group_epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[ShareGroupMember, ...]
    coordinator: tuple[int, str, int]
    authorized_operations: tuple[AclOperation, ...] | None = None


class ShareGroupOffset(NamedTuple):
    """Start offset and lag of a partition, None before the first read; the lag is None before Kafka 4.2 as well."""

    start_offset: int | None
    leader_epoch: int
    lag: int | None


class ShareGroups(Requests):
    """Requests about share groups."""

    async def describe_share_groups(
        self, groups: Iterable[str], *, include_authorized_operations: bool = False, timeout: float | None = None
    ) -> Results[str, ShareGroupDescription]:
        """Describe the state and members of share groups.

        include_authorized_operations  also return what this client is authorized for
        """

        async def one(group_id: str) -> ShareGroupDescription:
            def code_of(answer: ShareGroupDescribeResponse) -> tuple[int, str | None]:
                return answer.groups[0].error_code, answer.groups[0].error_message

            request = ShareGroupDescribeRequest(
                group_ids=[group_id], include_authorized_operations=include_authorized_operations
            )
            answer = await self.at_coordinator(group_id, request, timeout, code_of)
            node = await self.metadata.coordinator(GROUP, group_id)
            return _description_from(answer.groups[0], (node, *self.metadata.network.brokers[node]))

        return await self.for_each(groups, one)

    async def list_share_group_offsets(
        self,
        groups: Iterable[str] | Mapping[str, Iterable[TopicPartition] | None],
        *,
        timeout: float | None = None,
    ) -> Results[str, dict[TopicPartition, ShareGroupOffset]]:
        """List the start offsets of each group, for these partitions or (None) for all with an offset."""
        requested = dict(groups) if isinstance(groups, Mapping) else dict.fromkeys(groups)

        async def one(group_id: str) -> dict[TopicPartition, ShareGroupOffset]:
            def code_of(answer: DescribeShareGroupOffsetsResponse) -> tuple[int, str | None]:
                return answer.groups[0].error_code, answer.groups[0].error_message

            partitions = requested[group_id]
            topics = None
            if partitions is not None:
                topics = [
                    DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=indexes)
                    for name, indexes in by_topic(partitions).items()
                ]
            group = DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=topics)
            request = DescribeShareGroupOffsetsRequest(groups=[group])
            answer = await self.at_coordinator(group_id, request, timeout, code_of)
            return {
                TopicPartition(topic.topic_name, row.partition_index): ShareGroupOffset(
                    row.start_offset if row.start_offset >= 0 else None,
                    row.leader_epoch,
                    row.lag if row.lag >= 0 else None,
                )
                for topic in answer.groups[0].topics
                for row in topic.partitions
                if row.error_code == NONE
            }

        return await self.for_each(requested, one)

    async def alter_share_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> Results[TopicPartition, None]:
        """Set the start offsets of a group without members. Raises errors of the group, such as NON_EMPTY_GROUP."""
        topics: dict[str, AlterShareGroupOffsetsRequestTopic] = {}
        for partition, offset in offsets.items():
            topic = topics.setdefault(partition.topic, AlterShareGroupOffsetsRequestTopic(topic_name=partition.topic))
            topic.partitions.append(
                AlterShareGroupOffsetsRequestPartition(partition_index=partition.partition, start_offset=offset)
            )

        def code_of(answer: AlterShareGroupOffsetsResponse) -> tuple[int, str | None]:
            return answer.error_code, answer.error_message

        request = AlterShareGroupOffsetsRequest(group_id=group_id, topics=list(topics.values()))
        answer = await self.at_coordinator(group_id, request, timeout, code_of, operation="Read")
        results = Results[TopicPartition, None]()
        for topic_answer in answer.responses:
            for row in topic_answer.partitions:
                partition = TopicPartition(topic_answer.topic_name, row.partition_index)
                about = f"move group {group_id} on {partition}"
                results.put(
                    partition,
                    None,
                    refusal(
                        row.error_code,
                        about,
                        row.error_message,
                        Permission("Read", "topic", (topic_answer.topic_name,)),
                    ),
                )
        return results

    async def delete_share_group_offsets(
        self, group_id: str, topics: Iterable[str], *, timeout: float | None = None
    ) -> Results[str, None]:
        """Delete the offsets of topics from a group without members. Raises the error of the group."""

        def code_of(answer: DeleteShareGroupOffsetsResponse) -> tuple[int, str | None]:
            return answer.error_code, answer.error_message

        request = DeleteShareGroupOffsetsRequest(
            group_id=group_id, topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics]
        )
        answer = await self.at_coordinator(group_id, request, timeout, code_of, operation="Delete")
        results = Results[str, None]()
        for row in answer.responses:
            about = f"delete offsets of group {group_id} in {row.topic_name}"
            results.put(
                row.topic_name,
                None,
                refusal(row.error_code, about, row.error_message, Permission("Read", "topic", (row.topic_name,))),
            )
        return results


def _description_from(group: DescribedGroup, coordinator: tuple[int, str, int]) -> ShareGroupDescription:
    members = tuple(
        ShareGroupMember(
            member.member_id,
            member.client_id,
            member.client_host,
            member.member_epoch,
            member.rack_id,
            frozenset(member.subscribed_topic_names),
            tuple(
                TopicPartition(topic.topic_name, index)
                for topic in member.assignment.topic_partitions
                for index in topic.partitions
            ),
        )
        for member in group.members
    )
    return ShareGroupDescription(
        group.group_id,
        group.group_state,
        group.group_epoch,
        group.assignment_epoch,
        group.assignor_name,
        members,
        coordinator,
        authorized_operations(group.authorized_operations),
    )
