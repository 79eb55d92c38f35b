"""Delta tables in an object store: moto's S3 in a process of its own, as `scripts/delta-readers` has installed it.

With `--interop`. Its conditional writes are those that decide which of two commits with one version is the first.
"""

import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.free_ports import free_ports
from tests.interop.delta_readers import CACHE

pytest.importorskip("deltalake", reason="the extra delta")

from deltalake import DeltaTable

from ottla.spark.delta.options import TableOptions, table_options
from ottla.spark.delta.table import BatchId, ConcurrentQuery, append, open_target
from ottla.spark.pipelines.template import write_table_project
from tests.unit.spark.test_delta_table import QUERY, add, frame_fields, ids, written

HOME = CACHE / "s3"


def opened(request: urllib.request.Request | str) -> None:
    with urllib.request.urlopen(request, timeout=10):
        pass


@pytest.fixture(scope="module")
def storage(request: pytest.FixtureRequest) -> Iterator[Mapping[str, str]]:
    """deltalake's storage_options of an S3."""
    if not request.config.getoption("--interop"):
        pytest.skip("runs with --interop")
    if not (HOME / "ready").exists():
        pytest.skip("no S3: scripts/delta-readers")
    (port,) = free_ports(1)
    server = [str(HOME / "bin" / "moto_server"), "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(server, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            deadline = time.monotonic() + 60
            while True:
                try:
                    opened(url)
                    break
                except urllib.error.URLError:
                    assert time.monotonic() < deadline
                    time.sleep(0.1)
            yield {
                "aws_endpoint_url": url,
                "aws_allow_http": "true",
                "aws_region": "us-east-1",
                "aws_access_key_id": "somebody",
                "aws_secret_access_key": "secret",
            }
        finally:
            process.kill()


@pytest.fixture
def location(storage: Mapping[str, str]) -> str:
    """A table's URL in a new bucket."""
    bucket = f"lake-{uuid.uuid4().hex[:8]}"
    scope = f"AWS4-HMAC-SHA256 Credential=somebody/20260101/{storage['aws_region']}/s3/aws4_request"
    headers = {"Authorization": f"{scope}, SignedHeaders=host, Signature=0"}  # which moto does not check
    opened(urllib.request.Request(f"{storage['aws_endpoint_url']}/{bucket}", method="PUT", headers=headers))
    return f"s3://{bucket}/orders"


def options(location: str, storage: Mapping[str, str], **more: str) -> TableOptions:
    """As in Spark's options, whose names have no upper case."""
    prefixed = {f"storage.{name}": value for name, value in storage.items()}
    return table_options({"path": location, **prefixed, **more}, stream=True)


def read_ids(location: str, storage: Mapping[str, str]) -> list[int]:
    table = pa.table(DeltaTable(location, storage_options=dict(storage)).to_pyarrow_table(columns=["id"]))
    return sorted(table["id"].to_pylist())


def test_batches_are_written_once(location: str, storage: Mapping[str, str]) -> None:
    opts = options(location, storage)
    for number in (0, 1, 1, 0, 2):
        add(opts, ids(number), number)
    add(options(location, storage, mergeSchema="true"), pa.table({"id": [3], "note": ["x"]}), 3)
    assert read_ids(location, storage) == [0, 1, 2, 3]


def test_of_drivers_that_commit_at_once_one_commits(location: str, storage: Mapping[str, str]) -> None:
    opts = options(location, storage)
    ready = threading.Barrier(4)

    def run(number: int) -> bool:
        files, planned = written(opts, ids(number)), open_target(opts, frame_fields(ids())).version
        ready.wait(30)
        try:
            append(opts, frame_fields(ids()), files, BatchId(QUERY, number, planned))
        except ConcurrentQuery:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        for number in range(10):
            assert list(pool.map(run, [number] * 4)).count(True) == 1
    assert read_ids(location, storage) == list(range(10))


def test_queries_that_write_to_one_table_at_once_lose_nothing(location: str, storage: Mapping[str, str]) -> None:
    def run(query: int) -> None:
        for number in range(5):
            add(options(location, storage), ids(100 * query + number), number, query=str(query))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(run, range(3)))
    assert read_ids(location, storage) == [100 * query + number for query in range(3) for number in range(5)]


def test_the_commands_take_access_from_the_environment(
    location: str, storage: Mapping[str, str], tmp_path: Path
) -> None:
    for number in range(3):
        add(options(location, storage), ids(number), number)
    write_table_project(tmp_path / "shop", "127.0.0.1:1", "orders")
    environment = {**os.environ, **{name.upper(): value for name, value in storage.items()}}

    def run(*arguments: str) -> list[Any]:
        command = [sys.executable, "-m", "ottla", "pipeline", *arguments, str(tmp_path / "shop"), "--table", location]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()[1].split()

    assert run("status")[:4] == [location, "3", "3", "3"]
    assert run("compact") == [location, "3", "1", "0"]
