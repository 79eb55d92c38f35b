"""Metadata: brokers, topics, partitions and their leaders.

Authorization
    topic: DESCRIBE               TOPIC_AUTHORIZATION_FAILED, alike for missing names; left out of all topics
    cluster, else topic: CREATE   TOPIC_AUTHORIZATION_FAILED for a missing topic that would be created

Behaviour
    no list of topics              all topics (version 0: an empty list; from 1: null, and an empty list means none)
    unknown topic                  UNKNOWN_TOPIC_OR_PARTITION; if broker and request allow auto-creation, it is created
                                   meanwhile, and the next request finds it, as with Kafka 4;
                                   100 topics at a time, the others with later requests
    unknown topic id               UNKNOWN_TOPIC_ID
    ids and names in one request   the names are ignored; neither name nor id: UNKNOWN_SERVER_ERROR for all
    no name before version 12      INVALID_REQUEST for all, as for an id
    illegal name                   INVALID_TOPIC_EXCEPTION
    brokers                        live ones, and those that departed some seconds ago (`OtherBrokers.departed`), at the
                                   address of the listener that this client connected to
    the leader lacks that listener LISTENER_NOT_FOUND (before version 6 LEADER_NOT_AVAILABLE)
    no leader, or one that is fenced   LEADER_NOT_AVAILABLE, leader -1
    this broker has just lost its connection to the leader   likewise; for topics by name or id the response waits until
                                   their leaders have confirmed that they are alive (`cluster/confirmations.py`), or for the
                                   election of others, for ELECTION_MS at the most: some clients ask once a second

Versions
    0  an empty list asks for everything
    1  null asks for everything; racks, the controller
    2  the cluster's id
    4  the client may forbid auto-creation
    5  offline replicas: those of fenced brokers and failed log directories
    6  LISTENER_NOT_FOUND
    7  leader epochs
    8  authorized operations, when asked for
    10 topic ids (KIP-516); 12 topics may be requested by id
    13 an error code of its own
"""

from collections.abc import Sequence
from typing import Final

from ottla.broker.broker import Broker
from ottla.broker.requests.dispatch import handles
from ottla.broker.requests.parts import run_paced
from ottla.broker.requests.throttling import Mutations
from ottla.broker.security.permission import may_use_cluster, may_use_topic
from ottla.metadata.image import INTERNAL_TOPICS, NO_LEADER, TopicImage
from ottla.metadata.plans.topics import check_name
from ottla.metadata.refusal import Refused
from ottla.protocol.api import METADATA
from ottla.protocol.connection import EncodedResponse
from ottla.protocol.context import RequestContext
from ottla.protocol.errors import (
    INVALID_REQUEST,
    INVALID_TOPIC_EXCEPTION,
    LEADER_NOT_AVAILABLE,
    LISTENER_NOT_FOUND,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.rows import encode_in_parts
from ottla.protocol.schema import ZERO_UUID
from ottla.security.operations import NOT_REQUESTED, AclOperation, AclResourceType, authorized_operations
from ottla.tasks.deferred import awaitable

ELECTION_MS: Final = 300
"""Time that a response waits for a leader: a broker that was killed is fenced after some 80 ms."""
_FIRST_WITH_LISTENER_NOT_FOUND: Final = 6
_FIRST_BY_ID: Final = 12
_WITH_OPERATIONS: Final = frozenset((NONE, UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION))
"""Error codes of topics whose authorized operations are returned: the sender may describe a topic of that name."""


def _create_nothing(part: MetadataRequest) -> None:
    """Leave topics that are missing to a later request: one creates a limited number of them."""
    part.allow_auto_topic_creation = False


@handles(MetadataRequest, rows="topics", in_later_parts=_create_nothing, response_rows="topics.partitions")
async def metadata(request: MetadataRequest, broker: Broker) -> MetadataResponse | EncodedResponse:
    asked = request.topics
    if asked is None or (request.context.version == 0 and not asked):
        return await _all_topics(request, broker)
    if len(broker.image.brokers) > 1:
        await _confirm_leaders(asked, broker)
    by_id = any(requested.topic_id != ZERO_UUID for requested in asked)
    is_unnamed = any(requested.name is None for requested in asked)
    if (by_id or is_unnamed) and request.context.version < _FIRST_BY_ID:
        return _invalid(asked, INVALID_REQUEST)
    if is_unnamed and not by_id:
        return _invalid(asked, UNKNOWN_SERVER_ERROR)
    if by_id:  # names, zero ids and repeated ids are ignored
        asked = list({requested.topic_id: requested for requested in asked if requested.topic_id != ZERO_UUID}.values())
    else:
        asked = list({requested.name: requested for requested in asked}.values())
    topics: list[MetadataResponseTopic] = []
    missing: list[str] = []
    for requested in asked:
        await broker.tasks.pace()
        topics.append(_row_of(requested, request, broker, missing, by_id=by_id))
    if request.context.authorizer is not None:
        topics = _sort_denied_last(topics)
    if request.include_topic_authorized_operations:
        await _add_operations(topics, request, broker)
    response = _response(request, broker, topics)
    if missing:
        mutations = Mutations(broker.throttling, METADATA, request.context)
        await awaitable(broker.topics.create_automatic(missing, request.context.requester, mutations), broker.tasks)
    return response


async def _confirm_leaders(asked: Sequence[MetadataRequestTopic], broker: Broker) -> None:
    """Wait until the leaders of these topics have confirmed that they are alive, or others are elected."""
    leaders = _leaders(asked, broker) - {broker.node_id}
    if not leaders:
        return
    await awaitable(broker.peers.confirm(sorted(leaders)), broker.tasks)

    def has_leaders() -> bool:
        lost = broker.peers.lost
        return not lost or not any(leader in lost for leader in _leaders(asked, broker))

    await broker.metadata.when(has_leaders, ELECTION_MS)


def _leaders(asked: Sequence[MetadataRequestTopic], broker: Broker) -> set[int]:
    """Return the leaders of all partitions of these topics."""
    image = broker.image
    topics = (
        image.topics_by_id.get(requested.topic_id) or image.topics.get(requested.name or "") for requested in asked
    )
    return {partition.leader for topic in topics if topic is not None for partition in topic.partitions} - {NO_LEADER}


async def _all_topics(request: MetadataRequest, broker: Broker) -> MetadataResponse | EncodedResponse:
    """Return the response with all topics. It is encoded once for all requests that get the same answer."""
    key, latest = _key_of(request, broker), broker.encoded_metadata
    if key is not None and latest is not None and latest[0] == key:
        return latest[1]
    context = request.context
    topics: list[MetadataResponseTopic] = []
    for topic in broker.image.topics.values():
        await broker.tasks.pace()
        if may_use_topic(context, AclOperation.DESCRIBE, topic.name, is_logged=False):
            topics.append(_describe(topic, broker, context))
    if request.include_topic_authorized_operations:
        await _add_operations(topics, request, broker)
    response = _response(request, broker, topics)
    if key is None or key != _key_of(request, broker):  # something has changed in a pause
        return response
    rows = await run_paced(encode_in_parts(response, context.version, ("topics", "partitions")), broker.tasks)
    encoded = EncodedResponse(b"".join(rows.pieces()), rows.errors)
    broker.encoded_metadata = key, encoded
    return encoded


def _key_of(request: MetadataRequest, broker: Broker) -> tuple[object, ...] | None:
    """Return everything that a response with all topics depends on; None if it must not be shared."""
    context = request.context
    if (
        context.authorizer is not None
        or broker.throttling is not None  # the response carries the sender's throttle time
        or broker.replicas.has_failed
        or broker.peers.departed
        or request.include_topic_authorized_operations
    ):
        return None
    return (
        broker.image.revision,
        broker.replicas.revision,
        broker.peers.losses,
        broker.controller_id,
        broker.config,
        context.version,
        context.address,
        context.listener,
        request.include_cluster_authorized_operations,
    )


async def _add_operations(topics: list[MetadataResponseTopic], request: MetadataRequest, broker: Broker) -> None:
    for topic in topics:
        await broker.tasks.pace()
        if topic.error_code in _WITH_OPERATIONS:
            operations = authorized_operations(request.context, AclResourceType.TOPIC, topic.name or "")
            topic.topic_authorized_operations = operations
        else:
            topic.topic_authorized_operations = NOT_REQUESTED


def _response(request: MetadataRequest, broker: Broker, topics: list[MetadataResponseTopic]) -> MetadataResponse:
    """Return the response with these rows."""
    image = broker.image
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node.node_id, host=address[0], port=address[1], rack=node.rack)
            for node in {**broker.peers.departed, **image.brokers}.values()
            if (address := broker.address_of(node, request.context)) is not None
        ],
        cluster_id=image.cluster_id,
        controller_id=broker.controller_id,
        topics=topics,
        cluster_authorized_operations=authorized_operations(request.context, AclResourceType.CLUSTER)
        if request.include_cluster_authorized_operations
        else NOT_REQUESTED,
    )


def _invalid(asked: Sequence[MetadataRequestTopic], code: int) -> MetadataResponse:
    """Return the response to a request that is refused as a whole."""
    topics = [
        MetadataResponseTopic(error_code=code, name=requested.name or "", topic_id=requested.topic_id)
        for requested in asked
    ]
    return MetadataResponse(brokers=[], cluster_id=None, controller_id=-1, topics=topics, error_code=code)


def _row_of(
    requested: MetadataRequestTopic, request: MetadataRequest, broker: Broker, missing: list[str], *, by_id: bool
) -> MetadataResponseTopic:
    """Return the row of a topic; its name is added to `missing` if the topic is to be created."""
    image = broker.image
    if requested.name is None or by_id:
        topic = image.topics_by_id.get(requested.topic_id)
        if topic is None:
            return MetadataResponseTopic(error_code=UNKNOWN_TOPIC_ID, name=None, topic_id=requested.topic_id)
        if not may_use_topic(request.context, AclOperation.DESCRIBE, topic.name):
            return MetadataResponseTopic(error_code=TOPIC_AUTHORIZATION_FAILED, name=None, topic_id=requested.topic_id)
        return _describe(topic, broker, request.context)
    is_internal = requested.name in INTERNAL_TOPICS
    if not may_use_topic(request.context, AclOperation.DESCRIBE, requested.name):
        return MetadataResponseTopic(
            error_code=TOPIC_AUTHORIZATION_FAILED, name=requested.name, topic_id=ZERO_UUID, is_internal=is_internal
        )
    topic = image.topics.get(requested.name)
    if topic is not None:
        return _describe(topic, broker, request.context)
    error_code = UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_name(requested.name)
    except Refused:
        error_code = INVALID_TOPIC_EXCEPTION
    else:
        if request.allow_auto_topic_creation and broker.config.flag("auto.create.topics.enable"):
            if _may_create(requested.name, request.context):
                missing.append(requested.name)
            else:
                error_code = TOPIC_AUTHORIZATION_FAILED
    return MetadataResponseTopic(
        error_code=error_code, name=requested.name, topic_id=ZERO_UUID, is_internal=is_internal
    )


def _may_create(name: str, context: RequestContext) -> bool:
    if may_use_cluster(context, AclOperation.CREATE, is_logged=False):
        return True
    return may_use_topic(context, AclOperation.CREATE, name)


def _sort_denied_last(topics: list[MetadataResponseTopic]) -> list[MetadataResponseTopic]:
    return sorted(topics, key=lambda topic: topic.error_code == TOPIC_AUTHORIZATION_FAILED)


def _describe(topic: TopicImage, broker: Broker, context: RequestContext) -> MetadataResponseTopic:
    version = context.version
    reachable = broker.reachable(context)
    partitions = []
    for index, partition in enumerate(topic.partitions):
        view = broker.view(topic, index)
        error_code = view.error_code
        if view.leader not in reachable and error_code == NONE:
            error_code = LISTENER_NOT_FOUND if version >= _FIRST_WITH_LISTENER_NOT_FOUND else LEADER_NOT_AVAILABLE
            view = view._replace(leader=NO_LEADER)
        partitions.append(
            MetadataResponsePartition(
                error_code=error_code,
                partition_index=index,
                leader_id=view.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=view.isr,
                offline_replicas=view.offline,
            )
        )
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=partitions,
    )
