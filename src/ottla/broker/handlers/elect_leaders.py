"""ElectLeaders: elect the preferred leader of partitions (KIP-183), or any replica (KIP-460). One broker leads all of them.

Behaviour
    a partition that exists      ELECTION_NOT_NEEDED
    unknown topic, partition     UNKNOWN_TOPIC_OR_PARTITION
    another election type        INVALID_REQUEST, for each partition and for the whole
    topics null                  every topic, without partitions: none needs an election

Versions
    1  the election type, an error for the whole
"""

from typing import Final

from ottla.broker.broker import Broker
from ottla.broker.dispatch import handles
from ottla.protocol.answer import Answer
from ottla.protocol.errors import ELECTION_NOT_NEEDED, INVALID_REQUEST, NONE, UNKNOWN_TOPIC_OR_PARTITION
from ottla.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

_ELECTION_TYPES: Final = (0, 1)  # preferred, unclean


@handles(ElectLeadersRequest)
def elect_leaders(request: ElectLeadersRequest, broker: Broker) -> Answer[ElectLeadersResponse]:
    known = request.election_type in _ELECTION_TYPES
    if request.topic_partitions is None:
        if not known:
            return ElectLeadersResponse(error_code=INVALID_REQUEST)
        everything = [ReplicaElectionResult(topic=name) for name in broker.image.topics]
        return ElectLeadersResponse(replica_election_results=everything)
    results = [
        ReplicaElectionResult(
            topic=topic.topic,
            partition_result=[_result(topic.topic, index, request.election_type, broker) for index in topic.partitions],
        )
        for topic in request.topic_partitions
    ]
    return ElectLeadersResponse(error_code=NONE if known else INVALID_REQUEST, replica_election_results=results)


def _result(topic: str, index: int, election_type: int, broker: Broker) -> PartitionResult:
    known = broker.image.topics.get(topic)
    if election_type not in _ELECTION_TYPES:
        code, message = INVALID_REQUEST, f"Unknown election type {election_type}"
    elif known is None:
        code, message = UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic}"
    elif not 0 <= index < len(known.partitions):
        code, message = UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic}-{index}"
    else:
        code, message = ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
    return PartitionResult(partition_id=index, error_code=code, error_message=message)
