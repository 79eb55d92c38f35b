"""CreatePartitions: more partitions for topics that exist (KIP-195).

Authorization
    topic: ALTER   TOPIC_AUTHORIZATION_FAILED

Behaviour
    a name twice                INVALID_REQUEST "Duplicate topic name.", answered once
    unknown topic               UNKNOWN_TOPIC_OR_PARTITION, without a text
    the present count, or lower INVALID_PARTITIONS
    more than 10,000 partitions are added in all   POLICY_VIOLATION for every topic
    assignments                 one for each new partition, else INVALID_REPLICA_ASSIGNMENT
    validate only               everything is checked, nothing is created
    a timeout of 0 or below     REQUEST_TIMED_OUT for every topic, and nothing is created; not if all are refused for a name
                                twice or the authorization
    mutation quota used up      THROTTLING_QUOTA_EXCEEDED; before version 3 the client is throttled only (KIP-599)

Versions
    1  throttled
"""

import logging
from collections import Counter

from ottla.broker.broker import Broker
from ottla.broker.context_fields import log_fields
from ottla.broker.dispatch import handles
from ottla.broker.permission import may_use_topic
from ottla.broker.throttling import Mutations
from ottla.metadata.image import TopicImage
from ottla.metadata.refusal import CHANGED, ChangeResult, Refused
from ottla.metadata.topic_plans import TooLarge, check_additions
from ottla.protocol.api import CREATE_PARTITIONS
from ottla.protocol.errors import (
    INVALID_REQUEST,
    KAFKA_STORAGE_ERROR,
    NONE,
    REQUEST_TIMED_OUT,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ottla.security.operations import AclOperation
from ottla.tasks.answers import after
from ottla.tasks.deferred import Answer

_logger = logging.getLogger("ottla.broker")


@handles(CreatePartitionsRequest, in_turn=True)
def create_partitions(request: CreatePartitionsRequest, broker: Broker) -> Answer[CreatePartitionsResponse]:
    times = Counter(topic.name for topic in request.topics)
    results: dict[str, CreatePartitionsTopicResult] = {}
    allowed: list[CreatePartitionsTopic] = []
    grown: list[TopicImage] = []
    before = {name: len(topic.partitions) for name in times if (topic := broker.image.topics.get(name)) is not None}
    mutations = Mutations(broker.throttling, CREATE_PARTITIONS, request.context)
    for name, requested in {topic.name: topic for topic in request.topics}.items():
        try:
            if times[name] > 1:
                raise Refused(INVALID_REQUEST, "Duplicate topic name.")
            if not may_use_topic(request.context, AclOperation.ALTER, name):
                raise Refused(TOPIC_AUTHORIZATION_FAILED, None)
            if request.timeout_ms <= 0:
                return _all_refused(request, REQUEST_TIMED_OUT, None)
            allowed.append(requested)
            results[name] = _row(name, NONE, None)
        except Refused as refused:
            results[name] = _row(name, refused.code, refused.message)
    try:
        check_additions(sum(max(topic.count - before.get(topic.name, topic.count), 0) for topic in allowed))
    except TooLarge as refused:
        return _all_refused(request, refused.code, refused.message)
    for requested in allowed:
        try:
            grown.append(_grown(requested, broker, mutations))
        except Refused as refused:
            results[requested.name] = _row(requested.name, refused.code, refused.message)

    def response(change: ChangeResult) -> CreatePartitionsResponse:
        for topic in grown:
            result = results[topic.name]
            result.error_code, result.error_message = change
            if change.error_code == NONE and not request.validate_only:
                count = len(topic.partitions)
                fields, requester = log_fields(request.context), request.context.requester
                _logger.info("topic %s has %d partitions now, by %s", topic.name, count, requester, extra=fields)
                if broker.replicas.has_offline(topic, before[topic.name]):
                    result.error_code = KAFKA_STORAGE_ERROR
                    result.error_message = (
                        f"Topic '{topic.name}' has {count} partitions now, and the broker cannot open all that were added: "
                        "its log says why."
                    )
        return CreatePartitionsResponse(throttle_time_ms=mutations.throttle_ms, results=list(results.values()))

    if request.validate_only:
        return response(CHANGED)
    return after(broker.metadata.change(*grown), response)


def _row(name: str, code: int, message: str | None) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=name, error_code=code, error_message=message)


def _all_refused(request: CreatePartitionsRequest, code: int, message: str | None) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(results=[_row(topic.name, code, message) for topic in request.topics])


def _grown(requested: CreatePartitionsTopic, broker: Broker, mutations: Mutations) -> TopicImage:
    """Return the topic with the requested number of partitions. Raises Refused."""
    topic = broker.image.topics.get(requested.name)
    if topic is None:
        raise Refused(UNKNOWN_TOPIC_OR_PARTITION, None)
    assignments = (
        None if requested.assignments is None else [assignment.broker_ids for assignment in requested.assignments]
    )
    grown = broker.metadata.plans.grow(topic, requested.count, assignments)
    mutations.add(len(grown.partitions) - len(topic.partitions))
    return grown
