"""Spark through format("ottla") beside Spark's own Kafka connector, on one broker.

    python bench/spark.py [--records 2000000] [--broker HOST:PORT] [--figures read write stream latency exactly-once]

Each side has a Spark of its own in a process of its own, local[2], with the same settings and the same jars, and keeps it. The
broker is an Ottla of this run unless --broker names another. Topics have four partitions; confluent-kafka fills them.

    read           a batch into Spark's noop sink, of 100 bytes and of 1 KB (half as many): all columns, then the value
                   alone (ours by a schema, theirs by a select, as each documents it)
    write          a batch of 100-byte values out of spark.range
    stream         availableNow of two and a half times as many 100-byte records into noop, in five batches
    latency        micro-batches as fast as they come, 4,000 records/s into noop: the median time of a batch
    exactly-once   our own sinks, no connector: the 100-byte topic into another, availableNow in five batches

A third side says what is possible (spark_ceiling.py): a Python data source of ready-made batches for reads and streams, a
Python sink that drops what it gets, and Spark's own source `rate` for the latency.

All sides are warmed up until two rounds agree within 10 % (at most ten), then the rounds alternate and the median of five
counts.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import spark_ceiling
from brokers import REFERENCE, kafka_is_there, ottla, record

ROUNDS = 5
WARM_WITHIN = 0.10
MOST_WARMING = 10
PARTITIONS = 4
BATCHES = 5
LATENCY_BATCHES = 60
SIDES = {"Ottla": "ottla", "Spark's connector": "kafka", "ceiling": spark_ceiling.NAME}
RATE = 4000
"""Records a second of the row of latency."""
FIGURES = ("read", "write", "stream", "latency", "exactly-once")


def create(servers: str) -> str:
    """A new topic; its name."""
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    return topic


def delete(servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    admin.delete_topics([topic])[topic].result(30)


def fill(servers: str, records: int, size: int) -> str:
    """A topic with this many records of so many bytes; its name."""
    topic = create(servers)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    value = b"v" * size
    for number in range(records):
        while True:
            try:
                producer.produce(topic, value, partition=number // 1000 % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise SystemExit("the topic could not be filled")
    return topic


@contextmanager
def trickling(servers: str, topic: str) -> Iterator[None]:
    """RATE records of 100 bytes a second, forty every 10 ms, while the context is open."""
    done = threading.Event()
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})

    def send() -> None:
        while not done.wait(0.01):
            for number in range(40):
                producer.produce(topic, b"v" * 100, partition=number % PARTITIONS)
            producer.poll(0)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        producer.flush(30)


class Task(NamedTuple):
    """One run of a side: `what` of the methods of Side, on `topic`, into `target` where it writes."""

    what: str
    records: int
    size: int = 100
    topic: str = ""
    target: str = ""
    exactly_once: bool = False


class Side:
    """One format on one Spark; every method does a task and gives the seconds that it took."""

    def __init__(self, kind: str, servers: str, spark: Any) -> None:
        self._kind = kind
        self._servers = servers
        self._spark = spark

    def _on(self, builder: Any, task: Task, **options: Any) -> Any:
        if self._kind == spark_ceiling.NAME:
            return builder.format(self._kind).options(records=task.records, size=task.size, **options)
        return builder.format(self._kind).option("kafka.bootstrap.servers", self._servers).options(**options)

    def all_columns(self, task: Task) -> float:
        return self._into_noop(self._on(self._spark.read, task, subscribe=task.topic).load())

    def value_only(self, task: Task) -> float:
        reader = self._on(self._spark.read, task, subscribe=task.topic)
        ours = self._kind != "kafka"
        return self._into_noop(reader.schema("value binary").load() if ours else reader.load().select("value"))

    def write(self, task: Task) -> float:
        rows = self._spark.range(0, task.records, 1, PARTITIONS)
        values = rows.selectExpr("CAST(rpad(CAST(id AS STRING), 100, 'v') AS BINARY) AS value")
        begun = time.perf_counter()
        self._on(values.write, task, topic=task.target).mode("append").save()
        return time.perf_counter() - begun

    def stream(self, task: Task) -> float:
        writer = self._stream(task, maxOffsetsPerTrigger=-(-task.records // BATCHES)).writeStream.format("noop")
        return self._available_now(writer)

    def copy(self, task: Task) -> float:
        stream = self._stream(task, maxOffsetsPerTrigger=-(-task.records // BATCHES)).select("value")
        once = {"exactlyOnce": "true"} if task.exactly_once else {}
        return self._available_now(self._on(stream.writeStream, task, topic=task.target, **once))

    def latency(self, task: Task) -> float:
        is_rate = self._kind == spark_ceiling.NAME
        rate = self._spark.readStream.format("rate").option("rowsPerSecond", RATE)
        stream = rate.load() if is_rate else self._stream(task, startingOffsets="latest")
        with tempfile.TemporaryDirectory() as folder:
            writer = stream.writeStream.format("noop").trigger(processingTime="0 seconds")
            query = writer.option("checkpointLocation", folder).start()
            try:
                while True:
                    took = [
                        progress["durationMs"]["triggerExecution"]
                        for progress in query.recentProgress
                        if progress["numInputRows"]
                    ]
                    if len(took) >= LATENCY_BATCHES:
                        return float(statistics.median(took[-LATENCY_BATCHES // 2 :])) / 1000
                    if query.exception() is not None:
                        raise SystemExit(str(query.exception()))
                    time.sleep(0.2)  # Spark keeps the progress to be looked up, and has no callback in this process
            finally:
                query.stop()

    def _stream(self, task: Task, **options: Any) -> Any:
        settings = {"startingOffsets": "earliest", "subscribe": task.topic, **options}
        return self._on(self._spark.readStream, task, **settings).load()

    def _into_noop(self, frame: Any) -> float:
        begun = time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        return time.perf_counter() - begun

    def _available_now(self, writer: Any) -> float:
        with tempfile.TemporaryDirectory() as folder:
            begun = time.perf_counter()
            writer.option("checkpointLocation", folder).trigger(availableNow=True).start().awaitTermination()
            return time.perf_counter() - begun


def serve(kind: str, servers: str, jars: str) -> None:
    """A side's process: for every line with a task, do it and answer with the seconds."""
    from pyspark import cloudpickle

    from ottla.spark.session import session_builder, stop_session

    spark = (
        session_builder("bench")
        .master("local[2]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    if kind == spark_ceiling.NAME:
        cloudpickle.register_pickle_by_value(spark_ceiling)  # type: ignore[no-untyped-call]  # the workers do not have this folder
        spark.dataSource.register(spark_ceiling.Ceiling)
    side = Side(kind, servers, spark)
    print("ready", flush=True)
    for line in sys.stdin:
        task = Task(**json.loads(line))
        print(getattr(side, task.what)(task), flush=True)
    stop_session(spark)


Measure = Callable[[Task], float]


@contextmanager
def side_of(kind: str, servers: str, jars: str) -> Iterator[Measure]:
    """A side's process; yields what does a task once, in seconds."""
    command = [sys.executable, __file__, "--serve", kind, "--broker", servers, "--jars", jars]
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert process.stdin is not None
        assert process.stdout is not None
        asked, answers = process.stdin, process.stdout

        def answer() -> str:
            line = answers.readline()
            if not line:
                errors.seek(0)
                raise SystemExit(f"{kind}: {errors.read().decode(errors='replace')[-2000:]}")
            return line

        def measure(task: Task) -> float:
            asked.write(json.dumps(task._asdict()) + "\n")
            asked.flush()
            return float(answer())

        try:
            answer()
            yield measure
        finally:
            asked.close()
            process.wait(60)


def compared(title: str, sides: dict[str, Callable[[], float]], records: int | None) -> dict[str, object]:
    """Warm the sides, alternate, print the line for people. Medians are in records/s, or in ms without `records`; the ratio
    is the first side's to the second's."""
    for measure in sides.values():
        last = measure()
        for _ in range(MOST_WARMING - 1):
            latest = measure()
            if abs(latest - last) <= WARM_WITHIN * last:
                break
            last = latest
    figures: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(ROUNDS):
        for name, measure in sides.items():
            seconds = measure()
            figures[name].append(records / seconds if records else seconds * 1000)
    medians = {name: statistics.median(values) for name, values in figures.items()}
    unit = "records/s" if records else "ms"
    first, *others = medians.values()
    ratio = first / others[0] if others else None
    shown = ", ".join(
        f"{name} {medians[name]:,.0f} {unit} ({min(values):,.0f}-{max(values):,.0f})"
        for name, values in figures.items()
    )
    print(f"{title}: {shown}" + (f", ratio {ratio:.2f}" if ratio else ""), flush=True)
    return {"unit": unit, "medians": medians, "ratio": ratio}


class Bench:
    """The figures, of sides on a broker."""

    def __init__(self, servers: str, sides: dict[str, Measure], records: int) -> None:
        self._servers = servers
        self._sides = sides
        self._records = records
        self._filled: dict[tuple[int, int], str] = {}

    def figures(self, names: list[str]) -> dict[str, object]:
        figures: dict[str, object] = {}
        for name in names:
            figures |= getattr(self, f"_{name.replace('-', '_')}")()
        return figures

    def _topic(self, size: int, records: int) -> str:
        if (size, records) not in self._filled:
            self._filled[size, records] = fill(self._servers, records, size)
        return self._filled[size, records]

    def _each(self, task: Task) -> dict[str, Callable[[], float]]:
        return {name: partial(measure, task) for name, measure in self._sides.items()}

    def _into_new_topics(self, measure: Measure, task: Task) -> Callable[[], float]:
        def once() -> float:
            target = create(self._servers)
            seconds = measure(task._replace(target=target))
            delete(self._servers, target)
            return seconds

        return once

    def _read(self) -> dict[str, object]:
        figures: dict[str, object] = {}
        for size, records in ((100, self._records), (1000, self._records // 2)):
            for what in ("all_columns", "value_only"):
                title = f"Spark batch read, {size} B, {what.replace('_', ' ')}"
                task = Task(what, records, size, self._topic(size, records))
                figures[title] = compared(title, self._each(task), records)
        return figures

    def _write(self) -> dict[str, object]:
        title = "Spark batch write, 100 B"
        task = Task("write", self._records)
        sides = {name: self._into_new_topics(measure, task) for name, measure in self._sides.items()}
        return {title: compared(title, sides, self._records)}

    def _stream(self) -> dict[str, object]:
        title = f"Spark stream availableNow, 100 B, {BATCHES} batches"
        records = self._records * 5 // 2
        task = Task("stream", records, topic=self._topic(100, records))
        return {title: compared(title, self._each(task), records)}

    def _latency(self) -> dict[str, object]:
        title = "Spark micro-batch, median"
        topic = create(self._servers)
        with trickling(self._servers, topic):
            return {title: compared(title, self._each(Task("latency", 0, topic=topic)), None)}

    def _exactly_once(self) -> dict[str, object]:
        if "Ottla" not in self._sides:
            return {}
        title = "Ottla's Spark sink, 100 B"
        task = Task("copy", self._records, topic=self._topic(100, self._records))
        measure = self._sides["Ottla"]
        sides = {
            "exactly once": self._into_new_topics(measure, task._replace(exactly_once=True)),
            "at least once": self._into_new_topics(measure, task),
        }
        return {title: compared(title, sides, self._records)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--broker", metavar="HOST:PORT", help="use this broker instead of an Ottla of its own")
    parser.add_argument("--figures", nargs="+", choices=FIGURES, default=list(FIGURES))
    parser.add_argument("--only", choices=list(SIDES.values()), help="one side alone, for profiling")
    for hidden in ("--serve", "--jars"):
        parser.add_argument(hidden, default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve, arguments.broker, arguments.jars)
        return
    missing = kafka_is_there()
    jars = "" if missing else subprocess.check_output([str(REFERENCE / "spark-connector-jars")], text=True).strip()
    if missing:
        print(f"Spark's own connector is left out: {missing}")
    kinds = {
        name: kind
        for name, kind in SIDES.items()
        if arguments.only in (None, kind) and not (missing and kind == "kafka")
    }
    with ExitStack() as stack:
        servers = arguments.broker or stack.enter_context(ottla()).bootstrap_servers
        sides = {name: stack.enter_context(side_of(kind, servers, jars)) for name, kind in kinds.items()}
        figures = Bench(servers, sides, arguments.records).figures(arguments.figures)
    names = [Path(jar).name for jar in jars.split(",") if "sql-kafka" in jar or "clients" in jar]
    record({"spark": figures, "connector": names})


if __name__ == "__main__":
    main()
