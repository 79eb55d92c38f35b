"""Ottla's Python client beside confluent-kafka, kafka-python and aiokafka, on one Ottla broker in a process of its own.

    python bench/clients.py [--only produce consume latency idle import list] [--records 400000] [--rounds 5]

produce  records/s, record by record, until all are acknowledged (acks=all), of 100 bytes and of 1 KB; besides produce_many
         and produce_arrow
consume  records/s, record by record; besides poll_arrow against confluent-kafka's records put into a pandas frame
latency  p50 and p99 from produce to consume, one record at a time, linger 0; of one partition, and of a consumer of 1,000
idle     CPU of a consumer that waits for records, in per cent of a core
import   milliseconds that `import ottla` adds to a bare interpreter
list     milliseconds of a process of `ottla topics --list`

Every side writes to a topic of one partition with its own defaults but for what is named here; the topic is deleted after its
round. Each is run until two rounds agree within 10 % (at most ten), then rounds of all sides take turns, in this
process, and the median of each counts. There are half as many records of 1 KB, and a tenth for clients written in Python only:
with fewer records connecting and the first batches, which are no part of a rate, take most of the time.
"""

import argparse
import asyncio
import gc
import os
import resource
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import aiokafka
import kafka as kafka_python
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
from confluent_kafka import Consumer as RdConsumer
from confluent_kafka import Producer as RdProducer
from confluent_kafka import TopicPartition as RdPartition

from broker_speed import delete_topic
from brokers import READING, REMOVE_SOON, Running, ottla, record
from ottla import Admin, Consumer, NewTopic, Producer, TopicPartition

SIZES: Final = (100, 1000)
Case = Callable[[str, str, int, int], float]
"""(bootstrap servers, topic, records, size) -> seconds"""


def new_topic(broker: Running, partitions: int = 1) -> str:
    """A new topic."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name, partitions, 1)]).check()
    return name


def produced(broker: Running, case: Case, count: int, size: int) -> float:
    """Seconds of a producer with a topic of its own."""
    topic = new_topic(broker)
    seconds = case(broker.bootstrap_servers, topic, count, size)
    delete_topic(broker, topic)
    return seconds


# Producers.


def produce_ottla(servers: str, topic: str, count: int, size: int) -> float:
    value = bytes(size)
    with Producer(bootstrap_servers=servers) as producer:
        producer.partitions_for(topic)
        begun = time.perf_counter()
        for _ in range(count):
            producer.produce(topic, value)
        assert producer.flush() == 0
        return time.perf_counter() - begun


def produce_many_ottla(servers: str, topic: str, count: int, size: int) -> float:
    values = [bytes(size)] * count
    with Producer(bootstrap_servers=servers) as producer:
        producer.partitions_for(topic)
        begun = time.perf_counter()
        producer.produce_many(topic, values)
        assert producer.flush() == 0
        return time.perf_counter() - begun


def produce_arrow_ottla(servers: str, topic: str, count: int, size: int) -> float:
    table = pa.table({"value": pa.array([bytes(size)] * count, pa.binary())})
    with Producer(bootstrap_servers=servers) as producer:
        producer.partitions_for(topic)
        begun = time.perf_counter()
        written = producer.produce_arrow(table, topic)
        assert producer.flush() == 0
        assert written.result().records == count
        return time.perf_counter() - begun


def produce_confluent(servers: str, topic: str, count: int, size: int) -> float:
    value = bytes(size)
    producer = RdProducer(
        {"bootstrap.servers": servers, "enable.idempotence": True, "queue.buffering.max.messages": count + 1}
    )
    producer.list_topics(topic, timeout=10)
    begun = time.perf_counter()
    for _ in range(count):
        producer.produce(topic, value)
        producer.poll(0)
    assert producer.flush() == 0
    return time.perf_counter() - begun


def produce_kafka_python(servers: str, topic: str, count: int, size: int) -> float:
    value = bytes(size)
    producer = kafka_python.KafkaProducer(bootstrap_servers=servers, linger_ms=5)
    producer.partitions_for(topic)
    begun = time.perf_counter()
    for _ in range(count):
        producer.send(topic, value)
    producer.flush()
    seconds = time.perf_counter() - begun
    producer.close()
    return seconds


def produce_aiokafka(servers: str, topic: str, count: int, size: int) -> float:
    value = bytes(size)

    async def run() -> float:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=servers, enable_idempotence=True, linger_ms=5
        ) as producer:
            await producer.partitions_for(topic)
            begun = time.perf_counter()
            for _ in range(count):
                await producer.send(topic, value)
            await producer.flush()
            return time.perf_counter() - begun

    return asyncio.run(run())


# Consumers.


def consume_ottla(servers: str, topic: str, count: int, size: int) -> float:
    del size
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert consumer.poll(30) is not None
        begun = time.perf_counter()
        for _ in range(count - 1):
            assert consumer.poll(30) is not None
        return time.perf_counter() - begun


def consume_confluent(servers: str, topic: str, count: int, size: int) -> float:
    del size
    consumer = RdConsumer(
        {**READING, "bootstrap.servers": servers, "group.id": "bench", "auto.offset.reset": "earliest"}
    )
    consumer.assign([RdPartition(topic, 0, 0)])
    while consumer.poll(1) is None:
        pass
    begun = time.perf_counter()
    left = count - 1
    while left:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            left -= 1
    seconds = time.perf_counter() - begun
    consumer.close()
    return seconds


def consume_kafka_python(servers: str, topic: str, count: int, size: int) -> float:
    del size
    consumer = kafka_python.KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
    consumer.assign([kafka_python.TopicPartition(topic, 0)])
    next(consumer)
    begun = time.perf_counter()
    for _ in range(count - 1):
        next(consumer)
    seconds = time.perf_counter() - begun
    consumer.close()
    return seconds


def consume_aiokafka(servers: str, topic: str, count: int, size: int) -> float:
    del size

    async def run() -> float:
        async with aiokafka.AIOKafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([aiokafka.TopicPartition(topic, 0)])
            await consumer.getone()
            begun = time.perf_counter()
            for _ in range(count - 1):
                await consumer.getone()
            return time.perf_counter() - begun

    return asyncio.run(run())


def frame_ottla(servers: str, topic: str, count: int, size: int) -> float:
    del size
    with Consumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", max_partition_fetch_bytes=8 << 20
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        begun = time.perf_counter()
        parts, rows = [], 0
        while rows < count:
            table = consumer.poll_arrow(30, columns=["offset", "timestamp", "key", "value"])
            assert table is not None
            parts.append(table.to_pandas())
            rows += table.num_rows
        frame = pd.concat(parts)
        assert len(frame) == count
        return time.perf_counter() - begun


def frame_confluent(servers: str, topic: str, count: int, size: int) -> float:
    del size
    consumer = RdConsumer(
        {**READING, "bootstrap.servers": servers, "group.id": "bench", "auto.offset.reset": "earliest"}
    )
    consumer.assign([RdPartition(topic, 0, 0)])
    begun = time.perf_counter()
    rows: list[tuple[Any, ...]] = []
    while len(rows) < count:
        messages = [message for message in consumer.consume(10_000, 1) if message.error() is None]
        rows += [(message.offset(), message.timestamp()[1], message.key(), message.value()) for message in messages]
    frame = pd.DataFrame(rows, columns=["offset", "timestamp", "key", "value"])
    assert len(frame) == count
    seconds = time.perf_counter() - begun
    consumer.close()
    return seconds


PRODUCERS: Final[dict[str, Case]] = {
    "ottla": produce_ottla,
    "ottla produce_many": produce_many_ottla,
    "ottla produce_arrow": produce_arrow_ottla,
    "confluent-kafka": produce_confluent,
    "kafka-python": produce_kafka_python,
    "aiokafka": produce_aiokafka,
}
CONSUMERS: Final[dict[str, Case]] = {
    "ottla": consume_ottla,
    "confluent-kafka": consume_confluent,
    "kafka-python": consume_kafka_python,
    "aiokafka": consume_aiokafka,
    "ottla poll_arrow": frame_ottla,
    "confluent-kafka to pandas": frame_confluent,
}


def warmed(run: Callable[[], float]) -> None:
    """Run until two rounds agree within 10 %, at most ten times."""
    last = run()
    for _ in range(9):
        seconds = run()
        if abs(seconds - last) <= 0.1 * last:
            return
        last = seconds


def rates(broker: Running, cases: dict[str, Case], records: int, rounds: int, *, fill: bool) -> dict[str, float]:
    """Records/s by side and size."""
    medians = {}
    for size in SIZES:
        count = records if size < 500 else records // 2
        filled = new_topic(broker)
        if fill:
            produce_confluent(broker.bootstrap_servers, filled, count, size)
        runs: dict[str, Callable[[], float]] = {}
        counts = {name: count if name.startswith(("ottla", "confluent")) else count // 10 for name in cases}
        for name, case in cases.items():
            if fill:
                runs[name] = partial(case, broker.bootstrap_servers, filled, counts[name], size)
            else:
                runs[name] = partial(produced, broker, case, counts[name], size)
            warmed(runs[name])
        times: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(rounds):
            for name, run in runs.items():
                gc.collect()
                times[name].append(run())
        for name in cases:
            medians[f"{name} {size}"] = rate = counts[name] / statistics.median(times[name])
            print(f"  {name:28} {size:5} bytes {rate:12,.0f} records/s")
    return medians


def latency_ottla(broker: Running, partitions: int, count: int) -> list[float]:
    """Seconds from produce to consume of each record."""
    servers, topic = broker.bootstrap_servers, new_topic(broker, partitions)
    times = []
    with Producer(bootstrap_servers=servers, linger_ms=0) as producer, Consumer(bootstrap_servers=servers) as consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
        consumer.seek_to_beginning()
        for number in range(count):
            begun = time.perf_counter()
            producer.produce(topic, b"x", partition=number % min(partitions, 10))
            assert consumer.poll(30) is not None
            times.append(time.perf_counter() - begun)
    return times


def latency_confluent(broker: Running, partitions: int, count: int) -> list[float]:
    """Seconds from produce to consume of each record."""
    servers, topic = broker.bootstrap_servers, new_topic(broker, partitions)
    producer = RdProducer({"bootstrap.servers": servers, "linger.ms": 0, "enable.idempotence": True})
    consumer = RdConsumer({"bootstrap.servers": servers, "group.id": "b", "fetch.wait.max.ms": 500})
    consumer.assign([RdPartition(topic, number, 0) for number in range(partitions)])
    times = []
    for number in range(count):
        begun = time.perf_counter()
        producer.produce(topic, b"x", partition=number % min(partitions, 10))
        producer.poll(0)
        while consumer.poll(1) is None:
            pass
        times.append(time.perf_counter() - begun)
    consumer.close()
    producer.flush()
    return times


def latencies(broker: Running, rounds: int, partitions: int, count: int) -> dict[str, float]:
    """Milliseconds from produce to consume, medians of the rounds; the first tenth of a round warms."""
    sides = {"ottla": latency_ottla, "confluent-kafka": latency_confluent}
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, times in sides.items():
            cut = statistics.quantiles(times(broker, partitions, count)[count // 10 :], n=100)
            measured[name].append((cut[49] * 1000, cut[98] * 1000))
    figures: dict[str, float] = {}
    for name, quantiles in measured.items():
        p50, p99 = (statistics.median(column) for column in zip(*quantiles, strict=True))
        side = name if partitions == 1 else f"{name} {partitions} partitions,"
        print(
            f"  {side:34} p50 {p50:6.2f} ms   p99 {p99:6.2f} ms   ({', '.join(f'{median:.2f}' for median, _ in quantiles)})"
        )
        figures |= {f"{side} p50 ms": p50, f"{side} p99 ms": p99}
    return figures


def idle(broker: Running, seconds: float = 20) -> float:
    """Per cent of a core that a consumer takes which waits."""
    topic = new_topic(broker)
    with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="idle") as consumer:
        consumer.subscribe([topic])
        consumer.poll(3)
        before = resource.getrusage(resource.RUSAGE_SELF)
        consumer.poll(seconds)
        after = resource.getrusage(resource.RUSAGE_SELF)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"  an idle consumer takes {used / seconds:.2%} of a core")
    return used / seconds


def import_ms() -> float:
    """Return the time that `import ottla` adds to an interpreter, median of twenty."""
    code = "import time; t = time.perf_counter(); import ottla; print((time.perf_counter() - t) * 1000)"
    times = [float(subprocess.check_output([sys.executable, "-c", code], env=os.environ)) for _ in range(20)]
    print(f"  import ottla: {statistics.median(times):.1f} ms")
    return statistics.median(times)


def listing_ms(broker: Running) -> float:
    """A process of `ottla topics --list` from its start to its end, median of twenty."""
    command = [sys.executable, "-m", "ottla", "topics", "--bootstrap-server", broker.bootstrap_servers, "--list"]
    times = []
    for _ in range(20):
        begun = time.perf_counter()
        subprocess.check_output(command, env=os.environ)
        times.append((time.perf_counter() - begun) * 1000)
    print(f"  ottla topics --list: {statistics.median(times):.0f} ms")
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=["produce", "consume", "latency", "idle", "import", "list"])
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    with ottla(*REMOVE_SOON) as broker:
        if "produce" in options.only:
            figures["produce"] = rates(broker, PRODUCERS, options.records, options.rounds, fill=False)
        if "consume" in options.only:
            figures["consume"] = rates(broker, CONSUMERS, options.records, options.rounds, fill=True)
        if "latency" in options.only:
            figures["latency"] = latencies(broker, options.rounds, 1, 2000) | latencies(
                broker, options.rounds, 1000, 300
            )
        if "idle" in options.only:
            figures["idle"] = idle(broker)
        if "list" in options.only:
            figures["list ms"] = listing_ms(broker)
    if "import" in options.only:
        figures["import ms"] = import_ms()
    record(figures)


if __name__ == "__main__":
    main()
