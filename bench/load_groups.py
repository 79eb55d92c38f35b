"""One group of many members, each on a connection of its own: a cold start, and a member that leaves."""

import heapq
import selectors
import time
import uuid
from collections.abc import Callable
from typing import Any, Final

from brokers import Running
from groups import Wire
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.protocol.schema import Request

MEMBERS: Final = 500
EVERY_S: Final = 0.5
"""Interval of heartbeats, the same for both protocols."""
REBALANCE_IN_PROGRESS: Final = 27
_MEMBER_IDS_GIVEN: Final = 3
"""Newest version of JoinGroup in which a new member joins with one request."""


class Member:
    """Member of a group, of either protocol. It has at most one request in flight.

    assigned  partitions; empty before the first assignment and while the member rejoins
    """

    def __init__(self, broker: Running, group: str, topic: str) -> None:
        self.wire = Wire(broker)
        self.group = group
        self.topic = topic
        self.assigned: list[int] = []
        self.is_waiting = False

    @property
    def has_joined(self) -> bool:
        """True if the member may send heartbeats."""
        raise NotImplementedError

    def join_request(self) -> tuple[Request, int]:
        """The request to join the group, and its version."""
        raise NotImplementedError

    def begin(self) -> None:
        """Join the group."""
        self.assigned = []
        self.send(*self.join_request())

    def beat(self) -> None:
        """Send a heartbeat."""
        raise NotImplementedError

    def received(self, answer: Any) -> None:
        """Answer what the broker says."""
        raise NotImplementedError

    def leave(self) -> None:
        """Leave the group."""
        raise NotImplementedError

    def send(self, request: Request, version: int) -> None:
        self.is_waiting = True
        self.wire.send(request, version)


class ClassicMember(Member):
    """Member of the classic protocol; the leader assigns partition i to the i-th member."""

    def __init__(self, broker: Running, group: str, topic: str, session_timeout_ms: int = 45_000) -> None:
        super().__init__(broker, group, topic)
        self.session_timeout_ms = session_timeout_ms
        self.member_id = ""
        self.generation = -1

    @property
    def has_joined(self) -> bool:
        return bool(self.assigned)

    def join_request(self) -> tuple[Request, int]:
        protocol = JoinGroupRequestProtocol(name="p", metadata=b"m")
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=60_000,
            member_id=self.member_id,
            protocol_type="bench",
            protocols=[protocol],
        )
        return request, _MEMBER_IDS_GIVEN

    def beat(self) -> None:
        request = HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.member_id)
        self.send(request, 3)

    def received(self, answer: Any) -> None:
        if isinstance(answer, LeaveGroupResponse):
            return
        if answer.error_code == REBALANCE_IN_PROGRESS:
            self.begin()
            return
        assert answer.error_code == 0, answer
        if isinstance(answer, JoinGroupResponse):
            self.member_id, self.generation = answer.member_id, answer.generation_id
            parts = [
                SyncGroupRequestAssignment(member_id=row.member_id, assignment=b"%d" % number)
                for number, row in enumerate(answer.members)
            ]
            request = SyncGroupRequest(
                group_id=self.group, generation_id=self.generation, member_id=self.member_id, assignments=parts
            )
            self.send(request, 2)
        elif not isinstance(answer, HeartbeatResponse):
            self.assigned = [int(answer.assignment)]

    def leave(self) -> None:
        self.send(LeaveGroupRequest(group_id=self.group, member_id=self.member_id), 2)


class ConsumerMember(Member):
    """Member of the consumer protocol; it gives partitions back at once."""

    def __init__(self, broker: Running, group: str, topic: str) -> None:
        super().__init__(broker, group, topic)
        self.member_id = str(uuid.uuid4())
        self.epoch = 0
        self.topics: list[TopicPartitions] = []

    @property
    def has_joined(self) -> bool:
        return self.epoch > 0

    def join_request(self) -> tuple[Request, int]:
        return self._request(rebalance_timeout_ms=60_000, subscribed_topic_names=[self.topic], topic_partitions=[])

    def beat(self) -> None:
        self._ask()

    def received(self, answer: Any) -> None:
        if self.epoch == -1:
            return
        assert answer.error_code == 0, answer
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.topics = answer.assignment.topic_partitions
            self.assigned = [index for row in self.topics for index in row.partitions]
            self._ask(topic_partitions=self.topics)

    def leave(self) -> None:
        self.epoch = -1
        self._ask()

    def _request(self, **fields: Any) -> tuple[Request, int]:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, member_epoch=self.epoch, **fields
        )
        return request, 1

    def _ask(self, **fields: Any) -> None:
        self.send(*self._request(**fields))


class Group:
    """The members, which answer the broker at once and send heartbeats evenly."""

    def __init__(self, members: list[Member]) -> None:
        self.members = members
        self._ready = selectors.DefaultSelector()
        for member in members:
            self._ready.register(member.wire.socket, selectors.EVENT_READ, member)
        self._beats: list[tuple[float, int]] = []

    def start(self) -> float:
        """Send all requests to join, which are encoded before; return when the first one was sent."""
        frames = [member.wire.prepared(*member.join_request()) for member in self.members]
        begun = time.perf_counter()
        for number, (member, frame) in enumerate(zip(self.members, frames, strict=True)):
            member.is_waiting = True
            member.wire.socket.sendall(frame)
            heapq.heappush(self._beats, (begun + EVERY_S * (1 + number / len(self.members)), number))
        return begun

    def run_until(self, is_done: Callable[[list[Member]], bool], begun: float) -> float:
        """Serve all members; return the seconds from `begun` until `is_done` holds of those that have not left."""
        while not is_done(self.members):
            assert time.perf_counter() - begun < 120, sorted(len(member.assigned) for member in self.members)
            for key, _ in self._ready.select(max(0.0, self._beats[0][0] - time.perf_counter())):
                member = key.data
                member.is_waiting = False
                member.received(member.wire.receive())
            self._beat()
        return time.perf_counter() - begun

    def _beat(self) -> None:
        now = time.perf_counter()
        while self._beats[0][0] <= now:
            _, number = heapq.heappop(self._beats)
            heapq.heappush(self._beats, (now + EVERY_S, number))
            member = self.members[number]
            if member.has_joined and not member.is_waiting:
                member.beat()

    def drop_last(self) -> None:
        """Let the last member leave."""
        member = self.members[-1]
        while member.is_waiting:
            member.is_waiting = False
            member.received(member.wire.receive())
        member.leave()
        answer = member.wire.receive()
        assert answer.error_code == 0, answer
        self._ready.unregister(member.wire.socket)
        self.members = self.members[:-1]
        self._beats = [row for row in self._beats if row[1] < len(self.members)]
        heapq.heapify(self._beats)
        member.wire.close()

    def end(self) -> None:
        for member in self.members:
            member.wire.close()


def _is_covered(members: list[Member]) -> bool:
    """Return True if every partition has exactly one member, and the members of the classic protocol one generation."""
    if any(not member.assigned for member in members):
        return False
    if isinstance(members[0], ClassicMember):
        generations = {member.generation for member in members if isinstance(member, ClassicMember)}
        return len(generations) == 1 and len({member.assigned[0] for member in members}) == len(members)
    return sorted(index for member in members for index in member.assigned) == list(range(MEMBERS))


def cold_start(broker: Running, topic: str, kind: type[Member]) -> dict[str, float]:
    """Seconds until all members have their assignment, and until the others have it after one has left."""
    name = f"load-{uuid.uuid4().hex[:8]}"
    group = Group([kind(broker, name, topic) for _ in range(MEMBERS)])
    cpu = broker.cpu_seconds()
    figures = {"start s": group.run_until(_is_covered, group.start())}
    figures["start CPU s"] = broker.cpu_seconds() - cpu
    cpu = broker.cpu_seconds()
    generations = {member.generation for member in group.members if isinstance(member, ClassicMember)}
    group.drop_last()

    def is_settled(members: list[Member]) -> bool:
        moved = all(member.generation not in generations for member in members if isinstance(member, ClassicMember))
        return moved and _is_covered(members)

    figures["leave s"] = group.run_until(is_settled, time.perf_counter())
    figures["leave CPU s"] = broker.cpu_seconds() - cpu
    group.end()
    return figures
