"""One run of a project on a Connect server: definitions registered, events followed, rows counted."""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pyspark.errors import PySparkException
from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph, start_run
from pyspark.sql import SparkSession

from ottla.spark.monitoring import QueryFigure, QueryFigures
from ottla.spark.pipelines.definitions import Definitions, register
from ottla.spark.pipelines.project import InvalidProject, Project
from ottla.spark.pipelines.report import FlowReport, FlowTracker, RunReport, growth, reason
from ottla.spark.pipelines.server import connected
from ottla.spark.pipelines.topics import check_topics

# Figures come a little later than the event that a flow is over.
_LAST_FIGURES_S = 3.0

Watch = Callable[[str, str], None]


class Refresh(NamedTuple):
    """Tables that a run refreshes, with the choices of `spark-pipelines run`.

    dry       check the definitions and that topics exist, run nothing
    full_all  every table from nothing
    full      these tables from nothing
    only      only these tables
    """

    dry: bool = False
    full_all: bool = False
    full: Sequence[str] = ()
    only: Sequence[str] = ()


def run_once(project: Project, address: str, refresh: Refresh, figures: QueryFigures, watch: Watch) -> RunReport:
    """Run a project on the Connect server at `address` until all that is there has been processed.

    figures  a listener without history, which this run fills
    watch    told each flow and its new state

    Raises InvalidProject when there is nothing to run: definitions that fail, a server that does not answer.
    """
    begun = time.monotonic()
    try:
        with connected(address) as spark:
            return _run(spark, project, refresh, figures, watch, begun)
    except PySparkException as error:
        raise InvalidProject(reason(str(error)) or str(error)) from None


def _run(
    spark: SparkSession, project: Project, refresh: Refresh, figures: QueryFigures, watch: Watch, begun: float
) -> RunReport:
    spec = project.spec
    connect: Any = spark  # the Connect session has a client, which PySpark's common type does not name
    for name, value in project.configuration.items():
        spark.conf.set(name, value)
    if spec.database:
        spark.sql(f"CREATE DATABASE IF NOT EXISTS {_qualified(project, '')}")
    graph = create_dataflow_graph(
        spark, default_catalog=spec.catalog, default_database=spec.database, sql_conf=project.configuration
    )
    defined = Definitions(SparkConnectGraphElementRegistry(spark, graph))
    try:
        register(project, defined, spark, graph)
    except (PySparkException, InvalidProject):
        raise
    except Exception as error:
        # Anything can happen in people's files; theirs is the line that counts.
        raise InvalidProject(f"a definition failed: {type(error).__name__}: {error}{_where(error, project)}") from error
    before = {} if refresh.dry else _count(spark, project, defined.tables())
    spark.streams.addListener(figures)
    try:
        tracker = _follow(spark, graph, project, refresh, watch)
        queries = {name for name, flow in defined.flows.items() if flow.target not in defined.views()}
        streams = {figure.name for figure in figures.figures()}
        if not refresh.dry:
            figures.wait_ended(streams, _LAST_FIGURES_S)
    finally:
        spark.streams.removeListener(figures)
    known = {tracker.short(figure.name): _counters(figure) for figure in figures.figures()}
    no_counters = (0, 0, None, None)
    # A query without news has no batch, and says nothing.
    counters = {name: known.get(name, no_counters) for name in queries} | known
    if refresh.dry:
        check_topics(defined, connect.client)
    if refresh.dry and not tracker.states:
        return RunReport(tuple(FlowReport(name, "CHECKED") for name in defined.flows), time.monotonic() - begun)
    recomputed = defined.tables() if refresh.full_all else [*refresh.full, *defined.views()]
    written = growth(before, _count(spark, project, defined.tables()), recomputed)
    return RunReport(tracker.flows(counters, written), time.monotonic() - begun)


def _follow(spark: SparkSession, graph: str, project: Project, refresh: Refresh, watch: Watch) -> FlowTracker:
    tracker = FlowTracker(("spark_catalog.", f"{project.spec.catalog}.", f"{project.spec.database or 'default'}."))
    events = start_run(
        spark,
        graph,
        full_refresh=list(refresh.full),
        full_refresh_all=refresh.full_all,
        refresh=list(refresh.only),
        dry=refresh.dry,
        storage=project.storage,
    )
    try:
        for result in events:
            event: Any = result.get("pipeline_event_result")
            if event is None:
                continue
            changed = tracker.on_event(event.event.message, event.event.timestamp.ToMicroseconds() / 1e6)
            if changed is not None:
                watch(*changed)
    except PySparkException:
        # A run that failed ends with an exception that names no flow; the events before it did.
        if not any(state == "FAILED" for state in tracker.states.values()):
            raise
    return tracker


def _counters(figure: QueryFigure) -> tuple[int, int, int | None, int | None]:
    return figure.batches, figure.rows_in, figure.rows_out, figure.lag


def _count(spark: SparkSession, project: Project, tables: Sequence[str]) -> dict[str, int]:
    """Return the row counts of the tables that exist, by the names that definitions give them."""
    shown = spark.sql(f"SHOW TABLES IN {_qualified(project, '') or 'default'}").collect()
    present = {row["tableName"] for row in shown}
    existing = [
        name for name in tables if (name.lower() in present if "." not in name else spark.catalog.tableExists(name))
    ]
    if not existing:
        return {}
    counts = (f"SELECT '{name}' AS name, count(*) AS n FROM {_qualified(project, name)}" for name in existing)
    return {row["name"]: row["n"] for row in spark.sql(" UNION ALL ".join(counts)).collect()}


def _qualified(project: Project, table: str) -> str:
    """A name in the pipeline's catalog and database; that of the database itself for ""."""
    parts = table.split(".") if table else []
    default = [part for part in (project.spec.catalog, project.spec.database) if part]
    missing = default if len(parts) < 2 else default[: 3 - len(parts)]
    return ".".join(f"`{part}`" for part in [*missing, *parts])


def _where(error: BaseException, project: Project) -> str:
    """The last line of the project's own files that an error went through."""
    location = ""
    trace = error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if name.startswith(str(project.root)):
            location = f" ({name.removeprefix(str(project.root)).lstrip('/')}, line {trace.tb_lineno})"
        trace = trace.tb_next
    return location
