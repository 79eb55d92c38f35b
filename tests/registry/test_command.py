"""`ottla schema-registry`, and `ottla serve --schema-registry`."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla import Admin, NewTopic, Producer
from ottla.client.errors import KafkaError
from ottla.registry.service import RegistryConfig, RegistryThread
from ottla.testing import Kafka
from tests.free_ports import free_ports
from tests.registry.client import Registry
from tests.registry.produced import framed
from tests.registry.schemas import ONE, TWO


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "ottla", *arguments]


class Process:
    """A command that serves a registry."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            command(*arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TERM": "dumb"},
        )
        self.lines: list[str] = []

    def registry(self) -> Registry:
        """Wait until the registry is ready, and return it."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            match = re.match(r"serving the schema registry at (\S+)", line)
            if match:
                return Registry(match[1])
        raise AssertionError(f"{self.lines} {self.finish()}")

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Stop with a signal; it must end well."""
        self.process.send_signal(number)
        _, error = self.finish()
        assert error == ""

    def finish(self) -> tuple[int, str]:
        """Return exit code and standard error."""
        _, error = self.process.communicate(timeout=30)
        return self.process.returncode, error


@contextmanager
def running(*arguments: str) -> Iterator[Process]:
    process = Process(*arguments)
    try:
        yield process
    finally:
        if process.process.poll() is None:
            process.process.kill()
            process.finish()


def beside(kafka: Kafka, *arguments: str) -> tuple[str, ...]:
    return ("schema-registry", "--bootstrap-server", kafka.bootstrap_servers, "--listen", "127.0.0.1:0", *arguments)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_registry_beside_a_kafka_serves_until_a_signal(kafka: Kafka, number: int) -> None:
    with running(*beside(kafka, "--log-level", "warning")) as process:
        registry = process.registry()
        assert registry.register("a", ONE) == 1
        process.stop(number)
        assert process.process.returncode == 0
    with running(*beside(kafka, "--log-level", "warning")) as process:
        assert process.registry().get("/subjects").value == ["a"]
        process.stop()


def test_registry_goes_on_with_its_ids_after_kill_9(kafka: Kafka) -> None:
    (port,) = free_ports(1)
    listen = ("--listen", f"127.0.0.1:{port}")
    number = 0
    for _ in range(3):
        with running(*beside(kafka, *listen)) as process:
            process.registry()
            registry = Registry(f"http://127.0.0.1:{port}")
            for _ in range(3):
                number += 1
                assert registry.register(f"s{number}", f'{{"type":"fixed","name":"F","size":{number}}}') == number
            process.process.kill()
            process.finish()


def seconds_to_lead_after_a_kill(kafka: Kafka) -> float:
    with running(*beside(kafka)) as process:
        process.registry().register("a", ONE)
        process.process.kill()
        process.finish()
    thread = RegistryThread(RegistryConfig(kafka.client_config, port=0))
    try:
        begin = time.monotonic()
        thread.run(thread.service.wait_ready())
        seconds = time.monotonic() - begin
        assert Registry(thread.url).register("a", TWO) == 2
        return seconds
    finally:
        thread.stop()


def test_registry_leads_within_a_second(kafka: Kafka) -> None:
    """It waits neither for other members of a group nor for the session of one that was killed.

    The best of three, so that a busy machine does not decide.
    """
    assert any(seconds_to_lead_after_a_kill(kafka) < 1 for _ in range(3))


def test_requests_before_the_registry_leads_get_503() -> None:
    """The address is served at once: a client may try again."""
    kafka_port, port = free_ports(2)
    arguments = (
        "--bootstrap-server",
        f"127.0.0.1:{kafka_port}",
        "--listen",
        f"127.0.0.1:{port}",
        "--log-level",
        "error",
    )
    with running("schema-registry", *arguments) as process:
        registry = Registry(f"http://127.0.0.1:{port}")
        deadline = time.monotonic() + 20
        while True:
            try:
                answer = registry.get("/subjects")
                break
            except ConnectionError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        assert answer.error == (503, 503)
        assert answer.message.startswith("The registry cannot serve requests yet")
        assert registry.post("/subjects/a/versions", {"schema": ONE}).status == 503
        assert registry.get("/").value == {}
        with Kafka(port=kafka_port):
            registry = process.registry()
            assert registry.register("a", ONE) == 1
            process.stop()


def failure(*arguments: str) -> tuple[int, str]:
    done = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr


def test_port_that_is_taken(kafka: Kafka) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, error = failure(
            "schema-registry", "--bootstrap-server", kafka.bootstrap_servers, "--listen", f"127.0.0.1:{port}"
        )
    assert (code, error) == (
        1,
        f"ottla: cannot listen on 127.0.0.1:{port}: Address already in use; choose another address with --listen\n",
    )


@pytest.mark.parametrize("listen", ["8081", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000", ":1"])
def test_wrong_address_is_wrong_usage(listen: str) -> None:
    code, error = failure("schema-registry", "--listen", listen)
    assert code == 2
    assert f"--listen requires HOST:PORT, not '{listen}'" in error


@pytest.mark.parametrize(
    ("partitions", "policy", "message"),
    [
        (2, "compact", "The schema topic _schemas should have only 1 partition but has 2"),
        (1, "delete", "The retention policy of the schema topic _schemas is incorrect."),
        (1, "compact,delete", "The retention policy of the schema topic _schemas is incorrect."),
    ],
)
def test_topic_that_would_lose_schemas(kafka: Kafka, partitions: int, policy: str, message: str) -> None:
    kafka.create_topic("_schemas", partitions, cleanup_policy=policy)
    code, error = failure(*beside(kafka, "--log-level", "error"))
    assert code == 1
    assert error.startswith(f"ottla: {message}")
    assert error.count("\n") == 1


def test_topic_of_another_name(kafka: Kafka) -> None:
    with running(*beside(kafka, "--topic", "my-schemas")) as process:
        process.registry().register("a", ONE)
        process.process.kill()
        process.finish()
    assert kafka.topics() == ["my-schemas"]


# In the process of a broker.


def test_broker_serves_a_registry(tmp_path: Path) -> None:
    arguments = ("serve", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path), "--log-level", "warning")
    for subjects in ([], ["a"]):
        with running(*arguments, "--schema-registry", "127.0.0.1:0") as process:
            registry = process.registry()
            assert registry.get("/subjects").value == subjects
            registry.register("a", ONE)
            assert len(process.lines) == 2
            process.stop()
            assert process.process.returncode == 0


def test_first_of_several_brokers_serves_the_registry(tmp_path: Path) -> None:
    arguments = ("serve", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path), "--log-level", "warning")
    with running(*arguments, "--brokers", "3", "--schema-registry", "127.0.0.1:0") as process:
        registry = process.registry()
        registry.register("a", ONE)
        assert registry.register("a", TWO) == 2
        process.process.terminate()
        assert process.finish()[0] == 0  # the registry may find other brokers gone before, and say so


def test_metrics_of_the_broker_have_those_of_its_registry(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    arguments = ("serve", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path), "--log-level", "warning")
    with running(*arguments, "--metrics", f"127.0.0.1:{port}", "--schema-registry", "127.0.0.1:0") as process:
        process.registry().register("a", ONE)
        metrics = Registry(f"http://127.0.0.1:{port}").get("/metrics").value
        assert "\nottla_schema_registry_ready 1" in metrics
        assert "\nottla_schema_registry_subjects 1" in metrics
        assert metrics.count("# TYPE") > 20  # those of the broker
        process.stop()


def test_broker_validates_by_the_registry_of_its_process(tmp_path: Path) -> None:
    """Also at once after a start, when the registry has not read its topic yet."""
    (port,) = free_ports(1)
    arguments = ("serve", "--listen", f"127.0.0.1:{port}", "--data-dir", str(tmp_path), "--log-level", "warning")
    for expected in (1, 2):
        with running(*arguments, "--schema-registry", "127.0.0.1:0") as process:
            if expected == 1:
                assert process.registry().register("orders-value", ONE) == 1
                with Admin(bootstrap_servers=f"127.0.0.1:{port}") as admin:
                    config = {"confluent.value.schema.validation": "true"}
                    admin.create_topics([NewTopic("orders", 1, 1, config=config)]).check()
            with Producer(bootstrap_servers=f"127.0.0.1:{port}") as producer:
                assert producer.send("orders", framed(1)).result().offset == expected - 1
                with pytest.raises(KafkaError, match="Schema id 2 of the value is not in the schema registry"):
                    producer.send("orders", framed(2)).result()
            if expected == 2:
                process.registry()
            process.stop()


def test_several_brokers_validate_by_the_registry_of_the_first(tmp_path: Path) -> None:
    ports = free_ports(3)
    arguments = ("serve", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path), "--log-level", "warning")
    brokers = ("--brokers", ",".join(map(str, ports)), "--schema-registry", "127.0.0.1:0")
    servers = ",".join(f"127.0.0.1:{port}" for port in ports)
    with running(*arguments, *brokers) as process:
        registry = process.registry()
        registry.register("orders-value", ONE)
        with Admin(bootstrap_servers=servers) as admin:
            config = {"confluent.value.schema.validation": "true"}
            admin.create_topics([NewTopic("orders", 3, 1, config=config)]).check()
            leaders = {row.leader for row in admin.describe_topics(["orders"])["orders"].partitions}
            assert len(leaders) == 3
        with Producer(bootstrap_servers=servers) as producer:
            for partition in range(3):
                assert producer.send("orders", framed(1), partition=partition).result().offset == 0
                with pytest.raises(KafkaError, match="Schema id 2 of the value is not in the schema registry"):
                    producer.send("orders", framed(2), partition=partition).result()
        process.process.terminate()
        process.finish()


def test_port_of_the_registry_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        arguments = ("serve", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path), "--log-level", "error")
        code, error = failure(*arguments, "--schema-registry", address)
    assert (code, error) == (1, f"ottla: cannot serve the schema registry on {address}: Address already in use\n")


def test_registry_of_a_broker_with_logins(tmp_path: Path) -> None:
    options = (
        "serve",
        *("--data-dir", str(tmp_path / "data"), "--log-level", "error", "--schema-registry", "127.0.0.1:0"),
        *("-o", "listeners=SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0"),
        *("-o", "inter.broker.listener.name=PLAINTEXT", "-o", "sasl.enabled.mechanisms=PLAIN"),
        *(
            "-o",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule"
            ' required user_registry="secret";',
        ),
    )
    code, error = failure(*options)
    assert (code, error) == (
        1,
        "ottla: the schema registry is a client of the first listener, SASL_PLAINTEXT, which needs SASL_PLAINTEXT: name the"
        " properties of the client with --schema-registry-config\n",
    )
    login = tmp_path / "client.properties"
    login.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config=org.apache.kafka.common.security.plain."
        'PlainLoginModule required username="registry" password="secret";\n',
        encoding="utf-8",
    )
    with running(*options, "--schema-registry-config", str(login)) as process:
        assert process.registry().register("a", ONE) == 1
        process.stop()


def test_extra_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import sys, ottla.cli.own.schema_registry as r; r.is_installed = lambda package: package != 'h11';"
        "from ottla.cli.entry import run; sys.argv = ['ottla', 'schema-registry']; run()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("ottla: the schema registry needs h11: ")
    assert "[registry]" in done.stderr
