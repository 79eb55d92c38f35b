"""Conversion between the values of a schema and a column.

A format decodes a payload into the cheapest plain Python values (a timestamp is a number); pyarrow converts many of them at
once to a column of type `wire`; a cast converts that to type `column`, a type of Spark. Values that pyarrow cannot convert,
such as unions, have conversion functions: `up` into a column, `down` out of it.
"""

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ottla.schemas.registry import UnsupportedSchema

Convert = Callable[[Any], Any]


class Shape(NamedTuple):
    """Column types of a schema; `stored` is the input type of `down` if it is not `wire`."""

    wire: Any
    column: Any
    up: Convert | None = None
    down: Convert | None = None
    stored: Any = None

    @property
    def source(self) -> Any:
        """Type of the values to encode."""
        return self.wire if self.stored is None else self.stored


def plain(kind: Any) -> Shape:
    """Return the shape of values that need no conversion."""
    return Shape(kind, kind)


def record(fields: Iterable[tuple[str, Shape]]) -> Shape:
    """Return the shape of structs: dicts by field name."""
    shapes = dict(fields)
    if not shapes:
        raise UnsupportedSchema("a record without fields has no Spark type")
    return Shape(
        pa.struct([(name, shape.wire) for name, shape in shapes.items()]),
        pa.struct([(name, shape.column) for name, shape in shapes.items()]),
        _each_field({name: shape.up for name, shape in shapes.items() if shape.up}),
        _each_field({name: shape.down for name, shape in shapes.items() if shape.down}),
        pa.struct([(name, shape.source) for name, shape in shapes.items()]),
    )


def _each_field(converts: dict[str, Convert]) -> Convert | None:
    if not converts:
        return None

    def convert(value: dict[str, Any]) -> dict[str, Any]:
        changed = {name: convert(value[name]) for name, convert in converts.items() if value.get(name) is not None}
        return {**value, **changed}

    return convert


def array(item: Shape) -> Shape:
    """Return the shape of lists."""

    def of_items(convert: Convert | None) -> Convert | None:
        return convert and (lambda values: [None if value is None else convert(value) for value in values])

    return Shape(
        pa.list_(item.wire), pa.list_(item.column), of_items(item.up), of_items(item.down), pa.list_(item.source)
    )


def mapping(value: Shape, key: Any = None) -> Shape:
    """Return the shape of maps: dicts."""
    kind = key or pa.string()

    def of_values(convert: Convert | None) -> Convert | None:
        return convert and (
            lambda values: {name: None if item is None else convert(item) for name, item in values.items()}
        )

    return Shape(
        pa.map_(kind, value.wire),
        pa.map_(kind, value.column),
        of_values(value.up),
        of_values(value.down),
        pa.map_(kind, value.source),
    )


def column_of(values: list[Any], shape: Shape) -> Any:
    """Return a column of Spark's type from decoded values, None for null; of nanoseconds the microseconds are kept.

    Raises pyarrow's errors for values of other types, and for times that microseconds do not hold.
    """
    if shape.up is not None:
        up = shape.up
        values = [None if value is None else up(value) for value in values]
    column = pa.array(values, type=shape.wire)
    if shape.wire == shape.column:
        return column
    return column.cast(options=pc.CastOptions(shape.column, allow_time_truncate=True))


def values_of(column: Any, shape: Shape) -> list[Any]:
    """Return the values of a column for encoding, None for null. Raises pa.ArrowInvalid for another type."""
    if shape.source != column.type:
        column = column.cast(shape.column)
        for kind in (shape.wire, shape.source):
            column = column.cast(kind, safe=False)
    values = _pythonic(column)
    if shape.down is None:
        return values
    down = shape.down
    return [None if value is None else down(value) for value in values]


def _pythonic(column: Any) -> list[Any]:
    """Return `to_pylist` with maps as dicts, several times faster: it creates one object per cell."""
    kind = column.type
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        children = [_pythonic(child) for child in column.flatten()]
        cells: list[Any] = [dict(zip(names, row, strict=True)) for row in zip(*children, strict=True)]
    elif pa.types.is_map(kind) or pa.types.is_list(kind):
        starts = column.offsets.to_pylist()
        spans = list(pairwise(starts))
        if pa.types.is_map(kind):
            keys, items = _pythonic(column.keys), _pythonic(column.items)
            cells = [dict(zip(keys[a:b], items[a:b], strict=True)) for a, b in spans]
        else:
            values = _pythonic(column.values)
            cells = [values[a:b] for a, b in spans]
    elif column.null_count == 0 and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return column.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]  # pyarrow has no types
    else:
        return column.to_pylist()  # type: ignore[no-any-return]  # pyarrow has no types
    if column.null_count:
        valid = column.is_valid().to_pylist()
        cells = [value if there else None for value, there in zip(cells, valid, strict=True)]
    return cells
