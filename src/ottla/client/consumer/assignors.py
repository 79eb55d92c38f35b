"""Partition assignors, run by the leader of a classic group: range, roundrobin, sticky, cooperative-sticky.

range               each topic by itself, neighbours to one member; members in order of their ids
roundrobin          all partitions of all topics, one after the other
sticky              balanced, and every member keeps what it may (KIP-54)
cooperative-sticky  the same; members give up only what goes elsewhere (KIP-429)

An assignment is made of (member -> what it subscribes to and owns) and (topic -> the racks that have each of its partitions).
Members are ordered by group.instance.id where they have one, so that a restart changes nothing.

Racks (KIP-881): if members name theirs (client.rack) and partitions differ in theirs, range and the sticky assignors give a
member partitions that have a copy in its rack, as far as that does not change the number of partitions of each member. Racks
come before stickiness.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.client.topics import TopicPartition


class SubscribedMember(NamedTuple):
    """Subscription of a member of the group, as the leader gets it.

    owned       partitions that it has
    generation  generation in which they were assigned, -1 if unknown
    rack        rack of the member, None if unknown
    """

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    instance_id: str | None = None
    rack: str | None = None


Racks = frozenset[str]
Topics = Mapping[str, Sequence[Racks]]
"""topic -> of each of its partitions, the racks that have a copy"""


Assignment = dict[str, list[TopicPartition]]
Members = Mapping[str, SubscribedMember]
Assignor = Callable[[Members, Topics], Assignment]


def _ordered(members: Members) -> list[str]:
    """Static members by their instance ids, then the others by their member ids, as in Kafka's AbstractPartitionAssignor."""

    def rank(member: str) -> tuple[int, str]:
        instance = members[member].instance_id
        return (0, instance) if instance is not None else (1, member)

    return sorted(members, key=rank)


def _racks_matter(members: Iterable[SubscribedMember], partitions: Iterable[Racks]) -> bool:
    """Return True if racks can make a difference to the assignment, as Kafka's AbstractPartitionAssignor decides it."""
    ours = {member.rack for member in members if member.rack}
    per_partition = list(partitions)
    theirs: Racks = frozenset().union(*per_partition)
    return not theirs.isdisjoint(ours) and any(racks != theirs for racks in per_partition)


class _Range:
    """State of the assignment of one topic by `assign_range`.

    takers  subscribed members, in order, with their racks
    left    partitions that are not assigned yet
    """

    def __init__(self, topic: str, takers: list[tuple[str, str | None]], racks: Sequence[Racks]) -> None:
        self.topic = topic
        self.takers = takers
        self.racks = racks
        self.left = list(range(len(racks)))
        self._each, self._extra = divmod(len(racks), len(takers))
        self._given = dict.fromkeys((member for member, _ in takers), 0)

    def room(self, member: str) -> int:
        """Return the number of partitions that may still be assigned to a member."""
        return max(self._each + (self._extra > 0) - self._given[member], 0)

    def near(self, rack: str | None, index: int) -> bool:
        """Return True if a partition has a copy in the rack, or the member has no rack."""
        return not rack or rack in self.racks[index]

    def give(self, member: str, indexes: list[int], assignment: Assignment) -> None:
        """These are the member's now."""
        self._given[member] += len(indexes)
        self._extra -= self._given[member] > self._each
        self.left = [index for index in self.left if index not in set(indexes)]
        assignment[member] += [TopicPartition(self.topic, index) for index in indexes]

    def share_out(self, assignment: Assignment, *, near: bool) -> None:
        """Neighbours to one member, as many as it may have; `near`: only what has a copy in its rack."""
        for member, rack in self.takers:
            indexes = [index for index in self.left if not near or self.near(rack, index)][: self.room(member)]
            if indexes:
                self.give(member, indexes, assignment)


def assign_range(members: Members, topics: Topics) -> Assignment:
    """Each topic by itself: the first members get one more when it does not come out even.

    Where racks matter, what is near comes first; topics with the same subscribers and as many partitions stay together, so that
    who joins them finds both sides in one place.
    """
    assignment: Assignment = {member: [] for member in members}
    ordered = _ordered(members)
    ranges = []
    for topic in sorted({topic for member in members.values() for topic in member.topics if topics.get(topic)}):
        takers = [(member, members[member].rack) for member in ordered if topic in members[member].topics]
        ranges.append(_Range(topic, takers, topics[topic]))
    nearby = [
        topic_range
        for topic_range in ranges
        if _racks_matter([members[member] for member, _ in topic_range.takers], topic_range.racks)
    ]
    if nearby:
        together: dict[tuple[tuple[tuple[str, str | None], ...], int], list[_Range]] = {}
        for topic_range in ranges:
            together.setdefault((tuple(topic_range.takers), len(topic_range.racks)), []).append(topic_range)
        for group in together.values():
            if len(group) > 1:
                _share_out_together(group, assignment)
            elif group[0] in nearby:
                group[0].share_out(assignment, near=True)
    for topic_range in ranges:
        topic_range.share_out(assignment, near=False)
    return {member: sorted(parts) for member, parts in assignment.items()} if nearby else assignment


def _share_out_together(group: list[_Range], assignment: Assignment) -> None:
    """The same partition of every topic to the first member that is near to all of them."""
    if not any(rack for _, rack in group[0].takers):
        return
    for index in range(len(group[0].racks)):
        for member, rack in group[0].takers:
            if all(topic_range.near(rack, index) and topic_range.room(member) for topic_range in group):
                for topic_range in group:
                    topic_range.give(member, [index], assignment)
                break


def assign_roundrobin(members: Members, topics: Topics) -> Assignment:
    """One after the other to those who subscribe."""
    assignment: Assignment = {member: [] for member in members}
    takers = _ordered(members)
    turn = 0
    for topic in sorted({topic for member in members.values() for topic in member.topics if topic in topics}):
        for index in range(len(topics[topic])):
            while topic not in members[takers[turn % len(takers)]].topics:
                turn += 1
            assignment[takers[turn % len(takers)]].append(TopicPartition(topic, index))
            turn += 1
    return assignment


def assign_sticky(members: Members, topics: Topics) -> Assignment:
    """Balanced as far as subscriptions allow, near where racks matter, moving no more than that asks for.

    Every member keeps the partitions that it validly owns; of two that claim a partition, the one of the newer generation keeps
    it. Free partitions go to the eligible member that has least. Then partitions move from a member that has two more than
    another one that may take them, until there is no such pair. At last partitions are exchanged between members if that brings
    more of them near.
    """
    eligible: dict[str, list[str]] = {}
    for member in _ordered(members):
        for topic in members[member].topics:
            eligible.setdefault(topic, []).append(member)
    matter = _racks_matter(members.values(), [racks for topic in eligible for racks in topics.get(topic, ())])

    def near(member: str, partition: TopicPartition) -> bool:
        rack = members[member].rack
        return not matter or not rack or rack in topics[partition.topic][partition.partition]

    assignment = _kept(members, topics)
    taken = {partition for parts in assignment.values() for partition in parts}
    free = [
        TopicPartition(topic, index)
        for topic in sorted(eligible)
        for index in range(len(topics.get(topic, ())))
        if (topic, index) not in taken
    ]
    # Those that few may take come first.
    for partition in sorted(free, key=lambda part: (len(eligible[part.topic]), part)):
        least = min(
            eligible[partition.topic], key=lambda member: (len(assignment[member]), not near(member, partition))
        )
        assignment[least].append(partition)
    changes = True
    while changes:
        while _moved_one(assignment, eligible):
            pass
        changes = matter and _brought_nearer(assignment, eligible, near)
    return {member: sorted(parts) for member, parts in assignment.items()}


def _kept(members: Members, topics: Topics) -> Assignment:
    claims: dict[TopicPartition, tuple[int, str]] = {}
    for member in _ordered(members):
        subscriber = members[member]
        for partition in subscriber.owned:
            if partition.topic in subscriber.topics and partition.partition < len(topics.get(partition.topic, ())):
                before = claims.get(partition)
                if before is None or subscriber.generation > before[0]:
                    claims[partition] = (subscriber.generation, member)
    assignment: Assignment = {member: [] for member in members}
    for partition, (_, member) in claims.items():
        assignment[member].append(partition)
    return assignment


def _brought_nearer(
    assignment: Assignment, eligible: Mapping[str, list[str]], near: Callable[[str, TopicPartition], bool]
) -> bool:
    """Bring partitions nearer without making it less even: one by one to a member that has one less, or in exchange for
    another. Return True if one was moved. Every step leaves fewer that are far."""
    moved = False
    for giver in assignment:
        for partition in [other for other in assignment[giver] if not near(giver, other)]:
            for taker in eligible[partition.topic]:
                if not near(taker, partition):
                    continue
                in_return = None
                if len(assignment[giver]) != len(assignment[taker]) + 1:
                    fair = [
                        other
                        for other in assignment[taker]
                        if giver in eligible[other.topic] and (near(giver, other) or not near(taker, other))
                    ]
                    if not fair:
                        continue
                    in_return = min(fair, key=lambda other: (near(taker, other), not near(giver, other)))
                    assignment[taker].remove(in_return)
                    assignment[giver].append(in_return)
                assignment[giver].remove(partition)
                assignment[taker].append(partition)
                moved = True
                break
    return moved


def _moved_one(assignment: Assignment, eligible: Mapping[str, list[str]]) -> bool:
    """Move one partition to make it more even, from hand to hand if need be; whether there was one."""
    fewest = min(map(len, assignment.values()), default=0)
    for giver in sorted(assignment, key=lambda member: (-len(assignment[member]), member)):
        if len(assignment[giver]) < fewest + 2:
            return False
        path = _path(giver, assignment, eligible)
        for partition, before, after in path:
            assignment[before].remove(partition)
            assignment[after].append(partition)
        if path:
            return True
    return False


def _path(
    giver: str, assignment: Assignment, eligible: Mapping[str, list[str]]
) -> list[tuple[TopicPartition, str, str]]:
    """The shortest way from a member to one that has at least two less: (partition, from, to), the last step first."""
    came: dict[str, tuple[TopicPartition, str]] = {}
    seen = {giver}
    reached = [giver]
    for member in reached:
        last = {partition.topic: partition for partition in sorted(assignment[member])}
        for topic in sorted(last, reverse=True):
            for taker in sorted(eligible[topic], key=lambda candidate: (len(assignment[candidate]), candidate)):
                if taker in seen:
                    continue
                seen.add(taker)
                reached.append(taker)
                came[taker] = last[topic], member
                if len(assignment[taker]) <= len(assignment[giver]) - 2:
                    path = []
                    while taker != giver:
                        partition, before = came[taker]
                        path.append((partition, before, taker))
                        taker = before
                    return path
    return []


def cooperative(before: Members, target: Assignment) -> Assignment:
    """Return the part of an assignment that can be given now, without partitions that another member still owns."""
    owner = {partition: member for member, subscriber in before.items() for partition in subscriber.owned}
    return {
        member: [partition for partition in parts if owner.get(partition, member) == member]
        for member, parts in target.items()
    }


def assign_cooperatively(members: Members, topics: Topics) -> Assignment:
    """As sticky; what changes hands is given up first."""
    return cooperative(members, assign_sticky(members, topics))


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
    short_names = [_JAVA_NAMES.get(name.rpartition(".")[2], name) for name in names]
    for name in short_names:
        if name not in ASSIGNORS:
            raise ValueError(f"{name} is no assignor; there are {', '.join(ASSIGNORS)}")
    return short_names
