"""The next step of a member of a consumer group towards its target (KIP-848).

                     must give back nothing, or has confirmed it
      Stable ---------------------------------------------------------> Stable, or UnreleasedPartitions
        |                                                                 ^      while others have what it should get
        |  its target is smaller than what it has                         |
        +-----------------> UnrevokedPartitions --------------------------+
                            stays in its epoch until its heartbeat no longer names what it must give back

A partition has one owner at any time: a member is assigned only unowned partitions, and owns them until it gives them back.
"""

from collections.abc import Iterable, Mapping

from ottla.coordinators.groups.consumer.member import Current, MemberState, Owned, Target
from ottla.metadata.refusal import Refused
from ottla.protocol import errors

Reported = Mapping[bytes, frozenset[int]]
"""Topic id -> partitions: those that the member owns according to its heartbeat."""


def merge_reported(topics: Iterable[tuple[bytes, Iterable[int]]]) -> Reported:
    """Return the partitions that a member reports to own, as a mapping; a topic may be named twice."""
    partitions_by_id: dict[bytes, frozenset[int]] = {}
    for topic_id, partitions in topics:
        partitions_by_id[topic_id] = partitions_by_id.get(topic_id, frozenset()) | frozenset(partitions)
    return partitions_by_id


def is_within(owned: Reported | None, assigned: Owned) -> bool:
    """Return whether a member owns only partitions that it was assigned; False when it does not report them."""
    return owned is not None and all(
        partitions <= assigned.get(topic_id, {}).keys() for topic_id, partitions in owned.items()
    )


def _still_has(owned: Reported | None, revoking: Owned) -> bool:
    """Return whether a member owns any of `revoking`; assumed without reported partitions."""
    if owned is None:
        return True
    return any(not partitions.isdisjoint(revoking.get(topic_id, {})) for topic_id, partitions in owned.items())


class Goal:
    """Target of a member, and the data needed to move towards it.

    epoch, target  target partitions, and the epoch they were computed for
    topics         ids of the topics that it subscribes to now; the target may be older
    owners         topic id -> partition -> member id, of the whole group
    """

    __slots__ = ("epoch", "member_id", "owners", "target", "topics")

    def __init__(
        self,
        member_id: str,
        epoch: int,
        target: Target,
        topics: frozenset[bytes],
        owners: Mapping[bytes, Mapping[int, str]],
    ) -> None:
        self.member_id = member_id
        self.epoch = epoch
        self.target = target
        self.topics = topics
        self.owners = owners


def next_step(current: Current, goal: Goal, owned: Reported | None, *, resubscribed: bool) -> Current:
    """Return the member's state after its heartbeat; `current` itself if nothing changes.

    owned         partitions reported by the heartbeat; None when it does not report them
    resubscribed  True if its subscription changed: topics that it no longer reads are taken away at once

    Raises Refused (FENCED_MEMBER_EPOCH) for a member in a state that only a newer release knows.
    """
    state = current.state
    if state is MemberState.STABLE and current.epoch == goal.epoch:
        return _without_unsubscribed(current, goal, owned) if resubscribed else current
    if state is MemberState.UNREVOKED_PARTITIONS and _still_has(owned, current.revoking):
        return _without_unsubscribed(current, goal, owned) if resubscribed else current
    if state is MemberState.UNKNOWN:
        if owned is None or owned:
            raise Refused(
                errors.FENCED_MEMBER_EPOCH,
                "The consumer group member is in a unknown state. "
                "The member must abandon all its partitions and rejoin.",
            )
        return _towards(current._replace(epoch=goal.epoch), goal, owned)
    return _towards(current, goal, owned)


def _without_unsubscribed(current: Current, goal: Goal, owned: Reported | None) -> Current:
    """Take away the topics that the member no longer reads, before a new target is computed."""
    lost = {topic_id: parts for topic_id, parts in current.assigned.items() if topic_id not in goal.topics}
    if not lost:
        return current
    assigned = {topic_id: parts for topic_id, parts in current.assigned.items() if topic_id in goal.topics}
    revoking = {topic_id: dict(parts) for topic_id, parts in current.revoking.items()}
    for topic_id, parts in lost.items():
        revoking[topic_id] = {**revoking.get(topic_id, {}), **parts}
    if _still_has(owned, revoking):
        return current.at(current.epoch, MemberState.UNREVOKED_PARTITIONS, assigned, revoking)
    return current.at(current.epoch, current.state, assigned, current.revoking)


def _towards(current: Current, goal: Goal, owned: Reported | None) -> Current:
    assigned: dict[bytes, dict[int, int]] = {}
    revoking: dict[bytes, dict[int, int]] = {}
    new: dict[bytes, list[int]] = {}
    waits = False
    for topic_id in sorted(goal.target.keys() | current.assigned.keys()):
        target = goal.target.get(topic_id, frozenset()) if topic_id in goal.topics else frozenset()
        has = current.assigned.get(topic_id, {})
        keeps = {partition: epoch for partition, epoch in has.items() if partition in target}
        gives = {partition: epoch for partition, epoch in has.items() if partition not in target}
        if keeps:
            assigned[topic_id] = keeps
        if gives:
            revoking[topic_id] = gives
        owners = goal.owners.get(topic_id, {})
        given_back = current.revoking.get(topic_id, {})
        for partition in sorted(target - keeps.keys()):
            # The partitions that it gave back are free, although `owners` still has them: the member was their only owner.
            if partition in owners and partition not in given_back:
                waits = True
            else:
                new.setdefault(topic_id, []).append(partition)
    if revoking and _still_has(owned, revoking):
        return current.at(current.epoch, MemberState.UNREVOKED_PARTITIONS, assigned, revoking)
    for topic_id, partitions in new.items():
        assigned.setdefault(topic_id, {}).update(dict.fromkeys(partitions, goal.epoch))
    state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
    return current.at(goal.epoch, state, assigned, {})
