"""A cluster in memory and in virtual time: what the client's core asks of the world, without sockets, threads or waiting.

A `World` has a clock that moves when it is told to, and brokers at addresses. A broker answers what it was given an answer for
(`broker.on(Request, handler)`), after `latency_ms`; a handler may return a response, one for later (Later), None for no answer
at all, or LOST to break the connection. What goes over the wire is bytes, as ever.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from ottla.client.config import ClientConfig
from ottla.client.consumer.core import ConsumerCore
from ottla.client.core import Core
from ottla.environment import Address, Receiver
from ottla.environment.files import Region
from ottla.protocol import codec
from ottla.protocol.api import APIS, GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY
from ottla.protocol.connection import Envelope, open_envelope, response_pieces
from ottla.protocol.errors import NONE, UNSUPPORTED_VERSION
from ottla.protocol.frames import FrameReader
from ottla.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.schema import Request, Response
from ottla.tasks.deferred import Deferred
from ottla.tasks.scheduler import Task
from tests.queues import unexpected

T = TypeVar("T")
LOST: Final = "lost"
TOPIC_ID: Final = bytes(range(16))


class Later(NamedTuple):
    """An answer that the broker sends after a while: a fetch that waits for records."""

    ms: int
    response: Response


Answer = Response | Later | Deferred[Any] | str | None
Handler = Callable[[Any, int], Answer]


class Alarm:
    """A call that is due at a moment."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Workers:
    """Workers without threads: work is done at once, and its result comes after a millisecond."""

    def __init__(self, world: "World") -> None:
        self._world = world

    def start(self, name: str, threads: int = 1) -> "Workers":
        return self

    def run(self, work: Callable[[], Any], done: Callable[[Any], object], failed: Callable[[], object]) -> None:
        outcome = work()

        def report() -> None:
            done(outcome)

        self._world.call_later(1, report)

    def close(self, *, cancel: bool = False, wait: bool = True) -> None:
        pass


class World:
    """Clock, chance, timers and transport of a core; and the brokers.

    opened      how often each address was dialled, and when: (ms, address)
    unresolved  host names without an address
    slow_names  host names whose resolution does not end
    """

    def __init__(self) -> None:
        self.now = 1000
        self.brokers: dict[Address, Broker] = {}
        self.opened: list[tuple[int, Address]] = []
        self.unresolved: set[str] = set()
        self.slow_names: set[str] = set()
        self._due: list[tuple[int, int, Alarm]] = []
        self._count = 0

    # What a core asks.

    @property
    def clock(self) -> "World":
        return self

    @property
    def random(self) -> "World":
        return self

    @property
    def timers(self) -> "World":
        return self

    @property
    def transport(self) -> "World":
        return self

    @property
    def workers(self) -> "Workers":
        return Workers(self)

    def now_ms(self) -> int:
        return self.now

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.now

    def bytes16(self) -> bytes:
        self._count += 1
        return self._count.to_bytes(16, "big")

    def below(self, bound: int) -> int:
        return bound // 2

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Alarm:
        self._count += 1
        alarm = Alarm(callback)
        heapq.heappush(self._due, (self.now + max(delay_ms, 0), self._count, alarm))
        return alarm

    def open(
        self, address: Address, receiver: Receiver, *, send_buffer: int = -1, receive_buffer: int = -1
    ) -> Callable[[], None]:
        self.opened.append((self.now, address))
        broker = self.brokers.get(address)
        if address[0] in self.unresolved:
            return self.call_later(1, lambda: receiver.lost("cannot be resolved: Name or service not known")).cancel
        if address[0] in self.slow_names:
            return lambda: None
        receiver.resolved()
        if broker is None or broker.refuses:
            alarm = self.call_later(1, lambda: receiver.lost("Connection refused"))
        elif broker.silent:
            return lambda: None
        else:
            alarm = self.call_later(broker.latency_ms, lambda: receiver.connected(Wire(self, broker, receiver)))
        return alarm.cancel

    # What a test asks.

    def core(self, **configs: Any) -> Core:
        """A core of a client in this world."""
        client_configs = {name.replace("_", "."): value for name, value in configs.items()}
        return Core(ClientConfig({"bootstrap.servers": "one:9092", **client_configs}), self)

    def broker(self, host: str = "one", node: int = 1) -> "Broker":
        """Make a broker; the whole cluster knows it."""
        made = self.brokers[host, 9092] = Broker(self, host, node)
        return made

    def advance(self, milliseconds: int) -> None:
        """Let time go by."""
        end = self.now + milliseconds
        while self._due and self._due[0][0] <= end:
            self._step()
        self.now = end

    def _step(self) -> None:
        moment, _, alarm = heapq.heappop(self._due)
        self.now = max(self.now, moment)
        if alarm.callback is not None:
            alarm.callback()

    def run(self, core: Core, coroutine: Coroutine[Deferred[Any], Any, T], limit_ms: int = 600_000) -> T:
        """Run a coroutine of the core, and return its result or raise its error; time passes as far as needed."""
        return self.finish(core.scheduler.start(coroutine), limit_ms)

    def finish(self, task: Task[T], limit_ms: int = 600_000) -> T:
        """Return the result of a task or raise its error."""
        end = self.now + limit_ms
        while not task.done:
            assert self._due, "nothing will ever happen"
            assert self._due[0][0] <= end, "it takes too long"
            self._step()
        return task.result()


class Wire:
    """An open connection: frames go to the broker, answers come back in order."""

    def __init__(self, world: World, broker: "Broker", receiver: Receiver) -> None:
        self._world = world
        self._broker = broker
        self._receiver = receiver
        self._frames = FrameReader(1 << 30)
        self._open = True
        self._ready_at = 0
        self._waiting = False  # an answer is pending
        self._backlog: list[bytes] = []
        broker.wires.append(self)

    def write(self, pieces: Sequence[Any]) -> None:
        data = bytearray(b"".join(map(bytes, pieces)))
        for frame in self._frames.feed(data, len(data)):
            moment = max(self._ready_at, self._world.now + self._broker.latency_ms)
            self._ready_at = moment
            self._world.call_later(moment - self._world.now, lambda frame=frame: self._arrived(frame))  # type: ignore[misc]

    def _arrived(self, frame: bytes) -> None:
        if self._open and not self._broker.keeps(self, frame):
            self.carry_out(frame)

    def carry_out(self, frame: bytes) -> None:
        """The broker reads a request, though the connection may be closed by now."""
        if self._waiting:
            self._backlog.append(frame)
            return
        envelope = open_envelope(frame)
        self._broker.speaker = self
        answer = self._broker.answer(envelope)
        if answer == LOST:
            self.lose("the broker closed the connection")
        elif isinstance(answer, Later):
            self._world.call_later(answer.ms, lambda: self._reply(envelope, answer.response))
        elif isinstance(answer, Deferred):
            self._waiting = True
            answer.then(lambda response: self._caught_up(envelope, response), unexpected)
        elif isinstance(answer, Response):
            self._reply(envelope, answer)

    def _caught_up(self, envelope: Envelope, response: Response) -> None:
        """A pending answer has come; what waited behind it is served."""
        self._waiting = False
        self._world.call_later(self._broker.latency_ms, lambda: self._reply(envelope, response))
        backlog, self._backlog = self._backlog, []
        for frame in backlog:
            self._arrived(frame)

    def _reply(self, envelope: Envelope, response: Response) -> None:
        if self._open:
            self._send(b"".join(_bytes_of(piece) for piece in response_pieces(envelope, response)))

    def _send(self, data: bytes) -> None:
        left = bytearray(data)

        def receive_into(buffer: Any) -> int:
            view = memoryview(buffer)
            count = min(len(view), len(left))
            view[:count] = left[:count]
            del left[:count]
            return count

        while left and self._open:
            self._receiver.readable(receive_into)

    def lose(self, reason: str) -> None:
        """The connection breaks."""
        if self._open:
            self._open = False
            self._broker.hung_up(self)
            self._receiver.lost(reason)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._broker.hung_up(self)


def _bytes_of(piece: Any) -> bytes:
    """A piece of an answer; regions of files are read."""
    return piece.read() if isinstance(piece, Region) else bytes(piece)


class Broker:
    """One broker.

    asked     how often each request came, by class
    requests  all of them, with their versions
    speaker   the connection of the last one
    topics    topic -> partition -> the node that leads it, as this broker's metadata has it
    epochs    (topic, partition) -> its leader epoch, 0 unless set
    ranges    API key -> (oldest, newest) that it says it serves; all of Ottla's but those of telemetry unless set
    """

    def __init__(self, world: World, host: str, node: int) -> None:
        self.host, self.node = host, node
        self.latency_ms = 1
        self.refuses = self.silent = False
        self.asked: Counter[type[Request]] = Counter()
        self.requests: list[tuple[Any, int]] = []
        self.ranges: dict[int, tuple[int, int]] = {
            key: (0, api.newest)
            for key, api in APIS.items()
            if key not in (GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY)
        }
        self.features: dict[str, int] = {}
        self.topics: dict[str, dict[int, int]] = {}
        self.epochs: dict[tuple[str, int], int] = {}
        self.wires: list[Wire] = []
        self.speaker: Wire | None = None
        self.cluster_id = "cluster"
        self._world = world
        self._handlers: dict[type[Request], Handler] = {
            ApiVersionsRequest: self._versions,
            MetadataRequest: self._metadata,
        }

    def on(self, request: type[Request], *handlers: Handler | Answer) -> None:
        """Answer a request: with each of these in turn, and then with the last for ever."""
        left = list(handlers)

        def handle(asked: Any, version: int) -> Any:
            following = left.pop(0) if len(left) > 1 else left[0]
            return following(asked, version) if callable(following) else following

        self._handlers[request] = handle

    def answer(self, envelope: Envelope) -> Answer:
        kind = envelope.api.request_class()
        if kind is ApiVersionsRequest and envelope.asked > self.ranges[ApiVersionsRequest.API][1]:
            self.asked[kind] += 1
            oldest, newest = self.ranges[ApiVersionsRequest.API]
            keys = [ApiVersion(api_key=ApiVersionsRequest.API, min_version=oldest, max_version=newest)]
            envelope.version = 0
            return ApiVersionsResponse(error_code=UNSUPPORTED_VERSION, api_keys=keys)
        request, _ = codec.decode(kind, envelope.version, envelope.frame, envelope.body)
        self.asked[kind] += 1
        self.requests.append((request, envelope.version))
        return self._handlers[kind](request, envelope.version)

    def sent(self, kind: type[Request]) -> list[Any]:
        """The requests of a kind, in order."""
        return [request for request, _ in self.requests if type(request) is kind]

    def hung_up(self, wire: Wire) -> None:
        """A connection is closed."""

    def keeps(self, wire: Wire, frame: bytes) -> bool:
        """Return whether the broker keeps a request for later."""
        del wire, frame
        return False

    def lose_all(self) -> None:
        """Every connection breaks."""
        for wire in self.wires:
            wire.lose("Connection reset by peer")
        self.wires.clear()

    def _versions(self, request: ApiVersionsRequest, version: int) -> ApiVersionsResponse:
        keys = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in self.ranges.items()]
        answer = ApiVersionsResponse(api_keys=keys)
        if version >= 3:
            answer.finalized_features = [
                FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                for name, level in self.features.items()
            ]
        return answer

    def _metadata(self, request: MetadataRequest, version: int) -> MetadataResponse:
        del version
        names = sorted(self.topics) if request.topics is None else [topic.name or "" for topic in request.topics]
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=broker.node, host=broker.host, port=9092)
                for broker in self._world.brokers.values()
            ],
            cluster_id=self.cluster_id,
            controller_id=self.node,
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        leaders = self.topics.get(name)
        if leaders is None:
            return MetadataResponseTopic(error_code=3, name=name)
        partitions = [
            MetadataResponsePartition(
                error_code=NONE,
                partition_index=index,
                leader_id=node,
                leader_epoch=self.epochs.get((name, index), 0),
                replica_nodes=[node],
                isr_nodes=[node],
            )
            for index, node in leaders.items()
        ]
        return MetadataResponseTopic(name=name, topic_id=TOPIC_ID, partitions=partitions)


def kill(core: Core, consumer: ConsumerCore) -> None:
    """Kill the process of a group's member: nothing more is sent, without a goodbye."""
    membership: Any = consumer._membership
    if membership._task is not None:
        membership._task.cancel()
    consumer._fetcher.active = False
    core.close()
