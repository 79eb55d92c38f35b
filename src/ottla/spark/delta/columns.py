"""Columns of a data frame and of a Delta table, as fields of Delta's schema: the JSON that Spark writes as well.

A frame is appended by name, with the table's spelling, as Spark resolves names. Its types must be those of the table. A table
that computes or checks values, or renames columns, cannot be appended to by file: deltalake does not do that for files that it
has not written itself, and readers would trust it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyspark.sql.types import StructType

from ottla.spark.offsets import InvalidOption

Field = dict[str, Any]

_PARTITION_TYPES: Final = ("boolean", "byte", "date", "integer", "long", "short", "string")
_TYPES: Final = (*_PARTITION_TYPES, "binary", "double", "float", "timestamp", "timestamp_ntz")
_DECIMAL: Final = re.compile(r"decimal\(\d+,\s*-?\d+\)")
# Delta refuses them in a table without column mapping, as Parquet did.
_FORBIDDEN: Final = re.compile(r"[ ,;{}()\n\t=]")

_FEATURES: Final = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "clustering",
        "columnMapping",
        "deletionVectors",
        "domainMetadata",
        "generatedColumns",
        "identityColumns",
        "invariants",
        "timestampNtz",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)
"""Features that a table may have: those that an append need not know, and those that `check_appendable` finds in use."""
_COMPUTED: Final = ("delta.generationExpression", "delta.invariants", "delta.identity.start")


def fields_of(schema: StructType) -> list[Field]:
    """Return the columns of a data frame as nullable fields without metadata. Raises InvalidOption for what Delta lacks."""
    fields: list[Field] = [_plain(field) for field in json.loads(schema.json())["fields"]]
    if not fields:
        raise InvalidOption("there are no columns to write")
    seen: set[str] = set()
    for field in fields:
        name = field["name"]
        if _FORBIDDEN.search(name) or not name:
            raise InvalidOption(f"column {name!r} has a character that Delta refuses in names: rename it with alias()")
        if name.lower() in seen:
            raise InvalidOption(f"column {name} is there twice: rename one of them with alias()")
        seen.add(name.lower())
        unsupported = _find_unsupported(field["type"])
        if unsupported is not None:
            raise InvalidOption(f"column {name} has the type {unsupported}, which Delta lacks: cast it to another one")
    return fields


def _plain(kind: Any) -> Any:
    """Return a type or field without metadata, all of it nullable."""
    if isinstance(kind, list):
        return [_plain(item) for item in kind]
    if not isinstance(kind, dict):
        return kind.replace(" ", "") if isinstance(kind, str) else True
    plain = {key: value if key == "name" else _plain(value) for key, value in kind.items() if key != "metadata"}
    return {**plain, "metadata": {}} if "name" in plain else plain


def _find_unsupported(kind: Any) -> str | None:
    """Return the name of a type within `kind` that Delta does not have; None if it has all of them."""
    if isinstance(kind, str):
        return None if kind in _TYPES or _DECIMAL.fullmatch(kind) else kind
    if kind["type"] == "struct":
        children = [field["type"] for field in kind["fields"]]
    elif kind["type"] == "array":
        children = [kind["elementType"]]
    elif kind["type"] == "map":
        children = [kind["keyType"], kind["valueType"]]
    else:
        return str(kind["type"])
    return next((name for name in map(_find_unsupported, children) if name is not None), None)


def check_partitions(fields: Sequence[Field], partition_by: Sequence[str]) -> None:
    """Check the partition columns of a new table. Raises InvalidOption."""
    types = {field["name"]: field["type"] for field in fields}
    for name in partition_by:
        if name not in types:
            raise InvalidOption(f"partitionBy has {name}, which is no column; the columns are {', '.join(types)}")
        if types[name] not in _PARTITION_TYPES:
            raise InvalidOption(
                f"partitionBy has {name}, of the type {_text(types[name])}: it must be one of {', '.join(_PARTITION_TYPES)}"
            )
    if len(set(partition_by)) != len(partition_by):
        raise InvalidOption(f"partitionBy has a column twice: {', '.join(partition_by)}")
    if len(partition_by) == len(types):
        raise InvalidOption("partitionBy has all columns: none would be left in the files")


def check_appendable(
    features: Sequence[str] | None, configuration: Mapping[str, str | None], fields: Sequence[Field]
) -> None:
    """Check that files may be appended to a table without reading its rules. Raises InvalidOption.

    features  writer features of the table; None for a table of an older protocol
    """
    needs = sorted(set(features or ()) - _FEATURES)
    needs += sorted(name for name in configuration if name.startswith("delta.constraints."))
    if (configuration.get("delta.columnMapping.mode") or "none") != "none":
        needs.append("delta.columnMapping.mode")
    for field in fields:
        needs += [f"{key} of {field['name']}" for key in _COMPUTED if key in field.get("metadata", {})]
    if needs:
        raise InvalidOption(f"the table cannot be appended to by ottla-delta, which does not apply {', '.join(needs)}")


def match_columns(frame: Sequence[Field], table: Sequence[Field], *, merge: bool) -> tuple[list[str], list[Field]]:
    """Match the columns of a frame with those of a table.

    Returns the names of the frame's columns in the table's spelling, and the fields that the table lacks. Raises InvalidOption
    if one has another type, if the frame lacks a column that must not be null, and for lacking fields unless `merge`.
    """
    by_name = {field["name"].lower(): field for field in table}
    names, lacking = [], []
    for field in frame:
        known = by_name.pop(field["name"].lower(), None)
        if known is None:
            lacking.append(field)
        elif _plain(known)["type"] != field["type"]:
            raise InvalidOption(
                f"column {field['name']} is {_text(field['type'])}, in the table {_text(known['type'])}: cast it to that"
            )
        names.append((known or field)["name"])
    if lacking and not merge:
        raise InvalidOption(
            f"the table has no column {', '.join(field['name'] for field in lacking)}: "
            "set mergeSchema=true to add what is new, or select the others"
        )
    for field in by_name.values():
        if not field["nullable"]:
            raise InvalidOption(f"column {field['name']} of the table must not be null, and the rows do not have it")
    return names, lacking


def _text(kind: Any) -> str:
    return kind if isinstance(kind, str) else json.dumps(kind, separators=(",", ":"))
