"""Spark batch reads of 100-byte records: format("ottla") beside Spark's own Kafka connector, from the same broker.

    python bench/spark_read.py [--records 2000000] [--broker HOST:PORT]

One topic with four partitions, filled once by confluent-kafka, on Ottla unless --broker names another. Each side has a Spark of
its own in a process of its own, local[2], with the same settings and the same jars, and keeps it. Rows go to Spark's noop
sink: all columns, then the value alone (ours by a schema, theirs by a select, as each documents it). Both are warmed up until
two rounds agree within 10 % (at most ten), then the rounds alternate and the median of five counts.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from brokers import REFERENCE, kafka_is_there, ottla, record

ROUNDS = 5
WARM_WITHIN = 0.10
MOST_WARMING = 10
PARTITIONS = 4
SIZE = 100
SIDES = {"Ottla": "ottla", "Spark's connector": "kafka"}
SHAPES = ("all columns", "value only")


def fill(servers: str, records: int) -> str:
    """A topic with this many records; its name."""
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    value = b"v" * SIZE
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


def serve_rounds(kind: str, servers: str, topic: str, jars: str) -> None:
    """A side's process: for every line that names a shape, read once and answer with the seconds it took."""
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
    print("ready", flush=True)
    for line in sys.stdin:
        reader = spark.read.format(kind).option("kafka.bootstrap.servers", servers).option("subscribe", topic)
        begun = time.perf_counter()
        if line.strip() == "all columns":
            frame = reader.load()
        else:
            frame = reader.schema("value binary").load() if kind == "ottla" else reader.load().select("value")
        frame.write.format("noop").mode("overwrite").save()
        print(time.perf_counter() - begun, flush=True)
    stop_session(spark)


@contextmanager
def side(kind: str, servers: str, topic: str, jars: str) -> Iterator[Callable[[str], float]]:
    """A side's process; yields what measures one round of a shape, in seconds."""
    command = [sys.executable, __file__, "--serve", kind, "--broker", servers, "--topic", topic, "--jars", jars]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True)
        assert process.stdin is not None
        assert process.stdout is not None
        asked, answers = process.stdin, process.stdout

        def answer() -> str:
            line = answers.readline()
            if not line:
                said.seek(0)
                raise SystemExit(f"{kind}: {said.read().decode(errors='replace')[-2000:]}")
            return line

        def measure(shape: str) -> float:
            asked.write(f"{shape}\n")
            asked.flush()
            return float(answer())

        try:
            answer()
            yield measure
        finally:
            asked.close()
            process.wait(60)


def compared(shape: str, sides: dict[str, Callable[[str], float]], records: int) -> dict[str, object]:
    """Warm the sides, alternate, print the line for people; returns medians in records/s and their ratio."""
    for measure in sides.values():
        last = measure(shape)
        for _ in range(MOST_WARMING - 1):
            latest = measure(shape)
            if abs(latest - last) <= WARM_WITHIN * last:
                break
            last = latest
    found: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(ROUNDS):
        for name, measure in sides.items():
            found[name].append(records / measure(shape))
    medians = {name: statistics.median(rates) for name, rates in found.items()}
    ratio = medians["Ottla"] / medians["Spark's connector"] if len(medians) > 1 else None
    shown = ", ".join(
        f"{name} {medians[name]:,.0f} records/s ({min(rates):,.0f}-{max(rates):,.0f})" for name, rates in found.items()
    )
    print(f"Spark batch read, {SIZE} B, {shape}: {shown}" + (f", ratio {ratio:.2f}" if ratio else ""), flush=True)
    return {"unit": "records/s", "medians": medians, "ratio": ratio}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--broker", metavar="HOST:PORT", help="read from this broker instead of an Ottla of its own")
    parser.add_argument("--only", choices=list(SIDES.values()), help="one side alone, for profiling")
    for hidden in ("--serve", "--topic", "--jars"):
        parser.add_argument(hidden, default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve_rounds(arguments.serve, arguments.broker, arguments.topic, arguments.jars)
        return
    missing = kafka_is_there()
    jars = "" if missing else subprocess.check_output([str(REFERENCE / "spark-connector-jars")], text=True).strip()
    if missing:
        print(f"Spark's own connector is left out: {missing}")
    wanted = {
        name: kind
        for name, kind in SIDES.items()
        if arguments.only in (None, kind) and not (missing and kind == "kafka")
    }
    with ExitStack() as stack:
        servers = arguments.broker or stack.enter_context(ottla()).bootstrap_servers
        topic = fill(servers, arguments.records)
        sides = {name: stack.enter_context(side(kind, servers, topic, jars)) for name, kind in wanted.items()}
        figures = {shape: compared(shape, sides, arguments.records) for shape in SHAPES}
    names = [Path(jar).name for jar in jars.split(",") if "sql-kafka" in jar or "clients" in jar]
    record({"spark_read": figures, "connector": names})


if __name__ == "__main__":
    main()
