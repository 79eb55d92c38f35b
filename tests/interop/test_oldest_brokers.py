"""Version 0 of the oldest APIs, judged by Apache Kafka 0.8.2, 0.9.0 and 0.10.2."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.free_ports import free_ports

from .apache_kafka import CACHE, ROOT

SCRIPT: Final = ROOT / "bench" / "reference" / "kafka-old"


def java_11() -> str:
    """A Java on which these releases run; empty without one. They do not start on a much newer one."""
    return os.environ.get("JAVA_11", "")


@pytest.mark.parametrize("version", ["0.8.2.2", "0.9.0.1", "0.10.2.2"])
def test_version_0_is_as_an_old_broker_serves_it(tmp_path: Path, request: pytest.FixtureRequest, version: str) -> None:
    java = java_11()
    if not request.config.getoption("--interop"):
        pytest.skip("runs with --interop")
    if not java:
        pytest.skip("no Java 11: set JAVA_11")
    if not (CACHE / f"kafka-old-{version}" / ".complete").exists():
        pytest.skip(f"no kafka-old-{version} in {CACHE}: start it with bench/reference/kafka-old once")
    port = next(port for port in free_ports(3) if port < 65_000)
    environment = {**os.environ, "JAVA": java}
    try:
        started = subprocess.run(
            [str(SCRIPT), "start", version, str(port), str(tmp_path)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert started.returncode == 0, started.stderr
        judged = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "tests/conformance/oldest"),
                *("--broker", f"127.0.0.1:{port}", "--kafka-version", version),
            ],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert judged.returncode == 0, judged.stdout
        assert "passed" in judged.stdout
        assert "failed" not in judged.stdout
    finally:
        subprocess.run([str(SCRIPT), "stop", str(tmp_path)], check=True, timeout=60)
