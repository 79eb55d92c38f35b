"""Statements, and their results as text or files, row by row: a result of any size needs the memory of some thousand rows.

DuckDB itself converts the values to text, so that they look as in its own tools: blobs with \\x escapes, lists in brackets.
"""

import csv
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

import click

from ottla.cli.cluster_access import CommandFailed
from ottla.query.errors import InvalidQuery
from ottla.schemas.registry import RegistryError

if TYPE_CHECKING:
    from ottla.query.session import Session

_ROWS: Final = 10_000
_INTERRUPT_S: Final = 0.1
_WIDE: Final = 80
"""Most characters of a cell of a table."""


@contextmanager
def query_errors() -> Iterator[None]:
    """Turn the errors of a query into CommandFailed."""
    try:
        yield
    except BrokenPipeError:
        raise
    except (InvalidQuery, RegistryError, OSError) as error:
        raise CommandFailed(str(error)) from None


def run(session: "Session", statement: str, form: str, output: Path | None = None) -> None:
    """Run a statement and write its result. Raises CommandFailed, InvalidQuery, KafkaError, RegistryError, OSError."""
    try:
        with _interrupt_by_signals(session):
            relation = session.relation(statement)
            if relation is not None:
                _write(relation, form, output)
    except Exception as error:
        is_of_signal = type(error) is RuntimeError and str(error) == "Query interrupted"  # made of a KeyboardInterrupt
        if is_of_signal or type(error).__name__ == "InterruptException":
            raise KeyboardInterrupt from None
        if type(error).__module__.partition(".")[0] not in ("duckdb", "_duckdb", "pyarrow"):
            raise
        raise session.explained(error) from None


@contextmanager
def _interrupt_by_signals(session: "Session") -> Iterator[None]:
    """Interrupt DuckDB at a signal. Handlers run in the main thread between its steps, and one step may take hours."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    receiving, sending = socket.socketpair()
    sending.setblocking(False)

    def watch() -> None:
        is_open = bool(receiving.recv(1))
        receiving.settimeout(_INTERRUPT_S)
        while is_open:  # again and again: DuckDB forgets an interrupt when a statement begins
            session.connection.interrupt()
            with suppress(TimeoutError):
                is_open = bool(receiving.recv(1))

    def report(unraisable: "sys.UnraisableHookArgs") -> None:
        # An interrupted DuckDB ends the generators that it reads: the first Python code, in which the handler raises.
        if unraisable.exc_type is not KeyboardInterrupt:
            report_before(unraisable)

    watcher = threading.Thread(target=watch, name="ottla-query-signals", daemon=True)
    watcher.start()
    before = signal.set_wakeup_fd(sending.fileno(), warn_on_full_buffer=False)
    report_before, sys.unraisablehook = sys.unraisablehook, report
    try:
        yield
    finally:
        sys.unraisablehook = report_before
        signal.set_wakeup_fd(before)
        sending.close()
        watcher.join()
        receiving.close()


def _write(relation: Any, form: str, output: Path | None) -> None:
    """Write a relation to a file, or to standard output. Raises OSError, errors of DuckDB."""
    if output is None:
        _write_text(relation, form, sys.stdout)
        return
    with _replace_at_end(output) as path:
        if form == "parquet":
            relation.write_parquet(str(path))
            return
        with path.open("w", encoding="utf-8", newline="") as file:
            _write_text(relation, form, file)


@contextmanager
def _replace_at_end(output: Path) -> Iterator[Path]:
    """Yield a path that takes the place of `output` at the end, so that a failed query leaves no half of a file."""
    if output.exists() and not output.is_file():  # a device or a pipe
        yield output
        return
    path = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        yield path
        path.replace(output)
    finally:
        path.unlink(missing_ok=True)


def _write_text(relation: Any, form: str, out: TextIO) -> None:
    names: list[str] = relation.columns
    if form == "json":
        unique = _unique(names)
        for row in _rows(relation, "to_json(COLUMNS(*))"):
            # to_json gives NULL for NULL.
            cells = (f"{json.dumps(name)}:{cell or 'null'}" for name, cell in zip(unique, row, strict=True))
            out.write("{" + ",".join(cells) + "}\n")
        return
    rows = _rows(relation, "CAST(COLUMNS(*) AS VARCHAR)")
    if form == "csv":
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(names)
        writer.writerows(rows)
    else:
        _write_table(names, rows, out)


def _rows(relation: Any, conversion: str) -> Iterator[Sequence[str | None]]:
    """Yield the rows with each value converted to text."""
    for batch in relation.project(conversion).to_arrow_reader(_ROWS):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _unique(names: Sequence[str]) -> list[str]:
    """Return names with a number where one repeats: an object has each key once."""
    counts: dict[str, int] = {}
    result = []
    for name in names:
        count = counts[name] = counts.get(name, 0) + 1
        result.append(name if count == 1 else f"{name}_{count - 1}")
    return result


def _write_table(names: Sequence[str], rows: Iterator[Sequence[str | None]], out: TextIO) -> None:
    """Write a table whose columns are as wide as their widest cells in the first rows."""
    first: list[list[str]] = []
    for row in rows:
        first.append(_cells(row))
        if len(first) == _ROWS:
            break
    widths = [max([len(name), *(len(row[index]) for row in first)]) for index, name in enumerate(names)]
    out.write(
        click.style(_line(names, widths), bold=out.isatty()) + "\n" if out.isatty() else _line(names, widths) + "\n"
    )
    for cells in first:
        out.write(_line(cells, widths) + "\n")
    for row in rows:
        out.write(_line(_cells(row), widths) + "\n")


def _cells(row: Sequence[str | None]) -> list[str]:
    """Return cells on one line each; NULL is written as such."""
    return ["NULL" if cell is None else _short(cell) for cell in row]


def _short(cell: str) -> str:
    shown = "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in cell[: _WIDE + 1])
    return shown if len(cell) <= _WIDE else shown[: _WIDE - 1] + "…"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
    return "  ".join(padded).rstrip()
