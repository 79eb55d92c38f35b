"""How the leader of a classic group shares out partitions: range, roundrobin, sticky, cooperative-sticky.

range               each topic by itself, neighbours to one member; members in order of their ids
roundrobin          all partitions of all topics, one after the other
sticky              balanced, and every member keeps what it may (KIP-54)
cooperative-sticky  the same; members give up only what goes elsewhere (KIP-429)

An assignment is made of (member -> what it subscribes to and owns) and (topic -> number of partitions). Members are ordered by
group.instance.id where they have one, so that a restart changes nothing.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from ottla.client.topics import TopicPartition


class Subscriber(NamedTuple):
    """What a member of the group tells the leader.

    owned       partitions that it has
    generation  in which it got them, -1 when it does not say
    """

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    instance_id: str | None = None


Assignment = dict[str, list[TopicPartition]]
Members = Mapping[str, Subscriber]
Assignor = Callable[[Members, Mapping[str, int]], Assignment]


def _ordered(members: Members) -> list[str]:
    """Static members by their instance ids, then the others by their member ids, as in Kafka's AbstractPartitionAssignor."""

    def rank(member: str) -> tuple[int, str]:
        instance = members[member].instance_id
        return (0, instance) if instance is not None else (1, member)

    return sorted(members, key=rank)


def assign_range(members: Members, partitions: Mapping[str, int]) -> Assignment:
    """Each topic by itself: the first members get one more when it does not come out even."""
    found: Assignment = {member: [] for member in members}
    topics = sorted({topic for member in members.values() for topic in member.topics if topic in partitions})
    for topic in topics:
        takers = [member for member in _ordered(members) if topic in members[member].topics]
        each, more = divmod(partitions[topic], len(takers))
        start = 0
        for number, member in enumerate(takers):
            count = each + (number < more)
            found[member] += [TopicPartition(topic, index) for index in range(start, start + count)]
            start += count
    return found


def assign_roundrobin(members: Members, partitions: Mapping[str, int]) -> Assignment:
    """One after the other to those who subscribe."""
    found: Assignment = {member: [] for member in members}
    takers = _ordered(members)
    turn = 0
    topics = sorted({topic for member in members.values() for topic in member.topics if topic in partitions})
    for topic in topics:
        for index in range(partitions[topic]):
            while topic not in members[takers[turn % len(takers)]].topics:
                turn += 1
            found[takers[turn % len(takers)]].append(TopicPartition(topic, index))
            turn += 1
    return found


def assign_sticky(members: Members, partitions: Mapping[str, int]) -> Assignment:
    """Balanced as far as subscriptions allow, moving no more than that asks for.

    Everybody keeps what it validly owns, of two who claim a partition the one of the newer generation. What is free goes to
    whoever has least; then partitions move from who has two more than another that may take them, until nobody has.
    """
    found = _kept(members, partitions)
    taken = {partition for parts in found.values() for partition in parts}
    eligible: dict[str, list[str]] = {}
    for member in _ordered(members):
        for topic in members[member].topics:
            eligible.setdefault(topic, []).append(member)
    free = [
        TopicPartition(topic, index)
        for topic in sorted(eligible)
        for index in range(partitions.get(topic, 0))
        if (topic, index) not in taken
    ]
    # Those that few may take come first.
    for partition in sorted(free, key=lambda part: (len(eligible[part.topic]), part)):
        least = min(eligible[partition.topic], key=lambda member: len(found[member]))
        found[least].append(partition)
    while _moved_one(found, eligible):
        pass
    return {member: sorted(parts) for member, parts in found.items()}


def _kept(members: Members, partitions: Mapping[str, int]) -> Assignment:
    claims: dict[TopicPartition, tuple[int, str]] = {}
    for member in _ordered(members):
        subscriber = members[member]
        for partition in subscriber.owned:
            if partition.topic in subscriber.topics and partition.partition < partitions.get(partition.topic, 0):
                before = claims.get(partition)
                if before is None or subscriber.generation > before[0]:
                    claims[partition] = (subscriber.generation, member)
                elif subscriber.generation == before[0]:
                    claims[partition] = (before[0], before[1])
    found: Assignment = {member: [] for member in members}
    for partition, (_, member) in claims.items():
        found[member].append(partition)
    return found


def _moved_one(found: Assignment, eligible: Mapping[str, list[str]]) -> bool:
    """Move one partition to make it more even; whether there was one."""
    for giver in sorted(found, key=lambda member: (-len(found[member]), member)):
        for partition in sorted(found[giver], reverse=True):
            taker = min(eligible[partition.topic], key=lambda member: (len(found[member]), member))
            if len(found[giver]) - len(found[taker]) >= 2:
                found[giver].remove(partition)
                found[taker].append(partition)
                return True
    return False


def cooperative(before: Members, wanted: Assignment) -> Assignment:
    """What of an assignment can be given now: a partition that somebody else still owns waits until it is given up."""
    owner = {partition: member for member, subscriber in before.items() for partition in subscriber.owned}
    return {
        member: [partition for partition in parts if owner.get(partition, member) == member]
        for member, parts in wanted.items()
    }


def assign_cooperatively(members: Members, partitions: Mapping[str, int]) -> Assignment:
    """As sticky; what changes hands is given up first."""
    return cooperative(members, assign_sticky(members, partitions))


ASSIGNORS: Final[dict[str, Assignor]] = {
    "range": assign_range,
    "roundrobin": assign_roundrobin,
    "sticky": assign_sticky,
    "cooperative-sticky": assign_cooperatively,
}

_JAVA_NAMES: Final = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}


def assignor_names(names: tuple[str, ...]) -> list[str]:
    """As they go over the wire; Java's class names stand for them too. Raises ValueError."""
    found = [_JAVA_NAMES.get(name.rpartition(".")[2], name) for name in names]
    for name in found:
        if name not in ASSIGNORS:
            raise ValueError(f"{name} is no assignor; there are {', '.join(ASSIGNORS)}")
    return found
