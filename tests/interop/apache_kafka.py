"""An Apache Kafka of our own, started and stopped on a directory, and its tools: where the jars and a Java are."""

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

from tests.free_ports import free_ports

ROOT: Final = Path(__file__).parents[2]
SCRIPT: Final = ROOT / "bench" / "reference" / "kafka"
CACHE: Final = Path(os.environ.get("OTTLA_REFERENCE_CACHE") or Path.home() / ".cache" / "ottla-reference")
DUMPED: Final = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


def lacking(folder: str) -> str:
    """Return the missing prerequisite of a test, empty when it can run."""
    if shutil.which("java") is None:
        return "no java on the PATH"
    if not (CACHE / folder / ".complete").exists():
        return f"no {folder} in {CACHE}: run bench/reference/kafka jars, and bench/reference/kafka tool once"
    return ""


def skip_without(folder: str, request: pytest.FixtureRequest) -> None:
    """Skip a test, with the reason, unless it runs with --interop and what it needs is here."""
    reason = lacking(folder) if request.config.getoption("--interop") else "runs with --interop"
    if reason:
        pytest.skip(reason)


def connector_jars() -> str:
    """Jars of Spark's own Kafka connector, for the config spark.jars."""
    return ",".join(map(str, sorted((CACHE / "spark-connector").glob("*.jar"))))


class ApacheKafka:
    """One node, broker and controller, which listens at `port` + 1. `directory` holds its server.properties and its data."""

    def __init__(self, directory: Path, version: str, *configs: str, port: int = 0) -> None:
        self.directory = directory
        self.data = directory / "data"
        port = port or free_ports(2)[0]
        environment = {**os.environ, "KAFKA_VERSION": version}
        done = subprocess.run(
            [str(SCRIPT), "start", str(port), str(directory), *configs],
            env=environment,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        self.bootstrap_servers = f"127.0.0.1:{port}"

    def stop(self) -> None:
        """SIGTERM, and wait."""
        subprocess.run([str(SCRIPT), "stop", str(self.directory)], check=True, timeout=60)


def dumped(files: Iterable[Path]) -> str:
    """Return the output of DumpLogSegments for `files`, both stdout and stderr."""
    command = [str(SCRIPT), "tool", "org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files"]
    done = subprocess.run(
        [*command, ",".join(map(str, files))], capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return "\n".join(line for line in (done.stdout + done.stderr).splitlines() if not line.startswith("SLF4J: "))
