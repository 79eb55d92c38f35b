"""`ottla configs`: Kafka's kafka-configs. Configs of topics, brokers, loggers, groups and client-metrics subscriptions; quotas
of users, client ids and addresses; SCRAM credentials."""

import re
from collections.abc import Mapping
from typing import Any

import click

from ottla.cli.cluster_access import (
    AdminConnection,
    CommandFailed,
    cluster_options,
    connect,
    json_option,
    read_properties,
)
from ottla.cli.completion import complete_groups, complete_topics
from ottla.cli.kafka.config_quotas import ConfigEntity, QuotaAdmin, alter_quotas, describe_quotas
from ottla.cli.properties import one_action
from ottla.cli.table import echo_json
from ottla.client.admin.cluster import ClusterRequests
from ottla.client.admin.configs import (
    ConfigChange,
    ConfigEntry,
    ConfigOperation,
    ConfigResource,
    Configs,
    ConfigSource,
    ResourceType,
)
from ottla.client.admin.groups import GroupRequests
from ottla.client.admin.topics import Topics

_DEFAULT = ""
"""Name of the default entity, as in Kafka's tool."""
_TYPES = ("topics", "clients", "users", "brokers", "broker-loggers", "ips", "client-metrics", "groups")
_SHORT = ("topic", "client", "user", "broker", "broker-logger", "ip", "client-metrics", "group")
_WITH_QUOTAS = ("clients", "users", "ips")
_WITH_DEFAULTS = ("clients", "users", "brokers", "ips")
_RESOURCES = {
    "topics": ResourceType.TOPIC,
    "brokers": ResourceType.BROKER,
    "broker-loggers": ResourceType.BROKER_LOGGER,
    "client-metrics": ResourceType.CLIENT_METRICS,
    "groups": ResourceType.GROUP,
}
_OWN_SOURCE = {
    "topics": ConfigSource.DYNAMIC_TOPIC_CONFIG,
    "brokers": ConfigSource.DYNAMIC_BROKER_CONFIG,
    "broker-loggers": None,
    "client-metrics": ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG,
    "groups": ConfigSource.DYNAMIC_GROUP_CONFIG,
}


class _ConfigsAdmin(QuotaAdmin, Configs, ClusterRequests, Topics, GroupRequests):
    """Subset of the admin client for this command."""


class _ConfigsCommand(click.Command):
    """Command in which --entity-default is an --entity-name: names belong to types by their order."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse with --entity-default as an empty --entity-name."""
        spelt: list[str] = []
        for word in args:
            spelt += ["--entity-name", _DEFAULT] if word == "--entity-default" else [word]
        return super().parse_args(ctx, spelt)


@click.command("configs", cls=_ConfigsCommand)
@cluster_options
@click.option("--describe", is_flag=True, help="Show configs.")
@click.option("--alter", is_flag=True, help="Change configs.")
@click.option("--all", "all_", is_flag=True, help="Show all configs, defaults too.")
@click.option("--add-config", metavar="K1=V1,K2=[A,B]", help="Configs to set; values with commas in square brackets.")
@click.option("--add-config-file", metavar="FILE", help="Configs to set, one name=value a line.")
@click.option("--delete-config", metavar="K1,K2", help="Configs to reset to their defaults.")
@click.option("--entity-type", "types", multiple=True, type=click.Choice(_TYPES), help="Entity type.")
@click.option("--entity-name", "names", metavar="NAME", multiple=True, help="Entity name; all if omitted.")
@click.option("--entity-default", is_flag=True, help="The defaults of clients, users, brokers or IP addresses.")
@click.option("--topic", metavar="TOPIC", help="A topic.", shell_complete=complete_topics)
@click.option("--client", metavar="ID", help="A client id.")
@click.option("--client-defaults", is_flag=True, help="The default for all client ids.")
@click.option("--user", metavar="NAME", help="A user.")
@click.option("--user-defaults", is_flag=True, help="The default for all users.")
@click.option("--broker", metavar="N", help="A broker.")
@click.option("--broker-defaults", is_flag=True, help="All brokers.")
@click.option("--broker-logger", metavar="N", help="The loggers of a broker.")
@click.option("--ip", metavar="ADDRESS", help="An address.")
@click.option("--ip-defaults", is_flag=True, help="The default for all IP addresses.")
@click.option("--client-metrics", metavar="NAME", help="A subscription of client metrics.")
@click.option("--group", metavar="GROUP", help="A group.", shell_complete=complete_groups)
@json_option
def configs(bootstrap_server: str | None, command_config: str | None, **options: Any) -> None:
    """Show and change configs, quotas and SCRAM credentials."""
    action = one_action(("describe", "alter"))
    entities = _entities(options)
    _check(action, entities, options)
    with connect(_ConfigsAdmin, bootstrap_server, command_config, changes=action == "alter") as cluster:
        quotas = entities[0].type in _WITH_QUOTAS
        if action == "describe" and quotas:
            describe_quotas(cluster, entities, as_json=options["as_json"])
        elif action == "describe":
            _describe(cluster, entities[0], everything=options["all_"], as_json=options["as_json"])
        else:
            added, deleted = _changes(options)
            if quotas:
                alter_quotas(cluster, entities, added, deleted)
            else:
                _alter(cluster, entities[0], added, deleted)
            _echo_altered(entities, as_json=options["as_json"])


def _entities(options: Mapping[str, Any]) -> list[ConfigEntity]:
    """Return the entities of the options, of --topic, --user and so on the named ones before defaults. Raises UsageError."""
    entities = []
    if options["types"]:
        names = options["names"]
        if len(names) > len(options["types"]):
            raise click.UsageError("there are more --entity-name than --entity-type")
        for index, kind in enumerate(options["types"]):
            entities.append(ConfigEntity(kind, names[index] if index < len(names) else None))
    elif options["names"]:
        raise click.UsageError("--entity-name and --entity-default require --entity-type")
    is_long = bool(entities)
    named = {kind: options[short.replace("-", "_")] for kind, short in zip(_TYPES, _SHORT, strict=True)}
    entities += [ConfigEntity(kind, name) for kind, name in named.items() if name is not None]
    defaults = [kind for kind, short in zip(_TYPES, _SHORT, strict=True) if options.get(f"{short}_defaults")]
    entities += [ConfigEntity(kind, _DEFAULT) for kind in defaults]
    if is_long and len(entities) > len(options["types"]):
        raise click.UsageError("--entity-type cannot be combined with --topic, --broker, --user, ...")
    if not entities:
        raise click.UsageError("specify an entity: --entity-type, or one of --topic, --broker, --user, ...")
    if len({entity.type for entity in entities}) != len(entities):
        raise click.UsageError("specify each entity type once")
    if len(entities) > 1 and {entity.type for entity in entities} != {"users", "clients"}:
        raise click.UsageError("only users and clients can be combined")
    return entities


def _check(action: str, entities: list[ConfigEntity], options: Mapping[str, Any]) -> None:
    """Check the combination of options. Raises UsageError."""
    for entity in entities:
        if entity.name == _DEFAULT and entity.type not in _WITH_DEFAULTS:
            raise click.UsageError(f"{entity.type} have no default entity")
        if entity.type in ("brokers", "broker-loggers") and entity.name and not entity.name.isdecimal():
            raise click.UsageError(f"broker {entity.name}: a broker id must be a number")
        if action == "alter" and entity.name is None:
            raise click.UsageError(f"--alter requires the name of one of the {entity.type}")
    changing = [options[name] for name in ("add_config", "add_config_file", "delete_config")]
    if action == "alter" and not any(value is not None for value in changing):
        raise click.UsageError("--alter requires --add-config, --add-config-file or --delete-config")
    if options["add_config"] is not None and options["add_config_file"] is not None:
        raise click.UsageError("--add-config and --add-config-file cannot be combined")
    if action == "describe" and any(value is not None for value in changing):
        raise click.UsageError("--add-config, --add-config-file and --delete-config can only be used with --alter")


# -- describe --


def _describe(
    cluster: AdminConnection[_ConfigsAdmin], entity: ConfigEntity, *, everything: bool, as_json: bool
) -> None:
    resources = _resources(cluster, entity, everything=everything)
    results = cluster.ask(cluster.admin.describe_configs(resources, include_synonyms=True)).check()
    documents = []
    for resource in resources:
        own = _OWN_SOURCE[entity.type]
        if entity.type == "brokers" and not resource.name:
            own = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        rows = [
            entry for _, entry in sorted(results[resource].items()) if everything or own is None or entry.source == own
        ]
        if as_json:
            documents.append({"entity_type": entity.type, "name": resource.name, "configs": list(map(_document, rows))})
            continue
        if entity.type == "brokers" and not resource.name:
            click.echo("Default configs for brokers in the cluster are:")
        else:
            singular = entity.type.removesuffix("s")
            click.echo(f"{'All' if everything else 'Dynamic'} configs for {singular} {resource.name} are:")
        for entry in rows:
            click.echo(f"  {_entry_text(entry)}")
    if as_json:
        echo_json(documents)


def _resources(
    cluster: AdminConnection[_ConfigsAdmin], entity: ConfigEntity, *, everything: bool
) -> list[ConfigResource]:
    """Return the resources of an entity, or of its type if it has no name. Raises CommandFailed for an unknown one."""
    kind = _RESOURCES[entity.type]
    if entity.type in ("brokers", "broker-loggers"):
        names = [str(node.id) for node in cluster.ask(cluster.admin.describe_cluster()).nodes]
        names += [_DEFAULT] if entity.type == "brokers" else []
    elif entity.type == "topics":
        names = sorted(cluster.ask(cluster.admin.list_topics()))
    else:
        names = sorted({resource.name for resource in cluster.ask(cluster.admin.list_config_resources([kind]))})
        if entity.type == "groups":
            names = sorted({*names, *cluster.ask(cluster.admin.list_groups())})
        if everything and entity.name is not None:
            names.append(entity.name)  # groups and subscriptions have their defaults before they exist
    if entity.name is None:
        return [ConfigResource(kind, name) for name in names]
    if entity.name not in names:
        raise CommandFailed(f"{entity.type.removesuffix('s')} {entity.name} does not exist or has no configs")
    return [ConfigResource(kind, entity.name)]


def _entry_text(entry: ConfigEntry) -> str:
    """Format an entry as Kafka's tool does; a missing or sensitive value is null."""

    def text(value: str | None) -> str:
        return "null" if value is None else value

    synonyms = ", ".join(f"{synonym.source.name}:{synonym.name}={text(synonym.value)}" for synonym in entry.synonyms)
    sensitive = str(entry.is_sensitive).lower()
    return f"{entry.name}={text(entry.value)} sensitive={sensitive} synonyms={{{synonyms}}}"


def _document(entry: ConfigEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": entry.value,
        "source": entry.source.name,
        "sensitive": entry.is_sensitive,
        "read_only": entry.is_read_only,
        "synonyms": [
            {"name": synonym.name, "value": synonym.value, "source": synonym.source.name} for synonym in entry.synonyms
        ],
    }


# -- alter --


def _changes(options: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
    """Return the configs to set and the names to delete. Raises UsageError."""
    added: dict[str, str] = {}
    if options["add_config_file"] is not None:
        added = read_properties(options["add_config_file"])
    elif options["add_config"] is not None:
        # Commas separate configs, except inside square brackets.
        for part in re.split(r",(?=[^\]]*(?:\[|$))", options["add_config"].strip()):
            name, equals, value = part.partition("=")
            if not equals or not name.strip():
                raise click.UsageError(f"--add-config {part}: a config must be NAME=VALUE")
            added[name.strip()] = re.sub(r"[\[\]]", "", value).strip()
    deleted = [name.strip() for name in (options["delete_config"] or "").split(",") if name.strip()]
    if set(added) & set(deleted):
        raise click.UsageError(f"{', '.join(sorted(set(added) & set(deleted)))} cannot be both set and deleted")
    return added, deleted


def _alter(
    cluster: AdminConnection[_ConfigsAdmin], entity: ConfigEntity, added: Mapping[str, str], deleted: list[str]
) -> None:
    resource = ConfigResource(_RESOURCES[entity.type], entity.name or "")
    changes = [ConfigChange(name, value) for name, value in added.items()]
    changes += [ConfigChange(name, operation=ConfigOperation.DELETE) for name in deleted]
    cluster.ask(cluster.admin.incremental_alter_configs({resource: changes})).check()


def _echo_altered(entities: list[ConfigEntity], *, as_json: bool) -> None:
    first = entities[0]
    if as_json:
        echo_json({"altered": [entity._asdict() for entity in entities]})
    elif first.name == _DEFAULT:
        click.echo(f"Completed updating default config for {first.type} in the cluster.")
    else:
        click.echo(f"Completed updating config for {first.type.removesuffix('s')} {first.name}.")
