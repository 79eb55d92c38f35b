"""One partition with three replicas in memory: real logs, leaders and followers; network, metadata and disks are simulated.

Each step is a random event: an append, a request or response that is delivered, lost or repeated, a piece of work on a log, a
flush, a change of the metadata that reaches a replica, an election, a restart. `heal` ends all faults, and compares the logs.

One piece, because every random event may touch every part: the checks after each step look at all of them together.
"""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.memory_store import MemoryStore
from tests.queues import immediate_queue

from ottla.log import reading
from ottla.log.config import LogConfig
from ottla.log.flush import Flush
from ottla.log.log import Log, OffsetNotInLog, StorageError
from ottla.metadata.image import PartitionImage
from ottla.protocol import errors
from ottla.protocol.codec import decode_positions, encode
from ottla.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.records.batch import build, scan
from ottla.records.record import Record
from ottla.replication.follower.effects import LogEffects
from ottla.replication.follower.fetching import Fetching, FetchLimits
from ottla.replication.follower.followed import LATEST, Effect, FollowedPartition, LookUp
from ottla.replication.leader.leadership import Leadership
from ottla.replication.partition import Partition
from ottla.tasks.deferred import Deferred
from ottla.tasks.scheduler import Pieces

ID = b"t" * 16
HOME = Path("/data/t-0")
VERSION = 18
LIMITS = FetchLimits(backoff_ms=100)
_MAX_LAG_MS = 300
_READ_BYTES = 400


class WrongReplica(AssertionError):
    """Violation of what replication promises."""


class Clock:
    def __init__(self) -> None:
        self.now = 1000

    def now_ms(self) -> int:
        # Each look takes a moment, so that work is done in many steps.
        self.now += 1
        return self.now

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.now


class Call:
    """Request on its way to a leader, then its response on the way back."""

    def __init__(self, follower: "Replica", fetching: Fetching, leader: int, request: FetchRequest) -> None:
        self.follower = follower
        self.fetching = fetching
        self.leader = leader
        self.request = request
        self.response: bytes | None = None


class Work:
    """Effects of one response, which are carried out in steps."""

    def __init__(self, fetching: Fetching, steps: Pieces) -> None:
        self.fetching = fetching
        self._steps = steps
        self._awaited: Deferred[Any] | None = None

    def is_done(self) -> bool:
        """Do the next step, unless it waits for something; return True after the last one."""
        if self._awaited is not None and not self._awaited.done:
            return False
        try:
            self._awaited = next(self._steps)
        except StopIteration:
            return True
        return False


class Session:
    """Fetch session at a leader: the requested values, and those last returned."""

    def __init__(self) -> None:
        self.epoch = 1
        self.partitions: dict[int, FetchPartition] = {}
        self.returned: tuple[int, int] | None = None


class Replica:
    """One broker with its replica; `restart` replaces all but the disk."""

    def __init__(self, world: "World", node_id: int) -> None:
        self.world = world
        self.node_id = node_id
        self.store = MemoryStore()
        self.broker_epoch = 1
        self.begin(Log(self.store, HOME, world.config, high_watermark=0))

    def begin(self, log: Log) -> None:
        self.queue = immediate_queue()
        self.flushes: list[Flush] = []
        self.state: PartitionImage | None = None
        self.fetchings: dict[int, Fetching] = {}
        self.cuts: list[tuple[Flush, Callable[[OSError | None], None]]] = []
        self.work: list[Work] = []
        self.look_ups: list[tuple[Fetching, LookUp]] = []
        self.sessions: dict[int, Session] = {}
        self.highest = 0
        self.partition = Partition("t", ID, 0, log, -1, -1, self._flush, self.queue)
        self.partition.isr_changed = lambda _: self.world.isr_requests.append(self)
        self.effects = LogEffects(
            self.world.clock,
            self.queue,
            find=self._find,
            checkpoint=lambda: None,
            flush=lambda flush, done: self.cuts.append((flush, done)),
            look_up=lambda fetching, effect: self.look_ups.append((fetching, effect)),
            resumed=lambda _: None,
            failed=lambda *_: None,
            damaged=lambda *_: None,
        )

    def _find(self, followed: FollowedPartition) -> Partition:
        del followed
        return self.partition

    @property
    def log(self) -> Log:
        return self.partition.log

    @property
    def leads(self) -> bool:
        return self.state is not None and self.state.leader == self.node_id

    def _flush(self, partition: Partition) -> None:
        if not self.flushes:
            self.flushes.append(partition.log.begin_flush())

    def end_flush(self) -> None:
        if self.cuts:
            cut, done = self.cuts.pop(0)
            cut.run()
            done(None)
            return
        flush = self.flushes.pop()
        flush.run()
        self.log.flushed(flush, self.world.clock.now)
        self.partition.advance()

    def learn(self) -> None:
        """Take over the newest metadata, as a broker does; states between may have been missed."""
        state = self.world.state
        before, self.state = self.state, state
        if state is before:
            return
        partition = self.partition
        partition.follow(state.leader, state.leader_epoch)
        for leader, fetching in self.fetchings.items():
            if leader != state.leader:
                fetching.unfollow(ID, 0)
        if self.leads:
            leadership = partition.leadership
            if leadership is not None and leadership.epoch == state.leader_epoch:
                leadership.update(state, 1, 0)
            else:
                self.sessions.clear()
                log, world = self.log, self.world
                log.epochs.begin(state.leader_epoch, log.end_offset)
                start = log.epochs.start_of_latest(log.end_offset)
                leadership = Leadership(
                    self.node_id, state, 1, 0, start, world.clock.now, _MAX_LAG_MS, world.is_eligible
                )
            partition.lead(leadership)
            return
        fetching = self.fetchings.get(state.leader) or self.world.new_fetching(self.node_id, self.broker_epoch)
        self.fetchings[state.leader] = fetching
        begun = fetching.follow("t", ID, 0, state.leader_epoch)
        if begun is not None:
            self.carry_out(fetching, [begun])

    def carry_out(self, fetching: Fetching, effects: list[Effect], frame: bytes = b"") -> None:
        self.work.append(Work(fetching, self.effects.steps(fetching, effects, frame)))

    def pump(self) -> None:
        """Send the requests that are due."""
        for leader, fetching in self.fetchings.items():
            is_busy = any(work.fetching is fetching for work in self.work)
            now = self.world.clock.now
            for request in (None if is_busy else fetching.request(now), fetching.request_aside(now)):
                if request is not None:
                    self.world.calls.append(Call(self, fetching, leader, request))

    def restart(self, store: MemoryStore, *, high_watermark: int) -> None:
        old, self.store = self.log, store
        self.broker_epoch += 1
        self.begin(
            Log(
                store,
                HOME,
                self.world.config,
                recovery_point=old.recovery_point,
                high_watermark=high_watermark,
                log_start_offset=old.start_offset,
            )
        )

    # -- leader --

    def serve(self, request: FetchRequest) -> bytes:
        """Answer a fetch, by section 7 of the description of replication."""
        response = self._served(request)
        return encode(response, VERSION)

    def _served(self, request: FetchRequest) -> FetchResponse:
        named = {row.partition: row for topic in request.topics for row in topic.partitions}
        session: Session | None = None
        if request.session_epoch == 0:
            session = Session()
            session_id = self.world.chance.randrange(1, 1 << 30)
            self.sessions[session_id] = session
        elif request.session_epoch > 0:
            session_id = request.session_id
            session = self.sessions.get(session_id)
            if session is None:
                return FetchResponse(error_code=errors.FETCH_SESSION_ID_NOT_FOUND)
            if session.epoch != request.session_epoch:
                return FetchResponse(error_code=errors.INVALID_FETCH_SESSION_EPOCH)
            session.epoch += 1
        if session is None:
            session_id, fetched = 0, named
        else:
            for topic in request.forgotten_topics_data:
                for index in topic.partitions:
                    session.partitions.pop(index, None)
                    session.returned = None
            session.partitions.update(named)
            fetched = session.partitions
        rows = []
        for asked in fetched.values():
            row = self._row(request, asked, is_named=asked.partition in named)
            values = (row.high_watermark, row.log_start_offset)
            has_more = row.error_code or row.records or row.diverging_epoch.epoch >= 0
            if session is None or has_more or request.session_epoch == 0 or session.returned != values:
                rows.append(row)
            if session is not None:
                session.returned = values
        topics = [FetchableTopicResponse(topic_id=ID, partitions=rows)] if rows else []
        return FetchResponse(session_id=session_id, responses=topics)

    def _row(self, request: FetchRequest, asked: FetchPartition, *, is_named: bool) -> PartitionData:
        partition, log = self.partition, self.log
        replica = request.replica_state
        code, diverging = self._checked(replica.replica_id, replica.replica_epoch, asked)
        if code or diverging:
            row = PartitionData(partition_index=0, error_code=code, high_watermark=-1, aborted_transactions=None)
            row.records = b""
            if diverging is not None:
                row.diverging_epoch = EpochEndOffset(epoch=diverging[0], end_offset=diverging[1])
                row.high_watermark = log.high_watermark
            return row
        if is_named:
            partition.record_fetch(
                replica.replica_id,
                asked.fetch_offset,
                asked.log_start_offset,
                replica.replica_epoch,
                self.world.clock.now,
            )
        region = log.read(asked.fetch_offset, _READ_BYTES, log.end_offset, whole_first=True)
        return PartitionData(
            partition_index=0,
            error_code=0,
            high_watermark=log.high_watermark,
            log_start_offset=log.start_offset,
            aborted_transactions=None,
            records=b"" if region is None else region.read(),
        )

    def _checked(self, node: int, broker_epoch: int, asked: FetchPartition) -> tuple[int, tuple[int, int] | None]:
        state, log = self.state, self.log
        if state is None:
            return errors.UNKNOWN_TOPIC_ID, None
        if asked.current_leader_epoch < state.leader_epoch:
            return errors.FENCED_LEADER_EPOCH, None
        if asked.current_leader_epoch > state.leader_epoch:
            return errors.UNKNOWN_LEADER_EPOCH, None
        if not self.leads or broker_epoch < self.world.replicas[node].broker_epoch:
            return errors.NOT_LEADER_OR_FOLLOWER, None
        if asked.fetch_offset < log.start_offset:
            return errors.OFFSET_OUT_OF_RANGE, None
        try:
            diverging = log.divergence(asked.last_fetched_epoch, asked.fetch_offset)
        except OffsetNotInLog:
            return errors.OFFSET_OUT_OF_RANGE, None
        if diverging is None and asked.fetch_offset > log.end_offset:
            return errors.OFFSET_OUT_OF_RANGE, None
        return errors.NONE, diverging


class World:
    """Three replicas, and everything around them.

    flushes      whether flush.messages is 1: then a committed record survives the loss of power at all brokers
    is_unclean   whether replicas outside the ISR may become leader, which loses committed records
    new_fetching makes the machine of a follower
    """

    def __init__(
        self,
        seed: int,
        *,
        flushes: bool = False,
        is_unclean: bool = False,
        new_fetching: Callable[[int, int], Fetching] | None = None,
    ) -> None:
        self.chance = random.Random(seed)
        self.clock = Clock()
        self.config = LogConfig(
            flush_messages=1 if flushes else (1 << 63) - 1, segment_bytes=1500, index_interval_bytes=200
        )
        self.flushes = flushes
        self.is_unclean = is_unclean
        self.new_fetching = new_fetching or (lambda node, epoch: Fetching(node, epoch, LIMITS))
        self.calls: list[Call] = []
        self.past_calls: list[Call] = []
        self.isr_requests: list[Replica] = []
        self.state = PartitionImage.new((1, 2, 3))
        self.replicas: dict[int, Replica] = {node: Replica(self, node) for node in (1, 2, 3)}
        self.committed: dict[int, bytes] = {}
        self.appended = 0
        self.counts: dict[str, int] = {}
        for replica in self.replicas.values():
            replica.learn()

    def is_eligible(self, node: int, broker_epoch: int) -> bool:
        return self.replicas[node].broker_epoch == broker_epoch

    def count(self, event: str) -> None:
        self.counts[event] = self.counts.get(event, 0) + 1

    # -- events --

    def step(self) -> None:
        """Do one random thing, and check what must hold at any time."""
        events: list[tuple[float, Callable[[], None]]] = [
            (6, self._append),
            (12, self._deliver),
            (6, self._pump),
            (10, self._work),
            (4, self._flush),
            (3, self._learn),
            (2, self._change_isr),
            (1, self._repeat),
            (1, self._lose),
            (0.6, self._elect),
            (0.3, self._restart),
            (0.2, self._raise_start),
            (0.5, self._wait),
        ]
        self.clock.now += 1
        weights = [weight for weight, _ in events]
        self.chance.choices(events, weights)[0][1]()
        self.check()

    def _any(self) -> Replica:
        return self.replicas[self.chance.randint(1, 3)]

    def _wait(self) -> None:
        self.clock.now += self.chance.choice((5, 30, 200, 400))
        for replica in self.replicas.values():
            replica.partition.observe(self.clock.now)

    def _append(self) -> None:
        leaders = [replica for replica in self.replicas.values() if replica.leads]
        if not leaders:
            return
        replica = self.chance.choice(leaders)  # also one that does not know yet that it leads no more
        self.appended += 1
        count = self.chance.randint(1, 3)
        records = [Record(at, 1, b"k", b"%d" % self.appended * self.chance.randint(1, 20)) for at in range(count)]
        batch = build(records)
        try:
            result = replica.partition.append(batch, 0, len(batch), 1)
        except StorageError:  # it was elected while its log was being truncated
            assert replica.work
            return
        assert result.error_code == errors.NONE

    def _pump(self) -> None:
        self._any().pump()

    def _deliver(self) -> None:
        if self.calls:
            self._answer(self.calls.pop(self.chance.randrange(len(self.calls))))

    def _answer(self, call: Call) -> None:
        if call.response is None:
            call.response = self.replicas[call.leader].serve(call.request)
            self.calls.append(call)
            return
        self.past_calls.append(call)
        self._receive(call)

    def _receive(self, call: Call) -> None:
        assert call.response is not None
        fields, _ = decode_positions(FetchResponse, VERSION, call.response)
        effects = call.fetching.on_response(call.request, fields, self.clock.now)
        if effects and call.follower.fetchings.get(call.leader) is call.fetching:
            call.follower.carry_out(call.fetching, effects, call.response)

    def _repeat(self) -> None:
        """Deliver a request or a response again that was delivered before."""
        if not self.past_calls:
            return
        call = self.chance.choice(self.past_calls[-20:])
        if self.chance.random() < 0.5:
            self.replicas[call.leader].serve(call.request)
        else:
            self._receive(call)
        self.count("repeated")

    def _lose(self) -> None:
        if self.calls:
            call = self.calls.pop(self.chance.randrange(len(self.calls)))
            call.fetching.on_failure(call.request, self.clock.now)
            self.past_calls += [call] if call.response is not None else []

    def _work(self) -> None:
        self._work_at(self._any())

    def _work_at(self, replica: Replica) -> None:
        if replica.look_ups and self.chance.random() < 0.5:
            self._look_up(replica, *replica.look_ups.pop(0))
        if replica.work:
            work = self.chance.choice(replica.work)
            if work.is_done():
                replica.work.remove(work)

    def _look_up(self, replica: Replica, fetching: Fetching, effect: LookUp) -> None:
        state = replica.state
        if state is None or not fetching.is_current(effect):
            return
        leader = self.replicas[state.leader]
        offset: int | None = None
        if leader.leads and leader.state is not None and leader.state.leader_epoch == effect.epoch:
            offset = leader.log.end_offset if effect.timestamp == LATEST else leader.log.start_offset
        following = fetching.on_looked_up(effect, offset, self.clock.now)
        self.count("look-up")
        if following is not None:
            replica.carry_out(fetching, [following])

    def _flush(self) -> None:
        replica = self._any()
        if replica.flushes or replica.cuts:
            replica.end_flush()

    def _learn(self) -> None:
        self._any().learn()

    def _raise_start(self) -> None:
        replica = self.replicas[self.state.leader]
        if replica.leads and replica.state is self.state and replica.log.high_watermark > 0:
            replica.log.delete_records(self.chance.randint(replica.log.start_offset, replica.log.high_watermark))
            replica.partition.wake()

    # -- metadata --

    def _change_isr(self) -> None:
        if not self.isr_requests:
            return
        replica = self.isr_requests.pop(0)
        leadership = replica.partition.leadership
        if leadership is None or leadership.state is not self.state:
            return
        log = replica.log
        state = leadership.proposal(log.end_offset, log.high_watermark, shrinks=True)
        if state is None:
            return
        added = set(state.isr) - set(self.state.isr)
        if all(self.is_eligible(node, leadership.followers[node].broker_epoch) for node in added):
            self.state = state
            self.count("ISR")
        else:
            leadership.record_refusal()

    def _elect(self) -> None:
        self.elect(self.chance.choice(self.state.isr))
        if self.is_unclean and self.chance.random() < 0.3:
            self.elect(self.chance.randint(1, 3), is_unclean=True)

    def elect(self, leader: int, *, is_unclean: bool = False) -> None:
        state = self.state
        isr = state.isr
        if is_unclean and leader not in isr:
            isr = (leader,)
            self.committed.clear()
            self.count("unclean election")
        self.state = state._replace(
            leader=leader,
            isr=isr,
            leader_epoch=state.leader_epoch + self.chance.choice((1, 1, 2)),
            epoch=state.epoch + 1,
        )
        self.count("election")
        if self.chance.random() < 0.7:
            self.replicas[leader].learn()

    def _restart(self) -> None:
        """Kill a broker; with flush.messages, cut the power of one or all."""
        nodes = [self.chance.randint(1, 3)]
        if self.flushes and self.chance.random() < 0.5:
            nodes = [1, 2, 3]
        for node in nodes:
            replica = self.replicas[node]
            high_watermark = self.chance.randint(0, replica.log.high_watermark)
            store = replica.store.power_loss(self.chance) if self.flushes else replica.store
            for call in [call for call in self.calls if call.follower is replica]:
                self.calls.remove(call)
            replica.restart(store, high_watermark=high_watermark)
            for fetching in [other.fetchings.get(node) for other in self.replicas.values()]:
                if fetching is not None:
                    fetching.leader_restarted()
        self.count("restart")
        # Everything acknowledged was flushed where flush.messages is 1; elsewhere an unclean stop leaves the ISR.
        state = self.state
        isr = state.isr if self.flushes else tuple(node for node in state.isr if node not in nodes) or state.isr[:1]
        leader = state.leader if state.leader in isr else isr[0]
        self.state = state._replace(leader=leader, isr=isr, leader_epoch=state.leader_epoch + 1, epoch=state.epoch + 1)
        for node in nodes:
            self.replicas[node].learn()

    # -- checks --

    def check(self) -> None:
        """Check that nothing committed is truncated or replaced."""
        for replica in self.replicas.values():
            log = replica.log
            if not self.is_unclean and log.high_watermark < replica.highest:
                raise WrongReplica(f"{replica.node_id} was truncated below its high watermark {replica.highest}")
            replica.highest = log.high_watermark
            if replica.leads and replica.state is self.state:
                self._check_committed(replica)

    def _check_committed(self, leader: Replica) -> None:
        limit = leader.log.high_watermark
        newest = max(self.committed, default=-1)
        if not self.is_unclean and newest >= limit > 0 and newest >= leader.log.end_offset:
            raise WrongReplica(f"the leader {leader.node_id} ends at {leader.log.end_offset}, {newest} was committed")
        for offset, batch in batches(leader.log, limit).items():
            if self.committed.setdefault(offset, batch) != batch:
                raise WrongReplica(f"offset {offset} was committed with another content")

    def heal(self) -> None:
        """End all faults, and compare the logs once nothing is left to do."""
        self.count(f"healed at {self.clock.now // 1000} s")
        leader = self.replicas[self.state.leader].log
        for _ in range(400):
            self._settle()
            is_idle = not any(replica.work or replica.flushes for replica in self.replicas.values())
            if is_idle and all(self._has_all(replica.log, leader) for replica in self.replicas.values()):
                break
        else:
            ends = [(log.start_offset, log.end_offset) for log in (one.log for one in self.replicas.values())]
            raise WrongReplica(f"the logs do not become equal: {ends}")
        kept = batches(leader, leader.end_offset)
        for offset, batch in self.committed.items():
            if offset >= leader.start_offset and kept.get(offset) != batch:
                raise WrongReplica(f"the committed batch at {offset} is lost")

    @staticmethod
    def _has_all(log: Log, leader: Log) -> bool:
        """Return True if a log has the same batches as its leader's, and the same end."""
        # A new leader may have a lower log start than a follower that learned of the last leader's.
        if log.end_offset != leader.end_offset or log.start_offset < leader.start_offset:
            return False
        first = log.start_offset
        expected, held = batches(leader, leader.end_offset), batches(log, log.end_offset)
        return {offset: batch for offset, batch in expected.items() if offset >= first} == {
            offset: batch for offset, batch in held.items() if offset >= first
        }

    def _settle(self) -> None:
        self.clock.now += 30
        for replica in self.replicas.values():
            replica.learn()
            replica.pump()
        for call in [self.calls.pop() for _ in range(len(self.calls))]:
            self._answer(call)
        for call in [self.calls.pop() for _ in range(len(self.calls))]:
            self._answer(call)
        for replica in self.replicas.values():
            for _ in range(100):
                if not replica.work and not replica.look_ups:
                    break
                self._work_at(replica)
            while replica.flushes or replica.cuts:
                replica.end_flush()
        self.check()


def content(log: Log) -> bytes:
    """Return all batches of a log."""
    data = b""
    at = log.start_offset
    while (region := log.read(at, 1 << 30, log.end_offset, whole_first=True)) is not None:
        data += region.read()
        at = reading.next_offset(region.read())
    return data


def batches(log: Log, limit: int) -> dict[int, bytes]:
    """Return the batches below `limit` by their base offsets."""
    data = content(log)
    return {
        header.base_offset: data[header.start : header.end]
        for header in scan(data).batches
        if header.next_offset <= limit
    }


def run(seed: int, steps: int, **options: Any) -> World:
    """Run a world of this seed, and heal it."""
    world = World(seed, **options)
    for _ in range(steps):
        world.step()
    world.heal()
    return world
