"""The plugin as testers have it: small pytest projects in processes of their own, and what is left when they are over."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN = "ottla.testing.plugin"

CONFTEST = """
import os, threading
from pathlib import Path
import pytest

@pytest.fixture(scope="session")
def kafka_config():
    return {"num.partitions": 2}

# Before xdist's own: once a worker has said that it has finished it may be ended at any time.
@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session):
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("ottla")]
    sockets = [name for name in map(lambda fd: os.path.realpath(fd), Path("/proc/self/fd").glob("*")) if "socket" in name]
    who = os.environ.get("PYTEST_XDIST_WORKER", "main")
    Path(os.environ["LEFT"], who).write_text(f"{left} {len(sockets)}")
"""

TESTS = """
import pytest
from confluent_kafka import Consumer, Producer

def produce(kafka, value):
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce("orders", value)
    assert producer.flush(10) == 0

@pytest.mark.parametrize("number", range(6))
def test_a_broker_of_its_own(kafka, number):
    assert kafka.topics() == []
    produce(kafka, str(number))
    assert [record.value for record in kafka.records("orders")] == [str(number).encode()]

@pytest.mark.parametrize("number", range(6))
def test_a_broker_for_all(kafka_session, number):
    assert kafka_session.topics() == []
    produce(kafka_session, str(number))
    consumer = Consumer({
        "bootstrap.servers": kafka_session.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest",
    })
    consumer.subscribe(["orders"])
    message = consumer.poll(10)
    assert message is not None and message.error() is None
    assert message.value() == str(number).encode()
    consumer.commit()
    consumer.close()

def test_some_brokers(kafka_factory):
    one, other = kafka_factory(), kafka_factory({"auto.create.topics.enable": False})
    produce(one, "x")
    assert other.topics() == []

@pytest.mark.kafka(num_partitions=5)
def test_configs(kafka):
    kafka.produce("t", "v", partition=4)

def test_killed_and_never_started_again(kafka):
    kafka.produce("t", "v")
    kafka.kill()
"""


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in `directory`, with temporary files and what is left of each process in folders of their own."""
    for name in ("tmp", "left"):
        (directory.parent / name).mkdir(exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "OTTLA_"))}
    environment |= {"TMPDIR": str(directory.parent / "tmp"), "LEFT": str(directory.parent / "left")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", *arguments]
    return subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=100, check=False
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    directory.mkdir()
    (directory / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n", encoding="utf-8")
    return directory


def is_installed() -> bool:
    """Whether this Ottla is installed with its entry points, and pytest finds the plugin by itself."""
    from importlib.metadata import entry_points

    return any(point.value == PLUGIN for point in entry_points(group="pytest11"))


WITH_PLUGIN = () if is_installed() else ("-p", PLUGIN)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_project_runs_and_leaves_nothing_behind(project: Path, workers: int) -> None:
    (project / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (project / "test_orders.py").write_text(TESTS, encoding="utf-8")
    parallel = ("-n", str(workers)) if workers else ("-p", "no:xdist")
    done = run(project, *WITH_PLUGIN, *parallel)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "15 passed" in done.stdout
    files = [path.name for path in (project.parent / "tmp").iterdir() if not path.name.startswith("pytest-of-")]
    assert files == []
    left = {path.name: path.read_text() for path in (project.parent / "left").iterdir()}
    assert set(left) == {"main", *(f"gw{number}" for number in range(workers))}
    assert {text for who, text in left.items() if who != "main" or not workers} == {"[] 0"}


def test_the_fixtures_say_what_they_are(project: Path) -> None:
    done = run(project, *WITH_PLUGIN, "--markers")
    assert "kafka(**configs): configs of the broker that the fixture `kafka` starts" in done.stdout
    done = run(project, *WITH_PLUGIN, "--fixtures")
    for name in ("kafka", "kafka_session", "kafka_factory", "kafka_config"):
        assert f"\n{name} " in done.stdout, name


def test_a_project_without_brokers_pays_next_to_nothing(project: Path) -> None:
    """No module of Ottla but the plugin's own, the two packages that it lies in, and the version."""
    (project / "test_none.py").write_text(
        "import sys\n\ndef test_nothing():\n    print(sorted(name for name in sys.modules if name.startswith('ottla')))\n",
        encoding="utf-8",
    )
    done = run(project, *WITH_PLUGIN, "-s")
    assert "['ottla', 'ottla.testing', 'ottla.testing.plugin', 'ottla.version']" in done.stdout, (
        done.stdout + done.stderr
    )
