"""`ottla serve`: run a broker."""

import asyncio
import contextlib
import json
import os
import socket
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.addresses import address_text
from ottla.broker.broker import Broker
from ottla.broker.config import BrokerConfig, broker_config, read_file
from ottla.broker.lifecycle import BrokerServer, CannotStart
from ottla.broker.process import EphemeralDirectory
from ottla.broker.process import serve as serve_broker
from ottla.cli.own.brokers import broker_processes, parse_brokers
from ottla.environment import Environment
from ottla.extras import install_command, is_installed
from ottla.metadata.configs import InvalidConfig
from ottla.metadata.configs.schema_rules import REGISTRY_URL
from ottla.metadata.store import MetadataStore
from ottla.observability import logs
from ottla.tasks.scheduler import Scheduler

if TYPE_CHECKING:
    from ottla.cli.own.exposed import Exposed
    from ottla.cli.own.schema_registry import EmbeddedRegistry
    from ottla.observability.families import Family

OpenStore = Callable[[Environment, Scheduler], MetadataStore]


@click.command()
@click.option(
    "--listen", metavar="HOST:PORT", help="Address for clients; port 0 takes a free port. [default: 127.0.0.1:9092]"
)
@click.option("--data-dir", metavar="DIR", help="Data directory (log.dirs). [default: ottla-data]")
@click.option(
    "--brokers",
    metavar="N|PORT,PORT,...",
    callback=parse_brokers,
    help="Run several brokers, each in a process: their number (consecutive ports), or their ports.",
)
@click.option("--ephemeral", is_flag=True, help="Use a temporary directory that is removed at the end.")
@click.option("--config", "file", metavar="FILE", help="A server.properties with Kafka's config names.")
@click.option(
    "-o", "options", metavar="NAME=VALUE", multiple=True, help="One config by its Kafka name; may be repeated."
)
@click.option(
    "--cluster",
    metavar="etcd://HOST:PORT,.../PREFIX",
    help="Join the cluster whose metadata is in this etcd. [default: a single broker]",
)
@click.option(
    "--no-quick-fencing",
    is_flag=True,
    help="In a cluster, fence other brokers at the end of their session only, not when they refuse connections.",
)
@click.option(
    "--accept-older-metadata",
    is_flag=True,
    help="In a cluster, start although the metadata was restored from a backup: later changes are lost, and records with them.",
)
@click.option(
    "--wait-for-store",
    metavar="SECONDS",
    type=click.FloatRange(min=0, max=86_400),
    default=0,
    help="In a cluster, wait so long for an etcd that does not answer. [default: end after some seconds]",
)
@click.option("--metrics", metavar="HOST:PORT", help="Serve /metrics for Prometheus, /livez and /readyz for probes.")
@click.option(
    "--metrics-topics",
    metavar="NAME,PATTERN*,...",
    default="",
    help="Topics whose metrics are exported one by one; the others are added up. [default: up to 10,000 partitions]",
)
@click.option("--schema-registry", metavar="HOST:PORT", help="Serve a schema registry with Confluent's REST API, too.")
@click.option(
    "--schema-registry-config",
    metavar="FILE",
    help="Client properties of the schema registry, where the first listener needs TLS or a login.",
)
@click.option(
    "--log-level",
    default="INFO",
    show_default=True,
    type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False),
)
@click.option(
    "--log-format",
    default="text",
    show_default=True,
    type=click.Choice(["text", "json"]),
    help="Format of the log: a line of text or a JSON object for each message.",
)
@click.option("--options-on-stdin", is_flag=True, hidden=True, help="Read further options from stdin, as JSON.")
@click.option("--channel", type=int, hidden=True, help="Descriptor of the connection to the process of --brokers.")
def serve(
    listen: str | None,
    data_dir: str | None,
    brokers: list[int | None] | None,
    *,
    ephemeral: bool,
    file: str | None,
    options: tuple[str, ...],
    cluster: str | None,
    no_quick_fencing: bool,
    accept_older_metadata: bool,
    wait_for_store: float,
    metrics: str | None,
    metrics_topics: str,
    schema_registry: str | None,
    schema_registry_config: str | None,
    log_level: str,
    log_format: str,
    options_on_stdin: bool,
    channel: int | None,
) -> None:
    """Run a broker, or several ones, until SIGTERM or Ctrl-C.

    Configs come from --config, then the environment (OTTLA_LOG_RETENTION_MS), then -o and the flags above; the last wins.
    """
    if ephemeral and data_dir:
        raise click.UsageError("--ephemeral uses a temporary directory: it cannot be combined with --data-dir")
    log = logs.configure(log_level, sys.stderr)
    directory = EphemeralDirectory() if ephemeral else None
    if options_on_stdin:
        options = (*json.load(sys.stdin), *options)
    try:
        file_configs = read_file(Path(file)) if file else {}
        flags = _flags(listen, str(directory.path) if directory else data_dir, file_configs, options)
        config = broker_config(file_configs, os.environ, flags)
        if log_format == "json":
            log.setFormatter(logs.JsonFormatter(config.with_node_id().node_id))
        address = _metrics_address(metrics) if metrics else None
        registry = _registry(schema_registry, schema_registry_config, config) if schema_registry else None
        _check_cluster(brokers, cluster, wait_for_store)
        if registry is not None and brokers is not None:
            registry = registry.on_known_port()
        if registry is not None and registry.validates:
            config = config.with_static(REGISTRY_URL, registry.url)
            flags.append(f"{REGISTRY_URL}={registry.url}")
        if brokers is None:
            _run(
                config,
                None if address is None else _make_exposed(address, metrics_topics),
                registry,
                channel,
                None if cluster is None else _etcd_store(cluster),
                fences_quickly=not no_quick_fencing,
                accepts_older_metadata=accept_older_metadata,
                waits_for_store_ms=round(wait_for_store * 1000),
            )
        else:
            from ottla.broker.supervisor import supervise

            common = ["--log-level", log_level, "--log-format", log_format, *(("--config", file) if file else ())]
            common += _shared_flags(metrics_topics, accepts_older_metadata=accept_older_metadata)
            of_first = _registry_flags(registry, schema_registry_config)
            processes = broker_processes(config, brokers, common, flags, address, of_first)
            log_dirs = list(map(Path, config.log_dirs))
            asyncio.run(supervise(Path(config.metadata_log_dir), log_dirs, processes, sys.stderr.buffer))
    except (InvalidConfig, CannotStart) as error:
        click.echo(f"ottla: {error}", err=True)
        sys.exit(1)
    finally:
        if directory is not None:
            directory.remove()


def _registry(address: str, file: str | None, config: BrokerConfig) -> "EmbeddedRegistry":
    """Return the schema registry that a broker serves. Raises UsageError, CannotStart."""
    from ottla.cli.own.schema_registry import EmbeddedRegistry, listen_address

    host, port = listen_address(address, "--schema-registry")
    listener = config.listeners[0]
    if file is None and (listener.has_tls or listener.has_sasl):
        raise CannotStart(
            f"the schema registry is a client of the first listener, {listener.name}, which needs {listener.protocol}: name the"
            " properties of the client with --schema-registry-config"
        )
    registry = EmbeddedRegistry(host, port, {} if file is None else read_file(Path(file)))
    url = config.text(REGISTRY_URL)
    return registry._replace(validates=not url or url == registry.url)


def _registry_flags(registry: "EmbeddedRegistry | None", file: str | None) -> list[str]:
    """Return the flags of the first of several brokers: it serves the schema registry, and the others ask that one."""
    if registry is None:
        return []
    flags = ["--schema-registry", address_text(registry.host, registry.port)]
    return flags if file is None else [*flags, "--schema-registry-config", file]


def _check_cluster(brokers: object, cluster: str | None, wait_for_store: float) -> None:
    """Raise UsageError for flags that exclude each other."""
    if brokers is not None and cluster is not None:
        raise click.UsageError("--brokers shares one file on this machine: it cannot be combined with --cluster")
    if wait_for_store and cluster is None:
        raise click.UsageError("--wait-for-store waits for etcd: it needs --cluster")


def _shared_flags(metrics_topics: str, *, accepts_older_metadata: bool) -> list[str]:
    """Return the flags of each of several brokers that are not given unless they are set."""
    flags = ["--metrics-topics", metrics_topics] if metrics_topics else []
    return [*flags, "--accept-older-metadata"] if accepts_older_metadata else flags


def _flags(listen: str | None, data_dir: str | None, file: dict[str, str], options: tuple[str, ...]) -> list[str]:
    """Return options and flags as configs, with Ottla's defaults (loopback, ./ottla-data) unless they are set elsewhere."""
    configured = set(file) | {option.partition("=")[0].strip() for option in options}
    configured |= {
        name for name in ("listeners", "log.dirs", "log.dir") if f"OTTLA_{name.upper().replace('.', '_')}" in os.environ
    }
    flags = list(options)
    if listen is not None:
        if "listeners" in configured:
            where = "-o" if any(option.startswith("listeners") for option in options) else "the file or the environment"
            raise click.UsageError(f"--listen and `listeners` of {where} both set the listeners: remove one of them")
        flags.append(f"listeners=PLAINTEXT://{listen}")
    elif "listeners" not in configured:
        flags.append("listeners=PLAINTEXT://127.0.0.1:9092")
    if data_dir is not None:
        flags.append(f"log.dirs={data_dir}")
    elif not configured & {"log.dirs", "log.dir"}:
        flags.append("log.dirs=ottla-data")
    return flags


def _metrics_address(text: str) -> tuple[str, int]:
    """Parse HOST:PORT. Raises UsageError, and CannotStart without the packages that are imported once the broker listens."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise click.UsageError(f"--metrics requires HOST:PORT, not {text!r}")
    for package in ("h11", "opentelemetry.proto", "prometheus_client"):
        if not is_installed(package):
            raise CannotStart(f"--metrics needs {package}: {install_command('metrics')}")
    return host.strip("[]"), int(port)


def _make_exposed(address: tuple[str, int], topics: str) -> "Exposed":
    """Return what serves metrics at an address. Its modules are loaded only then: a broker without metrics starts sooner."""
    from ottla.cli.own.exposed import Exposed

    return Exposed(*address, topics)


def _etcd_store(text: str) -> OpenStore:
    """Return a function that opens the store in etcd; see `etcd_store`."""
    from ottla.cli.etcd import etcd_store

    return etcd_store(text)


def _run(
    config: BrokerConfig,
    exposed: "Exposed | None",
    registry: "EmbeddedRegistry | None",
    channel: int | None,
    open_store: OpenStore | None,
    *,
    fences_quickly: bool,
    accepts_older_metadata: bool,
    waits_for_store_ms: int,
) -> None:
    """Run the broker on uvloop if it is installed, otherwise on asyncio."""
    channel_socket = None if channel is None else socket.socket(fileno=channel)
    try:
        import uvloop
    except ImportError:
        runner = asyncio.run
    else:
        runner = uvloop.run
    with contextlib.ExitStack() as stack:

        def announce(server: BrokerServer) -> Callable[[], None] | None:
            where = None
            further: list[Callable[[], Iterable[Family]]] = []
            if exposed is not None:
                where, stop = exposed._replace(further=further).serve(server)
                stack.callback(stop)
            _announce(server.broker)
            if where is not None:
                click.echo(f"serving metrics at {where}")
            return None if registry is None else registry.serve(server, further)

        runner(
            serve_broker(
                config,
                announce,
                channel_socket,
                open_store,
                fences_quickly=fences_quickly,
                accepts_older_metadata=accepts_older_metadata,
                waits_for_store_ms=waits_for_store_ms,
            )
        )


def _announce(broker: Broker) -> None:
    addresses = ", ".join(
        f"{listener.name}://{address_text(host, port)}" for listener, (host, port) in broker.listeners.bound
    )
    click.echo(f"ottla is listening on {addresses} (node {broker.node_id}, cluster {broker.image.cluster_id})")
