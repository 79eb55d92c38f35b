"""`ottla top`, on both brokers: reports one after the other, and a screen."""

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from ottla import Admin, TopicPartition

from .commands import Commands
from .conftest import Produce, fresh


def test_reports(commands: Commands, topic: str, share_group: str, produce: Produce, admin: Admin) -> None:
    produce(topic, 5)
    produce(topic, 2, partition=1)
    group = fresh("g")
    admin.alter_consumer_group_offsets(group, {TopicPartition(topic, 0): 3, TopicPartition(topic, 1): 2}).check()
    output = commands.output("top", "--interval", "0.2", "--iterations", "2", "--json")
    first, second = map(json.loads, output.splitlines())
    assert second["timestamp"] - first["timestamp"] >= 200
    assert first["cluster_id"] == admin.describe_cluster().cluster_id
    (broker,) = first["brokers"]
    assert broker["controller"]
    assert broker["replicas"] >= broker["leaders"] >= 2
    (row,) = [topic_row for topic_row in first["topics"] if topic_row["topic"] == topic]
    assert row.pop("size") > 100
    assert row == {
        "topic": topic,
        "partitions": 2,
        "end": 7,
        "records_per_second": 0.0,
        "bytes_per_second": 0.0,
    }
    groups = {group_row["group"]: group_row for group_row in first["groups"]}
    assert (groups[group]["lag"], groups[group]["records_per_second"]) == (2, 0.0)
    assert (groups[share_group]["type"], groups[share_group]["lag"]) == ("share", 7)
    assert not any(topic_row["topic"].startswith("__") for topic_row in first["topics"])


def test_tables(commands: Commands, topic: str, produce: Produce) -> None:
    produce(topic, 5)
    output = commands.output("top", "--interval", "0.2", "--iterations", "1", "--sort", "name", "--internal")
    moment, *_ = lines = output.splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d cluster \S+", moment)
    assert "BROKER ADDRESS CONTROLLER LEADERS REPLICAS SIZE RECORDS/S BYTES/S" in lines
    assert "GROUP TYPE STATE LAG RECORDS/S" in lines
    start = lines.index("TOPIC PARTITIONS END SIZE RECORDS/S BYTES/S")
    names = [line.split()[0] for line in lines[start + 1 : lines.index("", start)]]
    assert topic in names
    assert names == sorted(names)


def test_rates_count_records_written_between_samples(commands: Commands, topic: str, produce: Produce) -> None:
    where = ["--bootstrap-server", commands.bootstrap_servers]
    command = [sys.executable, "-m", "ottla", "top", *where, "--interval", "0.3", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        produce(topic, 300)
        rates: list[float] = []
        while sum(rates) == 0:
            rows = json.loads(process.stdout.readline())["topics"]
            rates = [row["records_per_second"] for row in rows if row["topic"] == topic]
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")


def test_screen(commands: Commands, topic: str) -> None:
    """Run on a terminal until q is pressed."""
    master, slave = pty.openpty()
    where = ["--bootstrap-server", commands.bootstrap_servers]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "150", "LINES": "900"}
    command = [sys.executable, "-m", "ottla", "top", *where, "--interval", "60", "--sort", "name"]
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=subprocess.PIPE, env=environment) as process:
        os.close(slave)
        assert process.stderr is not None
        seen = b""
        pressed = False
        deadline = time.monotonic() + 20
        readable = select.poll()  # select() cannot take a descriptor above 1023, which a process of many tests may have
        readable.register(master, select.POLLIN)
        try:
            while process.poll() is None:
                assert time.monotonic() < deadline, seen
                if readable.poll(50):
                    with contextlib.suppress(OSError):  # the other end is closed
                        seen += os.read(master, 65536)
                if not pressed and topic.encode() in seen:
                    pressed = os.write(master, b"xq") > 0
        finally:
            process.kill()
        assert (process.returncode, process.stderr.read()) == (0, b"")
    os.close(master)
    assert b"q quits" in seen


def test_a_cluster_that_is_not_there(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("default.api.timeout.ms=300\nrequest.timeout.ms=200\n", encoding="utf-8")
    refused = Commands("127.0.0.1:1").refused("top", "--command-config", str(file), "--iterations", "1")
    assert "127.0.0.1:1" in refused


def test_wrong_usage(commands: Commands) -> None:
    assert "--interval must be positive" in commands.misused("top", "--interval", "0")
    assert "'odd' is not one of" in commands.misused("top", "--sort", "odd")
