"""Groups that move from one protocol to the other while they live (KIP-848), over a socket."""

from typing import Any

import pytest

from ottla.protocol.codec import decode, encode
from ottla.protocol.errors import (
    FENCED_INSTANCE_ID,
    GROUP_ID_NOT_FOUND,
    ILLEGAL_GENERATION,
    INCONSISTENT_GROUP_PROTOCOL,
    MEMBER_ID_REQUIRED,
    NONE,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    name_of,
)
from ottla.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from ottla.protocol.messages.join_group import JoinGroupRequest

from .conftest import Topic, TopicFactory, Wire
from .consumers import Consumer, configure, described_consumers, joining, settle
from .members import Member, described, join_request, new_group, stable, wait_for

API = JoinGroupRequest


def subscription(*topics: str, version: int = 3, owned: dict[str, list[int]] | None = None) -> bytes:
    content = ConsumerProtocolSubscription(
        topics=list(topics),
        owned_partitions=[TopicPartition(topic=name, partitions=parts) for name, parts in (owned or {}).items()],
    )
    return version.to_bytes(2, "big") + encode(content, version)


def assignment(topic: str, *partitions: int, version: int = 3, user_data: bytes | None = None) -> bytes:
    content = ConsumerProtocolAssignment(
        assigned_partitions=[ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=list(partitions))],
        user_data=user_data,
    )
    return version.to_bytes(2, "big") + encode(content, version)


def partitions_in(data: bytes) -> dict[str, set[int]]:
    version = int.from_bytes(data[:2], "big")
    decoded, _ = decode(ConsumerProtocolAssignment, version, data, 2)
    return {row.topic: set(row.partitions) for row in decoded.assigned_partitions}


def classic_group(broker: Wire, topic: Topic, partitions: int, count: int = 1, **fields: Any) -> list[Member]:
    """A stable classic group; its first member leads, and deals the partitions out in turn."""
    group_id = new_group(broker)
    configure(broker, group_id, consumer_assignment_interval_ms="0")
    members = [Member(broker, group_id, **fields) for _ in range(count)]
    protocols = [("range", subscription(topic.name))]
    for member in members:
        member.send_join(protocols=protocols)
        if member is members[0]:
            member.receive_join()
    if count > 1:
        wait_for(lambda: len(described(broker, group_id).members) == count)
        members[0].send_join(protocols=protocols)
        for member in members:
            assert member.receive_join().error_code == NONE
    shares = {
        member.member_id: assignment(topic.name, *range(number, partitions, count))
        for number, member in enumerate(members)
    }
    for member in members[1:]:
        member.wire.send_only(member.sync_request(), 5)
    assert members[0].sync(shares).error_code == NONE
    for member in members[1:]:
        assert member.wire.receive().error_code == NONE
    return members


def rejoin(member: Member, topic: Topic, owned: list[int] | None = None) -> Any:
    """Join again, with what the member has; then fetch the assignment."""
    parts = {topic.name: owned} if owned is not None else {}
    answer = member.join(protocols=[("range", subscription(topic.name, owned=parts))])
    assert answer.error_code == NONE, name_of(answer.error_code)
    return member.sync()


def test_an_empty_classic_group_becomes_a_consumer_group(broker: Wire, topic: Topic) -> None:
    (classic,) = classic_group(broker, topic, 1)
    classic.leave()
    member = Consumer(broker, classic.group_id)
    assert member.join(topic.name).error_code == NONE
    assert member.partitions_of(topic) == {0}
    group = described_consumers(broker, classic.group_id)
    assert (group.group_state, group.group_epoch) == ("Stable", 2)
    assert described(broker, classic.group_id).group_state == "Dead"


def test_an_empty_consumer_group_becomes_a_classic_group(broker: Wire, topic: Topic) -> None:
    group_id = new_group(broker)
    consumer = Consumer(broker, group_id)
    consumer.join(topic.name)
    consumer.leave()
    classic = Member(broker, group_id)
    stable(broker, classic)
    assert (classic.generation, described(broker, group_id).group_state) == (1, "Stable")
    assert described_consumers(broker, group_id).error_code == GROUP_ID_NOT_FOUND


def test_a_live_classic_group_is_upgraded_and_downgraded(broker: Wire, make_topic: TopicFactory) -> None:
    topic = make_topic(4)
    (classic,) = classic_group(broker, topic, 4)
    group_id = classic.group_id
    consumer = Consumer(broker, group_id)
    answer = consumer.join(topic.name)
    assert (answer.error_code, answer.member_epoch, consumer.assigned) == (NONE, 2, {})
    group = described_consumers(broker, group_id)
    assert (group.group_state, group.group_epoch) == ("Reconciling", 2)
    assert classic.heartbeat() == "REBALANCE_IN_PROGRESS"
    # A cooperative member says what it has, gives back what it must not have any more, and joins again.
    first = classic.join(protocols=[("range", subscription(topic.name, owned={topic.name: [0, 1, 2, 3]}))])
    assert (first.error_code, first.generation_id, first.leader, first.members) == (NONE, 1, "", [])
    assert (first.protocol_type, first.protocol_name) == ("consumer", "range")
    kept = partitions_in(classic.sync().assignment)[topic.name]
    assert len(kept) == 2
    assert classic.heartbeat() == "REBALANCE_IN_PROGRESS"
    assert partitions_in(rejoin(classic, topic, sorted(kept)).assignment) == {topic.name: kept}
    assert (classic.generation, classic.heartbeat()) == (2, "NONE")
    settle(broker, group_id, consumer)
    assert consumer.partitions_of(topic) == {0, 1, 2, 3} - kept
    assert consumer.leave().error_code == NONE
    assert described_consumers(broker, group_id).error_code == GROUP_ID_NOT_FOUND
    assert described(broker, group_id).group_state == "PreparingRebalance"
    assert classic.heartbeat() == "REBALANCE_IN_PROGRESS"
    again = classic.join(protocols=[("range", subscription(topic.name))])
    assert (again.generation_id, again.leader) == (3, classic.member_id)
    assert classic.sync({classic.member_id: b"x"}).assignment == b"x"


def test_an_eager_member_gives_everything_back(broker: Wire, make_topic: TopicFactory) -> None:
    topic = make_topic(2)
    (classic,) = classic_group(broker, topic, 2)
    consumer = Consumer(broker, classic.group_id)
    consumer.join(topic.name)
    mine = partitions_in(rejoin(classic, topic).assignment)[topic.name]
    assert (classic.generation, len(mine)) == (2, 1)
    settle(broker, classic.group_id, consumer)
    assert consumer.partitions_of(topic) == {0, 1} - mine


def test_a_classic_member_joins_a_consumer_group(broker: Wire, make_topic: TopicFactory) -> None:
    topic, group_id = make_topic(2), new_group(broker)
    configure(broker, group_id, consumer_assignment_interval_ms="0")
    consumer = Consumer(broker, group_id)
    consumer.join(topic.name)
    protocols = [("range", subscription(topic.name))]
    first = broker.send(join_request(group_id, protocols=protocols), 9)
    assert (first.error_code, len(first.member_id)) == (MEMBER_ID_REQUIRED, 22)
    classic = Member(broker, group_id)
    answer = classic.join(protocols=protocols)
    assert (answer.error_code, answer.generation_id, answer.leader) == (NONE, 3, "")
    assert partitions_in(classic.sync().assignment) == {}
    assert classic.heartbeat() == "NONE"
    consumer.beat()
    consumer.beat_with_partitions()
    wait_for(lambda: classic.heartbeat() == "REBALANCE_IN_PROGRESS")
    assert partitions_in(rejoin(classic, topic, []).assignment) == {topic.name: {0, 1} - consumer.partitions_of(topic)}
    assert classic.heartbeat() == "NONE"


def test_a_join_of_version_2_needs_no_member_id(broker: Wire, topic: Topic) -> None:
    group_id = new_group(broker)
    Consumer(broker, group_id).join(topic.name)
    classic = Member(broker, group_id)
    answer = classic.join(2, protocols=[("range", subscription(topic.name, version=0))])
    assert (answer.error_code, answer.protocol_name) == (NONE, "range")
    assert classic.sync().assignment[:2] == b"\0\0"


def test_what_a_consumer_group_refuses_classic_members(broker: Wire, topic: Topic) -> None:
    (classic,) = classic_group(broker, topic, 1)
    group_id = classic.group_id
    consumer = Consumer(broker, group_id, instance="i")
    consumer.join(topic.name)
    wrong: tuple[dict[str, Any], ...] = (
        {"protocol_type": "connect"},
        {"protocols": [("other", subscription(topic.name))]},
        {"protocols": []},
    )
    for fields in wrong:
        refused = broker.send(join_request(group_id, member_id="m", **fields), 9)
        assert (refused.error_code, refused.member_id) == (INCONSISTENT_GROUP_PROTOCOL, "")
    fenced = broker.send(
        join_request(group_id, member_id="x", group_instance_id="i", protocols=[("range", subscription(topic.name))]),
        9,
    )
    assert (fenced.error_code, fenced.member_id) == (FENCED_INSTANCE_ID, "")
    assert classic.sync(generation_id=7).error_code == ILLEGAL_GENERATION
    assert classic.sync(protocol_name="other").error_code == INCONSISTENT_GROUP_PROTOCOL
    assert classic.sync(member_id="nobody").error_code == UNKNOWN_MEMBER_ID
    assert classic.sync(member_id=consumer.member_id, generation_id=2).error_code == UNKNOWN_MEMBER_ID
    assert classic.sync().error_code == REBALANCE_IN_PROGRESS
    stranger = Member(broker, group_id)
    stranger.member_id, stranger.generation = "nobody", 1
    assert stranger.heartbeat() == "UNKNOWN_MEMBER_ID"
    classic.generation = 9
    assert classic.heartbeat() == "ILLEGAL_GENERATION"


def test_classic_members_leave_a_consumer_group(broker: Wire, topic: Topic) -> None:
    one, two = classic_group(broker, topic, 1, count=2)
    consumer = Consumer(broker, one.group_id)
    consumer.join(topic.name)
    left = one.leave()
    assert [row.error_code for row in left.members] == [NONE]
    assert one.leave().members[0].error_code == UNKNOWN_MEMBER_ID
    group = described_consumers(broker, one.group_id)
    assert {row.member_id for row in group.members} == {two.member_id, consumer.member_id}
    two.leave()
    assert len(described_consumers(broker, one.group_id).members) == 1


def test_joins_that_wait_get_rebalance_in_progress_on_the_upgrade(broker: Wire, topic: Topic) -> None:
    (classic,) = classic_group(broker, topic, 1)
    group_id = classic.group_id
    late = Member(broker, group_id)
    late.send_join(protocols=[("range", subscription(topic.name))])
    wait_for(lambda: described(broker, group_id).group_state == "PreparingRebalance")
    consumer = Consumer(broker, group_id)
    assert consumer.join(topic.name).error_code == NONE
    assert late.receive_join().error_code == REBALANCE_IN_PROGRESS
    members = {row.member_id for row in described_consumers(broker, group_id).members}
    assert members == {classic.member_id, late.member_id, consumer.member_id}


@pytest.mark.parametrize("user_data", [b"mine"])
def test_what_a_custom_assignor_made_is_not_upgraded(broker: Wire, topic: Topic, user_data: bytes) -> None:
    group_id = new_group(broker)
    classic = Member(broker, group_id)
    classic.join(protocols=[("range", subscription(topic.name))])
    classic.sync({classic.member_id: assignment(topic.name, 0, user_data=user_data)})
    answer = broker.send(joining(group_id, topic.name), 1)
    assert (answer.error_code, answer.error_message) == (
        GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {group_id} to consumer group because an unsupported custom assignor is in use. "
        "Please refer to the documentation or switch to a default assignor before re-attempting the upgrade.",
    )
    assert classic.heartbeat() == "NONE"


def test_other_classic_groups_are_not_upgraded(broker: Wire, topic: Topic) -> None:
    connect, malformed = new_group(broker), new_group(broker)
    Member(broker, connect).join(protocol_type="connect")
    Member(broker, malformed).join(protocols=[("range", b"")])
    for group_id, why in (
        (connect, "the group does not use the consumer embedded protocol"),
        (malformed, "the embedded consumer protocol is malformed"),
    ):
        answer = broker.send(joining(group_id, topic.name), 1)
        assert (answer.error_code, answer.error_message) == (
            GROUP_ID_NOT_FOUND,
            f"Cannot upgrade classic group {group_id} to consumer group because {why}.",
        )


def test_a_static_member_changes_its_protocol(broker: Wire, make_topic: TopicFactory) -> None:
    topic = make_topic(2)
    (other,) = classic_group(broker, topic, 2)
    group_id = other.group_id
    before = Consumer(broker, group_id, instance="i")
    before.join(topic.name)
    mine = partitions_in(rejoin(other, topic).assignment)[topic.name]
    settle(broker, group_id, before)
    after = Member(broker, group_id, instance="i")
    answer = after.join(protocols=[("range", subscription(topic.name))])
    # The last one that spoke the consumer protocol is gone, and nothing else changed: a classic group, without a rebalance.
    assert (answer.error_code, answer.generation_id, len(answer.member_id)) == (NONE, 2, 22)
    assert described(broker, group_id).group_state == "Stable"
    assert other.heartbeat() == "NONE"
    assert partitions_in(after.sync().assignment)[topic.name] == {0, 1} - mine
    assert before.beat().error_code == GROUP_ID_NOT_FOUND


def test_a_static_classic_member_is_replaced_by_a_consumer(broker: Wire, topic: Topic) -> None:
    (before,) = classic_group(broker, topic, 1, instance="i")
    after = Consumer(broker, before.group_id, instance="i")
    answer = after.join(topic.name)
    assert (answer.error_code, answer.member_epoch) == (NONE, 1)
    assert after.partitions_of(topic) == {0}
    assert before.heartbeat() == "FENCED_INSTANCE_ID"
    (member,) = described_consumers(broker, before.group_id).members
    assert (member.member_id, member.member_type) == (after.member_id, 1)
