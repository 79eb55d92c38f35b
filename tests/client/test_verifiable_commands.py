"""The verifiable clients, on both brokers: the events they print, and how they end."""

import json
import signal
import subprocess
import sys
from typing import Any

import pytest

from ottla import Admin, Consumer, TopicPartition

from .commands import Commands
from .conftest import Produce, fresh


def events(text: str) -> list[dict[str, Any]]:
    """In order, without the times."""
    entries = [json.loads(line) for line in text.splitlines()]
    assert all(entry.pop("timestamp") > 1_700_000_000_000 for entry in entries)
    return entries


def names(entries: list[dict[str, Any]]) -> list[str]:
    return [entry["name"] for entry in entries]


def test_counting(commands: Commands) -> None:
    topic = fresh()
    first, *sent, last, data = events(commands.output("verifiable-producer", "--topic", topic, "--max-messages", "3"))
    assert (first, last) == ({"name": "startup_complete"}, {"name": "shutdown_complete"})
    assert sent == [
        {"name": "producer_send_success", "key": None, "value": str(n), "offset": n, "topic": topic, "partition": 0}
        for n in range(3)
    ]
    assert data.pop("avg_throughput") > 0
    assert data == {"name": "tool_data", "sent": 3, "acked": 3, "target_throughput": -1}


def test_keys_values_and_times(commands: Commands, bootstrap_servers: str) -> None:
    topic = fresh()
    words = ["--value-prefix", "7", "--repeating-keys", "2", "--message-create-time", "1000", "--throughput", "100"]
    entries = events(
        commands.output("verifiable-producer", "--topic", topic, "--max-messages", "3", "--acks", "1", *words)
    )
    sent = [entry for entry in entries if entry["name"] == "producer_send_success"]
    assert [(entry["key"], entry["value"]) for entry in sent] == [("0", "7.0"), ("1", "7.1"), ("0", "7.2")]
    with Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        first, *rest = consumer.consume(3, 10)
    assert first.timestamp == 1000
    assert all(1000 < record.timestamp < 100_000 for record in rest)


def test_a_failed_send_is_an_event(commands: Commands) -> None:
    entries = events(commands.output("verifiable-producer", "--topic", "bad/topic", "--max-messages", "1"))
    assert names(entries) == ["startup_complete", "producer_send_error", "shutdown_complete", "tool_data"]
    error = entries[1]
    assert "invalid topic" in error.pop("message")
    assert error == {
        "name": "producer_send_error",
        "topic": "bad/topic",
        "key": None,
        "value": "0",
        "exception": "class org.apache.kafka.common.errors.InvalidTopicException",
    }
    assert (entries[3]["sent"], entries[3]["acked"]) == (1, 0)


@pytest.mark.parametrize("protocol", ["classic", "CONSUMER"])
def test_consume(commands: Commands, topic: str, produce: Produce, protocol: str, admin: Admin) -> None:
    produce(topic, 3)
    group = fresh("g")
    words = ["--topic", topic, "--group-id", group, "--group-protocol", protocol, "--max-messages", "2", "--verbose"]
    entries = events(commands.output("verifiable-consumer", *words))
    both = [{"topic": topic, "partition": index} for index in range(2)]
    assert entries == [
        {"name": "startup_complete"},
        {"name": "partitions_assigned", "partitions": both},
        *(
            {"name": "record_data", "key": f"k{n}", "value": f"v{n}", "topic": topic, "partition": 0, "offset": n}
            for n in range(2)
        ),
        {
            "name": "records_consumed",
            "count": 3,
            "partitions": [{"topic": topic, "partition": 0, "count": 2, "minOffset": 0, "maxOffset": 1}],
        },
        {
            "name": "offsets_committed",
            "offsets": [{"topic": topic, "partition": 0, "offset": 2}],
            "success": True,
        },
        {"name": "partitions_revoked", "partitions": both},
        {"name": "shutdown_complete"},
        {"name": "shutdown_requested"},
    ]
    assert admin.list_consumer_group_offsets([group])[group][TopicPartition(topic, 0)].offset == 2


def test_consume_with_automatic_commits(commands: Commands, topic: str, produce: Produce) -> None:
    produce(topic, 1)
    words = ["--topic", topic, "--group-id", fresh("g"), "--max-messages", "1", "--enable-autocommit"]
    words += ["--assignment-strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"]
    entries = events(commands.output("verifiable-consumer", *words, "--session-timeout", "20000"))
    assert "records_consumed" in names(entries)
    assert "offsets_committed" not in names(entries)


@pytest.mark.parametrize("mode", ["auto", "sync", "async"])
def test_share(commands: Commands, topic: str, produce: Produce, mode: str) -> None:
    produce(topic, 2)
    words = ["--topic", topic, "--group-id", fresh("s"), "--max-messages", "2", "--acknowledgement-mode", mode]
    entries = events(
        commands.output("verifiable-share-consumer", *words, "--offset-reset-strategy", "earliest", "--verbose")
    )
    partitions = [{"topic": topic, "partition": 0, "count": 2, "offsets": [0, 1]}]
    assert entries == [
        {"name": "startup_complete"},
        {"name": "offset_reset_strategy_set", "offsetResetStrategy": "earliest"},
        *(
            {"name": "record_data", "key": f"k{n}", "value": f"v{n}", "topic": topic, "partition": 0, "offset": n}
            for n in range(2)
        ),
        {"name": "records_consumed", "count": 2, "partitions": partitions},
        {"name": "offsets_acknowledged", "count": 2, "partitions": partitions, "success": True},
        {"name": "shutdown_complete"},
    ]


@pytest.mark.parametrize(
    ("words", "number", "begun", "end"),
    [
        (
            ["verifiable-producer", "--throughput", "20"],
            signal.SIGTERM,
            "producer_send_success",
            ["shutdown_complete", "tool_data"],
        ),
        (
            ["verifiable-consumer", "--group-id", "ended"],
            signal.SIGINT,
            "partitions_assigned",
            ["shutdown_requested", "partitions_revoked", "shutdown_complete"],
        ),
        (
            ["verifiable-share-consumer", "--group-id", "ended-share"],
            signal.SIGTERM,
            "startup_complete",
            ["shutdown_complete"],
        ),
    ],
)
def test_a_signal_stops_the_commands_with_their_last_events(
    bootstrap_servers: str, topic: str, words: list[str], number: signal.Signals, begun: str, end: list[str]
) -> None:
    command = [sys.executable, "-m", "ottla", *words, "--bootstrap-server", bootstrap_servers, "--topic", topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while f'"name":"{begun}"' not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(number)
        output, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (128 + number, "")
    entries = events(output)
    assert names(entries)[-len(end) :] == end
    if entries[-1]["name"] == "tool_data":
        assert entries[-1]["sent"] == entries[-1]["acked"] > 0


@pytest.mark.parametrize(
    ("command", "words", "why"),
    [
        ("verifiable-producer", ["--command-config", "a", "--producer.config", "b"], "cannot be specified together"),
        (
            "verifiable-consumer",
            ["--group-id", "g", "--command-config", "a", "--consumer.config", "b"],
            "cannot be specified together",
        ),
        ("verifiable-consumer", ["--group-id", "g", "--reset-policy", "odd"], "'odd' is not one of"),
        (
            "verifiable-consumer",
            ["--group-id", "g", "--group-protocol", "consumer", "--session-timeout", "9"],
            "--session-timeout is for classic groups",
        ),
        ("verifiable-share-consumer", ["--group-id", "g", "--acknowledgement-mode", "odd"], "'odd' is not one of"),
    ],
)
def test_wrong_usage(commands: Commands, command: str, words: list[str], why: str) -> None:
    assert why in commands.misused(command, "--topic", "t", *words)


def test_an_assignor_that_is_not_there(commands: Commands) -> None:
    words = ["--topic", "t", "--group-id", "g", "--assignment-strategy", "Odd"]
    assert "partition.assignment.strategy" in commands.refused("verifiable-consumer", *words)
