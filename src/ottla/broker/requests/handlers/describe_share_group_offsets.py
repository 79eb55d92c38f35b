"""DescribeShareGroupOffsets (KIP-932): start offsets of share groups, and their lag.

Authorization
    group: DESCRIBE   GROUP_AUTHORIZATION_FAILED
    topic: DESCRIBE   TOPIC_AUTHORIZATION_FAILED for its partitions; left out of all topics

Behaviour
    feature share.version at 0        UNSUPPORTED_VERSION, for each group
    no topics named (null)            every partition that has a state; none for an unknown group
    a partition without a state, an unknown partition, a share coordinator that fails   start offset -1, no error
    an unknown topic                  the same, with the zero topic id
    an empty group id with topics     INVALID_GROUP_ID (Kafka 4.4: UNKNOWN_SERVER_ERROR)
    the coordinator elsewhere, or loading   its error, for the group, unless topics are named
    a partition without a leader      LEADER_NOT_AVAILABLE, start offset 0

    Lag is the number of records from the start offset on that are not completed; -1 if it is not known. The leaders of the
    partitions are asked for their ends.

Versions
    1  lag (KIP-1226)
"""

from collections.abc import Iterable
from typing import Final

from ottla.broker.broker import Broker
from ottla.broker.coordination.group_protocols import serves_share_groups
from ottla.broker.requests.dispatch import handles
from ottla.broker.requests.latest_offsets import LatestOffset, latest_offsets
from ottla.broker.security.permission import may_use_group, may_use_topic
from ottla.coordinators.groups.share.offsets import KnownPartitions, ShareGroupName, known_partitions
from ottla.coordinators.share.state import UNKNOWN, StateSummary
from ottla.protocol.context import RequestContext
from ottla.protocol.errors import (
    GROUP_AUTHORIZATION_FAILED,
    INVALID_GROUP_ID,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    UNSUPPORTED_VERSION,
    error,
)
from ottla.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from ottla.security.operations import AclOperation
from ottla.tasks.deferred import awaitable

_NO_TOPIC: Final = bytes(16)


@handles(DescribeShareGroupOffsetsRequest, rows="groups.topics.partitions")
async def describe_share_group_offsets(
    request: DescribeShareGroupOffsetsRequest, broker: Broker
) -> DescribeShareGroupOffsetsResponse:
    if not serves_share_groups(broker.image.features):
        refused = [
            DescribeShareGroupOffsetsResponseGroup(group_id=group.group_id, error_code=UNSUPPORTED_VERSION)
            for group in request.groups
        ]
        return DescribeShareGroupOffsetsResponse(groups=refused)
    groups = await broker.tasks.every(_describe(group, broker, request.context) for group in request.groups)
    return DescribeShareGroupOffsetsResponse(groups=groups)


async def _describe(
    group: DescribeShareGroupOffsetsRequestGroup, broker: Broker, context: RequestContext
) -> DescribeShareGroupOffsetsResponseGroup:
    group_id = group.group_id
    if not may_use_group(context, AclOperation.DESCRIBE, group_id):
        code = GROUP_AUTHORIZATION_FAILED
        return DescribeShareGroupOffsetsResponseGroup(group_id=group_id, error_code=code, error_message=None)
    if group.topics is None:
        asked = broker.groups.run(group_id, known_partitions, ShareGroupName(group_id))
        known: KnownPartitions = await awaitable(asked, broker.tasks)
        if known.error_code != NONE:
            return _error_row(group_id, known.error_code)
        names = (
            (name, sorted(partitions))
            for name, partitions in known.initialized.values()
            if may_use_topic(context, AclOperation.DESCRIBE, name, is_logged=False)
        )
        return await _summarize(group_id, names, broker)
    if group.topics and not group_id:
        return _error_row(group_id, INVALID_GROUP_ID)
    allowed, denied = [], []
    for topic in group.topics:
        if may_use_topic(context, AclOperation.DESCRIBE, topic.topic_name):
            allowed.append((topic.topic_name, topic.partitions))
        else:
            denied.append(_denial_row(topic))
    described = await _summarize(group_id, allowed, broker)
    described.topics += denied
    return described


def _denial_row(topic: DescribeShareGroupOffsetsRequestTopic) -> DescribeShareGroupOffsetsResponseTopic:
    code = TOPIC_AUTHORIZATION_FAILED
    partitions = [
        DescribeShareGroupOffsetsResponsePartition(
            partition_index=index, start_offset=UNKNOWN, error_code=code, error_message=error(code).message
        )
        for index in topic.partitions
    ]
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name, topic_id=_NO_TOPIC, partitions=partitions
    )


def _error_row(group_id: str, code: int) -> DescribeShareGroupOffsetsResponseGroup:
    return DescribeShareGroupOffsetsResponseGroup(group_id=group_id, error_code=code, error_message=error(code).message)


async def _summarize(
    group_id: str, topics: Iterable[tuple[str, Iterable[int]]], broker: Broker
) -> DescribeShareGroupOffsetsResponseGroup:
    """Return the group's state in each of these partitions, which are named by topic and index."""
    requested = [(name, list(partitions)) for name, partitions in topics]
    known = {name: broker.image.topics[name].id for name, _ in requested if name in broker.image.topics}
    places = [(known[name], index) for name, partitions in requested if name in known for index in partitions]
    summaries = await awaitable(broker.coordination.share_states.summarize(group_id, places), broker.tasks)
    described = {
        (name, index): summary
        for name, partitions in requested
        for index in partitions
        if (summary := summaries.get((known.get(name, _NO_TOPIC), index))) is not None and summary.error_code == NONE
    }
    ends = await latest_offsets(broker, [place for place, summary in described.items() if _has_lag(summary)])
    answers = [
        DescribeShareGroupOffsetsResponseTopic(
            topic_name=name,
            topic_id=known.get(name, _NO_TOPIC),
            partitions=[
                _partition(index, described.get((name, index)), ends.get((name, index))) for index in partitions
            ],
        )
        for name, partitions in requested
    ]
    return DescribeShareGroupOffsetsResponseGroup(group_id=group_id, topics=answers)


def _has_lag(summary: StateSummary) -> bool:
    return UNKNOWN not in (summary.start_offset, summary.delivery_complete_count)


def _partition(
    index: int, summary: StateSummary | None, end: LatestOffset | None
) -> DescribeShareGroupOffsetsResponsePartition:
    if summary is None:
        return DescribeShareGroupOffsetsResponsePartition(partition_index=index, start_offset=UNKNOWN)
    code, high_watermark = (NONE, UNKNOWN) if end is None else end
    if code != NONE:
        return DescribeShareGroupOffsetsResponsePartition(
            partition_index=index, error_code=code, error_message=error(code).message
        )
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=index,
        start_offset=summary.start_offset,
        leader_epoch=summary.leader_epoch,
        lag=UNKNOWN if end is None else high_watermark - summary.start_offset - summary.delivery_complete_count,
    )
