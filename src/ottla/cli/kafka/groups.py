"""`ottla groups`: Kafka's kafka-groups, which lists groups of all types."""

from typing import Any

import click

from ottla.cli.cluster_access import cluster_options, connect, json_option
from ottla.cli.table import Column, as_objects, echo_json, echo_table
from ottla.client.admin.groups import GroupRequests, ListedGroup

_TYPES = ("classic", "consumer", "share", "streams")
_COLUMNS = (Column("GROUP", 20), Column("TYPE", 20), Column("PROTOCOL"))


@click.command("groups")
@cluster_options
@click.option("--list", "list_", is_flag=True, help="List the groups.")
@click.option("--group-type", type=click.Choice(_TYPES, case_sensitive=False), help="Only groups of this type.")
@click.option("--protocol", metavar="PROTOCOL", help="Only groups of this protocol: consumer, connect, ...")
@click.option(
    "--consumer", is_flag=True, help="Only consumer groups, also classic ones and those that only keep offsets."
)
@click.option("--share", is_flag=True, help="Only share groups.")
@click.option("--streams", is_flag=True, help="Only streams groups.")
@json_option
def groups(bootstrap_server: str | None, command_config: str | None, **options: Any) -> None:
    """List groups of all types."""
    if not options["list_"]:
        raise click.UsageError("--list is required")
    chosen = [name for name in ("consumer", "share", "streams") if options[name]]
    if len(chosen) > 1 or (chosen and (options["group_type"] is not None or options["protocol"] is not None)):
        raise click.UsageError("one of --consumer, --share, --streams, or --group-type and --protocol")
    with connect(GroupRequests, bootstrap_server, command_config) as cluster:
        listed = cluster.ask(cluster.admin.list_groups())
    rows = [
        (group.group_id, group.type or None, group.protocol_type)
        for _, group in sorted(listed.items())
        if _matches(group, chosen, options)
    ]
    if options["as_json"]:
        echo_json(as_objects(_COLUMNS, rows))
    else:
        echo_table(_COLUMNS, [(name, (kind or "-").capitalize(), protocol) for name, kind, protocol in rows])


def _matches(group: ListedGroup, chosen: list[str], options: dict[str, Any]) -> bool:
    if chosen == ["consumer"]:
        return group.type == "consumer" or (group.type in ("classic", "") and group.protocol_type in ("consumer", ""))
    if chosen:
        return group.type == chosen[0]
    return (options["group_type"] is None or group.type == options["group_type"].lower()) and (
        options["protocol"] is None or group.protocol_type == options["protocol"]
    )
