"""The producer's sender in virtual time: what is lost, refused or late on the way, and what the log has in the end."""

import contextlib
import random
from typing import Any

import pytest

from ottla.client.errors import KafkaError, RecordTooLarge, RequestTimedOut, SequenceLost
from ottla.client.producer.closed import Delivered
from ottla.client.producer.core import ProducerCore
from ottla.protocol.errors import (
    INVALID_RECORD,
    MESSAGE_TOO_LARGE,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
)
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.records.batch import read_header, records_of

from .world import LOST, TOPIC_ID, Broker, World

OK, REFUSED, FINAL, UNHEARD, GONE = "ok", "not leader", "invalid record", "appended, answer lost", "lost before"


class Log:
    """Partition 0 of topic t, as a leader keeps it for an idempotent producer.

    fate      outcomes of the next Produce requests; OK when the list is empty
    too_large bytes of a batch above which it is refused
    """

    def __init__(self, broker: Broker) -> None:
        self.values: list[bytes] = []
        self.fate: list[str] = []
        self.too_large = 1 << 30
        self._broker = broker
        self._last: dict[int, tuple[int, int]] = {}
        self._recent: list[tuple[int, int, int, int]] = []
        broker.topics["t"] = {0: 1}
        broker.on(ProduceRequest, self._produce)
        broker.on(InitProducerIdRequest, InitProducerIdResponse(producer_id=9, producer_epoch=0))

    def _produce(self, request: ProduceRequest, version: int) -> "ProduceResponse | str | None":
        fate = self.fate.pop(0) if self.fate else OK
        if fate == GONE:
            return LOST
        rows = []
        for part in request.topic_data[0].partition_data:
            code, offset = {REFUSED: (NOT_LEADER_OR_FOLLOWER, -1), FINAL: (INVALID_RECORD, -1)}.get(fate, (NONE, -1))
            if code == NONE:
                code, offset = self._append(part.records or b"")
            rows.append(PartitionProduceResponse(index=0, error_code=code, base_offset=offset))
        if fate == UNHEARD:
            return LOST
        named = {"topic_id": TOPIC_ID} if version >= 13 else {"name": "t"}
        return ProduceResponse(responses=[TopicProduceResponse(partition_responses=rows, **named)])

    def _append(self, batch: bytes) -> tuple[int, int]:
        header = read_header(batch, 0)
        if len(batch) > self.too_large:
            return MESSAGE_TOO_LARGE, -1
        if header.producer_id >= 0:
            key = (header.producer_id, header.producer_epoch, header.base_sequence)
            for producer, epoch, sequence, offset in self._recent[-5:]:
                if (producer, epoch, sequence) == key:
                    return NONE, offset
            epoch, following = self._last.get(header.producer_id, (header.producer_epoch, 0))
            if header.producer_epoch > epoch:
                following = 0
            if header.base_sequence != following:
                return OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            self._last[header.producer_id] = header.producer_epoch, header.base_sequence + header.count
            self._recent.append((*key, len(self.values)))
        offset = len(self.values)
        self.values += [record.value or b"" for record in records_of(batch)]
        return NONE, offset


class Bench:
    """A producer in a world with one broker.

    outcomes  value -> offset, or the error
    """

    def __init__(self, **configs: Any) -> None:
        self.world = World()
        self.broker = self.world.broker()
        self.log = Log(self.broker)
        self.core = self.world.core(**({"linger_ms": 0, "batch_size": 0} | configs))
        self.producer = ProducerCore(self.core, contextlib.nullcontext(), self._wake)
        self.outcomes: dict[bytes, int | KafkaError] = {}
        self.world.run(self.core, self.producer.partitions_for("t"))

    def _wake(self) -> None:
        self.world.call_later(0, self.producer.sender.take_in)

    def produce(self, *values: bytes) -> None:
        for value in values:
            self.world.run(self.core, self.producer.append_later("t", 0, 5, None, value, None, self._listener(value)))

    def _listener(self, value: bytes) -> Any:
        def on_delivery(error: KafkaError | None, delivered: Delivered | None) -> None:
            assert value not in self.outcomes
            self.outcomes[value] = error if error is not None else delivered.offset if delivered is not None else -1

        return on_delivery

    def flush(self, seconds: int = 300) -> None:
        assert self.world.run(self.core, self.producer.flush(seconds * 1000)) == 0


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


@pytest.mark.parametrize("fate", [REFUSED, UNHEARD, GONE])
@pytest.mark.parametrize("at", range(6))
def test_one_failed_request_loses_and_duplicates_nothing(fate: str, at: int) -> None:
    bench = Bench()
    bench.log.fate = [OK] * at + [fate]
    values = numbers(8)
    bench.produce(*values)
    bench.flush()
    assert bench.log.values == values
    assert bench.outcomes == {value: number for number, value in enumerate(values)}
    assert bench.producer.accumulator.buffered == 0


@pytest.mark.parametrize("seed", range(40))
def test_random_failures_lose_and_duplicate_nothing(seed: int) -> None:
    """Whatever may pass passes: every record is there once, in order, and its offset is told."""
    dice = random.Random(seed)
    bench = Bench(max_in_flight_requests_per_connection=dice.randint(1, 5), batch_size=dice.choice([0, 70, 200]))
    bench.broker.latency_ms = dice.choice([0, 1, 20])
    bench.log.fate = dice.choices([OK, REFUSED, UNHEARD, GONE], [6, 2, 2, 1], k=30)
    values = numbers(40)
    for value in values:
        bench.produce(value)
        bench.world.advance(dice.choice([0, 0, 1, 30]))
    bench.flush()
    assert bench.log.values == values
    assert bench.outcomes == {value: number for number, value in enumerate(values)}


def test_a_rejected_batch_leaves_the_others_in_order() -> None:
    """The hole is closed by another epoch (KIP-360)."""
    bench = Bench()
    bench.log.fate = [OK, OK, FINAL]
    values = numbers(10)
    bench.produce(*values)
    bench.flush()
    failed = [value for value, outcome in bench.outcomes.items() if isinstance(outcome, KafkaError)]
    assert failed == [b"2"]
    assert bench.log.values == [value for value in values if value != b"2"]
    assert bench.producer.sender.epoch == 1


def test_a_batch_that_is_too_large_is_divided() -> None:
    bench = Bench(linger_ms=50, batch_size=16_384)
    bench.log.too_large = 200
    values = [*numbers(20), bytes(500), *(b"%d" % number for number in range(100, 120))]
    bench.produce(*values)
    bench.flush()
    assert isinstance(bench.outcomes[bytes(500)], RecordTooLarge)
    assert bench.log.values == [value for value in values if value != bytes(500)]


def test_lost_producer_state_of_a_broker_raises_sequence_lost() -> None:
    bench = Bench()
    bench.produce(b"0", b"1")
    bench.flush()
    bench.log._last.clear()
    bench.log._recent.clear()
    bench.produce(b"2")
    bench.flush()
    assert isinstance(bench.outcomes[b"2"], SequenceLost)
    bench.produce(b"3")
    bench.flush()
    assert bench.outcomes[b"3"] == 2


def test_records_expire_after_the_delivery_timeout() -> None:
    bench = Bench(delivery_timeout_ms=2000, request_timeout_ms=500)
    bench.broker.on(ProduceRequest, None)
    bench.produce(b"0", b"1")
    bench.flush()
    for outcome in bench.outcomes.values():
        assert isinstance(outcome, RequestTimedOut)
        assert "not acknowledged within 2000 ms" in str(outcome)
    bench.broker.on(ProduceRequest, bench.log._produce)
    bench.produce(b"2")
    bench.flush()
    assert bench.outcomes[b"2"] == 0


def test_five_requests_are_on_their_way_at_most() -> None:
    bench = Bench(max_in_flight_requests_per_connection=3)
    bench.broker.latency_ms = 10
    bench.produce(b"first")
    bench.flush()
    before = bench.broker.asked[ProduceRequest]
    bench.produce(*numbers(9))
    bench.world.advance(12)
    assert bench.broker.asked[ProduceRequest] - before == 3
    bench.flush()
    assert bench.log.values[1:] == numbers(9)


def test_batches_that_fail_together_are_one_failure() -> None:
    """After the loss of a connection with five requests the producer waited for a second, as after five failures."""
    bench = Bench()
    bench.broker.latency_ms = 10
    bench.produce(b"first")
    bench.flush()
    bench.log.fate = [GONE]  # the first of five requests: the connection is lost with all of them
    before = bench.world.now
    bench.produce(*numbers(5))
    bench.flush()
    assert bench.log.values[1:] == numbers(5)
    assert bench.world.now - before < 300


def test_linger_fills_batches() -> None:
    bench = Bench(linger_ms=20, batch_size=16_384)
    bench.produce(*numbers(50))
    bench.world.advance(19)
    assert bench.broker.asked[ProduceRequest] == 0
    bench.flush()
    assert bench.broker.asked[ProduceRequest] == 1
    assert bench.log.values == numbers(50)


def test_without_linger_records_behind_others_fill_batches() -> None:
    """With linger.ms=0 each record was a batch of its own, and throughput a fortieth of that with linger.ms=5."""
    bench = Bench(linger_ms=0, batch_size=16_384)
    bench.broker.latency_ms = 10
    bench.produce(b"first")
    bench.flush()
    before = bench.broker.asked[ProduceRequest]
    bench.produce(*numbers(500))
    bench.flush()
    assert bench.broker.asked[ProduceRequest] - before <= 8  # five with the first records, the others in few
    assert bench.log.values[1:] == numbers(500)


def test_without_linger_a_record_is_sent_at_once() -> None:
    bench = Bench(linger_ms=0, batch_size=16_384)
    bench.produce(b"first")
    bench.flush()
    bench.produce(b"second")
    bench.world.advance(1)
    assert bench.broker.asked[ProduceRequest] == 2


def test_without_idempotence_a_lost_answer_may_append_twice() -> None:
    bench = Bench(acks="1")
    bench.log.fate = [UNHEARD]
    bench.produce(b"0")
    bench.flush()
    assert bench.log.values == [b"0", b"0"]
    assert bench.broker.asked[InitProducerIdRequest] == 0


def test_a_broker_without_producer_ids() -> None:
    """0.10 knows neither producer ids nor batches: message sets go out instead."""
    bench = Bench()
    del bench.broker.ranges[InitProducerIdRequest.API]
    bench.broker.ranges[ProduceRequest.API] = (0, 2)
    sets: list[bytes] = []

    def take(request: ProduceRequest, version: int) -> ProduceResponse:
        assert version == 2
        sets.append(bytes(request.topic_data[0].partition_data[0].records or b""))
        row = PartitionProduceResponse(index=0, base_offset=len(sets) - 1)
        return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[row])])

    bench.broker.on(ProduceRequest, take)
    bench.produce(b"one", b"two")
    bench.flush()
    assert bench.outcomes == {b"one": 0, b"two": 1}
    assert [message_set[16] for message_set in sets] == [1, 1]
    assert b"one" in sets[0]


def test_the_metadata_of_a_topic_that_was_idle_is_requested_again() -> None:
    world = World()
    broker = world.broker()
    Log(broker)
    core = world.core(metadata_max_idle_ms=5000)
    producer = ProducerCore(core, contextlib.nullcontext(), lambda: None)
    for idle_ms, requests in ((0, 1), (4000, 1), (4000, 1), (5000, 2)):
        world.advance(idle_ms)
        world.run(core, producer.append_later("t", 0, 1, None, b"v", None, None))
        assert world.run(core, producer.flush(1000)) == 0
        assert broker.asked[MetadataRequest] == requests
