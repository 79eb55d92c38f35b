"""Transaction markers for partitions that other brokers lead: WriteTxnMarkers."""

from collections.abc import Sequence
from typing import Final

from ottla.broker.cluster.other_brokers import OtherBrokers
from ottla.broker.coordination.remote_verification import by_topic
from ottla.coordinators.log import Ending
from ottla.coordinators.transactions.transaction import VERSION_WITH_EPOCH_BUMP, TopicPartition
from ottla.protocol.errors import NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.tasks.deferred import Answer

_PURPOSE: Final = "markers"


def send(
    peers: OtherBrokers, node_id: int, ending: Ending, places: Sequence[TopicPartition]
) -> Answer[WriteTxnMarkersResponse | None]:
    """Let another broker write a marker to partitions that it leads; None if it does not answer."""
    marker = WritableTxnMarker(
        producer_id=ending.producer_id,
        producer_epoch=ending.producer_epoch,
        transaction_result=ending.commit,
        topics=[
            WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in by_topic(places).items()
        ],
        coordinator_epoch=ending.coordinator_epoch,
        transaction_version=VERSION_WITH_EPOCH_BUMP if ending.new_epoch else 0,
    )
    return peers.request(node_id, WriteTxnMarkersRequest(markers=[marker]), purpose=_PURPOSE)


def codes_of(places: Sequence[TopicPartition], response: WriteTxnMarkersResponse | None) -> dict[TopicPartition, int]:
    """Return the error code of each partition: NONE when its marker is committed.

    Another broker that does not know a topic may only have an older image: UNKNOWN_TOPIC_OR_PARTITION becomes
    NOT_LEADER_OR_FOLLOWER, so that the marker is not taken for needless.
    """
    codes = dict.fromkeys(places, NOT_LEADER_OR_FOLLOWER)
    for result in [] if response is None else response.markers:
        for topic in result.topics:
            for partition in topic.partitions:
                codes[topic.name, partition.partition_index] = partition.error_code
    outdated = UNKNOWN_TOPIC_OR_PARTITION
    return {place: NOT_LEADER_OR_FOLLOWER if codes[place] == outdated else codes[place] for place in places}
