"""Member of a classic consumer group: members join, the leader assigns the partitions, all members sync.

    join (rejoined in every rebalance) --> the leader assigns --> sync --> heartbeats ... REBALANCE_IN_PROGRESS --> join

A member joins a rebalance only while the application is inside `poll`, so that no partition is revoked while its records are
processed. With eager assignors members revoke all partitions before they join; with cooperative ones only those that move to
another member (KIP-429), and then they join again. A member that does not poll for max.poll.interval.ms leaves.
"""

import contextlib
import re
from collections.abc import Mapping
from typing import Final, TypeVar

from ottla.client.consumer.assignors import ASSIGNORS, Racks, SubscribedMember, assignor_names
from ottla.client.consumer.poll_watch import PollWatch
from ottla.client.consumer.rebalance import AssignmentChange, MemberConsumer, PollTimeout
from ottla.client.coordinator import GROUP, CoordinatorClient
from ottla.client.core import Core
from ottla.client.errors import InvalidClientConfig, KafkaError, NotAuthorized, UnsupportedVersion
from ottla.client.groups import GroupMetadata
from ottla.client.topics import TopicPartition
from ottla.net.connection import Link
from ottla.protocol import codec
from ottla.protocol import errors as table
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolAssignmentTopicPartition as AssignedTopic
from ottla.protocol.messages.consumer_protocol import TopicPartition as OwnedTopic
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.sticky_assignor_user_data import PreviousTopic, StickyAssignorUserData
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.protocol.releases import needs
from ottla.protocol.schema import Response
from ottla.protocol.wire import PeerError
from ottla.tasks.deferred import Deferred
from ottla.tasks.scheduler import Cancelled, Task
from ottla.tasks.signal import Signal

R = TypeVar("R", bound=Response)
_NO_GENERATION: Final = -1
_PROTOCOL_TYPE: Final = "consumer"
_SUBSCRIPTION_VERSION: Final = 3
_ASSIGNMENT_VERSION: Final = 0
_REJOIN_CODES: Final = frozenset({table.UNKNOWN_MEMBER_ID, table.ILLEGAL_GENERATION})
_OLDEST_WITH_STATIC_MEMBERS: Final = 5  # KIP-345
_COOPERATIVE: Final = "cooperative-sticky"
_STICKY: Final = "sticky"


class ClassicMembership:
    """Membership in one classic group."""

    def __init__(self, core: Core, consumer: MemberConsumer) -> None:
        config = core.config
        self.error: BaseException | None = None
        try:
            self._assignors = assignor_names(config["partition.assignment.strategy"])
        except ValueError as error:
            raise InvalidClientConfig(f"partition.assignment.strategy: {error}") from None
        self._cooperative = self._assignors == [_COOPERATIVE]
        self._core = core
        self._consumer = consumer
        self._group_id: str = config["group.id"]
        self._coordinator = CoordinatorClient(core.metadata, GROUP, self._group_id)
        self._instance_id: str | None = config["group.instance.id"]
        self._member_id = ""
        self._generation = _NO_GENERATION
        self._topics: list[str] = []
        self._pattern: re.Pattern[str] | None = None
        self._owned: list[TopicPartition] = []
        self._rejoin = True
        self._task: Task[None] | None = None
        self._joining: Link | None = None
        """Connection of the pending JoinGroup or SyncGroup request."""
        self._resubscribed = Signal(core.scheduler)
        self._previous: tuple[list[TopicPartition], int] = ([], _NO_GENERATION)
        """The last assignment and its generation, for the sticky assignor."""
        self._looked_at = 0
        self._poll_watch = PollWatch(core, consumer)
        self._seen: dict[str, tuple[Racks, ...]] = {}

    @property
    def metadata(self) -> GroupMetadata:
        """Return the ids and generation of the member."""
        return GroupMetadata(self._group_id, self._generation, self._member_id, self._instance_id)

    def subscribe(self, topics: list[str], pattern: str | None) -> None:
        """Subscribe to these topics, or to those whose whole name matches, in place of the previous subscription."""
        self._topics = sorted(set(topics))
        self._pattern = None if pattern is None else re.compile(pattern)
        self._rejoin = True
        self.error = None
        self._poll_watch.restart()
        if self._task is None:
            self._task = self._core.scheduler.background(self._run_membership(), "group membership")
        self._resubscribed.happen()

    async def leave(self) -> None:
        """Leave the group; a static member stays until its session times out."""
        if self._task is None:
            return
        self._task.cancel()
        self._task = None
        if self._joining is not None:
            # Responses of a connection are in order: LeaveGroup would wait for the end of the rebalance.
            self._joining.close()
            self._joining = None
        with contextlib.suppress(KafkaError):  # its session times out instead
            await self._send_leave()
        self._forget()
        self._owned = []

    def _forget(self) -> None:
        self._member_id = ""
        self._generation = _NO_GENERATION
        self._rejoin = True

    # -- main loop --

    async def _run_membership(self) -> None:
        failures = 0
        config = self._core.config
        while True:
            again = self._resubscribed.wait()
            try:
                if self._rejoin:
                    begun_ms = self._core.clock.now_ms()
                    await self._rebalance()
                    self._consumer.on_rebalanced(self._core.clock.now_ms() - begun_ms)
                else:
                    self._poll_watch.check()
                    await self._heartbeat()
                failures = 0
                if not self._rejoin:
                    await self._poll_watch.wait(again, config["heartbeat.interval.ms"])
            except Cancelled:
                raise
            except PollTimeout:
                await self._stop_until_polled()
            except KafkaError as error:
                if error.code == table.REBALANCE_IN_PROGRESS:
                    self._rejoin = True
                    continue
                if error.code in _REJOIN_CODES:
                    self._forget()
                    await self._drop_all()
                elif not error.retriable:
                    # A member that was denied stays in the group until its session ends: another one would wait for that.
                    if not isinstance(error, NotAuthorized):
                        self._forget()
                    await self._drop_all()
                    self.error = error
                    self._task = None
                    self._consumer.on_failed()
                    return
                failures += 1
                await self._core.scheduler.sleep(self._core.metadata.backoff_ms(failures))

    async def _notify_consumer(
        self, change: AssignmentChange, partitions: list[TopicPartition], owned: list[TopicPartition]
    ) -> None:
        """Apply a change of partitions at the next poll, and send heartbeats until then. Raises PollTimeout."""
        config = self._core.config
        notification = self._core.scheduler.start(self._consumer.apply_change(change, partitions, owned), "rebalance")
        try:
            while not await self._poll_watch.wait(notification, config["heartbeat.interval.ms"]):
                try:
                    await self._send_heartbeat()
                except KafkaError as error:
                    if error.code != table.REBALANCE_IN_PROGRESS and not error.retriable:
                        raise
            notification.result()
        finally:
            notification.cancel()

    async def _stop_until_polled(self) -> None:
        """Leave the group after max.poll.interval.ms without a poll, and rejoin with the next poll."""
        with contextlib.suppress(KafkaError):  # its session times out instead
            await self._send_leave()
        self._forget()
        await self._drop_all()
        await self._poll_watch.until_polled()

    async def _drop_all(self) -> None:
        lost, self._owned = self._owned, []
        if lost:
            await self._consumer.apply_change(AssignmentChange.LOST, lost, [])

    async def _heartbeat(self) -> None:
        await self._send_heartbeat()
        if await self._topics_changed():
            self._rejoin = True

    async def _send_heartbeat(self) -> None:
        request = HeartbeatRequest(group_id=self._group_id, generation_id=self._generation, member_id=self._member_id)
        link = await self._coordinator.link()
        version = link.version(HeartbeatRequest)
        if version >= 3:
            request.group_instance_id = self._instance_id
        answer = await self._coordinator.response(link.request(request, version))
        self._check(answer.error_code, "heartbeat")

    async def _topics_changed(self) -> bool:
        """Return True if subscribed topics were created, deleted or got partitions since the assignment; checked when metadata
        expires (metadata.max.age.ms)."""
        metadata = self._core.metadata
        now, limit = self._core.clock.now_ms(), self._core.config["metadata.max.age.ms"]
        if self._pattern is not None:
            if now < self._looked_at + limit:
                return False
        # `_seen` lacks topics that do not exist yet.
        elif all(name in self._seen and metadata.known(name) is not None for name in {*self._topics, *self._seen}):
            return False
        # `_seen` of a leader has the topics of other members as well.
        topics = sorted({*await self._find_topics(), *self._seen})
        return self._relevant_racks(await self._partitions_of(topics)) != self._seen

    def _check(self, code: int, about: str) -> None:
        self._coordinator.check(code, f"{about} in group {self._group_id}")

    async def _send_leave(self) -> None:
        if self._instance_id is not None or not self._member_id:
            return
        link = await self._coordinator.link()
        version = link.version(LeaveGroupRequest)
        request = LeaveGroupRequest(group_id=self._group_id)
        if version >= 3:
            request.members = [MemberIdentity(member_id=self._member_id)]
        else:
            request.member_id = self._member_id
        await self._coordinator.response(link.request(request, version))

    # -- rebalance --

    async def _rebalance(self) -> None:
        if self._owned and not self._cooperative:
            await self._notify_consumer(AssignmentChange.REVOKED, self._owned, [])
            self._owned = []
        topics = await self._find_topics()
        self._rejoin = False
        try:
            answer = await self._join(topics)
            self._member_id, self._generation = answer.member_id, answer.generation_id
            assignments: dict[str, bytes] = {}
            self._seen = self._relevant_racks(await self._partitions_of(topics))
            if answer.leader == answer.member_id and not answer.skip_assignment:
                assignments = await self._assignments(answer)
            assigned = await self._sync(answer, assignments)
        except KafkaError:
            self._rejoin = True  # the other members wait for the leader's assignment: rejoin
            raise
        await self._adopt(assigned)

    async def _find_topics(self) -> list[str]:
        if self._pattern is None:
            return self._topics
        self._looked_at = self._core.clock.now_ms()
        infos = await self._core.metadata.all_topics()
        exclude: bool = self._core.config["exclude.internal.topics"]
        return [info.name for info in infos if self._pattern.fullmatch(info.name) and not (exclude and info.internal)]

    async def _join(self, topics: list[str]) -> JoinGroupResponse:
        config = self._core.config
        link = await self._coordinator.link()
        version = link.version(JoinGroupRequest)
        if self._instance_id is not None and version < _OLDEST_WITH_STATIC_MEMBERS:
            raise UnsupportedVersion(
                f"{link} is too old for group.instance.id{needs(JoinGroupRequest.API, _OLDEST_WITH_STATIC_MEMBERS)}",
                table.UNSUPPORTED_VERSION,
            )
        request = JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=config["session.timeout.ms"],
            rebalance_timeout_ms=config["max.poll.interval.ms"],
            protocol_type=_PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=self._subscription(topics, name))
                for name in self._assignors
            ],
        )
        if version >= _OLDEST_WITH_STATIC_MEMBERS:
            request.group_instance_id = self._instance_id
        timeout_ms = max(config["max.poll.interval.ms"] + 5000, config["request.timeout.ms"])
        for _ in range(2):
            request.member_id = self._member_id
            answer = await self._await_answer(link, link.request(request, version, timeout_ms=timeout_ms))
            if answer.error_code != table.MEMBER_ID_REQUIRED:
                break
            self._member_id = answer.member_id
        if answer.error_code != table.NONE:
            self._rejoin = True
        self._check(answer.error_code, "join")
        return answer

    async def _await_answer(self, link: Link, promise: Deferred[R]) -> R:
        """Await a join or sync, and note its connection so that `leave` can close it."""
        self._joining = link
        try:
            answer = await self._coordinator.response(promise)
        except Cancelled:
            raise  # `leave` closes the connection
        except BaseException:
            self._joining = None
            raise
        self._joining = None
        return answer

    def _subscription(self, topics: list[str], assignor: str) -> bytes:
        owned: dict[str, OwnedTopic] = {}
        for name, index in self._owned:
            owned.setdefault(name, OwnedTopic(topic=name)).partitions.append(index)
        subscription = ConsumerProtocolSubscription(
            topics=topics,
            owned_partitions=list(owned.values()),
            generation_id=self._generation,
            rack_id=self._core.config["client.rack"] or None,
        )
        if assignor == _STICKY:
            subscription.user_data = _previous_data(*self._previous)
        return _SUBSCRIPTION_VERSION.to_bytes(2, "big") + codec.encode(subscription, _SUBSCRIPTION_VERSION)

    async def _assignments(self, answer: JoinGroupResponse) -> dict[str, bytes]:
        """Assign the partitions to the members, as the leader of the group."""
        name = answer.protocol_name or self._assignors[0]
        members = {}
        for member in answer.members:
            subscription = _subscription_of(member.metadata)
            owned, generation = _previous_of(subscription.user_data) if name == _STICKY else _owned_of(subscription)
            members[member.member_id] = SubscribedMember(
                tuple(subscription.topics), owned, generation, member.group_instance_id, subscription.rack_id
            )
        partitions = await self._partitions_of(
            sorted({name for subscriber in members.values() for name in subscriber.topics})
        )
        self._seen.update(self._relevant_racks(partitions))
        assigned = ASSIGNORS[name](members, partitions)
        return {member: _encode_assignment(partitions) for member, partitions in assigned.items()}

    async def _partitions_of(self, topics: list[str]) -> dict[str, tuple[Racks, ...]]:
        """Return the racks of each partition of the topics; missing topics are left out."""
        metadata = self._core.metadata
        missing = [name for name in topics if metadata.known(name) is None]
        if missing:
            await metadata.fetch(missing)
        racks_by_topic = {}
        for name in topics:
            info = metadata.known(name)
            if info is not None:
                racks_by_topic[name] = tuple(metadata.racks_of(info, index) for index in sorted(info.leaders))
        return racks_by_topic

    def _relevant_racks(self, partitions: dict[str, tuple[Racks, ...]]) -> dict[str, tuple[Racks, ...]]:
        """Return the part of the partitions whose change needs a rebalance: racks only if client.rack is set (KIP-881)."""
        if self._core.config["client.rack"]:
            return dict(partitions)
        return {name: (frozenset(),) * len(racks) for name, racks in partitions.items()}

    async def _sync(self, joined: JoinGroupResponse, assignments: Mapping[str, bytes]) -> list[TopicPartition]:
        link = await self._coordinator.link()
        version = link.version(SyncGroupRequest)
        request = SyncGroupRequest(
            group_id=self._group_id,
            generation_id=self._generation,
            member_id=self._member_id,
            protocol_type=_PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=assignment)
                for member, assignment in assignments.items()
            ],
        )
        if version >= 3:
            request.group_instance_id = self._instance_id
        timeout_ms = max(self._core.config["max.poll.interval.ms"] + 5000, self._core.config["request.timeout.ms"])
        answer = await self._await_answer(link, link.request(request, version, timeout_ms=timeout_ms))
        if answer.error_code != table.NONE:
            self._rejoin = True
        self._check(answer.error_code, "sync")
        return _decode_assignment(answer.assignment)

    async def _adopt(self, assigned: list[TopicPartition]) -> None:
        """Apply an assignment. A cooperative member revokes partitions that it lost, and rejoins so that others get them."""
        before = set(self._owned)
        staying = set(assigned)
        revoked = [partition for partition in self._owned if partition not in staying]
        if revoked:
            kept = [partition for partition in self._owned if partition in staying]
            await self._notify_consumer(AssignmentChange.REVOKED, revoked, kept)
            self._owned = kept
            self._rejoin = True
        added = [partition for partition in assigned if partition not in before]
        self._owned = assigned
        self._previous = (list(assigned), self._generation)
        await self._notify_consumer(AssignmentChange.ASSIGNED, added, list(assigned))


def _subscription_of(data: bytes) -> ConsumerProtocolSubscription:
    """Decode the subscription of a member, in the version that its client writes."""
    version = min(int.from_bytes(data[:2], "big"), _SUBSCRIPTION_VERSION)
    subscription, _ = codec.decode(ConsumerProtocolSubscription, version, data, 2)
    return subscription


def _previous_data(assigned: list[TopicPartition], generation: int) -> bytes:
    topics: dict[str, PreviousTopic] = {}
    for name, index in assigned:
        topics.setdefault(name, PreviousTopic(topic=name)).partitions.append(index)
    user_data = StickyAssignorUserData(previous_assignment=list(topics.values()), generation=generation)
    return codec.encode(user_data, 1)


def _owned_of(subscription: ConsumerProtocolSubscription) -> tuple[tuple[TopicPartition, ...], int]:
    """Return the partitions that a member still owns, and their generation. Before version 2 (KIP-792) cooperative members put
    the generation into the user data: four bytes."""
    owned = (
        TopicPartition(topic.topic, index) for topic in subscription.owned_partitions for index in topic.partitions
    )
    generation = subscription.generation_id
    if generation < 0 and subscription.user_data is not None and len(subscription.user_data) == 4:
        generation = int.from_bytes(subscription.user_data, "big", signed=True)
    return tuple(owned), generation


def _previous_of(data: bytes | None) -> tuple[tuple[TopicPartition, ...], int]:
    """Return the partitions that a member of a sticky group had before it gave everything up to join, and their generation;
    nothing if its user data is missing or cannot be decoded."""
    for version in (1, 0):
        with contextlib.suppress(PeerError):
            user_data, end = codec.decode(StickyAssignorUserData, version, data or b"")
            if end == len(data or b""):
                had = (
                    TopicPartition(topic.topic, index)
                    for topic in user_data.previous_assignment
                    for index in topic.partitions
                )
                return tuple(had), user_data.generation
    return (), _NO_GENERATION


def _encode_assignment(partitions: list[TopicPartition]) -> bytes:
    topics: dict[str, AssignedTopic] = {}
    for name, index in partitions:
        topics.setdefault(name, AssignedTopic(topic=name)).partitions.append(index)
    assignment = ConsumerProtocolAssignment(assigned_partitions=list(topics.values()))
    return _ASSIGNMENT_VERSION.to_bytes(2, "big") + codec.encode(assignment, _ASSIGNMENT_VERSION)


def _decode_assignment(data: bytes) -> list[TopicPartition]:
    if len(data) < 2:
        return []
    version = min(int.from_bytes(data[:2], "big"), _SUBSCRIPTION_VERSION)
    assignment, _ = codec.decode(ConsumerProtocolAssignment, version, data, 2)
    return sorted(
        TopicPartition(topic.topic, index) for topic in assignment.assigned_partitions for index in topic.partitions
    )
