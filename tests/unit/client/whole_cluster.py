"""A cluster of several nodes in virtual time: each node lets through to one broker what it leads or coordinates.

Strategy. The records, producers, transactions and groups are those of Ottla's broker (`whole_broker.py`), which the conformance
tests hold to Apache Kafka. The nodes before it know who leads a partition, under which epoch, and who coordinates: they refuse
what is not theirs with the codes of Kafka, so that a leader change loses nothing, as with acks=all and replicas in sync.

    client --> node 1 (leads t-0)  --\
           --> node 2 (frozen)     ---> WholeBroker
           --> node 3 (killed)

What a node may do besides:
    freeze    SIGSTOP: connections are accepted, requests kept; `thaw` carries them out, those of closed connections too
    kill      kill -9: connections break, new ones are refused; requests that it kept are gone
    fates     the next requests of a kind: refused with a code, lost before or after they were carried out, answered late
"""

from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from ottla.client.topics import TopicPartition
from ottla.protocol import api, codec
from ottla.protocol.connection import Envelope
from ottla.protocol.error_responses import error_response
from ottla.protocol.errors import (
    COORDINATOR_NOT_AVAILABLE,
    FENCED_LEADER_EPOCH,
    NONE,
    NOT_COORDINATOR,
    NOT_LEADER_OR_FOLLOWER,
    SHARE_SESSION_NOT_FOUND,
    UNKNOWN_LEADER_EPOCH,
)
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponseBroker
from ottla.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from ottla.protocol.messages.share_fetch import ShareFetchRequest
from ottla.protocol.schema import Request, Response
from ottla.records.record import Record
from ottla.tasks.deferred import Deferred, after
from tests.queues import immediate_queue

from .whole_broker import WholeBroker
from .world import LOST, Answer, Broker, Wire, World

UNHEARD: Final = "carried out, and the answer is lost"
"""A fate; LOST is another, a code refuses, Late answers late."""
HOSTS: Final = ("one", "two", "three")

_GROUP_APIS: Final = frozenset(
    {
        api.JOIN_GROUP,
        api.SYNC_GROUP,
        api.HEARTBEAT,
        api.LEAVE_GROUP,
        api.OFFSET_COMMIT,
        api.OFFSET_FETCH,
        api.TXN_OFFSET_COMMIT,
        api.CONSUMER_GROUP_HEARTBEAT,
        api.SHARE_GROUP_HEARTBEAT,
    }
)
_TRANSACTION_APIS: Final = frozenset({api.ADD_PARTITIONS_TO_TXN, api.ADD_OFFSETS_TO_TXN, api.END_TXN})
_LEADER_APIS: Final = {
    api.PRODUCE: ("topic_data", "partition_data", "index"),
    api.LIST_OFFSETS: ("topics", "partitions", "partition_index"),
    api.OFFSET_FOR_LEADER_EPOCH: ("topics", "partitions", "partition"),
}
"""API -> where its request has topics, their partitions, the number of a partition."""
_ANSWERED_UNDER: Final = {
    api.PRODUCE: ("responses", "partition_responses"),
    api.LIST_OFFSETS: ("topics", "partitions"),
    api.OFFSET_FOR_LEADER_EPOCH: ("topics", "partitions"),
}


class Late:
    """A fate: carried out at once, answered after `ms`."""

    def __init__(self, ms: int) -> None:
        self.ms = ms


class Unreplicated:
    """A fate: carried out and kept, but answered with a code, as a coordinator does whose write was not replicated in time."""

    def __init__(self, code: int) -> None:
        self.code = code


Fate = int | str | Late | Unreplicated | None


class Node(Broker):
    """One node of a cluster.

    fates  API -> what happens to the next requests of it, in order
    """

    def __init__(self, cluster: "WholeCluster", host: str, node: int) -> None:
        super().__init__(cluster.world, host, node)
        self.cluster = cluster
        self.frozen = False
        self.fates: dict[int, deque[Fate]] = {}
        self.held: list[tuple[Wire, bytes]] = []
        self._sessions: dict[int, dict[tuple[str, bytes, int], int]] = {}

    # -- faults --

    def freeze(self) -> None:
        """SIGSTOP."""
        self.frozen = True

    def thaw(self) -> None:
        """SIGCONT: what has come meanwhile is carried out, also what closed connections brought."""
        self.frozen = False
        held, self.held = self.held, []
        for wire, frame in held:
            wire.carry_out(frame)

    def kill(self) -> None:
        """kill -9."""
        self.frozen = False
        self.held.clear()
        self.refuses = True
        self._sessions.clear()
        self.lose_all()

    def start(self) -> None:
        """It is back."""
        self.refuses = False

    def keeps(self, wire: Wire, frame: bytes) -> bool:
        if self.frozen:
            self.held.append((wire, frame))
        return self.frozen

    def fate(self, kind: type[Request], *fates: Fate) -> None:
        """Set the fates of the next requests of a kind."""
        self.fates.setdefault(kind.API, deque()).extend(fates)

    # -- requests --

    def answer(self, envelope: Envelope) -> Answer:
        kind: type[Request] = envelope.api.request_class()
        self.asked[kind] += 1
        if envelope.asked != envelope.version:
            unknown: Answer = self._forward(envelope)
            return unknown
        request: Any = codec.decode(kind, envelope.version, envelope.frame, envelope.body)[0]
        self.requests.append((request, envelope.version))
        waiting = self.fates.get(kind.API)
        fate = waiting.popleft() if waiting else None
        if fate is None and self.cluster.chance is not None:
            fate = self.cluster.chance(self, kind)
        if fate == LOST:
            return LOST
        if isinstance(fate, int):
            return error_response(request, envelope.version, fate)
        answer: Answer = self._served(request, envelope)
        if fate == UNHEARD:
            return LOST
        if isinstance(fate, Unreplicated):
            return error_response(request, envelope.version, fate.code)
        if isinstance(fate, Late) and isinstance(answer, Response):
            late: Deferred[Response] = Deferred(immediate_queue())  # what comes behind it on the connection waits
            self.cluster.world.call_later(fate.ms, lambda: late.complete(answer))
            return late
        return answer

    def _forward(self, envelope: Envelope, request: Request | None = None) -> Any:
        """Forward a request to the broker behind the nodes."""
        engine = self.cluster.engine
        engine.speaker = self.speaker
        if request is not None:
            head = envelope.frame[: envelope.body]
            frame = codec.encode(request, envelope.version, head)
            envelope = Envelope(
                envelope.api,
                envelope.asked,
                envelope.version,
                envelope.correlation_id,
                envelope.client_id,
                frame,
                envelope.body,
            )
        return engine.answer(envelope)

    def _served(self, request: Any, envelope: Envelope) -> Any:
        key = envelope.api.key
        cluster = self.cluster
        if isinstance(request, ApiVersionsRequest):
            request.node_id = 1 if request.node_id == self.node else request.node_id
            return after(self._forward(envelope, request), cluster.with_features)
        if isinstance(request, MetadataRequest):
            return after(self._forward(envelope), cluster.as_seen)
        if isinstance(request, FindCoordinatorRequest):
            return after(self._forward(envelope), lambda answer: cluster.coordinated(request.key_type, answer))
        if key in _GROUP_APIS:
            if cluster.coordinators[0] != self.node:
                return error_response(request, envelope.version, NOT_COORDINATOR)
        elif key in _TRANSACTION_APIS or (key == api.INIT_PRODUCER_ID and request.transactional_id is not None):
            if cluster.coordinators[1] != self.node:
                return error_response(request, envelope.version, NOT_COORDINATOR)
        elif key in _LEADER_APIS:
            return self._of_leader(request, envelope, key)
        elif isinstance(request, ShareFetchRequest | ShareAcknowledgeRequest):
            if cluster.share_leader != self.node:
                code = NOT_LEADER_OR_FOLLOWER if request.topics else SHARE_SESSION_NOT_FOUND
                return error_response(request, envelope.version, code)
        elif isinstance(request, FetchRequest):
            return self._fetched(request, envelope)
        return self._forward(envelope)

    def _code_of(self, name: str, index: int, epoch: int) -> int:
        """Return the error code for a partition this node does not serve, or NONE."""
        partition = (name, index)
        if self.cluster.leader(partition) != self.node:
            return NOT_LEADER_OR_FOLLOWER
        known = self.cluster.epochs.get(partition, 0)
        if epoch < 0 or epoch == known:
            return NONE
        return FENCED_LEADER_EPOCH if epoch < known else UNKNOWN_LEADER_EPOCH

    def _of_leader(self, request: Any, envelope: Envelope, key: int) -> Any:
        """Serve the partitions that this node leads, refuse the others."""
        topics_at, parts_at, index_at = _LEADER_APIS[key]
        refused: dict[int, list[tuple[Any, list[Any]]]] = {}
        served = []
        for topic in getattr(request, topics_at):
            kept = []
            left: dict[int, list[Any]] = {}
            for part in getattr(topic, parts_at):
                epoch = getattr(part, "current_leader_epoch", -1)
                code = self._code_of(self.cluster.name_of(topic), getattr(part, index_at), epoch)
                if code == NONE:
                    if hasattr(part, "current_leader_epoch"):
                        part.current_leader_epoch = -1
                    kept.append(part)
                else:
                    left.setdefault(code, []).append(part)
            for code, parts in left.items():
                refused.setdefault(code, []).append((topic, parts))
            if kept:
                setattr(topic, parts_at, kept)
                served.append(topic)
        rows = []
        for code, several in refused.items():
            for topic, parts in several:
                before = getattr(topic, parts_at)
                setattr(topic, parts_at, parts)
                setattr(request, topics_at, [topic])
                rows += getattr(error_response(request, envelope.version, code), _ANSWERED_UNDER[key][0])
                setattr(topic, parts_at, before)
        setattr(request, topics_at, served)
        if not served:
            answer = envelope.api.response_class()()
            setattr(answer, _ANSWERED_UNDER[key][0], rows)
            return answer

        def joined(answer: Any) -> Any:
            getattr(answer, _ANSWERED_UNDER[key][0]).extend(rows)
            return answer

        return after(self._forward(envelope, request), joined)

    def _fetched(self, request: FetchRequest, envelope: Envelope) -> Any:
        """A fetch, in a session or not; partitions that this node does not lead are refused in the answer."""
        known = dict(self._sessions.get(request.session_id, {})) if request.session_epoch > 0 else {}
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                known.pop((*self._key_of(forgotten), index), None)
        for topic in request.topics:
            for part in topic.partitions:
                known[*self._key_of(topic), part.partition] = part.current_leader_epoch
                part.current_leader_epoch = -1
        if any(self._code_of(name, index, epoch) != NONE for (name, _, index), epoch in known.items()):
            request.max_wait_ms = 0

        def joined(answer: FetchResponse) -> FetchResponse:
            if answer.error_code == NONE and answer.session_id:
                self._sessions[answer.session_id] = known
            # A waiting fetch is answered when the leader changes, with the codes of that moment.
            refused = {
                key: code for key, epoch in known.items() if (code := self._code_of(key[0], key[2], epoch)) != NONE
            }
            for topic in answer.responses:
                key = self._key_of(topic)
                topic.partitions = [row for row in topic.partitions if (*key, row.partition_index) not in refused]
            for (name, topic_id, index), code in refused.items():
                row = PartitionData(partition_index=index, error_code=code, high_watermark=-1)
                answer.responses.append(FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=[row]))
            answer.node_endpoints = []
            return answer

        return after(self._forward(envelope, request), joined)

    def _key_of(self, topic: Any) -> tuple[str, bytes]:
        """Name and id of a topic of a fetch: an id tells a topic from one of the same name that was deleted."""
        return self.cluster.name_of(topic), topic.topic_id

    def hung_up(self, wire: Wire) -> None:
        self.cluster.engine.hung_up(wire)


class WholeCluster:
    """Three nodes before one broker.

    leaders       who leads a partition, where that was ever changed
    coordinators  who coordinates: groups (0), transactions (1)
    features      levels of finalized features, where they are not those of the broker
    newest        API -> newest version that the nodes offer, where it is not that of the broker
    chance        called with (node, kind of request) for a fate, where none was ordered
    """

    def __init__(self, world: World, directory: Path, **configs: str) -> None:
        self.world = world
        broker_configs = {"transaction_state_log_num_partitions": "1", "auto_create_topics_enable": "false", **configs}
        self.engine = WholeBroker(world, directory, **broker_configs)
        self.nodes = {number: Node(self, host, number) for number, host in enumerate(HOSTS, 1)}
        for node in self.nodes.values():
            world.brokers[node.host, 9092] = node
        self.leaders: dict[tuple[str, int], int] = {}
        self.epochs: dict[tuple[str, int], int] = {}
        self.coordinators = {0: 1, 1: 2}
        self.features: dict[str, int] = {}
        self.newest: dict[int, int] = {}
        self.chance: Callable[[Node, type[Request]], Fate] | None = None
        self._names: dict[bytes, str] = {}
        """Names of topics by id, those of deleted ones too."""

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{host}:9092" for host in HOSTS)

    def core(self, **configs: Any) -> Any:
        """A core of a client of this cluster."""
        return self.world.core(bootstrap_servers=self.bootstrap, **configs)

    def name_of(self, topic: Any) -> str:
        """The name of a topic of a request or response."""
        name: str = getattr(topic, "topic", "") or getattr(topic, "name", "")
        if name:
            return name
        self._names.update((topic_id, image.name) for topic_id, image in self.engine.image.topics_by_id.items())
        return self._names.get(topic.topic_id, "")

    def leader(self, partition: tuple[str, int]) -> int:
        """The node that leads; of topic `shared` one node leads all partitions."""
        if partition[0] == "shared":
            partition = ("shared", 0)
        return self.leaders.get(partition, partition[1] % len(self.nodes) + 1)

    def lead(self, name: str, index: int, node: int) -> None:
        """Another node leads from now on."""
        self.leaders[name, index] = node
        self.epochs[name, index] = self.epochs.get((name, index), 0) + 1

    @property
    def share_leader(self) -> int:
        """The node that leads the partitions of share groups: one for all, since the broker behind the nodes keeps one share
        session for each member."""
        return self.leader(("shared", 0))

    def fail_over(self, node: int) -> None:
        """Move leadership and coordination to live nodes."""
        others = [
            candidate.node
            for candidate in self.nodes.values()
            if candidate.node != node and not candidate.refuses and not candidate.frozen
        ]
        if not others:
            return
        for topic in list(self.engine.image.topics.values()):
            for index in range(len(topic.partitions)):
                if self.leader((topic.name, index)) == node:
                    self.lead(topic.name, index, others[index % len(others)])
        for kind, coordinator in self.coordinators.items():
            if coordinator == node:
                self.coordinators[kind] = others[0]

    def with_features(self, answer: Any) -> Any:
        """ApiVersions with the features and versions of this cluster."""
        for row in answer.api_keys:
            row.max_version = self.newest.get(row.api_key, row.max_version)
        for feature in answer.finalized_features:
            level = self.features.get(feature.name, feature.max_version_level)
            feature.max_version_level = feature.min_version_level = level
        return answer

    def as_seen(self, answer: Any) -> Any:
        """Metadata with the nodes of the cluster."""
        answer.brokers = [
            MetadataResponseBroker(node_id=node.node, host=node.host, port=9092, rack=None)
            for node in self.nodes.values()
            if not node.refuses
        ]
        answer.controller_id = 1
        for topic in answer.topics:
            for part in topic.partitions:
                where = (topic.name, part.partition_index)
                part.leader_id = self.leader(where)
                part.leader_epoch = self.epochs.get(where, 0)
                part.replica_nodes = part.isr_nodes = list(self.nodes)
        return answer

    def coordinated(self, kind: int, answer: Any) -> Any:
        """A coordinator's answer with the node that coordinates."""
        for row in answer.coordinators or [answer]:
            node = self.nodes[self.coordinators.get(kind, 1)]
            if row.error_code != NONE:
                continue
            if node.refuses:
                row.error_code, row.node_id, row.host, row.port = COORDINATOR_NOT_AVAILABLE, -1, "", -1
            else:
                row.node_id, row.host, row.port = node.node, node.host, 9092
        return answer

    # -- what a test looks at --

    def records(self, name: str, index: int) -> list[Record]:
        """Every record of a partition, those of aborted and open transactions too."""
        return self.engine.records(TopicPartition(name, index))

    def values(self, name: str, partitions: Iterable[int]) -> list[bytes]:
        """The values of all records of partitions."""
        return [record.value or b"" for index in partitions for record in self.records(name, index)]

    def close(self) -> None:
        self.engine.close()
