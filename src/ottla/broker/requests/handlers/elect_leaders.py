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

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ottla.broker.broker import Broker
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_cluster
from ottla.metadata import changes
from ottla.metadata.changes.elections import elect_any, elect_preferred
from ottla.metadata.image import NO_LEADER, Image, PartitionImage, TopicImage
from ottla.metadata.metadata import Conflict, outdated
from ottla.metadata.refusal import Refused
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
from ottla.tasks.scheduler import Scheduler

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


@handles(ElectLeadersRequest, rows="topic_partitions.partitions", is_whole=True)
async def elect_leaders(request: ElectLeadersRequest, broker: Broker) -> ElectLeadersResponse:
    if not may_use_cluster(request.context, AclOperation.ALTER):
        return _refuse(request, CLUSTER_AUTHORIZATION_FAILED, error(CLUSTER_AUTHORIZATION_FAILED).message)
    if request.timeout_ms <= 0 and request.topic_partitions != []:
        return _refuse(request, REQUEST_TIMED_OUT, None)
    if request.topic_partitions is None and request.election_type not in _ELECTION_TYPES:
        return ElectLeadersResponse(error_code=INVALID_REQUEST)
    elections = _Elections(request, broker)
    for image in broker.metadata.attempts():
        planned = await elections.plan(image, broker.tasks)
        try:
            for states, change in changes.chunks_of_states(image, planned, broker.metadata.largest_change):
                await broker.metadata.commit(change)
                elections.note(states)
        except Conflict:
            continue
        except Refused as refused:
            return elections.response(refused)
        break
    else:
        return elections.response(outdated())
    return elections.response(None)


def _refuse(request: ElectLeadersRequest, code: int, text: str | None) -> ElectLeadersResponse:
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
    """Elections of one request, over all attempts: what was elected stays elected."""

    def __init__(self, request: ElectLeadersRequest, broker: Broker) -> None:
        self._request = request
        self._is_known = request.election_type in _ELECTION_TYPES
        self._elected: dict[_Place, None] = {}
        """Partitions in which this request has elected a leader."""
        self._elections: dict[_Place, _Election] = {}
        self._image = broker.image

    async def plan(self, image: Image, tasks: Scheduler) -> list[changes.PlacedState]:
        """Plan the elections that are still open on an image; return the new states of partitions."""
        self._image = image
        self._elections = await self._plan(tasks)
        return [
            (image.topics[name], index, election.state)
            for (name, index), election in self._elections.items()
            if election.state is not None
        ]

    def note(self, states: Iterable[changes.PlacedState]) -> None:
        """Note elections that were made."""
        for topic, index, _ in states:
            self._elected[topic.name, index] = None

    def response(self, refused: Refused | None) -> ElectLeadersResponse:
        """Return the response; `refused` is the error of the elections that were planned and not made."""
        rows: dict[str, list[PartitionResult]] = {name: [] for name in self._names(self._image.topics)}
        for place, election in self._elections.items():
            code, message = election.error_code, election.error_message
            if election.state is not None and place not in self._elected and refused is not None:
                code, message = refused.code, refused.message
            if self._request.topic_partitions is not None or code != ELECTION_NOT_NEEDED:
                row = PartitionResult(partition_id=place[1], error_code=code, error_message=message)
                rows[place[0]].append(row)
        results = [ReplicaElectionResult(topic=name, partition_result=row) for name, row in rows.items()]
        code = NONE if self._is_known or not self._request.topic_partitions else INVALID_REQUEST
        return ElectLeadersResponse(error_code=code, replica_election_results=results)

    def _names(self, topics: Mapping[str, TopicImage]) -> list[str]:
        if self._request.topic_partitions is None:
            return list(topics)
        return [topic.topic for topic in self._request.topic_partitions]

    async def _plan(self, tasks: Scheduler) -> dict[_Place, _Election]:
        """Plan the elections, by topic and partition."""
        topics = self._image.topics
        if self._request.topic_partitions is None:
            places = [(name, index) for name, topic in topics.items() for index in range(len(topic.partitions))]
        else:
            places = [(topic.topic, index) for topic in self._request.topic_partitions for index in topic.partitions]
        elections = {}
        for place in places:
            await tasks.pace()
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
        image, partition = self._image, topic.partitions[index]
        is_preferred = self._request.election_type == _PREFERRED
        has_leader = partition.leader != NO_LEADER and partition.leader in image.brokers
        if has_leader and (not is_preferred or partition.leader == partition.replicas[0]):
            return _Election(None, ELECTION_NOT_NEEDED, _NOT_NEEDED)

        def acceptable(node: int) -> bool:
            return node not in partition.offline and image.is_active(node)

        state = (elect_preferred if is_preferred else elect_any)(partition, acceptable)
        if state is None or state.leader not in image.brokers:
            code = PREFERRED_LEADER_NOT_AVAILABLE if is_preferred else ELIGIBLE_LEADERS_NOT_AVAILABLE
            return _Election(None, code, error(code).message)
        return _Election(state)
