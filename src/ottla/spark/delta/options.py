"""Options of the sink `ottla-delta`."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import unquote

from ottla.spark.offsets import InvalidOption
from ottla.spelling import nearest

OPTIONS: Final = ("path", "partitionBy", "mergeSchema", "txnAppId", "txnVersion")
STORAGE: Final = "storage."
"""Prefix of options for the object store, as in the storage_options of deltalake."""

# Added by Spark to the options of a writer.
_SPARK_OPTIONS: Final = ("checkpointlocation", "queryname")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


class TableOptions(NamedTuple):
    """Parsed options.

    location      absolute path or URL of the table
    partition_by  partition columns; None for those of the table, none for a new one
    merge_schema  whether columns that the table lacks are added to it
    storage       options for the object store
    transaction   application id and version of a batch write; None without them
    """

    location: str
    partition_by: tuple[str, ...] | None
    merge_schema: bool
    storage: dict[str, str]
    transaction: tuple[str, int] | None

    @property
    def is_local(self) -> bool:
        """Return whether the table is in a file system of this machine."""
        return _SCHEME.match(self.location) is None


def table_options(raw_options: Mapping[str, str], *, stream: bool) -> TableOptions:
    """Parse and check the options of the sink. Raises InvalidOption."""
    spelling = {name.lower(): name for name in OPTIONS}
    options: dict[str, str] = {}
    storage: dict[str, str] = {}
    for key, value in raw_options.items():
        lower = key.lower()
        if lower.startswith(STORAGE):
            storage[lower.removeprefix(STORAGE)] = value
        elif lower in spelling:
            options[spelling[lower]] = value
        elif lower not in _SPARK_OPTIONS:
            near = nearest(lower, [*OPTIONS, STORAGE])
            hint = f"; did you mean {near}?" if near is not None else ""
            raise InvalidOption(f"{key} is not an option of the ottla-delta sink{hint}")
    merge = options.get("mergeSchema", "false").lower()
    if merge not in ("true", "false"):
        raise InvalidOption(f"mergeSchema must be true or false, not {options['mergeSchema']!r}")
    transaction = _transaction(options)
    if stream and transaction is not None:
        raise InvalidOption("txnAppId and txnVersion are for batch writes only: a stream has its query and batch ids")
    return TableOptions(
        location=_location(options.get("path", "")),
        partition_by=_columns(options["partitionBy"]) if "partitionBy" in options else None,
        merge_schema=merge == "true",
        storage=storage,
        transaction=transaction,
    )


def _location(path: str) -> str:
    """Return the path or URL of a table. Raises InvalidOption for a relative path."""
    location = path.strip()
    if not location:
        raise InvalidOption("no table to write to: set the option path")
    if location.lower().startswith("file:"):
        location = unquote(re.sub(r"^file:(//)?", "", location, flags=re.IGNORECASE))
    if _SCHEME.match(location) is None and not location.startswith("/"):
        raise InvalidOption(f"path must be absolute or a URL, because executors have other folders: not {path!r}")
    return location.rstrip("/") or "/"


def _columns(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _transaction(options: Mapping[str, str]) -> tuple[str, int] | None:
    app, version = options.get("txnAppId"), options.get("txnVersion")
    if app is None and version is None:
        return None
    if not app or version is None:
        raise InvalidOption("txnAppId and txnVersion must be set together")
    if not version.strip().isdecimal():
        raise InvalidOption(f"txnVersion must be a whole number from 0 on, not {version!r}")
    return app, int(version)
