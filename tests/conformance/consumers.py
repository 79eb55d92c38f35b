"""Members of consumer groups (KIP-848), spoken for over a socket: what the tests of that protocol share."""

import uuid
from collections.abc import Callable
from typing import Any

from ottla.protocol.errors import NONE, name_of
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

from .conftest import Topic, Wire
from .members import wait_for

GROUP = 32
"""The type of a group as a resource with configs."""


def heartbeat_request(group_id: str, member_id: str, epoch: int, **fields: Any) -> ConsumerGroupHeartbeatRequest:
    """A heartbeat without news, but for `fields`."""
    return ConsumerGroupHeartbeatRequest(group_id=group_id, member_id=member_id, member_epoch=epoch, **fields)


def joining(group_id: str, *topics: str, member_id: str | None = None, **fields: Any) -> ConsumerGroupHeartbeatRequest:
    """A heartbeat that joins, right in every field but for `fields`."""
    body: dict[str, Any] = {"rebalance_timeout_ms": 10_000, "topic_partitions": []}
    body["subscribed_topic_names"] = list(topics)
    member_id = uuid.uuid4().hex if member_id is None else member_id
    return heartbeat_request(group_id, member_id, 0, **(body | fields))


def configure(wire: Wire, group_id: str, **configs: str) -> None:
    """Set configs of a group; `_` stands for `.`."""
    changes = [
        AlterableConfig(name=name.replace("_", "."), config_operation=0, value=value) for name, value in configs.items()
    ]
    resource = AlterConfigsResource(resource_type=GROUP, resource_name=group_id, configs=changes)
    answer = wire.send(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert answer.responses[0].error_code == NONE, answer.responses[0].error_message


_known: set[str] = set()


def await_coordinator(wire: Wire, topics: tuple[str, ...]) -> None:
    """Apache Kafka's coordinator hears of a new topic a moment after its leaders: wait until it assigns it."""
    unknown = {name for name in topics if name.startswith("t-")} - _known
    if not wire.is_kafka or not unknown:
        return
    group_id = f"probe-{uuid.uuid4().hex[:12]}"

    def assigned() -> bool:
        answer = wire.send(joining(group_id, *unknown, member_id="probe"), 1)
        is_complete = answer.error_code == NONE and len(answer.assignment.topic_partitions) == len(unknown)
        wire.send(heartbeat_request(group_id, "probe", -1), 1)
        return is_complete

    wait_for(assigned)
    _known.update(unknown)


def interval_of(wire: Wire, configured_ms: int) -> int:
    """The heartbeat interval that a member of a group with new targets is told; see test_heartbeat_intervals.py."""
    return configured_ms if wire.is_kafka else configured_ms // 10


def config_of(wire: Wire, group_id: str, name: str) -> str | None:
    """The value of a config of a group, as the broker has it by now."""
    resource = DescribeConfigsResource(resource_type=GROUP, resource_name=group_id, configuration_keys=[name])
    (result,) = wire.send(DescribeConfigsRequest(resources=[resource]), 4).results
    (row,) = result.configs
    value: str | None = row.value
    return value


class Consumer:
    """One member, on a connection of its own; it does what it is told."""

    def __init__(self, wire: Wire, group_id: str, instance: str | None = None) -> None:
        self.wire = wire.another()
        self.group_id = group_id
        self.instance = instance
        self.member_id = uuid.uuid4().hex
        self.epoch = 0
        self.assigned: dict[bytes, set[int]] = {}

    def send(self, request: ConsumerGroupHeartbeatRequest, version: int = 1) -> Any:
        """The answer; the member remembers its epoch, and what it may read."""
        answer = self.wire.send(request, version)
        if answer.error_code == NONE:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.assigned = {topic.topic_id: set(topic.partitions) for topic in answer.assignment.topic_partitions}
        return answer

    def join(self, *topics: str, version: int = 1, **fields: Any) -> Any:
        await_coordinator(self.wire, topics)
        body = {"member_id": self.member_id, "instance_id": self.instance} | fields
        return self.send(joining(self.group_id, *topics, **body), version)

    def beat(self, version: int = 1, **fields: Any) -> Any:
        """A heartbeat that says nothing but `fields`."""
        body = {"instance_id": self.instance} | fields
        epoch = body.pop("member_epoch", self.epoch)
        return self.send(heartbeat_request(self.group_id, self.member_id, epoch, **body), version)

    def beat_with_partitions(self) -> Any:
        """A heartbeat that says what the member has: it gave back what it was told to."""
        owned = [
            TopicPartitions(topic_id=topic_id, partitions=sorted(parts)) for topic_id, parts in self.assigned.items()
        ]
        return self.beat(topic_partitions=owned)

    def leave(self, epoch: int = -1) -> Any:
        request = heartbeat_request(self.group_id, self.member_id, epoch, instance_id=self.instance)
        return self.wire.send(request, 1)

    def partitions_of(self, topic: Topic) -> set[int]:
        return self.assigned.get(topic.id, set())


def settle(wire: Wire, group_id: str, *members: Consumer, until: Callable[[], bool] = lambda: True) -> Any:
    """Let the members send heartbeats until the group is Stable and `until` says so; the group as it is described then."""

    def settled() -> bool:
        for member in members:
            answer = member.beat_with_partitions()
            assert answer.error_code == NONE, name_of(answer.error_code)
        return described_consumers(wire, group_id).group_state == "Stable" and until()

    wait_for(settled)
    return described_consumers(wire, group_id)


def described_consumers(wire: Wire, group_id: str, version: int = 1) -> Any:
    """A consumer group as ConsumerGroupDescribe tells it."""
    request = ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
    return wire.send(request, version).groups[0]
