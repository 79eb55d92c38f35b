"""Shell completion of topics, groups and principals of ACLs, from the cluster of the command line.

The shell blocks while it completes: requests time out after 2 s, and errors silently yield no completions.
"""

import logging
from collections.abc import Callable
from typing import Any, Final

import click

from ottla.cli.cluster_access import AdminConnection, CommandFailed, connect
from ottla.client.errors import KafkaError

TIMEOUT_MS: Final = 2000


def complete_topics(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete topics; internal ones only after an underscore."""
    del param

    def names(cluster: AdminConnection[Any]) -> list[str]:
        return sorted(cluster.ask(cluster.admin.list_topics(internal=incomplete.startswith("_"))))

    from ottla.client.admin.topics import Topics

    return _names(ctx, incomplete, Topics, names)


def complete_groups(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete groups of all types."""
    del param

    def names(cluster: AdminConnection[Any]) -> list[str]:
        return sorted(cluster.ask(cluster.admin.list_groups()))

    from ottla.client.admin.groups import GroupRequests

    return _names(ctx, incomplete, GroupRequests, names)


def complete_principals(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete principals that have ACLs."""
    del param

    def names(cluster: AdminConnection[Any]) -> list[str]:
        return sorted({binding.entry.principal for binding in cluster.ask(cluster.admin.describe_acls())})

    from ottla.client.admin.acls import Acls

    return _names(ctx, incomplete, Acls, names)


def _names(
    ctx: click.Context, incomplete: str, part: type[Any], names: Callable[[AdminConnection[Any]], list[str]]
) -> list[str]:
    """Return the names that begin with the last word; in a list "a,b" only the part after the last comma is completed."""
    before, comma, last = incomplete.rpartition(",")
    limits: dict[str, Any] = {"default.api.timeout.ms": TIMEOUT_MS, "socket.connection.setup.timeout.ms": TIMEOUT_MS}
    logging.disable()  # a warning would be printed into the line that the user types
    try:
        with (
            ctx.scope(cleanup=False),  # the profile is read from the current context
            connect(part, _option(ctx, "bootstrap_server"), _option(ctx, "command_config"), **limits) as cluster,
        ):
            candidates = names(cluster)
    except (CommandFailed, KafkaError):
        return []
    finally:
        logging.disable(logging.NOTSET)
    return [f"{before}{comma}{name}" for name in candidates if name.startswith(last)]


def _option(ctx: click.Context, name: str) -> str | None:
    """Return an option of the command or its parent from the line typed so far."""
    context: click.Context | None = ctx
    while context is not None:
        if context.params.get(name) is not None:
            return str(context.params[name])
        context = context.parent
    return None
