"""Whatever members do in whatever order: the group keeps its word."""

from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.coordinators import offsets
from ottla.coordinators.groups.classic import membership as classic
from ottla.coordinators.groups.classic.group import ClassicGroup, State
from ottla.coordinators.groups.state import Groups, GroupSettings
from ottla.protocol import errors
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.tasks.deferred import Deferred
from tests.queues import unexpected

from .world import World

VERBS = ["join"] * 4 + ["sync"] * 5 + ["heartbeat", "leave", "commit", "wait", "fail", "restart"]
SEEDS = st.integers(0, 2**32)
"""Sixty steps are drawn from a seed, weighted so that groups become stable now and then."""


class Party:
    """Five clients, of which the first two are static, and what each was told last."""

    def __init__(self) -> None:
        self.world = World(GroupSettings(initial_rebalance_delay_ms=50, max_size=4))
        self.ids = [""] * 5
        self.generations = [-1] * 5
        self.unanswered: list[Any] = []

    def play(self, seed: int) -> None:
        """Sixty steps; the invariants hold after each."""
        random = Random(seed)
        for _ in range(60):
            verb, who, variant = random.choice(VERBS), random.randrange(5), random.randrange(4)
            if verb == "fail" and random.random() < 0.7:
                variant = 1
            self.step(verb, who, variant)
            check(self.world.groups)

    def step(self, verb: str, who: int, variant: int) -> None:
        world = self.world
        if verb == "wait":
            world.advance(world.clock.now + (10, 100, 3_000, 11_000)[variant])
        elif verb == "fail":
            world.log.fails_with = errors.NONE if variant else errors.NOT_ENOUGH_REPLICAS
        elif verb == "restart":
            if variant == 0:
                self.unanswered.clear()
                world.start()
        else:
            before = logged(world.groups)
            count = len(world.log.records)
            answer = world.run(*self.request(verb, who, variant), version=(3, 5, 9, 4)[variant])
            if world.log.fails_with != errors.NONE:
                assert len(world.log.records) == count
                assert logged(world.groups) == before
            if isinstance(answer, Deferred):
                self.unanswered.append(answer)
                answer.then(lambda response: self.hear(who, response), unexpected)
            else:
                self.hear(who, answer)

    def hear(self, who: int, response: Any) -> None:
        code = getattr(response, "error_code", None)
        if type(response).__name__ != "JoinGroupResponse":
            return
        if code in (errors.NONE, errors.MEMBER_ID_REQUIRED):
            self.ids[who] = response.member_id
        elif code in (errors.UNKNOWN_MEMBER_ID, errors.FENCED_INSTANCE_ID, errors.GROUP_MAX_SIZE_REACHED):
            self.ids[who] = ""
        if code == errors.NONE:
            self.generations[who] = response.generation_id
            listed = {member.member_id for member in response.members}
            assert (response.leader == response.member_id) == bool(listed)
            assert not listed or response.member_id in listed

    def request(self, verb: str, who: int, variant: int) -> tuple[Any, Any]:
        instance = f"i{who}" if who < 2 and variant in (1, 2) else None
        member_id, generation = self.ids[who], self.generations[who]
        if verb == "join":
            protocols = [[("range", b"")], [("range", b"x"), ("sticky", b"")], [("sticky", b""), ("range", b"")]]
            fields: dict[str, Any] = {
                "group_id": "g",
                "session_timeout_ms": 6_000 + 1_000 * who,
                "member_id": member_id,
            }
            if instance is not None:
                fields |= {"group_instance_id": instance, "member_id": "" if variant == 1 else member_id}
            return classic.join, JoinGroupRequest(
                **fields,
                rebalance_timeout_ms=5_000,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name=n, metadata=m) for n, m in protocols[(who + variant) % 3]],
            )
        if verb == "sync":
            assignments = [
                SyncGroupRequestAssignment(member_id=recipient, assignment=recipient.encode())
                for recipient in self.ids
                if recipient
            ]
            return classic.sync, SyncGroupRequest(
                group_id="g",
                member_id=member_id,
                generation_id=generation,
                group_instance_id=instance,
                assignments=assignments,
                protocol_type="consumer",
                protocol_name="range" if variant % 2 else "sticky",
            )
        if verb == "heartbeat":
            return classic.heartbeat, HeartbeatRequest(group_id="g", member_id=member_id, generation_id=generation)
        if verb == "leave":
            who_leaves = MemberIdentity(member_id=member_id, group_instance_id=instance)
            return classic.leave, LeaveGroupRequest(group_id="g", members=[who_leaves], member_id=member_id)
        partition = OffsetCommitRequestPartition(partition_index=variant, committed_offset=who)
        return offsets.commit, OffsetCommitRequest(
            group_id="g",
            member_id=member_id,
            generation_id_or_member_epoch=generation,
            topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])],
        )


def logged(groups: Groups) -> Any:
    """Return the state that only the log determines: the offsets."""
    return {
        (group, topic, partition): value.offset
        for group, topics in groups.offsets.items()
        for topic, partitions in topics.items()
        for partition, value in partitions.items()
    }


def snapshot(group: ClassicGroup) -> Any:
    return (
        group.state,
        group.generation,
        group.protocol,
        group.protocol_type,
        group.leader,
        [(m.member_id, m.instance_id, m.assignment, m.session_timeout_ms) for m in group.members.values()],
    )


def check(groups: Groups) -> None:
    for group in groups.groups.values():
        members = group.members
        if group.state is State.EMPTY:
            assert not members
        elif members:
            for name in ("range", "sticky"):
                everyone = all(name in dict(member.protocols) for member in members.values())
                assert group.supports(group.protocol_type or "", [name]) == everyone
        if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
            assert members
            assert group.leader in members
            assert all(m.join is None for m in members.values())
            assert all(group.protocol in [name for name, _ in m.protocols] for m in members.values())
        if group.state is not State.COMPLETING_REBALANCE:
            assert all(m.sync is None for m in members.values())
        assert group.pending_sync <= members.keys()
        assert not group.pending_members & members.keys()
        instances = [m.instance_id for m in members.values() if m.instance_id is not None]
        assert len(instances) == len(set(instances))


@settings(max_examples=200, deadline=None)
@given(SEEDS)
def test_random_members_never_break_a_group(seed: int) -> None:
    party = Party()
    party.play(seed)
    world = party.world
    # What the log says is what is there, wherever no rebalance is under way.
    world.log.fails_with = errors.NONE
    live = world.groups
    world.start()
    assert logged(world.groups) == logged(live)
    for group_id, group in live.groups.items():
        if group.state is State.STABLE:
            assert snapshot(world.groups.groups[group_id]) == snapshot(group)


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_every_request_is_answered(seed: int) -> None:
    party = Party()
    party.play(seed)
    party.world.log.fails_with = errors.NONE
    party.world.advance(party.world.clock.now + 1_200_000)
    assert all(answer.done for answer in party.unanswered)
    check(party.world.groups)
    assert all(group.is_empty for group in party.world.groups.groups.values())
