"""Transaction markers for partitions that other brokers lead: WriteTxnMarkers."""

from collections.abc import Callable, Sequence
from typing import Final

from ottla.broker.coordination.remote_verification import by_topic
from ottla.broker.other_brokers import OtherBrokers
from ottla.coordinators.log import Ending
from ottla.coordinators.transactions.transaction import VERSION_WITH_EPOCH_BUMP, TopicPartition
from ottla.protocol.errors import NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.tasks.answers import after

_PURPOSE: Final = "markers"


def write_remotely(
    peers: OtherBrokers,
    node_id: int,
    ending: Ending,
    places: Sequence[TopicPartition],
    decided: Callable[[TopicPartition, int], None],
) -> None:
    """Let another broker write a marker to partitions that it leads.

    decided  called once for each partition with an error code: NONE when its marker is committed

    Another broker that does not know a topic may only have an older image: UNKNOWN_TOPIC_OR_PARTITION becomes
    NOT_LEADER_OR_FOLLOWER, so that the marker is not taken for needless.
    """
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

    def answered(response: WriteTxnMarkersResponse | None) -> None:
        codes = dict.fromkeys(places, NOT_LEADER_OR_FOLLOWER)
        for result in [] if response is None else response.markers:
            for topic in result.topics:
                for partition in topic.partitions:
                    codes[topic.name, partition.partition_index] = partition.error_code
        for place in places:
            code = codes[place]
            decided(place, NOT_LEADER_OR_FOLLOWER if code == UNKNOWN_TOPIC_OR_PARTITION else code)

    after(peers.request(node_id, WriteTxnMarkersRequest(markers=[marker]), purpose=_PURPOSE), answered)
