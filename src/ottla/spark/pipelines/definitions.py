"""The definition files of a project: loaded for a run, or by themselves for a test.

A parquet table keeps one log of what was written, and two flows into it write the same entries: half of the rows are lost, and
Spark reports success. So a table with two flows is refused here, before anything runs.
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
from typing import Any

from pyspark.pipelines.block_session_mutations import block_session_mutations
from pyspark.pipelines.flow import AutoCdcFlow, Flow
from pyspark.pipelines.graph_element_registry import GraphElementRegistry, graph_element_registration_context
from pyspark.pipelines.output import MaterializedView, Output, Sink, Table
from pyspark.sql import DataFrame, SparkSession

from ottla.spark.pipelines.project import InvalidProject, Project, open_project


class Definitions(GraphElementRegistry):
    """Definitions in the files of a project; passed on to the registry of a run, if there is one.

    outputs, flows  by name, as PySpark has them
    modules         the Python files, by name without `.py`
    frames          what flows returned, by flow; empty without a registry of a run, which is what calls them
    """

    def __init__(self, onward: GraphElementRegistry | None = None) -> None:
        self.outputs: dict[str, Output] = {}
        self.flows: dict[str, Flow | AutoCdcFlow] = {}
        self.modules: dict[str, ModuleType] = {}
        self.frames: dict[str, Any] = {}
        self._onward = onward

    def register_output(self, output: Output) -> None:
        """A table, view or sink."""
        self.outputs[output.name] = output
        if self._onward is not None:
            self._onward.register_output(output)

    def register_flow(self, flow: Flow) -> None:
        """A query and where it goes. Raises InvalidProject for the second one into a table."""
        for other in self.flows.values():
            if other.target == flow.target and not isinstance(self.outputs.get(flow.target), Sink):
                raise InvalidProject(
                    f"table {flow.target} has two flows, {other.name} and {flow.name}: Spark would lose rows of one of "
                    "them. Make it one flow that returns the union of both"
                )
        self.flows[flow.name] = flow
        if self._onward is None:
            return

        def query() -> DataFrame:
            frame = self.frames[flow.name] = flow.func()
            return frame

        self._onward.register_flow(replace(flow, func=query))

    def register_auto_cdc_flow(self, flow: AutoCdcFlow) -> None:
        """A stream of changes."""
        self.flows[flow.name or flow.target] = flow
        if self._onward is not None:
            self._onward.register_auto_cdc_flow(flow)

    def register_sql(self, sql_text: str, file_path: Path) -> None:
        """A file of SQL: who runs the pipeline reads it."""
        if self._onward is not None:
            self._onward.register_sql(sql_text, file_path)

    def tables(self) -> list[str]:
        """Tables that keep rows, by name."""
        return [name for name, output in self.outputs.items() if isinstance(output, Table)]

    def views(self) -> set[str]:
        """The materialized ones among the tables."""
        return {name for name, output in self.outputs.items() if isinstance(output, MaterializedView)}


def definitions(directory: Path | str, spark: SparkSession) -> dict[str, ModuleType]:
    """The Python definition files of the project in `directory`, by name without `.py`, for a test of the functions in them.

    Nothing runs. The spec's configuration is set in `spark`. Raises InvalidProject, and whatever a file raises.
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
    """Load the files into a run's graph. Raises what a file raises."""
    from pyspark.pipelines.cli import register_definitions

    # It prints what it loads; a run shows its own progress.
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
    """The working directory that Spark gives definition files, which may import what lies beside the spec."""
    before = Path.cwd()
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        os.chdir(before)
