"""The simple assignor of share groups (KIP-932): the partitions that each member fetches. A partition may go to many members.

    partitions >= members    every partition to one member, member counts differ by one at most
    members > partitions     every partition to the same number of members (rounded up), members to one or two partitions

A member keeps its partitions while the assignment is balanced. If all members read the same topics, the partitions of all
topics are balanced together; else every topic is balanced by itself, among its readers. Racks are ignored, as in Kafka 4.4.
Ties between members are resolved by the order of joining (in Kafka: by the order of a hash table).
"""

from collections.abc import Iterable, Mapping, Sequence

from ottla.coordinators.groups.consumer.assignors import Subscribers
from ottla.coordinators.groups.consumer.member import Target

_Place = tuple[bytes, int]
"""Topic id and partition."""
_Shares = Mapping[str, set[_Place]]


def assign_simply(members: Subscribers, partitions: Mapping[bytes, Iterable[int]]) -> dict[str, Target]:
    """Return targets by member id; `partitions` are those that may be assigned, by topic id."""
    shares: dict[str, set[_Place]] = {member_id: set() for member_id in members}
    for member_id, member in members.items():
        for topic_id, numbers in member.target.items():
            if topic_id in member.topics:
                shares[member_id] |= {
                    (topic_id, number) for number in numbers if number in partitions.get(topic_id, ())
                }
    subscriptions = {member.topics for member in members.values()}
    if len(subscriptions) == 1:
        everything = [
            (topic_id, number)
            for topic_id in sorted(next(iter(subscriptions)))
            for number in sorted(partitions.get(topic_id, ()))
        ]
        _balance(shares, everything)
    else:
        for topic_id in sorted(frozenset().union(*subscriptions)):
            readers = [member_id for member_id, member in members.items() if topic_id in member.topics]
            places = [(topic_id, number) for number in sorted(partitions.get(topic_id, ()))]
            mine = {member_id: {place for place in shares[member_id] if place[0] == topic_id} for member_id in readers}
            _balance(mine, places)
            for member_id, share in mine.items():
                shares[member_id] = {place for place in shares[member_id] if place[0] != topic_id} | share
    return {member_id: _target(share) for member_id, share in shares.items()}


def _target(share: set[_Place]) -> Target:
    topics: dict[bytes, set[int]] = {}
    for topic_id, number in share:
        topics.setdefault(topic_id, set()).add(number)
    return {topic_id: frozenset(topics[topic_id]) for topic_id in sorted(topics)}


def _balance(shares: _Shares, places: Sequence[_Place]) -> None:
    """Revoke partitions from members with too many, and from too many members of one partition; then assign what is missing.

    Every partition gets `sharing` members, which makes len(places) * sharing pieces. Each member's quota is an even part of
    them; the running sums of quotas are rounded, not the quotas, so that they add up to the number of pieces.
    """
    if not places or not shares:
        return
    sharing = -(-len(shares) // len(places))
    pieces = sharing * len(places)
    upto = [-(-pieces * number // len(shares)) for number in range(len(shares) + 1)]
    quotas = {member_id: upto[number + 1] - upto[number] for number, member_id in enumerate(shares)}
    holders: dict[_Place, list[str]] = {place: [] for place in places}
    for member_id, share in shares.items():
        for place in sorted(share)[: max(0, len(share) - quotas[member_id])]:
            share.discard(place)
        for place in share:
            holders[place].append(member_id)
    for place, who in holders.items():
        while len(who) > sharing:
            shares[who.pop(0)].discard(place)
    unfilled = [member_id for member_id, share in shares.items() if len(share) < quotas[member_id]]
    for place in places:
        _deal(place, sharing - len(holders[place]), shares, quotas, unfilled)


def _deal(place: _Place, pieces: int, shares: _Shares, quotas: Mapping[str, int], unfilled: list[str]) -> None:
    """Assign `place` to up to `pieces` unfilled members that do not have it yet; these move to the end of the list."""
    for member_id in [candidate for candidate in unfilled if place not in shares[candidate]][:pieces]:
        shares[member_id].add(place)
        unfilled.remove(member_id)
        if len(shares[member_id]) < quotas[member_id]:
            unfilled.append(member_id)
