"""`ottla serve`: run a broker."""

import asyncio
import logging
import os
import sys
from pathlib import Path

import click

from ottla.broker.config import BrokerConfig, broker_config, read_file
from ottla.broker.lifecycle import Broker, CannotStart, EphemeralDirectory
from ottla.broker.lifecycle import serve as serve_broker
from ottla.metadata.configs import InvalidConfig


@click.command()
@click.option(
    "--listen", metavar="HOST:PORT", help="Where clients connect; port 0 takes a free one. [default: 127.0.0.1:9092]"
)
@click.option("--data-dir", metavar="DIR", help="Where topics are kept: log.dirs. [default: ottla-data]")
@click.option("--ephemeral", is_flag=True, help="Keep nothing: a temporary directory, removed at the end.")
@click.option("--config", "file", metavar="FILE", help="A server.properties with Kafka's config names.")
@click.option(
    "-o", "options", metavar="NAME=VALUE", multiple=True, help="One config by its Kafka name; may be repeated."
)
@click.option(
    "--log-level", default="WARNING", type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False)
)
def serve(
    listen: str | None,
    data_dir: str | None,
    *,
    ephemeral: bool,
    file: str | None,
    options: tuple[str, ...],
    log_level: str,
) -> None:
    """Run a broker until SIGTERM or Ctrl-C.

    Configs come from --config, then the environment (OTTLA_LOG_RETENTION_MS), then -o and the flags above; the last wins.
    """
    if ephemeral and data_dir:
        raise click.UsageError("--ephemeral keeps nothing, so it takes no --data-dir")
    logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    directory = EphemeralDirectory() if ephemeral else None
    try:
        given = read_file(Path(file)) if file else {}
        flags = _flags(listen, str(directory.path) if directory else data_dir, given, options)
        config = broker_config(given, os.environ, flags)
        _run(config)
    except (InvalidConfig, CannotStart) as error:
        click.echo(f"ottla: {error}", err=True)
        sys.exit(1)
    finally:
        if directory is not None:
            directory.remove()


def _flags(listen: str | None, data_dir: str | None, file: dict[str, str], options: tuple[str, ...]) -> list[str]:
    """The flags as configs, behind Ottla's own defaults where nobody says anything: loopback, and ./ottla-data."""
    said = set(file) | {option.partition("=")[0].strip() for option in options}
    said |= {
        name for name in ("listeners", "log.dirs", "log.dir") if f"OTTLA_{name.upper().replace('.', '_')}" in os.environ
    }
    flags = list(options)
    if listen is not None:
        flags.append(f"listeners=PLAINTEXT://{listen}")
    elif "listeners" not in said:
        flags.append("listeners=PLAINTEXT://127.0.0.1:9092")
    if data_dir is not None:
        flags.append(f"log.dirs={data_dir}")
    elif not said & {"log.dirs", "log.dir"}:
        flags.append("log.dirs=ottla-data")
    return flags


def _run(config: BrokerConfig) -> None:
    """Run the broker on uvloop where it is installed, else on asyncio."""
    try:
        import uvloop
    except ImportError:
        runner = asyncio.run
    else:
        runner = uvloop.run
    runner(serve_broker(config, _announce))


def _announce(broker: Broker) -> None:
    addresses = ", ".join(f"{listener.name}://{host}:{port}" for listener, (host, port) in broker.bound)
    click.echo(f"ottla is listening on {addresses} (node {broker.node_id}, cluster {broker.image.cluster_id})")
