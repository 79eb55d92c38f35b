"""The demo from start to end, on a tenth of the data."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.usefixtures("a_spark_of_its_own")
@pytest.mark.timeout(360)
@pytest.mark.parametrize("has_delta", [True, False], ids=["with deltalake", "without deltalake"])
def test_the_demo_counts_every_flight_and_leaves_nothing_running(tmp_path: Path, has_delta: bool) -> None:
    if has_delta:
        pytest.importorskip("deltalake", reason="the extra delta")
    hiding = tmp_path / "hiding"
    hiding.mkdir()
    if not has_delta:  # in every process of the demo
        (hiding / "sitecustomize.py").write_text("import sys\nsys.modules['deltalake'] = None\n")
    path = os.pathsep.join(filter(None, [str(hiding), os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(
        [sys.executable, "-m", "demo.flights", "--tenth", "--output", str(tmp_path / "out")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        shown, errors = process.communicate(timeout=300)
        assert (process.returncode, errors) == (0, ""), shown
        assert "✓ flights in the topic departures: 33,677" in shown
        assert "✓ of them more than once: 0" in shown
        assert "✓ flights over all hours, in the table delays: 33,677" in shown
        assert "✓ broken records in the quarantine: 3" in shown
        assert ("✓ flights in the Delta table flights: 33,677" in shown) == has_delta
        assert ("✓ of them more than once in the table: 0" in shown) == has_delta
        assert ("The Delta table is left out, deltalake is missing: " in shown) != has_delta
        assert (tmp_path / "out" / "project" / "data" / "tables").exists() == has_delta
        for name in ("delays.png", "delays.html"):
            assert str(tmp_path / "out" / name) in shown
            assert (tmp_path / "out" / name).stat().st_size > 20_000
        assert (tmp_path / "out" / "project" / "spark-pipeline.yml").exists()
        assert alive_in_session(process.pid) == []
    finally:
        for left in alive_in_session(process.pid):
            os.kill(left, signal.SIGKILL)


def alive_in_session(session: int) -> list[int]:
    """Processes of a session: its programs cannot leave it unless they make one of their own."""
    listed = subprocess.run(["ps", "-e", "-o", "pid=,sess=,stat="], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in listed.splitlines()]
    return [int(pid) for pid, its, state in rows if int(its) == session and not state.startswith("Z")]
