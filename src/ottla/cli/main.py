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
from typing import Any

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
        if not any("--version" in parameter.opts for parameter in command.params):
            command.params.append(version_option())
        return command


_COMMANDS = {
    "acls": "acls:acls",
    "broker-api-versions": "broker_api_versions:broker_api_versions",
    "client-metrics": "client_metrics:client_metrics",
    "cluster": "cluster:cluster",
    "configs": "configs:configs",
    "console": "console:console",
    "console-consumer": "console_consumer:console_consumer",
    "console-producer": "console_producer:console_producer",
    "console-share-consumer": "console_share_consumer:console_share_consumer",
    "consumer-groups": "consumer_groups:consumer_groups",
    "consumer-perf-test": "consumer_perf_test:consumer_perf_test",
    "delegation-tokens": "delegation_tokens:delegation_tokens",
    "delete-records": "delete_records:delete_records",
    "dump-log": "dump_log:dump_log",
    "e2e-latency": "e2e_latency:e2e_latency",
    "features": "features:features",
    "get-offsets": "get_offsets:get_offsets",
    "groups": "groups:groups",
    "leader-election": "leader_election:leader_election",
    "log-dirs": "log_dirs:log_dirs",
    "metadata-quorum": "metadata_quorum:metadata_quorum",
    "pipeline": "pipeline:pipeline",
    "producer-perf-test": "producer_perf_test:producer_perf_test",
    "reassign-partitions": "reassign_partitions:reassign_partitions",
    "replica-verification": "replica_verification:replica_verification",
    "serve": "serve:serve",
    "share-consumer-perf-test": "share_consumer_perf_test:share_consumer_perf_test",
    "share-groups": "share_groups:share_groups",
    "streams-application-reset": "streams_application_reset:streams_application_reset",
    "streams-groups": "streams_groups:streams_groups",
    "status": "status:status",
    "storage": "storage:storage",
    "top": "top:top",
    "topics": "topics:topics",
    "transactions": "transactions:transactions",
    "verifiable-consumer": "verifiable_consumer:verifiable_consumer",
    "verifiable-producer": "verifiable_producer:verifiable_producer",
    "verifiable-share-consumer": "verifiable_share_consumer:verifiable_share_consumer",
}


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
