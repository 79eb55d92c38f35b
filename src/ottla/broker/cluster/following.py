"""Fetches of this broker from the leaders of the partitions that it follows.

The metadata say which partitions to follow: those with a replica here and a leader elsewhere, while their log is online. For
each leader there are num.replica.fetchers fetchers with connections of their own; a partition keeps its fetcher as long as it
keeps its leader. `Fetching` decides, `LogEffects` changes the logs; this file sends, waits and passes on.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

from ottla.broker.cluster.peers import Peers
from ottla.broker.config import BrokerConfig
from ottla.environment import Cancellable
from ottla.log.flush import Flush
from ottla.metadata.image import EMPTY, NO_LEADER, Delta, Image, PartitionImage, TopicImage
from ottla.protocol.connection import PositionalResponse
from ottla.protocol.errors import NONE
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.replication.follower.effects import LogEffects
from ottla.replication.follower.fetching import Fetching, FetchLimits
from ottla.replication.follower.followed import Begin, Effect, FollowedPartition, Key, LookUp
from ottla.replication.partition import Partition
from ottla.replication.replicas import Replicas
from ottla.replication.throttle import ReplicationThrottle
from ottla.tasks.alarm import Alarm
from ottla.tasks.deferred import Answer, Deferred
from ottla.tasks.scheduler import Pieces, Scheduler

_SESSION: Final = ""
_ASIDE: Final = "-aside"
_TAKEN_UP_A_STEP: Final = 200
"""Number of partitions that are examined in one step of a few milliseconds."""
_FAILED_RETRY_MS: Final = 1_000
"""Pause before a partition is followed again whose log could not be written, such as after a lack of file descriptors. It
doubles with each failure: an attempt may read a whole segment."""
_LONGEST_RETRY_MS: Final = 300_000


class FollowerConfig(NamedTuple):
    """Configs of the fetches of a broker.

    fetchers    num.replica.fetchers
    timeout_ms  replica.socket.timeout.ms
    """

    fetchers: int
    timeout_ms: int
    limits: FetchLimits

    @classmethod
    def of(cls, config: BrokerConfig) -> "FollowerConfig":
        """Return the values in the configs of this broker."""
        return cls(
            config.integer("num.replica.fetchers"),
            config.integer("replica.socket.timeout.ms"),
            FetchLimits(
                config.integer("replica.fetch.min.bytes"),
                config.integer("replica.fetch.wait.max.ms"),
                config.integer("replica.fetch.max.bytes"),
                config.integer("replica.fetch.response.max.bytes"),
                config.integer("replica.fetch.backoff.ms"),
            ),
        )


class _Fetcher:
    """Fetches from one leader, over two connections.

    is_live  False while the leader is fenced: its address is unknown
    busy     number of runs of effects, by connection: the next request waits for them, and names all their partitions
    running  requests without a response, by number
    """

    __slots__ = ("alarm", "busy", "fetching", "is_live", "leader_id", "number", "running", "sent")

    def __init__(self, leader_id: int, number: int, fetching: Fetching) -> None:
        self.leader_id = leader_id
        self.number = number
        self.fetching = fetching
        self.alarm: Alarm | None = None
        self.is_live = True
        self.busy = {_SESSION: 0, _ASIDE: 0}
        self.running: dict[int, Cancellable | None] = {}
        self.sent = 0

    @property
    def purpose(self) -> str:
        """Return the purpose of its connections."""
        return f"replication-{self.number}"


class Following:
    """Follows the partitions that other brokers lead.

    config      returns the current configs
    checkpoint  writes the checkpoints of all log directories
    run_flush   runs a flush, then calls back with its error, None after a success
    throttle    throttle of the partitions that this broker follows
    """

    def __init__(
        self,
        *,
        node_id: int,
        replicas: Replicas,
        peers: Peers,
        tasks: Scheduler,
        config: Callable[[], BrokerConfig],
        checkpoint: Callable[[], Answer[None]],
        run_flush: Callable[[Flush, Callable[[OSError | None], None]], None],
        throttle: ReplicationThrottle,
    ) -> None:
        self._throttle = throttle
        self._node_id = node_id
        self._replicas = replicas
        self._peers = peers
        self._clock = tasks.clock
        self._tasks = tasks
        self._read_config = config
        self._config = FollowerConfig(1, 0, FetchLimits())
        self._effects = LogEffects(
            tasks.clock,
            tasks,
            find=self._find,
            checkpoint=checkpoint,
            flush=run_flush,
            look_up=self._look_up,
            resumed=self._on_resumed,
            failed=self._on_failure,
            damaged=replicas.report_damage,
        )
        self._fetchers: dict[tuple[int, int], _Fetcher] = {}
        self._by_fetching: dict[Fetching, _Fetcher] = {}
        self._places: dict[Key, _Fetcher] = {}
        self._image = EMPTY
        self._broker_epoch = -1
        self._is_running = False

    def begin(self, image: Image, broker_epoch: int) -> None:
        """Follow all partitions of the image: this broker has registered and is live."""
        self._is_running = True
        self._image = image
        self._broker_epoch = broker_epoch
        self._config = FollowerConfig.of(self._read_config())
        self._replicas.on_online.append(self._came_online)
        self._replicas.on_offline.append(self._went_offline)
        self._replicas.on_damage.append(self._on_damage)
        self._take_up_in_pieces(image.topics.values())

    def apply(self, delta: Delta) -> Answer[None]:
        """Follow other partitions and leaders, in pieces. Called after `Replicas.apply` has opened the logs."""
        return self._tasks.run_pieces(self._apply(delta), "following partitions")

    def _apply(self, delta: Delta) -> Pieces:
        self._image = image = delta.image
        if not self._is_running:
            return
        if delta.membership:
            self._compare_leaders(delta)
        for topic in delta.deleted:
            for index in range(len(topic.partitions)):
                self._drop((topic.id, index))
        config = FollowerConfig.of(self._read_config()) if delta.configured else self._config
        if config.fetchers != self._config.fetchers:
            self._config = config
            yield from self._take_up(image.topics.values())
            return
        yield from self._take_up(delta.changed)
        for name, indexes in delta.moved.items():
            yield from self._take_up((image.topics[name],), indexes)

    def close(self) -> None:
        """Stop fetching; effects that are carried out in pieces end with these."""
        self._is_running = False
        for fetcher in self._fetchers.values():
            self._cancel(fetcher)
            if fetcher.alarm is not None:
                fetcher.alarm.cancel()

    # -- partitions --

    def _came_online(self, topic: TopicImage) -> None:
        self._take_up_in_pieces((topic,))

    def _went_offline(self, topic: str, index: int) -> None:
        known = self._image.topics.get(topic)
        if known is not None:
            self._drop((known.id, index))

    def _on_damage(self, partition: Partition) -> None:
        """Stop fetching: the partition is followed again when its damage may be cut."""
        self._drop((partition.topic_id, partition.index))

    def _on_failure(self, followed: FollowedPartition, failures: int) -> None:
        """Follow a partition again later whose log could not be written; not if its directory is offline then."""
        again = partial(self._follow_again, followed.topic_id, followed.index)
        self._tasks.call_later(min(_FAILED_RETRY_MS << min(failures - 1, 16), _LONGEST_RETRY_MS), again)

    def _follow_again(self, topic_id: bytes, index: int) -> None:
        topic = self._image.topics_by_id.get(topic_id)
        if self._is_running and topic is not None and index < len(topic.partitions):
            self._drop((topic_id, index))
            self._take_up_in_pieces((topic,), (index,))

    def _take_up_in_pieces(self, topics: Iterable[TopicImage], indexes: Iterable[int] | None = None) -> None:
        self._tasks.run_pieces(self._take_up(topics, indexes), "following partitions")

    def _take_up(self, topics: Iterable[TopicImage], indexes: Iterable[int] | None = None) -> Pieces:
        """Follow the partitions of topics, or stop following, as the image says."""
        # The effects of several partitions begin together, so that one request names them all.
        begun: dict[_Fetcher, list[Effect]] = {}
        count = 0
        for topic in topics:
            for index in range(len(topic.partitions)) if indexes is None else indexes:
                count += 1
                if count % _TAKEN_UP_A_STEP == 0:
                    yield from self._begin(begun)
                    yield None
                self._place(topic, index, begun)
        yield from self._begin(begun)

    def _begin(self, begun: dict[_Fetcher, list[Effect]]) -> Pieces:
        for fetcher, effects in begun.items():
            self._hold(fetcher, 1)
            try:
                yield from self._effects.steps(fetcher.fetching, effects)
            finally:
                self._hold(fetcher, -1)
            self._pump(fetcher)
        begun.clear()

    @staticmethod
    def _hold(fetcher: _Fetcher, count: int) -> None:
        fetcher.busy[_SESSION] += count
        fetcher.busy[_ASIDE] += count

    def _place(self, topic: TopicImage, index: int, begun: dict[_Fetcher, list[Effect]]) -> None:
        key = topic.id, index
        # Steps may run after a newer image: its state counts.
        placed = self._image.partition(*key)
        if placed is None or not self._is_followed(topic, index, placed):
            self._drop(key)
            return
        fetcher = self._fetcher(placed.leader, _stable_hash(key) % self._config.fetchers)
        if self._places.get(key) is not fetcher:
            self._drop(key)
            self._places[key] = fetcher
        effect: Begin | None = fetcher.fetching.follow(topic.name, topic.id, index, placed.leader_epoch)
        if effect is not None:
            begun.setdefault(fetcher, []).append(effect)

    def _is_followed(self, topic: TopicImage, index: int, placed: PartitionImage) -> bool:
        if self._node_id not in placed.replicas or placed.leader in (NO_LEADER, self._node_id):
            return False
        sign = self._image.live.get(self._node_id)
        if sign is not None and sign.is_stopping and self._node_id not in placed.isr:
            # To follow means to write a checkpoint of leader epochs first: a shutdown would wait for hundreds of them.
            return False
        partition = self._replicas.find(topic.name, index)
        if partition is None:
            return False
        # To follow a damaged log is to cut it.
        return partition.damaged_at < 0 or partition.may_cut_damage(placed, self._node_id)

    def _drop(self, key: Key) -> None:
        fetcher = self._places.pop(key, None)
        if fetcher is not None:
            fetcher.fetching.unfollow(*key)

    def _find(self, followed: FollowedPartition) -> Partition | None:
        """Return the replica of a followed partition; None if its log is offline, or it has become another partition's."""
        partition = self._replicas.find(followed.topic, followed.index)
        return partition if partition is not None and partition.topic_id == followed.topic_id else None

    # -- leaders --

    def _fetcher(self, leader_id: int, number: int) -> _Fetcher:
        fetcher = self._fetchers.get((leader_id, number))
        if fetcher is None:
            fetching = Fetching(self._node_id, self._broker_epoch, self._config.limits, self._throttle)
            fetcher = self._fetchers[leader_id, number] = _Fetcher(leader_id, number, fetching)
            fetcher.is_live = leader_id in self._image.brokers
            self._by_fetching[fetching] = fetcher
        return fetcher

    def _compare_leaders(self, delta: Delta) -> None:
        """Begin again where a leader has registered again or is live again; pause where it is fenced."""
        before, after = delta.before.brokers, delta.image.brokers
        for fetcher in self._fetchers.values():
            old, new = before.get(fetcher.leader_id), after.get(fetcher.leader_id)
            fetcher.is_live = new is not None
            if new is None:
                continue
            if old is None or old.epoch != new.epoch:
                self._cancel(fetcher)
                fetcher.fetching.leader_restarted()
                self._pump(fetcher)

    @staticmethod
    def _cancel(fetcher: _Fetcher) -> None:
        """Wait for no response any more."""
        for sending in fetcher.running.values():
            if sending is not None:
                sending.cancel()
        fetcher.running.clear()

    # -- requests --

    def _on_resumed(self, fetching: Fetching) -> None:
        self._pump(self._by_fetching[fetching])

    def _pump(self, fetcher: _Fetcher) -> None:
        """Send the requests that are due, and wait for the next."""
        # While effects of the session's last response run, neither is due: a request aside needs a running one of the session.
        if not self._is_running or not fetcher.is_live or fetcher.busy[_SESSION]:
            return
        fetching, now_ms = fetcher.fetching, self._clock.now_ms()
        request = fetching.request(now_ms)
        if request is not None:
            self._send(fetcher, request, _SESSION)
        request = None if fetcher.busy[_ASIDE] else fetching.request_aside(now_ms)
        if request is not None:
            self._send(fetcher, request, _ASIDE)
        due_ms = fetching.due_ms()
        if due_ms is not None:
            if fetcher.alarm is None:
                fetcher.alarm = Alarm(lambda: self._pump(fetcher), self._clock, self._tasks)
            fetcher.alarm.set(due_ms)

    def _send(self, fetcher: _Fetcher, request: FetchRequest, connection: str) -> None:
        fetcher.sent += 1
        number = fetcher.sent

        def on_answer(response: PositionalResponse | None) -> None:
            fetcher.running.pop(number, None)
            if not self._is_running:
                return
            if response is None:
                fetcher.fetching.on_failure(request, self._clock.now_ms())
                self._pump(fetcher)
                return
            effects = fetcher.fetching.on_response(request, response.fields, self._clock.now_ms())
            if not effects:
                self._pump(fetcher)
                return
            fetcher.busy[connection] += 1
            steps = self._effects.steps(fetcher.fetching, effects, response.frame)
            carried_out = self._tasks.run_pieces(steps, "the effects of a fetch")
            if isinstance(carried_out, Deferred):
                carried_out.listen(on_applied)
            else:
                on_applied()

        def on_applied(_: object = None) -> None:
            fetcher.busy[connection] -= 1
            self._pump(fetcher)

        fetcher.running[number] = None
        purpose = fetcher.purpose + connection
        sending = self._peers.fetch(fetcher.leader_id, request, purpose, self._config.timeout_ms, on_answer)
        if number in fetcher.running:  # it may have failed in the call
            fetcher.running[number] = sending

    def _look_up(self, fetching: Fetching, effect: LookUp) -> None:
        """Request an offset of the leader, and carry out what follows from it."""
        fetcher, followed = self._by_fetching[fetching], effect.partition
        partition = ListOffsetsPartition(
            partition_index=followed.index, current_leader_epoch=effect.epoch, timestamp=effect.timestamp
        )
        request = ListOffsetsRequest(
            replica_id=self._node_id, topics=[ListOffsetsTopic(name=followed.topic, partitions=[partition])]
        )

        def on_answer(response: ListOffsetsResponse | None) -> None:
            if not self._is_running or not fetching.is_current(effect):
                return
            following = fetching.on_looked_up(effect, _offset_in(response), self._clock.now_ms())
            effects = () if following is None else (following,)
            carried_out = self._tasks.run_pieces(self._effects.steps(fetching, effects), "the effects of a look-up")
            if isinstance(carried_out, Deferred):
                carried_out.listen(lambda _: self._pump(fetcher))
            else:
                self._pump(fetcher)

        answer = self._peers.request(fetcher.leader_id, request)
        if isinstance(answer, Deferred):
            answer.then(on_answer, lambda: on_answer(None))
        else:
            on_answer(answer)


def _offset_in(response: ListOffsetsResponse | None) -> int | None:
    """Return the offset in the response for one partition, None for an error."""
    if response is None or not response.topics or not response.topics[0].partitions:
        return None
    row = response.topics[0].partitions[0]
    return row.offset if row.error_code == NONE and row.offset >= 0 else None


def _stable_hash(key: Key) -> int:
    return int.from_bytes(key[0][:4], "big") + key[1]
