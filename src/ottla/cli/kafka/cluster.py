"""`ottla cluster`: Kafka's kafka-cluster: cluster id, brokers, API versions; unregistering of brokers."""

import click

from ottla.cli.cluster_access import cluster_options, connect, json_option
from ottla.cli.command_group import CommandGroup
from ottla.cli.kafka.broker_api_versions import broker_api_versions
from ottla.cli.properties import warn_if_deprecated
from ottla.cli.table import Column, as_objects, echo_json, echo_table
from ottla.client.admin.cluster import ClusterRequests

_old_config = click.option("--config", "old_config", metavar="FILE", help="Old name of --command-config.")
_COLUMNS = (
    Column("ID", 10),
    Column("HOST"),
    Column("PORT", 10),
    Column("RACK", 10),
    Column("STATE", 10),
    Column("ENDPOINT_TYPE"),
)


@click.group("cluster", cls=CommandGroup)
def cluster() -> None:
    """Show the id, brokers and API versions of a cluster; unregister brokers."""


cluster.add_command(broker_api_versions, "api-versions")


def _config(command_config: str | None, old_config: str | None) -> str | None:
    warn_if_deprecated("--config", "--command-config")
    return command_config or old_config


@cluster.command("cluster-id")
@cluster_options
@_old_config
@json_option
def cluster_id(
    bootstrap_server: str | None, command_config: str | None, old_config: str | None, *, as_json: bool
) -> None:
    """Show the cluster id."""
    with connect(ClusterRequests, bootstrap_server, _config(command_config, old_config)) as access:
        identifier = access.ask(access.admin.describe_cluster()).cluster_id
    if as_json:
        echo_json({"cluster_id": identifier})
    elif identifier is None:
        click.echo("No cluster ID found. The Kafka version is probably too old.")
    else:
        click.echo(f"Cluster ID: {identifier}")


@cluster.command("list-endpoints")
@cluster_options
@_old_config
@click.option("--include-fenced-brokers", is_flag=True, help="Include brokers that are registered and fenced.")
@json_option
def list_endpoints(
    bootstrap_server: str | None,
    command_config: str | None,
    old_config: str | None,
    *,
    include_fenced_brokers: bool,
    as_json: bool,
) -> None:
    """Show the endpoints of the brokers."""
    with connect(ClusterRequests, bootstrap_server, _config(command_config, old_config)) as access:
        nodes = access.ask(access.admin.describe_cluster(include_fenced_brokers=include_fenced_brokers)).nodes
    rows = [
        (node.id, node.host, node.port, node.rack, "fenced" if node.fenced else "unfenced", "broker") for node in nodes
    ]
    if as_json:
        echo_json(as_objects(_COLUMNS, rows))
    else:
        echo_table(_COLUMNS, [(*row[:3], row[3] or "null", *row[4:]) for row in rows])


@cluster.command("unregister")
@cluster_options
@_old_config
@click.option("--id", "-i", "node", type=int, required=True, metavar="N", help="The broker.")
@json_option
def unregister(
    bootstrap_server: str | None, command_config: str | None, old_config: str | None, node: int, *, as_json: bool
) -> None:
    """Unregister a broker that was removed for good."""
    with connect(ClusterRequests, bootstrap_server, _config(command_config, old_config), changes=True) as access:
        access.ask(access.admin.unregister_broker(node))
    if as_json:
        echo_json({"unregistered": node})
    else:
        click.echo(f"Broker {node} is no longer registered.")
