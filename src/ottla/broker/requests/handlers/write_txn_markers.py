"""WriteTxnMarkers: end a producer's transaction in partitions; sent by coordinators, and by operators for a hanging one.

Authorization
    cluster: ALTER, else CLUSTER_ACTION   CLUSTER_AUTHORIZATION_FAILED for each partition

Behaviour
    an unknown topic or partition    UNKNOWN_TOPIC_OR_PARTITION
    an older epoch than the current  INVALID_PRODUCER_EPOCH; with transaction version 2 also the current one while a
                                     transaction is open, since each marker has an epoch of its own
    an older coordinator epoch       TRANSACTION_COORDINATOR_FENCED
    an unknown producer              the marker is written
    __consumer_offsets               the offsets of the transaction are applied, or discarded
    no partitions                    an empty answer (Kafka 4.4 never answers)

Versions
    1  flexible
    2  the transaction's version
"""

from ottla.broker.broker import Broker
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_cluster
from ottla.coordinators.log import Ending
from ottla.coordinators.transactions.transaction import VERSION_WITH_EPOCH_BUMP
from ottla.protocol.errors import CLUSTER_AUTHORIZATION_FAILED
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.security.operations import AclOperation


@handles(WriteTxnMarkersRequest, rows="markers.topics.partition_indexes")
async def write_txn_markers(request: WriteTxnMarkersRequest, broker: Broker) -> WriteTxnMarkersResponse:
    may_write = may_use_cluster(request.context, AclOperation.ALTER, is_logged=False)
    may_write = may_write or may_use_cluster(request.context, AclOperation.CLUSTER_ACTION)
    results = []
    to_write: list[tuple[tuple[str, int], Ending]] = []
    written: list[WritableTxnMarkerPartitionResult] = []
    for marker in request.markers:
        ending = Ending(
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            commit=marker.transaction_result,
            new_epoch=marker.transaction_version >= VERSION_WITH_EPOCH_BUMP,
        )
        topics = []
        for topic in marker.topics:
            partitions = []
            for index in topic.partition_indexes:
                row = WritableTxnMarkerPartitionResult(partition_index=index)
                partitions.append(row)
                if not may_write:
                    row.error_code = CLUSTER_AUTHORIZATION_FAILED
                    continue
                to_write.append(((topic.name, index), ending))
                written.append(row)
            topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=partitions))
        results.append(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics))
    codes = await broker.coordination.markers.append(to_write) if may_write else []
    for row, code in zip(written, codes, strict=True):
        row.error_code = code
    return WriteTxnMarkersResponse(markers=results)
