"""The walk finds differences, and none between Spark's own Kafka connector and Ottla's format."""

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.interop.apache_kafka import connector_jars, skip_without
from tests.spark.conftest import broker_under_test, started_session

from .queries import Read, Step, Write, draw_read, draw_stream, draw_write
from .walk import OTTLA, Outcome, Walk, difference, run

SIZES = {"t1": [20, 9, 0], "t2": [17], "t3": [12, 3], "t4": [0]}


@pytest.fixture(scope="module")
def walk(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    skip_without("spark-connector", request)
    with broker_under_test(request) as cluster, started_session("walk", spark_jars=connector_jars()) as spark:
        walk = Walk(spark, cluster, tmp_path_factory.mktemp("walk"))
        walk.fill()
        yield walk


def test_what_is_drawn() -> None:
    dice = random.Random(1)
    reads = [draw_read(dice, SIZES) for _ in range(500)]
    options = Counter(name for read in reads for name in read.options)
    assert min(options[name] for name in ("assign", "subscribe", "subscribePattern", "endingTimestamp")) > 30
    assert sum(read.condition is not None for read in reads) > 100
    streams = [draw_stream(dice, SIZES) for _ in range(200)]
    assert {len(steps) for steps in streams} == {1, 2, 3}
    assert any(step.grown for steps in streams for step in steps)
    assert any(step.deleted for steps in streams for step in steps)
    writes = [draw_write(dice) for _ in range(200)]
    assert sum("topic" in write.options for write in writes) > 100


def test_differences_are_seen() -> None:
    row = (None, b"v", "t", 0, 7)
    rows, refused = Outcome([row], None), Outcome(None, "InvalidOption: no")
    assert difference(rows, rows) == []
    assert difference(refused, Outcome(None, "IllegalArgumentException: what it says may differ")) == []
    assert difference(rows, refused) == ["kafka: 1 rows t-0:7", "ottla: InvalidOption: no"]
    assert difference(rows, Outcome([], None)) == ["kafka: 1 rows t-0:7", "ottla: 0 rows"]
    assert difference(Outcome([[row], [row]], None), Outcome([[row, row]], None)) == [
        "kafka: ['t-0:7', 't-0:7']",
        "ottla: ['t-0:7 t-0:7']",
    ]
    assert difference(Outcome(Counter([(0, b"k")]), None), Outcome(Counter([(1, b"k")]), None)) == [
        "kafka: [((0, b'k'), 1)]",
        "ottla: [((1, b'k'), 1)]",
    ]


@pytest.mark.timeout(300)
def test_each_kind_of_query_has_results(walk: Walk) -> None:
    committed = {"kafka.isolation.level": "read_committed", "startingOffsets": "earliest"}
    read = walk.read(OTTLA, Read({"subscribe": "t2,t3", **committed}, "partition = 0"))
    assert [(row[2], row[4]) for row in read.result or []] == [
        *(("t2", offset) for offset in (*range(9), *range(15, 19))),
        *(("t3", offset) for offset in range(5, 12)),
    ]
    step = Step({"subscribe": "t1", "maxOffsetsPerTrigger": "20", **committed}, {})
    stream = walk.run_step(OTTLA, step, walk.folder / "known")
    assert [len(batch) for batch in stream.result or []] == [19, 10]
    columns = ["concat('v', id) AS value", "concat('k', id) AS key", "CAST(id AS int) AS partition"]
    write = walk.write(OTTLA, Write(2, columns, {"topic": "{topic}"}))
    assert write.result == Counter([(0, b"k0", b"v0", None), (1, b"k1", b"v1", None)])


@pytest.mark.timeout(1800)
def test_the_connector_does_the_same(walk: Walk, request: pytest.FixtureRequest, dice_seed: int) -> None:
    differences: list[str] = []
    count = 40 * int(request.config.getoption("--soak"))
    run(walk, dice_seed, count, differences.append)
    assert differences == []
