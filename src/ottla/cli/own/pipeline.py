"""`ottla pipeline`: create and run projects of Spark Declarative Pipelines."""

import json
import logging
import sys
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ottla.addresses import address_text
from ottla.cli.cluster_access import address_of, bootstrap_options, cluster_options, connect, json_option
from ottla.cli.command_group import CommandGroup
from ottla.cli.completion import complete_topics
from ottla.cli.stopping import Stop, stop_on_signals
from ottla.cli.table import Column, echo_json, echo_table
from ottla.client.errors import KafkaError
from ottla.extras import install_command, is_installed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from prometheus_client.registry import Collector

    from ottla.cli.cluster_access import AdminConnection
    from ottla.client.admin.topics import Topics
    from ottla.client.topics import TopicPartition
    from ottla.spark.monitoring import QueryFigure, QueryFigures
    from ottla.spark.pipelines.project import Project
    from ottla.spark.pipelines.report import RunReport
    from ottla.spark.pipelines.run import Refresh


@click.group("pipeline", cls=CommandGroup)
def pipeline() -> None:
    """Create and run Spark Declarative Pipelines with topics as sources and sinks."""


@pipeline.command("init")
@click.argument("name", type=click.Path(path_type=Path))
@bootstrap_options
@click.option(
    "--topic",
    default="orders",
    show_default=True,
    metavar="NAME",
    help="Topic to read.",
    shell_complete=complete_topics,
)
@click.option("--to", "target", metavar="NAME", help="Topic for results. [default: large-orders]")
@click.option("--table", type=click.Choice(["delta"]), help="Write the topic into tables of this format instead.")
def init(name: Path, bootstrap_server: str | None, topic: str, target: str | None, table: str | None) -> None:
    """Create a project in the new folder NAME: spec, settings, bronze, silver, gold, a sink, rules, a test."""
    if table is not None and target is not None:
        raise click.UsageError("--table writes tables in place of a topic: it cannot be combined with --to")
    _needs_spark()
    if table is not None:
        _needs_deltalake()
    from ottla.spark.pipelines.project import InvalidProject
    from ottla.spark.pipelines.template import SAMPLE, write_project, write_table_project

    servers = address_of(bootstrap_server, {}).servers
    try:
        if table is None:
            written = write_project(name, servers, topic, target or "large-orders")
        else:
            written = write_table_project(name, servers, topic)
    except InvalidProject as error:
        _fail(str(error))
    for file in written:
        click.echo(f"{name}/{file}")
    where = "" if bootstrap_server is None else f" --bootstrap-server {bootstrap_server}"
    click.echo(f"Send it the sample data: ottla console-producer{where} --topic {topic} < {name}/{SAMPLE}", err=True)
    click.echo(f"Run it with: ottla pipeline run {name}", err=True)
    if table is not None:
        click.echo(f"Look at its tables with: ottla pipeline status {name}", err=True)


@pipeline.command("run")
@click.argument("directory", type=click.Path(path_type=Path), default=".", required=False)
@click.option("--master", metavar="URL", help="Spark master: local[2], spark://HOST:PORT. [default: local[*]]")
@click.option("--remote", metavar="URL", help="Use this Spark Connect server (sc://HOST:PORT) instead of starting one.")
@click.option("--conf", "confs", multiple=True, metavar="NAME=VALUE", help="A Spark setting; may be repeated.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A value of the spec's configuration.")
@click.option("--continuous", is_flag=True, help="Run repeatedly on one Spark session until Ctrl-C or SIGTERM.")
@click.option(
    "--interval", type=float, default=10.0, show_default=True, metavar="SECONDS", help="Time between two runs."
)
@click.option(
    "--iterations", type=click.IntRange(1), metavar="N", help="Number of runs after which --continuous stops."
)
@click.option("--dry-run", is_flag=True, help="Check the definitions and that topics exist, run nothing.")
@click.option("--full-refresh", multiple=True, metavar="A,B", help="Tables to empty and recompute.")
@click.option("--full-refresh-all", is_flag=True, help="Empty and recompute all tables.")
@click.option("--refresh", multiple=True, metavar="A,B", help="Only these tables.")
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    help="Serve /metrics for Prometheus: rows, rates and lag of flows, and versions of Delta tables.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each run.")
def run(directory: Path, **options: Any) -> None:
    """Run the pipeline of the project in DIRECTORY until all available data is processed.

    Sets up Java, catalog, database and Spark's settings. If a flow fails, prints its name and error and exits with 1.
    """
    refresh = _refresh(options)
    if options["interval"] < 0:
        raise click.UsageError("--interval must not be negative")
    if options["remote"] and (options["master"] or options["confs"]):
        raise click.UsageError("--remote uses a running Spark: it cannot be combined with --master or --conf")
    listen = _host_and_port(options["metrics"]) if options["metrics"] else None
    confs, settings = _pairs(options["confs"], "--conf"), _pairs(options["settings"], "--set")
    _needs_spark()
    from ottla.spark.java import JavaMissing
    from ottla.spark.monitoring import QueryFigures
    from ottla.spark.pipelines.project import InvalidProject, open_project
    from ottla.spark.pipelines.server import connect_server

    # Failures of queries are in the report; without a handler Python would print them as well.
    logging.getLogger("ottla.spark.queries").addHandler(logging.NullHandler())
    show = _Show(as_json=options["as_json"])
    try:
        project = open_project(directory, settings)
        with stop_on_signals() as stop, ExitStack() as stack:
            figures = QueryFigures(show.progress)
            if listen is not None:
                stack.callback(_serve(*listen, lambda: _run_collectors(project, figures)))
            with stop.interruptible():
                if not stop.requested:
                    show.status("starting Spark")
                    address = options["remote"] or stack.enter_context(
                        connect_server(project.root, options["master"], confs)
                    )
                    _runs(project, address, refresh, figures, show, stop, options)
            show.status("stopping Spark" if not options["remote"] else "")
        show.status("")
    except (InvalidProject, JavaMissing) as error:
        show.status("")
        _fail(str(error))
    if stop.requested and not options["continuous"]:
        sys.exit(130 if stop.number is None else 128 + stop.number)


def _runs(
    project: "Project",
    address: str,
    refresh: "Refresh",
    figures: "QueryFigures",
    show: "_Show",
    stop: Stop,
    options: dict[str, Any],
) -> None:
    """Run once, or repeatedly with --continuous. Raises InvalidProject for a failed run."""
    from ottla.spark.pipelines.project import InvalidProject
    from ottla.spark.pipelines.run import run_once

    count = 0
    while True:
        figures.clear()
        show.status("loading definitions")
        report = run_once(project, address, refresh, figures, show.flow)
        show.report(report)
        if report.failure:
            raise InvalidProject(report.failure)
        count += 1
        if not options["continuous"] or count == options["iterations"]:
            return
        # A full refresh applies to the first run only.
        refresh = refresh._replace(full_all=False, full=())
        show.status("waiting")
        stop.sleep(options["interval"])
        if stop.requested:
            return


_table_option = click.option(
    "--table", "more", multiple=True, metavar="PATH", help="A table in another place, or its URL; may be repeated."
)


@pipeline.command("status")
@click.argument("directory", type=click.Path(path_type=Path), default=".", required=False)
@cluster_options
@_table_option
@json_option
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    help="Serve /metrics for Prometheus until Ctrl-C or SIGTERM, in place of the table.",
)
def status(
    directory: Path,
    bootstrap_server: str | None,
    command_config: str | None,
    more: tuple[str, ...],
    *,
    as_json: bool,
    metrics: str | None,
) -> None:
    """Show the Delta tables of the project in DIRECTORY: version, rows, files, and lag behind the topic.

    Tables are those in the project's data folder. LAG is the number of offsets after the newest batch in the table; the brokers
    are those of --bootstrap-server, by default those of the project's spec.
    """
    if metrics is not None and as_json:
        raise click.UsageError("--metrics serves the figures: it cannot be combined with --json")
    listen = None if metrics is None else _host_and_port(metrics)
    _needs_spark()
    _needs_deltalake()
    from ottla.client.admin.topics import Topics
    from ottla.spark.pipelines.project import InvalidProject, open_project
    from ottla.spark.pipelines.tables import locations, statuses

    try:
        project = open_project(directory)
        servers = bootstrap_server or project.servers
        if listen is not None:
            with connect(Topics, servers, command_config) as cluster:
                _serve_status(listen, project, more, cluster)
            return

        @cache
        def ends(topics: tuple[str, ...]) -> "Mapping[TopicPartition, int]":
            with connect(Topics, servers, command_config) as cluster:
                return _ends(cluster, topics)

        tables = statuses(project, locations(project, more), ends)
    except InvalidProject as error:
        _fail(str(error))
    if as_json:
        echo_json([table.document() for table in tables])
        return
    titles = ("TABLE", "VERSION", "ROWS", "FILES", "BYTES", "COMMITTED", "FLOW", "BATCH", "LAG")
    rows: list[tuple[Any, ...]] = []
    for table in tables:
        figures = (*table[:5], _utc(table.committed_ms))
        rows += [(*figures, *flow) for flow in table.flows] or [(*figures, None, None, None)]
    echo_table([Column(title) for title in titles], rows)


def _ends(cluster: "AdminConnection[Topics]", topics: tuple[str, ...]) -> "Mapping[TopicPartition, int]":
    """Return the ends of the partitions of topics that exist. Raises KafkaError."""
    from ottla.client.topics import LATEST, TopicPartition

    known = cluster.ask(cluster.admin.list_topics())
    partitions = [TopicPartition(name, n) for name in topics if name in known for n in known[name].leaders]
    offsets = cluster.ask(cluster.admin.list_offsets(dict.fromkeys(partitions, LATEST))).check()
    return {partition: end.offset for partition, end in offsets.items()}


def _serve_status(
    listen: tuple[str, int], project: "Project", more: tuple[str, ...], cluster: "AdminConnection[Topics]"
) -> None:
    """Serve the metrics of a project's tables until a signal."""
    from ottla.spark.pipelines.tables import collector

    def ends(topics: tuple[str, ...]) -> "Mapping[TopicPartition, int]":
        try:
            return _ends(cluster, topics)
        except KafkaError:
            return {}  # the versions are known all the same

    with stop_on_signals() as stop, ExitStack() as stack:
        stack.callback(_serve(*listen, lambda: [collector(project, more, ends)]))
        while not stop.requested:
            stop.sleep(3600)


def _run_collectors(project: "Project", figures: "QueryFigures") -> "list[Collector]":
    """Return the collectors of a run: its queries, and its Delta tables, whose lag is that of the queries."""
    from ottla.spark import monitoring

    collectors = [monitoring.collector(figures)]
    if is_installed("deltalake"):
        from ottla.spark.pipelines import tables

        collectors.append(tables.collector(project, (), lambda _: {}))
    return collectors


def _utc(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@pipeline.command("compact")
@click.argument("directory", type=click.Path(path_type=Path), default=".", required=False)
@click.option(
    "--retention",
    type=click.IntRange(0),
    metavar="HOURS",
    help="Delete files that no version of these last hours needs, whatever kills have left among them. With 0 a query that "
    "writes now loses its files. [default: that of the table, a week]",
)
@_table_option
@json_option
def compact(directory: Path, retention: int | None, more: tuple[str, ...], *, as_json: bool) -> None:
    """Rewrite the small files of the project's Delta tables as large ones, and delete files that no reader needs (VACUUM).

    Queries may write meanwhile.
    """
    _needs_spark()
    _needs_deltalake()
    from ottla.spark.pipelines import tables
    from ottla.spark.pipelines.project import InvalidProject, open_project

    try:
        project = open_project(directory)
        compactions = list(tables.compact(project, tables.locations(project, more), retention))
    except InvalidProject as error:
        _fail(str(error))
    if as_json:
        echo_json([compaction._asdict() for compaction in compactions])
        return
    titles = ("TABLE", "FILES-BEFORE", "FILES-AFTER", "DELETED")
    echo_table([Column(title) for title in titles], compactions)


class _Show:
    """Output of runs: a status line on a terminal, and a table or JSON at the end of each run."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._terminal = sys.stderr.isatty()
        self._rows: dict[str, int] = {}
        self._flows: dict[str, str] = {}
        self._begun = time.monotonic()

    def status(self, text: str) -> None:
        """Replace the status line on a terminal."""
        if self._terminal:
            passed = f"{time.monotonic() - self._begun:5.0f} s  " if text else ""
            click.echo(f"\r\x1b[K{passed}{text}"[:200], nl=False, err=True)

    def flow(self, name: str, state: str) -> None:
        """Update the state of a flow."""
        self._flows[name] = state
        self._tell()

    def progress(self, figure: "QueryFigure") -> None:
        """Update the row count of a query after a batch."""
        self._rows[figure.name.rpartition(".")[2]] = figure.rows_in
        self._tell()

    def _tell(self) -> None:
        done = sum(state == "COMPLETED" for state in self._flows.values())
        running = [
            f"{name} {self._rows.get(name, 0):,} rows" for name, state in self._flows.items() if state == "RUNNING"
        ]
        self.status(f"{done} of {len(self._flows)} flows done  {', '.join(running)}")

    def report(self, report: "RunReport") -> None:
        """Print the report of a run."""
        self.status("")
        if self._as_json:
            click.echo(json.dumps(report.document(), separators=(",", ":")))
        else:
            titles = ("FLOW", "STATE", "ROWS-IN", "ROWS-OUT", "LAG", "BATCHES", "SECONDS")
            rows = [
                (*flow[:5], flow.batches or None, f"{flow.seconds:.1f}" if flow.seconds else None)
                for flow in report.flows
            ]
            echo_table([Column(title) for title in titles], rows)
            click.echo(f"{len(report.flows)} flows in {report.seconds:.1f} s")
        sys.stdout.flush()
        self._flows.clear()
        self._rows.clear()


def _refresh(options: dict[str, Any]) -> "Refresh":
    """Return the selection of tables. Raises UsageError for contradictory flags, as Spark does."""
    full, only = _names(options["full_refresh"]), _names(options["refresh"])
    if options["full_refresh_all"] and (full or only):
        other = "--full-refresh" if full else "--refresh"
        raise click.UsageError(f"--full-refresh-all selects every table: it cannot be combined with {other}")
    if options["dry_run"] and (options["continuous"] or full or only or options["full_refresh_all"]):
        raise click.UsageError(
            "--dry-run runs nothing: it cannot be combined with --continuous, --refresh or --full-refresh"
        )
    _needs_spark()
    from ottla.spark.pipelines.run import Refresh

    return Refresh(options["dry_run"], options["full_refresh_all"], full, only)


def _names(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name.strip() for text in texts for name in text.split(",") if name.strip())


def _pairs(texts: tuple[str, ...], flag: str) -> dict[str, str]:
    """Parse NAME=VALUE options. Raises UsageError."""
    values_by_name = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name.strip() or not equals:
            raise click.UsageError(f"{flag} requires NAME=VALUE, not {text!r}")
        values_by_name[name.strip()] = value
    return values_by_name


def _host_and_port(address: str) -> tuple[str, int]:
    """Parse HOST:PORT of --metrics. Raises UsageError."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise click.UsageError(f"--metrics requires HOST:PORT, not {address!r}")
    return host.strip("[]"), int(port)


def _serve(host: str, port: int, collectors: "Callable[[], list[Collector]]") -> "Callable[[], None]":
    """Serve metrics; return a function that stops it."""
    try:
        from ottla.observability.metrics import serve_collectors

        bound, stop = serve_collectors(host, port, *collectors())
    except ImportError as missing:
        _fail(f"--metrics needs {missing.name}: {install_command('metrics')}")
    except OSError as error:
        _fail(f"cannot serve metrics on {address_text(host, port)}: {error.strerror or error}")
    click.echo(f"serving metrics at http://{address_text(host, bound)}/metrics", err=True)
    return stop


def _needs_spark() -> None:
    """Fail with installation instructions if PySpark's pipelines are missing."""
    try:
        import pyspark  # first: the next line names another extra

        from ottla.spark.releases import require

        require((4, 1), "ottla pipeline")
        import pyspark.pipelines.cli
        import pyspark.sql.connect.session  # noqa: F401
    except (ImportError, AttributeError) as missing:
        if type(missing).__name__ == "UnsupportedPySpark":
            _fail(f"{missing}: {install_command('pipelines')}")
        _fail(f"pipelines need PySpark with Spark Connect ({missing}): {install_command('pipelines')}")
    except Exception as missing:
        # PySpark raises an error class of its own if one of its dependencies is missing.
        if type(missing).__name__ != "PySparkImportError":
            raise
        _fail(f"pipelines need PySpark with Spark Connect ({missing}): {install_command('pipelines')}")


def _needs_deltalake() -> None:
    """Fail with installation instructions if deltalake is missing."""
    if not is_installed("deltalake"):
        _fail(f"Delta tables need deltalake: {install_command('delta')}")


def _fail(why: str) -> NoReturn:
    click.echo(f"ottla: {why}", err=True)
    sys.exit(1)
