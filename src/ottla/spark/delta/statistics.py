"""Statistics of a file in its add action, by which readers skip files (Delta's protocol, "Per-file Statistics").

    numRecords            rows
    nullCount             nulls by column; fields of structs are columns, lists and maps are left out
    minValues, maxValues  bounds by column, of numbers, dates, times and strings

A bound may be wider than the values, but not narrower. So a column has no bounds where JSON has no exact number, where a NaN is
among the numbers (readers order it above all others, Arrow leaves it out), and beyond the years of Python's dates.
"""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

COLUMNS: Final = 32
"""Columns with statistics, from the first on: delta.dataSkippingNumIndexedCols of Delta's own writer."""
_PREFIX: Final = 32
"""Characters of a string's bound, as in Delta's own writer."""
_HIGHEST: Final = "\U0010ffff"


def statistics(rows: pa.Table) -> str:
    """Return the statistics of a file with these rows, as JSON."""
    nulls: dict[str, Any] = {}
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    for name in rows.column_names[:COLUMNS]:
        # One array: the kernels for fields of structs take no chunks.
        column = rows.column(name).combine_chunks()
        _add(name, column, nulls, lowest, highest)
    values = {"numRecords": rows.num_rows, "minValues": lowest, "maxValues": highest, "nullCount": nulls}
    return json.dumps(values, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def has_nan(column: pa.Array) -> bool:
    """Return whether a NaN is in a column, at any depth."""
    kind = column.type
    if pa.types.is_struct(kind):
        return any(has_nan(pc.struct_field(column, [index])) for index in range(kind.num_fields))
    if pa.types.is_map(kind):
        return has_nan(column.keys) or has_nan(column.items)
    if pa.types.is_nested(kind):
        return has_nan(column.flatten())
    return bool(pa.types.is_floating(kind) and pc.any(pc.is_nan(column)).as_py())


def _add(name: str, column: pa.Array, nulls: dict[str, Any], lowest: dict[str, Any], highest: dict[str, Any]) -> None:
    kind = column.type
    if pa.types.is_struct(kind):
        below: tuple[dict[str, Any], ...] = ({}, {}, {})
        for index, field in enumerate(kind):
            _add(field.name, pc.struct_field(column, [index]), *below)
        for above, values in zip((nulls, lowest, highest), below, strict=True):
            if values:
                above[name] = values
        return
    if pa.types.is_nested(kind):
        return
    nulls[name] = column.null_count
    bounds = _bounds(column)
    if bounds is not None:
        lowest[name], highest[name] = bounds


def _bounds(column: pa.Array) -> tuple[Any, Any] | None:
    """Return the least and the greatest value as in JSON; None if there are no bounds."""
    kind = column.type
    if pa.types.is_boolean(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return None
    if has_nan(column):
        return None
    try:
        bounds = pc.min_max(column).as_py()
        least, greatest = _json(bounds["min"]), _json(bounds["max"])
    except (OverflowError, ValueError):  # beyond the years of Python's dates
        return None
    if least is None or greatest is None:
        return None
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return least[:_PREFIX], _above(greatest)
    if pa.types.is_floating(kind):
        # Some readers order -0.0 below 0.0, as Arrow in Rust: the wider bound, as in Parquet.
        return least or -0.0, greatest or 0.0
    return least, greatest


def _above(text: str) -> str:
    """Return a text that is not less than `text`, and shorter if that is long."""
    end = next((end for end in range(_PREFIX, len(text)) if text[end] != _HIGHEST), len(text))
    return text if end == len(text) else text[:end] + _HIGHEST


def _json(value: Any) -> Any:
    """Return a value as in JSON; None without an exact one."""
    if isinstance(value, Decimal):
        number = float(value)
        return number if Decimal(repr(number)) == value else None
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return None
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return value.isoformat(timespec="microseconds")
        return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    if isinstance(value, date):
        return value.isoformat()
    return value
