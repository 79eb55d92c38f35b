"""Producers and a cluster whose nodes freeze, die, and lose answers: what users saw, in virtual time.

One file, because the stories share their cluster, and each is told by what the user of one producer saw.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.client.errors import (
    BrokersUnreachable,
    IllegalState,
    KafkaError,
    RequestTimedOut,
    TransactionAborted,
    UnknownTopic,
)
from ottla.client.groups import GroupMetadata
from ottla.client.producer import sender
from ottla.client.producer.accumulator import TopicBuffers
from ottla.client.producer.closed import Delivered
from ottla.client.producer.core import ProducerCore
from ottla.client.producer.partitioners import Partitioner
from ottla.client.topics import TopicPartition
from ottla.protocol.errors import (
    COORDINATOR_NOT_AVAILABLE,
    INVALID_RECORD,
    NOT_ENOUGH_REPLICAS,
    NOT_LEADER_OR_FOLLOWER,
    TRANSACTION_ABORTABLE,
)
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

from .whole_cluster import UNHEARD, Late, WholeCluster
from .world import LOST, World


class Application:
    """A producer, and the outcome of each value: the offset, or the error.

    settled_ms  time of the last outcome
    """

    def __init__(self, cluster: WholeCluster, choose: Partitioner | None = None, **configs: Any) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.core = cluster.core(**configs)
        self.producer = ProducerCore(self.core, contextlib.nullcontext(), self._wake, choose)
        self.outcomes: dict[bytes, int | KafkaError] = {}
        self.settled_ms = 0

    def _wake(self) -> None:
        self.world.call_later(0, self.producer.sender.take_in)

    def run(self, coroutine: Any, limit_ms: int = 600_000) -> Any:
        return self.world.run(self.core, coroutine, limit_ms)

    def produce(self, topic: str, partition: int, *values: bytes, key: bytes | None = None) -> None:
        for value in values:
            self.run(self.producer.append_later(topic, partition, 5, key, value, None, self._listener(value)))

    def _listener(self, value: bytes) -> Any:
        def settle(error: KafkaError | None, delivered: Delivered | None) -> None:
            assert value not in self.outcomes, f"{value!r} has two outcomes"
            self.settled_ms = self.world.now
            self.outcomes[value] = error if error is not None else delivered.offset if delivered is not None else -1

        return settle

    def flush(self, seconds: int = 300) -> int:
        return int(self.run(self.producer.flush(seconds * 1000)))

    @property
    def acknowledged(self) -> list[bytes]:
        return [value for value, outcome in self.outcomes.items() if not isinstance(outcome, KafkaError)]

    # Transactions.

    def begin(self) -> None:
        self.producer.transactional().begin()

    def commit(self, timeout_ms: int | None = None) -> None:
        self.run(self.producer.transactional().commit(timeout_ms))

    def abort(self, timeout_ms: int | None = None) -> None:
        self.run(self.producer.transactional().abort(timeout_ms))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[WholeCluster]:
    made = WholeCluster(World(), tmp_path)
    made.engine.create_topic("t", 3)
    made.engine.create_topic("u", 3)
    yield made
    made.close()


def committed(cluster: WholeCluster, topic: str = "t", partitions: int = 3) -> list[bytes]:
    """Values visible to read_committed, when the markers of all answered requests are written."""
    cluster.world.advance(0)
    values = []
    for index in range(partitions):
        values += [
            record.value or b"" for record in cluster.engine.records(TopicPartition(topic, index), committed=True)
        ]
    return sorted(values)


def transactional(cluster: WholeCluster, **configs: Any) -> Application:
    app = Application(cluster, transactional_id="tx", **({"linger_ms": 0} | configs))
    app.run(app.producer.transactional().init(None))
    return app


# -- commit_transaction commits what was flushed, or says that it could not --


@pytest.mark.parametrize("failure", ["frozen leader", "not enough replicas"])
def test_a_commit_that_could_not_flush_raises_and_publishes_nothing(cluster: WholeCluster, failure: str) -> None:
    """Commit returned without an error, half of the transaction was visible, the rest came with the next one."""
    app = transactional(cluster)
    app.begin()
    app.produce("t", 1, b"a")  # node 2 leads it
    app.flush()
    leader = cluster.nodes[1]
    if failure == "frozen leader":
        leader.freeze()
    else:
        leader.fate(ProduceRequest, *[NOT_ENOUGH_REPLICAS] * 30)
    app.produce("t", 0, b"b")
    before = cluster.world.now
    with pytest.raises(RequestTimedOut, match="1 record is not acknowledged") as raised:
        app.commit(5000)
    assert raised.value.retriable
    assert cluster.world.now - before <= 5100
    assert committed(cluster) == []
    leader.fates.clear()
    leader.thaw()
    app.commit()
    assert committed(cluster) == [b"a", b"b"]
    app.begin()
    app.produce("t", 2, b"c")
    app.commit()
    assert committed(cluster) == [b"a", b"b", b"c"]


def test_flush_and_end_of_a_commit_share_one_timeout(cluster: WholeCluster) -> None:
    app = transactional(cluster)
    app.begin()
    app.produce("t", 0, b"a")
    cluster.nodes[1].fate(ProduceRequest, Late(4000))
    cluster.nodes[2].freeze()  # the transaction coordinator
    before = cluster.world.now
    with pytest.raises(KafkaError) as raised:
        app.commit(6000)
    assert raised.value.retriable
    assert 5900 <= cluster.world.now - before <= 6100
    cluster.nodes[2].thaw()
    app.commit()
    assert committed(cluster) == [b"a"]


def test_a_commit_whose_outcome_is_unknown_cannot_be_aborted(cluster: WholeCluster) -> None:
    """As Kafka's producer: the coordinator may have decided already."""
    app = transactional(cluster)
    app.begin()
    app.produce("t", 0, b"a")
    app.flush()
    cluster.nodes[2].fate(EndTxnRequest, *[UNHEARD] * 100)
    with pytest.raises(KafkaError):
        app.commit(3000)
    with pytest.raises(IllegalState, match="commit_transaction"):
        app.abort()
    cluster.nodes[2].fates.clear()
    app.commit()
    assert committed(cluster) == [b"a"]


def test_a_commit_that_could_not_flush_can_be_aborted(cluster: WholeCluster) -> None:
    app = transactional(cluster)
    app.begin()
    app.produce("t", 1, b"a")
    app.flush()
    cluster.nodes[1].freeze()
    app.produce("t", 0, b"b")
    with pytest.raises(RequestTimedOut):
        app.commit(2000)
    with pytest.raises(IllegalState, match="commit_transaction"):
        app.produce("t", 1, b"no more")
    cluster.nodes[1].thaw()
    app.abort()
    app.begin()
    app.produce("t", 1, b"c")
    app.commit()
    assert committed(cluster) == [b"c"]


def test_send_offsets_keeps_to_its_timeout(cluster: WholeCluster) -> None:
    """Under transaction.version 1 it may be two requests: it took up to twice as long."""
    cluster.features["transaction.version"] = 1
    app = transactional(cluster)
    app.begin()
    app.produce("t", 1, b"a")
    app.flush()
    cluster.coordinators[0] = 3
    cluster.nodes[2].fate(AddOffsetsToTxnRequest, *[COORDINATOR_NOT_AVAILABLE] * 5)
    cluster.nodes[3].fate(TxnOffsetCommitRequest, *[COORDINATOR_NOT_AVAILABLE] * 1000)
    before = cluster.world.now
    with pytest.raises(RequestTimedOut):
        app.run(app.producer.send_offsets({TopicPartition("t", 0): 5}, GroupMetadata("g"), 4000))
    assert cluster.nodes[3].asked[TxnOffsetCommitRequest]
    assert 3900 <= cluster.world.now - before <= 4100


# -- an aborted transaction is gone --


@pytest.mark.parametrize("version", [1, 2])
def test_a_record_of_an_aborted_transaction_is_not_published_by_the_next_one(
    cluster: WholeCluster, version: int
) -> None:
    """In flight at the abort, its connection broke, and it was sent once more under the next epoch."""
    cluster.features["transaction.version"] = version
    app = transactional(cluster)
    app.begin()
    app.produce("t", 1, b"a")
    app.produce("t", 0, b"0")
    app.flush()
    cluster.nodes[1].freeze()
    app.produce("t", 0, b"b")
    cluster.world.advance(10)
    aborting = app.core.scheduler.start(app.producer.transactional().abort(None))
    cluster.world.advance(2000)
    cluster.nodes[1].kill()
    cluster.fail_over(1)
    cluster.world.finish(aborting)
    assert isinstance(app.outcomes[b"b"], TransactionAborted)
    app.begin()
    app.produce("t", 2, b"c")
    app.produce("t", 0, b"d")
    app.commit()
    assert committed(cluster) == [b"c", b"d"]


def test_an_abort_that_times_out_can_be_repeated(cluster: WholeCluster) -> None:
    app = transactional(cluster)
    app.begin()
    app.produce("t", 1, b"a")
    app.produce("t", 0, b"0")
    app.flush()
    cluster.nodes[1].freeze()
    app.produce("t", 0, b"b")
    cluster.world.advance(10)
    with pytest.raises(RequestTimedOut, match="1 record is in flight") as raised:
        app.abort(1000)
    assert raised.value.retriable
    with pytest.raises(IllegalState, match="abort_transaction"):
        app.begin()
    cluster.nodes[1].thaw()
    app.abort()
    app.begin()
    app.produce("t", 0, b"c")
    app.commit()
    assert committed(cluster) == [b"c"]


def test_records_produced_before_an_abort_fail_as_aborted(cluster: WholeCluster) -> None:
    app = transactional(cluster, linger_ms=1000)
    app.begin()
    app.produce("t", 0, b"a", b"b")
    app.abort()
    assert {type(outcome) for outcome in app.outcomes.values()} == {TransactionAborted}
    assert app.producer.accumulator.records == 0


def test_an_abort_goes_on_when_a_broker_demands_one(cluster: WholeCluster) -> None:
    """TRANSACTION_ABORTABLE for a batch in flight made abort_transaction raise IllegalState."""
    app = transactional(cluster)
    app.begin()
    app.produce("t", 1, b"a")
    app.produce("t", 0, b"0")
    app.flush()
    cluster.nodes[1].freeze()
    app.produce("t", 0, b"b")
    cluster.world.advance(50)
    cluster.nodes[1].fate(ProduceRequest, TRANSACTION_ABORTABLE)
    aborting = app.core.scheduler.start(app.producer.transactional().abort(None))
    cluster.world.advance(500)
    cluster.nodes[1].thaw()
    cluster.world.finish(aborting)
    app.begin()
    app.produce("t", 0, b"c")
    app.commit()
    assert committed(cluster) == [b"c"]


# -- another epoch numbers only what no broker may have --


def test_a_lost_answer_and_a_refused_record_of_another_topic_duplicate_nothing(cluster: WholeCluster) -> None:
    """The refused one raised the epoch, and the batch whose answer was lost was sent again under it."""
    app = Application(cluster, linger_ms=0)
    app.produce("t", 0, b"warm")
    app.flush()
    cluster.nodes[1].fate(ProduceRequest, UNHEARD, INVALID_RECORD)
    app.produce("t", 0, b"a")
    cluster.world.advance(20)
    app.produce("u", 0, b"refused")
    app.produce("t", 0, b"b")
    app.flush()
    assert isinstance(app.outcomes[b"refused"], KafkaError)
    assert cluster.values("t", [0]) == [b"warm", b"a", b"b"]
    app.produce("u", 0, b"next")
    app.flush()
    assert cluster.values("u", [0]) == [b"next"]


def test_batches_behind_an_expired_one_are_not_duplicated(cluster: WholeCluster) -> None:
    """Sent, perhaps appended, and expired: what was sent behind it keeps its numbers until a broker has answered."""
    app = Application(cluster, linger_ms=0, batch_size=0, delivery_timeout_ms=3000, request_timeout_ms=1000)
    app.produce("t", 0, b"warm")
    app.flush()
    cluster.nodes[1].fate(ProduceRequest, UNHEARD)
    app.produce("t", 0, b"a")
    cluster.world.advance(2)
    cluster.nodes[1].fate(ProduceRequest, *[LOST] * 50)
    cluster.world.advance(2000)
    app.produce("t", 0, b"b", b"c")
    cluster.world.advance(2000)
    assert isinstance(app.outcomes[b"a"], RequestTimedOut)
    cluster.nodes[1].fates.clear()
    app.flush()
    assert cluster.values("t", [0]) == [b"warm", b"a", b"b", b"c"]


def test_a_lost_answer_behind_a_partition_s_first_batch_duplicates_nothing(cluster: WholeCluster) -> None:
    """The first batch was refused. The second was appended, as a broker accepts any first sequence, and sent again under
    another epoch because its answer was lost."""
    app = Application(cluster, linger_ms=0, batch_size=0)
    app.produce("u", 0, b"warm")
    app.flush()
    cluster.nodes[1].fate(ProduceRequest, INVALID_RECORD, UNHEARD)
    app.produce("t", 0, b"a", b"b", b"c")
    app.flush()
    assert isinstance(app.outcomes[b"a"], KafkaError)
    assert cluster.values("t", [0]) == [b"b", b"c"]


@pytest.mark.parametrize("others", [(0, 1), (1, 0)])
@pytest.mark.replaces_code
def test_no_batch_is_sent_without_a_producer_id_when_the_epochs_are_used_up(
    cluster: WholeCluster, monkeypatch: pytest.MonkeyPatch, others: tuple[int, int]
) -> None:
    """Partitions without a hole sent batches with producer id -1, outside of the protection against duplicates."""
    monkeypatch.setattr(sender, "_LAST_EPOCH", 0)
    app = Application(cluster, linger_ms=0, batch_size=0)
    app.produce("t", 0, b"warm 0")
    app.produce("t", 1, b"warm 1")
    app.flush()
    cluster.nodes[1].fate(ProduceRequest, INVALID_RECORD)
    app.produce("t", 0, b"refused")
    cluster.world.advance(20)
    for index in others:
        app.producer.append("t", index, 5, None, b"next %d" % index, None, None)
    app.flush()
    for index in others:
        headers = cluster.engine.headers(TopicPartition("t", index))
        assert [header.producer_id >= 0 for header in headers] == [True, True]
    assert cluster.values("t", [0, 1]) == [b"warm 0", b"next 0", b"warm 1", b"next 1"]


@pytest.mark.parametrize("recreated", [False, True])
def test_a_first_batch_that_is_refused_once_comes_before_the_second(cluster: WholeCluster, *, recreated: bool) -> None:
    """The second one was accepted as the first of the producer; the first one failed with SequenceLost."""
    app = Application(cluster, linger_ms=0, batch_size=0)
    app.produce("u" if not recreated else "t", 0, b"warm")
    app.flush()
    if recreated:
        cluster.engine.delete_topic("t")
        cluster.engine.create_topic("t", 3)
        app.run(app.core.metadata.fetch(["t"]))
    cluster.nodes[1].fate(ProduceRequest, NOT_LEADER_OR_FOLLOWER)
    app.produce("t", 0, b"a", b"b", b"c")
    app.flush()
    assert cluster.values("t", [0]) == [b"a", b"b", b"c"]


# -- after an outage --


def test_a_backlog_leaves_in_full_batches(cluster: WholeCluster) -> None:
    """30 s of 600 records a second took 6.7 s and 4,217 requests to catch up."""
    app = Application(cluster)
    app.produce("t", 0, b"warm 0")
    app.produce("t", 1, b"warm 1")
    app.produce("t", 2, b"warm 2")
    app.flush()
    for node in cluster.nodes.values():
        node.kill()
    for number in range(6000):
        app.produce("t", number % 3, b"%0100d" % number)
        cluster.world.advance(1 if number % 3 else 3)
    before = app.producer.sender.sensors.requests.count
    for node in cluster.nodes.values():
        node.start()
    app.flush()
    assert len(app.acknowledged) == 6003
    assert app.producer.sender.sensors.requests.count - before <= 70  # 690 KB in batches of 16 KB, and first attempts
    for index in range(3):
        values = cluster.values("t", [index])[1:]
        assert values == sorted(values)
        assert len(values) == 2000


def test_batches_in_an_outage_expire_when_they_are_old(cluster: WholeCluster) -> None:
    """The time of delivery counts from the first record of a batch, not from when the batch was closed."""
    app = Application(cluster, delivery_timeout_ms=5000, request_timeout_ms=1000)
    app.produce("t", 0, b"warm")
    app.flush()
    for node in cluster.nodes.values():
        node.kill()
    app.produce("t", 0, b"a")
    cluster.world.advance(100)
    app.produce("t", 0, b"b")
    cluster.world.advance(6500)
    assert [type(app.outcomes.get(value)) for value in (b"a", b"b")] == [RequestTimedOut, RequestTimedOut]


def test_one_flush_in_an_outage_sends_everything(cluster: WholeCluster) -> None:
    app = Application(cluster, linger_ms=60_000)
    app.produce("t", 0, b"warm")
    app.flush()
    for node in cluster.nodes.values():
        node.kill()
    app.produce("t", 0, b"a")
    assert app.flush(1) == 1
    app.produce("t", 0, b"b")
    assert app.flush(1) == 2
    for node in cluster.nodes.values():
        node.start()
    assert app.flush(20) == 0
    assert cluster.values("t", [0]) == [b"warm", b"a", b"b"]


# -- a topic that was deleted and created again --


def test_a_topic_recreated_with_fewer_partitions_gets_every_record(cluster: WholeCluster) -> None:
    """The producer went on with the partitions that there had been: 301 of 453 records failed."""
    app = Application(cluster, partitioner="round_robin")
    app.produce("t", -1, *(b"old %d" % number for number in range(9)))
    app.flush()
    cluster.engine.delete_topic("t")
    app.produce("t", -1, *(b"between %d" % number for number in range(9)))
    cluster.world.advance(300)
    cluster.engine.create_topic("t", 1)
    app.produce("t", -1, *(b"new %d" % number for number in range(90)))
    app.flush()
    assert len(app.acknowledged) == 108
    values = cluster.values("t", [0])
    assert sorted(values) == sorted(value for value in app.outcomes if not value.startswith(b"old"))


def test_a_record_for_a_deleted_partition_fails_at_once(cluster: WholeCluster) -> None:
    app = Application(cluster)
    app.produce("t", 2, b"old")
    app.flush()
    cluster.engine.delete_topic("t")
    cluster.engine.create_topic("t", 1)
    before = cluster.world.now
    app.produce("t", 2, b"new")
    app.flush()
    assert cluster.world.now - before < 5000
    assert "has no partition 2" in str(app.outcomes[b"new"])


@pytest.mark.parametrize("fails", [False, True])
def test_a_partitioner_that_names_a_partition_that_is_gone_fails_its_records(
    cluster: WholeCluster, *, fails: bool
) -> None:
    """The client's thread was busy for good."""

    def choose(topic: TopicBuffers, key: bytes | None) -> int:
        if fails and topic.partitions == 1 and key == b"2":
            raise ZeroDivisionError("no such key")
        return int(key or b"0")

    app = Application(cluster, choose, linger_ms=0)
    app.produce("t", -1, b"warm", key=b"2")
    app.flush()
    cluster.engine.delete_topic("t")
    cluster.engine.create_topic("t", 1)
    app.produce("t", -1, b"gone", key=b"2")
    app.produce("t", -1, b"here", key=b"0")
    app.flush(30)
    what = "the partitioner failed: ZeroDivisionError" if fails else "the partitioner chose partition 2"
    assert what in str(app.outcomes[b"gone"])
    assert cluster.values("t", [0]) == [b"here"]


def test_records_of_a_transaction_for_partitions_that_are_gone_fail_it(
    cluster: WholeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """With more than one of them the sender stopped with a KeyError."""
    app = transactional(cluster, linger_ms=1000)
    app.begin()
    app.produce("t", 0, b"w0")
    app.produce("t", 1, b"w1")
    app.produce("t", 2, b"w2")
    app.flush()
    cluster.engine.delete_topic("t")
    cluster.engine.create_topic("t", 1)
    app.produce("t", 1, b"a")
    app.produce("t", 2, b"b")
    app.produce("t", 0, b"c")
    with pytest.raises(IllegalState, match="has no partition"):
        app.commit(20_000)
    assert {type(app.outcomes[value]) for value in (b"a", b"b", b"c")} == {UnknownTopic}
    assert "KeyError" not in caplog.text
    app.abort()


def test_a_producer_finds_a_topic_again_after_all_brokers_lagged(cluster: WholeCluster) -> None:
    """The id of the topic that exists was retired for good, and every record failed."""
    stale = cluster.engine.image.topics["t"].id
    cluster.engine.delete_topic("t")
    cluster.engine.create_topic("t", 3)
    app = Application(cluster)
    app.produce("t", 0, b"a")
    app.flush()
    seen = cluster.as_seen

    def lagging(answer: Any) -> Any:
        for topic in seen(answer).topics:
            topic.topic_id = stale if topic.name == "t" else topic.topic_id
        return answer

    cluster.as_seen = lagging  # type: ignore[method-assign]
    cluster.lead("t", 0, 2)
    app.produce("t", 0, b"b")
    cluster.world.advance(5000)
    cluster.as_seen = seen  # type: ignore[method-assign]
    before = cluster.world.now
    app.flush(100)
    assert cluster.world.now - before < 45_000
    assert cluster.values("t", [0]) == [b"a", b"b"]


# -- outages --


def test_init_transactions_waits_for_brokers_until_its_timeout(cluster: WholeCluster) -> None:
    """It gave up after socket.connection.setup.timeout.ms."""
    for node in cluster.nodes.values():
        node.kill()
    app = Application(cluster, transactional_id="tx")
    before = cluster.world.now
    with pytest.raises(BrokersUnreachable, match=r"one:9092.*two:9092.*three:9092"):
        app.run(app.producer.transactional().init(25_000))
    assert 24_000 <= cluster.world.now - before <= 25_100
    task = app.core.scheduler.start(app.producer.transactional().init(None))
    cluster.world.advance(40_000)
    for node in cluster.nodes.values():
        node.start()
    cluster.world.finish(task)


def test_abort_transaction_outlives_an_outage(cluster: WholeCluster) -> None:
    app = transactional(cluster)
    app.begin()
    app.produce("t", 0, b"a")
    app.flush()
    for node in cluster.nodes.values():
        node.kill()
    task = app.core.scheduler.start(app.producer.transactional().abort(None))
    cluster.world.advance(30_000)
    assert not task.done
    for node in cluster.nodes.values():
        node.start()
    cluster.world.finish(task)
    assert committed(cluster) == []


# -- flush, and the time of delivery --


@pytest.mark.parametrize("idempotent", ["true", "false"])
def test_flush_returns_when_the_last_batch_expires(cluster: WholeCluster, idempotent: str) -> None:
    """It went on until its own timeout was over."""
    app = Application(
        cluster, delivery_timeout_ms=3000, request_timeout_ms=1000, linger_ms=0, enable_idempotence=idempotent
    )
    app.produce("t", 0, b"warm")
    app.flush()
    cluster.nodes[1].fate(ProduceRequest, *[NOT_ENOUGH_REPLICAS] * 1000)
    app.produce("t", 0, b"a")
    before = cluster.world.now
    assert app.flush(300) == 0
    assert isinstance(app.outcomes[b"a"], RequestTimedOut)
    assert cluster.world.now - before < 4500


def test_records_expire_while_no_broker_gives_a_producer_id(cluster: WholeCluster) -> None:
    """They had no outcome until one did."""
    app = Application(cluster, linger_ms=0, delivery_timeout_ms=5000, request_timeout_ms=1000)
    for node in cluster.nodes.values():
        node.fate(InitProducerIdRequest, *[COORDINATOR_NOT_AVAILABLE] * 10_000)
    app.produce("t", 0, b"a")
    cluster.world.advance(3000)
    app.produce("t", 0, b"b")
    cluster.world.advance(3500)
    assert isinstance(app.outcomes[b"a"], RequestTimedOut)
    assert b"b" not in app.outcomes
    for node in cluster.nodes.values():
        node.fates.clear()
    app.flush()
    assert cluster.values("t", [0]) == [b"b"]
