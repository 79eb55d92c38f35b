"""Completion of names in the shell: topics and groups of the cluster that the command line names.

A shell waits for the answer while the user types: a cluster has 2 s, and whatever fails completes to nothing, in silence.
"""

import logging
from collections.abc import Callable
from typing import Any, Final

import click

from ottla.cli.cluster_access import AdminConnection, CommandFailed, connected
from ottla.client.errors import KafkaError

TIMEOUT_MS: Final = 2000


def complete_topics(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Topics of the cluster; Kafka's own ones only after an underscore."""
    del param

    def names(cluster: AdminConnection[Any]) -> list[str]:
        return sorted(cluster.ask(cluster.admin.list_topics(internal=incomplete.startswith("_"))))

    from ottla.client.admin.topics import Topics

    return _names(ctx, incomplete, Topics, names)


def complete_groups(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Groups of the cluster, of all types."""
    del param

    def names(cluster: AdminConnection[Any]) -> list[str]:
        return sorted(cluster.ask(cluster.admin.list_groups()))

    from ottla.client.admin.groups import GroupRequests

    return _names(ctx, incomplete, GroupRequests, names)


def _names(
    ctx: click.Context, incomplete: str, part: type[Any], names: Callable[[AdminConnection[Any]], list[str]]
) -> list[str]:
    """Names of the cluster that begin as the last word does; in a list "a,b" it is the part behind the last comma."""
    before, comma, last = incomplete.rpartition(",")
    limits: dict[str, Any] = {"default.api.timeout.ms": TIMEOUT_MS, "socket.connection.setup.timeout.ms": TIMEOUT_MS}
    logging.disable()  # a warning of the client would stand in the middle of the line that the user types
    try:
        with (
            ctx.scope(cleanup=False),  # the profile is read from the current context
            connected(part, _option(ctx, "bootstrap_server"), _option(ctx, "command_config"), **limits) as cluster,
        ):
            candidates = names(cluster)
    except (CommandFailed, KafkaError):
        return []
    finally:
        logging.disable(logging.NOTSET)
    return [f"{before}{comma}{name}" for name in candidates if name.startswith(last)]


def _option(ctx: click.Context, name: str) -> str | None:
    """An option of the command or of the command above it, as far as the line has been typed."""
    context: click.Context | None = ctx
    while context is not None:
        if context.params.get(name) is not None:
            return str(context.params[name])
        context = context.parent
    return None
