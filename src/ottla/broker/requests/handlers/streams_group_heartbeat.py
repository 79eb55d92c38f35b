"""StreamsGroupHeartbeat (KIP-1071): join, stay in and leave a streams group; the response has the member's tasks.

Authorization
    group: READ                                                   GROUP_AUTHORIZATION_FAILED
    each topic of a topology, existing or not: DESCRIBE           TOPIC_AUTHORIZATION_FAILED
    cluster, or each internal topic that is missing: CREATE       it is not created; a status says so

Behaviour
    a topology with topics of Kafka, or with names that are not valid        STREAMS_INVALID_TOPOLOGY
    a topology whose sizes cannot be computed                                STREAMS_INVALID_TOPOLOGY
    empty ids, an incomplete join, an invalid epoch, another topology than the group's   INVALID_REQUEST
    unknown group (but to join), or one of another type that has members or offsets      GROUP_ID_NOT_FOUND
    unknown member or instance                                               UNKNOWN_MEMBER_ID
    another epoch than the member's                                          FENCED_MEMBER_EPOCH
    the instance's member has not left                                       UNRELEASED_INSTANCE_ID
    the instance is another member's by now                                  FENCED_INSTANCE_ID
    the group has group.streams.max.size members                             GROUP_MAX_SIZE_REACHED
    group.coordinator.rebalance.protocols without "streams", or feature streams.version at 0   UNSUPPORTED_VERSION

    What keeps the group from being ready is a status beside NONE. Missing internal topics are created after the response.

Versions
    1  offsets of state, tags that are missing, descriptions of topologies
"""

from ottla.broker.broker import Broker
from ottla.broker.coordination.group_protocols import serves_streams_groups
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_group, may_use_many_topics
from ottla.coordinators.groups.streams import heartbeat as streams_heartbeat
from ottla.coordinators.groups.streams.internal_topics import MISSING_INTERNAL_TOPICS
from ottla.coordinators.groups.streams.subtopologies import required_topics
from ottla.metadata.image import INTERNAL_TOPICS
from ottla.metadata.plans.topics import check_name
from ottla.metadata.refusal import Refused
from ottla.protocol.errors import (
    GROUP_AUTHORIZATION_FAILED,
    STREAMS_INVALID_TOPOLOGY,
    TOPIC_AUTHORIZATION_FAILED,
    UNSUPPORTED_VERSION,
)
from ottla.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse
from ottla.security.operations import AclOperation
from ottla.tasks.deferred import awaitable


@handles(StreamsGroupHeartbeatRequest)
async def streams_group_heartbeat(
    request: StreamsGroupHeartbeatRequest, broker: Broker
) -> StreamsGroupHeartbeatResponse:
    if not serves_streams_groups(broker.config, broker.image.features):
        return _refuse(UNSUPPORTED_VERSION)
    context = request.context
    if not may_use_group(context, AclOperation.READ, request.group_id):
        return _refuse(GROUP_AUTHORIZATION_FAILED)
    if request.topology is not None:
        topics = required_topics(request.topology.subtopologies)
        internal = [name for name in topics if name in INTERNAL_TOPICS]
        if internal:
            text = f"Use of Kafka internal topics {','.join(internal)} in a Kafka Streams topology is prohibited."
            return _refuse(STREAMS_INVALID_TOPOLOGY, text)
        invalid = []
        for name in topics:
            await broker.tasks.pace()
            if not _is_valid(name):
                invalid.append(name)
        if invalid:
            return _refuse(STREAMS_INVALID_TOPOLOGY, f"Topic names {','.join(invalid)} are not valid topic names.")
        if not await may_use_many_topics(context, AclOperation.DESCRIBE, topics, broker.tasks):
            return _refuse(TOPIC_AUTHORIZATION_FAILED)
    wrong = streams_heartbeat.request_error(request)
    if wrong is not None:
        return _refuse(*wrong)

    answer = broker.groups.run(request.group_id, streams_heartbeat.heartbeat, request)
    outcome: streams_heartbeat.Outcome = await awaitable(answer, broker.tasks)
    response = outcome.response
    for status in response.status or ():
        if status.status_code == MISSING_INTERNAL_TOPICS:
            keep_ms = 2 * response.heartbeat_interval_ms
            status.status_detail += broker.streams_topics.provide(outcome.missing, context, keep_ms)
    return response


def _refuse(code: int, message: str | None = None) -> StreamsGroupHeartbeatResponse:
    return StreamsGroupHeartbeatResponse(error_code=code, error_message=message, status=[])


def _is_valid(topic: str) -> bool:
    try:
        check_name(topic)
    except Refused:
        return False
    return True
