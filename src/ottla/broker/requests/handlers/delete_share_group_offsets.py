"""DeleteShareGroupOffsets (KIP-932): delete offsets of a share group without members.

Authorization
    group: DELETE   GROUP_AUTHORIZATION_FAILED
    topic: READ     TOPIC_AUTHORIZATION_FAILED

Behaviour
    feature share.version at 0            UNSUPPORTED_VERSION
    an empty group id                     INVALID_GROUP_ID
    unknown group, or one of another type  GROUP_ID_NOT_FOUND
    a group with members                  NON_EMPTY_GROUP, whatever the topics
    an unknown topic                      UNKNOWN_TOPIC_OR_PARTITION
    a topic that the group never read     the same code, with a message of its own
    the share coordinator fails           its error; a repeated request continues the deletion
"""

from ottla.broker.broker import Broker
from ottla.broker.coordination.group_protocols import serves_share_groups
from ottla.broker.coordination.share_state_deletion import DeletedState, delete_share_state
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_group, may_use_topic
from ottla.coordinators.groups.share.offsets import NOTHING_TO_DELETE
from ottla.protocol.errors import (
    GROUP_AUTHORIZATION_FAILED,
    INVALID_GROUP_ID,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_VERSION,
    error,
)
from ottla.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from ottla.security.operations import AclOperation


@handles(DeleteShareGroupOffsetsRequest, rows="topics")
async def delete_share_group_offsets(
    request: DeleteShareGroupOffsetsRequest, broker: Broker
) -> DeleteShareGroupOffsetsResponse:
    if not serves_share_groups(broker.image.features):
        return _refuse(UNSUPPORTED_VERSION)
    if not may_use_group(request.context, AclOperation.DELETE, request.group_id):
        return _refuse(GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        return _refuse(INVALID_GROUP_ID)
    allowed, denied = _split(request)
    topics = broker.image.topics
    ids = {topic.topic_name: topics[topic.topic_name].id for topic in allowed if topic.topic_name in topics}
    end = DeletedState(NONE)
    if allowed or not denied:
        named = {topic_id: name for name, topic_id in ids.items()}
        end = await delete_share_state(broker.coordination, request.group_id, named)
    if end.error_code != NONE:
        return _refuse(end.error_code, end.error_message)
    names = dict.fromkeys(topic.topic_name for topic in allowed)
    rows = [_denial_row(topic.topic_name) for topic in denied]
    rows += [_topic(name, ids.get(name), end) for name in names]
    return DeleteShareGroupOffsetsResponse(responses=rows)


def _split(
    request: DeleteShareGroupOffsetsRequest,
) -> tuple[list[DeleteShareGroupOffsetsRequestTopic], list[DeleteShareGroupOffsetsRequestTopic]]:
    """Return the topics that the sender may read, and the others."""
    allowed: list[DeleteShareGroupOffsetsRequestTopic] = []
    denied: list[DeleteShareGroupOffsetsRequestTopic] = []
    for topic in request.topics:
        is_allowed = may_use_topic(request.context, AclOperation.READ, topic.topic_name)
        (allowed if is_allowed else denied).append(topic)
    return allowed, denied


def _denial_row(name: str) -> DeleteShareGroupOffsetsResponseTopic:
    code = TOPIC_AUTHORIZATION_FAILED
    return DeleteShareGroupOffsetsResponseTopic(
        topic_name=name, topic_id=bytes(16), error_code=code, error_message=error(code).message
    )


def _refuse(code: int, message: str | None = None) -> DeleteShareGroupOffsetsResponse:
    return DeleteShareGroupOffsetsResponse(error_code=code, error_message=message or error(code).message)


def _topic(name: str, topic_id: bytes | None, end: DeletedState) -> DeleteShareGroupOffsetsResponseTopic:
    if topic_id is not None and topic_id in end.topics:
        code, message = end.topics[topic_id]
        return DeleteShareGroupOffsetsResponseTopic(
            topic_name=name, topic_id=topic_id, error_code=code, error_message=message
        )
    why = error(UNKNOWN_TOPIC_OR_PARTITION).message if topic_id is None else NOTHING_TO_DELETE
    return DeleteShareGroupOffsetsResponseTopic(
        topic_name=name, topic_id=bytes(16), error_code=UNKNOWN_TOPIC_OR_PARTITION, error_message=why
    )
