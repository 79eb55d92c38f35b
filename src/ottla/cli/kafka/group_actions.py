"""Common part of the commands for groups: the options that all of them have, and the choice of their action."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeVar

import click

from ottla.cli.cluster_access import AdminConnection, connect
from ottla.cli.completion import complete_groups, complete_topics
from ottla.cli.kafka.offset_plan import check_reset
from ottla.cli.properties import check_options_of, one_action, selected_options
from ottla.client.admin.requests import Requests

A = TypeVar("A", bound=Requests)
F = TypeVar("F", bound=Callable[..., Any])

ACTIONS: Final = ("list", "describe", "delete", "reset-offsets", "delete-offsets")
_OF_SOME_GROUPS: Final = ("describe", "delete", "reset-offsets")
_TAKEN_BY: Final = {
    "group": ("describe", "delete", "reset-offsets", "delete-offsets"),
    "all-groups": ("list", "describe", "delete", "reset-offsets"),
    "offsets": ("describe",),
    "members": ("describe",),
    "state": ("list", "describe"),
    "type": ("list",),
    "verbose": ("describe",),
}

NONE: Final[Mapping[str, Sequence[str]]] = MappingProxyType({})


def groups_option(kind: str) -> Callable[[F], F]:
    """Option --group, which may be repeated. `kind` describes a group, as in "A share group"."""
    return click.option(
        "--group",
        "groups",
        metavar="GROUP",
        multiple=True,
        help=f"{kind}; may be repeated.",
        shell_complete=complete_groups,
    )


def topics_option(name: str, kind: str) -> Callable[[F], F]:
    """Option `name` for topics or partitions. `kind` describes a topic, as in "A topic"."""
    return click.option(
        name,
        "topics",
        metavar="TOPIC[:N,M]",
        multiple=True,
        help=f"{kind}, or some partitions of it.",
        shell_complete=complete_topics,
    )


def shifting_options(command: F) -> F:
    """Options of --reset-offsets for committed offsets, in addition to `reset_options`."""
    shift = click.option(
        "--shift-by", type=int, metavar="N", help="Shift the current offset by N records (negative: backwards)."
    )
    duration = click.option("--by-duration", metavar="PnDTnHnMnS", help="Reset to the offset of DURATION ago.")
    return duration(shift(command))


timeout_option: Final = click.option(
    "--timeout", type=int, default=30_000, show_default=True, metavar="MS", help="Timeout."
)


def select_action(
    options: Mapping[str, Any],
    actions: Sequence[str] = ACTIONS,
    topic: str = "topic",
    taken_by: Mapping[str, Sequence[str]] = NONE,
) -> str:
    """Return the action of the options, after checking their combination. Raises UsageError.

    topic     name of the option for topics
    taken_by  actions that take an option of this command only; Kafka's tools ignore the options of a reset elsewhere
    """
    action = one_action(actions)
    check_options_of(action, {**_TAKEN_BY, topic: ("reset-offsets", "delete-offsets"), **taken_by})
    if action == "describe" and options["state"]:
        raise click.UsageError("--state takes names of states with --list only")
    if action in _OF_SOME_GROUPS and bool(options["groups"]) == options["all_groups"]:
        raise click.UsageError(f"--{action} requires either --group or --all-groups")
    if action == "describe" and len(selected_options(("offsets", "members", "state"))) > 1:
        raise click.UsageError("--describe takes one of --offsets, --members, --state")
    if action == "delete-offsets":
        everything = f"all-{topic}s"
        scopes = [topic, everything] if everything in taken_by else [topic]
        if len(options["groups"]) != 1 or len(selected_options(scopes)) != 1:
            either = " or --".join([f"at least one --{topic}", *scopes[1:]])
            raise click.UsageError(f"--delete-offsets requires one --group and {either}")
    if action == "reset-offsets":
        check_reset(options, topic=topic)
    return action


def run(
    admin: type[A],
    work: Callable[[AdminConnection[A], dict[str, Any]], None],
    action: str,
    bootstrap_server: str | None,
    command_config: str | None,
    options: dict[str, Any],
) -> None:
    """Connect to the cluster, and do the work of an action."""
    changes = action in ("delete", "delete-offsets") or (action == "reset-offsets" and options["execute"])
    timeout: dict[str, Any] = {"default.api.timeout.ms": options["timeout"]}
    with connect(admin, bootstrap_server, command_config, changes=changes, **timeout) as cluster:
        work(cluster, options)
