"""A Kafka Connect worker in distributed mode (groups of protocol type "connect"): lines of a file go into a topic and
from there into another file, through the restart of a task and of the worker, each of them once.
"""

import json
import subprocess
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.filterwarnings(
        "ignore", r"\w+_text is deprecated", DeprecationWarning
    )  # kafka-python reads its schemas so
    from kafka import KafkaAdminClient

from tests.free_ports import free_ports

from .clients.environments import Jars
from .conftest import Cluster
from .programs import command_of, interop_only

CONNECT = Jars(
    (
        "org.apache.kafka:connect-runtime:4.3.1",
        "org.apache.kafka:connect-file:4.3.1",
        "org.slf4j:slf4j-nop:1.7.36",
    ),
    ("Worker",),
)
SECONDS = 60
pytestmark = [pytest.mark.timeout(240), pytest.mark.usefixtures("sockets_of_kafka_python")]


class Worker:
    """A worker and its REST interface."""

    def __init__(self, command: list[str], properties: Path, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self._said = properties.with_suffix(".out")
        with self._said.open("wb") as output:
            self.process = subprocess.Popen([*command, str(properties)], stdout=output, stderr=subprocess.STDOUT)

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """An answer's JSON. Raises OSError."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                text = answer.read()
        except urllib.error.HTTPError as refused:
            refused.close()  # it is an answer with a socket of its own
            raise
        return json.loads(text) if text else None

    def until(self, what: Callable[[], bool]) -> None:
        """Wait for something that may be refused meanwhile: a worker that rebalances answers 409."""
        deadline = time.monotonic() + SECONDS
        refused: OSError | None = None
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self._said.read_text(encoding="utf-8")
            try:
                if what():
                    return
            except OSError as why:
                refused = why
                if isinstance(why, urllib.error.HTTPError):
                    why.close()
            time.sleep(0.05)
        pytest.fail(f"{refused}; {self._said.read_text(encoding='utf-8')[-3000:]}")

    def runs(self, connector: str) -> bool:
        """Return whether the connector and its task run."""
        status = self.ask("GET", f"/connectors/{connector}/status")
        return [status["connector"]["state"], *(task["state"] for task in status["tasks"])] == ["RUNNING", "RUNNING"]

    def stop(self) -> None:
        """SIGTERM: it leaves its group."""
        self.process.terminate()
        self.process.wait(SECONDS)


@contextmanager
def working(command: list[str], properties: Path, port: int) -> Iterator[Worker]:
    worker = Worker(command, properties, port)
    try:
        worker.until(lambda: worker.ask("GET", "/connectors") is not None)
        yield worker
    finally:
        worker.process.kill()
        worker.process.wait()


def protocol_type(bootstrap: str, group: str) -> str:
    """Return the protocol type of a group according to ListGroups."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        return next(str(row["protocol_type"]) for row in admin.list_groups() if row["group_id"] == group)
    finally:
        admin.close()


def test_lines_of_a_file_come_out_once(
    cluster: Cluster, topic: str, group: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    interop_only(request, "it takes half a minute")
    command = command_of(CONNECT)
    port, source, sink = free_ports(1)[0], tmp_path / "source.txt", tmp_path / "sink.txt"
    properties = tmp_path / "worker.properties"
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": group,
        "listeners": f"http://127.0.0.1:{port}",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "offset.flush.interval.ms": "200",
        "consumer.auto.offset.reset": "earliest",
        "scheduled.rebalance.max.delay.ms": "0",
    }
    for kind in ("config", "offset", "status"):
        settings |= {f"{kind}.storage.topic": f"{topic}-{kind}", f"{kind}.storage.replication.factor": "1"}
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
    connectors: dict[str, dict[str, str]] = {
        "in": {"connector.class": "FileStreamSource", "file": str(source), "topic": topic},
        "out": {"connector.class": "FileStreamSink", "file": str(sink), "topics": topic},
    }
    lines: list[str] = []

    def write(count: int) -> None:
        more = [f"line {number}" for number in range(len(lines), len(lines) + count)]
        with source.open("a", encoding="utf-8") as file:
            file.write("".join(line + "\n" for line in more))
        lines.extend(more)

    def have_come() -> bool:
        return sink.exists() and len(sink.read_text(encoding="utf-8").splitlines()) >= len(lines)

    write(100)
    with working(command, properties, port) as worker:
        for name, config in connectors.items():
            worker.until(
                lambda name=name, config=config: (  # type: ignore[misc]
                    worker.ask("POST", "/connectors", {"name": name, "config": {"tasks.max": "1", **config}})
                    is not None
                )
            )
        worker.until(have_come)
        assert protocol_type(cluster.bootstrap, group) == "connect"
        for name in connectors:
            worker.until(lambda name=name: worker.runs(name))  # type: ignore[misc]
            worker.ask("POST", f"/connectors/{name}/tasks/0/restart")
            write(100)
            worker.until(lambda name=name: worker.runs(name))  # type: ignore[misc]
            worker.until(have_come)
        worker.stop()
    write(100)
    with working(command, properties, port) as worker:  # it finds its connectors, and how far they came, in its topics
        worker.until(have_come)
        for name in connectors:
            worker.until(lambda name=name: worker.runs(name))  # type: ignore[misc]
        worker.stop()
    assert sink.read_text(encoding="utf-8").splitlines() == lines
