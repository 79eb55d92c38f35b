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
from collections.abc import Iterable, Sequence

from ottla.broker.broker import Broker
from ottla.broker.requests.context_fields import log_fields
from ottla.broker.requests.dispatch import handles
from ottla.broker.requests.throttling import Mutations
from ottla.broker.security.permission import may_use_cluster, may_use_topic
from ottla.metadata import changes
from ottla.metadata.image import Image, TopicImage
from ottla.metadata.metadata import Conflict, outdated
from ottla.metadata.refusal import Refused
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

_logger = logging.getLogger("ottla.broker")


@handles(DeleteTopicsRequest, rows=("topics", "topic_names"), is_whole=True)
async def delete_topics(request: DeleteTopicsRequest, broker: Broker) -> DeleteTopicsResponse:
    by_state = request.context.version >= 6
    states = request.topics if by_state else [DeleteTopicState(name=name) for name in request.topic_names]
    if not broker.config.flag("delete.topic.enable"):
        code = TOPIC_DELETION_DISABLED if request.context.version >= 3 else INVALID_REQUEST
        return DeleteTopicsResponse(responses=[_error_row(state, code) for state in states])
    deletions = _Deletions(request, states, broker)
    for image in broker.metadata.attempts():
        if not await deletions.plan(image):
            return _timeout_response(states)
        try:
            chunks = changes.delete_topics(image, deletions.planned, broker.metadata.largest_change)
            for topics, change in chunks:
                await broker.metadata.commit(change)
                deletions.note(topics)
        except Conflict:
            continue
        except Refused as refused:
            deletions.refuse_open(refused)
        break
    else:
        deletions.refuse_open(outdated())
    return deletions.response()


class _Deletions:
    """Deletions of one request, over all attempts: what was deleted stays deleted.

    planned  topics that the current attempt deletes
    """

    def __init__(self, request: DeleteTopicsRequest, states: Sequence[DeleteTopicState], broker: Broker) -> None:
        self._request = request
        self._tasks = broker.tasks
        self._context = request.context
        self._states = {_identity(state): state for state in states}
        self._names = Counter(state.name for state in states if state.name is not None and state.topic_id == ZERO_UUID)
        self._ids = Counter(state.topic_id for state in states if state.name is None and state.topic_id != ZERO_UUID)
        self._may_delete_all = may_use_cluster(self._context, AclOperation.DELETE, is_logged=False)
        self._mutations = Mutations(broker.throttling, DELETE_TOPICS, self._context)
        self._charged: set[bytes] = set()
        self._deleted: dict[bytes, TopicImage] = {}
        self._deleted_by_name: dict[str, TopicImage] = {}
        self._rows: list[DeletableTopicResult] = []
        self.planned: list[TopicImage] = []

    async def plan(self, image: Image) -> bool:
        """Plan what is still open on an image; False if the request has no time for it."""
        self._rows, self.planned = [], []
        named = {topic.id for name in self._names if (topic := self._topic_of(name, image)) is not None}
        for state in self._states.values():
            await self._tasks.pace()
            if state.name is None:
                topic = self._deleted.get(state.topic_id) or image.topics_by_id.get(state.topic_id)
            else:
                topic = self._topic_of(state.name, image)
            if topic is not None and state.name is not None and state.topic_id == ZERO_UUID and topic.id in self._ids:
                continue  # the row that names its id is the one that fails
            refusal = _refusal(state, self._names, self._ids, named)
            if refusal is None and self._request.timeout_ms <= 0:
                return False
            self._rows.append(self._row(state, topic, refusal))
        return True

    def _topic_of(self, name: str, image: Image) -> TopicImage | None:
        """Return the topic of a name: the one that was deleted, even if there is a new one."""
        return self._deleted_by_name.get(name) or image.topics.get(name)

    def _row(self, state: DeleteTopicState, topic: TopicImage | None, refusal: str | None) -> DeletableTopicResult:
        if refusal is not None:
            return _error_row(state, INVALID_REQUEST, refusal)
        denied = None if self._may_delete_all else _denial_row(state, topic, self._context)
        if denied is not None:
            return denied
        if topic is None:
            return _error_row(state, UNKNOWN_TOPIC_ID if state.name is None else UNKNOWN_TOPIC_OR_PARTITION)
        row = DeletableTopicResult(name=topic.name, topic_id=topic.id)
        if topic.id in self._deleted:
            return row
        try:
            if topic.id not in self._charged:
                self._mutations.add(len(topic.partitions))
                self._charged.add(topic.id)
        except Refused as refused:
            row.error_code, row.error_message = refused.code, None
            return row
        self.planned.append(topic)
        return row

    def note(self, topics: Iterable[TopicImage]) -> None:
        """Note topics that were deleted."""
        for topic in topics:
            self._deleted[topic.id] = self._deleted_by_name[topic.name] = topic
            fields = log_fields(self._context)
            _logger.info("topic %s deleted by %s", topic.name, self._context.requester, extra=fields)

    def refuse_open(self, refused: Refused) -> None:
        """Set an error in the rows of topics that were not deleted."""
        for row in self._rows:
            if row.error_code == NONE and row.topic_id not in self._deleted:
                row.error_code, row.error_message = refused.code, refused.message

    def response(self) -> DeleteTopicsResponse:
        """Return the response, with the throttle time of the quota."""
        return DeleteTopicsResponse(throttle_time_ms=self._mutations.throttle_ms, responses=self._rows)


def _timeout_response(states: Sequence[DeleteTopicState]) -> DeleteTopicsResponse:
    rows = [
        DeletableTopicResult(name=state.name, topic_id=state.topic_id, error_code=REQUEST_TIMED_OUT, error_message=None)
        for state in states
    ]
    return DeleteTopicsResponse(responses=rows)


def _denial_row(
    state: DeleteTopicState, topic: TopicImage | None, context: RequestContext
) -> DeletableTopicResult | None:
    """Return the row of a topic that the sender may not delete."""
    name = state.name if topic is None else topic.name
    if name is None:
        return None
    may_describe = may_use_topic(context, AclOperation.DESCRIBE, name)
    if may_describe and topic is None:
        return None  # who may describe it learns that it is missing, and needs no DELETE for that
    if may_describe and may_use_topic(context, AclOperation.DELETE, name):
        return None
    row = _error_row(state, TOPIC_AUTHORIZATION_FAILED)
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


def _error_row(state: DeleteTopicState, code: int, text: str | None = None) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=state.name, topic_id=state.topic_id, error_code=code, error_message=text or error(code).message
    )
