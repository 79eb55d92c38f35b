"""One run of a project on a Connect server: register definitions, follow events, count rows."""

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
from ottla.spark.pipelines.server import open_session
from ottla.spark.pipelines.topics import check_topics

# Metrics arrive with a delay after the event that a flow has ended.
_LAST_FIGURES_S = 3.0

Watch = Callable[[str, str], None]


class Refresh(NamedTuple):
    """Tables that a run refreshes, as in the options of `spark-pipelines run`.

    dry       check the definitions and that topics exist, run nothing
    full_all  reset and recompute all tables
    full      reset and recompute these tables
    only      refresh only these tables
    """

    dry: bool = False
    full_all: bool = False
    full: Sequence[str] = ()
    only: Sequence[str] = ()


def run_once(project: Project, address: str, refresh: Refresh, figures: QueryFigures, watch: Watch) -> RunReport:
    """Run a project on the Connect server at `address` until all available data is processed.

    figures  empty listener, which this run fills
    watch    called with each flow and its new state

    Raises InvalidProject if a definition fails or the server does not answer.
    """
    begun = time.monotonic()
    try:
        with open_session(address) as spark:
            return _run(spark, project, refresh, figures, watch, begun)
    except PySparkException as error:
        raise InvalidProject(reason(str(error)) or str(error)) from None


def _run(
    spark: SparkSession, project: Project, refresh: Refresh, figures: QueryFigures, watch: Watch, begun: float
) -> RunReport:
    spec = project.spec
    connect: Any = spark  # the attribute `client` of a Connect session is missing in PySpark's common type
    for name, value in project.configuration.items():
        spark.conf.set(name, value)
    if spec.database:
        spark.sql(f"CREATE DATABASE IF NOT EXISTS {_qualify(project, '')}")
    graph = create_dataflow_graph(
        spark, default_catalog=spec.catalog, default_database=spec.database, sql_conf=project.configuration
    )
    defined = Definitions(SparkConnectGraphElementRegistry(spark, graph))
    try:
        register(project, defined, spark, graph)
    except (PySparkException, InvalidProject):
        raise
    except Exception as error:
        # A definition file may raise anything; report the line in that file.
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
    # A query without new data has no batch, and reports no progress.
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
        # A failed run ends with an exception that names no flow; the events before it name the flow.
        if not any(state == "FAILED" for state in tracker.states.values()):
            raise
    return tracker


def _counters(figure: QueryFigure) -> tuple[int, int, int | None, int | None]:
    return figure.batches, figure.rows_in, figure.rows_out, figure.lag


def _count(spark: SparkSession, project: Project, tables: Sequence[str]) -> dict[str, int]:
    """Return the row counts of the existing tables, by their names in the definitions."""
    shown = spark.sql(f"SHOW TABLES IN {_qualify(project, '') or 'default'}").collect()
    present = {row["tableName"] for row in shown}
    existing = [
        name for name in tables if (name.lower() in present if "." not in name else spark.catalog.tableExists(name))
    ]
    if not existing:
        return {}
    counts = (f"SELECT '{name}' AS name, count(*) AS n FROM {_qualify(project, name)}" for name in existing)
    return {row["name"]: row["n"] for row in spark.sql(" UNION ALL ".join(counts)).collect()}


def _qualify(project: Project, table: str) -> str:
    """Return the qualified name of a table in the pipeline's catalog and database; of the database itself for ""."""
    parts = table.split(".") if table else []
    default = [part for part in (project.spec.catalog, project.spec.database) if part]
    missing = default if len(parts) < 2 else default[: 3 - len(parts)]
    return ".".join(f"`{part}`" for part in [*missing, *parts])


def _where(error: BaseException, project: Project) -> str:
    """Return the last line of the project's own files in the traceback of an error, as a suffix of a message."""
    location = ""
    trace = error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if name.startswith(str(project.root)):
            location = f" ({name.removeprefix(str(project.root)).lstrip('/')}, line {trace.tb_lineno})"
        trace = trace.tb_next
    return location
