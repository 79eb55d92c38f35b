"""DeleteTopics: delete topics, by name or by id.

Authorization
    cluster: DELETE, else topic: DESCRIBE and DELETE   TOPIC_AUTHORIZATION_FAILED; without DESCRIBE alike for missing names,
                                                       which need no DELETE; a topic requested by id has no name then

Behaviour
    delete.topic.enable=false    TOPIC_DELETION_DISABLED (before version 3 INVALID_REQUEST)
    unknown name, unknown id     UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID
    neither name nor id          INVALID_REQUEST; both: INVALID_REQUEST; one topic twice: INVALID_REQUEST
    internal topics              may be deleted, as in Kafka
    a timeout of 0 or below      REQUEST_TIMED_OUT for every topic, and nothing is deleted, unless all are INVALID_REQUEST
    mutation quota used up       THROTTLING_QUOTA_EXCEEDED; before version 5 the client is throttled only (KIP-599)

Versions
    1  throttled
    5  error messages
    6  by id (KIP-516)
"""

import logging
from collections import Counter
from collections.abc import Sequence

from ottla.broker.broker import Broker
from ottla.broker.context_fields import log_fields
from ottla.broker.dispatch import handles
from ottla.broker.permission import may_use_cluster, may_use_topic
from ottla.broker.throttling import Mutations
from ottla.metadata.image import TopicImage
from ottla.metadata.refusal import ChangeResult, Refused
from ottla.protocol.api import DELETE_TOPICS
from ottla.protocol.context import RequestContext
from ottla.protocol.errors import (
    INVALID_REQUEST,
    NONE,
    REQUEST_TIMED_OUT,
    TOPIC_AUTHORIZATION_FAILED,
    TOPIC_DELETION_DISABLED,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    error,
)
from ottla.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.protocol.schema import ZERO_UUID
from ottla.security.operations import AclOperation
from ottla.tasks.answers import after
from ottla.tasks.deferred import Answer

_logger = logging.getLogger("ottla.broker")


@handles(DeleteTopicsRequest, in_turn=True)
def delete_topics(request: DeleteTopicsRequest, broker: Broker) -> Answer[DeleteTopicsResponse]:
    by_state = request.context.version >= 6
    states = request.topics if by_state else [DeleteTopicState(name=name) for name in request.topic_names]
    if not broker.config.flag("delete.topic.enable"):
        code = TOPIC_DELETION_DISABLED if request.context.version >= 3 else INVALID_REQUEST
        return DeleteTopicsResponse(responses=[_failed(state, code) for state in states])
    names = Counter(state.name for state in states if state.name is not None and state.topic_id == ZERO_UUID)
    ids = Counter(state.topic_id for state in states if state.name is None and state.topic_id != ZERO_UUID)
    named = {topic.id for name in names if (topic := broker.image.topics.get(name)) is not None}
    results, deleted = [], []
    may_delete_all = may_use_cluster(request.context, AclOperation.DELETE, is_logged=False)
    mutations = Mutations(broker.throttling, DELETE_TOPICS, request.context)
    for state in {_identity(state): state for state in states}.values():
        topic = _find(state, broker)
        if topic is not None and state.name is not None and state.topic_id == ZERO_UUID and topic.id in ids:
            continue  # the row that names its id is the one that fails
        refusal = _refusal(state, names, ids, named)
        if refusal is None and request.timeout_ms <= 0:
            return _timed_out(states)
        denied = None if refusal is not None or may_delete_all else _denied(state, topic, request.context)
        if refusal is not None:
            results.append(_failed(state, INVALID_REQUEST, refusal))
        elif denied is not None:
            results.append(denied)
        elif topic is None:
            results.append(_failed(state, UNKNOWN_TOPIC_ID if state.name is None else UNKNOWN_TOPIC_OR_PARTITION))
        else:
            try:
                mutations.add(len(topic.partitions))
            except Refused as refused:
                code = refused.code
                results.append(
                    DeletableTopicResult(name=topic.name, topic_id=topic.id, error_code=code, error_message=None)
                )
                continue
            deleted.append(topic)
            results.append(DeletableTopicResult(name=topic.name, topic_id=topic.id))

    def response(change: ChangeResult) -> DeleteTopicsResponse:
        if change.error_code != NONE:
            for result in results:
                if result.error_code == NONE:
                    result.error_code, result.error_message = change
        else:
            for topic in deleted:
                fields = log_fields(request.context)
                _logger.info("topic %s deleted by %s", topic.name, request.context.requester, extra=fields)
        return DeleteTopicsResponse(throttle_time_ms=mutations.throttle_ms, responses=results)

    return after(broker.metadata.delete(deleted), response)


def _timed_out(states: Sequence[DeleteTopicState]) -> DeleteTopicsResponse:
    rows = [
        DeletableTopicResult(name=state.name, topic_id=state.topic_id, error_code=REQUEST_TIMED_OUT, error_message=None)
        for state in states
    ]
    return DeleteTopicsResponse(responses=rows)


def _denied(state: DeleteTopicState, topic: TopicImage | None, context: RequestContext) -> DeletableTopicResult | None:
    """Return the row of a topic that the sender may not delete."""
    name = state.name if topic is None else topic.name
    if name is None:
        return None
    may_describe = may_use_topic(context, AclOperation.DESCRIBE, name)
    if may_describe and topic is None:
        return None  # who may describe it learns that it is missing, and needs no DELETE for that
    if may_describe and may_use_topic(context, AclOperation.DELETE, name):
        return None
    row = _failed(state, TOPIC_AUTHORIZATION_FAILED)
    if may_describe:
        row.name = name
    return row


def _identity(state: DeleteTopicState) -> tuple[object, ...]:
    """Key of a row of the response, which joins equal topics; a topic named by both name and id is a row of its own."""
    both = state.name is not None and state.topic_id != ZERO_UUID
    return (id(state),) if both else (state.name, state.topic_id)


def _refusal(state: DeleteTopicState, names: Counter[str], ids: Counter[bytes], named: set[bytes]) -> str | None:
    """Return the error message for a topic that is named in an invalid way."""
    if state.name is None and state.topic_id == ZERO_UUID:
        return "Neither topic name nor id were specified."
    if state.name is not None and state.topic_id != ZERO_UUID:
        return "You may not specify both topic name and topic id."
    if state.name is not None:
        return "Duplicate topic name." if names[state.name] > 1 else None
    if ids[state.topic_id] > 1:
        return "Duplicate topic id."
    if state.topic_id in named:
        return "The provided topic name maps to an ID that was already supplied."
    return None


def _find(state: DeleteTopicState, broker: Broker) -> TopicImage | None:
    if state.name is None:
        return broker.image.topics_by_id.get(state.topic_id)
    return broker.image.topics.get(state.name)


def _failed(state: DeleteTopicState, code: int, text: str | None = None) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=state.name, topic_id=state.topic_id, error_code=code, error_message=text or error(code).message
    )
