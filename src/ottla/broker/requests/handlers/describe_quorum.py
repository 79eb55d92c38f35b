"""DescribeQuorum: leader and voters of the metadata quorum (KIP-595, KIP-642, KIP-853).

Ottla has no metadata quorum: its brokers share a metadata store. So that tools which ask for the quorum work, the answer shows
the store as one: the controller leads, every broker is a voter, and offsets are revisions of the store.

Authorization
    cluster: DESCRIBE   CLUSTER_AUTHORIZATION_FAILED

Behaviour
    anything but partition 0 of __cluster_metadata, once   UNKNOWN_TOPIC_OR_PARTITION for each partition
    no topics, or a topic without partitions               an empty answer
    listeners of the nodes                                 those that clients use: there is no controller listener

Versions
    1  times of the last fetch
    2  error messages, directory ids, the nodes' listeners
"""

from typing import Final

from ottla.broker.broker import Broker
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_cluster
from ottla.protocol.errors import CLUSTER_AUTHORIZATION_FAILED, NONE, UNKNOWN_TOPIC_OR_PARTITION, error
from ottla.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    Listener,
    Node,
    ReplicaState,
    TopicData,
)
from ottla.protocol.schema import ZERO_UUID
from ottla.security.operations import AclOperation
from ottla.tasks.deferred import Answer

_METADATA_TOPIC: Final = "__cluster_metadata"
_FIRST_WITH_NODES: Final = 2
_SINGLE_EPOCH: Final = 1
"""Constant leader epoch of a single broker, which is the controller from its first revision on."""


@handles(DescribeQuorumRequest, rows="topics.partitions")
def describe_quorum(request: DescribeQuorumRequest, broker: Broker) -> Answer[DescribeQuorumResponse]:
    if not may_use_cluster(request.context, AclOperation.DESCRIBE):
        code = CLUSTER_AUTHORIZATION_FAILED
        return DescribeQuorumResponse(error_code=code, error_message=error(code).message)
    asked = [
        (topic.topic_name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    ]
    if asked != [(_METADATA_TOPIC, 0)]:
        return DescribeQuorumResponse(error_message="", topics=[_unknown(topic) for topic in request.topics])
    image = broker.image
    now_ms = broker.clock.wall_ms()
    voters = [
        ReplicaState(
            replica_id=node_id,
            replica_directory_id=ZERO_UUID,
            log_end_offset=image.revision,
            last_fetch_timestamp=now_ms,
            last_caught_up_timestamp=now_ms,
        )
        for node_id in image.registered
    ]
    partition = DescribeQuorumResponsePartitionData(
        partition_index=0,
        error_code=NONE,
        error_message="",
        leader_id=broker.controller_id,
        leader_epoch=_SINGLE_EPOCH if image.controller is None else image.controller.epoch,
        high_watermark=image.revision,
        current_voters=voters,
    )
    nodes = [
        Node(
            node_id=node.node_id,
            listeners=[Listener(name=request.context.listener, host=address[0], port=address[1])],
        )
        for node in image.registered.values()
        if (address := broker.address_of(node, request.context)) is not None
        if request.context.version >= _FIRST_WITH_NODES
    ]
    topic = DescribeQuorumResponseTopicData(topic_name=_METADATA_TOPIC, partitions=[partition])
    return DescribeQuorumResponse(error_message="", topics=[topic], nodes=nodes)


def _unknown(topic: TopicData) -> DescribeQuorumResponseTopicData:
    message = error(UNKNOWN_TOPIC_OR_PARTITION).message
    partitions = [
        DescribeQuorumResponsePartitionData(
            partition_index=partition.partition_index, error_code=UNKNOWN_TOPIC_OR_PARTITION, error_message=message
        )
        for partition in topic.partitions
    ]
    return DescribeQuorumResponseTopicData(topic_name=topic.topic_name, partitions=partitions)
