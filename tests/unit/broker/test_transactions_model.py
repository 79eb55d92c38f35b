"""Transactions against a plain model: producers that write, and loops that read, process and write, step by step in an order
that dice choose, over a network that loses requests and answers and delivers some of them again, late. Meanwhile coordinators
and brokers crash, their logs and the writing of markers fail now and then, twins take over and zombies go on.

The clients do what real ones do: retry when a response requires it, abort when they must, start again when they are fenced. The
model is what each of them finally knows about each of its transactions: committed, aborted, or unknown (then all or nothing).

A broker without sockets is under test: requests go in as bytes, answers come out as bytes; time is virtual.

One piece, because the model decides each step of its clients by what all of them have heard.
"""

import asyncio
import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from tests.queues import unexpected

from ottla.broker.config import broker_config
from ottla.broker.coordination.partition_log import PartitionLog
from ottla.broker.lifecycle import BrokerServer
from ottla.coordinators.log import CoordinatorAppend, Ending
from ottla.environment.disk import DiskStore
from ottla.environment.process import process_environment
from ottla.protocol.connection import ClientConnection, open_envelope, response_pieces
from ottla.protocol.context import RequestContext
from ottla.protocol.errors import KAFKA_STORAGE_ERROR, NONE, name_of
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.protocol.schema import Request
from ottla.records.batch import build, records_of, scan
from ottla.records.record import Record
from ottla.tasks.deferred import Deferred

PARTITIONS: Final = 3
OUTPUT: Final = "output"
INPUT: Final = "input"
INPUTS: Final = 40
TIMEOUT_MS: Final = 20_000
CONFIGS: Final = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
}
ASK_AGAIN: Final = frozenset(
    (
        "LOST",
        "CONCURRENT_TRANSACTIONS",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "NOT_COORDINATOR",
        "NOT_ENOUGH_REPLICAS",
        "KAFKA_STORAGE_ERROR",
        "UNSTABLE_OFFSET_COMMIT",
    )
)
MOST_TRIES: Final = 60
MOST_STEPS: Final = 20_000


class Lost(NamedTuple):
    """The response of a request that was lost."""

    error_code: int = -1


LOST: Final = Lost()


class VirtualWorld:
    """A clock and timers that move when told."""

    def __init__(self) -> None:
        self.now = 0
        self._due: list[tuple[int, int, VirtualTimer]] = []
        self._count = 0

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.now

    def now_ms(self) -> int:
        return self.now

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> "VirtualTimer":
        timer = VirtualTimer(callback)
        self._count += 1
        heapq.heappush(self._due, (self.now + delay_ms, self._count, timer))
        return timer

    def pass_time(self, ms: int) -> None:
        until = self.now + ms
        while self._due and self._due[0][0] <= until:
            at, _, timer = heapq.heappop(self._due)
            self.now = max(self.now, at)
            if timer.callback is not None:
                timer.callback()
        self.now = until

    def forget(self) -> None:
        """Drop all callbacks, since the process has ended."""
        self._due.clear()


class VirtualTimer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Cluster:
    """A broker, and what may happen to it."""

    def __init__(self, directory: Path, dice: random.Random) -> None:
        self.directory = directory
        self.dice = dice
        self.world = VirtualWorld()
        self.trouble = 0.0
        """Probability that an append of a coordinator, or a marker, fails."""
        self.loop = asyncio.new_event_loop()
        self.start()

    def start(self) -> None:
        configs = CONFIGS | {"log.dirs": str(self.directory)}
        files = DiskStore(durable=False)
        environment = process_environment(self.loop, clock=self.world, timers=self.world, files=files)
        self.server = BrokerServer(broker_config(configs), environment)
        self.server.start()
        self.broker = self.server.broker
        self.unreliable()

    def unreliable(self) -> None:
        """Let the writing of markers fail now and then."""
        markers = self.broker.coordination.markers
        append = markers.append

        async def flaky(endings: Sequence[tuple[Any, Ending]]) -> list[int]:
            is_kept = [not self.fails() for _ in endings]
            codes = iter(await append([marker for marker, kept in zip(endings, is_kept, strict=True) if kept]))
            return [next(codes) if kept else KAFKA_STORAGE_ERROR for kept in is_kept]

        setattr(markers, "append", flaky)  # noqa: B010

    def fails(self) -> bool:
        return self.dice.random() < self.trouble

    def kill(self) -> None:
        """kill -9, and start again."""
        self.server._release()
        self.world.forget()
        self.start()

    def stop_and_start(self) -> None:
        self.server.stop()
        self.world.forget()
        self.start()

    def crash_coordinators(self) -> None:
        """They lose their memory, the broker does not."""
        self.broker.coordination.close()
        self.broker._coordination = None
        for topic in ("__consumer_offsets", "__transaction_state"):
            for index in range(2):
                partition = self.broker.replicas.find(topic, index)
                if partition is not None:
                    partition.watchers.clear()
        self.unreliable()

    def close(self) -> None:
        self.server.stop()
        self.loop.close()

    def answer(self, frame: bytes, version: int) -> Any:
        """Serve a request; None when the answer takes longer than clients wait."""
        envelope = open_envelope(frame)
        answer = self.server.pipeline.serve(envelope, RequestContext(version=version, client_host="/h"))
        if isinstance(answer, Deferred):
            heard: list[Any] = []
            answer.then(heard.append, unexpected)
            for _ in range(100):
                if heard:
                    break
                self.world.pass_time(100)
            if not heard:
                return None
            answer = heard[0]
        assert answer is not None
        return b"".join(
            bytes(piece) if not hasattr(piece, "read") else piece.read() for piece in response_pieces(envelope, answer)
        )

    def ask(self, request: Request, version: int) -> Any:
        """The answer, over a network that works."""
        client = ClientConnection("model")
        frame = b"".join(client.request(request, version))[4:]
        data = self.answer(frame, version)
        assert data is not None
        (response,) = client.feed(data)
        return response


Step = Generator[tuple[Request, int], Any, None]


class Attempt:
    """One transaction, as its client knows it: `outcome` is committed, aborted or unknown."""

    def __init__(self, who: str) -> None:
        self.who = who
        self.values: list[bytes] = []
        self.offsets: tuple[int, int] | None = None
        self.asked_to_commit = False
        self.outcome = "unknown"

    def over(self) -> None:
        """Give up: a transaction whose commit was never requested is aborted."""
        self.outcome = "unknown" if self.asked_to_commit else "aborted"


class Fatal(Exception):
    """The client must start again."""


class Client:
    """A transactional producer that speaks `version` (1 or 2) of transactions."""

    def __init__(self, model: "Model", transactional_id: str, version: int) -> None:
        self.model = model
        self.dice = model.dice
        self.transactional_id = transactional_id
        self.version = version
        self.producer_id = self.epoch = -1
        self.sequences: Counter[int] = Counter()

    def until_told(self, request: Request, version: int, code: Callable[[Any], int]) -> Generator[Any, Any, Any]:
        """Ask until the answer is one. Raises Fatal when it is an error that asking again does not mend."""
        for _ in range(MOST_TRIES):
            answer = yield request, version
            name = "LOST" if answer is LOST else name_of(code(answer))
            if name == "NONE":
                return answer
            if name not in ASK_AGAIN:
                raise Fatal(name)
            self.model.cluster.world.pass_time(self.dice.randrange(0, 300))
        raise Fatal("patience is over")

    def init(self) -> Generator[Any, Any, None]:
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=TIMEOUT_MS)
        answer = yield from self.until_told(request, 5, lambda answer: int(answer.error_code))
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequences.clear()

    def produce(self, attempt: Attempt, partition: int, values: list[bytes]) -> Generator[Any, Any, None]:
        if self.version == 1:
            add = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=OUTPUT, partitions=[partition])],
            )
            yield from self.until_told(
                add,
                3,
                lambda answer: int(
                    answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
                ),
            )
        attempt.values += values
        now = self.model.cluster.world.wall_ms()
        batch = build(
            [Record(at, now, None, value) for at, value in enumerate(values)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequences[partition],
            transactional=True,
        )
        data = [PartitionProduceData(index=partition, records=batch)]
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name=OUTPUT, partition_data=data)],
        )
        yield from self.until_told(
            request,
            12 if self.version == 2 else 11,
            lambda answer: int(answer.responses[0].partition_responses[0].error_code),
        )
        self.sequences[partition] += len(values)

    def end(self, attempt: Attempt, *, commit: bool) -> Generator[Any, Any, None]:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        attempt.asked_to_commit = commit
        answer = yield from self.until_told(
            request, 5 if self.version == 2 else 4, lambda answer: int(answer.error_code)
        )
        attempt.outcome = "committed" if commit else "aborted"
        if self.version == 2:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()

    def commit_offset(self, attempt: Attempt, group: str, begin: int, end: int) -> Generator[Any, Any, None]:
        if self.version == 1:
            add = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id=group,
            )
            yield from self.until_told(add, 3, lambda answer: int(answer.error_code))
        attempt.offsets = begin, end
        part = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=end)
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=INPUT, partitions=[part])],
        )
        yield from self.until_told(
            request, 5 if self.version == 2 else 4, lambda answer: int(answer.topics[0].partitions[0].error_code)
        )

    def anew(self, work: Callable[[Attempt], Generator[Any, Any, bool]]) -> Step:
        """Start, and start again after each fatal error, until `work` is done."""
        while True:
            try:
                yield from self.init()
                done = False
                while not done:
                    attempt = Attempt(self.transactional_id)
                    self.model.attempts.append(attempt)
                    try:
                        done = yield from work(attempt)
                    except Fatal:
                        attempt.over()
                        raise
                return
            except Fatal:
                if self.model.is_replaced(self):
                    return

    def write(self, transactions: int) -> Step:
        """So many transactions, each of some batches."""
        left = transactions

        def work(attempt: Attempt) -> Generator[Any, Any, bool]:
            nonlocal left
            left -= 1
            for _ in range(self.dice.randrange(1, 4)):
                values = [self.model.new_value(self.transactional_id) for _ in range(self.dice.randrange(1, 3))]
                yield from self.produce(attempt, self.dice.randrange(PARTITIONS), values)
            yield from self.end(attempt, commit=self.dice.random() < 0.7)
            return left <= 0

        return self.anew(work)

    def process(self, group: str) -> Step:
        """Read INPUT from where the group stands, write what it makes of it, commit both together; to the end of INPUT."""

        def work(attempt: Attempt) -> Generator[Any, Any, bool]:
            offset_topic = OffsetFetchRequestTopics(name=INPUT, partition_indexes=[0])
            asked = OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(group_id=group, topics=[offset_topic])], require_stable=True
            )
            answer = yield from self.until_told(asked, 8, lambda answer: _offset_code(answer.groups[0]))
            begin = max(0, answer.groups[0].topics[0].partitions[0].committed_offset)
            if begin >= INPUTS:
                attempt.outcome = "aborted"
                return True
            end = min(INPUTS, begin + self.dice.randrange(1, 5))
            for number in range(begin, end):
                yield from self.produce(attempt, self.dice.randrange(PARTITIONS), [b"%s %d" % (group.encode(), number)])
            yield from self.commit_offset(attempt, group, begin, end)
            yield from self.end(attempt, commit=self.dice.random() < 0.85)
            return False

        return self.anew(work)


def _offset_code(group: Any) -> int:
    return int(group.error_code or group.topics[0].partitions[0].error_code)


class Model:
    """The clients, the network between them and the broker, and what must be true."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.dice = cluster.dice
        self.attempts: list[Attempt] = []
        self.current: dict[str, Client] = {}
        self.limbo: list[tuple[bytes, int]] = []
        self.seen: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
        self._values = 0

    def new_value(self, who: str) -> bytes:
        self._values += 1
        return b"%s #%d" % (who.encode(), self._values)

    def is_replaced(self, client: Client) -> bool:
        return self.current[client.transactional_id] is not client

    def deliver(self, client: Client, request: Request, version: int) -> Any:
        """Send a request over the unreliable network, and return the response."""
        chance = self.dice.random()
        if chance < 0.05:
            return LOST
        connection = ClientConnection("model")
        frame = b"".join(connection.request(request, version))[4:]
        data = self.cluster.answer(frame, version)
        # In version 1 a late end, or commit of offsets, may hit the next transaction: its epoch is the same (KIP-890).
        may_come_again = client.version == 2 or not isinstance(request, (EndTxnRequest, TxnOffsetCommitRequest))
        if may_come_again and self.dice.random() < 0.1:
            self.limbo.append((frame, version))
        if data is None or chance < 0.1:
            return LOST
        (response,) = connection.feed(data)
        return response

    def happen(self) -> None:
        """Let a random event happen that no client requested."""
        chance = self.dice.random()
        if chance < 0.05 and self.limbo:
            frame, version = self.limbo.pop(self.dice.randrange(len(self.limbo)))
            self.cluster.answer(frame, version)
        elif chance < 0.055:
            self.cluster.crash_coordinators()
        elif chance < 0.058:
            self.cluster.kill()
        elif chance < 0.06:
            self.cluster.stop_and_start()
        elif chance < 0.08:
            self.cluster.world.pass_time(self.dice.randrange(2_000))
        elif chance < 0.083:
            self.cluster.world.pass_time(TIMEOUT_MS)
        elif chance < 0.12:
            self.look(self.dice.randrange(PARTITIONS))

    def look(self, partition: int) -> None:
        """Check that committed records stay, in the same order, and that later ones come after them."""
        now = committed(self.cluster, partition)
        before = self.seen[partition]
        assert now[: len(before)] == before
        self.seen[partition] = now

    def run(self, begin: dict[str, Callable[[], tuple[Client, Step]]]) -> None:
        """Let every client, and some twins that take over from them, do their work."""
        running: list[tuple[Client, Step, Any]] = []

        def enter(name: str) -> None:
            client, steps = begin[name]()
            self.current[name] = client
            running.append((client, steps, None))

        for name in begin:
            enter(name)
        for steps in itertools.count():
            if not running:
                break
            assert steps < MOST_STEPS, f"no end in sight: {[client.transactional_id for client, _, _ in running]}"
            place = self.dice.randrange(len(running))
            client, work, heard = running[place]
            try:
                request, version = work.send(heard)
            except StopIteration:
                running.pop(place)
                continue
            running[place] = client, work, self.deliver(client, request, version)
            self.happen()
            if self.dice.random() < 0.004:
                enter(self.dice.choice(list(begin)))

    def settle(self) -> None:
        """All trouble is over, and so is the time of what is open still; late requests arrive even so."""
        self.cluster.trouble = 0.0
        for frame, version in self.limbo:
            self.cluster.answer(frame, version)
        self.cluster.world.pass_time(2 * TIMEOUT_MS)

    def check(self, groups: list[str]) -> None:
        counts = Counter(value for partition in range(PARTITIONS) for value in committed(self.cluster, partition))
        for partition in range(PARTITIONS):
            self.look(partition)
        assert [value for value, count in counts.items() if count > 1] == []
        known: set[bytes] = set()
        for attempt in self.attempts:
            there = [value in counts for value in attempt.values]
            if attempt.outcome == "committed":
                assert all(there), ("a commit was lost", attempt.who, attempt.values)
            elif attempt.outcome == "aborted" and attempt.who not in groups:
                assert not any(there), ("an aborted record is seen", attempt.who, attempt.values)
            elif attempt.who not in groups:
                assert len(set(there)) <= 1, ("a part of a transaction", attempt.who, attempt.values)
            known |= set(attempt.values)
        names = {name.encode() for name in self.current}
        assert {value for value in counts if value.split()[0] in names} <= known
        for group in groups:  # every attempt writes the same values for the same input
            written = [b"%s %d" % (group.encode(), number) for number in range(INPUTS)]
            assert [value for value in written if counts[value] != 1] == []
            assert committed_offset(self.cluster, group) == INPUTS


def committed(cluster: Cluster, partition: int) -> list[bytes]:
    """The values that a reader of committed data gets, as a client works them out."""
    values: list[bytes] = []
    offset = 0
    while True:
        fetch_topic = FetchTopic(
            topic=OUTPUT,
            partitions=[FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1000)],
        )
        request = FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=0, isolation_level=1, topics=[fetch_topic])
        part = cluster.ask(request, 11).responses[0].partitions[0]
        assert part.error_code == NONE
        aborted = sorted(((entry.first_offset, entry.producer_id) for entry in part.aborted_transactions), reverse=True)
        skipped: set[int] = set()
        data = bytes(part.records or b"")
        batches = scan(data).batches
        if not batches:
            assert part.last_stable_offset <= offset
            return values
        for header in batches:
            last = header.base_offset + header.last_offset_delta
            while aborted and aborted[-1][0] <= last:
                skipped.add(aborted.pop()[1])
            if header.is_control:
                skipped.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in skipped) and last >= offset:
                for record in records_of(data[header.start : header.end]):
                    assert record.value is not None
                    values.append(record.value)
            offset = last + 1


def committed_offset(cluster: Cluster, group: str) -> int:
    offset_topic = OffsetFetchRequestTopics(name=INPUT, partition_indexes=[0])
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=[offset_topic])], require_stable=True
    )
    (part,) = cluster.ask(request, 8).groups[0].topics[0].partitions
    assert part.error_code == NONE
    return int(part.committed_offset)


@pytest.fixture
def cluster(tmp_path: Path, dice_seed: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "data", random.Random(dice_seed))
    append = PartitionLog._append

    def flaky(log: Any, write: Any) -> CoordinatorAppend:
        return CoordinatorAppend(KAFKA_STORAGE_ERROR) if made.fails() else append(log, write)

    monkeypatch.setattr(PartitionLog, "_append", flaky)
    topics = [
        CreatableTopic(name=name, num_partitions=count, replication_factor=1)
        for name, count in ((OUTPUT, PARTITIONS), (INPUT, 1))
    ]
    assert {topic.error_code for topic in made.ask(CreateTopicsRequest(topics=topics, timeout_ms=1000), 5).topics} == {
        NONE
    }
    for kind in (0, 1):  # so that the internal topics are there
        made.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=["any"]), 4)
    yield made
    made.trouble = 0.0
    made.close()


@pytest.mark.timeout(0)
@pytest.mark.parametrize("number", range(4))
def test_transactions_against_the_model(cluster: Cluster, number: int, request: pytest.FixtureRequest) -> None:
    rounds = int(request.config.getoption("--soak"))
    for turn in range(rounds):
        cluster.trouble = cluster.dice.choice([0.0, 0.02, 0.1])
        model = Model(cluster)
        version = {0: 1, 1: 2}.get(number)

        def begin(name: str, model: Model = model, version: int | None = version) -> tuple[Client, Step]:
            client = Client(model, name, version or model.dice.choice([1, 2]))
            work = client.process(name) if name.startswith("loop") else client.write(model.dice.randrange(5, 15))
            return client, work

        names = [f"{kind}-{turn}-{at}" for kind, count in (("writer", 3), ("loop", 2)) for at in range(count)]
        model.run({name: partial(begin, name) for name in names})
        model.settle()
        model.check([name for name in names if name.startswith("loop")])
        states = cluster.ask(DescribeTransactionsRequest(transactional_ids=names), 0).transaction_states
        assert {state.transaction_state for state in states} <= {"Empty", "CompleteCommit", "CompleteAbort"}
        outcomes = Counter(attempt.outcome for attempt in model.attempts)
        assert outcomes["committed"] > 20
        assert outcomes["aborted"] > 3
