"""Random actions of members of both protocols: no partition has two owners, and the log has the whole state."""

from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.coordinators.groups import routing as membership
from ottla.coordinators.groups.classic.embedded import decode_assignment, encode_assignment
from ottla.coordinators.groups.consumer import heartbeat as consumer_heartbeat
from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.coordinators.groups.state import Bounded, ConsumerSettings, Groups, GroupSettings
from ottla.protocol import errors
from ottla.protocol.codec import encode
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolSubscription, TopicPartition
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.tasks.deferred import Deferred
from tests.queues import unexpected

from .test_consumer_transcripts import image
from .world import World

SEEDS = st.integers(0, 2**32)
VERBS = (
    ["beat"] * 8 + ["enter"] * 3 + ["join", "sync"] * 3 + ["quit", "away", "leave", "wait", "fail", "restart", "topics"]
)
REFUSED = (errors.UNKNOWN_MEMBER_ID, errors.FENCED_MEMBER_EPOCH, errors.FENCED_INSTANCE_ID, errors.GROUP_ID_NOT_FOUND)

Partitions = dict[bytes, set[int]]


class Client:
    """One consumer that speaks one protocol at a time, and does as it is told."""

    def __init__(self, name: str, instance: str | None) -> None:
        self.name = name
        self.instance = instance
        self.lives = 0
        self.member_id = ""
        self.epoch = 0
        self.is_classic = False
        self.owned: Partitions = {}

    def abandon(self) -> None:
        self.epoch, self.owned = 0, {}


class Party:
    """Five clients, two of them static, in one group."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        consumer = ConsumerSettings(assignment_interval_ms=Bounded(self.random.choice((0, 0, 50)), 0, 50), max_size=5)
        self.world = World(GroupSettings(initial_rebalance_delay_ms=0, consumer=consumer))
        self.revision = 0
        self.clients = [Client(f"c{number}", f"i{number}" if number < 2 else None) for number in range(5)]
        self.waiting: list[Deferred[Any]] = []
        self.change_topics()

    def play(self, steps: int = 80) -> None:
        for _ in range(steps):
            self.step(self.random.choice(VERBS), self.random.choice(self.clients))
            check(self.world.groups)

    def change_topics(self) -> None:
        self.revision += 1
        topics = {name: self.random.randint(1, 5) for name in "tu" if self.random.random() < 0.8}
        changed = self.world.topology.advance(image(self.revision, topics))
        self.world.groups.topics_changed(changed)

    def step(self, verb: str, client: Client) -> None:
        world = self.world
        if verb == "wait":
            world.advance(world.clock.now + self.random.choice((10, 100, 1_000, 11_000, 46_000)))
        elif verb == "fail":
            world.log.fails_with = self.random.choice((errors.NONE, errors.NONE, errors.NOT_ENOUGH_REPLICAS))
        elif verb == "restart":
            if self.random.random() < 0.5:
                self.restart()
        elif verb == "topics":
            self.change_topics()
        else:
            count = len(world.log.records)
            getattr(self, verb)(client)
            if world.log.fails_with != errors.NONE:
                assert len(world.log.records) == count

    def restart(self) -> None:
        """The log alone says the same as the memory did, of a consumer group; so does a compacted one."""
        self.waiting.clear()
        if self.random.random() < 0.5:
            self.world.log.compact(drop_tombstones=self.random.random() < 0.5)
        before = {group_id: snapshot(group) for group_id, group in self.world.groups.consumer_groups.items()}
        self.world.start()
        after = {group_id: snapshot(group) for group_id, group in self.world.groups.consumer_groups.items()}
        assert after == before

    # What clients do.

    def heartbeat(self, client: Client, **fields: Any) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=client.member_id,
            **({"instance_id": client.instance, "member_epoch": client.epoch} | fields),
        )
        answer = self.world.run(consumer_heartbeat.heartbeat, request, 1)
        assert not isinstance(answer, Deferred)
        if answer.error_code in REFUSED:
            client.abandon()
        if answer.error_code != errors.NONE:
            return
        client.epoch = max(answer.member_epoch, 0)
        if answer.assignment is not None:
            client.owned = {topic.topic_id: set(topic.partitions) for topic in answer.assignment.topic_partitions}
        elif answer.member_epoch < 0:
            client.owned = {}

    def enter(self, client: Client) -> None:
        if client.epoch and not client.is_classic:
            return
        client.lives += 1
        client.member_id = f"{client.name}-{client.lives}"
        client.is_classic = False
        client.abandon()
        topics = self.random.choice((["t"], ["t", "u"], ["u"]))
        regex = "t|u" if self.random.random() < 0.2 else None
        self.heartbeat(
            client,
            member_epoch=0,
            rebalance_timeout_ms=5_000,
            topic_partitions=[],
            subscribed_topic_names=topics,
            subscribed_topic_regex=regex,
            server_assignor=self.random.choice((None, None, "range")),
        )

    def beat(self, client: Client) -> None:
        if client.is_classic:
            self.classic_beat(client)
        elif client.epoch:
            fields: dict[str, Any] = {}
            if self.random.random() < 0.7:
                fields["topic_partitions"] = [
                    TopicPartitions(topic_id=topic_id, partitions=sorted(parts))
                    for topic_id, parts in client.owned.items()
                ]
            if self.random.random() < 0.1:
                fields["subscribed_topic_names"] = self.random.choice((["t"], ["t", "u"], ["u"]))
            self.heartbeat(client, **fields)

    def quit(self, client: Client) -> None:
        if client.epoch and not client.is_classic:
            self.heartbeat(client, member_epoch=-1)
            client.abandon()

    def away(self, client: Client) -> None:
        if client.epoch and not client.is_classic and client.instance is not None:
            self.heartbeat(client, member_epoch=-2)
            client.abandon()

    def join(self, client: Client) -> None:
        if client.epoch and not client.is_classic:
            return
        if not client.is_classic:
            client.member_id = ""
        client.is_classic = True
        names = {topic.id: name for name, topic in self.world.topology.image.topics.items()}
        owned = [
            TopicPartition(topic=names[topic_id], partitions=sorted(parts))
            for topic_id, parts in client.owned.items()
            if topic_id in names
        ]
        metadata = b"\0\1" + encode(ConsumerProtocolSubscription(topics=["t", "u"], owned_partitions=owned), 1)
        request = JoinGroupRequest(
            group_id="g",
            member_id=client.member_id,
            group_instance_id=client.instance,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=5_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
        )
        self.run(membership.join, request, lambda answer: self.joined(client, answer))

    def joined(self, client: Client, answer: Any) -> None:
        if answer.error_code in REFUSED:
            client.abandon()
            client.member_id = ""
        elif answer.error_code == errors.MEMBER_ID_REQUIRED:
            client.member_id = answer.member_id
        elif answer.error_code == errors.NONE:
            client.member_id, client.epoch = answer.member_id, answer.generation_id

    def sync(self, client: Client) -> None:
        if not client.is_classic or not client.epoch:
            return
        shares = [
            SyncGroupRequestAssignment(
                member_id=member.member_id, assignment=encode_assignment({"t": [place]}, b"\0\1")
            )
            for place, member in enumerate(self.clients)
            if member.member_id
        ]
        request = SyncGroupRequest(
            group_id="g",
            member_id=client.member_id,
            group_instance_id=client.instance,
            generation_id=client.epoch,
            assignments=shares,
        )
        self.run(membership.sync, request, lambda answer: self.synced(client, answer))

    def synced(self, client: Client, answer: Any) -> None:
        if answer.error_code in REFUSED:
            client.abandon()
            client.member_id = ""
        elif answer.error_code == errors.NONE and answer.assignment:
            topics = self.world.topology.image.topics
            client.owned = {
                topics[part.topic].id: set(part.partitions)
                for part in decode_assignment(answer.assignment).assigned_partitions
                if part.topic in topics
            }

    def classic_beat(self, client: Client) -> None:
        request = HeartbeatRequest(
            group_id="g", member_id=client.member_id, group_instance_id=client.instance, generation_id=client.epoch
        )
        answer = self.world.now(membership.heartbeat, request, 4)
        if answer.error_code == errors.REBALANCE_IN_PROGRESS:
            self.join(client)
        elif answer.error_code in REFUSED:
            client.abandon()
            client.member_id = ""

    def leave(self, client: Client) -> None:
        if client.is_classic and client.member_id:
            who = [MemberIdentity(member_id=client.member_id, group_instance_id=client.instance)]
            self.run(membership.leave, LeaveGroupRequest(group_id="g", members=who), lambda answer: None)
            client.abandon()
            client.member_id = ""

    def run(self, operation: Any, request: Any, then: Any) -> None:
        answer = self.world.run(operation, request, 5)
        if isinstance(answer, Deferred):
            self.waiting.append(answer)
            answer.then(then, unexpected)
        else:
            then(answer)


def snapshot(group: ConsumerGroup) -> Any:
    """All that the log says about a group."""
    members = {
        member_id: (member.description, member.current, group.targets.get(member_id))
        for member_id, member in group.members.items()
    }
    owners = {topic_id: dict(sorted(parts.items())) for topic_id, parts in group.owners.items()}
    return (
        (group.epoch, group.target_epoch, group.target_timestamp, group.metadata_hash),
        (members, group.static, group.resolved, owners, sorted(group.targets)),
    )


def check(groups: Groups) -> None:
    """Check that no partition has two owners, and that the group's state agrees with its members'."""
    assert not groups.groups.keys() & groups.consumer_groups.keys()
    for group in groups.consumer_groups.values():
        owners: dict[tuple[bytes, int], str] = {}
        for member_id, member in group.members.items():
            for owned in (member.current.assigned, member.current.revoking):
                for topic_id, partitions in owned.items():
                    for partition in partitions:
                        assert owners.setdefault((topic_id, partition), member_id) == member_id
            if member.description.instance_id is not None:
                assert group.static[member.description.instance_id] == member_id
        books = {(topic, part): who for topic, parts in group.owners.items() for part, who in parts.items()}
        assert books == owners
        assert group.targets.keys() <= group.members.keys()
        dealt = [
            (topic_id, partition)
            for target in group.targets.values()
            for topic_id, partitions in target.items()
            for partition in partitions
        ]
        assert len(dealt) == len(set(dealt))
        assert group.epoch >= group.target_epoch
        assert set(group.resolved) <= {member.description.regex for member in group.members.values()}


@settings(max_examples=250, deadline=None)
@given(SEEDS)
def test_no_partition_has_two_owners(seed: int) -> None:
    party = Party(seed)
    party.play()
    party.world.log.fails_with = errors.NONE
    party.restart()


@settings(max_examples=150, deadline=None)
@given(SEEDS)
def test_a_group_becomes_stable(seed: int) -> None:
    """After a while with heartbeats only, members have their assignments, and every subscribed partition has an owner."""
    party = Party(seed)
    party.play(50)
    world = party.world
    world.log.fails_with = errors.NONE
    world.advance(world.clock.now + 60_000)
    for client in party.clients:
        client.abandon()
        client.is_classic = False
    for _ in range(8):
        world.advance(world.clock.now + 4_000)
        for client in party.clients:
            if not client.epoch:
                party.enter(client)
            else:
                owned = [
                    TopicPartitions(topic_id=topic_id, partitions=sorted(parts))
                    for topic_id, parts in client.owned.items()
                ]
                party.heartbeat(client, topic_partitions=owned)
    group = world.groups.consumer_groups["g"]
    assert group.state == "Stable"
    assert len(group.members) == 5
    images = world.topology.image.topics
    has = {
        (topic_id, partition)
        for member in group.members.values()
        for topic_id, partitions in member.current.assigned.items()
        for partition in partitions
    }
    expected = {
        (topic.id, partition)
        for name, topic in images.items()
        if group.is_subscribed(name)
        for partition in range(len(topic.partitions))
    }
    assert has == expected
    for client in party.clients:
        current = group.members[client.member_id].current
        assert client.owned == {topic_id: set(parts) for topic_id, parts in current.assigned.items()}
