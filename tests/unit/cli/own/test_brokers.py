"""`ottla serve --brokers`: node ids, ports and directories of the brokers."""

from collections.abc import Sequence
from itertools import pairwise

import click
import pytest

from ottla.broker.config import broker_config
from ottla.broker.supervisor import BrokerProcess
from ottla.cli.own.brokers import broker_processes, parse_brokers

PARAMETER = click.Option(["--brokers"])
CONTEXT = click.Context(click.Command("serve"))


def processes(ports: str, *options: str, metrics: tuple[str, int] | None = None) -> list[BrokerProcess]:
    parsed = parse_brokers(CONTEXT, PARAMETER, ports)
    assert parsed is not None
    config = broker_config(options=("log.dirs=/none/a,/none/b", *options))
    return broker_processes(config, parsed, ["--log-level", "INFO"], options, metrics)


def listeners(brokers: Sequence[BrokerProcess]) -> list[str]:
    return [broker.listeners for broker in brokers]


def test_node_ids_and_ports_are_consecutive() -> None:
    brokers = processes("3", "node.id=5", "listeners=PLAINTEXT://h:9092,INNER://[::1]:9192", MAP)
    assert [broker.node_id for broker in brokers] == [5, 6, 7]
    assert listeners(brokers) == [
        "PLAINTEXT://h:9092,INNER://[::1]:9192",
        "PLAINTEXT://h:9093,INNER://[::1]:9193",
        "PLAINTEXT://h:9094,INNER://[::1]:9194",
    ]


MAP = "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT"


def test_port_0_is_any_free_port_of_each() -> None:
    assert listeners(processes("2", "listeners=PLAINTEXT://h:0")) == ["PLAINTEXT://h:0"] * 2


def test_a_list_of_ports() -> None:
    assert listeners(processes("9092, 9100,0", "listeners=PLAINTEXT://h:1")) == [
        "PLAINTEXT://h:9092",
        "PLAINTEXT://h:9100",
        "PLAINTEXT://h:0",
    ]


def test_the_command_line_of_a_broker() -> None:
    _, second = processes(
        "2", "listeners=PLAINTEXT://h:0", "advertised.listeners=PLAINTEXT://out:1000", metrics=("h", 7000)
    )
    words = second.arguments("PLAINTEXT://h:4711", 9)
    assert words[:3] == ["serve", "--log-level", "INFO"]
    assert [word for flag, word in pairwise(words) if flag == "-o"] == [
        "node.id=2",
        "log.dirs=/none/a/broker-2,/none/b/broker-2",
        "metadata.log.dir=/none/a",
        "offsets.topic.replication.factor=2",
        "transaction.state.log.replication.factor=2",
        "share.coordinator.state.topic.replication.factor=2",
        "advertised.listeners=PLAINTEXT://out:1001",
        "listeners=PLAINTEXT://h:4711",
    ]
    assert words[words.index("--metrics") + 1] == "h:7001"
    assert words[-2:] == ["--channel", "9"]


def test_options_are_not_in_the_command_line_of_a_broker() -> None:
    """All users of the machine can read a command line; options may be passwords."""
    (broker,) = processes("1", "ssl.key.password=hidden")
    assert broker.configs == ("ssl.key.password=hidden",)
    words = broker.arguments("PLAINTEXT://h:4711", 9)
    assert "--options-on-stdin" in words
    assert not any("hidden" in word for word in words)


@pytest.mark.parametrize(
    ("ports", "options"),
    [
        ("2", ["listeners=PLAINTEXT://h:9092,INNER://h:9093", MAP]),
        ("9092,9092", ["listeners=PLAINTEXT://h:1"]),
        ("2", ["listeners=PLAINTEXT://h:65535"]),
    ],
)
def test_ports_that_cannot_be_used(ports: str, options: list[str]) -> None:
    with pytest.raises(click.UsageError, match="broker 2 cannot listen on"):
        processes(ports, *options)


@pytest.mark.parametrize("text", ["0", "101", "x", "9092,", "-1"])
def test_values_that_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        parse_brokers(CONTEXT, PARAMETER, text)
