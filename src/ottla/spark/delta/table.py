"""Delta table of a sink: creation, schema, and one commit for each batch.

A batch of a stream is an application transaction: the id of the query, and the number of the batch. deltalake accepts the same
transaction twice; what it finds is only that another commit with the id has come in since the table was loaded. So:

    load the table                    at every attempt
    has it this batch, or a later one
        committed before this run of the batch was planned   the run before was killed in between: skip
        committed since then                                 another driver has this checkpoint: ConcurrentQuery
    append with the handle that was asked
        CommitFailedError             another writer was faster: try again

A second driver must not skip: its checkpoint may have other offsets for the batch, and it would go on after them.
"""

import json
import time
import uuid
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from ottla.spark.delta.columns import Field, check_appendable, check_partitions, match_columns
from ottla.spark.delta.options import TableOptions
from ottla.spark.offsets import InvalidOption

_ATTEMPTS: Final = 20
_PAUSE_S: Final = 0.05
_COMMIT: Final = "ottlaCommit"
"""Name in the commit's information of an id that only the writing driver has."""


class ConcurrentQuery(RuntimeError):
    """Another driver has committed the same batch of the same query while this one ran it."""


class BatchId(NamedTuple):
    """Application transaction of a batch.

    app, number  id of the query and number of the batch, or what a batch write has chosen
    planned      version of the table before the tasks of this run of the batch
    """

    app: str
    number: int
    planned: int


class Target(NamedTuple):
    """Table that rows are appended to.

    names         names of the rows' columns, in the spelling of the table
    partition_by  partition columns
    required      columns that must not be null
    """

    table: DeltaTable
    names: list[str]
    partition_by: list[str]
    required: list[str]

    @property
    def version(self) -> int:
        """Version of the table that was loaded."""
        return int(self.table.version())


def open_target(options: TableOptions, fields: Sequence[Field]) -> Target:
    """Load the table, after creating it or adding columns where that is needed. Raises InvalidOption, DeltaError."""
    for attempt in range(_ATTEMPTS):
        try:
            return _open(options, fields)
        except CommitFailedError:
            if attempt == _ATTEMPTS - 1:
                raise
        time.sleep(_PAUSE_S)
    raise AssertionError("the last attempt returns or raises")


def _open(options: TableOptions, fields: Sequence[Field]) -> Target:
    table = _load_or_create(options, fields)
    metadata = table.metadata()
    known: list[Field] = json.loads(table.schema().to_json())["fields"]
    check_appendable(table.protocol().writer_features, metadata.configuration, known)
    partition_by = list(metadata.partition_columns)
    if options.partition_by is not None and list(options.partition_by) != partition_by:
        raise InvalidOption(
            f"partitionBy is {', '.join(options.partition_by) or 'empty'}, but the table "
            f"{'is partitioned by ' + ', '.join(partition_by) if partition_by else 'has no partitions'}"
        )
    names, lacking = match_columns(fields, known, merge=options.merge_schema)
    missing = [name for name in partition_by if name not in names]
    if missing:
        raise InvalidOption(f"the rows lack the partition column {', '.join(missing)}")
    if lacking:
        table.alter.add_columns(_schema(lacking).fields)
    return Target(table, names, partition_by, [field["name"] for field in known if not field["nullable"]])


def _load_or_create(options: TableOptions, fields: Sequence[Field]) -> DeltaTable:
    """Return the table, after creating it if it is missing."""
    try:
        return DeltaTable(options.location, storage_options=options.storage or None)
    except TableNotFoundError:
        pass
    partition_by = list(options.partition_by or ())
    check_partitions(fields, partition_by)
    try:
        return DeltaTable.create(
            options.location,
            _schema(fields),
            mode="error",
            partition_by=partition_by or None,
            storage_options=options.storage or None,
        )
    except DeltaError:
        # Created by another writer since then; or it cannot be created, which the next line says as well.
        if not DeltaTable.is_deltatable(options.location, options.storage or None):
            raise
        return DeltaTable(options.location, storage_options=options.storage or None)


def _schema(fields: Sequence[Field]) -> Schema:
    return Schema.from_json(json.dumps({"type": "struct", "fields": list(fields)}))


def append(options: TableOptions, fields: Sequence[Field], files: list[AddAction], batch: BatchId | None) -> None:
    """Append files to the table in one commit; a batch that the table has is skipped.

    Raises ConcurrentQuery, InvalidOption if the table has changed so that the files do not fit, and CommitFailedError.
    """
    commit = uuid.uuid4().hex
    for attempt in range(_ATTEMPTS):
        target = open_target(options, fields)
        if batch is not None and _has(target.table, batch, commit):
            return
        try:
            _append(target, files, batch, commit)
        except CommitFailedError:
            if attempt == _ATTEMPTS - 1:
                raise
            time.sleep(_PAUSE_S)
        else:
            return


def _has(table: DeltaTable, batch: BatchId, commit: str) -> bool:
    """Return whether the table has this batch or a later one. Raises ConcurrentQuery if it is new, and not of `commit`."""
    newest = table.transaction_version(batch.app)
    if newest is None or newest < batch.number:
        return False
    since = table.version() - batch.planned
    for entry in table.history(since) if since > 0 else ():
        parameters: dict[str, Any] = entry.get("operationParameters", {})
        if parameters.get("queryId") == batch.app and entry.get(_COMMIT) != commit:
            raise ConcurrentQuery(
                f"batch {batch.number} of query {batch.app} has been committed to the table by another driver meanwhile: "
                "two drivers run on one checkpoint, stop one of them"
            )
    return True


def _append(target: Target, files: list[AddAction], batch: BatchId | None, commit: str) -> None:
    information: dict[str, Any] = {_COMMIT: commit}
    transactions = None
    if batch is not None:
        # Named as in the commits of Delta's own streaming sink.
        information["operationParameters"] = {"queryId": batch.app, "epochId": str(batch.number)}
        transactions = [Transaction(batch.app, batch.number)]
    target.table.create_write_transaction(
        list(files),
        "append",
        target.table.schema(),
        target.partition_by or None,
        commit_properties=CommitProperties(custom_metadata=information, app_transactions=transactions),
    )
