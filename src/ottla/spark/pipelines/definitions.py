"""Definition files of a project, loaded for a run or for a test.

A parquet table has one log of written files, and two flows into it write the same log entries: half of the rows are lost while
Spark reports success. So a table with two flows is rejected before anything runs.
"""

import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pyspark.pipelines.block_session_mutations import block_session_mutations
from pyspark.pipelines.flow import Flow
from pyspark.pipelines.graph_element_registry import GraphElementRegistry, graph_element_registration_context
from pyspark.pipelines.output import MaterializedView, Output, Sink, Table
from pyspark.sql import DataFrame, SparkSession

if TYPE_CHECKING:
    from pyspark.pipelines.flow import AutoCdcFlow  # since 4.2

from ottla.spark.pipelines.project import InvalidProject, Project, open_project


class Definitions(GraphElementRegistry):
    """Registry of the definitions in the files of a project; forwards them to the registry of a run, if there is one.

    outputs, flows  PySpark objects by name
    modules         Python files, by name without `.py`
    frames          data frames that flows returned, by flow; empty without the registry of a run, which calls the flows
    """

    def __init__(self, onward: GraphElementRegistry | None = None) -> None:
        self.outputs: dict[str, Output] = {}
        self.flows: dict[str, Flow | AutoCdcFlow] = {}
        self.modules: dict[str, ModuleType] = {}
        self.frames: dict[str, Any] = {}
        self._onward = onward

    def register_output(self, output: Output) -> None:
        """Register a table, view or sink."""
        self.outputs[output.name] = output
        if self._onward is not None:
            self._onward.register_output(output)

    def register_flow(self, flow: Flow) -> None:
        """Register a query and its target. Raises InvalidProject for a second flow into a table."""
        for other in self.flows.values():
            if other.target == flow.target and not isinstance(self.outputs.get(flow.target), Sink):
                raise InvalidProject(
                    f"table {flow.target} has two flows, {other.name} and {flow.name}: Spark would lose rows of one of "
                    "them. Combine them into one flow that returns their union"
                )
        self.flows[flow.name] = flow
        if self._onward is None:
            return

        def query() -> DataFrame:
            frame = self.frames[flow.name] = flow.func()
            return frame

        self._onward.register_flow(replace(flow, func=query))

    def register_auto_cdc_flow(self, flow: "AutoCdcFlow") -> None:
        """Register a flow of changes (CDC)."""
        self.flows[flow.name or flow.target] = flow
        if self._onward is not None:
            self._onward.register_auto_cdc_flow(flow)

    def register_sql(self, sql_text: str, file_path: Path) -> None:
        """Forward an SQL file; only the registry of a run reads it."""
        if self._onward is not None:
            self._onward.register_sql(sql_text, file_path)

    def tables(self) -> list[str]:
        """Return the names of tables and materialized views."""
        return [name for name, output in self.outputs.items() if isinstance(output, Table)]

    def views(self) -> set[str]:
        """Return the names of the materialized views."""
        return {name for name, output in self.outputs.items() if isinstance(output, MaterializedView)}


def definitions(directory: Path | str, spark: SparkSession) -> dict[str, ModuleType]:
    """Load the Python definition files of the project in `directory`, by name without `.py`, to test their functions.

    No flow is run. The spec's configuration is set in `spark`. Raises InvalidProject, and any error of a file.
    """
    project = open_project(Path(directory))
    for name, value in project.configuration.items():
        spark.conf.set(name, value)
    registry = Definitions()
    with graph_element_registration_context(registry), _working_directory(project.root):
        for file in sorted(files(project)):
            if file.suffix == ".py":
                with block_session_mutations():
                    registry.modules[file.stem] = _load(file, spark)
    return registry.modules


def files(project: Project) -> Iterator[Path]:
    """Yield the files that the spec's globs match, each file once."""
    seen: set[Path] = set()
    for library in project.spec.libraries:
        for file in project.root.glob(library.include):
            if file.is_file() and "__pycache__" not in file.parts and file not in seen:
                seen.add(file)
                yield file


def register(project: Project, registry: Definitions, spark: SparkSession, graph: str) -> None:
    """Load the files into the graph of a run. Raises any error of a file."""
    from pyspark.pipelines.cli import register_definitions

    # It prints file names; a run shows its own progress instead.
    with _working_directory(project.root), redirect_stdout(StringIO()):
        register_definitions(project.spec_file, registry, project.spec, spark, graph)


def _load(file: Path, spark: SparkSession) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise InvalidProject(f"{file} cannot be loaded as a Python file")
    module = importlib.util.module_from_spec(spec)
    module.__dict__["spark"] = spark
    spec.loader.exec_module(module)
    return module


@contextmanager
def _working_directory(folder: Path) -> Iterator[None]:
    """Set the working directory and the import path of definition files, as Spark does: the folder of the spec."""
    before = Path.cwd()
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        os.chdir(before)
