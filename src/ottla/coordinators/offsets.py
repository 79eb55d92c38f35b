"""Committed offsets: commit, fetch, delete, and their expiry.

The log has one record for each committed offset; in memory they are a dictionary, which only replay changes. This module has no
metadata: the caller converts topic ids to names and leaves out unknown and unauthorized topics.
"""
# ruff: noqa: ARG001, ARG005 - operations, refusals and timers have one signature each, whatever they need of it

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Final, NamedTuple

from ottla.coordinators.groups.classic.group import CONSUMER, ClassicGroup, State
from ottla.coordinators.groups.classic.membership import expire_session
from ottla.coordinators.groups.committed_offset import CommittedOffset
from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.coordinators.groups.consumer.member import ConsumerMember
from ottla.coordinators.groups.offset_commits import OffsetCommits
from ottla.coordinators.groups.records import (
    group_tombstone,
    offset_tombstone,
)
from ottla.coordinators.groups.state import Groups
from ottla.coordinators.groups.streams.group import StreamsGroup
from ottla.coordinators.records import CoordinatorRecord
from ottla.coordinators.runtime import Millis, Result, Timer, operation
from ottla.protocol import errors
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

NO_OFFSET: Final = -1
_FIRST_WITH_MEMBER_EPOCHS: Final = 9
"""First version of OffsetCommit whose senders understand the errors of member epochs."""

# OffsetCommit


def refuse_commit(request: OffsetCommitRequest, code: int) -> OffsetCommitResponse:
    """Return an error response: every partition of `request` with `code`."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


@operation(refuse_commit)
def commit(groups: Groups, request: OffsetCommitRequest, now: Millis) -> Result:
    """Commit the offsets of a group. Topics are identified by name; their ids, if known, go into the records."""
    group_id = request.group_id
    group = groups.groups.get(group_id)
    code = _commit_error_of(groups, request)
    if code != errors.NONE:
        return Result(answers=((request, refuse_commit(request, code)),))
    records, response = _records_of(groups, request, now)
    timers: tuple[Timer, ...] = ()
    if group is not None and (group.state is State.STABLE or group.state is State.PREPARING_REBALANCE):
        member = group.members.get(request.member_id)
        if member is not None:  # a commit renews the session
            timers = (Timer(expire_session, (group_id, member.member_id), member.session_timeout_ms),)
    return Result(records, ((request, response),), timers)


def _commit_error_of(groups: Groups, request: OffsetCommitRequest) -> int:
    """Return the error if this sender may not commit to the group, whatever type it has, else NONE."""
    if request.group_id in groups.share_groups:  # share groups have no committed offsets
        return errors.GROUP_ID_NOT_FOUND
    consumer_group = groups.consumer_groups.get(request.group_id)
    if consumer_group is not None:
        return _consumer_commit_error(consumer_group, request)
    streams_group = groups.streams_groups.get(request.group_id)
    if streams_group is not None:
        member = streams_group.members.get(request.member_id)
        if member is not None and request.context.version < _FIRST_WITH_MEMBER_EPOCHS:
            return errors.UNSUPPORTED_VERSION
        return _streams_epoch_error(streams_group, request)
    return _commit_error(groups.groups.get(request.group_id), request)


class TransactionalCommit(NamedTuple):
    """Offset commit as part of a transaction of `producer` (id, epoch), for TxnOffsetCommit."""

    request: OffsetCommitRequest
    producer: tuple[int, int]


def _refuse_in_transaction(commit: TransactionalCommit, code: int) -> OffsetCommitResponse:
    return refuse_commit(commit.request, code)


@operation(_refuse_in_transaction)
def commit_in_transaction(groups: Groups, commit: TransactionalCommit, now: Millis) -> Result:
    """Commit offsets of a group as part of a transaction. Topics are identified by name.

    Members are checked if the commit names one: older clients do not (KIP-447).
    """
    request = commit.request
    consumer_group = groups.consumer_groups.get(request.group_id)
    streams_group = groups.streams_groups.get(request.group_id)
    if request.group_id in groups.share_groups:
        code = errors.GROUP_ID_NOT_FOUND
    elif consumer_group is not None:
        code = _transactional_epoch_error(request, lambda: _epoch_error(consumer_group, request))
    elif streams_group is not None:
        code = _transactional_epoch_error(request, lambda: _streams_epoch_error(streams_group, request))
    else:
        code = _transactional_commit_error(groups.groups.get(request.group_id), request)
    if code != errors.NONE:
        return Result(answers=((commit, refuse_commit(request, code)),))
    records, response = _records_of(groups, request, now)
    return Result(records, ((commit, response),), producer=commit.producer)


def _transactional_commit_error(group: ClassicGroup | None, request: OffsetCommitRequest) -> int:
    generation = request.generation_id_or_member_epoch
    if group is None and generation >= 0:
        return errors.GROUP_ID_NOT_FOUND if request.context.version >= 9 else errors.ILLEGAL_GENERATION
    if group is None:
        return errors.NONE
    if generation < 0 and (group.is_empty or not (request.member_id or request.group_instance_id is not None)):
        return errors.NONE
    code = group.check_member(request.member_id, request.group_instance_id)
    if code != errors.NONE:
        return code
    return errors.NONE if generation == group.generation else errors.ILLEGAL_GENERATION


def _records_of(
    groups: Groups, request: OffsetCommitRequest, now: Millis
) -> tuple[OffsetCommits, OffsetCommitResponse]:
    """Return the records of a permitted commit, and its response."""
    retention_ms = request.retention_time_ms
    commits = OffsetCommits(request.group_id, -1 if retention_ms < 0 else now + retention_ms)
    longest = groups.settings.offset_metadata_max_bytes
    topics: list[OffsetCommitResponseTopic] = []
    for topic in request.topics:
        stored = topic.partitions
        answers = [_success_row(asked.partition_index) for asked in stored]
        refused = [
            at
            for at, asked in enumerate(stored)
            if asked.committed_metadata and len(asked.committed_metadata) > longest
        ]
        if refused:
            code = errors.OFFSET_METADATA_TOO_LARGE
            for at in refused:
                answers[at] = OffsetCommitResponsePartition(partition_index=stored[at].partition_index, error_code=code)
            stored = [asked for at, asked in enumerate(stored) if at not in refused]
        commits.add(topic.name, topic.topic_id, stored, now)
        topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers))
    return commits, OffsetCommitResponse(topics=topics)


@lru_cache(maxsize=10_000)
def _success_row(index: int) -> OffsetCommitResponsePartition:
    """Return the row of a committed offset, which is never changed: responses share it."""
    return OffsetCommitResponsePartition(partition_index=index)


def _commit_error(group: ClassicGroup | None, request: OffsetCommitRequest) -> int:
    """Return the error if this sender may not commit now, else NONE."""
    generation = request.generation_id_or_member_epoch
    if group is None:
        if generation < 0:
            return errors.NONE  # a consumer without membership; the commit creates its group
        return errors.GROUP_ID_NOT_FOUND if request.context.version >= 9 else errors.ILLEGAL_GENERATION
    if generation < 0 and group.is_empty:
        return errors.NONE
    if generation < 0 and not request.member_id and request.group_instance_id is None:
        return errors.UNKNOWN_MEMBER_ID
    code = group.check_member(request.member_id, request.group_instance_id)
    if code != errors.NONE:
        return code
    if generation != group.generation:
        return errors.ILLEGAL_GENERATION
    return errors.REBALANCE_IN_PROGRESS if group.state is State.COMPLETING_REBALANCE else errors.NONE


def _consumer_commit_error(group: ConsumerGroup, request: OffsetCommitRequest) -> int:
    """Return the error if this sender may not commit to a consumer group (KIP-848), else NONE."""
    member = group.members.get(request.member_id)
    if member is not None and not member.is_classic and request.context.version < _FIRST_WITH_MEMBER_EPOCHS:
        return errors.UNSUPPORTED_VERSION
    return _epoch_error(group, request)


def _epoch_error(group: ConsumerGroup, request: OffsetCommitRequest) -> int:
    """Return the error of the sender's member id and epoch, or NONE.

    An older epoch than the member's is valid for partitions that it has owned since that epoch: the response with the new
    epoch may not have reached the member yet.
    """
    epoch = request.generation_id_or_member_epoch
    if epoch < 0 and group.is_empty:
        return errors.NONE
    member = group.members.get(request.member_id)
    if member is None:
        return errors.UNKNOWN_MEMBER_ID
    if epoch == member.current.epoch:
        return errors.NONE
    if epoch < member.current.epoch and all(
        (since := member.current.owns(topic.topic_id, part.partition_index)) is not None and epoch >= since
        for topic in request.topics
        for part in topic.partitions
    ):
        return errors.NONE
    return _stale(member)


def _streams_epoch_error(group: StreamsGroup, request: OffsetCommitRequest) -> int:
    """Return the error of the sender's member id and epoch in a streams group, or NONE.

    An older epoch than the member's is valid for the input of tasks that it has owned since that epoch.
    """
    epoch = request.generation_id_or_member_epoch
    if epoch < 0 and group.is_empty:
        return errors.NONE
    member = group.members.get(request.member_id)
    if member is None:
        return errors.UNKNOWN_MEMBER_ID
    if epoch == member.current.epoch:
        return errors.NONE
    if epoch < member.current.epoch and all(
        (since := group.assignment_epoch(member, topic.name, part.partition_index)) is not None and epoch >= since
        for topic in request.topics
        for part in topic.partitions
    ):
        return errors.NONE
    return errors.STALE_MEMBER_EPOCH


def _transactional_epoch_error(request: OffsetCommitRequest, epoch_error: Callable[[], int]) -> int:
    """Return the error of a commit in a transaction, in which the sender may name no member, or NONE."""
    if request.generation_id_or_member_epoch < 0 and not request.member_id and request.group_instance_id is None:
        return errors.NONE
    code = epoch_error()
    is_old = request.context.version < _FIRST_WITH_MEMBER_EPOCHS
    return errors.ILLEGAL_GENERATION if code == errors.STALE_MEMBER_EPOCH and is_old else code


def _stale(member: ConsumerMember) -> int:
    return errors.ILLEGAL_GENERATION if member.is_classic else errors.STALE_MEMBER_EPOCH


# OffsetFetch


def _refuse_fetch(request: OffsetFetchRequestGroup, code: int) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=request.group_id, error_code=code)


@operation(_refuse_fetch)
def fetch(groups: Groups, request: OffsetFetchRequestGroup, now: Millis) -> Result:
    """Return committed offsets of a group: of the requested partitions, or (topics null) of all that have one.

    A partition without an offset, or of a group that does not exist, is not an error: its offset is -1.
    """
    return _fetch(groups, request, frozenset())


@operation(_refuse_fetch)
def fetch_stable(groups: Groups, request: OffsetFetchRequestGroup, now: Millis) -> Result:
    """Return committed offsets like `fetch`, but UNSTABLE_OFFSET_COMMIT for those in an open transaction (KIP-447).

    If all partitions are requested, those without another committed offset are left out.
    """
    return _fetch(groups, request, groups.pending_of(request.group_id) if groups.pending else frozenset())


def _fetch(groups: Groups, request: OffsetFetchRequestGroup, pending: AbstractSet[tuple[str, int]]) -> Result:
    group = groups.consumer_groups.get(request.group_id)
    if group is not None and (request.member_id is not None or request.member_epoch >= 0):
        member = group.members.get(request.member_id or "")
        code = errors.UNKNOWN_MEMBER_ID
        if member is not None:
            code = errors.NONE if member.current.epoch == request.member_epoch else _stale(member)
        if code != errors.NONE:
            return Result(answers=((request, _refuse_fetch(request, code)),))
    streams_group = groups.streams_groups.get(request.group_id)
    if streams_group is not None and (request.member_id is not None or request.member_epoch >= 0):
        reader = streams_group.members.get(request.member_id or "")
        if reader is None:
            return Result(answers=((request, _refuse_fetch(request, errors.UNKNOWN_MEMBER_ID)),))
        if reader.current.epoch != request.member_epoch:
            return Result(answers=((request, _refuse_fetch(request, errors.STALE_MEMBER_EPOCH)),))
    offsets = groups.offsets.get(request.group_id, {})
    topics: list[OffsetFetchResponseTopics] = []
    if request.topics is None:
        for name, partitions in offsets.items():
            answers = [
                _unstable(index) if (name, index) in pending else _offset_row(index, value)
                for index, value in partitions.items()
            ]
            topics.append(OffsetFetchResponseTopics(name=name, partitions=answers))
    else:
        for topic in request.topics:
            partitions = offsets.get(topic.name, {})
            answers = [
                _unstable(index) if (topic.name, index) in pending else _offset_row(index, partitions.get(index))
                for index in topic.partition_indexes
            ]
            topics.append(OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=answers))
    return Result(answers=((request, OffsetFetchResponseGroup(group_id=request.group_id, topics=topics)),))


def _unstable(index: int) -> OffsetFetchResponsePartitions:
    """Return the row of an offset in an open transaction: the consumer must retry (KIP-447)."""
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=NO_OFFSET,
        metadata="",
        error_code=errors.UNSTABLE_OFFSET_COMMIT,
    )


def _offset_row(index: int, value: CommittedOffset | None) -> OffsetFetchResponsePartitions:
    if value is None:
        return OffsetFetchResponsePartitions(partition_index=index, committed_offset=NO_OFFSET, metadata="")
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
    )


# Deletion


class OffsetDeletion(NamedTuple):
    """OffsetDelete for one group: (topic, partition) pairs of topics that exist."""

    group_id: str
    partitions: list[tuple[str, int]]


class OffsetDeletionOutcome(NamedTuple):
    """Outcome of an OffsetDeletion: `error_code` of the whole, or one code for each requested partition."""

    error_code: int
    codes: list[int]


@operation(lambda request, code: OffsetDeletionOutcome(code, []))
def delete_offsets(groups: Groups, request: OffsetDeletion, now: Millis) -> Result:
    """Delete offsets of topics that no member reads (KIP-496)."""
    group = (
        groups.groups.get(request.group_id)
        or groups.consumer_groups.get(request.group_id)
        or groups.streams_groups.get(request.group_id)
    )
    code = errors.NONE
    if group is None:
        code = errors.GROUP_ID_NOT_FOUND
    elif isinstance(group, ClassicGroup) and not group.is_empty and group.protocol_type != CONSUMER:
        code = errors.NON_EMPTY_GROUP
    if code != errors.NONE or group is None:
        return Result(answers=((request, OffsetDeletionOutcome(code, [])),))
    records: list[CoordinatorRecord] = []
    codes: list[int] = []
    offsets = groups.offsets.get(request.group_id, {})
    for topic, partition in request.partitions:
        if group.is_subscribed(topic):
            codes.append(errors.GROUP_SUBSCRIBED_TO_TOPIC)
            continue
        codes.append(errors.NONE)
        if partition in offsets.get(topic, {}) or groups.is_pending(request.group_id, topic, partition):
            records.append(offset_tombstone(request.group_id, topic, partition))
    return Result(records, ((request, OffsetDeletionOutcome(errors.NONE, codes)),))


class TopicsDeleted(NamedTuple):
    """Deleted topics: the offsets of all groups in them are removed too."""

    topics: frozenset[str]


@operation(lambda request, code: code)
def forget_topics(groups: Groups, request: TopicsDeleted, now: Millis) -> Result:
    """Remove all groups' committed offsets of deleted topics. The answer is NONE."""
    gone = {
        (group_id, topic, partition)
        for group_id, offsets in groups.offsets.items()
        for topic in request.topics & offsets.keys()
        for partition in offsets[topic]
    }
    gone |= {at for offsets in groups.pending.values() for at in offsets if at[1] in request.topics}
    records = [offset_tombstone(*at) for at in sorted(gone)]
    return Result(records, ((request, errors.NONE),))


def all_offset_tombstones(groups: Groups, group_id: str) -> list[CoordinatorRecord]:
    """Return tombstones of all offsets that a group has committed, or that an open transaction commits."""
    offsets = groups.offsets.get(group_id, {})
    counts = [(topic, partition) for topic, partitions in offsets.items() for partition in partitions]
    pending = sorted(groups.pending_of(group_id) - set(counts)) if groups.pending else []
    return [offset_tombstone(group_id, topic, partition) for topic, partition in counts + pending]


# Expiry


def expire_offsets(groups: Groups, now: Millis) -> Result:
    """Remove offsets older than offsets.retention.minutes, and groups without members or offsets; runs periodically.

    Start of the age (KIP-211)
        explicit expiry   none: RetentionTimeMs of OffsetCommit 2-4 gave the time
        empty group       since it became empty, or since the commit when that is not known
        stable consumers  since the commit, and only in topics that no member reads any more
        simple group      since the commit: it never had members
        consumer group    since the commit, and only in topics that no member reads any more (KIP-848)
        streams group     since the commit, once it has no members (KIP-1071)
    In all other groups nothing expires.
    """
    again = Timer(expire_offsets, (), groups.settings.offsets_retention_check_ms)
    records: list[CoordinatorRecord] = []
    for group_id, group in groups.groups.items():
        offsets = groups.offsets.get(group_id, {})
        expired = list(_find_expired(group, groups, now)) if offsets else []
        records += [offset_tombstone(group_id, topic, partition) for topic, partition in expired]
        left = sum(len(partitions) for partitions in offsets.values()) - len(expired)
        if left == 0 and group.is_empty and not group.pending_members and not groups.has_pending(group_id):
            records.append(group_tombstone(group_id))
    for group_id, consumer_group in groups.consumer_groups.items():
        offsets = groups.offsets.get(group_id, {})
        expired = list(_find_expired_of_consumers(consumer_group, groups, now)) if offsets else []
        records += [offset_tombstone(group_id, topic, partition) for topic, partition in expired]
        left = sum(len(partitions) for partitions in offsets.values()) - len(expired)
        if left == 0 and consumer_group.is_empty and not groups.has_pending(group_id):
            records += consumer_group.tombstones()
    for group_id, streams_group in groups.streams_groups.items():
        if streams_group.is_empty and not groups.has_pending(group_id):
            offsets = groups.offsets.get(group_id, {})
            expired = list(_find_expired_of_streams(streams_group, groups, now)) if offsets else []
            records += [offset_tombstone(group_id, topic, partition) for topic, partition in expired]
            if sum(len(partitions) for partitions in offsets.values()) == len(expired):
                records += streams_group.tombstones()
    # A failed append changes nothing: the next run finds the same records.
    return Result(records, timers=(again,), refused=lambda groups, code, now: Result(timers=(again,)))


def _find_expired(group: ClassicGroup, groups: Groups, now: Millis) -> Iterator[tuple[str, int]]:
    empty = group.protocol_type is not None and group.is_empty
    stable = group.protocol_type == CONSUMER and group.state is State.STABLE and group.subscribed_topics is not None
    if not empty and not stable and group.protocol_type is not None:
        return
    since = group.state_timestamp if empty else -1
    for topic, partitions in groups.offsets[group.group_id].items():
        if group.is_subscribed(topic):
            continue
        for partition, value in partitions.items():
            if _is_due(value, since, groups, now) and not groups.is_pending(group.group_id, topic, partition):
                yield topic, partition


def _find_expired_of_consumers(group: ConsumerGroup, groups: Groups, now: Millis) -> Iterator[tuple[str, int]]:
    for topic, partitions in groups.offsets[group.group_id].items():
        if not group.is_subscribed(topic):
            for partition, value in partitions.items():
                if _is_due(value, -1, groups, now) and not groups.is_pending(group.group_id, topic, partition):
                    yield topic, partition


def _find_expired_of_streams(group: StreamsGroup, groups: Groups, now: Millis) -> Iterator[tuple[str, int]]:
    for topic, partitions in groups.offsets[group.group_id].items():
        for partition, value in partitions.items():
            if _is_due(value, -1, groups, now):
                yield topic, partition


def _is_due(value: CommittedOffset, since: int, groups: Groups, now: Millis) -> bool:
    if value.expire_timestamp != -1:
        return now >= value.expire_timestamp
    begun = since if since != -1 else value.commit_timestamp
    return now - begun >= groups.settings.offsets_retention_ms
