"""Permission to read topics with a share group, by topic id."""

from collections.abc import Mapping
from typing import TypeVar

from ottla.broker.broker import Broker
from ottla.broker.security.permission import may_use_topic
from ottla.broker.share_partitions.led_partition import AcknowledgementResult
from ottla.coordinators.share.session import TopicIdPartition
from ottla.protocol.context import RequestContext
from ottla.protocol.errors import TOPIC_AUTHORIZATION_FAILED, error
from ottla.security.operations import AclOperation

A = TypeVar("A")


def is_denied(topic_id: bytes, context: RequestContext, broker: Broker) -> bool:
    """Return whether the sender may not read a topic; an unknown id is not denied, because every client may see that."""
    if context.authorizer is None:
        return False
    topic = broker.image.topics_by_id.get(topic_id)
    return topic is not None and not may_use_topic(context, AclOperation.READ, topic.name)


def split_acknowledgements(
    acks: Mapping[TopicIdPartition, A], context: RequestContext, broker: Broker
) -> tuple[dict[TopicIdPartition, A], dict[TopicIdPartition, AcknowledgementResult]]:
    """Return the acknowledgements of topics that the sender may read, and the results of the others."""
    allowed = dict(acks)
    if context.authorizer is None:
        return allowed, {}
    code = TOPIC_AUTHORIZATION_FAILED
    hidden = {topic_id for topic_id in {place[0] for place in acks} if is_denied(topic_id, context, broker)}
    denied = {place: AcknowledgementResult(code, error(code).message) for place in acks if place[0] in hidden}
    return {place: batches for place, batches in acks.items() if place not in denied}, denied
