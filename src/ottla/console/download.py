"""Messages as a file: CSV, JSON, or Parquet (extra `arrow`)."""

import csv
import io
import json
import re
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

from ottla.console.problem import Problem
from ottla.extras import install_command
from ottla.records.record import Record

_FORMULA: Final = re.compile(r"[\s\x00-\x20\ufeff\u200b-\u200f]*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n\x00]")
"""Begin of a formula, in half or full width; also after characters that a spreadsheet may drop."""
_NUMBER: Final = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_LAST_MS: Final = (2**63 - 1) // 1000
"""The last time that a column of microseconds has; later ones are null."""


class File(NamedTuple):
    """Content and media type of a file."""

    content: bytes
    media_type: str


def parquet_remedy() -> str:
    """Return what to do where Parquet cannot be written."""
    return f"Parquet needs pyarrow where the console runs: {install_command('arrow')}"


def has_parquet() -> bool:
    """Return whether pyarrow is installed; it is not imported."""
    return find_spec("pyarrow") is not None


def file_of(kind: str, topic: str, records: list[Record]) -> File:
    """Return the records of a topic as a file. Raises Problem for an unknown kind, and for Parquet without pyarrow."""
    write = _WRITERS.get(kind)
    if write is None:
        raise Problem(f"download is one of {', '.join(KINDS)}.")
    return write(topic, records)


def _csv(_topic: str, records: list[Record]) -> File:
    """Return one line for each record: text where it is UTF-8, hex otherwise.

    Spreadsheets execute text that looks like a formula: it gets a quote in front, and is quoted as a whole, so that no other
    separator than the comma begins a cell.
    """
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(["partition", "offset", "timestamp", "key", "value", "headers"])
    for record in records:
        row = _plain(record)
        key, value = (None if text is None else _defuse(text) for text in (row["key"], row["value"]))
        headers = json.dumps(row["headers"], ensure_ascii=False)
        writer.writerow([record.partition, record.offset, record.timestamp, key, value, headers])
    return File(out.getvalue().encode(), "text/csv; charset=utf-8")


def _defuse(text: str) -> str:
    """Return a text that a spreadsheet takes for text: not for a formula, but numbers stay numbers."""
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def _json(_topic: str, records: list[Record]) -> File:
    """Return an array of objects: text where it is UTF-8, hex otherwise."""
    rows = [_plain(record) for record in records]
    return File(json.dumps(rows, ensure_ascii=False, indent=1).encode(), "application/json")


def _parquet(topic: str, records: list[Record]) -> File:
    """Return the columns of Spark's Kafka source, with keys and values as bytes."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise Problem(f"{parquet_remedy()}.", 501) from None
    from ottla.records.arrow import TYPES, schema

    columns = {
        "key": [record.key for record in records],
        "value": [record.value for record in records],
        "topic": [topic] * len(records),
        "partition": [record.partition for record in records],
        "offset": [record.offset for record in records],
        "timestamp": [record.timestamp * 1000 if 0 <= record.timestamp <= _LAST_MS else None for record in records],
        "timestampType": [int(record.timestamp_type) for record in records],
        "headers": [[{"key": name, "value": value} for name, value in record.headers] for record in records],
    }
    table = pa.table(
        {name: pa.array(column, TYPES[name]) for name, column in columns.items()}, schema=schema([*columns])
    )
    out = io.BytesIO()
    pq.write_table(table, out, compression="zstd")
    return File(out.getvalue(), "application/vnd.apache.parquet")


def _plain(record: Record) -> dict[str, Any]:
    return {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _content(record.key),
        "value": _content(record.value),
        "headers": [[name, _content(value)] for name, value in record.headers],
    }


def _content(data: bytes | None) -> str | None:
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}" if data is not None else None


_WRITERS: Final[Mapping[str, Callable[[str, list[Record]], File]]] = {"csv": _csv, "json": _json, "parquet": _parquet}
KINDS: Final = tuple(_WRITERS)
"""Names of the kinds, which are also the suffixes of the files."""
