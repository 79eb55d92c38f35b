"""Delta tables that format("ottla-delta") has written, read and written by others: Spark 4.2 with Delta's jars, and DuckDB.

With `--interop`, and what `scripts/delta-readers` has fetched. A reader skips files by their statistics when it filters, and
reads all of them when it counts the rows that match: both must find as many.
"""

import random
import string
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.interop.delta_readers import INTERPRETERS, answers, has_readers

pytest.importorskip("deltalake", reason="the extra delta")

from tests.unit.spark.test_delta_table import add, options, read_ids


@pytest.fixture
def readers(request: pytest.FixtureRequest) -> None:
    """Skip the test without --interop or what it needs."""
    if not request.config.getoption("--interop"):
        pytest.skip("runs with --interop")
    if not has_readers():
        pytest.skip("no readers of Delta tables: scripts/delta-readers")


def random_rows(dice: random.Random, first: int, count: int, zero: float) -> pa.Table:
    """Rows with values at the edges of what statistics can say."""

    def maybe(value: Any) -> Any:
        return None if dice.random() < 0.2 else value

    def text() -> str:
        return "".join(
            dice.choice(string.ascii_letters + "\u00e9\ue000\U0001f600") for _ in range(dice.choice([3, 40]))
        )

    moments = [datetime(2024, 1, 1, tzinfo=UTC) + timedelta(microseconds=dice.randrange(10**13)) for _ in range(count)]
    numbers = [dice.choice([dice.uniform(-9, 9), float("nan"), float("inf"), zero]) for _ in range(count)]
    return pa.table(
        {
            "id": pa.array(range(first, first + count), pa.int64()),
            "day": pa.array([maybe(date(2024, 1, dice.randrange(1, 4))) for _ in range(count)]),
            "region": pa.array([maybe(dice.choice(["a b", "c/d=%", "\u00e9"])) for _ in range(count)], pa.string()),
            "small": pa.array([maybe(dice.randrange(-128, 128)) for _ in range(count)], pa.int8()),
            "number": pa.array([maybe(number) for number in numbers], pa.float64()),
            "price": pa.array(
                [maybe(Decimal(dice.randrange(10**6)) / 100) for _ in range(count)], pa.decimal128(12, 2)
            ),
            "moment": pa.array([maybe(moment) for moment in moments], pa.timestamp("us", "UTC")),
            "local": pa.array([maybe(moment.replace(tzinfo=None)) for moment in moments], pa.timestamp("us")),
            "text": pa.array([maybe(text()) for _ in range(count)]),
            "part": pa.array(
                [maybe({"n": maybe(dice.randrange(100))}) for _ in range(count)], pa.struct([("n", pa.int32())])
            ),
            "list": pa.array([maybe([1, None]) for _ in range(count)], pa.list_(pa.int64())),
            "flag": pa.array([maybe(dice.random() < 0.5) for _ in range(count)]),
        }
    )


def conditions(dice: random.Random, rows: pa.Table) -> list[str]:
    """Conditions around values of the rows, in the SQL of both engines."""
    expressions = []
    literals = {
        "id": "{}",
        "day": "DATE '{}'",
        "region": "'{}'",
        "small": "{}",
        "price": "{}",
        "text": "'{}'",
        "local": "CAST('{}' AS TIMESTAMP)",
        "moment": "CAST('{}' AS TIMESTAMP)",
    }
    for name, literal in literals.items():
        for _ in range(4):
            value = dice.choice([value for value in rows[name].to_pylist() if value is not None])
            text = value.replace(tzinfo=None) if isinstance(value, datetime) else value
            expressions += [f"{name} {sign} {literal.format(text)}" for sign in ("=", "<", ">=")]
    expressions += [f"number {sign} {value}" for sign in ("<", ">", ">=") for value in (-8.5, 0, 8.5)]
    expressions += [
        "number = CAST('NaN' AS DOUBLE)",
        "number > 1e300",
        "part.n < 3",
        "part.n > 97",
        "part.n IS NULL",
        "flag",
    ]
    expressions += [f"{name} IS {word}" for name in rows.column_names for word in ("NULL", "NOT NULL")]
    return expressions


@pytest.mark.usefixtures("readers")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("engine", INTERPRETERS)
def test_filters_find_in_files_what_is_in_them(engine: str, tmp_path: Path, dice_seed: int) -> None:
    dice = random.Random(dice_seed)
    # Spark 4.2 leaves out -0.0 for `>= 0` in its own Parquet files as well: it orders the values of a dictionary so.
    zero = -0.0 if engine == "duckdb" else 0.0
    rows = pa.concat_tables([random_rows(dice, first, 20, zero) for first in range(0, 200, 20)])
    for number in range(10):
        add(options(tmp_path / "t", partitionBy="day,region"), rows.slice(20 * number, 20), number)
    table = f"{{table:{tmp_path / 't'}}}"
    checks = conditions(dice, rows)
    if engine == "spark":  # takes longer for each
        checks = dice.sample(checks, 30)
    if engine == "duckdb":  # its TIMESTAMP has no time zone
        checks = [
            check.replace("TIMESTAMP)", "TIMESTAMPTZ)") if check.startswith("moment ") else check for check in checks
        ]
    counted = (f"SELECT {n} AS n, count(*) FROM {table} WHERE {check}" for n, check in enumerate(checks))
    everything, [all_files], skipping = answers(
        engine,
        f"SELECT id, small, price, text, part.n, flag FROM {table} ORDER BY id",
        f"SELECT {', '.join(f'count_if({check})' for check in checks)} FROM {table}",
        f"{' UNION ALL '.join(counted)} ORDER BY n",
    )
    shown = [
        [str(row[name]) for name in ("id", "small", "price", "text")]
        + [str((row["part"] or {"n": None})["n"]), str(row["flag"])]
        for row in rows.to_pylist()
    ]
    assert everything == shown
    counts = [count for _, count in skipping]
    assert [check for check, one, other in zip(checks, counts, all_files, strict=True) if one != other] == []
    assert sum(int(count) > 0 for count in counts) > len(checks) / 2


@pytest.mark.usefixtures("readers")
@pytest.mark.timeout(900)
def test_spark_and_the_sink_write_to_one_table(tmp_path: Path) -> None:
    """Its table, our rows; its rows, its OPTIMIZE; and the batch that is run again is still known."""
    path = tmp_path / "t"
    table = f"{{table:{path}}}"
    create = f"CREATE TABLE {table} (id BIGINT, day DATE) USING delta PARTITIONED BY (day)"
    answers("spark", create, f"INSERT INTO {table} VALUES (1, DATE '2024-01-01')")

    def ours(number: int) -> None:
        add(options(path), pa.table({"ID": [number], "day": pa.array([None], pa.date32())}), number)

    ours(2)
    ours(3)
    rows, *_ = answers(
        "spark", f"SELECT id FROM {table} ORDER BY id", f"INSERT INTO {table} VALUES (4, NULL)", f"OPTIMIZE {table}"
    )
    assert rows == [["1"], ["2"], ["3"]]
    ours(3)
    ours(5)
    assert read_ids(path) == [1, 2, 3, 4, 5]


@pytest.mark.usefixtures("readers")
@pytest.mark.timeout(900)
def test_a_table_of_spark_whose_rules_we_do_not_apply_is_refused(tmp_path: Path) -> None:
    from ottla.spark.offsets import InvalidOption

    rules = {
        "constraint": ("(id BIGINT)", "ALTER TABLE {} ADD CONSTRAINT positive CHECK (id > 0)"),
        "generated": ("(id BIGINT, twice BIGINT GENERATED ALWAYS AS (id * 2))", None),
        "identity": ("(id BIGINT, n BIGINT GENERATED ALWAYS AS IDENTITY)", None),
        "mapping": ("(id BIGINT)", "ALTER TABLE {} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"),
        "tracking": ("(id BIGINT)", "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')"),
        "timestamps": ("(id BIGINT)", "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')"),
    }
    statements = []
    for name, (columns, altering) in rules.items():
        table = f"{{table:{tmp_path / name}}}"
        statements.append(f"CREATE TABLE {table} {columns} USING delta")
        if altering is not None:
            statements.append(altering.replace("{}", table))
    answers("spark", *statements)
    for name in rules:
        with pytest.raises(InvalidOption, match="which does not apply"):
            add(options(tmp_path / name), pa.table({"id": [1]}), 0)
