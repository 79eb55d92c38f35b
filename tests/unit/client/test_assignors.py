"""Assignors of classic groups: complete, balanced, sticky; and what the sticky one notes, beside kafka-python."""

import warnings
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.client.consumer.assignors import (
    ASSIGNORS,
    Assignment,
    Racks,
    SubscribedMember,
    assign_cooperatively,
    assign_range,
    assign_roundrobin,
    assign_sticky,
    assignor_names,
)
from ottla.client.consumer.classic_member import _owned_of, _previous_of
from ottla.client.topics import TopicPartition
from ottla.protocol import codec
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.protocol.messages.consumer_protocol import TopicPartition as OwnedTopic
from ottla.protocol.messages.sticky_assignor_user_data import PreviousTopic, StickyAssignorUserData

TOPICS = ("a", "b", "c")
COUNTS = st.fixed_dictionaries({topic: st.integers(0, 7) for topic in TOPICS})
SUBSCRIPTIONS = st.dictionaries(
    st.sampled_from([f"m{number}" for number in range(6)]),
    st.lists(st.sampled_from(TOPICS), min_size=1, unique=True).map(tuple),
    min_size=1,
)


def anywhere(counts: Mapping[str, int]) -> dict[str, tuple[Racks, ...]]:
    """Topics whose brokers do not say where they are."""
    return {topic: (frozenset(),) * count for topic, count in counts.items()}


def partitions(assignment: Assignment) -> list[TopicPartition]:
    return sorted(partition for parts in assignment.values() for partition in parts)


def subscribed_partitions(members: dict[str, tuple[str, ...]], counts: dict[str, int]) -> list[TopicPartition]:
    topics = {topic for subscribed in members.values() for topic in subscribed}
    return sorted(TopicPartition(topic, index) for topic in topics for index in range(counts[topic]))


@given(SUBSCRIPTIONS, COUNTS, st.sampled_from(sorted(ASSIGNORS)))
@settings(max_examples=200, deadline=None)
def test_every_partition_goes_to_one_who_subscribes(
    members: dict[str, tuple[str, ...]], counts: dict[str, int], name: str
) -> None:
    assignment = ASSIGNORS[name](
        {member: SubscribedMember(topics) for member, topics in members.items()}, anywhere(counts)
    )
    assert assignment.keys() == members.keys()
    assert partitions(assignment) == subscribed_partitions(members, counts)
    for member, parts in assignment.items():
        assert {partition.topic for partition in parts} <= set(members[member])


@given(SUBSCRIPTIONS, COUNTS, SUBSCRIPTIONS)
@settings(max_examples=200, deadline=None)
def test_sticky_is_balanced_and_moves_no_more_than_it_must(
    before: dict[str, tuple[str, ...]], counts: dict[str, int], after: dict[str, tuple[str, ...]]
) -> None:
    first = assign_sticky({member: SubscribedMember(topics) for member, topics in before.items()}, anywhere(counts))
    owned = {member: tuple(first.get(member, ())) for member in after}
    second = assign_sticky(
        {member: SubscribedMember(after[member], owned[member], 1) for member in after}, anywhere(counts)
    )
    assert partitions(second) == subscribed_partitions(after, counts)
    for giver, parts in second.items():
        for taker in after:
            movable = [partition for partition in parts if partition.topic in after[taker]]
            assert not movable or len(second[giver]) - len(second[taker]) < 2
    again = assign_sticky(
        {member: SubscribedMember(after[member], tuple(second[member]), 2) for member in after}, anywhere(counts)
    )
    assert again == second


@given(SUBSCRIPTIONS, COUNTS)
@settings(max_examples=100, deadline=None)
def test_cooperative_assigns_no_partition_that_another_member_still_owns(
    members: dict[str, tuple[str, ...]], counts: dict[str, int]
) -> None:
    alone = next(iter(members))
    everything = {topic for topics in members.values() for topic in topics}
    owned = tuple(TopicPartition(topic, index) for topic in sorted(everything) for index in range(counts[topic]))
    group = {
        member: SubscribedMember(tuple(everything) if member == alone else topics, owned if member == alone else (), 1)
        for member, topics in members.items()
    }
    assignment = assign_cooperatively(group, anywhere(counts))
    assert all(not parts for member, parts in assignment.items() if member != alone)
    for generation in range(2, 5):
        following = {
            member: SubscribedMember(subscription.topics, tuple(assignment[member]), generation)
            for member, subscription in group.items()
        }
        assignment = assign_cooperatively(following, anywhere(counts))
        if partitions(assignment) == sorted(owned):
            break
    assert partitions(assignment) == sorted(owned)


def test_range_and_roundrobin_as_kafka_has_them() -> None:
    members = {"m2": SubscribedMember(("a", "b")), "m1": SubscribedMember(("a", "b"))}
    counts = {"a": 3, "b": 3}
    a, b = ([TopicPartition(topic, index) for index in range(3)] for topic in "ab")
    assert assign_range(members, anywhere(counts)) == {"m1": [a[0], a[1], b[0], b[1]], "m2": [a[2], b[2]]}
    assert assign_roundrobin(members, anywhere(counts)) == {"m1": [a[0], a[2], b[1]], "m2": [a[1], b[0], b[2]]}
    static = {"z": SubscribedMember(("a",), instance_id="1"), "a": SubscribedMember(("a",))}
    assert assign_range(static, anywhere(counts)) == {"z": a[:2], "a": a[2:]}


def test_the_owner_of_the_newer_generation_keeps_a_partition() -> None:
    partition = TopicPartition("a", 0)
    members = {"old": SubscribedMember(("a",), (partition,), 3), "new": SubscribedMember(("a",), (partition,), 4)}
    assert assign_sticky(members, anywhere({"a": 1})) == {"old": [], "new": [partition]}


# Racks (KIP-881).

JAVA = [line.split("\t") for line in Path(__file__).with_name("java_assignments.tsv").read_text().splitlines()]
"""Assignments of Apache Kafka 4.4, one a line; Assignments.java in this directory, run with kafka-clients, wrote them."""
RACKS = st.sampled_from(["x", "y", "z"])
PLACES = st.dictionaries(
    st.sampled_from(TOPICS), st.lists(st.frozensets(RACKS, max_size=2), min_size=1, max_size=7), min_size=3
)


def scene(members: str, topics: str) -> tuple[dict[str, SubscribedMember], dict[str, tuple[Racks, ...]]]:
    """Members and topics as Assignments.java writes them."""
    subscriptions = {}
    for member in members.split(" "):
        name, _, rest = member.partition("@")
        rack, _, names = rest.partition(":")
        subscriptions[name] = SubscribedMember(tuple(names.split(",")), rack=None if rack == "-" else rack)
    places = (topic.split("=") for topic in topics.split(" "))
    return subscriptions, {
        name: tuple(frozenset(partition_racks) for partition_racks in racks.split(",")) for name, racks in places
    }


def text_of(assignment: Assignment) -> str:
    rows = (
        f"{member}={','.join(f'{topic}{index}' for topic, index in assignment[member])}"
        for member in sorted(assignment)
    )
    return " ".join(rows)


def near(
    members: Mapping[str, SubscribedMember], topics: Mapping[str, tuple[Racks, ...]], assignment: Assignment
) -> int:
    """Return the number of partitions that have a replica in the rack of their member."""
    return sum(
        members[member].rack is None or members[member].rack in topics[part.topic][part.partition]
        for member, parts in assignment.items()
        for part in parts
    )


@pytest.mark.parametrize("row", JAVA, ids=[row[0] for row in JAVA])
def test_racks_as_apache_kafka_has_them(row: list[str]) -> None:
    members, topics = scene(row[0], row[1])
    assert text_of(assign_range(members, topics)) == row[2]
    assert text_of(assign_roundrobin(members, topics)) == row[3]
    assert max(map(len, assign_sticky(members, topics).values())) <= int(row[5])


def test_sticky_assigns_as_many_partitions_by_rack_as_apache_kafka() -> None:
    """Neither finds the best in every case: the same ones they need not be."""
    counts = []
    for row in JAVA:
        members, topics = scene(row[0], row[1])
        counts.append((near(members, topics, assign_sticky(members, topics)), int(row[4])))
    assert sum(ours for ours, _ in counts) >= sum(theirs for _, theirs in counts)
    assert all(ours >= theirs - 1 for ours, theirs in counts)


@example(
    before={"m0": ("c",), "m5": ("a",)},
    places={
        "a": [frozenset()],
        "b": [frozenset()],
        "c": [frozenset("xz"), frozenset(), frozenset(), frozenset(), frozenset("z"), frozenset()],
    },
    racks=["x", "z", None, "x", "x", None],
    after={"m1": ("a", "c"), "m5": ("a",), "m0": ("a", "b"), "m2": ("b", "c"), "m3": ("c",), "m4": ("a", "b", "c")},
)
@given(SUBSCRIPTIONS, PLACES, st.lists(st.none() | RACKS, min_size=6, max_size=6), SUBSCRIPTIONS)
@settings(max_examples=150, deadline=None)
def test_assignment_by_rack_is_as_balanced_as_without_racks(
    before: dict[str, tuple[str, ...]],
    places: dict[str, list[Racks]],
    racks: list[str | None],
    after: dict[str, tuple[str, ...]],
) -> None:
    """As even as without racks, no less near than without, and nothing moves when all join again."""
    topics = {topic: tuple(partition_racks) for topic, partition_racks in places.items()}
    first = assign_sticky({member: SubscribedMember(names) for member, names in before.items()}, topics)
    members = {
        member: SubscribedMember(names, tuple(first.get(member, ())), 1, rack=racks[int(member[1:])])
        for member, names in after.items()
    }
    assignment = assign_sticky(members, topics)
    blind = {member: subscription._replace(rack=None) for member, subscription in members.items()}
    assert partitions(assignment) == subscribed_partitions(
        after, {topic: len(partition_racks) for topic, partition_racks in topics.items()}
    )
    assert sorted(map(len, assignment.values())) == sorted(map(len, assign_sticky(blind, topics).values()))
    assert near(members, topics, assignment) >= near(members, topics, assign_sticky(blind, topics))
    again = {
        member: subscription._replace(owned=tuple(assignment[member]), generation=2)
        for member, subscription in members.items()
    }
    assert assign_sticky(again, topics) == assignment


def test_java_class_names_are_mapped_to_assignors() -> None:
    java = ("org.apache.kafka.clients.consumer.CooperativeStickyAssignor", "range")
    assert assignor_names(java) == ["cooperative-sticky", "range"]


def test_kafka_python_reads_the_user_data_of_sticky() -> None:
    user_data = StickyAssignorUserData(
        previous_assignment=[PreviousTopic(topic="a", partitions=[0, 2]), PreviousTopic(topic="b", partitions=[1])],
        generation=7,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # kafka-python reads its files in a way that Python 3.11 deprecates
        from kafka.coordinator.assignors.sticky.user_data import StickyAssignorUserData as Theirs

    theirs = Theirs.decode(codec.encode(user_data, 1), version=1, header=False)
    assert [(topic.topic, list(topic.partitions)) for topic in theirs.previous_assignment] == [
        ("a", [0, 2]),
        ("b", [1]),
    ]
    assert theirs.generation == 7


@pytest.mark.parametrize(("user_data", "generation"), [("00000007", 7), ("", -1), ("0007", -1)])
def test_the_generation_of_clients_before_kip_792_is_read_from_their_user_data(user_data: str, generation: int) -> None:
    """The user data is that of CooperativeStickyAssignor.subscriptionUserData in Apache Kafka 4.4 for generation 7."""
    owned = [OwnedTopic(topic="a", partitions=[0, 2])]
    old = ConsumerProtocolSubscription(topics=["a"], user_data=bytes.fromhex(user_data), owned_partitions=owned)
    assert _owned_of(old) == ((TopicPartition("a", 0), TopicPartition("a", 2)), generation)
    newer = ConsumerProtocolSubscription(topics=["a"], user_data=old.user_data, owned_partitions=owned, generation_id=9)
    assert _owned_of(newer)[1] == 9


@pytest.mark.parametrize(
    ("user_data", "expected"),
    [
        ("00000001000161000000010000000000000007", ((TopicPartition("a", 0),), 7)),
        ("000000010001610000000100000000", ((TopicPartition("a", 0),), -1)),
        ("00000007", ((), -1)),
        ("", ((), -1)),
    ],
)
def test_the_previous_assignment_of_sticky_members_is_read(
    user_data: str, expected: tuple[tuple[TopicPartition, ...], int]
) -> None:
    """The first is what StickyAssignor.subscriptionUserData of Apache Kafka 4.4 writes, the second what it wrote before
    generations (KIP-341)."""
    assert _previous_of(bytes.fromhex(user_data)) == expected
