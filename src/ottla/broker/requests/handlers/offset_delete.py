"""OffsetDelete: delete a group's committed offsets of topics that no member reads (KIP-496).

Authorization
    group: DELETE   GROUP_AUTHORIZATION_FAILED
    topic: READ     TOPIC_AUTHORIZATION_FAILED for its partitions

Behaviour
    empty group id                          INVALID_GROUP_ID
    unknown group                           GROUP_ID_NOT_FOUND
    members of another protocol             NON_EMPTY_GROUP
    a topic that a member subscribed to     GROUP_SUBSCRIBED_TO_TOPIC
    unknown topic or partition              UNKNOWN_TOPIC_OR_PARTITION; the others are deleted
    nothing committed                       no error
"""

from ottla.broker.broker import Broker
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_group, split_topics
from ottla.coordinators.offsets import OffsetDeletion, OffsetDeletionOutcome, delete_offsets
from ottla.protocol.errors import (
    GROUP_AUTHORIZATION_FAILED,
    INVALID_GROUP_ID,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.security.operations import AclOperation
from ottla.tasks.deferred import awaitable


@handles(OffsetDeleteRequest, rows="topics.partitions")
async def offset_delete(request: OffsetDeleteRequest, broker: Broker) -> OffsetDeleteResponse:
    if not may_use_group(request.context, AclOperation.DELETE, request.group_id):
        return OffsetDeleteResponse(error_code=GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        return OffsetDeleteResponse(error_code=INVALID_GROUP_ID)
    topics = broker.image.topics
    _, denied = split_topics(request.context, AclOperation.READ, request.topics)
    forbidden = frozenset(topic.name for topic in denied)
    known: list[tuple[str, int]] = []
    rows: dict[str, list[OffsetDeleteResponsePartition]] = {}
    """Rows by topic; those of errors come first, also within a topic."""
    for topic in request.topics:
        await broker.tasks.pace()
        count = len(topics[topic.name].partitions) if topic.name in topics else 0
        code = TOPIC_AUTHORIZATION_FAILED if topic.name in forbidden else UNKNOWN_TOPIC_OR_PARTITION
        for part in topic.partitions:
            if code == UNKNOWN_TOPIC_OR_PARTITION and 0 <= part.partition_index < count:
                known.append((topic.name, part.partition_index))
            else:
                row = OffsetDeleteResponsePartition(partition_index=part.partition_index, error_code=code)
                rows.setdefault(topic.name, []).append(row)

    deletion = broker.groups.run(request.group_id, delete_offsets, OffsetDeletion(request.group_id, known))
    outcome: OffsetDeletionOutcome = await awaitable(deletion, broker.tasks)
    if outcome.error_code != NONE:
        return OffsetDeleteResponse(error_code=outcome.error_code)
    for (name, index), code in zip(known, outcome.codes, strict=True):
        rows.setdefault(name, []).append(OffsetDeleteResponsePartition(partition_index=index, error_code=code))
    answers = [OffsetDeleteResponseTopic(name=name, partitions=partitions) for name, partitions in rows.items()]
    return OffsetDeleteResponse(topics=answers)
