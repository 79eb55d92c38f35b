"""Delta tables of a project, without Spark: `ottla pipeline status` and `compact`."""

import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from ottla import Producer
from ottla.cli.main import main
from ottla.cli.own import pipeline
from ottla.client.topics import TopicPartition
from ottla.testing import EmbeddedBroker
from tests.spark import skip_module_before

skip_module_before("4.1")
pytest.importorskip("deltalake", reason="the extra delta")

from deltalake import DeltaTable  # noqa: E402

from ottla.spark.monitoring import QueryFigures  # noqa: E402
from ottla.spark.pipelines import tables  # noqa: E402
from ottla.spark.pipelines.project import open_project  # noqa: E402
from ottla.spark.pipelines.template import write_project, write_table_project  # noqa: E402
from tests.unit.spark.test_delta_table import add, options, read_ids, written  # noqa: E402

HEAD = "v1\n{}\n"


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["pipeline", *arguments])
    return result.exit_code, result.output


def ids(*numbers: int) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64())})


def checkpoint(root: Path, flow: str, query: str, *ends: Mapping[str, Mapping[str, int]] | str) -> None:
    """A checkpoint with the ends of the source of each batch."""
    folder = root / "data/checkpoints/_checkpoints" / f"{flow}_table" / flow / "0"
    (folder / "offsets").mkdir(parents=True)
    (folder / "metadata").write_text(json.dumps({"id": query}), encoding="utf-8")
    for batch, end in enumerate(ends):
        text = end if isinstance(end, str) else json.dumps({**end, "#topicIds": {"orders": "x"}})
        (folder / "offsets" / str(batch)).write_text(HEAD + text, encoding="utf-8")


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    root = tmp_path / "shop"
    write_table_project(root, "127.0.0.1:1", "orders")
    return root.resolve()


def test_a_table_s_lag_is_that_of_the_batch_that_it_has(shop: Path) -> None:
    orders = options(shop / "data/tables/orders")
    add(orders, ids(1, 2), 0, query="q1")
    add(orders, ids(3), 1, query="q1")
    add(options(shop / "data/tables/other"), ids(4), 5, query="q2")
    # Batch 2 is planned, and not in the table; q2 reads no topic, and has lost its offsets.
    checkpoint(shop, "to_orders", "q1", {"orders": {"0": 2}}, {"orders": {"0": 3}}, {"orders": {"0": 9}})
    checkpoint(shop, "to_other", "q2", "{}")
    checkpoint(shop, "never_run", "q3")
    asked = []

    def ends(topics: tuple[str, ...]) -> dict[TopicPartition, int]:
        asked.append(topics)
        return {TopicPartition("orders", 0): 7, TopicPartition("orders", 1): 20}

    project = open_project(shop)
    first, second = tables.statuses(project, tables.locations(project, []), ends)
    assert (first.table, first.version, first.rows, first.files) == ("data/tables/orders", 2, 3, 2)
    assert first.flows == [("to_orders", 1, 24)]
    assert (second.table, second.flows) == ("data/tables/other", [("to_other", 5, None)])
    assert asked == [("orders",)]
    assert first.bytes == sum(file.stat().st_size for file in (shop / "data/tables/orders").glob("*.parquet"))


def test_status_asks_the_brokers(shop: Path) -> None:
    add(options(shop / "data/tables/orders"), ids(1, 2), 0, query="q1")
    add(options(shop / "elsewhere"), ids(1), 0)
    checkpoint(shop, "to_orders", "q1", {"orders": {"0": 2}})
    with EmbeddedBroker() as broker, Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for _ in range(5):
            producer.produce("orders", value="x")
        producer.flush()
        where = ["--bootstrap-server", broker.bootstrap_servers, "--table", str(shop / "elsewhere")]
        code, output = run("status", str(shop), *where)
        assert code == 0, output
        title, orders, elsewhere = (line.split() for line in output.splitlines())
        assert title == ["TABLE", "VERSION", "ROWS", "FILES", "BYTES", "COMMITTED", "FLOW", "BATCH", "LAG"]
        assert (orders[:4], orders[6:]) == (["data/tables/orders", "1", "2", "1"], ["to_orders", "0", "3"])
        assert (elsewhere[:4], elsewhere[6:]) == (["elsewhere", "1", "1", "1"], ["-", "-", "-"])
        code, output = run("status", str(shop), *where, "--json")
        assert json.loads(output)[0]["flows"] == [{"flow": "to_orders", "batch": 0, "lag": 3}]


def test_version_and_lag_are_metrics_also_while_nothing_runs(shop: Path) -> None:
    pytest.importorskip("prometheus_client", reason="the extra metrics")
    orders = options(shop / "data/tables/orders")
    add(orders, ids(1, 2), 0, query="q1")
    checkpoint(shop, "to_orders", "q1", {"orders": {"0": 2}}, {"orders": {"0": 4}})
    (shop / "data/tables/broken/_delta_log").mkdir(parents=True)
    with ExitStack() as stack:
        broker = ExitStack()
        servers = broker.enter_context(EmbeddedBroker()).bootstrap_servers
        stack.callback(broker.close)
        with Producer(bootstrap_servers=servers) as producer:
            for _ in range(5):
                producer.produce("orders", value="x")
            producer.flush()
        command = [sys.executable, "-m", "ottla", "pipeline", "status", str(shop), "--metrics", "127.0.0.1:0"]
        command += ["--bootstrap-server", servers, "--timeout", "2000"]
        process = stack.enter_context(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
        stack.callback(process.kill)
        assert process.stderr is not None
        address = re.search(r"http://\S+", process.stderr.readline())
        assert address is not None

        def served() -> dict[str, float]:
            with urllib.request.urlopen(address[0], timeout=20) as answer:
                lines = [line for line in answer.read().decode().splitlines() if not line.startswith("#")]
            return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}

        first = served()
        add(orders, ids(3, 4), 1, query="q1")
        then = served()
        broker.close()
        alone = served()
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=30)
        assert (output, process.returncode) == ("", 0)
        assert {line.rpartition(": ")[2] for line in errors.splitlines()} <= {"Connection refused"}
    table = 'table="data/tables/orders"'
    assert {name for name in first if table not in name} == set()
    assert (first[f"ottla_table_version{{{table}}}"], then[f"ottla_table_version{{{table}}}"]) == (1, 2)
    lag, batch = (f'ottla_table_{name}{{flow="to_orders",{table}}}' for name in ("lag", "batch"))
    assert [(metrics[lag], metrics[batch]) for metrics in (first, then)] == [(3, 0), (1, 1)]
    assert {name: value for name, value in then.items() if name != lag} == alone  # an unknown lag is not 0
    names = {"version", "rows", "files", "bytes", "committed_timestamp_seconds"}
    assert set(alone) == {f"ottla_table_{name}{{{table}}}" for name in names} | {batch}


def test_a_run_serves_the_versions_of_its_tables(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("prometheus_client", reason="the extra metrics")
    from ottla.observability.metrics import metrics_page

    figures = QueryFigures()
    add(options(shop / "data/tables/orders"), ids(1), 0, query="q1")
    checkpoint(shop, "to_orders", "q1", {"orders": {"0": 2}})

    def served() -> str:
        return metrics_page(*pipeline._run_collectors(open_project(shop), figures)).body.decode()

    assert 'ottla_table_version{table="data/tables/orders"} 1.0' in served()
    assert "ottla_table_lag{" not in served()  # ottla_spark_lag is that of the running flow
    monkeypatch.setitem(sys.modules, "deltalake", None)
    assert ("ottla_spark_batches_total" in served(), "ottla_table" in served()) == (True, False)


def test_errors_of_status_are_one_line(shop: Path, tmp_path: Path) -> None:
    write_project(tmp_path / "plain", "127.0.0.1:1", "in", "out")
    (tmp_path / "empty").mkdir()
    broken = tmp_path / "broken" / "_delta_log"
    broken.mkdir(parents=True)
    (broken / f"{0:020}.json").write_text("{", encoding="utf-8")
    for arguments, reason in (
        ([str(tmp_path / "empty")], "no spark-pipeline.yml in"),
        ([str(tmp_path / "plain")], "has no Delta tables in data: run the project first, or use --table PATH"),
        ([str(shop), "--table", str(tmp_path / "missing")], f"cannot read the table {tmp_path}/missing"),
        ([str(shop), "--table", str(broken.parent)], f"cannot read the table {broken.parent}"),
    ):
        for name in ("status", "compact"):
            code, output = run(name, *arguments)
            assert (code, len(output.splitlines())) == (1, 1), output
            assert reason in output


@pytest.mark.parametrize("more", [[], ["--metrics", "127.0.0.1:0"]], ids=["table", "metrics"])
def test_brokers_that_do_not_answer_are_one_line(shop: Path, more: list[str]) -> None:
    add(options(shop / "data/tables/orders"), ids(1), 0, query="q1")
    checkpoint(shop, "to_orders", "q1", {"orders": {"0": 2}})
    code, output = run("status", str(shop), "--timeout", "500", *more)
    assert (code, len(output.splitlines())) == (1, 1), output
    assert "127.0.0.1:1" in output


def test_the_lag_behind_a_topic_that_is_gone_is_unknown(shop: Path) -> None:
    add(options(shop / "data/tables/orders"), ids(1), 0, query="q1")
    checkpoint(shop, "to_orders", "q1", {"orders": {"0": 2}})
    project = open_project(shop)
    (table,) = tables.statuses(project, tables.locations(project, []), lambda topics: {})
    assert table.flows == [("to_orders", 0, None)]


def test_metrics_take_the_place_of_a_table(shop: Path) -> None:
    for arguments in (["--metrics", "127.0.0.1:0", "--json"], ["--metrics", "9400"]):
        code, output = run("status", str(shop), *arguments)
        assert (code, "--metrics" in output) == (2, True), output


def test_compact_rewrites_small_files_and_deletes_orphaned_ones(shop: Path) -> None:
    orders = options(shop / "data/tables/orders")
    for number in range(5):
        add(orders, ids(number), number)
    written(orders, ids(99))
    folder = shop / "data/tables/orders"
    code, output = run("compact", str(shop))
    assert (code, output.splitlines()[1].split()) == (0, ["data/tables/orders", "5", "1", "0"]), output
    assert len(list(folder.glob("*.parquet"))) == 7  # all are younger than a week
    code, output = run("compact", str(shop), "--retention", "0", "--json")
    assert json.loads(output) == [{"table": "data/tables/orders", "files_before": 1, "files_after": 1, "deleted": 6}]
    assert len(list(folder.glob("*.parquet"))) == 1
    add(orders, ids(4), 4)  # is in the table still
    assert (read_ids(folder), DeltaTable(str(folder)).transaction_version("9e8a31c2")) == ([0, 1, 2, 3, 4], 4)


def test_a_query_may_write_while_its_table_is_compacted(shop: Path) -> None:
    orders = options(shop / "data/tables/orders")
    add(orders, ids(0), 0)
    project = open_project(shop)

    def compacting() -> None:
        for _ in range(10):
            list(tables.compact(project, [orders.location], None))

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(compacting)
        number = 1
        while not done.done() or number < 20:
            add(orders, ids(number), number)
            number += 1
        done.result()
    assert read_ids(Path(orders.location)) == list(range(number))
