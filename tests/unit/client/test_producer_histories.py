"""Random histories of producers in virtual time: nodes freeze, die and come back, answers are lost, leaders change.

The checker compares the outcomes that the application got with the logs. `--seed N` repeats a history, `--soak N` runs N times
as many. The tests at the end plant a defect and see the checker find it.
"""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.client.errors import FencedError, IllegalState, KafkaError
from ottla.client.producer.sender import Sender
from ottla.client.producer.sequences import PartitionQueue
from ottla.client.topics import TopicPartition
from ottla.protocol.errors import (
    COORDINATOR_NOT_AVAILABLE,
    INVALID_RECORD,
    KAFKA_STORAGE_ERROR,
    NOT_ENOUGH_REPLICAS,
    NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    NOT_LEADER_OR_FOLLOWER,
    REQUEST_TIMED_OUT,
)
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.schema import Request
from ottla.records.record import Record

from .test_producer_outages import Application
from .whole_cluster import UNHEARD, Fate, Late, Node, Unreplicated, WholeCluster
from .world import LOST, World

ROUNDS = 6
PARTITIONS = 3
TOPICS = ("t", "u")
_HEARTBEATS = (ConsumerGroupHeartbeatRequest, ShareGroupHeartbeatRequest)
_RETRIED = (
    NOT_LEADER_OR_FOLLOWER,
    NOT_ENOUGH_REPLICAS,
    NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    REQUEST_TIMED_OUT,
    KAFKA_STORAGE_ERROR,
)


class Faults:
    """Random faults of a cluster.

    kinds  requests whose answers may be lost, late or refused
    """

    def __init__(self, cluster: WholeCluster, dice: random.Random, kinds: dict[type[Request], tuple[int, ...]]) -> None:
        self.cluster = cluster
        self.dice = dice
        self.kinds = kinds
        self.active = True
        self.level = dice.choice([0.02, 0.1, 0.25])
        cluster.chance = self.fate
        for node in cluster.nodes.values():
            node.latency_ms = dice.choice([0, 1, 5, 20])

    def fate(self, node: Node, kind: type[Request]) -> Fate:
        """Choose the fate of one request."""
        del node
        codes = self.kinds.get(kind)
        if codes is None or not self.active or self.dice.random() > self.level:
            return None
        fates: list[Fate] = [LOST, UNHEARD, Late(self.dice.choice([5, 100, 2000])), *codes]
        if kind in _HEARTBEATS:
            fates.append(Unreplicated(COORDINATOR_NOT_AVAILABLE))
        return self.dice.choice(fates)

    def step(self) -> None:
        """Something happens to a node, or to the leadership of a partition."""
        cluster, dice = self.cluster, self.dice
        node = cluster.nodes[dice.randint(1, 3)]
        verb = dice.choice(["freeze", "kill", "lose", "move", "coordinator", "none", "none"])
        failing = [candidate for candidate in cluster.nodes.values() if candidate.frozen or candidate.refuses]
        if verb in ("freeze", "kill") and len(failing) < 2 and node not in failing:
            node.freeze() if verb == "freeze" else node.kill()
            if dice.random() < 0.7:
                cluster.world.call_later(dice.choice([300, 3000, 12_000]), lambda: self._fail_over(node))
            cluster.world.call_later(dice.choice([200, 2000, 20_000, 40_000]), lambda: self._recover(node))
        elif verb == "lose":
            node.lose_all()
        elif verb == "move" and node not in failing:
            cluster.lead(dice.choice(TOPICS), dice.randrange(PARTITIONS), node.node)
        elif verb == "coordinator" and node not in failing:
            cluster.coordinators[dice.choice([0, 1])] = node.node

    def _fail_over(self, node: Node) -> None:
        if node.frozen or node.refuses:
            self.cluster.fail_over(node.node)

    def _recover(self, node: Node) -> None:
        if node.frozen:
            node.thaw()
        node.start()

    def end(self) -> None:
        """All is well again."""
        self.active = False
        for node in self.cluster.nodes.values():
            self._recover(node)


class History:
    """A producer's records, their outcomes, and the order in which it produced them.

    recreates  whether topics are deleted and created again
    logs       the logs that each partition had in topics that were deleted
    """

    recreates = False

    def __init__(self, directory: Path, seed: int, **configs: Any) -> None:
        self.dice = random.Random(seed)
        self.cluster = WholeCluster(World(), directory)
        for topic in TOPICS:
            self.cluster.engine.create_topic(topic, PARTITIONS)
        kinds: dict[type[Request], tuple[int, ...]] = {
            ProduceRequest: _RETRIED,
            InitProducerIdRequest: (),
            EndTxnRequest: (),
        }
        self.faults = Faults(self.cluster, self.dice, kinds)
        dice = self.dice
        self.app = Application(
            self.cluster,
            linger_ms=dice.choice([0, 5, 50]),
            batch_size=dice.choice([0, 200, 16_384]),
            request_timeout_ms=dice.choice([1000, 10_000]),
            **{"delivery_timeout_ms": dice.choice([8000, 120_000]), **configs},
        )
        self.order: dict[tuple[str, int], list[bytes]] = {}
        self.logs: dict[tuple[str, int], list[list[Record]]] = {}
        self.count = 0

    def produce(self) -> None:
        topic, partition = self.dice.choice(TOPICS), self.dice.randrange(PARTITIONS)
        value = b"%s-%d-%06d" % (topic.encode(), partition, self.count)
        self.count += 1
        self.order.setdefault((topic, partition), []).append(value)
        self.app.produce(topic, partition, value)

    def pause(self) -> None:
        self.app.world.advance(self.dice.choice([0, 0, 1, 10, 200, 2500]))

    def recreate(self) -> None:
        """Delete a topic, and create it again at once or after a while."""
        topic = self.dice.choice(TOPICS)
        for index in range(PARTITIONS):
            log = self.cluster.engine.records(TopicPartition(topic, index))
            self.logs.setdefault((topic, index), []).append(log)
        self.cluster.engine.delete_topic(topic)
        self.app.world.advance(self.dice.choice([0, 0, 10, 500, 3000]))
        self.cluster.engine.create_topic(topic, PARTITIONS)

    def flush(self, seconds: int) -> int:
        """Flush; it returns with the last outcome, or when its time is over."""
        before = self.app.world.now
        left = self.app.flush(seconds)
        if not left:
            assert self.app.world.now <= max(before, self.app.settled_ms) + 1, "flush went on after the last outcome"
        assert self.app.world.now <= before + seconds * 1000, "flush took longer than its timeout"
        return left

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.produce()
            if self.dice.random() < 0.06:
                self.faults.step()
            if self.dice.random() < 0.03:
                self.flush(self.dice.choice([1, 30]))
            if self.recreates and self.dice.random() < 0.04:
                self.recreate()
            if self.dice.random() < 0.03:
                # Refused for good: the next batch of this kind leaves a hole in its partition's sequences.
                self.cluster.nodes[self.dice.randint(1, 3)].fate(ProduceRequest, INVALID_RECORD)
            self.pause()
        self.faults.end()
        for node in self.cluster.nodes.values():
            node.fates.clear()
        assert self.flush(150) == 0
        self.app.world.advance(60_000)  # what frozen nodes had kept has come out too

    def check(self, *, exactly_once: bool) -> None:
        """Every record has an outcome; what was acknowledged is there, where it was said to be, once, in order."""
        outcomes = self.app.outcomes
        assert len(outcomes) == self.count
        assert self.app.producer.accumulator.buffered == 0
        for (topic, index), produced in self.order.items():
            logs = [*self.logs.get((topic, index), []), self.cluster.engine.records(TopicPartition(topic, index))]
            acknowledged = [value for value in produced if not isinstance(outcomes[value], KafkaError)]
            places: dict[bytes, list[int]] = {}
            for log in logs:
                for record in log:
                    places.setdefault(record.value or b"", []).append(record.offset)
            assert all(value in places for value in acknowledged), "an acknowledged record is lost"
            if not exactly_once:
                continue
            for log in logs:
                # In another topic of the same name a record may come once more: no broker knows of the first.
                times = Counter(record.value for record in log)
                assert max(times.values(), default=1) == 1, f"duplicates: {times.most_common(3)}"
                kept = [value for value in times if value is not None and not isinstance(outcomes[value], KafkaError)]
                assert kept == sorted(kept), "records are out of order"
            for value in acknowledged:
                # An offset of -1: acknowledged as a duplicate of what the broker no longer remembers.
                assert outcomes[value] in (*places[value], -1), f"{value!r} is not where it was said to be"


def histories(path: Path, seed: int, rounds: int, make: Callable[[Path, int], Any], act: Callable[[Any], None]) -> None:
    """Run and check histories one after the other."""
    for number in range(rounds):
        history = make(path / str(number), seed + number)
        try:
            act(history)
        except BaseException:
            print(f"--seed {seed + number}")  # noqa: T201  (shown when the test fails)
            raise
        finally:
            history.cluster.close()


def test_nothing_acknowledged_is_lost(tmp_path: Path, dice_seed: int, rounds: int) -> None:
    """A producer without idempotence: records may come twice."""

    def act(history: History) -> None:
        history.run(120)
        history.check(exactly_once=False)

    histories(tmp_path, dice_seed, rounds, lambda path, seed: History(path, seed, enable_idempotence="false"), act)


def test_an_idempotent_producer_writes_each_record_once_and_in_order(
    tmp_path: Path, dice_seed: int, rounds: int
) -> None:
    def act(history: History) -> None:
        history.run(120)
        history.check(exactly_once=True)

    histories(tmp_path, dice_seed, rounds * 2, History, act)


class RecreationHistory(History):
    """Topics are deleted and created again meanwhile."""

    recreates = True


def test_an_idempotent_producer_writes_each_record_once_to_topics_that_are_recreated(
    tmp_path: Path, dice_seed: int, rounds: int
) -> None:
    def act(history: RecreationHistory) -> None:
        history.run(120)
        history.check(exactly_once=True)

    histories(tmp_path, dice_seed, rounds * 2, RecreationHistory, act)


class TransactionHistory(History):
    """Transactions of one producer: committed ones are visible as a whole, aborted ones not at all.

    fates  of each transaction its values, and whether it was committed
    """

    def __init__(self, directory: Path, seed: int) -> None:
        super().__init__(directory, seed, transactional_id="tx", transaction_timeout_ms=900_000)
        self.cluster.features["transaction.version"] = self.dice.choice([1, 2])
        self.fates: list[tuple[list[bytes], bool]] = []

    def run(self, steps: int) -> None:
        self.app.run(self._eventually(lambda: self.app.producer.transactional().init(5000)))
        for _ in range(steps):
            self._transaction()
        self.faults.end()
        for node in self.cluster.nodes.values():
            node.fates.clear()
        before = self.count
        self.app.begin()
        self.produce()
        self.app.commit(None)
        self.fates.append((self._since(before), True))
        self.app.world.advance(60_000)

    async def _eventually(self, call: Callable[[], Any]) -> None:
        """Call again what may be called again."""
        while True:
            try:
                await call()
                return
            except KafkaError as error:
                if not error.retriable:
                    raise
                await self.app.core.scheduler.sleep(100)

    def _transaction(self) -> None:
        dice, transactions = self.dice, self.app.producer.transactional()
        self.app.begin()
        before = self.count
        aborts = dice.random() < 0.4
        limit = dice.choice([500, 3000, 60_000])
        committed = not aborts
        try:
            for _ in range(dice.randint(0, 6)):
                self.produce()
                if dice.random() < 0.15:
                    self.faults.step()
                if dice.random() < 0.05:
                    self.cluster.nodes[dice.randint(1, 3)].fate(ProduceRequest, INVALID_RECORD)
                self.pause()
            if not aborts:
                self.app.run(self._eventually(lambda: transactions.commit(limit)))
        except FencedError:
            raise
        except IllegalState:
            committed = False
        if not committed:
            self.app.run(self._eventually(lambda: transactions.abort(limit)))
        self.fates.append((self._since(before), committed))

    def _since(self, number: int) -> list[bytes]:
        """The values that were produced from a number on."""
        return [value for values in self.order.values() for value in values if int(value[-6:]) >= number]

    def check(self, *, exactly_once: bool = True) -> None:
        visible: Counter[bytes] = Counter()
        for topic, index in self.order:
            records = self.cluster.engine.records(TopicPartition(topic, index), committed=True)
            visible.update(record.value or b"" for record in records)
        assert max(visible.values(), default=1) == 1, f"duplicates: {visible.most_common(3)}"
        for number, (values, committed) in enumerate(self.fates):
            seen = [value for value in values if value in visible]
            if committed:
                assert seen == values, f"transaction {number} was committed; visible is {seen} of {values}"
            else:
                assert not seen, f"transaction {number} was aborted; visible is {seen}"


def test_transactions_are_visible_as_a_whole_or_not_at_all(tmp_path: Path, dice_seed: int, rounds: int) -> None:
    def act(history: TransactionHistory) -> None:
        history.run(25)
        history.check()

    histories(tmp_path, dice_seed, rounds * 2, TransactionHistory, act)


# -- the checker itself: a planted defect is found --


def finds(path: Path, message: str, make: Callable[[Path, int], Any], act: Callable[[Any], None]) -> bool:
    """Return whether the checker reports `wanted` in one of the first histories."""
    for seed in range(60):
        history = make(path / str(seed), seed)
        try:
            act(history)
        except AssertionError as error:
            if message in str(error):
                return True
        except KafkaError:
            continue  # the broker noticed before the checker could
        finally:
            history.cluster.close()
    return False


@pytest.mark.replaces_code
def test_the_checker_finds_batches_that_are_renumbered_though_they_may_be_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled = Sender._prepare_identity

    def renumber_all(sender: Sender, queue: PartitionQueue) -> bool:
        before = sender.epoch
        ready = settled(sender, queue)
        if sender.epoch > before:
            for partition_queue in sender._queues.values():
                partition_queue.renumber(sender._identity)
        return ready

    def act(history: History) -> None:
        history.run(120)
        history.check(exactly_once=True)

    monkeypatch.setattr(Sender, "_prepare_identity", renumber_all)
    assert finds(tmp_path, "duplicates", History, act)


@pytest.mark.replaces_code
def test_the_checker_finds_a_commit_without_a_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def drain(sender: Sender, deadline: int) -> int:
        del deadline
        sender.close_all()
        return 0

    def act(history: TransactionHistory) -> None:
        history.run(25)
        history.check()

    monkeypatch.setattr(Sender, "drain", drain)
    assert finds(tmp_path, "was committed; visible is", TransactionHistory, act)


@pytest.mark.replaces_code
def test_the_checker_finds_records_of_aborted_transactions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drain = Sender.drain

    async def drain_or_not(sender: Sender, deadline: int) -> int:
        await drain(sender, deadline)
        return 0

    def act(history: TransactionHistory) -> None:
        history.run(25)
        history.check()

    monkeypatch.setattr(Sender, "refuse", Sender.fail_waiting)
    monkeypatch.setattr(Sender, "drain", drain_or_not)
    assert finds(tmp_path, "was aborted; visible is", TransactionHistory, act)
