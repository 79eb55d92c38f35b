"""OffsetDelete: delete a group's committed offsets of topics that no member reads (KIP-496).

Behaviour
    empty group id                          INVALID_GROUP_ID
    unknown group                           GROUP_ID_NOT_FOUND
    members of another protocol             NON_EMPTY_GROUP
    a topic that a member subscribed to     GROUP_SUBSCRIBED_TO_TOPIC
    unknown topic or partition              UNKNOWN_TOPIC_OR_PARTITION; the others are deleted
    nothing committed                       no error
"""

from ottla.broker.broker import Broker
from ottla.broker.dispatch import handles
from ottla.coordinators.offsets import OffsetDeletion, OffsetDeletionOutcome, delete_offsets
from ottla.protocol.answer import Answer, gather
from ottla.protocol.errors import INVALID_GROUP_ID, NONE, UNKNOWN_TOPIC_OR_PARTITION
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


@handles(OffsetDeleteRequest)
def offset_delete(request: OffsetDeleteRequest, broker: Broker) -> Answer[OffsetDeleteResponse]:
    if not request.group_id:
        return OffsetDeleteResponse(error_code=INVALID_GROUP_ID)
    topics = broker.image.topics
    known = [
        (topic.name, part.partition_index)
        for topic in request.topics
        if topic.name in topics
        for part in topic.partitions
        if 0 <= part.partition_index < len(topics[topic.name].partitions)
    ]

    def shaped(outcomes: list[OffsetDeletionOutcome]) -> OffsetDeleteResponse:
        (outcome,) = outcomes
        if outcome.error_code != NONE:
            return OffsetDeleteResponse(error_code=outcome.error_code)
        codes = dict(zip(known, outcome.codes, strict=True))
        answers = [
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=part.partition_index,
                        error_code=codes.get((topic.name, part.partition_index), UNKNOWN_TOPIC_OR_PARTITION),
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return OffsetDeleteResponse(topics=answers)

    return gather(
        [broker.groups.run(request.group_id, delete_offsets, OffsetDeletion(request.group_id, known))], shaped
    )
