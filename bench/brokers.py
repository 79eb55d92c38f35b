"""The two brokers under comparison, each started fresh for a run: Ottla as it is installed, Apache Kafka from its jars."""

import json
import os
import platform
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

REFERENCE = Path(__file__).parent / "reference"
FIGURES = Path(__file__).parents[1] / "build" / "bench"
# librdkafka waits for fetch.queue.backoff.ms, a second by default, when it has read more than queued.min.messages ahead: a
# broker faster than the application is then measured by that wait, whoever it is.
READING: Mapping[str, Any] = MappingProxyType({"fetch.queue.backoff.ms": 10})
REMOVE_SOON = ("log.segment.delete.delay.ms=100", "log.initial.task.delay.ms=100")
"""Configs with which the files of deleted topics are removed soon. A benchmark that produces a lot deletes its topics: where
the page cache grows into memory that a virtual machine has not used before, writing takes four times the CPU time."""
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)


class Running(NamedTuple):
    """A broker that answers; `started_ms` is the time from the start of its process to its first ApiVersions answer.

    security  configs of librdkafka for its listener, empty without TLS and SASL
    """

    name: str
    bootstrap_servers: str
    pid: int
    started_ms: float
    security: Mapping[str, str] = MappingProxyType({})

    @property
    def client(self) -> dict[str, Any]:
        """Configs of librdkafka for a client of this broker."""
        return {"bootstrap.servers": self.bootstrap_servers, **self.security}

    def resident_mb(self) -> float:
        """Resident memory of the process, in MB."""
        if sys.platform == "darwin":
            return int(subprocess.check_output(["ps", "-o", "rss=", "-p", str(self.pid)])) / 1000
        fields = Path(f"/proc/{self.pid}/statm").read_text().split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def cpu_seconds(self) -> float:
        """User and system time of the process so far."""
        return sum(self._cpu_ticks()) / os.sysconf("SC_CLK_TCK")

    def kernel_seconds(self) -> float:
        """System time of the process so far."""
        return self._cpu_ticks()[1] / os.sysconf("SC_CLK_TCK")

    def _cpu_ticks(self) -> tuple[int, int]:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]), int(fields[12])


def free_port() -> int:
    """A free port, with the next one free too."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


def wait_for_answer(port: int, pid: int, begun: float) -> float:
    """Milliseconds from `begun` to the first ApiVersions answer."""
    while time.perf_counter() - begun < 60:
        os.kill(pid, 0)
        try:
            with socket.create_connection(("127.0.0.1", port), 1) as sock:
                sock.sendall(_API_VERSIONS)
                if sock.recv(4):
                    return (time.perf_counter() - begun) * 1000
        except OSError:
            time.sleep(0.001)  # a port without a listener gives nothing to wait for
    raise SystemExit(f"the broker on port {port} did not answer within 60 s")


def serve_command(port: int, directory: Path) -> list[str]:
    """The command that starts Ottla on a port of this machine."""
    command = [sys.executable, "-m", "ottla", "serve", "--log-level", "warning"]
    return [*command, "--listen", f"127.0.0.1:{port}", "--data-dir", str(directory)]


@contextmanager
def ottla(*configs: str, data: Path | None = None, port: int | None = None) -> Iterator[Running]:
    """Ottla in a process of its own, on a disk directory: on `data`, which is kept, or on one that is removed afterwards.

    port  port of the first listener, which is then among the configs
    """
    directory = data or Path(tempfile.mkdtemp(prefix="ottla-bench-"))
    listens = port is None
    port = port or free_port()
    command = serve_command(port, directory)
    if not listens:
        listen = command.index("--listen")
        del command[listen : listen + 2]
    for config in configs:
        command += ["-o", config]
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield Running("Ottla", f"127.0.0.1:{port}", process.pid, wait_for_answer(port, process.pid, begun))
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        if data is None:
            shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def kafka(*configs: str, data: Path | None = None, port: int | None = None) -> Iterator[Running]:
    """Apache Kafka 4.4.0, one node, as bench/reference starts it; `data` and `port` as for `ottla`."""
    directory = data or Path(tempfile.mkdtemp(prefix="kafka-bench-"))
    port = port or free_port()
    script = str(REFERENCE / "kafka")
    output = subprocess.check_output([script, "start", str(port), str(directory), *configs], text=True)
    pid, started_ms = output.split()
    try:
        yield Running("Apache Kafka 4.4.0", f"127.0.0.1:{port}", int(pid), float(started_ms))
    finally:
        subprocess.run([script, "stop", str(directory)], check=False)
        if data is None:
            shutil.rmtree(directory, ignore_errors=True)


def kafka_is_there() -> str | None:
    """Return the reason why Apache Kafka cannot be started here; None when it can."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    return None


def surroundings() -> dict[str, Any]:
    """Conditions of a figure: commit, machine, versions and command."""
    from importlib.metadata import version

    from ottla.cli.main import form

    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "commit": commit.stdout.strip(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "ottla": f"{version('ottla')} {form()}",
        "confluent-kafka": version("confluent-kafka"),
        "command": " ".join(["python", *sys.argv]),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def record(figures: dict[str, Any]) -> None:
    """One JSON line for machines, behind the lines for people, and the same for benchmarks_page.py."""
    line = json.dumps({**surroundings(), **figures})
    print(line)
    FIGURES.mkdir(parents=True, exist_ok=True)
    (FIGURES / f"{Path(sys.argv[0]).stem}.json").write_text(line + "\n", encoding="utf-8")
