"""AlterShareGroupOffsets (KIP-932): set the offsets of a share group without members.

Authorization
    group: READ   GROUP_AUTHORIZATION_FAILED
    topic: READ   TOPIC_AUTHORIZATION_FAILED for its partitions; these topics and unknown ones come first

Behaviour
    feature share.version at 0           UNSUPPORTED_VERSION
    an empty group id                    INVALID_GROUP_ID
    a group of another type              GROUP_ID_NOT_FOUND
    a group with members                 NON_EMPTY_GROUP, whatever the topics
    a group that does not exist          created, if one of the topics exists
    an unknown topic or partition        UNKNOWN_TOPIC_OR_PARTITION, and the zero topic id for the topic; the others are altered
    a negative partition                 the same (Kafka 4.4 fails as a whole, and can never delete the group again)
    an offset outside of the log         taken as it is
    a partition twice                    the last offset counts

    The previous state of the partitions, acquisitions and acknowledgements, is dropped. The group epoch stays.
"""

from collections.abc import Collection

from ottla.broker.broker import Broker
from ottla.broker.coordination.group_protocols import serves_share_groups
from ottla.broker.coordination.share_state import TopicIdPartition
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_group, may_use_topic
from ottla.coordinators.groups.share.offsets import Begun, OffsetAlteration, begin_alteration
from ottla.coordinators.share.state import StateOutcome
from ottla.protocol.errors import (
    GROUP_AUTHORIZATION_FAILED,
    INVALID_GROUP_ID,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_VERSION,
    error,
)
from ottla.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from ottla.security.operations import AclOperation
from ottla.tasks.deferred import awaitable


@handles(AlterShareGroupOffsetsRequest, rows="topics.partitions")
async def alter_share_group_offsets(
    request: AlterShareGroupOffsetsRequest, broker: Broker
) -> AlterShareGroupOffsetsResponse:
    group_id = request.group_id
    if not serves_share_groups(broker.image.features):
        return _refuse(UNSUPPORTED_VERSION)
    if not may_use_group(request.context, AclOperation.READ, group_id):
        return _refuse(GROUP_AUTHORIZATION_FAILED)
    if not group_id:
        return _refuse(INVALID_GROUP_ID)
    topics = broker.image.topics
    offsets: dict[TopicIdPartition, int] = {}
    named: dict[bytes, tuple[str, frozenset[int]]] = {}
    denied: set[str] = set()
    names_topic = False
    for topic in request.topics:
        if not may_use_topic(request.context, AclOperation.READ, topic.topic_name):
            denied.add(topic.topic_name)
            continue
        known = topics.get(topic.topic_name)
        names_topic = names_topic or known is not None
        for partition in topic.partitions if known is not None else ():
            if known is not None and 0 <= partition.partition_index < len(known.partitions):
                offsets[known.id, partition.partition_index] = partition.start_offset
                partitions = named[known.id][1] if known.id in named else frozenset()
                named[known.id] = known.name, partitions | {partition.partition_index}

    outcomes: dict[TopicIdPartition, StateOutcome] = {}
    if not denied or len(denied) < len(request.topics):
        alteration = OffsetAlteration(group_id, named, names_topic)
        begun: Begun = await awaitable(broker.groups.run(group_id, begin_alteration, alteration), broker.tasks)
        if begun.error_code != NONE:
            return _refuse(begun.error_code, begun.error_message)
        coordination = broker.coordination
        initialized = coordination.share_states.initialize(group_id, begun.state_epoch, offsets)
        outcomes = await awaitable(initialized, broker.tasks)
        if outcomes and (code := await awaitable(coordination.settle_shares(group_id, outcomes), broker.tasks)) != NONE:
            return _refuse(code)
    return _response(request, outcomes, broker, denied)


def _refuse(code: int, message: str | None = None) -> AlterShareGroupOffsetsResponse:
    return AlterShareGroupOffsetsResponse(error_code=code, error_message=message or error(code).message)


def _response(
    request: AlterShareGroupOffsetsRequest,
    outcomes: dict[TopicIdPartition, StateOutcome],
    broker: Broker,
    denied: Collection[str],
) -> AlterShareGroupOffsetsResponse:
    unknown = StateOutcome(UNKNOWN_TOPIC_OR_PARTITION, error(UNKNOWN_TOPIC_OR_PARTITION).message)
    forbidden = StateOutcome(TOPIC_AUTHORIZATION_FAILED, error(TOPIC_AUTHORIZATION_FAILED).message)
    topics: dict[str, AlterShareGroupOffsetsResponseTopic] = {}
    existing = broker.image.topics
    for topic in sorted(request.topics, key=lambda row: row.topic_name not in denied and row.topic_name in existing):
        known = existing.get(topic.topic_name)
        otherwise = forbidden if topic.topic_name in denied else unknown
        topic_id = bytes(16) if known is None else known.id
        answer = topics.setdefault(
            topic.topic_name,
            AlterShareGroupOffsetsResponseTopic(topic_name=topic.topic_name, topic_id=topic_id, partitions=[]),
        )
        for partition in topic.partitions:
            outcome = outcomes.get((topic_id, partition.partition_index), otherwise)
            answer.partitions.append(
                AlterShareGroupOffsetsResponsePartition(
                    partition_index=partition.partition_index,
                    error_code=outcome.error_code,
                    error_message=outcome.error_message,
                )
            )
    return AlterShareGroupOffsetsResponse(responses=list(topics.values()))
