"""Assignors of classic groups: complete, balanced, sticky; and what the sticky one notes, beside kafka-python."""

import warnings

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.client.consumer.assignors import (
    ASSIGNORS,
    Assignment,
    Subscriber,
    assign_cooperatively,
    assign_range,
    assign_roundrobin,
    assign_sticky,
    assignor_names,
)
from ottla.client.topics import TopicPartition
from ottla.protocol import codec
from ottla.protocol.messages.sticky_assignor_user_data import PreviousTopic, StickyAssignorUserData

TOPICS = ("a", "b", "c")
COUNTS = st.fixed_dictionaries({topic: st.integers(0, 7) for topic in TOPICS})
SUBSCRIPTIONS = st.dictionaries(
    st.sampled_from([f"m{number}" for number in range(6)]),
    st.lists(st.sampled_from(TOPICS), min_size=1, unique=True).map(tuple),
    min_size=1,
)


def partitions(found: Assignment) -> list[TopicPartition]:
    return sorted(partition for parts in found.values() for partition in parts)


def wanted(members: dict[str, tuple[str, ...]], counts: dict[str, int]) -> list[TopicPartition]:
    topics = {topic for subscribed in members.values() for topic in subscribed}
    return sorted(TopicPartition(topic, index) for topic in topics for index in range(counts[topic]))


@given(SUBSCRIPTIONS, COUNTS, st.sampled_from(sorted(ASSIGNORS)))
@settings(max_examples=200, deadline=None)
def test_every_partition_goes_to_one_who_subscribes(
    members: dict[str, tuple[str, ...]], counts: dict[str, int], name: str
) -> None:
    found = ASSIGNORS[name]({member: Subscriber(topics) for member, topics in members.items()}, counts)
    assert found.keys() == members.keys()
    assert partitions(found) == wanted(members, counts)
    for member, parts in found.items():
        assert {partition.topic for partition in parts} <= set(members[member])


@given(SUBSCRIPTIONS, COUNTS, SUBSCRIPTIONS)
@settings(max_examples=200, deadline=None)
def test_sticky_is_balanced_and_moves_no_more_than_it_must(
    before: dict[str, tuple[str, ...]], counts: dict[str, int], after: dict[str, tuple[str, ...]]
) -> None:
    first = assign_sticky({member: Subscriber(topics) for member, topics in before.items()}, counts)
    owned = {member: tuple(first.get(member, ())) for member in after}
    second = assign_sticky({member: Subscriber(after[member], owned[member], 1) for member in after}, counts)
    assert partitions(second) == wanted(after, counts)
    for giver, parts in second.items():
        for taker in after:
            movable = [partition for partition in parts if partition.topic in after[taker]]
            assert not movable or len(second[giver]) - len(second[taker]) < 2
    again = assign_sticky({member: Subscriber(after[member], tuple(second[member]), 2) for member in after}, counts)
    assert again == second


@given(SUBSCRIPTIONS, COUNTS)
@settings(max_examples=100, deadline=None)
def test_cooperative_gives_nothing_that_somebody_still_has(
    members: dict[str, tuple[str, ...]], counts: dict[str, int]
) -> None:
    alone = next(iter(members))
    everything = {topic for topics in members.values() for topic in topics}
    owned = tuple(TopicPartition(topic, index) for topic in sorted(everything) for index in range(counts[topic]))
    group = {
        member: Subscriber(tuple(everything) if member == alone else topics, owned if member == alone else (), 1)
        for member, topics in members.items()
    }
    found = assign_cooperatively(group, counts)
    assert all(not parts for member, parts in found.items() if member != alone)
    for generation in range(2, 5):
        following = {
            member: Subscriber(each.topics, tuple(found[member]), generation) for member, each in group.items()
        }
        found = assign_cooperatively(following, counts)
        if partitions(found) == sorted(owned):
            break
    assert partitions(found) == sorted(owned)


def test_range_and_roundrobin_as_kafka_has_them() -> None:
    members = {"m2": Subscriber(("a", "b")), "m1": Subscriber(("a", "b"))}
    counts = {"a": 3, "b": 3}
    a, b = ([TopicPartition(topic, index) for index in range(3)] for topic in "ab")
    assert assign_range(members, counts) == {"m1": [a[0], a[1], b[0], b[1]], "m2": [a[2], b[2]]}
    assert assign_roundrobin(members, counts) == {"m1": [a[0], a[2], b[1]], "m2": [a[1], b[0], b[2]]}
    static = {"z": Subscriber(("a",), instance_id="1"), "a": Subscriber(("a",))}
    assert assign_range(static, counts) == {"z": a[:2], "a": a[2:]}


def test_of_two_claims_the_newer_generation_counts() -> None:
    partition = TopicPartition("a", 0)
    members = {"old": Subscriber(("a",), (partition,), 3), "new": Subscriber(("a",), (partition,), 4)}
    assert assign_sticky(members, {"a": 1}) == {"old": [], "new": [partition]}


def test_names() -> None:
    java = ("org.apache.kafka.clients.consumer.CooperativeStickyAssignor", "range")
    assert assignor_names(java) == ["cooperative-sticky", "range"]


def test_what_sticky_notes_is_what_others_read() -> None:
    said = StickyAssignorUserData(
        previous_assignment=[PreviousTopic(topic="a", partitions=[0, 2]), PreviousTopic(topic="b", partitions=[1])],
        generation=7,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # kafka-python reads its files in a way that Python 3.11 deprecates
        from kafka.coordinator.assignors.sticky.user_data import StickyAssignorUserData as Theirs

    theirs = Theirs.decode(codec.encode(said, 1), version=1, header=False)
    assert [(each.topic, list(each.partitions)) for each in theirs.previous_assignment] == [("a", [0, 2]), ("b", [1])]
    assert theirs.generation == 7
