"""`ottla`: entry point of all commands.

A failure is one line on standard error and exit code 1 (2 for wrong usage), without a traceback.
"""

import gc
import sys
from importlib import import_module
from importlib.util import find_spec

import click

from ottla.cli.command_group import CommandGroup
from ottla.version import VERSION


def form() -> str:
    """Return "compiled" or "interpreted", the form in which the hot modules run."""
    spec = find_spec("ottla.records.validation")  # located, not imported
    return "interpreted" if spec is None or str(spec.origin).endswith(".py") else "compiled"


class Commands(CommandGroup):
    """Commands by name, imported on use: `ottla --version` must not import all of them."""

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
    "pipeline": "pipeline:pipeline",
    "producer-perf-test": "producer_perf_test:producer_perf_test",
    "reassign-partitions": "reassign_partitions:reassign_partitions",
    "replica-verification": "replica_verification:replica_verification",
    "serve": "serve:serve",
    "share-consumer-perf-test": "share_consumer_perf_test:share_consumer_perf_test",
    "share-groups": "share_groups:share_groups",
    "spark-checkpoint": "spark_checkpoint:spark_checkpoint",
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


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version.")
def main() -> None:
    """Kafka you can pip install."""
    gc.enable()  # `entry` disables it while commands are loaded
