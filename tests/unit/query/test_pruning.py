"""Offsets that a filter leaves: exact where the filter is about offsets, partitions and times, and never too few."""

import random
from typing import Any

import pytest

duckdb = pytest.importorskip("duckdb", reason="the extra sql")
pa = pytest.importorskip("pyarrow", reason="the extra sql")
ds = pytest.importorskip("pyarrow.dataset", reason="the extra sql")
query_pruning = pytest.importorskip("ottla.query.pruning", reason="the extra sql")

SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("value", pa.string()),
    ]
)


class _Recorded(ds.Dataset):  # type: ignore[misc, name-defined]
    """Data set that records the filter with which DuckDB scans it."""

    def __init__(self) -> None:
        self.filter: Any = None

    @property
    def schema(self) -> Any:
        return SCHEMA

    def scanner(self, columns: list[str], filter: Any = None, **_: Any) -> Any:  # noqa: A002
        self.filter = filter
        schema = pa.schema([SCHEMA.field(name) for name in columns])
        return ds.Scanner.from_batches(iter(()), schema=schema)


def pruning(where: str) -> Any:
    """The pruning by what DuckDB pushes of a condition."""
    recorded = _Recorded()
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone='UTC'")
        connection.register("t", recorded)
        connection.execute(f"SELECT value FROM t WHERE {where}").fetchall()
    assert recorded.filter is not None, where
    return query_pruning.Pruning(recorded.filter, SCHEMA)


@pytest.mark.parametrize(
    ("where", "partition", "bounds"),
    [
        ("partition = 1", 1, (0, 1000)),
        ("partition = 1", 0, (0, 0)),
        ("partition IN (1, 2)", 2, (0, 1000)),
        ("partition IN (1, 2)", 3, (0, 0)),
        ("partition <> 1", 1, (0, 0)),
        ('"offset" = 7', 0, (7, 8)),
        ('"offset" >= 7 AND "offset" < 9', 0, (7, 9)),
        ('"offset" BETWEEN 7 AND 9', 0, (7, 10)),
        ('"offset" IN (7, 20, 9)', 0, (7, 21)),
        ('"offset" = 7 OR "offset" = 20', 0, (7, 21)),
        ('"offset" > 5000', 0, (0, 0)),
        ('"offset" < 0', 0, (0, 0)),
        ('(partition = 0 AND "offset" > 3) OR (partition = 1 AND "offset" <= 5)', 0, (4, 1000)),
        ('(partition = 0 AND "offset" > 3) OR (partition = 1 AND "offset" <= 5)', 1, (0, 6)),
        ('(partition = 0 AND "offset" > 3) OR (partition = 1 AND "offset" <= 5)', 2, (0, 0)),
        ("value = 'x' AND \"offset\" > 990", 0, (991, 1000)),
        ("value = 'x' OR \"offset\" > 990", 0, (0, 1000)),
    ],
)
def test_offsets_are_those_that_can_pass_the_filter(where: str, partition: int, bounds: tuple[int, int]) -> None:
    assert pruning(where).offsets(partition, 0, 1000) == bounds


@pytest.mark.parametrize(
    ("where", "since"),
    [
        ("timestamp >= TIMESTAMPTZ '2020-01-01'", 1_577_836_800_000),
        ("timestamp > TIMESTAMPTZ '2020-01-01 00:00:00.0005'", 1_577_836_800_000),
        ("timestamp BETWEEN TIMESTAMPTZ '2020-01-01' AND TIMESTAMPTZ '2021-01-01'", 1_577_836_800_000),
        ("timestamp = TIMESTAMPTZ '2020-01-01' OR timestamp = TIMESTAMPTZ '2030-01-01'", 1_577_836_800_000),
        ("timestamp < TIMESTAMPTZ '2020-01-01'", None),
        ("timestamp IS NULL", None),
        ("partition = 1", None),
        ("timestamp >= TIMESTAMPTZ '2020-01-01' AND value = 'x'", 1_577_836_800_000),
        ("timestamp >= TIMESTAMPTZ '2020-01-01' OR value = 'x'", None),
    ],
)
def test_the_least_time_is_that_of_the_filter(where: str, since: int | None) -> None:
    assert pruning(where).since_ms() == since


def test_random_filters_never_lose_a_record(dice_seed: int) -> None:
    chance = random.Random(dice_seed)
    terms = ["partition = {}", "partition <> {}", "partition IN ({}, {})", '"offset" = {}', '"offset" < {}']
    terms += ['"offset" >= {}', '"offset" IN ({}, {})', '"offset" BETWEEN {} AND {}', "value = '{}'"]
    rows = [(partition, offset, str(offset % 3)) for partition in range(4) for offset in range(12)]
    with duckdb.connect() as connection:
        connection.execute('CREATE TABLE r (partition INT, "offset" BIGINT, value VARCHAR)')
        connection.executemany("INSERT INTO r VALUES (?, ?, ?)", rows)
        for _ in range(30):
            parts = [chance.choice(terms).format(chance.randrange(14), chance.randrange(14)) for _ in range(3)]
            where = f"({parts[0]} {chance.choice(['AND', 'OR'])} {parts[1]}) {chance.choice(['AND', 'OR'])} {parts[2]}"
            try:
                bounds = pruning(where)
            except AssertionError:  # nothing was pushed: nothing is pruned
                continue
            for partition, offset in connection.execute(f'SELECT partition, "offset" FROM r WHERE {where}').fetchall():
                start, end = bounds.offsets(partition, 0, 12)
                assert start <= offset < end, where
