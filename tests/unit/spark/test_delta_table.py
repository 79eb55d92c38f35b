"""Files and commits of format("ottla-delta") without Spark, read back with deltalake."""

import json
import math
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_schema

deltalake = pytest.importorskip("deltalake", reason="the extra delta")

from deltalake import DeltaTable  # noqa: E402

from ottla.spark.delta.columns import Field, fields_of  # noqa: E402
from ottla.spark.delta.files import FileWriter  # noqa: E402
from ottla.spark.delta.options import TableOptions, table_options  # noqa: E402
from ottla.spark.delta.sink import TaskFiles  # noqa: E402
from ottla.spark.delta.statistics import statistics  # noqa: E402
from ottla.spark.delta.table import BatchId, ConcurrentQuery, append, open_target  # noqa: E402
from ottla.spark.offsets import InvalidOption  # noqa: E402
from ottla.spark.releases import HAS_ARROW_STREAM_SINK  # noqa: E402

QUERY = "9e8a31c2"
HIGHEST = "\U0010ffff"
VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "long": (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    "byte": (pa.int8(), st.integers(-128, 127)),
    "double": (pa.float64(), st.floats()),
    "float": (pa.float32(), st.floats(width=32)),
    "decimal": (pa.decimal128(38, 6), st.decimals(-(10**30), 10**30, places=6)),
    "date": (pa.date32(), st.dates()),
    "timestamp": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    "local": (pa.timestamp("us"), st.datetimes()),
    "text": (pa.string(), st.text(st.sampled_from(["a", "\ue000", "\U0001f600", HIGHEST]), max_size=40)),
}


def frame_fields(rows: pa.Table) -> list[Field]:
    return fields_of(from_arrow_schema(rows.schema, prefer_timestamp_ntz=True))


def options(folder: Path, **settings: str) -> TableOptions:
    return table_options({"path": str(folder), **settings}, stream=True)


def written(opts: TableOptions, rows: pa.Table) -> list[Any]:
    """The files of one task."""
    target = open_target(opts, frame_fields(rows))
    writer = FileWriter(opts, names=target.names, partition_by=target.partition_by, required=target.required)
    for batch in rows.to_batches():
        writer.append(batch)
    return writer.finish()


def add(opts: TableOptions, rows: pa.Table, number: int, *, planned: int | None = None, query: str = QUERY) -> None:
    """A whole batch: planned, written, committed."""
    fields = frame_fields(rows)
    if planned is None:
        planned = open_target(opts, fields).version
    append(opts, fields, written(opts, rows), BatchId(query, number, planned))


def table_of(folder: Path, **options: Any) -> pa.Table:
    return pa.table(DeltaTable(str(folder)).to_pyarrow_table(**options))


def ids(*numbers: int) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64())})


def read_ids(folder: Path) -> list[int]:
    return sorted(table_of(folder).column("id").to_pylist())


# -- statistics --


@pytest.mark.parametrize("name", VALUES)
@given(data=st.data())
def test_bounds_contain_every_value(name: str, data: st.DataObject) -> None:
    kind, values = VALUES[name]
    column: list[Any] = data.draw(st.lists(st.none() | values, max_size=5))
    stats = json.loads(statistics(pa.table({"c": pa.array(column, kind)})))
    assert (stats["numRecords"], stats["nullCount"]) == (len(column), {"c": column.count(None)})
    there = [value for value in column if value is not None]
    if "c" not in stats["minValues"]:
        assert "c" not in stats["maxValues"]
        exact = not there or name not in ("double", "float", "decimal")
        assert not there or not exact
        return
    low, high = stats["minValues"]["c"], stats["maxValues"]["c"]
    for value in there:
        assert not (isinstance(value, float) and math.isnan(value))
        if isinstance(value, datetime):
            # As text, because years have four digits.
            local = value.replace(tzinfo=None).isoformat(timespec="microseconds") + ("Z" if value.tzinfo else "")
            assert low <= local <= high
        elif isinstance(value, date):
            assert low <= value.isoformat() <= high
        elif isinstance(value, str):
            assert low.encode() <= value.encode() <= high.encode()
        elif isinstance(value, Decimal):
            assert Decimal(repr(low)) <= value <= Decimal(repr(high))
        else:
            assert low <= value <= high


def test_long_strings_have_short_bounds() -> None:
    stats = json.loads(statistics(pa.table({"c": ["b" * 100, "a" * 100]})))
    assert (stats["minValues"]["c"], stats["maxValues"]["c"]) == ("a" * 32, "b" * 32 + HIGHEST)


def test_fields_of_structs_have_statistics_and_lists_have_none() -> None:
    struct = pa.struct([("a", pa.int64()), ("b.c", pa.struct([("d", pa.string())])), ("l", pa.list_(pa.int64()))])
    rows = [None, {"a": 2, "b.c": None, "l": [1]}, {"a": None, "b.c": {"d": "x"}, "l": None}]
    stats = json.loads(
        statistics(
            pa.table({"s": pa.array(rows, struct), "m": pa.array([[("k", 1)]] * 3, pa.map_(pa.string(), pa.int64()))})
        )
    )
    assert stats == {
        "numRecords": 3,
        "nullCount": {"s": {"a": 2, "b.c": {"d": 2}}},
        "minValues": {"s": {"a": 2, "b.c": {"d": "x"}}},
        "maxValues": {"s": {"a": 2, "b.c": {"d": "x"}}},
    }


def test_bounds_contain_both_zeros() -> None:
    """DuckDB's reader left out a file with -0.0 at most for `WHERE x >= 0`."""
    for zero in (0.0, -0.0):
        stats = json.loads(statistics(pa.table({"low": [zero, 1.0], "high": [-1.0, zero]})))
        assert (str(stats["minValues"]["low"]), str(stats["maxValues"]["high"])) == ("-0.0", "0.0")


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1.0, math.nan]),
        pa.array([1.0, math.inf]),
        pa.array([-math.inf, 1.0]),
        pa.array([True, False]),
        pa.array([b"a"]),
        pa.array([Decimal("0.1234567890123456789")]),
        pa.array([1 << 62], pa.timestamp("us")),
        pa.array([None, None], pa.int64()),
    ],
    ids=str,
)
def test_there_are_no_bounds_where_they_would_be_wrong(column: pa.Array) -> None:
    stats = json.loads(statistics(pa.table({"c": column})))
    assert (stats["minValues"], stats["maxValues"]) == ({}, {})
    assert stats["nullCount"] == {"c": column.null_count}


def test_the_first_32_columns_have_statistics() -> None:
    stats = json.loads(statistics(pa.table({f"c{n}": [n] for n in range(40)})))
    assert list(stats["nullCount"]) == list(stats["maxValues"]) == [f"c{n}" for n in range(32)]


# -- files --


def test_every_type_is_read_back(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "byte": pa.array([1, None], pa.int8()),
            "short": pa.array([1, None], pa.int16()),
            "integer": pa.array([1, None], pa.int32()),
            "long": pa.array([1, None], pa.int64()),
            "float": pa.array([1.5, None], pa.float32()),
            "double": pa.array([math.nan, None], pa.float64()),
            "decimal": pa.array([Decimal("1.50"), None], pa.decimal128(9, 2)),
            "boolean": pa.array([True, None]),
            "text": pa.array(["é", None]),
            "binary": pa.array([b"\0", None]),
            "date": pa.array([date(2024, 2, 29), None]),
            "timestamp": pa.array([datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
            "local": pa.array([datetime(2024, 2, 29, tzinfo=UTC), None], pa.timestamp("us")),
            "struct": pa.array([{"a": [1, None]}, None], pa.struct([("a", pa.list_(pa.int64()))])),
            "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
        }
    )
    add(options(tmp_path / "t"), rows, 0)
    read = table_of(tmp_path / "t")
    assert str(read.to_pylist()) == str(rows.to_pylist())  # as text, because a NaN is not equal to itself
    assert read.column_names == rows.column_names


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1.0, math.nan]),
        pa.array([1.0, math.nan], pa.float32()),
        pa.array([{"a": math.nan}, None]),
        pa.array([[1.0], [math.nan]]),
        pa.array([[("k", math.nan)]], pa.map_(pa.string(), pa.float64())),
        pa.array([{"a": [{"b": math.nan}]}]),
    ],
    ids=str,
)
def test_a_file_has_no_bounds_that_leave_a_nan_out(column: pa.Array, tmp_path: Path) -> None:
    """DuckDB found no rows with `WHERE x > 5`, although it orders NaN above all numbers: it believed the file's bounds."""
    add(options(tmp_path / "nan"), pa.table({"c": column}), 0)
    add(options(tmp_path / "numbers"), pa.table({"c": [1.0]}), 0)
    (nan,), (numbers,) = ((tmp_path / name).glob("*.parquet") for name in ("nan", "numbers"))
    group = pq.ParquetFile(nan).metadata.row_group(0)
    assert [group.column(n).statistics for n in range(group.num_columns)] == [None] * group.num_columns
    assert pq.ParquetFile(numbers).metadata.row_group(0).column(0).statistics.has_min_max


def test_rows_go_to_the_files_of_their_partitions(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "day": pa.array([date(2024, 1, 1), None, date(2024, 1, 1), date(2024, 1, 2)]),
            "id": [1, 2, 3, 4],
            "region": ["a/b =%", "x", "a/b =%", ""],
            "wide": pa.array([True, False, True, None]),
        }
    )
    add(options(tmp_path / "t", partitionBy="region,day,wide"), rows, 0)
    read = table_of(tmp_path / "t")
    row_values = {tuple(row[name] for name in ("day", "id", "region", "wide")) for row in read.to_pylist()}
    assert row_values == {
        (date(2024, 1, 1), 1, "a/b =%", True),
        (None, 2, "x", False),
        (date(2024, 1, 1), 3, "a/b =%", True),
        (date(2024, 1, 2), 4, None, None),  # an empty string is null in Delta's log
    }
    table = DeltaTable(str(tmp_path / "t"))
    assert table.metadata().partition_columns == ["region", "day", "wide"]
    assert len(table.file_uris()) == 3
    assert [row["id"] for row in table_of(tmp_path / "t", filters=[("region", "=", "x")]).to_pylist()] == [2]


def test_a_task_writes_before_its_rows_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.spark.delta.files._MEMORY", 10_000)
    rows = pa.Table.from_batches([pa.record_batch({"id": list(range(n, n + 1000))}) for n in range(0, 5000, 1000)])
    files = written(options(tmp_path / "t"), rows)
    assert [json.loads(file.stats)["numRecords"] for file in files] == [2000, 2000, 1000]


def test_a_task_without_rows_writes_no_file(tmp_path: Path) -> None:
    opts = options(tmp_path / "t")
    assert written(opts, ids().schema.empty_table()) == []
    add(opts, ids().schema.empty_table(), 0)
    assert (read_ids(tmp_path / "t"), DeltaTable(str(tmp_path / "t")).transaction_version(QUERY)) == ([], 0)


def test_a_null_is_refused_where_the_table_has_none(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    DeltaTable.create(str(tmp_path / "t"), deltalake.Schema.from_arrow(schema))
    opts = options(tmp_path / "t")
    add(opts, ids(1), 0)
    with pytest.raises(InvalidOption, match="column id of the table must not be null, and a row has null"):
        written(opts, pa.table({"id": pa.array([1, None], pa.int64())}))


# -- schema --


def test_new_columns_are_added_with_merge_schema(tmp_path: Path) -> None:
    opts = options(tmp_path / "t")
    add(opts, ids(1), 0)
    more = pa.table({"note": ["x"], "ID": [2]})
    with pytest.raises(InvalidOption, match="the table has no column note"):
        add(opts, more, 1)
    add(options(tmp_path / "t", mergeSchema="true"), more, 1)
    add(opts, ids(3), 2)
    read = table_of(tmp_path / "t").sort_by("id")
    assert read.to_pydict() == {"id": [1, 2, 3], "note": [None, "x", None]}


def test_columns_that_another_writer_adds_meanwhile_do_not_matter(tmp_path: Path) -> None:
    opts = options(tmp_path / "t", mergeSchema="true")
    add(opts, ids(1), 0)
    files = written(opts, ids(2))
    add(opts, pa.table({"id": [3], "note": ["x"]}), 0, query="other")
    append(opts, frame_fields(ids(2)), files, BatchId(QUERY, 1, 2))
    assert read_ids(tmp_path / "t") == [1, 2, 3]


def test_the_partitions_of_a_table_cannot_be_changed(tmp_path: Path) -> None:
    rows = pa.table({"id": [1], "day": ["x"]})
    add(options(tmp_path / "t", partitionBy="day"), rows, 0)
    add(options(tmp_path / "t"), rows, 1)
    with pytest.raises(InvalidOption, match="partitionBy is id, but the table is partitioned by day"):
        add(options(tmp_path / "t", partitionBy="id"), rows, 2)
    with pytest.raises(InvalidOption, match="the rows lack the partition column day"):
        add(options(tmp_path / "t"), ids(1), 2)


def test_a_table_with_constraints_is_refused(tmp_path: Path) -> None:
    opts = options(tmp_path / "t")
    add(opts, ids(1), 0)
    DeltaTable(str(tmp_path / "t")).alter.add_constraint({"positive": "id > 0"})
    with pytest.raises(InvalidOption, match=r"does not apply delta\.constraints\.positive"):
        add(opts, ids(-1), 1)


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Exception, match=r"file|directory"):
        add(options(tmp_path / "file" / "t"), ids(1), 0)


# -- commits --


def test_a_batch_that_is_run_again_is_skipped(tmp_path: Path) -> None:
    opts = options(tmp_path / "t")
    for number in (0, 1, 1, 0, 2):
        add(opts, ids(number), number)
    assert read_ids(tmp_path / "t") == [0, 1, 2]
    add(opts, ids(10), 0, query="other")
    assert read_ids(tmp_path / "t") == [0, 1, 2, 10]


def test_a_batch_is_skipped_after_its_commit_has_gone_from_the_log(tmp_path: Path) -> None:
    opts = options(tmp_path / "t")
    add(opts, ids(0), 0)
    add(opts, ids(10), 0, query="other")
    DeltaTable(str(tmp_path / "t")).create_checkpoint()
    for version in (0, 1):
        (tmp_path / "t" / "_delta_log" / f"{version:020}.json").unlink()
    add(opts, ids(0), 0)
    add(opts, ids(1), 1)
    assert read_ids(tmp_path / "t") == [0, 1, 10]


def test_a_second_driver_that_runs_the_same_batch_is_refused(tmp_path: Path) -> None:
    opts = options(tmp_path / "t")
    add(opts, ids(0), 0)
    planned = open_target(opts, frame_fields(ids())).version
    add(opts, ids(1), 1)
    with pytest.raises(ConcurrentQuery, match=f"batch 1 of query {QUERY} has been committed .* stop one of them"):
        add(opts, ids(1, 2), 1, planned=planned)
    assert read_ids(tmp_path / "t") == [0, 1]


def test_a_commit_whose_response_was_lost_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opts = options(tmp_path / "t")
    commit = DeltaTable.create_write_transaction
    lost: list[bool] = []

    def losing(table: DeltaTable, *arguments: Any, **keywords: Any) -> None:
        commit(table, *arguments, **keywords)
        if not lost:
            lost.append(True)
            raise deltalake.exceptions.CommitFailedError("the response was lost")

    open_target(opts, frame_fields(ids()))
    before = DeltaTable(str(tmp_path / "t")).version()
    monkeypatch.setattr(DeltaTable, "create_write_transaction", losing)
    add(opts, ids(0), 0)
    assert (read_ids(tmp_path / "t"), lost) == ([0], [True])
    assert DeltaTable(str(tmp_path / "t")).version() == before + 1


@pytest.mark.skipif(not HAS_ARROW_STREAM_SINK, reason="PySpark 4.0 has no sink of Arrow batches for streams")
def test_a_batch_without_rows_is_committed_too(tmp_path: Path) -> None:
    """Its number says how far the table is behind the source."""
    from ottla.spark.delta.sink import StreamTableWriter

    opts = options(tmp_path / "t")
    add(opts, ids(0), 0)
    writer = StreamTableWriter(opts, from_arrow_schema(ids().schema, prefer_timestamp_ntz=True))
    planned = open_target(opts, frame_fields(ids())).version
    writer.commit([TaskFiles([], planned, QUERY)], 1)
    table = DeltaTable(str(tmp_path / "t"))
    assert table.transaction_version(QUERY) == 1
    assert read_ids(tmp_path / "t") == [0]


def test_drivers_that_commit_at_once_commit_a_batch_once(tmp_path: Path) -> None:
    opts = options(tmp_path / "t")
    ready = threading.Barrier(4)

    def run(driver: int, number: int) -> bool:
        files, planned = written(opts, ids(number)), open_target(opts, frame_fields(ids())).version
        ready.wait(30)
        try:
            append(opts, frame_fields(ids()), files, BatchId(QUERY, number, planned))
        except ConcurrentQuery:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        for number in range(25):
            done = list(pool.map(run, range(4), [number] * 4))
            assert done.count(True) == 1, done
    assert read_ids(tmp_path / "t") == list(range(25))


def test_queries_that_write_to_one_table_at_once_lose_nothing(tmp_path: Path) -> None:
    def run(query: int) -> None:
        for number in range(10):
            rows = pa.table({"id": [100 * query + number], f"only{query}": ["x"]})
            add(options(tmp_path / "t", mergeSchema="true"), rows, number, query=str(query))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(run, range(3)))
    assert read_ids(tmp_path / "t") == [100 * query + number for query in range(3) for number in range(10)]
    assert set(table_of(tmp_path / "t").column_names) == {"id", "only0", "only1", "only2"}


class Killed(BaseException):
    """The driver is gone."""


@pytest.mark.parametrize("step", ["before", "after"])
@pytest.mark.parametrize("call", ["create", "alter", "create_write_transaction"])
def test_a_driver_that_is_killed_at_a_commit_goes_on_after_it(
    call: str, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[str] = []

    def killing(name: str) -> Any:
        commit = getattr(DeltaTable, name) if name != "alter" else deltalake.table.TableAlterer.add_columns

        def method(*arguments: Any, **keywords: Any) -> Any:
            if not killed and step == "before":
                killed.append(name)
                raise Killed
            made = commit(*arguments, **keywords)
            if not killed:
                killed.append(name)
                raise Killed
            return made

        return method

    owner, name = (deltalake.table.TableAlterer, "add_columns") if call == "alter" else (DeltaTable, call)
    monkeypatch.setattr(owner, name, killing(call))
    opts = options(tmp_path / "t", mergeSchema="true")
    frames: Sequence[pa.Table] = [ids(0), pa.table({"id": [1], "note": ["x"]})]
    for number, rows in enumerate(frames):
        try:
            add(opts, rows, number)
        except Killed:
            add(opts, rows, number)
    assert killed == [call]
    assert table_of(tmp_path / "t").sort_by("id").to_pydict() == {"id": [0, 1], "note": [None, "x"]}


def test_orphaned_files_are_removed_by_vacuum(tmp_path: Path) -> None:
    opts = options(tmp_path / "t")
    add(opts, ids(0), 0)
    left = written(opts, ids(1))
    table = DeltaTable(str(tmp_path / "t"))
    removed = table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert removed == [left[0].path]
    assert read_ids(tmp_path / "t") == [0]
