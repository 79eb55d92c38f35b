"""ElectLeaders: elect the preferred leader of partitions (KIP-183), or any replica (KIP-460).

Behaviour
    the requested leader leads already   ELECTION_NOT_NEEDED; for an unclean election: any leader
    the preferred replica cannot lead    PREFERRED_LEADER_NOT_AVAILABLE; if the leader is lost another is elected
    no replica may lead                  ELIGIBLE_LEADERS_NOT_AVAILABLE, for an unclean election
    unknown topic, partition             UNKNOWN_TOPIC_OR_PARTITION
    another election type                INVALID_REQUEST, for each partition and for the whole
    topics null                          every topic, with the partitions whose leader changes or cannot be elected

Versions
    1  the election type, an error for the whole
"""

from typing import Final, NamedTuple

from ottla.broker.broker import Broker
from ottla.broker.dispatch import handles
from ottla.metadata.elections import ElectionRules, preferred, unclean
from ottla.metadata.image import NO_LEADER, PartitionImage, TopicImage
from ottla.metadata.refusal import ChangeResult
from ottla.protocol.answer import Answer, after
from ottla.protocol.errors import (
    ELECTION_NOT_NEEDED,
    ELIGIBLE_LEADERS_NOT_AVAILABLE,
    INVALID_REQUEST,
    NONE,
    PREFERRED_LEADER_NOT_AVAILABLE,
    UNKNOWN_TOPIC_OR_PARTITION,
    error,
)
from ottla.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

_PREFERRED: Final = 0
_UNCLEAN: Final = 1
_ELECTION_TYPES: Final = (_PREFERRED, _UNCLEAN)
_NOT_NEEDED: Final = "Leader election not needed for topic partition."


class _Election(NamedTuple):
    """Election in one partition: its new state, None without a change, and the result."""

    state: PartitionImage | None
    error_code: int = NONE
    error_message: str | None = None


@handles(ElectLeadersRequest, in_turn=True)
def elect_leaders(request: ElectLeadersRequest, broker: Broker) -> Answer[ElectLeadersResponse]:
    known = request.election_type in _ELECTION_TYPES
    if request.topic_partitions is None and not known:
        return ElectLeadersResponse(error_code=INVALID_REQUEST)
    elections = _elections(request, broker)
    planned = [
        (broker.image.topics[name], index, election.state)
        for (name, index), election in elections.items()
        if election.state is not None
    ]

    def response(changes: list[ChangeResult]) -> ElectLeadersResponse:
        remaining = iter(changes)
        rows: dict[str, list[PartitionResult]] = {name: [] for name in _names(request, broker)}
        for (name, index), election in elections.items():
            code, message = (election.error_code, election.error_message) if election.state is None else next(remaining)
            if request.topic_partitions is None and code == ELECTION_NOT_NEEDED:
                continue
            rows[name].append(PartitionResult(partition_id=index, error_code=code, error_message=message))
        results = [ReplicaElectionResult(topic=name, partition_result=row) for name, row in rows.items()]
        return ElectLeadersResponse(error_code=NONE if known else INVALID_REQUEST, replica_election_results=results)

    return after(broker.metadata.change_partitions(planned), response)


def _names(request: ElectLeadersRequest, broker: Broker) -> list[str]:
    if request.topic_partitions is None:
        return list(broker.image.topics)
    return [topic.topic for topic in request.topic_partitions]


def _elections(request: ElectLeadersRequest, broker: Broker) -> dict[tuple[str, int], _Election]:
    """Plan the elections, by topic and partition."""
    topics = broker.image.topics
    if request.topic_partitions is None:
        places = [(name, index) for name, topic in topics.items() for index in range(len(topic.partitions))]
    else:
        places = [(topic.topic, index) for topic in request.topic_partitions for index in topic.partitions]
    elections = {}
    for name, index in places:
        topic = topics.get(name)
        if request.election_type not in _ELECTION_TYPES:
            elections[name, index] = _Election(None, INVALID_REQUEST, f"Unknown election type {request.election_type}")
        elif topic is None:
            elections[name, index] = _Election(None, UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
        elif not 0 <= index < len(topic.partitions):
            elections[name, index] = _Election(None, UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
        else:
            elections[name, index] = _elect(topic, index, broker, is_preferred=request.election_type == _PREFERRED)
    return elections


def _elect(topic: TopicImage, index: int, broker: Broker, *, is_preferred: bool) -> _Election:
    partition = topic.partitions[index]
    live = broker.image.brokers
    has_leader = partition.leader != NO_LEADER and partition.leader in live
    if has_leader and (not is_preferred or partition.leader == partition.replicas[0]):
        return _Election(None, ELECTION_NOT_NEEDED, _NOT_NEEDED)
    rules: ElectionRules = broker.election_rules(topic)

    def acceptable(node: int) -> bool:
        return node not in partition.offline and broker.image.is_active(node)

    state = (preferred if is_preferred else unclean)(partition, acceptable, rules)
    if state is None or state.leader not in live:
        code = PREFERRED_LEADER_NOT_AVAILABLE if is_preferred else ELIGIBLE_LEADERS_NOT_AVAILABLE
        return _Election(None, code, error(code).message)
    return _Election(state)
