"""Server-side assignors (KIP-848): target partitions by member. Pure functions of members, topics and the last target.

    uniform   all partitions of all topics assigned evenly; a member keeps its partitions while that is even (the default)
    range     topic by topic, contiguous shares in the order of the members: topics of the same size are divided alike, so
              that one member reads equal keys of all topics (for joins)

Both put balance before stickiness. Racks are ignored, as in Kafka 4.4: a change of racks only causes a new assignment.
"""

import heapq
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.coordinators.groups.consumer.member import Target


class Subscriber(NamedTuple):
    """Input of an assignor for one member: the ids of its topics, all of which exist, and its last target."""

    topics: frozenset[bytes]
    target: Target
    instance_id: str | None = None


Subscribers = Mapping[str, Subscriber]
Assignor = Callable[[Subscribers, Mapping[bytes, int]], dict[str, Target]]
"""Function (members by id, number of partitions by topic id) -> target by member id."""

_Shares = dict[str, dict[bytes, set[int]]]


def _target(share: Mapping[bytes, Collection[int]]) -> Target:
    return {topic_id: frozenset(partitions) for topic_id, partitions in sorted(share.items()) if partitions}


def _freeze(shares: _Shares) -> dict[str, Target]:
    return {member_id: _target(share) for member_id, share in shares.items()}


def assign_ranges(members: Subscribers, partitions: Mapping[bytes, int]) -> dict[str, Target]:
    """Assign contiguous ranges: static members first, by instance id, then the others by id; the first ones get one more."""

    def place(member_id: str) -> tuple[bool, str]:
        instance_id = members[member_id].instance_id
        return (True, member_id) if instance_id is None else (False, instance_id)

    shares: _Shares = {member_id: {} for member_id in members}
    subscribers: dict[bytes, list[str]] = {}
    for member_id in sorted(members, key=place):
        for topic_id in members[member_id].topics:
            subscribers.setdefault(topic_id, []).append(member_id)
    for topic_id, readers in subscribers.items():
        quotient, more = divmod(partitions[topic_id], len(readers))
        begin = 0
        for number, member_id in enumerate(readers):
            end = begin + quotient + (number < more)
            if end > begin:
                shares[member_id][topic_id] = set(range(begin, end))
            begin = end
    return _freeze(shares)


def assign_uniformly(members: Subscribers, partitions: Mapping[bytes, int]) -> dict[str, Target]:
    """Assign evenly: the members' partition counts differ by one at most, if the subscriptions allow it."""
    if not members:
        return {}
    first = next(iter(members.values())).topics
    if all(member.topics is first or member.topics == first for member in members.values()):
        return _deal_alike(members, first, partitions)
    return _deal_by_subscription(members, partitions)


def _keep(members: Subscribers, partitions: Mapping[bytes, int]) -> tuple[dict[str, Target], dict[bytes, set[int]]]:
    """Return what each member keeps of its last target, mostly all of it, and all that is kept by topic; none is kept twice."""
    taken: dict[bytes, set[int]] = {topic_id: set() for topic_id in partitions}
    kept: dict[str, Target] = {}
    for member_id, member in members.items():
        target: dict[bytes, frozenset[int]] = {}
        is_whole = True
        for topic_id, numbers in member.target.items():
            if topic_id not in member.topics:
                is_whole = False
                continue
            others, count = taken[topic_id], partitions[topic_id]
            mine = numbers
            if not numbers or max(numbers) >= count or not others.isdisjoint(numbers):
                is_whole = False
                mine = frozenset(number for number in numbers if number < count and number not in others)
            others |= mine
            target[topic_id] = mine
        kept[member_id] = member.target if is_whole else _target(target)
    return kept, taken


def _share(target: Target) -> dict[bytes, set[int]]:
    return {topic_id: set(numbers) for topic_id, numbers in target.items()}


def _size(share: Mapping[bytes, Collection[int]]) -> int:
    return sum(map(len, share.values()))


def _deal_alike(members: Subscribers, topics: frozenset[bytes], partitions: Mapping[bytes, int]) -> dict[str, Target]:
    """Assign topics that all members read: each gets an even quota; the remainder goes to the members with most partitions.

    A join changes the targets of some members only: those of the others are returned as they were.
    """
    kept, taken = _keep(members, partitions)
    sizes = {member_id: _size(target) for member_id, target in kept.items()}
    quotient, more = divmod(sum(partitions[topic_id] for topic_id in topics), len(members))
    free = [
        (topic_id, number)
        for topic_id in sorted(topics)
        for number in range(partitions[topic_id])
        if number not in taken[topic_id]
    ]
    shares: _Shares = {}
    wanting: list[tuple[str, int]] = []
    # Sorted is stable, also in reverse: among equals the one that joined first gets the extra partition.
    for place, member_id in enumerate(sorted(kept, key=sizes.__getitem__, reverse=True)):
        room = quotient + (place < more) - sizes[member_id]
        if room == 0:
            continue
        share = shares[member_id] = _share(kept[member_id])
        if room > 0:
            wanting.append((member_id, room))
        while room < 0:
            topic_id = max(share, key=lambda topic_id: (len(share[topic_id]), topic_id))
            number = max(share[topic_id])
            share[topic_id].discard(number)
            free.append((topic_id, number))
            room += 1
    dealt = iter(free)
    for member_id, room in wanting:
        for _, (topic_id, number) in zip(range(room), dealt, strict=False):
            shares[member_id].setdefault(topic_id, set()).add(number)
    return kept | _freeze(shares)


def _deal_by_subscription(members: Subscribers, partitions: Mapping[bytes, int]) -> dict[str, Target]:
    """Assign when members read different topics: free partitions go to the member with fewest, topics with few readers
    first; then single partitions move from members with more to members with fewer, until no move helps.
    """
    kept, taken = _keep(members, partitions)
    shares = {member_id: _share(target) for member_id, target in kept.items()}
    sizes = {member_id: _size(share) for member_id, share in shares.items()}
    readers: dict[bytes, list[str]] = {}
    for member_id, member in members.items():
        for topic_id in member.topics:
            readers.setdefault(topic_id, []).append(member_id)
    for topic_id in sorted(readers, key=lambda topic_id: (len(readers[topic_id]), topic_id)):
        free = [number for number in range(partitions[topic_id]) if number not in taken[topic_id]]
        if not free:
            continue
        least = [(sizes[member_id], place, member_id) for place, member_id in enumerate(readers[topic_id])]
        heapq.heapify(least)
        for number in free:
            size, place, taker = least[0]
            shares[taker].setdefault(topic_id, set()).add(number)
            sizes[taker] = size + 1
            heapq.heapreplace(least, (size + 1, place, taker))
    while _move_along(shares, sizes, readers):
        pass
    return _freeze(shares)


def _move_along(shares: _Shares, sizes: dict[str, int], readers: Mapping[bytes, Sequence[str]]) -> bool:
    """Move one partition along a chain: from a member with many, over others, to one that has at least two fewer.

    Chains are needed when the members with few partitions read none of the topics of those with many, but a third member
    reads both. Returns whether anything moved. Each move lowers the sum of squares of the sizes, so that the moves end.
    """
    fewest = min(sizes.values())
    settled: set[str] = set()
    for giver in sorted(sizes, key=lambda member_id: (-sizes[member_id], member_id)):
        if sizes[giver] <= fewest + 1:
            return False
        if giver in settled:
            continue
        came_by = _reach(giver, shares, readers)
        taker = min(came_by, key=lambda member_id: (sizes[member_id], member_id))
        if sizes[taker] + 1 >= sizes[giver]:
            settled |= came_by.keys()  # none has more than the giver, or reaches members that the giver does not
            continue
        sizes[giver] -= 1
        sizes[taker] += 1
        while taker != giver:
            owner, topic_id = came_by[taker]
            number = max(shares[owner][topic_id])
            shares[owner][topic_id].discard(number)
            shares[taker].setdefault(topic_id, set()).add(number)
            taker = owner
        return True
    return False


def _reach(giver: str, shares: _Shares, readers: Mapping[bytes, Sequence[str]]) -> dict[str, tuple[str, bytes]]:
    """Find the members that can receive a partition from `giver`, directly or over others: member -> (source, topic)."""
    came_by: dict[str, tuple[str, bytes]] = {giver: ("", b"")}
    queue = [giver]
    passed: set[bytes] = set()
    for member_id in queue:
        for topic_id, numbers in shares[member_id].items():
            if not numbers or topic_id in passed:
                continue
            passed.add(topic_id)
            for reader in readers[topic_id]:
                if reader not in came_by:
                    came_by[reader] = member_id, topic_id
                    queue.append(reader)
    return came_by


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniformly, "range": assign_ranges}
"""Assignors by the name in requests; group.consumer.assignors selects those that a broker offers."""
