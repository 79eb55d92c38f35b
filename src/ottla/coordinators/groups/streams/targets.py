"""Targets of a streams group: the assignor's result for its members, and the records of what has changed."""

from collections.abc import Iterator, Mapping

from ottla.coordinators.groups.streams.assignor import TaskMember, Workload, assign_sticky
from ottla.coordinators.groups.streams.assignors import Assign, GroupSpec, MemberSpec
from ottla.coordinators.groups.streams.group import StreamsGroup
from ottla.coordinators.groups.streams.internal_topics import SizedTopology
from ottla.coordinators.groups.streams.member import Current, Description, Offsets
from ottla.coordinators.groups.streams.records import member_target
from ottla.coordinators.groups.streams.tasks import TaskSet
from ottla.coordinators.records import CoordinatorRecord

Members = Mapping[str, tuple[Description, Current, Offsets]]
"""Member id -> its description, current assignment and reported offsets, in the order of joining."""
_STANDBYS = "num.standby.replicas"
_TAGS = "rack.aware.assignment.tags"


def standby_replicas(configs: Mapping[str, str]) -> int:
    """Return the number of copies of each stateful task."""
    return int(configs[_STANDBYS])


def assignor_configs(replicas: int, tags: str) -> dict[str, str]:
    """Return the configs of the assignor, as they are logged with the group's epoch."""
    return {_STANDBYS: str(replicas), **({_TAGS: tags} if tags else {})}


def missing_tags(configs: Mapping[str, str], description: Description) -> list[str]:
    """Return the tags that the assignor wants and a member does not have."""
    has = {key for key, _ in description.client_tags}
    return [tag for tag in configs.get(_TAGS, "").split(",") if tag and tag not in has]


def compute_targets(
    members: Members, sized: SizedTopology | None, configs: Mapping[str, str], assign: Assign | None
) -> dict[str, TaskSet]:
    """Return the targets of all members; empty ones while the topics are not right. Raises AssignorFailed.

    configs  those of the assignor, see `assignor_configs`
    assign   the assignor; None for "sticky"
    """
    if sized is None or sized.problem is not None:
        return dict.fromkeys(members, TaskSet())
    replicas = standby_replicas(configs)
    if assign is not None:
        return dict.fromkeys(members, TaskSet()) | dict(assign(_group_spec(members, sized, configs)))
    subjects = {
        member_id: TaskMember(
            description.process_id,
            current.assigned.active,
            current.standby,
            {(subtopology_id, partition): offset for subtopology_id, partition, offset in offsets},
        )
        for member_id, (description, current, offsets) in members.items()
    }
    return assign_sticky(subjects, Workload(sized.tasks, sized.stateful, replicas))


def _group_spec(members: Members, sized: SizedTopology, configs: Mapping[str, str]) -> GroupSpec:
    specs = {}
    for member_id, (description, current, offsets) in members.items():
        by_subtopology: dict[str, dict[int, int]] = {}
        for subtopology_id, partition, offset in offsets:
            by_subtopology.setdefault(subtopology_id, {})[partition] = offset
        active = {subtopology_id: frozenset(tasks) for subtopology_id, tasks in current.assigned.active.items()}
        specs[member_id] = MemberSpec(
            description.instance_id,
            description.rack_id,
            description.process_id,
            dict(description.client_tags),
            active,
            current.standby,
            by_subtopology,
        )
    tags = tuple(tag for tag in configs.get(_TAGS, "").split(",") if tag)
    return GroupSpec(specs, dict(sized.tasks), frozenset(sized.stateful), standby_replicas(configs), tags)


def target_records(
    group: StreamsGroup, targets: Mapping[str, TaskSet], successor: tuple[str, str] | None = None
) -> Iterator[CoordinatorRecord]:
    """Yield the records of targets that differ from the group's.

    successor  (member id, member id): the first one takes over the target of the second one, whose record is written already
    """
    for member_id, target in targets.items():
        logged = group.targets.get(successor[1] if successor is not None and member_id == successor[0] else member_id)
        if target != logged:
            yield member_target(group.group_id, member_id, target)
