"""ElectLeaders: elect the preferred leader of partitions (KIP-183), or any replica (KIP-460).

Authorization
    cluster: ALTER   CLUSTER_AUTHORIZATION_FAILED, also for each partition in the request

Behaviour
    the requested leader leads already   ELECTION_NOT_NEEDED; for an unclean election: any leader
    the preferred replica cannot lead    PREFERRED_LEADER_NOT_AVAILABLE; if the leader is lost another is elected
    no replica may lead                  ELIGIBLE_LEADERS_NOT_AVAILABLE, for an unclean election
    unknown topic, partition             UNKNOWN_TOPIC_OR_PARTITION
    another election type                INVALID_REQUEST, for each partition and for the whole
    a timeout of 0 or below              REQUEST_TIMED_OUT, also for each partition in the request, unless it names no topics
    topics null                          every topic, with the partitions whose leader changes or cannot be elected

Versions
    1  the election type, an error for the whole
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.broker.broker import Broker
from ottla.broker.dispatch import handles
from ottla.broker.permission import may_use_cluster
from ottla.metadata.elections import preferred, unclean
from ottla.metadata.image import NO_LEADER, PartitionImage, TopicImage
from ottla.metadata.refusal import ChangeResult
from ottla.protocol.errors import (
    CLUSTER_AUTHORIZATION_FAILED,
    ELECTION_NOT_NEEDED,
    ELIGIBLE_LEADERS_NOT_AVAILABLE,
    INVALID_REQUEST,
    NONE,
    PREFERRED_LEADER_NOT_AVAILABLE,
    REQUEST_TIMED_OUT,
    UNKNOWN_TOPIC_OR_PARTITION,
    error,
)
from ottla.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from ottla.security.operations import AclOperation
from ottla.tasks.answers import after
from ottla.tasks.deferred import Answer

_PREFERRED: Final = 0
_UNCLEAN: Final = 1
_ELECTION_TYPES: Final = (_PREFERRED, _UNCLEAN)
_Place = tuple[str, int]
"""Topic name and index of a partition."""
_NOT_NEEDED: Final = "Leader election not needed for topic partition."


class _Election(NamedTuple):
    """Election in one partition: its new state, None without a change, and the result."""

    state: PartitionImage | None
    error_code: int = NONE
    error_message: str | None = None


@handles(ElectLeadersRequest)
def elect_leaders(request: ElectLeadersRequest, broker: Broker) -> Answer[ElectLeadersResponse]:
    if not may_use_cluster(request.context, AclOperation.ALTER):
        return _refused(request, CLUSTER_AUTHORIZATION_FAILED, error(CLUSTER_AUTHORIZATION_FAILED).message)
    if request.timeout_ms <= 0 and request.topic_partitions != []:
        return _refused(request, REQUEST_TIMED_OUT, None)
    if request.topic_partitions is None and request.election_type not in _ELECTION_TYPES:
        return ElectLeadersResponse(error_code=INVALID_REQUEST)
    return broker.metadata.in_turn(_Elections(request, broker).attempt)


def _refused(request: ElectLeadersRequest, code: int, text: str | None) -> ElectLeadersResponse:
    """Refuse the whole request."""
    results = [
        ReplicaElectionResult(
            topic=topic.topic,
            partition_result=[
                PartitionResult(partition_id=index, error_code=code, error_message=text) for index in topic.partitions
            ],
        )
        for topic in request.topic_partitions or ()
    ]
    top_level = code if request.context.version >= 1 else NONE
    return ElectLeadersResponse(error_code=top_level, replica_election_results=results)


class _Elections:
    """One request, over all attempts of its turn: each is made on a newer image, after a part may have been written."""

    def __init__(self, request: ElectLeadersRequest, broker: Broker) -> None:
        self._request = request
        self._broker = broker
        self._is_known = request.election_type in _ELECTION_TYPES
        self._elected: dict[_Place, None] = {}
        """Partitions in which this request has elected a leader."""

    def attempt(self) -> Answer[ElectLeadersResponse]:
        """Plan and write all elections."""
        topics = self._broker.image.topics
        elections = self._planned()
        states = [
            (topics[name], index, election.state)
            for (name, index), election in elections.items()
            if election.state is not None
        ]

        def response(changes: list[ChangeResult]) -> ElectLeadersResponse:
            remaining = iter(changes)
            rows: dict[str, list[PartitionResult]] = {name: [] for name in self._names(topics)}
            for place, election in elections.items():
                code, message = election.error_code, election.error_message
                if election.state is not None:
                    code, message = next(remaining)
                    if code == NONE:
                        self._elected[place] = None
                if self._request.topic_partitions is not None or code != ELECTION_NOT_NEEDED:
                    row = PartitionResult(partition_id=place[1], error_code=code, error_message=message)
                    rows[place[0]].append(row)
            results = [ReplicaElectionResult(topic=name, partition_result=row) for name, row in rows.items()]
            code = NONE if self._is_known or not self._request.topic_partitions else INVALID_REQUEST
            return ElectLeadersResponse(error_code=code, replica_election_results=results)

        return after(self._broker.metadata.change_partitions(states), response)

    def _names(self, topics: Mapping[str, TopicImage]) -> list[str]:
        if self._request.topic_partitions is None:
            return list(topics)
        return [topic.topic for topic in self._request.topic_partitions]

    def _planned(self) -> dict[_Place, _Election]:
        """Plan the elections, by topic and partition."""
        topics = self._broker.image.topics
        if self._request.topic_partitions is None:
            places = [(name, index) for name, topic in topics.items() for index in range(len(topic.partitions))]
        else:
            places = [(topic.topic, index) for topic in self._request.topic_partitions for index in topic.partitions]
        elections = {}
        for place in places:
            name, index = place
            topic = topics.get(name)
            if place in self._elected:
                elections[place] = _Election(None)
            elif not self._is_known:
                text = f"Unknown election type {self._request.election_type}"
                elections[place] = _Election(None, INVALID_REQUEST, text)
            elif topic is None:
                elections[place] = _Election(None, UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
            elif not 0 <= index < len(topic.partitions):
                elections[place] = _Election(None, UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
            else:
                elections[place] = self._elect(topic, index)
        return elections

    def _elect(self, topic: TopicImage, index: int) -> _Election:
        """Plan the election of one partition."""
        image, partition = self._broker.image, topic.partitions[index]
        is_preferred = self._request.election_type == _PREFERRED
        has_leader = partition.leader != NO_LEADER and partition.leader in image.brokers
        if has_leader and (not is_preferred or partition.leader == partition.replicas[0]):
            return _Election(None, ELECTION_NOT_NEEDED, _NOT_NEEDED)

        def acceptable(node: int) -> bool:
            return node not in partition.offline and image.is_active(node)

        state = (preferred if is_preferred else unclean)(partition, acceptable)
        if state is None or state.leader not in image.brokers:
            code = PREFERRED_LEADER_NOT_AVAILABLE if is_preferred else ELIGIBLE_LEADERS_NOT_AVAILABLE
            return _Election(None, code, error(code).message)
        return _Election(state)
