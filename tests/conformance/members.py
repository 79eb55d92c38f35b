"""Members of classic groups, spoken for over a socket: what the tests of the group APIs share."""

import time
import uuid
from typing import Any

from ottla.protocol.errors import MEMBER_ID_REQUIRED, NONE, name_of
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

from .conftest import Wire

NO_TOPICS = bytes(10)
"""A consumer's subscription, version 0, to nothing."""


def new_group(wire: Wire) -> str:
    """A group id of this test alone, whose coordinator is ready."""
    group_id = f"g-{uuid.uuid4().hex[:12]}"
    for _ in range(500):
        coordinator = wire.send(FindCoordinatorRequest(key=group_id, key_type=0), 2)
        if coordinator.error_code == NONE and heartbeat(wire, group_id, "nobody", 0) == "UNKNOWN_MEMBER_ID":
            return group_id
    raise AssertionError("no coordinator")


def heartbeat(wire: Wire, group_id: str, member_id: str, generation: int, instance: str | None = None) -> str:
    request = HeartbeatRequest(
        group_id=group_id, member_id=member_id, generation_id=generation, group_instance_id=instance
    )
    return name_of(wire.send(request, 4).error_code)


def join_request(group_id: str, version: int = 9, **fields: Any) -> JoinGroupRequest:
    """A JoinGroup that is right in every field, but for `fields`."""
    protocols = fields.pop("protocols", [("range", NO_TOPICS)])
    body: dict[str, Any] = {"session_timeout_ms": 10_000, "member_id": "", "protocol_type": "consumer"}
    if version >= 1:
        body["rebalance_timeout_ms"] = 10_000
    body |= fields
    return JoinGroupRequest(
        group_id=group_id,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols],
        **body,
    )


class Member:
    """One member, on a connection of its own."""

    def __init__(self, wire: Wire, group_id: str, instance: str | None = None) -> None:
        self.wire = wire.another()
        self.group_id = group_id
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.joined: Any = None

    def send_join(self, version: int = 9, **fields: Any) -> None:
        """Ask to join, and do not wait; a member id is fetched first where the version wants one."""
        fields = {"member_id": self.member_id} | fields
        if self.instance is not None:
            fields["group_instance_id"] = self.instance
        if version >= 4 and not fields["member_id"] and self.instance is None:
            answer = self.wire.send(join_request(self.group_id, version, **fields), version)
            assert answer.error_code == MEMBER_ID_REQUIRED, name_of(answer.error_code)
            fields["member_id"] = self.member_id = answer.member_id
        self.wire.send_only(join_request(self.group_id, version, **fields), version)

    def receive_join(self) -> Any:
        """The answer; the member remembers who it is now."""
        self.joined = self.wire.receive()
        if self.joined.error_code == NONE:
            self.member_id, self.generation = self.joined.member_id, self.joined.generation_id
        return self.joined

    def join(self, version: int = 9, **fields: Any) -> Any:
        self.send_join(version, **fields)
        return self.receive_join()

    def sync_request(self, assignments: dict[str, bytes] | None = None, **fields: Any) -> SyncGroupRequest:
        body: dict[str, Any] = {
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "protocol_type": "consumer",
            "protocol_name": "range",
        }
        return SyncGroupRequest(
            group_id=self.group_id,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in (assignments or {}).items()
            ],
            **(body | fields),
        )

    def sync(self, assignments: dict[str, bytes] | None = None, **fields: Any) -> Any:
        return self.wire.send(self.sync_request(assignments, **fields), 5)

    def heartbeat(self) -> str:
        return heartbeat(self.wire, self.group_id, self.member_id, self.generation, self.instance)

    def leave(self) -> Any:
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance)
        return self.wire.send(LeaveGroupRequest(group_id=self.group_id, members=[identity]), 5)


def stable(wire: Wire, *members: Member, assignment: bytes = b"mine") -> None:
    """Bring all `members` into one stable generation; the first of them leads, each gets `assignment` and its number."""
    members[0].join()
    for member in members[1:]:
        member.send_join()
    if len(members) > 1:
        settle(wire, members)
    assignments = {member.member_id: assignment + b"%d" % number for number, member in enumerate(members)}
    leader = next(member for member in members if member.joined.leader == member.member_id)
    for member in members:
        if member is not leader:
            member.wire.send_only(member.sync_request(), 5)
    assert leader.sync(assignments).error_code == NONE
    for member in members:
        if member is not leader:
            assert member.wire.receive().error_code == NONE


def settle(wire: Wire, members: tuple[Member, ...]) -> None:
    """The first member is told to rejoin and does; then all have their answer."""
    first = members[0]
    wait_for(lambda: len(described(wire, first.group_id).members) == len(members))
    assert first.heartbeat() == "REBALANCE_IN_PROGRESS"
    first.send_join()
    for member in members:
        assert member.receive_join().error_code == NONE


def described(wire: Wire, group_id: str) -> Any:
    return wire.send(DescribeGroupsRequest(groups=[group_id]), 5).groups[0]


def wait_for(condition: Any) -> None:
    """Ask again until it is so, a hundred times a second: what is waited for may take seconds."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)


def committed(wire: Wire, group_id: str, topic: str) -> tuple[int, str]:
    """Offset and metadata that `group_id` committed for partition 0 of `topic`."""
    row = OffsetFetchRequestTopics(name=topic, partition_indexes=[0])
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=[row])])
    partition = wire.send(request, 8).groups[0].topics[0].partitions[0]
    return partition.committed_offset, partition.metadata
