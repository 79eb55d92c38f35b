"""Programs that append a topic to a Delta table are killed, with all of their processes, and some run two at a time.

Between the writing of files and the commit, on either side of it, and at any time. With --interop three are killed, with
`--soak 2` fifty, half an hour. In the end the table is read by deltalake, and by Spark and DuckDB if
`scripts/delta-readers` has fetched them.
"""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from tests.crash.conftest import Process
from tests.interop.delta_readers import INTERPRETERS, answers, has_readers
from tests.spark import skip_module_before
from tests.spark.conftest import Cluster, Sent
from tests.spark.test_demo import alive_in_session

skip_module_before("4.2")
pytest.importorskip("deltalake", reason="the extra delta")

from deltalake import DeltaTable  # noqa: E402

from tests.spark.dying_delta import STEPS  # noqa: E402

ROOT = Path(__file__).parents[2]
RECORDS = 60
ANY_TIME = "any time"
TWO_DRIVERS = "two drivers"


class Programs:
    """`tests.spark.dying_delta` on one topic, table and checkpoint."""

    def __init__(self, servers: str, source: str, folder: Path) -> None:
        self.table = folder / "table"
        self.log = folder / "log"
        self._arguments = [servers, source, str(self.table), str(folder / "checkpoint")]
        self.offsets = folder / "checkpoint" / "offsets"

    def start(self, *dying: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.spark.dying_delta", *self._arguments, *dying]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
        with self.log.open("ab") as log:
            return subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)

    def last_batch(self) -> int:
        """The newest batch that Spark has planned; -1 before the first."""
        names = [path.name for path in self.offsets.iterdir()] if self.offsets.is_dir() else []
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def fail(self, reason: str) -> None:
        pytest.fail(f"{reason}\n{self.log.read_text(encoding='utf-8', errors='replace')[-3000:]}")


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a program and what it has started, at once."""
    for left in [process.pid, *alive_in_session(process.pid)]:
        with suppress(ProcessLookupError):
            os.kill(left, signal.SIGKILL)
    process.wait(30)


def wait_for(programs: Programs, process: subprocess.Popen[bytes], flag: Path) -> None:
    deadline = time.monotonic() + 120
    while not flag.exists():
        if process.poll() is not None:
            programs.fail("the program ended before its step")
        if time.monotonic() > deadline:
            programs.fail("the program did not come to its step")
        time.sleep(0.02)


def run_round(programs: Programs, how: str, dice: random.Random, flag: Path) -> None:
    """Start a program, or two, and kill it."""
    planned = programs.last_batch()
    if how == ANY_TIME:
        process = programs.start()
        deadline = time.monotonic() + 120
        while programs.last_batch() == planned and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.02)
        time.sleep(dice.random() * 2)
        kill(process)
        return
    if how == TWO_DRIVERS:
        pair = [programs.start(), programs.start()]
        deadline = time.monotonic() + 120
        while any(process.poll() is None for process in pair) and time.monotonic() < deadline:
            time.sleep(0.1)
        for process in pair:
            kill(process)
        return
    process = programs.start(how, str(planned + dice.randrange(3)), str(flag))
    try:
        wait_for(programs, process, flag)
    finally:
        kill(process)


@pytest.mark.timeout(3600)
def test_programs_that_are_killed_lose_and_repeat_nothing(
    tmp_path: Path, request: pytest.FixtureRequest, dice_seed: int
) -> None:
    if request.config.getoption("--soak") > 1:
        kills = 50
    elif request.config.getoption("--interop"):
        kills = 3
    else:
        pytest.skip("starts Sparks of its own: three with --interop, fifty with --soak 2")
    dice = random.Random(dice_seed)
    broker = Process(tmp_path / "data")
    try:
        cluster = Cluster(broker.bootstrap_servers)
        source = cluster.topic(partitions=2)
        programs = Programs(cluster.servers, source, tmp_path)
        hows = [STEPS[2], TWO_DRIVERS, STEPS[1], STEPS[3], ANY_TIME, STEPS[0]]
        sent = 0
        for number in range(kills):
            now = int(time.time() * 1000)
            cluster.send(source, [Sent(b"%d" % n, timestamp=now, partition=n % 2) for n in range(sent, sent + RECORDS)])
            sent += RECORDS
            run_round(programs, hows[number % len(hows)], dice, tmp_path / f"flag-{number}")
        last = programs.start()
        if last.wait(180) != 0:
            programs.fail("the last program failed")
        table = pa.table(DeltaTable(str(programs.table)).to_pyarrow_table(columns=["value"]))
        assert sorted(int(value) for value in table["value"].to_pylist()) == list(range(sent))
        for engine in INTERPRETERS if has_readers() else ():
            statement = f"SELECT count(*), count(DISTINCT value) FROM {{table:{programs.table}}}"
            assert answers(engine, statement) == [[[str(sent), str(sent)]]]
    finally:
        broker.kill()
