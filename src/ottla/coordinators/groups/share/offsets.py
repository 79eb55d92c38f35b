"""Administration of share group offsets: the part of the group coordinator.

The share coordinator keeps the state itself. A change has three steps: `begin_*` in this module records the intention, the
broker calls the share coordinator, and `finish_initialization` or `finish_deletion` records the outcome. If a broker fails in
between, partitions stay initializing or deleting: a later heartbeat initialises them again, or another deletion includes them.
"""
# ruff: noqa: ARG001, ARG005 - operations and refusals have one signature each, whatever they need of it

from collections.abc import Mapping
from functools import partial
from typing import Final, NamedTuple

from ottla.coordinators.groups.share import records as share_records
from ottla.coordinators.groups.share.group import union_of
from ottla.coordinators.groups.share.heartbeat import record_request, share_group_of, share_group_or_new
from ottla.coordinators.groups.share.records import NamedPartitions
from ottla.coordinators.groups.state import Groups
from ottla.coordinators.runtime import Millis, Result, operation
from ottla.metadata.refusal import Refused
from ottla.protocol import errors

Partitions = Mapping[bytes, frozenset[int]]
"""Topic id -> partitions."""
NOTHING_TO_DELETE: Final = "There is no offset information to delete."


class ShareGroupName(NamedTuple):
    """Query about one share group."""

    group_id: str


class KnownPartitions(NamedTuple):
    """Partitions that have a state, by topic id; empty if the group does not exist."""

    error_code: int
    is_share_group: bool = False
    initialized: NamedPartitions = {}  # noqa: RUF012 - never modified


@operation(lambda request, code: KnownPartitions(code))
def known_partitions(groups: Groups, request: ShareGroupName, now: Millis) -> Result:
    """Return the partitions in which a group may have an offset."""
    group = groups.share_groups.get(request.group_id)
    known = (
        KnownPartitions(errors.NONE)
        if group is None
        else KnownPartitions(errors.NONE, True, group.partitions.initialized)
    )
    return Result(answers=((request, known),))


# AlterShareGroupOffsets


class OffsetAlteration(NamedTuple):
    """New start offsets of the group in these partitions, which exist. `names_topic`: the request names a topic that exists."""

    group_id: str
    partitions: NamedPartitions
    names_topic: bool


class Begun(NamedTuple):
    """Outcome of `begin_alteration`: an error, or the state epoch of the change."""

    error_code: int
    error_message: str | None = None
    state_epoch: int = 0


def _refuse(code: int) -> Begun:
    return Begun(code, errors.error(code).message)


@operation(lambda request, code: _refuse(code))
def begin_alteration(groups: Groups, request: OffsetAlteration, now: Millis) -> Result:
    """Begin to alter offsets of a group without members; a group that does not exist is created if a topic exists."""
    try:
        group = share_group_or_new(groups, request.group_id)
    except Refused as refused:
        return Result(answers=((request, Begun(refused.code, refused.message)),))
    if not group.is_empty:
        return Result(answers=((request, _refuse(errors.NON_EMPTY_GROUP)),))
    answers = ((request, Begun(errors.NONE, None, group.epoch)),)
    if not request.names_topic:
        return Result(answers=answers)
    before = group.partitions
    initializing = union_of(before.initializing, request.partitions)
    # This record alone creates the group, in its first epoch.
    record = share_records.state_partitions(group.group_id, initializing, before.initialized, before.deleting)
    return Result([record], answers, then=partial(record_request, request.group_id, frozenset(request.partitions)))


# DeleteShareGroupOffsets, and the state of a group that is deleted


class Deletion(NamedTuple):
    """Deletion of the group's offsets in these topics (id -> name); None for all topics, before the group itself is deleted."""

    group_id: str
    topics: Mapping[bytes, str] | None


class Deleting(NamedTuple):
    """Outcome of `begin_deletion`: an error, or the partitions whose state is to be deleted."""

    error_code: int
    error_message: str | None = None
    partitions: Partitions = {}  # noqa: RUF012 - never modified


@operation(lambda request, code: Deleting(code, errors.error(code).message))
def begin_deletion(groups: Groups, request: Deletion, now: Millis) -> Result:
    """Begin to delete the state of a group without members."""
    try:
        group = share_group_of(groups, request.group_id)
    except Refused as refused:
        return Result(answers=((request, Deleting(refused.code, refused.message)),))
    if not group.is_empty:
        refusal = Deleting(errors.NON_EMPTY_GROUP, errors.error(errors.NON_EMPTY_GROUP).message)
        return Result(answers=((request, refusal),))
    before = group.partitions
    topics = groups.topology.image.topics_by_id
    stated = union_of(before.initialized, before.initializing)
    deleting = {**before.deleting, **{stated_id: name for stated_id, (name, _) in stated.items()}}
    if request.topics is not None:
        deleting = {topic_id: name for topic_id, name in request.topics.items() if topic_id in deleting}
    partitions: dict[bytes, frozenset[int]] = {}
    for topic_id in deleting:
        if topic_id in topics:
            # An unfinished deletion has recorded topics only: all of their partitions are deleted.
            everything = frozenset(range(len(topics[topic_id].partitions)))
            partitions[topic_id] = everything if topic_id in before.deleting else stated[topic_id][1]
    if not deleting:
        return Result(answers=((request, Deleting(errors.NONE)),))
    record = share_records.state_partitions(
        group.group_id,
        {topic_id: named for topic_id, named in before.initializing.items() if topic_id not in deleting},
        {topic_id: named for topic_id, named in before.initialized.items() if topic_id not in deleting},
        {**before.deleting, **deleting},
    )
    return Result([record], ((request, Deleting(errors.NONE, None, partitions)),))


class Deleted(NamedTuple):
    """Topics (by id) whose state the share coordinator has deleted."""

    group_id: str
    topic_ids: frozenset[bytes]


@operation(lambda request, code: code)
def finish_deletion(groups: Groups, request: Deleted, now: Millis) -> Result:
    """Finish the deletion of topics of a group. The answer is an error code."""
    group = groups.share_groups.get(request.group_id)
    if group is None:
        return Result(answers=((request, errors.GROUP_ID_NOT_FOUND),))
    before = group.partitions
    left = {topic_id: name for topic_id, name in before.deleting.items() if topic_id not in request.topic_ids}
    record = share_records.state_partitions(group.group_id, before.initializing, before.initialized, left)
    return Result([record], ((request, errors.NONE),))


# Deleted topics


class ShareTopicsDeleted(NamedTuple):
    """Deleted topics, by id."""

    topic_ids: frozenset[bytes]


@operation(lambda request, code: code)
def forget_share_topics(groups: Groups, request: ShareTopicsDeleted, now: Millis) -> Result:
    """Remove deleted topics from all share groups; the share coordinator deletes the state itself."""
    gone = request.topic_ids
    records = [
        share_records.state_partitions(
            group.group_id,
            {topic_id: named for topic_id, named in group.partitions.initializing.items() if topic_id not in gone},
            {topic_id: named for topic_id, named in group.partitions.initialized.items() if topic_id not in gone},
            {topic_id: name for topic_id, name in group.partitions.deleting.items() if topic_id not in gone},
        )
        for group in groups.share_groups.values()
        if any(not gone.isdisjoint(topics) for topics in group.partitions)
    ]
    return Result(records, ((request, errors.NONE),))
