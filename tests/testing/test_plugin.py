"""The plugin as testers have it: small pytest projects in processes of their own, and what is left when they are over."""

import os
import re
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
    """Return whether this Ottla is installed with its entry points, so that pytest finds the plugin by itself."""
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
    assert "kafka(**configs): configs of the brokers that the fixtures of a test start" in done.stdout
    done = run(project, *WITH_PLUGIN, "--fixtures")
    names = "kafka kafka_class kafka_module kafka_session kafka_factory kafka_cluster kafka_config"
    for name in names.split():
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


# Scopes.

SCOPES = """
import pytest
from confluent_kafka import Consumer, Producer

@pytest.fixture(scope="session")
def app(kafka_session):
    kafka_session.create_topic("seeds")
    kafka_session.produce("seeds", "kept")
    consumer = Consumer({"bootstrap.servers": kafka_session.bootstrap_servers, "group.id": "app",
                         "auto.offset.reset": "earliest"})
    consumer.subscribe(["seeds"])
    assert consumer.poll(10).value() == b"kept"
    consumer.commit(asynchronous=False)
    yield kafka_session.bootstrap_servers
    consumer.close()

@pytest.fixture(scope="module")
def orders(kafka_session):
    kafka_session.create_topic("orders")

@pytest.mark.parametrize("number", range(3))
def test_what_fixtures_have_made_stays(app, orders, kafka_session, number):
    assert app == kafka_session.bootstrap_servers
    assert kafka_session.topics() == ["orders", "seeds"]
    assert kafka_session.groups() == ["app"]
    if number < 2:
        kafka_session.wait_for_group("app")
    assert kafka_session.committed("app") == {("seeds", 0): 1}
    assert [record.value for record in kafka_session.records("seeds")] == [b"kept"]
    kafka_session.create_topic("of_the_test")
    if number == 0:
        kafka_session.kill()
    if number == 1:
        kafka_session.fail("Produce", None, error="UNKNOWN_SERVER_ERROR")
        kafka_session.advance(3_600_000)

def test_time_is_as_before(app, kafka_session):
    import time
    assert abs(kafka_session.produce("t", "v").timestamp - time.time() * 1000) < 600_000

@pytest.fixture(scope="class")
def filled(kafka_class):
    kafka_class.produce("class", "v")
    return kafka_class

@pytest.mark.kafka(num_partitions=4)
class TestOfOneClass:
    def test_first(self, filled):
        filled.produce("new", "v", partition=3)
    def test_second(self, filled, kafka_class):
        assert kafka_class.topics() == ["class", "new"]
"""

OTHER_MODULE = """
import pytest
pytestmark = pytest.mark.kafka(num_partitions=6)

@pytest.fixture(scope="module")
def filled(kafka_module):
    kafka_module.produce("module", "v", partition=5)

def test_a_broker_for_the_module(filled, kafka_module):
    assert kafka_module.topics() == ["module"]

def test_still_there(kafka_module, kafka_factory, kafka_cluster):
    assert kafka_module.topics() == ["module"]
    for broker in (kafka_factory(), kafka_cluster(2)):
        broker.produce("t", "v", partition=5)
"""

AFTERWARDS = """
def test_the_topic_of_the_first_module_is_gone(kafka_session):
    assert kafka_session.topics() == ["seeds"]
"""


SETTINGS = """
import ottla, pytest

@pytest.fixture(scope="session")
def app(kafka_session):
    kafka_session.create_topic("seeds")

def test_settings(app, kafka_session):
    with ottla.Admin(kafka_session.client_config) as admin:
        changes = [ottla.ConfigChange("log.cleaner.threads", "2")]
        admin.incremental_alter_configs({ottla.ConfigResource(ottla.ResourceType.BROKER, "1"): changes})

def test_afterwards(app, kafka_session):
    assert kafka_session.topics() == []
"""


def test_settings_that_cannot_be_undone_beside_fixtures_are_an_error_of_their_test(project: Path) -> None:
    (project / "test_it.py").write_text(SETTINGS, encoding="utf-8")
    done = run(project, *WITH_PLUGIN, "-p", "no:xdist")
    assert "2 passed, 1 error" in done.stdout, done.stdout
    assert "ERROR test_it.py::test_settings - RuntimeError: the test has changed configs" in done.stdout, done.stdout


def test_fixtures_of_any_scope_use_a_broker(project: Path) -> None:
    """A session fixture on kafka_session was a ScopeMismatch."""
    for name, text in {"test_1": SCOPES, "test_2": OTHER_MODULE}.items():
        (project / f"{name}.py").write_text(text, encoding="utf-8")
    (project / "test_3.py").write_text(AFTERWARDS, encoding="utf-8")
    done = run(project, *WITH_PLUGIN, "-p", "no:xdist")
    assert "9 passed" in done.stdout, done.stdout + done.stderr


WITHOUT_EFFECT = [
    ("@kafka('x')\ndef test_it(kafka): pass", "takes configs by name"),
    ("@kafka(num_partitions=2)\ndef test_it(kafka_session): pass", "does not reach kafka_session"),
    ("@kafka(num_partitions=2)\ndef test_it(kafka, kafka_session): pass", "does not reach kafka_session"),
    ("@kafka(num_partitions=2)\ndef test_it(kafka_module): pass", "mark the module"),
    ("@kafka(num_partitions=2)\ndef test_it(kafka_class): pass", "mark the class"),
    ("class TestIt:\n @kafka(num_partitions=2)\n def test_it(self, kafka_class): pass", "mark the class"),
    ("@kafka(num_partitions=2)\nclass TestIt:\n def test_it(self, kafka_module): pass", "mark the module"),
    ("@kafka(num_partitions=2)\ndef test_it(): pass", "has no effect"),
    ("pytestmark = kafka(num_partitions=2)\ndef test_it(kafka_session): pass", "does not reach kafka_session"),
]
MAIN = """
import sys, pytest
print([int(pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *sys.argv[2:], f"test_{number}.py"]))
       for number in range(int(sys.argv[1]))])
"""


def test_a_mark_without_effect_is_a_usage_error(project: Path) -> None:
    """All in one process, each by a pytest of its own, which ends with the first usage error."""
    for number, (test, _) in enumerate(WITHOUT_EFFECT):
        text = f"import pytest\nkafka = pytest.mark.kafka\n{test}\n"
        (project / f"test_{number}.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "-c", MAIN, str(len(WITHOUT_EFFECT)), *WITH_PLUGIN]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=100, check=False)
    assert f"{[int(pytest.ExitCode.USAGE_ERROR)] * len(WITHOUT_EFFECT)}" in done.stdout, done.stdout
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    assert len(errors) == len(WITHOUT_EFFECT), done.stderr
    for number, (error, (_, reason)) in enumerate(zip(errors, WITHOUT_EFFECT, strict=True)):
        assert re.match(f"ERROR: test_{number}.py::.*test_it: @pytest.mark.kafka .*{reason}", error)


def test_a_mark_without_effect_fails_its_test_in_a_worker_of_xdist(project: Path) -> None:
    """A usage error of a worker was an internal error of xdist."""
    text = "import pytest\n@pytest.mark.kafka(num_partitions=2)\ndef test_it(kafka_session): pass\n"
    (project / "test_it.py").write_text(f"{text}def test_other(): pass\n", encoding="utf-8")
    done = run(project, *WITH_PLUGIN, "-n", "1")
    assert "1 passed, 1 error" in done.stdout, done.stdout
    assert "test_it.py::test_it: @pytest.mark.kafka does not reach kafka_session" in done.stdout


def test_marks_reach_every_broker(project: Path) -> None:
    text = "import pytest\npytestmark = pytest.mark.kafka(num_partitions=3)\n"
    for fixture, start in (("kafka", ""), ("kafka_factory", "()"), ("kafka_cluster", "(2)")):
        text += f"def test_{fixture}({fixture}):\n    {fixture}{start}.produce('t', 'v', partition=2)\n"
    (project / "test_it.py").write_text(text, encoding="utf-8")
    done = run(project, *WITH_PLUGIN, "-p", "no:xdist")
    assert "3 passed" in done.stdout, done.stdout


def test_a_misuse_is_shown_at_the_line_of_the_test(project: Path) -> None:
    calls = ["kafka.records('typo', at_least=1)", "kafka.create_topic('t', '3')", "kafka.expire_session('g')"]
    test = "".join(f"def test_{number}(kafka):\n    {call}\n" for number, call in enumerate(calls))
    (project / "test_it.py").write_text(test, encoding="utf-8")
    done = run(project, *WITH_PLUGIN, "-p", "no:xdist")
    assert "3 failed" in done.stdout
    shown = re.findall(r"^(\S+\.py:\d+): ", done.stdout, re.MULTILINE)
    assert shown == ["test_it.py:2", "test_it.py:4", "test_it.py:6"], done.stdout
