"""Delta tables of a project: how far they are, as metrics too, and compaction. Spark is not started.

The newest batch of a query is in the log of its table, under the query's id; what it had read by then is in the checkpoint of
that id, in offsets/N. The difference to the ends of the topics is the table's lag.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from ottla.client.topics import TopicPartition
from ottla.spark.monitoring import partition_offsets
from ottla.spark.pipelines.project import DATA, InvalidProject, Project

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

_HEAD: Final = 2
"""Lines of a file of offsets before those of the sources."""

_TABLE_METRICS: Final = (
    ("version", "Newest version of a Delta table."),
    ("rows", "Rows of the newest version."),
    ("files", "Data files of the newest version."),
    ("bytes", "Bytes of these files."),
    ("committed_timestamp_seconds", "Time of the newest version."),
)
_FLOW_METRICS: Final = (
    ("batch", "Newest batch of a flow in its table."),
    ("lag", "Offsets of the flow's topics after that batch."),
)

Ends = Callable[[tuple[str, ...]], Mapping[TopicPartition, int]]
"""Function that looks up the ends of all partitions of topics; empty if they are unknown."""


class FlowStatus(NamedTuple):
    """Query that writes to a table.

    flow   name of the flow
    batch  its newest batch in the table
    lag    offsets of its topics after that batch; None if it reads no topic, its checkpoint has lost the batch, or the ends
           are unknown
    """

    flow: str
    batch: int
    lag: int | None


class TableStatus(NamedTuple):
    """State of a table; `committed_ms` is the time of its newest version, in ms since the epoch."""

    table: str
    version: int
    rows: int
    files: int
    bytes: int
    committed_ms: int
    flows: list[FlowStatus]

    def document(self) -> dict[str, Any]:
        """Return the state as a JSON object."""
        return {**self._asdict(), "flows": [flow._asdict() for flow in self.flows]}


class Compaction(NamedTuple):
    """Result of the compaction of a table: numbers of files in it, and of those deleted from its folder."""

    table: str
    files_before: int
    files_after: int
    deleted: int


class _Checkpoint(NamedTuple):
    """Checkpoint of a query of the project."""

    flow: str
    query: str
    folder: Path


def locations(project: Project, more: Sequence[str]) -> list[str]:
    """Return the tables in the data folder of a project, and `more`. Raises InvalidProject if the list is empty."""
    paths = _find_tables(project, more)
    if not paths:
        raise InvalidProject(
            f"{project.root} has no Delta tables in {DATA}: run the project first, or use --table PATH"
        )
    return paths


def statuses(project: Project, tables: Sequence[str], ends: Ends) -> list[TableStatus]:
    """Return the states of tables. Raises InvalidProject for one that cannot be read, and any error of `ends`."""
    checkpoints = list(_checkpoints(project))
    return [_status(project, location, checkpoints, ends) for location in tables]


def collector(project: Project, more: Sequence[str], ends: Ends) -> "Collector":
    """Return a collector for prometheus-client, which looks at the tables of a project, and `more`, whenever it is asked.

    A table that cannot be read has no metrics, and an unknown lag is left out. Raises ImportError without the extra `metrics`.
    """
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import Collector

    class TableCollector(Collector):
        """Prometheus collector of the states of tables."""

        def collect(self) -> Iterator[Any]:
            """Yield one metric family per field."""
            by_table = {
                name: GaugeMetricFamily(f"ottla_table_{name}", text, labels=["table"]) for name, text in _TABLE_METRICS
            }
            by_flow = {
                name: GaugeMetricFamily(f"ottla_table_{name}", text, labels=["table", "flow"])
                for name, text in _FLOW_METRICS
            }
            checkpoints = list(_checkpoints(project))
            for location in _find_tables(project, more):
                try:
                    state = _status(project, location, checkpoints, ends)
                except InvalidProject:
                    continue
                figures = (state.version, state.rows, state.files, state.bytes, state.committed_ms / 1000)
                for metric, figure in zip(by_table.values(), figures, strict=True):
                    metric.add_metric([state.table], figure)
                for flow in state.flows:
                    by_flow["batch"].add_metric([state.table, flow.flow], flow.batch)
                    if flow.lag is not None:
                        by_flow["lag"].add_metric([state.table, flow.flow], flow.lag)
            yield from (*by_table.values(), *by_flow.values())

    return TableCollector()


def compact(project: Project, tables: Sequence[str], hours: int | None) -> Iterator[Compaction]:
    """Rewrite small files of tables as large ones, and delete files that no version of the last `hours` needs.

    hours  None for the table's own retention (delta.deletedFileRetentionDuration, a week by default)

    Raises InvalidProject.
    """
    for location in tables:
        table = _open(location)
        before = len(table.file_uris())
        try:
            table.optimize.compact()
            deleted = table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)
        except DeltaError as error:
            raise InvalidProject(f"cannot compact {location}: {_line(error)}") from None
        yield Compaction(_relative_path(project, location), before, len(table.file_uris()), len(deleted))


def _find_tables(project: Project, more: Sequence[str]) -> list[str]:
    """Return the tables in the data folder of a project, and `more`, each once."""
    paths = sorted(str(log.parent) for log in _folders(project.root / DATA, "_delta_log"))
    # A relative path is one of the user's working directory.
    paths += [location if "://" in location else str(Path(location).absolute()) for location in more]
    return list(dict.fromkeys(paths))


def _status(project: Project, location: str, checkpoints: Sequence[_Checkpoint], ends: Ends) -> TableStatus:
    table = _open(location)
    actions = table.get_add_actions(flatten=True)
    flows = []
    for checkpoint in checkpoints:
        batch = table.transaction_version(checkpoint.query)
        if batch is not None:
            flows.append(FlowStatus(checkpoint.flow, batch, _lag(checkpoint.folder, batch, ends)))
    rows, sizes = (actions[name].to_pylist() for name in ("num_records", "size_bytes"))
    return TableStatus(
        table=_relative_path(project, location),
        version=table.version(),
        rows=sum(number or 0 for number in rows),
        files=len(sizes),
        bytes=sum(sizes),
        committed_ms=table.history(1)[0]["timestamp"],
        flows=flows,
    )


def _open(location: str) -> DeltaTable:
    try:
        return DeltaTable(location)
    except (DeltaError, OSError) as error:
        raise InvalidProject(f"cannot read the table {location}: {_line(error)}") from None


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]


def _relative_path(project: Project, location: str) -> str:
    """Return the path of a table relative to the project, if it is in there."""
    path = Path(location)
    return str(path.relative_to(project.root)) if path.is_relative_to(project.root) else location


def _checkpoints(project: Project) -> Iterator[_Checkpoint]:
    """Yield the checkpoints of a project on a local or mounted file system: STORAGE/_checkpoints/.../FLOW/0."""
    address = urlsplit(project.storage)
    if address.scheme not in ("", "file"):
        return
    root = Path(unquote(address.path))
    for folder in sorted(file.parent for file in _folders(root, "metadata")):
        try:
            query = json.loads((folder / "metadata").read_text(encoding="utf-8"))["id"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        yield _Checkpoint(folder.parent.name if folder.name.isdecimal() else folder.name, query, folder)


def _folders(root: Path, name: str) -> Iterator[Path]:
    """Yield the files and folders of this name below `root`, not looking into a folder that has one."""
    for folder, below, files in os.walk(root):
        if name in below or name in files:
            yield Path(folder) / name
            below.clear()


def _lag(checkpoint: Path, batch: int, ends: Ends) -> int | None:
    """Return the offsets between the end of a batch and the ends of its topics."""
    try:
        lines = (checkpoint / "offsets" / str(batch)).read_text(encoding="utf-8").splitlines()[_HEAD:]
    except OSError:
        return None
    read: dict[TopicPartition, int] = {}
    for line in lines:
        read |= partition_offsets(line) or {}
    if not read:
        return None
    # A partition that the batch did not know yet is read from its beginning: all of it is behind.
    newest = ends(tuple(sorted({partition.topic for partition in read})))
    if not newest:
        return None
    return sum(max(offset - read.get(partition, 0), 0) for partition, offset in newest.items())
