"""Server-side assignors over random groups: complete, without duplicates, balanced, sticky."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.coordinators.groups.consumer.assignors import ASSIGNORS, Subscriber, assign_ranges, assign_uniformly
from ottla.coordinators.groups.consumer.member import Target

SEEDS = st.integers(0, 2**32)

Topics = dict[bytes, int]
Members = dict[str, Subscriber]


def some_topics(random: Random) -> Topics:
    return {b"topic %d" % number: random.randint(0, 12) for number in range(random.randint(1, 6))}


def some_members(random: Random, topics: Topics, *, alike: bool) -> Members:
    """Return members with subscriptions and, for some of them, disjoint earlier assignments."""
    names = sorted(topics)
    common = frozenset(random.sample(names, random.randint(1, len(names))))
    members: Members = {}
    owned: dict[str, dict[bytes, set[int]]] = {}
    ids = [f"m{number}" for number in random.sample(range(100), random.randint(1, 9))]
    for topic_id in names:
        for partition in range(
            topics[topic_id] + random.choice((0, 0, 2))
        ):  # the topic may have been larger, or another
            if random.random() < 0.7:
                owned.setdefault(random.choice(ids), {}).setdefault(topic_id, set()).add(partition)
    for member_id in ids:
        reads = common if alike else frozenset(random.sample(names, random.randint(0, len(names))))
        target: Target = {topic: frozenset(parts) for topic, parts in owned.get(member_id, {}).items()}
        instance = f"i{random.randint(0, 99)}-{member_id}" if random.random() < 0.3 else None
        members[member_id] = Subscriber(reads, target, instance)
    return members


def check_complete(members: Members, topics: Topics, dealt: dict[str, Target]) -> None:
    """Check that every partition of a subscribed topic has one owner, which subscribes to it."""
    assert dealt.keys() == members.keys()
    seen: set[tuple[bytes, int]] = set()
    for member_id, target in dealt.items():
        for topic_id, partitions in target.items():
            assert topic_id in members[member_id].topics
            assert partitions
            for partition in partitions:
                assert (topic_id, partition) not in seen
                seen.add((topic_id, partition))
    read = frozenset().union(*(member.topics for member in members.values()))
    assert seen == {(topic_id, partition) for topic_id in read for partition in range(topics[topic_id])}


def size(target: Target) -> int:
    return sum(map(len, target.values()))


def with_targets(members: Members, dealt: dict[str, Target]) -> Members:
    return {member_id: member._replace(target=dealt[member_id]) for member_id, member in members.items()}


def kept(members: Members, dealt: dict[str, Target]) -> int:
    """Return the number of partitions that stay with their member."""
    return sum(
        len(partitions & members[member_id].target.get(topic_id, frozenset()))
        for member_id, target in dealt.items()
        for topic_id, partitions in target.items()
    )


@pytest.mark.parametrize("name", ASSIGNORS)
@pytest.mark.parametrize("alike", [True, False])
@settings(max_examples=150, deadline=None)
@given(SEEDS)
def test_complete_and_stable(name: str, alike: bool, seed: int) -> None:
    random = Random(seed)
    topics = some_topics(random)
    members = some_members(random, topics, alike=alike)
    dealt = ASSIGNORS[name](members, topics)
    check_complete(members, topics, dealt)
    assert ASSIGNORS[name](with_targets(members, dealt), topics) == dealt


@settings(max_examples=200, deadline=None)
@given(SEEDS)
def test_uniform_moves_as_few_as_balance_allows(seed: int) -> None:
    random = Random(seed)
    topics = some_topics(random)
    members = some_members(random, topics, alike=True)
    dealt = assign_uniformly(members, topics)
    sizes = [size(target) for target in dealt.values()]
    assert max(sizes) - min(sizes) <= 1
    (read,) = {member.topics for member in members.values()}
    share, more = divmod(sum(topics[topic_id] for topic_id in read), len(members))
    had = sorted(
        (
            sum(
                partition < topics[topic_id]
                for topic_id, partitions in member.target.items()
                if topic_id in read
                for partition in partitions
            )
            for member in members.values()
        ),
        reverse=True,
    )
    assert kept(members, dealt) == sum(min(count, share + (place < more)) for place, count in enumerate(had))


@settings(max_examples=200, deadline=None)
@given(SEEDS)
def test_uniform_is_balanced_for_any_subscriptions(seed: int) -> None:
    """No partition could go to a member that reads it and has at least two fewer."""
    random = Random(seed)
    topics = some_topics(random)
    members = some_members(random, topics, alike=False)
    dealt = assign_uniformly(members, topics)
    for member_id, target in dealt.items():
        for topic_id in target:
            for other, subscriber in members.items():
                if topic_id in subscriber.topics:
                    assert size(dealt[member_id]) - size(dealt[other]) <= 1, (member_id, other)


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_a_member_more_or_fewer_moves_little(seed: int) -> None:
    random = Random(seed)
    topics = {b"t": random.randint(1, 60)}
    members = {f"m{number}": Subscriber(frozenset(topics), {}) for number in range(random.randint(2, 12))}
    members = with_targets(members, assign_uniformly(members, topics))
    more = members | {"new": Subscriber(frozenset(topics), {})}
    dealt = assign_uniformly(more, topics)
    assert kept(more, dealt) == topics[b"t"] - size(dealt["new"])
    gone = next(iter(members))
    fewer = {member_id: member for member_id, member in members.items() if member_id != gone}
    assert kept(fewer, assign_uniformly(fewer, topics)) == topics[b"t"] - size(members[gone].target)


@settings(max_examples=150, deadline=None)
@given(SEEDS)
def test_ranges_are_contiguous_and_alike_for_topics_of_one_size(seed: int) -> None:
    random = Random(seed)
    count = random.randint(1, 20)
    topics = {b"a": count, b"b": count, b"c": random.randint(1, 20)}
    members = some_members(random, topics, alike=True)
    members = {member_id: member._replace(topics=frozenset(topics)) for member_id, member in members.items()}
    dealt = assign_ranges(members, topics)
    order = sorted(
        members,
        key=lambda member_id: (members[member_id].instance_id is None, members[member_id].instance_id or member_id),
    )
    for topic_id in topics:
        ranges = [sorted(dealt[member_id].get(topic_id, ())) for member_id in order]
        assert [partition for part in ranges for partition in part] == list(range(topics[topic_id]))
        sizes = [len(part) for part in ranges]
        assert sizes == sorted(sizes, reverse=True)
        assert sizes[0] - sizes[-1] <= 1
    assert all(dealt[member_id].get(b"a") == dealt[member_id].get(b"b") for member_id in members)


def test_uniform_is_balanced_over_a_chain_of_subscriptions() -> None:
    """The full member owns nothing that the needy one subscribes to; a third one subscribes to both topics."""
    members = {
        "full": Subscriber(frozenset({b"a"}), {b"a": frozenset(range(6))}),
        "between": Subscriber(frozenset({b"a", b"b"}), {b"b": frozenset(range(3))}),
        "needy": Subscriber(frozenset({b"b"}), {}),
    }
    dealt = assign_uniformly(members, {b"a": 6, b"b": 3})
    assert sorted(size(target) for target in dealt.values()) == [3, 3, 3]


def test_a_large_group_is_assigned_quickly() -> None:
    topics = {b"%d" % number: 50 for number in range(40)}
    random = Random(1)
    members = {f"m{number}": Subscriber(frozenset(random.sample(sorted(topics), 5)), {}) for number in range(400)}
    dealt = assign_uniformly(members, topics)
    check_complete(members, topics, dealt)
    newcomer = with_targets(members, dealt) | {"new": Subscriber(frozenset(random.sample(sorted(topics), 5)), {})}
    again = assign_uniformly(newcomer, topics)
    assert kept(newcomer, again) >= 2000 - 2 * size(again["new"])
