"""The simple assignor of share groups over random groups: complete, balanced, sticky."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinators.groups.consumer.assignors import Subscriber
from ottla.coordinators.groups.consumer.member import Target
from ottla.coordinators.groups.share.assignor import assign_simply

SEEDS = st.integers(0, 2**32)
Partitions = dict[bytes, frozenset[int]]
Members = dict[str, Subscriber]


def some_group(dice: Random, *, alike: bool) -> tuple[Members, Partitions]:
    """Members with subscriptions and something that they had before, which may not be theirs any more."""
    topics = [b"topic %d" % number for number in range(dice.randint(1, 4))]
    partitions = {topic: frozenset(range(dice.randint(0, 7))) for topic in topics}
    common = frozenset(dice.sample(topics, dice.randint(1, len(topics))))
    members = {}
    for number in range(dice.randint(1, 10)):
        reads = common if alike else frozenset(dice.sample(topics, dice.randint(0, len(topics))))
        had = {topic: frozenset(dice.sample(range(9), dice.randint(0, 5))) for topic in topics if dice.random() < 0.5}
        members[f"m{number}"] = Subscriber(reads, had)
    return members, partitions


def holders(dealt: dict[str, Target]) -> dict[tuple[bytes, int], int]:
    """Return the number of members of each partition."""
    counts: dict[tuple[bytes, int], int] = {}
    for target in dealt.values():
        for topic_id, numbers in target.items():
            for number in numbers:
                counts[topic_id, number] = counts.get((topic_id, number), 0) + 1
    return counts


@given(SEEDS, st.booleans())
def test_every_partition_has_a_member_that_reads_it_and_no_other_has_any(seed: int, alike: bool) -> None:
    members, partitions = some_group(Random(seed), alike=alike)
    dealt = assign_simply(members, partitions)
    assert dealt.keys() == members.keys()
    assert all(target.keys() <= members[member_id].topics for member_id, target in dealt.items())
    read = frozenset().union(*(member.topics for member in members.values()))
    assert holders(dealt).keys() == {(topic, number) for topic in read for number in partitions[topic]}


@given(SEEDS)
def test_members_that_read_alike_have_equally_many(seed: int) -> None:
    members, partitions = some_group(Random(seed), alike=True)
    dealt = assign_simply(members, partitions)
    sizes = [sum(map(len, target.values())) for target in dealt.values()]
    assert max(sizes) - min(sizes) <= 1
    counts = holders(dealt)
    if counts:
        assert max(counts.values()) <= -(-len(members) // len(counts))


@given(SEEDS)
def test_each_topic_is_balanced_over_its_subscribers(seed: int) -> None:
    """If few members can have a partition, the other partitions may have one member less."""
    members, partitions = some_group(Random(seed), alike=False)
    dealt = assign_simply(members, partitions)
    if len({member.topics for member in members.values()}) == 1:
        return
    for topic, numbers in partitions.items():
        readers = [member_id for member_id, member in members.items() if topic in member.topics]
        sizes = [len(dealt[member_id].get(topic, ())) for member_id in readers]
        if sizes and numbers:
            assert max(sizes) <= -(-(-(-len(readers) // len(numbers)) * len(numbers)) // len(readers))


@given(SEEDS)
def test_a_balanced_assignment_stays(seed: int) -> None:
    members, partitions = some_group(Random(seed), alike=True)
    dealt = assign_simply(members, partitions)
    again = {member_id: member._replace(target=dealt[member_id]) for member_id, member in members.items()}
    assert assign_simply(again, partitions) == dealt
