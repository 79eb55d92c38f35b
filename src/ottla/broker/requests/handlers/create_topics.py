"""CreateTopics: create topics, each on its own: an error of one does not affect the others.

Authorization
    cluster, else topic: CREATE   TOPIC_AUTHORIZATION_FAILED, whether the topic exists or not
    topic: DESCRIBE_CONFIGS       TOPIC_AUTHORIZATION_FAILED in place of the configs; the topic is created

Behaviour
    a name twice                INVALID_REQUEST "Duplicate topic name.", for both
    exists, or differs from an existing one in '.' and '_' only   TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION
    __cluster_metadata          INVALID_REQUEST; other internal topics may be created manually
    more than 10,000 partitions, or topics, partitions and configs, in all   POLICY_VIOLATION for every topic
    validate only               everything is checked, nothing is created
    a timeout of 0 or below     REQUEST_TIMED_OUT for every topic, and nothing is created; not if all are refused for a name
                                twice, __cluster_metadata or the authorization
    mutation quota used up      THROTTLING_QUOTA_EXCEEDED; before version 6 the client is throttled only (KIP-599)

Versions
    1  validate only, error messages
    4  -1 partitions or replicas: the broker's defaults
    5  the configs that the topic got
    7  the topic's id
"""

from collections import Counter
from typing import Final

from ottla.broker.broker import Broker
from ottla.broker.requests.dispatch import handles
from ottla.broker.requests.throttling import Mutations
from ottla.broker.security.permission import may_use_cluster, may_use_topic
from ottla.metadata.configs import topic_configs
from ottla.metadata.configs.descriptions import describe_resource
from ottla.metadata.image import TopicImage
from ottla.metadata.plans.topics import RequestedTopic
from ottla.metadata.refusal import Refused, TooLarge
from ottla.protocol.api import CREATE_TOPICS
from ottla.protocol.errors import INVALID_REQUEST, NONE, REQUEST_TIMED_OUT, TOPIC_AUTHORIZATION_FAILED
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.security.operations import AclOperation

CLUSTER_METADATA: Final = "__cluster_metadata"

_Described = dict[frozenset[tuple[str, str]], list[CreatableTopicConfigs]]


@handles(CreateTopicsRequest, rows="topics", is_whole=True, response_rows=("topics.configs", "topics"))
async def create_topics(request: CreateTopicsRequest, broker: Broker) -> CreateTopicsResponse:
    times = Counter(topic.name for topic in request.topics)
    allowed: list[RequestedTopic] = []
    refusals: dict[str, CreatableTopicResult] = {}
    may_create_all = may_use_cluster(request.context, AclOperation.CREATE, is_logged=False)
    mutations = Mutations(broker.throttling, CREATE_TOPICS, request.context)
    for name, requested in {topic.name: topic for topic in request.topics}.items():
        await broker.tasks.pace()
        try:
            if times[name] > 1:
                raise Refused(INVALID_REQUEST, "Duplicate topic name.")
            if name == CLUSTER_METADATA:
                raise Refused(INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
            if not may_create_all and not may_use_topic(request.context, AclOperation.CREATE, name):
                raise Refused(TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
            if request.timeout_ms <= 0:
                return _all_refused(request, REQUEST_TIMED_OUT, None)
            allowed.append(_new_topic(requested))
        except Refused as refused:
            refusals[name] = _error_row(name, refused.code, refused.message)
    try:
        creation = await broker.topics.create_requested(
            allowed, request.context.requester, mutations, validate_only=request.validate_only
        )
    except TooLarge as refused:
        return _all_refused(request, refused.code, refused.message)
    results = []
    described: _Described = {}
    for name in times:
        await broker.tasks.pace()
        if name in refusals:
            results.append(refusals[name])
        elif creation.results[name].error_code != NONE:
            code, message = creation.results[name]
            results.append(_error_row(name, code, message))
        else:
            results.append(_topic_row(creation.topics[name], broker, request, described))
    return CreateTopicsResponse(throttle_time_ms=mutations.throttle_ms, topics=results)


def _all_refused(request: CreateTopicsRequest, code: int, message: str | None) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[_error_row(topic.name, code, message) for topic in request.topics])


def _new_topic(requested: CreatableTopic) -> RequestedTopic:
    return RequestedTopic(
        requested.name,
        requested.num_partitions,
        requested.replication_factor,
        {assignment.partition_index: assignment.broker_ids for assignment in requested.assignments},
        {config.name: config.value for config in requested.configs},
    )


def _error_row(name: str, code: int, message: str | None) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name, error_code=code, error_message=message, topic_config_error_code=0, configs=[]
    )


def _topic_row(
    topic: TopicImage, broker: Broker, request: CreateTopicsRequest, described: _Described
) -> CreatableTopicResult:
    """Return the row of a created topic.

    described  config rows by the configs of a topic: shared by the topics of one response, most of which have none of their own
    """
    if not may_use_topic(request.context, AclOperation.DESCRIBE_CONFIGS, topic.name, is_logged=False):
        return CreatableTopicResult(
            name=topic.name,
            topic_id=topic.id,
            error_message=None,
            topic_config_error_code=TOPIC_AUTHORIZATION_FAILED,
            num_partitions=-1,
            replication_factor=-1,
            configs=[],
        )
    own = frozenset(topic.configs.items())
    configs = described.get(own)
    if configs is None:
        configs = described[own] = _config_rows(topic, broker)
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.id,
        error_message=None,
        num_partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        configs=configs,
    )


def _config_rows(topic: TopicImage, broker: Broker) -> list[CreatableTopicConfigs]:
    return [
        CreatableTopicConfigs(
            name=row.config.name,
            value=row.text,
            read_only=row.config.read_only,
            config_source=row.source,
            is_sensitive=row.config.sensitive,
        )
        for row in describe_resource(topic_configs(topic.configs, broker.config))
    ]
