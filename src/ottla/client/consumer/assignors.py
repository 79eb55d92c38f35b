"""Partition assignors, run by the leader of a classic group: range, roundrobin, sticky, cooperative-sticky.

range               each topic by itself, a contiguous range of partitions to each member; members in order of their ids
roundrobin          all partitions of all topics to the members in turn
sticky              balanced; members keep as many of their partitions as possible (KIP-54)
cooperative-sticky  the same; members revoke only partitions that move to another member (KIP-429)

An assignment is computed from (member -> subscription and owned partitions) and (topic -> racks of each partition).
Members are ordered by group.instance.id if they have one, so that a restart does not change the assignment.

Racks (KIP-881): if members have a rack (client.rack) and the racks of partitions differ, range and the sticky assignors
prefer partitions with a replica in the member's rack, as far as the number of partitions of each member stays the same.
Racks take precedence over stickiness.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.client.topics import TopicPartition


class SubscribedMember(NamedTuple):
    """Subscription of a group member, as received by the leader.

    owned       partitions that the member owns
    generation  generation in which the owned partitions were assigned, -1 if unknown
    rack        rack of the member, None if unknown
    """

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    instance_id: str | None = None
    rack: str | None = None


Racks = frozenset[str]
Topics = Mapping[str, Sequence[Racks]]
"""topic -> racks with a replica, for each partition"""


Assignment = dict[str, list[TopicPartition]]
Members = Mapping[str, SubscribedMember]
Assignor = Callable[[Members, Topics], Assignment]


def _sort_members(members: Members) -> list[str]:
    """Sort static members by instance id, then the others by member id, as Kafka's AbstractPartitionAssignor does."""

    def rank(member: str) -> tuple[int, str]:
        instance = members[member].instance_id
        return (0, instance) if instance is not None else (1, member)

    return sorted(members, key=rank)


def _racks_matter(members: Iterable[SubscribedMember], partitions: Iterable[Racks]) -> bool:
    """Return True if the assignment depends on racks, by the rule of Kafka's AbstractPartitionAssignor."""
    ours = {member.rack for member in members if member.rack}
    per_partition = list(partitions)
    theirs: Racks = frozenset().union(*per_partition)
    return not theirs.isdisjoint(ours) and any(racks != theirs for racks in per_partition)


class _Range:
    """State of the assignment of one topic by `assign_range`.

    subscribers  subscribed members, in order, with their racks
    left    partitions that are not assigned yet
    """

    def __init__(self, topic: str, subscribers: list[tuple[str, str | None]], racks: Sequence[Racks]) -> None:
        self.topic = topic
        self.subscribers = subscribers
        self.racks = racks
        self.left = list(range(len(racks)))
        self._each, self._extra = divmod(len(racks), len(subscribers))
        self._given = dict.fromkeys((member for member, _ in subscribers), 0)

    def room(self, member: str) -> int:
        """Return the number of partitions that may still be assigned to a member."""
        return max(self._each + (self._extra > 0) - self._given[member], 0)

    def near(self, rack: str | None, index: int) -> bool:
        """Return True if a partition has a replica in the rack, or the member has no rack."""
        return not rack or rack in self.racks[index]

    def give(self, member: str, indexes: list[int], assignment: Assignment) -> None:
        """Assign partitions to a member."""
        self._given[member] += len(indexes)
        self._extra -= self._given[member] > self._each
        taken = set(indexes)
        self.left = [index for index in self.left if index not in taken]
        assignment[member] += [TopicPartition(self.topic, index) for index in indexes]

    def assign(self, assignment: Assignment, *, near: bool) -> None:
        """Assign contiguous partitions to each member, up to its limit; `near`: only those with a replica in its rack."""
        for member, rack in self.subscribers:
            indexes = [index for index in self.left if not near or self.near(rack, index)][: self.room(member)]
            if indexes:
                self.give(member, indexes, assignment)


def assign_range(members: Members, topics: Topics) -> Assignment:
    """Assign each topic by itself; the first members get one partition more if the number is not divisible.

    If racks matter, partitions in the member's rack are assigned first. Topics with the same subscribers and number of
    partitions are co-partitioned: partitions of the same number go to one member, so that it can join the topics.
    """
    assignment: Assignment = {member: [] for member in members}
    ordered = _sort_members(members)
    ranges = []
    for topic in sorted({topic for member in members.values() for topic in member.topics if topics.get(topic)}):
        subscribers = [(member, members[member].rack) for member in ordered if topic in members[member].topics]
        ranges.append(_Range(topic, subscribers, topics[topic]))
    nearby = [
        topic_range
        for topic_range in ranges
        if _racks_matter([members[member] for member, _ in topic_range.subscribers], topic_range.racks)
    ]
    if nearby:
        together: dict[tuple[tuple[tuple[str, str | None], ...], int], list[_Range]] = {}
        for topic_range in ranges:
            together.setdefault((tuple(topic_range.subscribers), len(topic_range.racks)), []).append(topic_range)
        for group in together.values():
            if len(group) > 1:
                _assign_together(group, assignment)
            elif group[0] in nearby:
                group[0].assign(assignment, near=True)
    for topic_range in ranges:
        topic_range.assign(assignment, near=False)
    return {member: sorted(parts) for member, parts in assignment.items()} if nearby else assignment


def _assign_together(group: list[_Range], assignment: Assignment) -> None:
    """Assign each partition number of co-partitioned topics to the first member whose rack has replicas in all topics."""
    if not any(rack for _, rack in group[0].subscribers):
        return
    for index in range(len(group[0].racks)):
        for member, rack in group[0].subscribers:
            if all(topic_range.near(rack, index) and topic_range.room(member) for topic_range in group):
                for topic_range in group:
                    topic_range.give(member, [index], assignment)
                break


def assign_roundrobin(members: Members, topics: Topics) -> Assignment:
    """Assign all partitions of all topics in turn to the members that subscribe to the topic."""
    assignment: Assignment = {member: [] for member in members}
    subscribers = _sort_members(members)
    turn = 0
    for topic in sorted({topic for member in members.values() for topic in member.topics if topic in topics}):
        for index in range(len(topics[topic])):
            while topic not in members[subscribers[turn % len(subscribers)]].topics:
                turn += 1
            assignment[subscribers[turn % len(subscribers)]].append(TopicPartition(topic, index))
            turn += 1
    return assignment


def assign_sticky(members: Members, topics: Topics) -> Assignment:
    """Assign as evenly as subscriptions allow, prefer replicas in the member's rack, and move as few partitions as possible.

    Members keep the partitions that they validly own; if two members claim a partition, the one of the newer generation keeps
    it. Free partitions go to the eligible member with the fewest. Then partitions move from a member to an eligible one that
    has at least two fewer, until there is no such pair. Finally partitions are exchanged between members if that puts more
    of them in the rack of their member.

    If racks matter, free partitions are distributed twice, once by the racks and once without them, as the exchange of pairs
    cannot always correct a choice: the assignment with more partitions in the rack of their member is returned.
    """
    eligible: dict[str, list[str]] = {}
    for member in _sort_members(members):
        for topic in members[member].topics:
            eligible.setdefault(topic, []).append(member)
    matter = _racks_matter(members.values(), [racks for topic in eligible for racks in topics.get(topic, ())])

    def near(member: str, partition: TopicPartition) -> bool:
        rack = members[member].rack
        return not matter or not rack or rack in topics[partition.topic][partition.partition]

    kept = _keep_owned(members, topics)
    taken = {partition for parts in kept.values() for partition in parts}
    free = [
        TopicPartition(topic, index)
        for topic in sorted(eligible)
        for index in range(len(topics.get(topic, ())))
        if (topic, index) not in taken
    ]
    free.sort(key=lambda part: (len(eligible[part.topic]), part))  # those with the fewest eligible members come first

    def complete(*, by_racks: bool) -> Assignment:
        assignment = {member: list(parts) for member, parts in kept.items()}
        for partition in free:
            least = min(
                eligible[partition.topic],
                key=lambda member: (len(assignment[member]), by_racks and not near(member, partition)),
            )
            assignment[least].append(partition)
        changes = True
        while changes:
            while _move_one(assignment, eligible):
                pass
            changes = matter and _brought_nearer(assignment, eligible, near)
        return assignment

    candidates = [complete(by_racks=matter)]
    if matter and free:
        candidates.append(complete(by_racks=False))
    best = max(
        candidates,
        key=lambda candidate: sum(near(member, part) for member, parts in candidate.items() for part in parts),
    )
    return {member: sorted(parts) for member, parts in best.items()}


def _keep_owned(members: Members, topics: Topics) -> Assignment:
    claims: dict[TopicPartition, tuple[int, str]] = {}
    for member in _sort_members(members):
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
    """Move one partition into the rack of its member and keep the balance: to a member that has one fewer, or in exchange
    for another partition. Return True if one was moved. Terminates, since each step reduces the partitions in other racks."""
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


def _move_one(assignment: Assignment, eligible: Mapping[str, list[str]]) -> bool:
    """Move one partition to improve the balance, through other members if needed. Return True if one was moved."""
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
    """Return the shortest chain of moves from a member to one with at least two fewer: (partition, from, to), last first."""
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
    """Return an assignment without the partitions that another member still owns and has to revoke first."""
    owner = {partition: member for member, subscriber in before.items() for partition in subscriber.owned}
    return {
        member: [partition for partition in parts if owner.get(partition, member) == member]
        for member, parts in target.items()
    }


def assign_cooperatively(members: Members, topics: Topics) -> Assignment:
    """Assign as sticky, but leave out partitions until their previous owner has revoked them."""
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
    """Convert configured assignors, by name or Java class name, to names of the protocol. Raises ValueError."""
    short_names = [_JAVA_NAMES.get(name.rpartition(".")[2], name) for name in names]
    for name in short_names:
        if name not in ASSIGNORS:
            raise ValueError(f"{name} is no assignor; there are {', '.join(ASSIGNORS)}")
    return short_names
