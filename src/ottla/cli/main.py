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
from ottla.cli.kafka_names import advice_on_script, command_name, explained
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
                raise explained(error) from None

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
        home = _COMMANDS.get(cmd_name)
        if home is None:
            return None
        module, _, attribute = home.partition(":")
        command: click.Command = getattr(import_module(f"ottla.cli.{module}"), attribute)
        if not _has(command, "--version"):
            command.params.append(version_option())
        _add_timeout(command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by theme."""
        for theme, names in _THEMES.items():
            self.format_section(ctx, formatter, theme, names)


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
        "serve": "own.serve:serve",
        "storage": "kafka.storage:storage",
        "dump-log": "kafka.dump_log:dump_log",
    },
    "What there is": {
        "status": "own.status:status",
        "top": "own.top:top",
        "console": "own.console:console",
    },
    "Records": {
        "console-producer": "kafka.console_producer:console_producer",
        "console-consumer": "kafka.console_consumer:console_consumer",
        "console-share-consumer": "kafka.console_share_consumer:console_share_consumer",
        "query": "own.query:query",
        "get-offsets": "kafka.get_offsets:get_offsets",
        "delete-records": "kafka.delete_records:delete_records",
    },
    "Topics and configs": {
        "topics": "kafka.topics:topics",
        "configs": "kafka.configs:configs",
        "client-metrics": "kafka.client_metrics:client_metrics",
    },
    "Groups and transactions": {
        "groups": "kafka.groups:groups",
        "consumer-groups": "kafka.consumer_groups:consumer_groups",
        "share-groups": "kafka.share_groups:share_groups",
        "streams-groups": "kafka.streams_groups:streams_groups",
        "streams-application-reset": "kafka.streams_application_reset:streams_application_reset",
        "transactions": "kafka.transactions:transactions",
    },
    "Security": {
        "acls": "kafka.acls:acls",
        "delegation-tokens": "kafka.delegation_tokens:delegation_tokens",
    },
    "Cluster and replicas": {
        "cluster": "kafka.cluster:cluster",
        "broker-api-versions": "kafka.broker_api_versions:broker_api_versions",
        "features": "kafka.features:features",
        "metadata-quorum": "kafka.metadata_quorum:metadata_quorum",
        "log-dirs": "kafka.log_dirs:log_dirs",
        "leader-election": "kafka.leader_election:leader_election",
        "reassign-partitions": "kafka.reassign_partitions:reassign_partitions",
        "replica-verification": "kafka.replica_verification:replica_verification",
    },
    "Schemas": {
        "schema-registry": "own.schema_registry:schema_registry",
        "schemas": "own.schemas:schemas",
    },
    "Spark": {
        "pipeline": "own.pipeline:pipeline",
        "spark-checkpoint": "own.spark_checkpoint:spark_checkpoint",
    },
    "Performance and tests": {
        "producer-perf-test": "kafka.producer_perf_test:producer_perf_test",
        "consumer-perf-test": "kafka.consumer_perf_test:consumer_perf_test",
        "share-consumer-perf-test": "kafka.share_consumer_perf_test:share_consumer_perf_test",
        "e2e-latency": "kafka.e2e_latency:e2e_latency",
        "verifiable-producer": "kafka.verifiable_producer:verifiable_producer",
        "verifiable-consumer": "kafka.verifiable_consumer:verifiable_consumer",
        "verifiable-share-consumer": "kafka.verifiable_share_consumer:verifiable_share_consumer",
    },
}
"""Commands by theme, in the order of `ottla --help`: module and attribute of each."""
_COMMANDS: Final = {name: home for theme in _THEMES.values() for name, home in theme.items()}


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
