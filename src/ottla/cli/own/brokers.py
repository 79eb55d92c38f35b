"""Command lines of several brokers on one machine, for `ottla serve --brokers`."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from ottla.addresses import address_text
from ottla.broker.config import BrokerConfig
from ottla.broker.coordination.internal_topics import replication_factors
from ottla.broker.security.listener_configs import Listener

if TYPE_CHECKING:
    from ottla.broker.supervisor import BrokerProcess

_MOST_BROKERS: Final = 100


def parse_brokers(context: click.Context, parameter: click.Parameter, value: str | None) -> list[int | None] | None:
    """Parse --brokers into the port of each broker; None stands for a port after that of the broker before it."""
    del context, parameter
    if value is None:
        return None
    words = value.split(",")
    if not all(word.strip().isdecimal() for word in words):
        raise click.BadParameter(f"{value!r} is neither a number of brokers nor a list of ports")
    numbers = list(map(int, words))
    count = numbers[0] if len(numbers) == 1 else len(numbers)
    if not 1 <= count <= _MOST_BROKERS:
        raise click.BadParameter(f"the number of brokers must be between 1 and {_MOST_BROKERS}")
    return [None] * count if len(numbers) == 1 else [*numbers]


def broker_processes(
    config: BrokerConfig,
    ports: Sequence[int | None],
    arguments: Sequence[str],
    flags: Sequence[str],
    metrics: tuple[str, int] | None,
    of_first: Sequence[str] = (),
) -> "list[BrokerProcess]":
    """Return the processes of all brokers: node ids and ports are consecutive from those in `config`.

    arguments  arguments of `ottla` that all brokers have
    flags      configs that all brokers have, as name=value; they are not in the brokers' command lines, where every user of
               the machine could read passwords
    metrics    address of the first broker's metrics
    of_first   further arguments of the first broker

    Raises UsageError for ports that cannot be used.
    """
    from ottla.broker.supervisor import BrokerProcess  # a single broker starts without it

    addresses: set[tuple[str, int]] = set()
    processes = []
    for index, port in enumerate(ports):
        listeners = [_shift_port(listener, index) for listener in config.listeners]
        if port is not None:
            listeners[0] = listeners[0]._replace(port=port)
        for listener in listeners:
            if listener.port > 65_535 or (listener.port and (listener.host, listener.port) in addresses):
                raise click.UsageError(f"broker {index + 1} cannot listen on {listener}: give other ports")
            addresses.add((listener.host, listener.port))
        node_id = config.node_id + index
        options = {
            "node.id": str(node_id),
            "log.dirs": ",".join(f"{directory}/broker-{node_id}" for directory in config.log_dirs),
            "metadata.log.dir": config.metadata_log_dir,
            **replication_factors(config, len(ports)),
        }
        advertised = config.advertised_listeners
        if advertised:
            options["advertised.listeners"] = ",".join(str(_shift_port(listener, index)) for listener in advertised)
        own = [
            *arguments,
            *(() if index else of_first),
            *(word for name, value in options.items() for word in ("-o", f"{name}={value}")),
        ]
        if metrics is not None:
            host, first = metrics
            own += ["--metrics", address_text(host, first + index if first else 0)]
        processes.append(BrokerProcess(node_id, ",".join(map(str, listeners)), partial(_command, own), flags))
    return processes


def _shift_port(listener: Listener, index: int) -> Listener:
    return listener._replace(port=listener.port + index) if listener.port else listener


def _command(arguments: Sequence[str], listeners: str, channel: int) -> list[str]:
    return ["serve", *arguments, "--options-on-stdin", "-o", f"listeners={listeners}", "--channel", str(channel)]
