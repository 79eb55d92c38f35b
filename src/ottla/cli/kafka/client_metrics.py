"""`ottla client-metrics`: Kafka's kafka-client-metrics: subscriptions of client metrics (KIP-714)."""

import secrets
from typing import Any

import click

from ottla.cli.cluster_access import AdminConnection, cluster_options, connect, json_option
from ottla.cli.properties import check_options_of, one_action
from ottla.cli.table import echo_json
from ottla.client.admin.configs import ConfigChange, ConfigOperation, ConfigResource, Configs, ResourceType
from ottla.protocol.uuids import uuid_text

_ACTIONS = ("alter", "delete", "describe", "list")
_TAKEN_BY = {
    "name": ("alter", "delete", "describe"),
    **dict.fromkeys(("generate-name", "metrics", "interval", "match"), ("alter",)),
}
_CONFIGS = {"interval": "interval.ms", "match": "match", "metrics": "metrics"}


@click.command("client-metrics")
@cluster_options
@click.option("--alter", is_flag=True, help="Create or alter a subscription.")
@click.option("--delete", is_flag=True, help="Delete a subscription.")
@click.option("--describe", is_flag=True, help="Show one subscription, or all.")
@click.option("--list", "list_", is_flag=True, help="List the names.")
@click.option("--name", metavar="NAME", help="The subscription.")
@click.option("--generate-name", is_flag=True, help="A new name for --alter.")
@click.option("--metrics", metavar="M1,M2", help="Prefixes of metrics; empty for none.")
@click.option("--interval", metavar="MS", help="Push interval in ms; empty for the default.")
@click.option(
    "--match", metavar="K1=V1,K2=V2", help="Clients to select by: client_id, client_software_name, ...; empty for all."
)
@json_option
def client_metrics(bootstrap_server: str | None, command_config: str | None, **options: Any) -> None:
    """Create, alter, delete, describe and list subscriptions of client metrics."""
    action = one_action(_ACTIONS)
    if action == "alter" and (options["name"] is None) == (not options["generate_name"]):
        raise click.UsageError("--alter requires either --name or --generate-name")
    if action == "delete" and options["name"] is None:
        raise click.UsageError("--delete requires --name")
    check_options_of(action, _TAKEN_BY)
    with connect(Configs, bootstrap_server, command_config, changes=action in ("alter", "delete")) as cluster:
        if action == "list":
            names = _names(cluster)
            if options["as_json"]:
                echo_json(names)
            for name in [] if options["as_json"] else names:
                click.echo(name)
        elif action == "describe":
            _describe(cluster, options)
        elif action == "alter":
            _alter(cluster, options)
        else:
            _delete(cluster, options)


def _names(cluster: AdminConnection[Configs]) -> list[str]:
    resources = cluster.ask(cluster.admin.list_config_resources([ResourceType.CLIENT_METRICS]))
    return sorted(resource.name for resource in resources)


def _describe(cluster: AdminConnection[Configs], options: dict[str, Any]) -> None:
    known = _names(cluster)
    if options["name"] is not None and options["name"] not in known:
        if options["as_json"]:
            echo_json([])
        else:
            click.echo(f"The client metric resource {options['name']} doesn't exist and doesn't have dynamic config.")
        return
    resources = [ConfigResource(ResourceType.CLIENT_METRICS, name) for name in known if options["name"] in (None, name)]
    results = cluster.ask(cluster.admin.describe_configs(resources)).check()
    documents = [
        {"name": resource.name, "configs": {name: entry.value for name, entry in sorted(results[resource].items())}}
        for resource in resources
    ]
    if options["as_json"]:
        echo_json(documents)
        return
    for resource in resources:
        click.echo(f"Client metrics configs for {resource.name} are:")
        for name, entry in sorted(results[resource].items()):
            click.echo(f"  {name}={entry.value}")


def _alter(cluster: AdminConnection[Configs], options: dict[str, Any]) -> None:
    name = options["name"] if options["name"] is not None else uuid_text(secrets.token_bytes(16))
    changes = []
    for option, config in _CONFIGS.items():
        value = options[option]
        if value == "":
            changes.append(ConfigChange(config, operation=ConfigOperation.DELETE))
        elif value is not None:
            changes.append(ConfigChange(config, value))
    resource = ConfigResource(ResourceType.CLIENT_METRICS, name)
    cluster.ask(cluster.admin.incremental_alter_configs({resource: changes})).check()
    _echo_outcome("Altered", name, options)


def _delete(cluster: AdminConnection[Configs], options: dict[str, Any]) -> None:
    resource = ConfigResource(ResourceType.CLIENT_METRICS, options["name"])
    entries = cluster.ask(cluster.admin.describe_configs([resource])).check()[resource]
    changes = [ConfigChange(name, operation=ConfigOperation.DELETE) for name in entries]
    cluster.ask(cluster.admin.incremental_alter_configs({resource: changes})).check()
    _echo_outcome("Deleted", options["name"], options)


def _echo_outcome(what: str, name: str, options: dict[str, Any]) -> None:
    if options["as_json"]:
        echo_json({what.lower(): name})
    else:
        click.echo(f"{what} client metrics config for {name}.")
