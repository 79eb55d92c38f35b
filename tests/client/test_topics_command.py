"""`ottla topics`, on Ottla and on Apache Kafka."""

import json
import subprocess
import sys

import pytest

from ottla import Admin
from ottla.protocol.uuids import uuid_text
from tests.conformance.members import wait_for

from .commands import Commands
from .conftest import fresh


def test_a_topic_is_created_listed_changed_and_deleted(commands: Commands, admin: Admin) -> None:
    name = fresh()
    words = ["--create", "--topic", name, "--partitions", "2", "--config", "retention.ms=5000"]
    assert commands.output("topics", *words) == f"Created topic {name}.\n"
    assert commands.output("topics", *words, "--if-not-exists") == ""
    assert "TOPIC_ALREADY_EXISTS" in commands.refused("topics", *words)
    wait_for(lambda: name in commands.output("topics", "--list").split())
    assert commands.output("topics", "--list", "--topic", f"{name}|odd", "--exclude-internal") == f"{name}\n"
    (node,) = (broker.id for broker in admin.describe_cluster().nodes)
    topic_id = uuid_text(admin.describe_topics([name])[name].topic_id)
    head, *rows = commands.output("topics", "--describe", "--topic", name).splitlines()
    assert head.startswith(f"Topic: {name} TopicId: {topic_id} PartitionCount: 2 ReplicationFactor: 1 Configs: ")
    assert "retention.ms=5000" in head
    assert [row.strip() for row in rows] == [
        f"Topic: {name} Partition: {index} Leader: {node} Replicas: {node} Isr: {node} Elr: LastKnownElr:"
        for index in range(2)
    ]
    assert commands.output("topics", "--describe", "--topic-id", topic_id).startswith(f"{head}\n")
    assert commands.output("topics", "--alter", "--topic", name, "--partitions", "3") == ""
    wait_for(lambda: len(commands.json("topics", "--describe", "--topic", name)[0]["partitions"]) == 3)
    assert "INVALID_PARTITIONS" in commands.refused("topics", "--alter", "--topic", name, "--partitions", "3")
    assert commands.output("topics", "--delete", "--topic", name) == ""
    wait_for(lambda: name not in commands.json("topics", "--list"))
    assert commands.refused("topics", "--delete", "--topic", name) == f"topic {name} does not exist"
    assert commands.output("topics", "--delete", "--topic", name, "--if-exists") == ""


def test_topics_are_described_by_filters(commands: Commands, topic: str) -> None:
    for flag in ("under-replicated", "unavailable", "under-min-isr"):
        assert commands.output("topics", "--describe", "--topic", topic, f"--{flag}-partitions") == ""
    assert len(commands.output("topics", "--describe", "--topic", topic, "--at-min-isr-partitions").splitlines()) == 2
    either = ["--unavailable-partitions", "--at-min-isr-partitions"]
    assert len(commands.output("topics", "--describe", "--topic", topic, *either).splitlines()) == 2
    descriptions = commands.json("topics", "--describe", "--topic", topic, "--partition-size-limit-per-response", "1")
    assert [part["partition"] for part in descriptions[0]["partitions"]] == [0, 1]
    own = fresh()
    commands.output("topics", "--create", "--topic", own, "--config", "segment.bytes=2000000")
    wait_for(lambda: own in commands.json("topics", "--list"))
    described = commands.output("topics", "--describe", "--topic", f"{own}", "--topics-with-overrides")
    assert described.startswith(f"Topic: {own} ")
    assert described.count("\n") == 1


def test_replicas_are_assigned(commands: Commands, admin: Admin) -> None:
    name = fresh()
    (node,) = (broker.id for broker in admin.describe_cluster().nodes)
    made = commands.json("topics", "--create", "--topic", name, "--replica-assignment", f"{node},{node}")
    assert (made["topic"], made["created"]) == (name, True)
    wait_for(lambda: name in commands.json("topics", "--list"))
    assert commands.json("topics", "--describe", "--topic", name)[0]["replication_factor"] == 1


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "specify exactly one of --create, --delete, --alter, --describe, --list"),
        (["--list", "--describe"], "exactly one of"),
        (["--create"], "--create requires --topic"),
        (["--alter", "--topic", "t"], "--alter requires --partitions"),
        (["--list", "--if-exists"], "--if-exists can only be used with --alter and --delete and --describe"),
        (["--list", "--partitions", "1"], "--partitions can only be used with --create and --alter"),
        (["--create", "--topic", "t", "--at-min-isr-partitions"], "can only be used with --describe"),
        (["--describe", "--topics-with-overrides", "--unavailable-partitions"], "cannot be combined with filters"),
        (["--describe", "--if-exists"], "--describe with --if-exists requires --topic or --topic-id"),
        (["--create", "--topic", "t", "--config", "x"], "a property must be NAME=VALUE"),
        (["--create", "--topic", "t", "--replica-assignment", "a"], "brokers are numbers"),
        (["--create", "--topic", "t", "--replica-assignment", "1:1"], "the same broker twice"),
        (
            ["--create", "--topic", "t", "--replica-assignment", "1", "--replication-factor", "1"],
            "cannot be combined with --partitions",
        ),
        (["--describe", "--topic", "("], "--topic (:"),
        (["--describe", "--topic-id", "short"], "not a topic id of 22 characters"),
    ],
)
def test_wrong_usage(commands: Commands, words: list[str], why: str) -> None:
    assert why in commands.misused("topics", *words)


def test_listing_topics_imports_no_producer_or_consumer() -> None:
    """To list topics must take less than 200 ms as a whole process: nothing of producers, consumers or records is loaded."""
    code = (
        "import sys, json, ottla.cli.main, ottla.cli.kafka.topics;"
        "print(json.dumps([name for name in sys.modules if name.startswith('ottla.')]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    loaded = set(json.loads(done.stdout))
    assert "ottla.client.admin.topics" in loaded
    heavy = ("producer", "consumer", "share", "blocking", "aio", "admin.configs", "admin.consumer_groups")
    assert not {f"ottla.client.{name}" for name in heavy} & loaded
    assert not {name for name in loaded if name.startswith(("ottla.broker", "ottla.log", "ottla.records.batch"))}
