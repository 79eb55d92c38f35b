"""Errors from outside of the program are reported in one line, without a traceback."""

import os
import re
import socket
import struct
import subprocess
from pathlib import Path

import pytest

from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.conformance.conftest import Closed

from .conftest import Start, command, environment


def refused(*arguments: str, code: int = 1, cwd: Path | None = None) -> str:
    """The one line that `ottla serve` with these arguments says before it ends."""
    ran = subprocess.run(
        command(*arguments, "--log-level", "error"),
        capture_output=True,
        text=True,
        timeout=30,
        cwd=cwd,
        env=environment(),
        check=False,
    )
    assert ran.returncode == code, ran.stderr
    assert ran.stdout == ""
    assert "Traceback" not in ran.stderr
    if code == 1:
        assert ran.stderr.count("\n") == 1, ran.stderr
        assert ran.stderr.startswith("ottla: ")
    return ran.stderr


def test_a_busy_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        output = refused("--listen", f"127.0.0.1:{port}", "--data-dir", str(tmp_path / "data"))
    assert output == f"ottla: cannot listen on 127.0.0.1:{port}: Address already in use\n"


def test_invalid_metrics_address_is_refused(tmp_path: Path) -> None:
    data = ("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        output = refused(*data, "--metrics", f"127.0.0.1:{port}")
    assert output == f"ottla: cannot serve metrics on 127.0.0.1:{port}: Address already in use\n"
    assert "--metrics requires HOST:PORT, not '9464'" in refused(*data, "--metrics", "9464", code=2)


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1:x", "127.0.0.1:99999", "no.such.host.invalid:0"])
def test_invalid_address_is_refused(tmp_path: Path, address: str) -> None:
    refused("--listen", address, "--data-dir", str(tmp_path / "data"))


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert "cannot use" in refused("--listen", "127.0.0.1:0", "--data-dir", str(file))
    assert "cannot use" in refused("--listen", "127.0.0.1:0", "--data-dir", str(file / "below"))
    assert "cannot use" in refused("--listen", "127.0.0.1:0", "--data-dir", "/proc/ottla")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_without_permission(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    assert "Permission denied" in refused("--listen", "127.0.0.1:0", "--data-dir", str(closed))


@pytest.mark.parametrize(
    "properties",
    [
        "#\n#Thu Aug 20 10:00:00 UTC 2026\nversion=0\nbroker.id=0\ncluster.id=abcdefghijklmnopqrstuv\n",
        "node.id=1\ndirectory.id=y0i0vZfWQv6Aiu9JGv_-3w\nversion=1\ncluster.id=abcdefghijklmnopqrstuv\n",
    ],
    ids=["zookeeper", "kraft"],
)
def test_a_directory_of_apache_kafka(tmp_path: Path, properties: str) -> None:
    (tmp_path / "meta.properties").write_text(properties)
    assert "Apache Kafka" in refused("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path))
    assert (tmp_path / "meta.properties").read_text() == properties


def test_a_directory_of_another_cluster(tmp_path: Path, start: Start) -> None:
    for name in ("one", "two"):
        start(data_dir=tmp_path / name).stop()
    (tmp_path / "one" / "meta.properties").write_bytes((tmp_path / "two" / "meta.properties").read_bytes())
    output = refused("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "one"))
    assert "belongs to node 1 of cluster" in output


def test_a_directory_of_another_node(tmp_path: Path, start: Start) -> None:
    start(data_dir=tmp_path / "one").stop()
    output = refused("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "one"), "-o", "node.id=7")
    assert "this is node 7" in output


def test_a_second_broker_on_the_same_directory(start: Start) -> None:
    first = start()
    output = refused("--listen", "127.0.0.1:0", "--data-dir", str(first.data_dir))
    assert output == f"ottla: {first.data_dir} is in use by another broker: stop it, or give another --data-dir\n"
    assert first.wire().send(ApiVersionsRequest(), 0).error_code == 0


def test_a_directory_with_a_damaged_store(tmp_path: Path, start: Start) -> None:
    data = tmp_path / "data"
    start(data_dir=data).stop()
    (data / "metadata.db").write_bytes(b"this is no database" * 1000)
    for rest in data.glob("metadata.db-*"):
        rest.unlink()
    assert "metadata.db" in refused("--listen", "127.0.0.1:0", "--data-dir", str(data))


def test_a_damaged_checkpoint_is_written_again(tmp_path: Path, start: Start) -> None:
    data = tmp_path / "data"
    start(data_dir=data).stop()
    path = data / "recovery-point-offset-checkpoint"
    path.write_text("0\n7\nnonsense\n")
    output = start(data_dir=data).stop()
    assert f"{path}: not a checkpoint" in output
    assert "all records are checked" in output
    assert path.read_text() == "0\n0\n"


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("log.segment.bytes=x", "log.segment.bytes"),
        ("log.segment.bytes=-1", "log.segment.bytes"),
        ("log.retention.mss=1", "did you mean log.retention.ms?"),
        ("compression.type=brotli", "compression.type"),
        ("just-a-word", "name=value"),
        ("listeners=HTTP://127.0.0.1:0", "HTTP"),
        ("listeners=SSL://127.0.0.1:0", "listener SSL: No available authentication scheme: ssl.keystore.location"),
        ("listeners=SASL_PLAINTEXT://127.0.0.1:0", "Ottla has no Kerberos (the default of sasl.enabled.mechanisms)"),
    ],
)
def test_invalid_config_is_refused(tmp_path: Path, option: str, words: str) -> None:
    assert words in refused("--data-dir", str(tmp_path / "data"), "-o", option)


def test_missing_config_file_is_refused(tmp_path: Path) -> None:
    assert "no-such-file" in refused("--config", str(tmp_path / "no-such-file"), "--data-dir", str(tmp_path / "data"))
    data = ("--data-dir", str(tmp_path / "data"))
    assert "did you mean num.partitions?" in refused("-o", "num.partitons=3", *data)


def test_names_of_a_file_that_are_unknown_or_do_nothing_are_warned_of(tmp_path: Path, start: Start) -> None:
    """Files of other brokers have names of their own; Apache Kafka starts with them, too."""
    file = tmp_path / "server.properties"
    file.write_text(
        "zookeeper.connect=localhost:2181\nconfluent.support=1\nssl.keystore.location=/k\nnum.io.threads=8\n"
        "super.users=User:a\nlistener.name.plaintext.sasl.kerberos.service.name=k\n"
    )
    unknown, idle = start("--config", str(file)).stop().splitlines()
    assert unknown.endswith("unknown configs in the file are left out: zookeeper.connect, confluent.support")
    assert idle.endswith(
        "these configs are set and have no effect in Ottla: listener.name.plaintext.sasl.kerberos.service.name, "
        "num.io.threads, super.users"
    )


def test_listeners_are_given_once(tmp_path: Path) -> None:
    """A --listen beside a SASL_SSL listener of the file once opened a plain-text port."""
    file = tmp_path / "server.properties"
    file.write_text("listeners=SASL_SSL://0.0.0.0:9093\n")
    listen = ("--listen", "127.0.0.1:0")
    assert "both set the listeners" in refused(*listen, "--config", str(file), code=2)
    assert "both set the listeners" in refused(*listen, "-o", "listeners=PLAINTEXT://127.0.0.1:0", code=2)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ("group.consumer.assignors=uniform,org.Foo", "Invalid value org.Foo for {}: Class cannot be found"),
        ("group.share.assignors=foo", "Invalid value foo for {}: Class cannot be found"),
        ("group.streams.assignors=foo", "Invalid value foo for {}: Class cannot be found"),
        ("alter.config.policy.class.name=a.B", "Invalid value a.B for {}: Class a.B could not be found."),
        ("principal.builder.class=a.B", "Invalid value a.B for {}: Class a.B could not be found."),
        ("metric.reporters=a.B", "Invalid value a.B for {}: Class a.B could not be found."),
        ("replica.selector.class=a.B", "Invalid value a.B for {}: Class a.B could not be found."),
    ],
)
def test_a_class_that_is_not_there_keeps_the_broker_from_starting(tmp_path: Path, config: str, reason: str) -> None:
    """Once a made-up assignor made every heartbeat of a consumer group fail. The first five texts are Apache Kafka's."""
    output = refused("-o", config, "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"))
    assert output == f"ottla: {reason.format('configuration ' + config.partition('=')[0])}\n"


def test_an_authorizer_that_ottla_does_not_have_is_refused(tmp_path: Path) -> None:
    directory = str(tmp_path / "data")
    error = refused("-o", "authorizer.class.name=com.example.Authorizer", "--data-dir", directory)
    text = "ottla: Invalid value com.example.Authorizer for configuration authorizer.class.name: Class com.example.Authorizer"
    assert error.startswith(text)
    error = refused("-o", "authorizer.class.name=org.apache.kafka.Other", "--data-dir", directory)
    assert "and takes a Python class as package.module:Name" in error
    standard = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    error = refused("-o", standard, "-o", "super.users=alice", "--data-dir", directory)
    assert "super.users: expected a string in format principalType:principalName but got alice" in error


def test_changes_of_topics_start_and_stop_are_logged(start: Start) -> None:
    broker = start("--log-level", "info")
    wire = broker.wire()
    wire.client_id = "operator"
    topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1)
    wire.send(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7)
    retention = AlterableConfig(name="retention.ms", config_operation=0, value="1000")
    resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[retention])
    wire.send(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    wire.send(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=5000), 6)
    lines = [re.sub(r"\d+ ms", "N ms", line.split(" INFO ")[1]) for line in broker.stop().splitlines()]
    assert re.match(
        r"Ottla \S+ started in N ms on .+: node 1 of cluster \S{22}, 0 topics, listening on PLAINTEXT://", lines[0]
    )
    who = "User:ANONYMOUS (client operator at /127.0.0.1)"
    assert lines[1:] == [
        f"topic t created with 2 partitions by {who}",
        f"configs of topic t altered by {who}: retention.ms",
        f"topic t deleted by {who}",
        "stopping",
        "stopped in N ms",
    ]


def test_wrong_usage_exits_with_2(tmp_path: Path) -> None:
    assert "Usage: " in refused("--no-such-option", code=2)
    assert "--ephemeral" in refused("--ephemeral", "--data-dir", str(tmp_path), code=2)
    assert "Usage: " in refused("an-argument", code=2)


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        struct.pack(">ihhih", 10, 3, 999, 1, -1),
        struct.pack(">i", -5),
        struct.pack(">i", 0x7FFFFFFF),
        struct.pack(">ihhihi", 14, 3, 1, 1, -1, 1 << 30),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
    ids=["api", "version", "negative size", "huge size", "huge list", "http"],
)
def test_invalid_frame_closes_its_connection_only_and_is_logged_once(start: Start, frame: bytes) -> None:
    process = start()
    good, bad = process.wire(), process.wire()
    assert good.send(ApiVersionsRequest(), 0).error_code == 0
    bad.send_raw(frame)
    with pytest.raises(Closed):
        bad.receive_raw(1)
    assert good.send(ApiVersionsRequest(), 0).error_code == 0
    (line,) = process.stop().splitlines()
    assert " WARNING closing the connection of 127.0.0.1:" in line


def test_closed_connections_are_not_logged(start: Start) -> None:
    process = start()
    for _ in range(3):
        wire = process.wire()
        assert wire.send(ApiVersionsRequest(), 0).error_code == 0
        wire.send_raw(struct.pack(">ih", 100, 3))  # half a frame
        wire.close()
    assert process.wire().send(ApiVersionsRequest(), 0).error_code == 0
    assert process.stop() == ""
