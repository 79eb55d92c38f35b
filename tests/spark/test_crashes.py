"""A program, a task or a broker is killed while an exactly-once query runs: every record is published once all the same.

With `--soak 2`, half a minute each; test_exactly_once_through.py does the same without Spark in every run of the tests.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.conftest import Process
from tests.spark.conftest import Cluster, Sent
from tests.spark.dying import STEPS

RECORDS = 120
ROOT = Path(__file__).parents[2]


class Brokers:
    """The broker, which is killed and comes back; one that this test did not start is not killed."""

    def __init__(self, folder: Path, address: str | None) -> None:
        self._folder = folder
        self._process = None if address else Process(folder)
        self.servers = address or (self._process.bootstrap_servers if self._process else "")

    def kill_and_restart(self) -> None:
        assert self._process is not None
        port = self._process.port
        self._process.kill()
        self._process = Process(self._folder, port=port)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()


@pytest.fixture
def brokers(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Brokers]:
    made = Brokers(tmp_path / "data", request.config.getoption("--broker"))
    yield made
    made.close()


@pytest.mark.timeout(400)
@pytest.mark.parametrize("step", STEPS)
def test_every_record_is_published_once(
    step: str, brokers: Brokers, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if request.config.getoption("--soak") == 1:
        pytest.skip("half a minute each: with --soak 2")
    cluster = Cluster(brokers.servers)
    now = int(time.time() * 1000)  # what is old is deleted by a broker that starts
    records = [Sent(b"v%03d" % i, timestamp=now, partition=i % 2) for i in range(RECORDS)]
    source = cluster.topic(records, partitions=2)
    target = cluster.topic(partitions=2)
    flag = tmp_path / "died"
    if step.startswith("broker") and request.config.getoption("--broker"):
        pytest.skip("the broker is not ours to kill")
    command = [sys.executable, "-m", "tests.spark.dying", cluster.servers, source, target, str(tmp_path / "checkpoint")]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    log = (tmp_path / "log").open("w+")
    process = subprocess.Popen(
        [*command, step, str(flag)], env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
    )
    deadline = time.monotonic() + 120
    while not flag.exists():
        assert process.poll() is None, (tmp_path / "log").read_text()[-3000:]
        assert time.monotonic() < deadline, "nobody died"
        time.sleep(0.05)
    if step.startswith("broker"):
        brokers.kill_and_restart()
        flag.unlink()
        assert process.wait(120) == 0, (tmp_path / "log").read_text()[-3000:]
    else:
        process.wait(120)  # the driver was killed, or the query failed with its task
        subprocess.run(["pkill", "-9", "-s", str(process.pid)], check=False)
        subprocess.run([*command, step, str(flag)], env=environment, stdout=log, stderr=log, timeout=180, check=True)
    log.close()
    published: list[bytes] = []
    while (
        len(published) < RECORDS and time.monotonic() < deadline + 120
    ):  # brokers write markers after they have answered
        published = sorted(record.value or b"" for record in cluster.records(target, committed=True))
    assert published == [b"v%03d" % i for i in range(RECORDS)]
