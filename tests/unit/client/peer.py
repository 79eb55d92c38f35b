"""A broker that lives in memory: the client's connection wired back to back with the other end, and a script of mishaps.

It keeps batches as a broker does for an idempotent producer: a sequence that does not follow is refused, one of the last five
is acknowledged again without being appended.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from ottla.client.cluster import Cluster
from ottla.client.config import ClientConfig
from ottla.client.errors import ConnectionLost
from ottla.client.pool import Pool
from ottla.protocol import codec
from ottla.protocol.connection import ClientConnection, Envelope, open_envelope, response_pieces
from ottla.protocol.errors import NONE, NOT_LEADER_OR_FOLLOWER, OUT_OF_ORDER_SEQUENCE_NUMBER
from ottla.protocol.frames import FrameReader
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.protocol.schema import Request, Response
from ottla.records.batch import crc_ok, read_header, records_of

TOPIC_ID = bytes(range(16))

OK = "ok"
REFUSED = "not leader"
LOST = "lost before it arrived"
ANSWER_LOST = "appended, but the answer is lost"


class VirtualTime:
    """A clock that only moves when somebody waits."""

    def __init__(self) -> None:
        self.now = 1000
        self.pauses: list[int] = []

    def now_ms(self) -> int:
        return self.now

    def wall_ms(self) -> int:
        return self.now

    def pause(self, milliseconds: int) -> None:
        self.pauses.append(milliseconds)
        self.now += max(milliseconds, 1)


class MiddleOfEverything:
    """Randomness without chance."""

    def bytes16(self) -> bytes:
        return bytes(16)

    def below(self, bound: int) -> int:
        return bound // 2


class Wired:
    """The client's end, a peer at the other."""

    def __init__(self, peer: "Peer", limit: int | None = None) -> None:
        self._peer = peer
        self._wire = ClientConnection("test")
        self._frames = FrameReader(1 << 30)
        self._answers: deque[bytes | None] = deque()
        self._limit = limit
        self.open = True
        self.broken = False

    @property
    def waiting(self) -> int:
        return len(self._answers)

    def version(self, request: type[Request], newest: int = 32767) -> int:
        return min(request.VERSIONS.last, newest, self._limit or 32767)

    def send(self, request: Request, version: int, *, expect_answer: bool = True) -> None:
        if not self.open:
            raise ConnectionLost("closed")
        data = bytearray(b"".join(self._wire.request(request, version, expect_answer=expect_answer)))
        for frame in self._frames.feed(data, len(data)):
            envelope = open_envelope(frame)
            arrived = codec.decode(envelope.api.request_class(), version, frame, envelope.body)[0]
            answer = None if self.broken else self._peer.serve(arrived, self)
            if expect_answer:
                self._answers.append(None if answer is None else self._encoded(envelope, answer))

    @staticmethod
    def _encoded(envelope: Envelope, answer: Response) -> bytes:
        return b"".join(response_pieces(envelope, answer))

    def receive(self, deadline: int) -> Any:
        answer = self._answers.popleft()
        if answer is None:
            self.close()
            raise ConnectionLost("the peer went away")
        return self._wire.feed(answer)[0]

    def readable(self, wait_ms: int) -> bool:
        return True

    def close(self) -> None:
        self.open = False
        self._answers.clear()


class Peer:
    """The other end: one node that leads every partition of the topic t."""

    def __init__(self, mishaps: Iterable[str] = (), *, partitions: int = 1, with_ids: bool = True) -> None:
        self.mishaps = deque(mishaps)
        self.partitions = partitions
        self.topic_id = TOPIC_ID if with_ids else bytes(16)
        self.logs: dict[int, list[bytes]] = {number: [] for number in range(partitions)}
        self.most_in_flight = 0
        self.asked: list[str] = []
        self.answers: dict[type[Request], Callable[[Any], Response]] = {}
        self._next: dict[tuple[int, int], int] = {}
        self._recent: dict[tuple[int, int], deque[tuple[int, int]]] = {}

    def values(self, partition: int = 0) -> list[bytes | None]:
        """What the log holds, record by record."""
        return [record.value for batch in self.logs[partition] for record in records_of(batch)]

    def serve(self, request: Request, connection: Wired) -> Response | None:
        """The answer to a request, None when it never comes."""
        self.asked.append(type(request).__name__)
        scripted = self.answers.get(type(request))
        if scripted is not None:
            return scripted(request)
        if isinstance(request, MetadataRequest):
            return self._metadata()
        if isinstance(request, InitProducerIdRequest):
            return InitProducerIdResponse(error_code=NONE, producer_id=7, producer_epoch=0)
        assert isinstance(request, ProduceRequest)
        self.most_in_flight = max(self.most_in_flight, connection.waiting + 1)
        mishap = self.mishaps.popleft() if self.mishaps else OK
        if mishap in (LOST, ANSWER_LOST):
            connection.broken = True
        if mishap == LOST:
            return None
        answer = self._produce(request, refuse=mishap == REFUSED)
        return None if mishap == ANSWER_LOST else answer

    def _metadata(self) -> MetadataResponse:
        parts = [
            MetadataResponsePartition(error_code=NONE, partition_index=number, leader_id=1)
            for number in range(self.partitions)
        ]
        topic = MetadataResponseTopic(error_code=NONE, name="t", topic_id=self.topic_id, partitions=parts)
        return MetadataResponse(brokers=[MetadataResponseBroker(node_id=1, host="h", port=1)], topics=[topic])

    def _produce(self, request: ProduceRequest, *, refuse: bool) -> ProduceResponse:
        answer = ProduceResponse()
        for topic in request.topic_data:
            assert topic.name == "t" or topic.topic_id == self.topic_id
            rows = []
            for data in topic.partition_data:
                assert data.records is not None
                code = NOT_LEADER_OR_FOLLOWER if refuse else self._append(data.index, data.records)
                rows.append(PartitionProduceResponse(index=data.index, error_code=code, base_offset=0))
            answer.responses.append(
                TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=rows)
            )
        return answer

    def _append(self, partition: int, batch: bytes) -> int:
        header = read_header(batch, 0)
        assert crc_ok(batch, header)
        if header.producer_id < 0:
            self.logs[partition].append(batch)
            return NONE
        key = header.producer_id, partition
        recent = self._recent.setdefault(key, deque(maxlen=5))
        if (header.base_sequence, header.count) in recent:
            return NONE
        if header.base_sequence != self._next.get(key, 0):
            return OUT_OF_ORDER_SEQUENCE_NUMBER
        self._next[key] = (header.base_sequence + header.count) % 2**31
        recent.append((header.base_sequence, header.count))
        self.logs[partition].append(batch)
        return NONE


class WiredPool(Pool):
    """Connections to one peer, a fresh one whenever the last one broke."""

    def __init__(self, config: ClientConfig, time: VirtualTime, peer: Peer, limit: int | None = None) -> None:
        super().__init__(config, time, time.pause)
        self._peer = peer
        self._limit = limit
        self._wired: dict[str, Wired] = {}

    def broker(self, node: int, purpose: str = "") -> Wired:
        found = self._wired.get(purpose)
        if found is None or not found.open:
            found = self._wired[purpose] = Wired(self._peer, self._limit)
        return found

    def any_broker(self) -> Wired:
        return self.broker(1)


def cluster_with(
    peer: Peer, configs: dict[str, str] | None = None, *, limit: int | None = None
) -> tuple[Cluster, VirtualTime]:
    """A client of `peer` in virtual time; `limit` is the newest version of any API."""
    time = VirtualTime()
    config = ClientConfig({"bootstrap.servers": "h:1", **(configs or {})})
    pool = WiredPool(config, time, peer, limit)
    return Cluster(config, pool=pool, clock=time, random=MiddleOfEverything(), pause=time.pause), time
