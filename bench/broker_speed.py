"""The broker beside Apache Kafka 4.4.0: start, memory, produce, consume, small requests, latency.

    python bench/broker_speed.py [--only produce] [--seconds 3]

Both brokers run at the same time on the same machine and are measured in turn with confluent-kafka, librdkafka's defaults
except for what a scenario names. Each side is warmed up until two rounds agree within 10 % (at most ten), then the rounds
alternate and the median of five counts. One partition, acks=1, values of 1 KB where not said otherwise; topics that are
produced to are deleted after their round.
"""

import argparse
import statistics
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from brokers import READING, REMOVE_SOON, Running, kafka, kafka_is_there, ottla, record

ROUNDS = 5
WARM_WITHIN = 0.10
MOST_WARMING = 10


def new_topic(broker: Running, partitions: int = 1) -> str:
    """A topic whose leaders answer: Apache Kafka says that it is there a moment before they do."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    admin = AdminClient(broker.client)
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    ends = {TopicPartition(name, index): latest for index in range(partitions)}
    while any(answer.exception(30) for answer in admin.list_offsets(ends).values()):
        time.sleep(0.01)  # there is no notification of a new leader: ask until it answers
    return name


def delete_topic(broker: Running, topic: str) -> None:
    """Delete a topic; see REMOVE_SOON."""
    admin = AdminClient(broker.client)
    admin.delete_topics([topic])[topic].result(30)


def produce_megabytes(broker: Running, megabytes: int, topic: str | None = None) -> float:
    """MB/s of 1 KB values, to a topic that is deleted afterwards unless it is given."""
    if topic is None:
        topic = new_topic(broker)
        rate = produce_megabytes(broker, megabytes, topic)
        delete_topic(broker, topic)
        return rate
    producer = Producer({**broker.client, "acks": 1, "queue.buffering.max.messages": 1_000_000})
    producer.list_topics(topic, 10)
    value, produce = b"v" * 1000, producer.produce
    begun = time.perf_counter()
    for _ in range(megabytes):
        for _ in range(1000):
            while True:
                try:
                    produce(topic, value)
                    break
                except BufferError:
                    producer.poll(0.01)
        producer.poll(0)
    producer.flush(60)
    return megabytes / (time.perf_counter() - begun)


def consume_megabytes(broker: Running, topic: str, megabytes: int) -> float:
    """MB/s of 1 KB values, from the beginning of a topic that holds them."""
    consumer = Consumer({**broker.client, **READING, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    enough, read = megabytes * 1000, 0
    begun = None
    while read < enough:
        messages = consumer.consume(10_000, 5)
        if begun is None:  # connecting is not what is measured
            begun, enough = time.perf_counter(), enough - len(messages)
            continue
        read += len(messages)
    assert begun is not None
    elapsed = time.perf_counter() - begun
    consumer.close()
    return read / 1000 / elapsed


def requests_per_second(broker: Running, in_flight: int, count: int) -> float:
    """Produce requests/s of one 100-byte record each."""
    topic = new_topic(broker)
    producer = Producer(
        {
            **broker.client,
            "acks": 1,
            "linger.ms": 0,
            "batch.num.messages": 1,
            "max.in.flight": in_flight,
        }
    )
    producer.list_topics(topic, 10)
    value = b"v" * 100
    begun = time.perf_counter()
    for _ in range(count // 1000):
        for _ in range(1000):
            producer.produce(topic, value)
        producer.flush(60)
    return count / (time.perf_counter() - begun)


def latencies_ms(broker: Running, count: int) -> tuple[float, float]:
    """p50 and p99 from produce to consume, one record at a time."""
    topic = new_topic(broker)
    producer = Producer({**broker.client, "acks": 1, "linger.ms": 0})
    consumer = Consumer(
        {
            **broker.client,
            "group.id": "l",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 500,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    times = []
    for number in range(count + 100):
        begun = time.perf_counter()
        producer.produce(topic, b"v" * 100)
        producer.poll(0)
        while consumer.poll(5) is None:
            pass
        if number >= 100:
            times.append((time.perf_counter() - begun) * 1000)
    consumer.close()
    times.sort()
    return times[len(times) // 2], times[len(times) * 99 // 100]


def compared(name: str, unit: str, sides: list[Running], measure: Callable[[Running], float]) -> dict[str, object]:
    """Warm both sides, alternate, print the line for people; returns medians and their ratio (Ottla over the other)."""
    for side in sides:
        last = measure(side)
        for _ in range(MOST_WARMING - 1):
            latest = measure(side)
            if abs(latest - last) <= WARM_WITHIN * last:
                break
            last = latest
    results: dict[str, list[float]] = {side.name: [] for side in sides}
    for _ in range(ROUNDS):
        for side in sides:
            results[side.name].append(measure(side))
    medians = {side: statistics.median(values) for side, values in results.items()}
    ratio = medians["Ottla"] / medians[sides[1].name] if len(sides) > 1 else None
    shown = ", ".join(
        f"{side} {medians[side]:,.1f} {unit} ({min(values):,.1f}-{max(values):,.1f})"
        for side, values in results.items()
    )
    print(f"{name}: {shown}" + (f", ratio {ratio:.2f}" if ratio else ""), flush=True)
    return {"unit": unit, "medians": medians, "ratio": ratio}


def start_times() -> dict[str, object]:
    """Milliseconds from exec to the first ApiVersions answer, median of five starts."""
    ours = []
    for _ in range(ROUNDS):
        with ottla() as broker:
            ours.append(broker.started_ms)
    print(
        f"start to first ApiVersions answer: Ottla {statistics.median(ours):.0f} ms ({min(ours):.0f}-{max(ours):.0f})"
    )
    return {"unit": "ms", "Ottla": statistics.median(ours)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["start", "produce", "consume", "requests", "latency"], action="append")
    parser.add_argument("--megabytes", type=int, default=1000, help="data a round of produce and consume moves")
    parser.add_argument("--requests", type=int, default=50_000, help="requests a round")
    arguments = parser.parse_args()
    only = arguments.only or ["start", "produce", "consume", "requests", "latency"]
    figures: dict[str, Any] = {}
    if "start" in only:
        figures["start"] = start_times()
    missing = kafka_is_there()
    if missing:
        print(f"Apache Kafka is left out: {missing}")
    with ExitStack() as stack:
        sides = [stack.enter_context(ottla(*REMOVE_SOON))]
        if not missing:
            sides.append(stack.enter_context(kafka(*REMOVE_SOON)))
        print("start: " + ", ".join(f"{side.name} {side.started_ms:.0f} ms" for side in sides))
        if "start" in only:
            figures["start"] |= {side.name: side.started_ms for side in sides[1:]}
        time.sleep(1)  # idle is what is measured next: let start-up work come to rest
        idle = {side.name: side.resident_mb() for side in sides}
        print("idle memory: " + ", ".join(f"{name} {megabytes:.0f} MB" for name, megabytes in idle.items()), flush=True)
        figures["idle memory, MB"] = idle
        if "produce" in only:
            figures["produce"] = compared(
                "produce", "MB/s", sides, lambda side: produce_megabytes(side, arguments.megabytes)
            )
        if "consume" in only:
            topics = {side.name: new_topic(side) for side in sides}
            for side in sides:
                produce_megabytes(side, arguments.megabytes, topics[side.name])
            figures["consume"] = compared(
                "consume", "MB/s", sides, lambda side: consume_megabytes(side, topics[side.name], arguments.megabytes)
            )
        if "requests" in only:
            for in_flight in (1, 5):
                figures[f"produce requests of 100 bytes, {in_flight} in flight"] = compared(
                    f"100 B produce requests, {in_flight} in flight",
                    "/s",
                    sides,
                    lambda side, n=in_flight: requests_per_second(side, n, arguments.requests),  # type: ignore[misc]
                )
        if "latency" in only:
            for side in sides:
                latencies_ms(side, 2000)
            latency = {side.name: latencies_ms(side, 5000) for side in sides}
            for name, (p50, p99) in latency.items():
                print(f"produce to consume: {name} p50 {p50:.2f} ms, p99 {p99:.2f} ms")
            figures["produce to consume, p50 / p99 ms"] = latency
        figures["memory under load, MB"] = {side.name: side.resident_mb() for side in sides}
    record(figures)


if __name__ == "__main__":
    main()
