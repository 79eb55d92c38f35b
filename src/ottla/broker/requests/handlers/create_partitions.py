"""CreatePartitions: more partitions for topics that exist (KIP-195).

Authorization
    topic: ALTER   TOPIC_AUTHORIZATION_FAILED

Behaviour
    a name twice                INVALID_REQUEST "Duplicate topic name.", answered once
    unknown topic               UNKNOWN_TOPIC_OR_PARTITION, without a text
    the present count, or lower INVALID_PARTITIONS
    more than 10,000 topics, or partitions added in all   POLICY_VIOLATION for every topic
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
from collections.abc import Sequence

from ottla.broker.broker import Broker
from ottla.broker.requests.context_fields import log_fields
from ottla.broker.requests.dispatch import handles
from ottla.broker.requests.throttling import Mutations
from ottla.broker.security.permission import may_use_topic
from ottla.metadata import changes
from ottla.metadata.image import Image, TopicImage
from ottla.metadata.metadata import Conflict, outdated
from ottla.metadata.plans.topics import TopicPlans, check_additions
from ottla.metadata.refusal import Refused, TooLarge, check_records
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
from ottla.tasks.scheduler import Scheduler

_logger = logging.getLogger("ottla.broker")


@handles(CreatePartitionsRequest, rows="topics", is_whole=True)
async def create_partitions(request: CreatePartitionsRequest, broker: Broker) -> CreatePartitionsResponse:
    times = Counter(topic.name for topic in request.topics)
    results: dict[str, CreatePartitionsTopicResult] = {}
    allowed: list[CreatePartitionsTopic] = []
    mutations = Mutations(broker.throttling, CREATE_PARTITIONS, request.context)
    for name, requested in {topic.name: topic for topic in request.topics}.items():
        await broker.tasks.pace()
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
    growth = _Growth(allowed, broker, mutations)
    code, message = NONE, None
    try:
        check_records(len(allowed))
        await growth.carry_out(broker, validate_only=request.validate_only)
    except TooLarge as refused:
        return _all_refused(request, refused.code, refused.message)
    except Refused as refused:
        code, message = refused.code, refused.message
    for name, refusal in growth.refused.items():
        results[name] = _row(name, refusal.code, refusal.message)
    for name, topic in growth.grown.items():
        await broker.tasks.pace()
        result = results[name]
        result.error_code, result.error_message = code, message
        if code == NONE and not request.validate_only:
            count = len(topic.partitions)
            fields, requester = log_fields(request.context), request.context.requester
            _logger.info("topic %s has %d partitions now, by %s", name, count, requester, extra=fields)
            if broker.replicas.has_offline(topic, growth.before[name]):
                result.error_code = KAFKA_STORAGE_ERROR
                result.error_message = (
                    f"Topic '{name}' has {count} partitions now, and the broker cannot open all that were added: "
                    "its log says why."
                )
    return CreatePartitionsResponse(throttle_time_ms=mutations.throttle_ms, results=list(results.values()))


def _row(name: str, code: int, message: str | None) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=name, error_code=code, error_message=message)


def _all_refused(request: CreatePartitionsRequest, code: int, message: str | None) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(results=[_row(topic.name, code, message) for topic in request.topics])


class _Growth:
    """Growth of the topics of one request, over all attempts.

    refused  errors by topic
    grown    topics with the requested number of partitions
    before   numbers of partitions that they have
    """

    def __init__(self, requested: Sequence[CreatePartitionsTopic], broker: Broker, mutations: Mutations) -> None:
        self._requested = requested
        self._plans = broker.metadata.plans
        self._mutations = mutations
        self._charged: set[str] = set()
        self.refused: dict[str, Refused] = {}
        self.grown: dict[str, TopicImage] = {}
        self.before: dict[str, int] = {}

    async def carry_out(self, broker: Broker, *, validate_only: bool) -> None:
        """Add the partitions. Raises TooLarge, and Refused if the change cannot be made."""
        for image in broker.metadata.attempts():
            await self._plan(image, broker.tasks)
            try:
                await broker.metadata.commit(
                    changes.replace_topics(image, () if validate_only else self.grown.values())
                )
            except Conflict:
                continue
            return
        raise outdated()

    async def _plan(self, image: Image, tasks: Scheduler) -> None:
        """Plan the growth on an image. Raises TooLarge."""
        self.refused.clear()
        self.grown.clear()
        self.before = {
            topic.name: len(image.topics[topic.name].partitions)
            for topic in self._requested
            if topic.name in image.topics
        }
        before, plans = self.before, self._plans.on(image)
        check_additions(sum(max(one.count - before.get(one.name, one.count), 0) for one in self._requested))
        for requested in self._requested:
            await tasks.pace()
            try:
                self.grown[requested.name] = self._grow(requested, image, plans)
            except Refused as refused:
                self.refused[requested.name] = refused

    def _grow(self, requested: CreatePartitionsTopic, image: Image, plans: TopicPlans) -> TopicImage:
        """Return the topic with the requested number of partitions. Raises Refused."""
        topic = image.topics.get(requested.name)
        if topic is None:
            raise Refused(UNKNOWN_TOPIC_OR_PARTITION, None)
        assignments = (
            None if requested.assignments is None else [assignment.broker_ids for assignment in requested.assignments]
        )
        grown = plans.grow(topic, requested.count, assignments)
        if topic.name not in self._charged:
            self._mutations.add(len(grown.partitions) - len(topic.partitions))
            self._charged.add(topic.name)
        return grown
