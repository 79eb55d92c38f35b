"""Releases of PySpark: what is refused by name, and what takes the place of what an older one lacks."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import Row, StructType

from ottla.spark import releases, source
from ottla.spark.releases import UnsupportedPySpark, release_of, require
from ottla.spark.row_sink import _batches
from ottla.spark.schema import COLUMNS, HEADERS, arrow_schema
from ottla.spark.source import OttlaDataSource


@pytest.mark.parametrize(
    ("version", "release"), [("4.0.0", (4, 0)), ("4.3.0.dev1", (4, 3)), ("10.12", (10, 12)), ("main", (4, 0))]
)
def test_a_version_has_a_release(version: str, release: tuple[int, int]) -> None:
    assert release_of(version) == release


def test_an_error_names_the_required_and_the_present_release(monkeypatch: pytest.MonkeyPatch) -> None:
    require(releases.RELEASE, "nothing")
    monkeypatch.setattr(releases, "RELEASE", (4, 0))
    with pytest.raises(UnsupportedPySpark, match=r"^it needs PySpark 4\.2 or newer, this is \d"):
        require((4, 2), "it")


@pytest.mark.parametrize("name", ["maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "shareGroup"])
def test_an_option_without_admission_control_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(releases, "RELEASE", (4, 1))
    monkeypatch.setattr(source, "HAS_ADMISSION_CONTROL", False)
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", name: "4"}
    with pytest.raises(UnsupportedPySpark, match=rf"^{name} needs PySpark 4\.2 or newer"):
        OttlaDataSource(options).streamReader(COLUMNS)


@pytest.mark.parametrize(
    "module", ["ottla.spark.source", "ottla.spark.session", "pyspark_ottla", "pyspark_ottla_delta"]
)
def test_pyspark_3_is_refused_by_name(tmp_path: Path, module: str) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text('__version__ = "3.5.9"\n', encoding="utf-8")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import {module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    last = done.stderr.strip().splitlines()[-1]
    assert 'UnsupportedPySpark: format("ottla") needs PySpark 4.0 or newer, this is 3.5.9: pip install' in last


@pytest.mark.parametrize("version", ["3.5.9", "4.0.5"])
def test_pipelines_on_an_older_release_are_refused_in_one_line(tmp_path: Path, version: str) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text(f'__version__ = "{version}"\n', encoding="utf-8")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from ottla.cli.main import main; "
        f"main(['pipeline', 'run', {str(tmp_path)!r}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert f"or newer, this is {version}" in line


def test_rows_become_the_batches_that_newer_releases_pass() -> None:
    schema = arrow_schema(StructType([*COLUMNS.fields, HEADERS]))
    moment = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)
    header = Row(key="h", value=bytearray(b"x"))
    row: Any = Row  # its stubs know names only
    rows = [
        row(bytearray(b"k"), bytearray(b"v"), "t", 1, 2, moment.astimezone().replace(tzinfo=None), 0, [header]),
        row(None, None, "t", 1, 3, None, 0, None),
    ]
    (batch,) = _batches(iter(rows * 2), schema)
    expected = {
        "key": b"k",
        "value": b"v",
        "topic": "t",
        "partition": 1,
        "offset": 2,
        "timestamp": moment,
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"x"}],
    }
    assert batch.to_pylist()[::2] == [expected] * 2
    assert batch.to_pylist()[1]["headers"] is None
    assert isinstance(batch, pa.RecordBatch)
    assert list(_batches(iter([]), schema)) == []
    assert [part.num_rows for part in _batches(iter(rows * 6_000), schema)] == [10_000, 2_000]
