"""Configs of brokers that are stored in the metadata: none of them prevents a start, changes who may log in, or runs code."""

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
from tests.conformance.conftest import Closed, Wire
from tests.conformance.security.conftest import Secured, SecuredWire
from tests.conformance.security.secured import LISTENERS, configs, make_certificates

from ottla.metadata import changes
from ottla.metadata.configs import Scope
from ottla.metadata.configs import configs as config_table
from ottla.metadata.configs.alteration import BROKER
from ottla.metadata.refusal import ChangeResult
from ottla.protocol.errors import MESSAGE_TOO_LARGE, NONE, SASL_AUTHENTICATION_FAILED
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.batch import build
from ottla.records.record import Record
from ottla.tasks.deferred import Answer
from ottla.testing import EmbeddedBroker

ODD: Final = ("", " ", "0", "-1", "NaN", "9223372036854775807", "os:getpid", "${env:MISSING}\n\x00;")
NAMES: Final = tuple(config_table(Scope.BROKER))
PREFIXES: Final = ("", *(f"listener.name.{name.lower()}." for name in LISTENERS), "listener.name.sasl.plain.")
PLAIN_JAAS: Final = "listener.name.sasl.plain.sasl.jaas.config"
HANDLER: Final = "listener.name.sasl.plain.sasl.server.callback.handler.class"
calls: list[object] = []


class Handler:
    """A class that a config can name; it notes that the broker has called it."""

    def __init__(self, *arguments: object) -> None:
        calls.append(arguments)

    def authenticate(self, name: str, password: str) -> bool:
        calls.append((name, password))
        return True

    def build(self, context: object) -> str:
        calls.append(context)
        return "User:admin"


class Machine:
    """A broker with listeners of all kinds, whose metadata can be written, and which can be started again."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "data"
        self._certificates = directory / "certificates"
        make_certificates(self._certificates)
        self._start()

    def _start(self) -> None:
        values = configs(self._certificates, dict.fromkeys(LISTENERS, 0))
        values |= {"connection.failed.authentication.delay.ms": "0", "node.id": "1"}
        self.broker = EmbeddedBroker(values, data_dir=self._directory)
        ports = {listener.name: address[1] for listener, address in self.broker.broker.listeners.bound}
        self.secured = Secured(ports, self._certificates, is_kafka=False)

    def store(self, texts: Mapping[str, str], resource: str) -> None:
        """Write configs of a broker ("" for all) into the metadata without the checks of AlterConfigs."""
        metadata = self.broker.broker.metadata

        def change() -> Answer[ChangeResult]:
            return metadata.tasks.start(
                metadata.result_of(lambda image: changes.configure(image, BROKER, resource, texts))
            )

        self.broker._ask(change)

    def restart(self) -> None:
        self.broker.close()
        self._start()

    def check_service(self) -> None:
        """Every listener answers; the logins are those of the start values; records are appended; configs are described."""
        for listener in LISTENERS:
            certificate = "alice" if listener in ("MTLS", "MAPPED") else None
            tls = self.secured.tls_context(certificate) if "TLS" in listener or listener == "MAPPED" else None
            with closing(SecuredWire(self.secured, listener, tls)) as wire:
                assert wire.send(ApiVersionsRequest(), 0).error_code == NONE, listener
                if LISTENERS[listener].startswith("SASL"):
                    assert wire.log_in("alice").error_code == NONE
        with closing(SecuredWire(self.secured, "SASL")) as wire:
            assert wire.log_in("broker", "guess").error_code == SASL_AUTHENTICATION_FAILED
        without_certificate = SecuredWire(self.secured, "MTLS", self.secured.tls_context())
        with closing(without_certificate) as wire, pytest.raises((Closed, OSError)):
            wire.send(ApiVersionsRequest(), 0)
        with closing(SecuredWire(self.secured, "PLAINTEXT")) as wire:
            topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
            wire.send(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7)
            assert append(wire, "t") in (NONE, MESSAGE_TOO_LARGE)  # message.max.bytes is 0, as stored
            resource = DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=None)
            assert wire.send(DescribeConfigsRequest(resources=[resource]), 4).results[0].error_code == NONE

    def close(self) -> None:
        self.broker.close()


def append(wire: Wire, topic: str) -> int:
    batch = build([Record(0, time.time_ns() // 1_000_000, None, b"v")])
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    response = wire.send(ProduceRequest(acks=1, timeout_ms=5000, topic_data=[data]), 9)
    return int(response.responses[0].partition_responses[0].error_code)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.close()


@pytest.mark.parametrize("resource", ["", "1"], ids=["all brokers", "this broker"])
@pytest.mark.parametrize("value", ODD, ids=range(len(ODD)))
def test_odd_values_of_all_configs_prevent_no_start(
    machine: Machine, value: str, resource: str, caplog: pytest.LogCaptureFixture
) -> None:
    """All names at once, with every prefix; `--soak` stores them one by one."""
    machine.store({prefix + name: value for prefix in PREFIXES for name in NAMES}, resource)
    caplog.clear()
    with caplog.at_level(logging.ERROR):
        machine.restart()
    machine.check_service()
    ignored = [message for message in caplog.messages if "ignoring a config in the metadata" in message]
    assert len(ignored) == len(set(ignored))


def test_odd_values_one_by_one(machine: Machine, request: pytest.FixtureRequest) -> None:
    """A config on its own may fail where all together are caught by another: a sample of names, all of them with `--soak`."""
    is_soak = int(request.config.getoption("--soak")) > 1
    for name in NAMES if is_soak else NAMES[::17]:
        for value in ODD if is_soak else ODD[::3]:
            machine.store({prefix + name: value for prefix in PREFIXES}, "1")
            machine.restart()
            machine.check_service()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (PLAIN_JAAS, 'org.apache.kafka.common.security.plain.PlainLoginModule required user_broker="guess";'),
        (PLAIN_JAAS, "malformed"),
        ("listener.name.sasl.sasl.enabled.mechanisms", "NONSENSE"),
        (HANDLER, f"{__name__}:Handler"),
        ("listener.name.sasl.principal.builder.class", f"{__name__}:Handler"),
        ("principal.builder.class", f"{__name__}:Handler"),
        ("listener.name.mtls.ssl.principal.mapping.rules", "RULE:^.*$/broker/"),
        ("listener.name.mtls.ssl.principal.mapping.rules", "RULE:("),
        ("listener.name.mtls.ssl.client.auth", "none"),
        ("ssl.client.auth", "none"),
        ("listener.name.mtls.ssl.keystore.location", "/missing"),
        ("listener.name.mtls.ssl.truststore.type", "NONSENSE"),
        ("listener.name.plaintext.max.connections", "0"),
        ("max.connections.per.ip.overrides", "nonsense"),
        ("authorizer.class.name", f"{__name__}:Handler"),
    ],
)
def test_stored_configs_of_logins_have_no_effect(machine: Machine, name: str, value: str) -> None:
    calls.clear()
    machine.store({name: value}, "1")
    machine.check_service()
    machine.restart()
    machine.check_service()
    assert calls == []


def test_unusable_stores_are_reported_once(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    machine.store({"listener.name.tls.ssl.keystore.location": "/missing"}, "1")
    deadline = time.monotonic() + 10
    while "keeps its certificate" not in caplog.text:  # a worker reads the file
        assert time.monotonic() < deadline
        time.sleep(0.01)
    caplog.clear()
    with caplog.at_level(logging.ERROR):
        machine.restart()
        machine.store({"listener.name.tls.ssl.keystore.location": "/missing", "log.retention.ms": "5000"}, "1")
    with closing(SecuredWire(machine.secured, "TLS", machine.secured.tls_context())) as wire:
        assert wire.send(MetadataRequest(topics=[]), 12).brokers
    assert [record.message for record in caplog.records] == [
        "listener TLS ignores the stores in the metadata: Failed to load PEM SSL keystore /missing: "
        "[Errno 2] No such file or directory: '/missing'"
    ]
