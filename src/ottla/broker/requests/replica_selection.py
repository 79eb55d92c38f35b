"""Selection of the replica from which a consumer should read (KIP-392)."""

from typing import Final

from ottla.broker.broker import Broker
from ottla.replication.leader.leadership import Follower
from ottla.replication.partition import Partition

_RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def preferred_replica(partition: Partition, offset: int, rack: str, broker: Broker) -> int:
    """Return the node id of the replica in sync that a consumer in `rack` should read `offset` from; -1 for the leader.

    A replica in the consumer's rack is preferred, the one with the highest log end of several, if replica.selector.class is
    RackAwareReplicaSelector. A follower that is asked selects none.
    """
    leadership = partition.leadership
    if leadership is None or broker.config.text("replica.selector.class") != _RACK_AWARE:
        return -1
    brokers = broker.image.brokers
    own = brokers.get(broker.node_id)
    if own is not None and own.rack == rack:
        return -1
    near: list[Follower] = []
    for node_id, follower in leadership.followers.items():
        node = brokers.get(node_id)
        if node is None or node.rack != rack or node_id not in leadership.state.isr:
            continue
        if follower.start_offset <= offset <= follower.end_offset:
            near.append(follower)
    best = max(near, key=lambda follower: (follower.end_offset, follower.caught_up_ms), default=None)
    return -1 if best is None else best.node_id
