"""Transactions beside Apache Kafka 4.4.0, and what idempotence costs.

    python bench/transactions.py [--only rate] [--seconds 5]

rate      transactions/s of one producer, ten records of 100 bytes each, and the time from begin to commit: of confluent-kafka
          (version 1 of transactions: partitions are added, then written, then committed), and of requests sent by hand
          (version 2: written and committed)
cpu       CPU time of Ottla per record, idempotent beside plain, acks=all, in pairs of runs; the median of the ratios
memory    what Ottla needs for 100,000 idempotent producers in one partition
"""

import argparse
import socket
import statistics
import time
import uuid
from contextlib import ExitStack
from typing import Any

from confluent_kafka import Producer

from broker_speed import new_topic
from brokers import Running, kafka, kafka_is_there, ottla, record
from ottla.protocol.connection import ClientConnection
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.schema import Request
from ottla.records.batch import build
from ottla.records.record import Record

RECORDS = 10
ROUNDS = 5
PAIRS = 9
PRODUCERS = 100_000
VALUE = b"v" * 100


class Requests:
    """One connection, spoken to in messages."""

    def __init__(self, broker: Running) -> None:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), 30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = ClientConnection("bench")

    def send(self, request: Request, version: int) -> None:
        self._socket.sendall(b"".join(self._connection.request(request, version)))

    def receive(self) -> list[Any]:
        """The next answers, as many as there are."""
        answers: list[Any] = []
        while not answers:
            answers = list(self._connection.feed(self._socket.recv(1 << 16)))
        return answers

    def ask(self, request: Request, version: int) -> Any:
        self.send(request, version)
        return self.receive()[0]

    def until_it_can(self, request: Request, version: int) -> Any:
        """Ask until the answer is no error."""
        while (answer := self.ask(request, version)).error_code:
            time.sleep(0.01)  # a coordinator that loads says no more than that: it is asked again
        return answer


class Figures:
    """Transactions/s, and the times from begin to commit, in ms."""

    def __init__(self, times_ms: list[float], elapsed_s: float) -> None:
        self.rate = len(times_ms) / elapsed_s
        times_ms.sort()
        self.p50, self.p99 = times_ms[len(times_ms) // 2], times_ms[len(times_ms) * 99 // 100]


def by_confluent_kafka(broker: Running, seconds: float) -> Figures:
    topic = new_topic(broker)
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": f"bench-{uuid.uuid4().hex[:8]}",
            "linger.ms": 0,
        }
    )
    producer.init_transactions(60)
    times: list[float] = []
    started = time.perf_counter()
    while (begun := time.perf_counter()) < started + seconds:
        producer.begin_transaction()
        for _ in range(RECORDS):
            producer.produce(topic, VALUE)
        producer.commit_transaction(60)
        times.append((time.perf_counter() - begun) * 1000)
    return Figures(times, time.perf_counter() - started)


def by_hand(broker: Running, seconds: float) -> Figures:
    """Version 2. A broker that still writes the markers of the transaction before is asked again, as clients do."""
    topic, transactional_id = new_topic(broker), f"bench-{uuid.uuid4().hex[:8]}"
    requests = Requests(broker)
    while (
        requests.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id]), 4)
        .coordinators[0]
        .error_code
    ):
        time.sleep(0.1)
    begin = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    response = requests.until_it_can(begin, 5)
    producer_id, epoch = response.producer_id, response.producer_epoch
    times: list[float] = []
    started = time.perf_counter()
    while (begun := time.perf_counter()) < started + seconds:
        batch = build(
            [Record(at, 1_700_000_000_000, None, VALUE) for at in range(RECORDS)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=0,
            transactional=True,
        )
        data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])]
        produce = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=30_000, topic_data=data)
        while requests.ask(produce, 12).responses[0].partition_responses[0].error_code:
            time.sleep(0.001)
        end = EndTxnRequest(
            transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch, committed=True
        )
        answer = requests.until_it_can(end, 5)
        producer_id, epoch = answer.producer_id, answer.producer_epoch
        times.append((time.perf_counter() - begun) * 1000)
    return Figures(times, time.perf_counter() - started)


def rates(sides: list[Running], seconds: float) -> dict[str, object]:
    figures: dict[str, object] = {}
    for name, measure in (("by confluent-kafka", by_confluent_kafka), ("by hand, version 2", by_hand)):
        for side in sides:
            measure(side, seconds)  # warm
        results: dict[str, list[Figures]] = {side.name: [] for side in sides}
        for _ in range(ROUNDS):
            for side in sides:
                results[side.name].append(measure(side, seconds))
        shown, medians = [], {}
        for side_name, runs in results.items():
            rate, p50, p99 = (statistics.median(getattr(run, what) for run in runs) for what in ("rate", "p50", "p99"))
            medians[side_name] = {"/s": rate, "p50 ms": p50, "p99 ms": p99}
            shown.append(f"{side_name} {rate:,.0f} /s, begin to commit p50 {p50:.2f} ms, p99 {p99:.2f} ms")
        print(f"transactions of {RECORDS} records, {name}: {'; '.join(shown)}", flush=True)
        figures[name] = medians
    return figures


def cpu_per_record(broker: Running, records: int, *, idempotent: bool) -> float:
    """Microseconds of the broker's CPU for each record of a topic of its own."""
    topic = new_topic(broker)
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "enable.idempotence": idempotent,
            "acks": "all",
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    producer.list_topics(topic, 10)
    before = broker.cpu_seconds()
    for _ in range(records // 1000):
        for _ in range(1000):
            while True:
                try:
                    producer.produce(topic, VALUE)
                    break
                except BufferError:
                    producer.poll(0.01)
        producer.poll(0)
    producer.flush(60)
    return (broker.cpu_seconds() - before) / records * 1e6


def cpu(broker: Running, records: int) -> dict[str, object]:
    for idempotent in (False, True):
        cpu_per_record(broker, records, idempotent=idempotent)  # warm
    pairs = []
    for number in range(PAIRS):
        order = (False, True) if number % 2 else (True, False)
        seconds = {idempotent: cpu_per_record(broker, records, idempotent=idempotent) for idempotent in order}
        pairs.append((seconds[False], seconds[True]))
    ratio = statistics.median(with_it / without for without, with_it in pairs)
    plain, idempotent_cpu = (statistics.median(pair[at] for pair in pairs) for at in (0, 1))
    print(f"CPU per record: plain {plain:.3f} us, idempotent {idempotent_cpu:.3f} us; of pairs {ratio:.3f}", flush=True)
    return {"plain_us": plain, "idempotent_us": idempotent_cpu, "ratio": ratio}


def memory() -> dict[str, object]:
    """MB that 100,000 producers add to a broker that has seen as many batches of none."""
    grown = []
    for idempotent in (False, True):
        with ottla() as broker:
            topic = new_topic(broker)
            requests = Requests(broker)
            before = broker.resident_mb()
            waiting = 0
            for number in range(PRODUCERS):
                who: dict[str, Any] = (
                    {"producer_id": number, "producer_epoch": 0, "base_sequence": 0} if idempotent else {}
                )
                batch = build([Record(0, int(time.time() * 1000), None, VALUE)], **who)
                data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])]
                requests.send(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=data), 9)
                waiting += 1
                while waiting >= 50:
                    answers = requests.receive()
                    assert all(response.responses[0].partition_responses[0].error_code == 0 for response in answers)
                    waiting -= len(answers)
            while waiting:
                waiting -= len(requests.receive())
            grown.append(broker.resident_mb() - before)
    print(f"memory for {PRODUCERS:,} producers: {grown[1] - grown[0]:.0f} MB", flush=True)
    return {"producers": PRODUCERS, "mb": grown[1] - grown[0], "plain_mb": grown[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["rate", "cpu", "memory"], action="append")
    parser.add_argument("--seconds", type=float, default=5, help="length of a round of transactions")
    parser.add_argument("--records", type=int, default=500_000, help="records of a run that measures CPU")
    arguments = parser.parse_args()
    only = arguments.only or ["rate", "cpu", "memory"]
    figures: dict[str, object] = {}
    if "rate" in only:
        missing = kafka_is_there()
        if missing:
            print(f"Apache Kafka is left out: {missing}")
        with ExitStack() as stack:
            sides = [stack.enter_context(ottla())]
            if not missing:
                sides.append(stack.enter_context(kafka()))
            figures[f"transactions of {RECORDS} records"] = rates(sides, arguments.seconds)
    if "cpu" in only:
        with ottla() as broker:
            figures["CPU of a record"] = cpu(broker, arguments.records)
    if "memory" in only:
        figures["memory of idempotent producers"] = memory()
    record(figures)


if __name__ == "__main__":
    main()
