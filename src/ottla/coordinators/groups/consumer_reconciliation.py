"""The next step of a member of a consumer group towards its target (KIP-848).

                     must give back nothing, or has said that it did
      Stable ---------------------------------------------------------> Stable, or UnreleasedPartitions
        |                                                                 ^      while others have what it should get
        |  its target is smaller than what it has                         |
        +-----------------> UnrevokedPartitions --------------------------+
                            stays in its epoch until its heartbeat no longer names what it must give back

A partition is in the hands of one member at any time: a member gets what nobody owns, and owns what it has not given back.
"""

from collections.abc import Iterable, Mapping

from ottla.coordinators.groups.consumer_member import Current, MemberState, Owned, Target
from ottla.metadata.refusal import Refused
from ottla.protocol import errors

Reported = Mapping[bytes, frozenset[int]]
"""Topic id -> partitions: what a heartbeat says that the member has."""


def reported(topics: Iterable[tuple[bytes, Iterable[int]]]) -> Reported:
    """What a member says it has, as a mapping; a topic may be named twice."""
    found: dict[bytes, frozenset[int]] = {}
    for topic_id, partitions in topics:
        found[topic_id] = found.get(topic_id, frozenset()) | frozenset(partitions)
    return found


def is_within(owned: Reported | None, assigned: Owned) -> bool:
    """Whether a member has nothing but what it was given; False when it does not say."""
    return owned is not None and all(
        partitions <= assigned.get(topic_id, {}).keys() for topic_id, partitions in owned.items()
    )


def _still_has(owned: Reported | None, revoking: Owned) -> bool:
    """Whether a member has something of `revoking`; a heartbeat that does not say what it has gives nothing back."""
    if owned is None:
        return True
    return any(not partitions.isdisjoint(revoking.get(topic_id, {})) for topic_id, partitions in owned.items())


class Goal:
    """Where a member is to go.

    epoch, target  what it should have, and since when
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
    """The member's state after its heartbeat; `current` itself if there is nothing to do.

    owned         what the heartbeat says that it has; None when it does not say
    resubscribed  its subscription is another one: it loses at once what it does not read any more

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
    """Take away the topics that the member does not read any more, before there is a new target."""
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
            # What it gave back itself is free, although the group's books still have it: only it could have taken it.
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
