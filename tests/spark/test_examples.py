"""The Python examples of README and docs/spark.md run from top to bottom, twice, as they stand there but for port, folder."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from ottla.cli.main import main
from ottla.testing import EmbeddedBroker
from tests.spark import since

ROOT = Path(__file__).parents[2]
DELTA = 'format("ottla-delta")'


@pytest.mark.parametrize("page", ["README.md", pytest.param("docs/spark.md", marks=since("4.2"))])
def test_examples_run(page: str, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if DELTA not in block]
    assert any('format("ottla")' in block for block in blocks)
    names: dict[str, Any] = {}
    with EmbeddedBroker() as broker:
        for block in blocks * 2:
            code = block.replace("127.0.0.1:9092", broker.bootstrap_servers).replace("./", f"{tmp_path}/")
            exec(compile(code, page, "exec"), names)
        assert names["spark"] is spark
        if page == "docs/spark.md":
            loud = spark.read.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap_servers)
            rows = loud.option("subscribe", "loud-greetings").load().select("value").collect()
            assert {bytes(row[0] or b"") for row in rows} == {b"", b"BONJOUR", b"HELLO"}
            dry_run, rewriting = (
                CliRunner().invoke(main, shlex.split(line.replace("./", f"{tmp_path}/")))
                for line in re.findall(r"^    ottla (spark-checkpoint .*)$", text, re.MULTILINE)
            )
            assert (dry_run.exit_code, rewriting.exit_code) == (0, 0), dry_run.output + rewriting.output
            assert "offsets/0: {" in dry_run.output
            assert rewriting.output.endswith("files rewritten\n")
    assert "hello" in capsys.readouterr().out


@since("4.2")
def test_the_example_of_a_delta_table_runs(spark: SparkSession, tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake", reason="the extra delta")
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "spark.md").read_text(encoding="utf-8"), re.DOTALL)
    (words,) = (block for block in blocks if block.startswith("words = "))
    (stream,) = (block for block in blocks if block.startswith("stream = "))
    (table,) = (block for block in blocks if DELTA in block)
    names: dict[str, Any] = {"spark": spark}
    with EmbeddedBroker() as broker:
        for block in [words, stream, table, words, table]:
            code = block.replace("127.0.0.1:9092", broker.bootstrap_servers).replace("./", f"{tmp_path}/")
            exec(compile(code, "docs/spark.md", "exec"), names)
    written = deltalake.DeltaTable(str(tmp_path / "tables" / "words"))
    rows = written.to_pyarrow_table(columns=["word"])
    assert sorted(row or "" for row in rows["word"].to_pylist()) == sorted(["", "bonjour", "hello"] * 2)
    assert written.metadata().partition_columns == ["day"]
