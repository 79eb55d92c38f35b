"""`ottla`: entry point of all commands.

A failure is one line on standard error and exit code 1 (2 for wrong usage), without a traceback. Ctrl-C and a closed pipe end a
command quietly, with the exit codes that a shell has for them, 130 and 141.
"""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

import click
from click.exceptions import Exit

from ottla.cli.command_group import CommandGroup
from ottla.cli.kafka_names import advice_on_script, command_name, explain
from ottla.version import VERSION


def form() -> str:
    """Return "compiled" or "interpreted", the form in which the hot modules run."""
    spec = find_spec("ottla.records.validation")  # located, not imported
    return "interpreted" if spec is None or str(spec.origin).endswith(".py") else "compiled"


@contextmanager
def quiet_ends() -> Iterator[None]:
    """Turn Ctrl-C, also in a prompt, and a closed pipe of the output into Exit."""
    try:
        yield
        sys.stdout.flush()
    except KeyboardInterrupt:
        raise Exit(128 + signal.SIGINT) from None
    except click.Abort as aborted:
        if not isinstance(aborted.__context__, KeyboardInterrupt):
            raise
        raise Exit(128 + signal.SIGINT) from None
    except BrokenPipeError:
        # What is left in the buffer has no reader: the interpreter would complain about it at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise Exit(128 + signal.SIGPIPE) from None


class Commands(CommandGroup):
    """Commands by name, imported on use: `ottla --version` must not import all of them."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parse the command line; --help and --version print here."""
        with quiet_ends():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        with quiet_ends():
            try:
                return super().invoke(ctx)
            except click.NoSuchOption as error:
                raise explain(error) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command by its name or that of Kafka's script."""
        advice = advice_on_script(args[0])
        if advice is not None:
            ctx.fail(f"no such command {args[0]}; {advice}")
        return super().resolve_command(ctx, [command_name(args[0]), *args[1:]])

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        del ctx
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        command: click.Command = getattr(import_module(f"ottla.cli.{_COMMANDS[cmd_name][0]}.{name}"), name)
        if not _has(command, "--version"):
            command.params.append(version_option())
        _add_timeout(command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by theme, without importing them."""
        del ctx
        for theme, commands in _THEMES.items():
            with formatter.section(theme):
                formatter.write_dl([(name, summary) for name, (_, summary) in commands.items()])


def _has(command: click.Command, flag: str) -> bool:
    return any(flag in parameter.opts for parameter in command.params)


def _add_timeout(command: click.Command) -> None:
    """Add --timeout to each command that connects to a cluster, unless it has one of Kafka's tool."""
    if _has(command, "--bootstrap-server") and not _has(command, "--timeout"):
        from ottla.cli.cluster_access import timeout_option  # not for `ottla --version`: it loads a client

        command.params.append(timeout_option())
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        _add_timeout(inner)


_THEMES: Final = {
    "Broker": {
        "serve": ("own", "Run a broker, or several ones, until SIGTERM or Ctrl-C."),
        "storage": ("kafka", "Data directories: format, inspect, import those of Apache Kafka, back up."),
        "dump-log": ("kafka", "Show the contents of segments, indexes, producer snapshots and metadata snapshots."),
    },
    "What there is": {
        "status": ("own", "Show the brokers of a cluster, and how many partitions lack replicas or a leader."),
        "top": ("own", "Watch brokers, topics and groups: sizes, rates and lag."),
        "console": ("own", "Serve a web console: topics, messages, groups, transactions, users and ACLs."),
    },
    "Records": {
        "console-producer": ("kafka", "Send each line of standard input as a record."),
        "console-consumer": ("kafka", "Write the records of a topic."),
        "console-share-consumer": ("kafka", "Write the records of a topic, read by a share group."),
        "query": ("own", "Query topics with SQL."),
        "get-offsets": (
            "kafka",
            "Print TOPIC:PARTITION:OFFSET: end offsets, or the offsets of the first records at or after a time.",
        ),
        "delete-records": ("kafka", "Delete the records before the given offsets."),
    },
    "Topics and configs": {
        "topics": ("kafka", "Create, delete, alter, describe and list topics."),
        "configs": ("kafka", "Show and change configs, quotas and SCRAM credentials."),
        "client-metrics": ("kafka", "Create, alter, delete, describe and list subscriptions of client metrics."),
    },
    "Groups and transactions": {
        "groups": ("kafka", "List groups of all types."),
        "consumer-groups": (
            "kafka",
            "List, describe, reset and delete consumer groups, classic ones and those of KIP-848.",
        ),
        "share-groups": ("kafka", "List, describe, reset and delete share groups."),
        "streams-groups": (
            "kafka",
            "List, describe, reset and delete streams groups: Kafka Streams applications with group.protocol=streams.",
        ),
        "streams-application-reset": (
            "kafka",
            "Reset a Kafka Streams application: set the offsets of its input topics, delete its internal topics.",
        ),
        "transactions": ("kafka", "Show transactions, and abort hanging ones."),
    },
    "Security": {
        "acls": ("kafka", "Add, remove and list ACLs."),
        "delegation-tokens": ("kafka", "Create, renew, expire and describe delegation tokens."),
    },
    "Cluster and replicas": {
        "cluster": ("kafka", "Show the id, brokers and API versions of a cluster; unregister brokers."),
        "broker-api-versions": (
            "kafka",
            "Show the API versions that each broker supports, and the version that this client would use.",
        ),
        "features": ("kafka", "Show and change the features of a cluster."),
        "metadata-quorum": (
            "kafka",
            "Show the quorum of controllers; of Ottla, its metadata store as one, whose voters are the brokers.",
        ),
        "log-dirs": ("kafka", "Show the sizes of partitions in the log directories of brokers, as JSON."),
        "leader-election": ("kafka", "Elect leaders of partitions."),
        "reassign-partitions": ("kafka", "Propose, execute, verify, cancel and list partition reassignments."),
        "replica-verification": (
            "kafka",
            "Verify that all replicas of topics have the same records, until SIGTERM or Ctrl-C.",
        ),
    },
    "Schemas": {
        "schema-registry": ("own", "Serve a schema registry with Confluent's REST API until SIGTERM or Ctrl-C."),
        "schemas": ("own", "Check changed schemas, and show and change the subjects of a Schema Registry."),
    },
    "Spark": {
        "pipeline": ("own", "Create and run Spark Declarative Pipelines with topics as sources and sinks."),
        "spark-checkpoint": (
            "own",
            'Rewrite a checkpoint of format("ottla") with plain offsets, as Spark\'s own Kafka connector reads them.',
        ),
    },
    "Performance and tests": {
        "producer-perf-test": ("kafka", "Measure the throughput and latency of a producer."),
        "consumer-perf-test": ("kafka", "Measure the throughput of a consumer."),
        "share-consumer-perf-test": ("kafka", "Measure the throughput of share consumers."),
        "e2e-latency": ("kafka", "Measure the time from produce to consume."),
        "verifiable-producer": ("kafka", "Send 0, 1, 2, ... and print an event for each as JSON."),
        "verifiable-consumer": ("kafka", "Read a topic and print events as JSON."),
        "verifiable-share-consumer": ("kafka", "Read a topic in a share group and print events as JSON."),
    },
}
"""Commands by theme, in the order of `ottla --help`: the package of each, whose module and command have its name, and the first
sentence of its help, so that `ottla --help` need not import all of them.
"""
_COMMANDS: Final = {name: entry for commands in _THEMES.values() for name, entry in commands.items()}


def _version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    del param
    if value and not ctx.resilient_parsing:
        click.echo(f"ottla {VERSION} ({form()}, Python {sys.version.split()[0]})")
        ctx.exit()


def version_option() -> click.Option:
    """Return the option --version, which each of Kafka's tools has."""
    return click.Option(
        ["--version"], is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version."
    )


@click.group(cls=Commands, params=[version_option()], context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Kafka you can pip install."""
    gc.enable()  # `entry` disables it while commands are loaded
