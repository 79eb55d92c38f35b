"""Requests about consumer groups."""

import warnings
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.client.admin import consumer_groups as client_groups
from ottla.client.admin.results import Results
from ottla.client.coordinator import GROUP
from ottla.client.errors import KafkaError as ClientError
from ottla.client.groups import OffsetAndMetadata
from ottla.client.permissions import authorized_operations
from ottla.client.topics import TopicPartition as ClientPartition
from ottla.compat.librdkafka.admin.requests import Node, Requests, distinct, every, kafka_error, limit, require
from ottla.compat.librdkafka.enums import ConsumerGroupState, ConsumerGroupType, member, operations
from ottla.compat.librdkafka.errors import KafkaError, KafkaException, error_from
from ottla.compat.librdkafka.handle import milliseconds
from ottla.compat.librdkafka.metadata import BrokerMetadata
from ottla.compat.librdkafka.values import OFFSET_INVALID, TopicPartition
from ottla.protocol.errors import GROUP_ID_NOT_FOUND
from ottla.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

_STATES: Final = {
    "PreparingRebalance": ConsumerGroupState.PREPARING_REBALANCING,
    "CompletingRebalance": ConsumerGroupState.COMPLETING_REBALANCING,
    "Stable": ConsumerGroupState.STABLE,
    "Dead": ConsumerGroupState.DEAD,
    "Empty": ConsumerGroupState.EMPTY,
    "Unknown": ConsumerGroupState.UNKNOWN,
}
_TYPES: Final = {"consumer": ConsumerGroupType.CONSUMER, "classic": ConsumerGroupType.CLASSIC}
_RAW_VERSION: Final = 5
"""Newest version of DescribeGroups that describes a missing group as dead."""


@dataclass(eq=False)
class ConsumerGroupTopicPartitions:
    """Partitions of a group, with offsets; None is all."""

    group_id: str
    topic_partitions: list[TopicPartition] | None = None


@dataclass(eq=False)
class ConsumerGroupListing:
    """Entry of a list of groups."""

    group_id: str
    is_simple_consumer_group: bool
    state: Any = None
    type: Any = None

    def __post_init__(self) -> None:
        self.state = None if self.state is None else member(self.state, ConsumerGroupState)
        self.type = None if self.type is None else member(self.type, ConsumerGroupType)


@dataclass(eq=False)
class ListConsumerGroupsResult:
    """Groups, and the errors of coordinators that did not list theirs."""

    valid: list[ConsumerGroupListing] | None = None
    errors: list[Any] | None = None


@dataclass(eq=False)
class MemberAssignment:
    """Partitions of a member."""

    topic_partitions: list[TopicPartition]

    def __post_init__(self) -> None:
        self.topic_partitions = self.topic_partitions or []


@dataclass(eq=False)
class MemberDescription:
    """Member of a group; a target assignment is that of a member of the consumer protocol."""

    member_id: str
    client_id: str
    host: str
    assignment: MemberAssignment
    group_instance_id: str | None = None
    target_assignment: MemberAssignment | None = None


@dataclass(eq=False)
class ConsumerGroupDescription:
    """Group with its members."""

    group_id: str
    is_simple_consumer_group: bool
    members: list[MemberDescription]
    partition_assignor: str
    state: Any
    coordinator: Node
    authorized_operations: Any = None
    type: Any = ConsumerGroupType.UNKNOWN

    def __post_init__(self) -> None:
        self.state = None if self.state is None else member(self.state, ConsumerGroupState)
        self.type = None if self.type is None else member(self.type, ConsumerGroupType)
        self.authorized_operations = operations(self.authorized_operations)


@dataclass(eq=False)
class GroupMember:
    """Member of a group as `list_groups` describes it; metadata and assignment are bytes of the group's protocol."""

    id: str | None = None
    client_id: str | None = None
    client_host: str | None = None
    metadata: bytes | None = None
    assignment: bytes | None = None


@dataclass(eq=False, repr=False)
class GroupMetadata:
    """Group as `list_groups` describes it."""

    broker: BrokerMetadata | None = None
    id: str | None = None
    error: KafkaError | None = None
    state: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    members: list[GroupMember] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"GroupMetadata({self.id}{'' if self.error is None else f', {self.error}'})"

    def __str__(self) -> str:
        return str(self.id)


def _assignment(partitions: Iterable[ClientPartition] | None) -> MemberAssignment | None:
    return None if partitions is None else MemberAssignment([TopicPartition(*partition) for partition in partitions])


def _member(row: client_groups.GroupMember) -> MemberDescription:
    assignment = _assignment(row.assignment)
    assert assignment is not None
    return MemberDescription(
        row.member_id, row.client_id, row.host, assignment, row.group_instance_id, _assignment(row.target_assignment)
    )


def _description(row: client_groups.ConsumerGroupDescription) -> ConsumerGroupDescription:
    return ConsumerGroupDescription(
        row.group_id,
        not row.protocol_type,
        list(map(_member, row.members)),
        row.assignor,
        _STATES.get(row.state, ConsumerGroupState.UNKNOWN),
        Node(*row.coordinator),
        row.authorized_operations,
        _TYPES[row.type],
    )


def _check_set(values: Any, kind: type[Any], name: str) -> None:
    """Raise TypeError for what is neither None nor a set of one enumeration."""
    require(isinstance(values, set | None), TypeError, f"'{name}' must be a set")
    reason = f"All elements of {name} must be of type {kind.__name__}"
    require(all(isinstance(value, kind) for value in values or ()), TypeError, reason)


def _check_offsets(request: Any, *, alters: bool) -> ConsumerGroupTopicPartitions:
    """Return the one group of a request. Raises TypeError, ValueError."""
    require(request is not None, TypeError, "request cannot be None")
    require(isinstance(request, list), TypeError, "request must be a list")
    verb = "altering" if alters else "listing"
    reason = f"Currently we support {verb} offsets for a single consumer group only"
    require(len(request) == 1, ValueError, reason)
    group = every(request, ConsumerGroupTopicPartitions, TypeError)[0]
    require(group.group_id is not None, TypeError, "'group_id' cannot be None")
    require(isinstance(group.group_id, str), TypeError, "'group_id' must be a string")
    require(group.group_id, ValueError, "'group_id' cannot be empty")
    partitions = group.topic_partitions
    require(partitions is not None or not alters, ValueError, "'topic_partitions' cannot be null")
    if partitions is None:
        return group
    reason = "'topic_partitions' must be a list" + ("" if alters else " or None")
    require(isinstance(partitions, list), TypeError, reason)
    require(partitions, ValueError, "'topic_partitions' cannot be empty")
    for partition in partitions:
        _check_partition(partition, alters=alters)
    return group


def _check_partition(partition: Any, *, alters: bool) -> None:
    """Raise TypeError or ValueError for a partition that has an offset to list, or none to set."""
    element = "Element of 'topic_partitions' must"
    require(partition is not None, ValueError, "Element of 'topic_partitions' cannot be None")
    require(isinstance(partition, TopicPartition), TypeError, f"{element} be of type TopicPartition")
    require(partition.topic, ValueError, f"{element} not have 'topic' attribute as Empty")
    value = "negative value for 'partition' field" if alters else "negative 'partition' value"
    require(partition.partition >= 0, ValueError, f"{element} not have {value}")
    if alters:
        require(partition.offset >= 0, ValueError, f"{element} not have negative value for 'offset' field")
    else:
        require(partition.offset == OFFSET_INVALID, ValueError, f"{element} not have 'offset' value")


def _result_from(
    group: ConsumerGroupTopicPartitions, offsets: dict[ClientPartition, OffsetAndMetadata]
) -> ConsumerGroupTopicPartitions:
    """Return the offsets of the partitions that were asked for, in their order."""
    requested = group.topic_partitions
    keys = sorted(offsets) if requested is None else [ClientPartition(row.topic, row.partition) for row in requested]
    rows = [(key, offsets.get(key) or OffsetAndMetadata(OFFSET_INVALID)) for key in keys]
    partitions = [TopicPartition(*key, row.offset, row.metadata or None, row.leader_epoch) for key, row in rows]
    return ConsumerGroupTopicPartitions(group.group_id, partitions)


class Groups(Requests):
    """Requests about consumer groups; futures are by group id."""

    def list_consumer_groups(
        self,
        *,
        states: set[ConsumerGroupState] | None = None,
        types: set[ConsumerGroupType] | None = None,
        request_timeout: float | None = None,
    ) -> "Future[ListConsumerGroupsResult]":
        """List the consumer groups, of these states and types or all. Raises TypeError, ValueError."""
        _check_set(states, ConsumerGroupState, "states")
        _check_set(types, ConsumerGroupType, "types")
        require(ConsumerGroupType.UNKNOWN not in (types or ()), ValueError, "UNKNOWN type is not allowed")
        state_names = [name for name, state in _STATES.items() if state in (states or ())]
        type_names = [name for name, kind in _TYPES.items() if kind in (types or ())]
        seconds = limit(request_timeout)

        def request() -> ListConsumerGroupsResult:
            try:
                rows = self._admin.list_groups(states=state_names, types=type_names, timeout=seconds)
            except ClientError as error:
                return ListConsumerGroupsResult([], [kafka_error(error)])
            valid = [
                ConsumerGroupListing(
                    row.group_id,
                    not row.protocol_type,
                    _STATES.get(row.state, ConsumerGroupState.UNKNOWN),
                    _TYPES.get(row.type.lower(), ConsumerGroupType.UNKNOWN),
                )
                for row in rows.values()
                if row.protocol_type in ("", "consumer")
            ]
            return ListConsumerGroupsResult(valid, [])

        return self._future(request)

    def describe_consumer_groups(
        self, group_ids: list[str], *, include_authorized_operations: bool = False, request_timeout: float | None = None
    ) -> dict[str, "Future[ConsumerGroupDescription]"]:
        """Describe groups; a missing one is DEAD. Raises TypeError, ValueError."""
        require(isinstance(group_ids, list), TypeError, "Expected input to be list of group ids to be described")
        require(group_ids, ValueError, "Expected at least one group to be described")
        chosen, seconds = [str(group_id) for group_id in group_ids], limit(request_timeout)

        def request() -> Results[Any, Any]:
            distinct(chosen, "Duplicate groups not allowed")
            described = self._admin.describe_consumer_groups(
                chosen, include_authorized_operations=include_authorized_operations, timeout=seconds
            )
            results = Results({name: _description(row) for name, row in described.successes.items()}, described.errors)
            for name, error in described.errors.items():
                if error.code == GROUP_ID_NOT_FOUND:
                    results.put(name, self._missing_group(name, include_authorized_operations, seconds))
            return results

        return self._futures(chosen, request, lambda description: description)

    def _missing_group(
        self, group_id: str, include_authorized_operations: bool, seconds: float | None
    ) -> ConsumerGroupDescription:
        """Return the description of a group that does not exist."""
        coordinator, row = self._group(group_id, seconds, include_authorized_operations=include_authorized_operations)
        allowed = authorized_operations(row.authorized_operations)
        state, kind = ConsumerGroupState.DEAD, ConsumerGroupType.CLASSIC
        return ConsumerGroupDescription(group_id, True, [], "", state, coordinator, allowed, kind)

    def delete_consumer_groups(
        self, group_ids: list[str], *, request_timeout: float | None = None
    ) -> dict[str, "Future[None]"]:
        """Delete groups without members. Raises TypeError, ValueError."""
        require(isinstance(group_ids, list), TypeError, "Expected input to be list of group ids to be deleted")
        require(group_ids, ValueError, "Expected at least one group to be deleted")
        chosen, seconds = every(group_ids, str, ValueError), limit(request_timeout)
        return self._futures(chosen, lambda: self._admin.delete_groups(chosen, timeout=seconds))

    def list_consumer_group_offsets(
        self,
        list_consumer_group_offsets_request: list[ConsumerGroupTopicPartitions],
        *,
        require_stable: bool = False,
        request_timeout: float | None = None,
    ) -> dict[str, "Future[ConsumerGroupTopicPartitions]"]:
        """List the committed offsets of a group. Raises TypeError, ValueError."""
        group = _check_offsets(list_consumer_group_offsets_request, alters=False)
        requested, seconds = group.topic_partitions, limit(request_timeout)
        partitions = None if requested is None else [ClientPartition(row.topic, row.partition) for row in requested]

        def request() -> Results[Any, Any]:
            return self._admin.list_consumer_group_offsets(
                {group.group_id: partitions}, require_stable=require_stable, timeout=seconds
            )

        return self._futures([group.group_id], request, lambda offsets: _result_from(group, offsets))

    def alter_consumer_group_offsets(
        self,
        alter_consumer_group_offsets_request: list[ConsumerGroupTopicPartitions],
        *,
        request_timeout: float | None = None,
    ) -> dict[str, "Future[ConsumerGroupTopicPartitions]"]:
        """Set the committed offsets of a group without members; errors are in the partitions. Raises TypeError, ValueError."""
        group = _check_offsets(alter_consumer_group_offsets_request, alters=True)
        requested, seconds = list(group.topic_partitions or ()), limit(request_timeout)
        offsets = {
            ClientPartition(row.topic, row.partition): OffsetAndMetadata(
                row.offset, row.metadata or "", -1 if row.leader_epoch is None else row.leader_epoch
            )
            for row in requested
        }

        def request() -> Results[Any, Any]:
            errors = self._admin.alter_consumer_group_offsets(group.group_id, offsets, timeout=seconds).errors
            partitions = []
            for key, row in offsets.items():
                error = errors.get(key)
                altered = TopicPartition(*key, row.offset, row.metadata or None, row.leader_epoch)
                partitions.append(altered.failed(None if error is None else error_from(error)))
            return Results({group.group_id: ConsumerGroupTopicPartitions(group.group_id, partitions)})

        return self._futures([group.group_id], request, lambda altered: altered)

    def list_groups(self, group: str | None = None, timeout: float = -1) -> list[GroupMetadata]:
        """Return the groups of the classic protocol with their members, or one of them. Raises KafkaException."""
        reason = "list_groups() is deprecated, use list_consumer_groups() and describe_consumer_groups() instead."
        warnings.warn(reason, DeprecationWarning, stacklevel=2)
        seconds = milliseconds(timeout) / 1000
        try:
            names = list(self._admin.list_groups(timeout=seconds))
            return [_group_metadata(*self._group(name, seconds)) for name in names if group is None or name == group]
        except ClientError as error:
            code = error_from(error).code()
            raise KafkaException(KafkaError(code, f"Failed to list groups: {KafkaError(code).str()}")) from None

    def _group(
        self, name: str, seconds: float | None, *, include_authorized_operations: bool = False
    ) -> tuple[Node, DescribedGroup]:
        """Return the coordinator of a classic group, and its description with the bytes of its members."""
        core = self._admin.core

        def code_of(response: DescribeGroupsResponse) -> tuple[int, str | None]:
            return response.groups[0].error_code, None

        request = DescribeGroupsRequest(groups=[name], include_authorized_operations=include_authorized_operations)
        response = self._admin.ask(core.at_coordinator(name, request, seconds, code_of, newest=_RAW_VERSION))
        number = self._admin.ask(core.metadata.coordinator(GROUP, name))
        return Node(number, *core.metadata.network.brokers[number]), response.groups[0]


def _group_metadata(coordinator: Node, row: DescribedGroup) -> GroupMetadata:
    broker = BrokerMetadata()
    broker.id, broker.host, broker.port = coordinator.id, coordinator.host, coordinator.port
    members = [
        GroupMember(
            described.member_id,
            described.client_id,
            described.client_host,
            bytes(described.member_metadata),
            bytes(described.member_assignment),
        )
        for described in row.members
    ]
    return GroupMetadata(broker, row.group_id, None, row.group_state, row.protocol_type, row.protocol_data, members)
