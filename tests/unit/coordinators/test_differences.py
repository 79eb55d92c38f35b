"""Assignments of `uniform` where Apache Kafka's depend on hash tables; docs/differences.md lists all differences."""

from ottla.coordinators.groups.consumer.assignors import Subscriber, assign_uniformly

TOPIC, OTHER = b"t" * 16, b"u" * 16


def test_the_first_member_to_join_gets_the_extra_partition() -> None:
    for names in (["b", "a", "c"], ["c", "b", "a"]):
        members = {name: Subscriber(frozenset([TOPIC]), {}) for name in names}
        targets = assign_uniformly(members, {TOPIC: 4})
        assert [sum(map(len, targets[name].values())) for name in names] == [2, 1, 1]


def test_uniform_is_even_over_three_members_with_different_topics() -> None:
    """a and c share no topic: b takes a partition of a and gives another one to c."""
    members = {
        "a": Subscriber(frozenset([TOPIC]), {TOPIC: frozenset([0, 1, 2])}),
        "b": Subscriber(frozenset([TOPIC, OTHER]), {OTHER: frozenset([0, 1])}),
        "c": Subscriber(frozenset([OTHER]), {OTHER: frozenset([2])}),
    }
    targets = assign_uniformly(members, {TOPIC: 3, OTHER: 3})
    assert [sum(map(len, targets[name].values())) for name in "abc"] == [2, 2, 2]
