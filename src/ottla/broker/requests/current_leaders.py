"""Current leaders in responses about partitions that this broker does not lead, so that clients need no metadata (KIP-951)."""

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from ottla.broker.broker import Broker
from ottla.metadata.image import TopicImage
from ottla.protocol.context import RequestContext
from ottla.protocol.errors import FENCED_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER

LOST_LEADERSHIP: Final = frozenset((NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH))
"""Errors with which a response tells the current leader."""


class MovedPartition(NamedTuple):
    """Partition of a response.

    row  its row, which has the error code and takes the current leader
    """

    topic: TopicImage | None
    partition: int
    row: Any


def add_current_leaders(
    broker: Broker,
    context: RequestContext,
    partitions: Iterable[MovedPartition],
    leader: Callable[..., Any],
    endpoint: Callable[..., Any],
) -> list[Any]:
    """Write the current leaders (-1 for none) into rows whose error is that of a lost leadership, and return their endpoints.

    leader, endpoint  classes of the response's message for a leader with its epoch, and for a broker with its address
    """
    image = broker.image
    nodes: dict[int, Any] = {}
    for topic, index, row in partitions:
        if row.error_code not in LOST_LEADERSHIP or topic is None or not 0 <= index < len(topic.partitions):
            continue
        partition = topic.partitions[index]
        node = image.brokers.get(partition.leader)
        address = None if node is None else broker.address_of(node, context)
        row.current_leader = leader(leader_id=-1 if node is None else node.node_id, leader_epoch=partition.leader_epoch)
        if node is not None and address is not None:
            nodes[node.node_id] = endpoint(node_id=node.node_id, host=address[0], port=address[1], rack=node.rack)
    return list(nodes.values())
