"""ConsumerGroupHeartbeat (KIP-848): join, stay in, change and leave a consumer group; the response is the assignment.

Authorization
    group: READ                                          GROUP_AUTHORIZATION_FAILED
    each subscribed topic: DESCRIBE                      TOPIC_AUTHORIZATION_FAILED
    topics that a regular expression matches: DESCRIBE   others are not subscribed to

Behaviour
    empty ids, an incomplete join, an invalid epoch                  INVALID_REQUEST
    an assignor that is not among group.consumer.assignors           UNSUPPORTED_ASSIGNOR
    unknown group (but to join), or a classic one that cannot become a consumer group   GROUP_ID_NOT_FOUND
    unknown member or instance                                       UNKNOWN_MEMBER_ID
    another epoch than the member's                                  FENCED_MEMBER_EPOCH
    the instance's member has not left                               UNRELEASED_INSTANCE_ID
    the instance is another member's by now                          FENCED_INSTANCE_ID
    the group has group.consumer.max.size members                    GROUP_MAX_SIZE_REACHED
    a regular expression that RE2 rejects                            INVALID_REGULAR_EXPRESSION
    group.coordinator.rebalance.protocols without "consumer", or feature group.version at 0   UNSUPPORTED_VERSION

    The assignment is in the answer to a join, to a heartbeat with all fields, and when it changed.

Versions
    0  a member without an id gets one
    1  regular expressions resolved by the broker; members generate their ids (KIP-1082)
"""

from functools import partial

from ottla.broker.broker import Broker
from ottla.broker.coordination.group_protocols import serves_consumer_groups
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import after_topics, may_use_group
from ottla.coordinators.groups.consumer import heartbeat as consumer_heartbeat
from ottla.protocol.errors import (
    GROUP_AUTHORIZATION_FAILED,
    INVALID_REQUEST,
    TOPIC_AUTHORIZATION_FAILED,
    UNSUPPORTED_ASSIGNOR,
    UNSUPPORTED_VERSION,
)
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.security.operations import AclOperation
from ottla.tasks.deferred import Answer


@handles(ConsumerGroupHeartbeatRequest)
def consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, broker: Broker
) -> Answer[ConsumerGroupHeartbeatResponse]:
    if not serves_consumer_groups(broker.config, broker.image.features):
        return ConsumerGroupHeartbeatResponse(error_code=UNSUPPORTED_VERSION)
    context = request.context
    if not may_use_group(context, AclOperation.READ, request.group_id):
        return ConsumerGroupHeartbeatResponse(error_code=GROUP_AUTHORIZATION_FAILED)
    names = request.subscribed_topic_names or ()
    return after_topics(context, AclOperation.DESCRIBE, names, broker.tasks, partial(_heartbeat, request, broker))


def _heartbeat(
    request: ConsumerGroupHeartbeatRequest, broker: Broker, may_describe: bool
) -> Answer[ConsumerGroupHeartbeatResponse]:
    if not may_describe:
        return ConsumerGroupHeartbeatResponse(error_code=TOPIC_AUTHORIZATION_FAILED)
    wrong = consumer_heartbeat.request_error(request)
    if wrong is not None:
        return ConsumerGroupHeartbeatResponse(error_code=INVALID_REQUEST, error_message=wrong)
    if request.server_assignor is not None:
        assignors = broker.config.items_of("group.consumer.assignors")
        if request.server_assignor not in assignors:
            text = f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}."
            return ConsumerGroupHeartbeatResponse(error_code=UNSUPPORTED_ASSIGNOR, error_message=text)
    return broker.groups.run(request.group_id, consumer_heartbeat.heartbeat, request)
