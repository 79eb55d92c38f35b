"""Common part of the commands for groups: the options that all of them have, and the choice of their action."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import click

from ottla.cli.cluster_access import AdminConnection, connected
from ottla.cli.completion import complete_groups, complete_topics
from ottla.cli.offset_plan import check_reset
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
    "delete-internal-topic": ("delete", "reset-offsets"),
    "delete-all-internal-topics": ("delete", "reset-offsets"),
}


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


def selected_action(
    options: Mapping[str, Any],
    actions: Sequence[str] = ACTIONS,
    topic: str = "topic",
    resetting: Sequence[str] = (),
) -> str:
    """Return the action of the options, after checking their combination. Raises UsageError.

    topic      name of the option for topics
    resetting  options of --reset-offsets that are refused elsewhere; Kafka's tools ignore most of them
    """
    action = one_action(options, actions)
    taken_by = {**_TAKEN_BY, topic: ("reset-offsets", "delete-offsets"), **dict.fromkeys(resetting, ("reset-offsets",))}
    check_options_of(action, taken_by)
    if action == "describe" and options["state"]:
        raise click.UsageError("--state takes names of states with --list only")
    if action in _OF_SOME_GROUPS and bool(options["groups"]) == options["all_groups"]:
        raise click.UsageError(f"--{action} requires either --group or --all-groups")
    if action == "describe" and len(selected_options(options, ("offsets", "members", "state"))) > 1:
        raise click.UsageError("--describe takes one of --offsets, --members, --state")
    if action == "delete-offsets" and (len(options["groups"]) != 1 or not options["topics"]):
        raise click.UsageError(f"--delete-offsets requires one --group and at least one --{topic}")
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
    with connected(admin, bootstrap_server, command_config, changes=changes, **timeout) as cluster:
        work(cluster, options)
