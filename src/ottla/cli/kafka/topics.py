"""`ottla topics`: Kafka's kafka-topics, with its flags and its lines."""

from typing import Any

import click

from ottla.cli.cluster_access import AdminConnection, cluster_options, connect, json_option
from ottla.cli.completion import complete_topics
from ottla.cli.kafka.topic_matching import PARTITION_FILTERS, matching
from ottla.cli.properties import check_options_of, one_action, pairs
from ottla.cli.table import echo_json
from ottla.client.admin.topics import NewPartitions, NewTopic, Topics
from ottla.protocol.errors import TOPIC_ALREADY_EXISTS
from ottla.protocol.schema import ZERO_UUID
from ottla.protocol.uuids import uuid_text

_ACTIONS = ("create", "delete", "alter", "describe", "list")
_TAKEN_BY = {
    "topic-id": ("describe",),
    "replication-factor": ("create",),
    "partitions": ("create", "alter"),
    "replica-assignment": ("create", "alter"),
    "config": ("create",),
    "if-exists": ("alter", "delete", "describe"),
    "if-not-exists": ("create",),
    "exclude-internal": ("list", "describe"),
    "topics-with-overrides": ("describe",),
    **{name.replace("_", "-"): ("describe",) for name in PARTITION_FILTERS},
}
"""Actions that take an option; the others are taken by all."""


@click.command("topics")
@cluster_options
@click.option("--create", is_flag=True, help="Create a topic.")
@click.option("--delete", is_flag=True, help="Delete topics.")
@click.option("--alter", is_flag=True, help="Add partitions to topics.")
@click.option("--describe", is_flag=True, help="Show partitions, leaders, replicas and configs.")
@click.option("--list", "list_", is_flag=True, help="List the names.")
@click.option(
    "--topic",
    metavar="TOPIC",
    help="The topic; a regular expression except with --create.",
    shell_complete=complete_topics,
)
@click.option("--topic-id", metavar="ID", help="The topic to describe, by its id.")
@click.option(
    "--partitions", type=click.IntRange(1), metavar="N", help="Number of partitions; the broker's default if omitted."
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1),
    metavar="N",
    help="Replication factor; the broker's default if omitted.",
)
@click.option(
    "--replica-assignment",
    metavar="1:2,2:3",
    help="Replicas of each partition, instead of --partitions and --replication-factor.",
)
@click.option("--config", "configs", metavar="NAME=VALUE", multiple=True, help="A config of the new topic.")
@click.option("--if-exists", is_flag=True, help="Succeed if the topic does not exist.")
@click.option("--if-not-exists", is_flag=True, help="Succeed if the topic exists already.")
@click.option("--exclude-internal", is_flag=True, help="Exclude internal topics.")
@click.option("--topics-with-overrides", is_flag=True, help="Only topics with overridden configs.")
@click.option("--under-replicated-partitions", is_flag=True, help="Only partitions whose replicas are not all in sync.")
@click.option("--unavailable-partitions", is_flag=True, help="Only partitions without a leader.")
@click.option("--under-min-isr-partitions", is_flag=True, help="Only partitions below min.insync.replicas.")
@click.option("--at-min-isr-partitions", is_flag=True, help="Only partitions at min.insync.replicas.")
@click.option(
    "--partition-size-limit-per-response",
    type=click.IntRange(1),
    default=2000,
    metavar="N",
    help="Partitions requested from a broker at once.",
)
@json_option
def topics(bootstrap_server: str | None, command_config: str | None, **options: Any) -> None:
    """Create, delete, alter, describe and list topics."""
    action = one_action(_ACTIONS)
    _check(action, options)
    if action == "describe":
        from ottla.cli.kafka.topic_description import DescribeAdmin, describe

        with connect(DescribeAdmin, bootstrap_server, command_config) as cluster:
            describe(cluster, options)
        return
    with connect(Topics, bootstrap_server, command_config, changes=action != "list") as cluster:
        if action == "list":
            _list(cluster, options)
        elif action == "create":
            _create(cluster, options)
        elif action == "alter":
            _alter(cluster, options)
        else:
            _delete(cluster, options)


def _check(action: str, options: dict[str, Any]) -> None:
    """Check the combination of options. Raises UsageError."""
    if action in ("create", "alter", "delete") and options["topic"] is None:
        raise click.UsageError(f"--{action} requires --topic")
    if action == "alter" and options["partitions"] is None:
        raise click.UsageError("--alter requires --partitions")
    if action == "describe" and options["if_exists"] and options["topic"] is None and options["topic_id"] is None:
        raise click.UsageError("--describe with --if-exists requires --topic or --topic-id")
    check_options_of(action, _TAKEN_BY)
    if options["replica_assignment"] and (
        options["replication_factor"] or (action == "create" and options["partitions"])
    ):
        raise click.UsageError("--replica-assignment cannot be combined with --partitions or --replication-factor")
    if options["topics_with_overrides"] and any(options[name] for name in PARTITION_FILTERS):
        raise click.UsageError("--topics-with-overrides cannot be combined with filters of partitions")


def _list(cluster: AdminConnection[Topics], options: dict[str, Any]) -> None:
    names = sorted(info.name for info in matching(cluster, options, required=False))
    if options["as_json"]:
        echo_json(names)
        return
    for name in names:
        click.echo(name)


def _create(cluster: AdminConnection[Topics], options: dict[str, Any]) -> None:
    name = options["topic"]
    configs = pairs(options["configs"], "--config")
    topic = NewTopic(
        name,
        options["partitions"] or -1,
        options["replication_factor"] or -1,
        _assignment(options["replica_assignment"]),
        dict(configs),
    )
    if {".", "_"} & set(name):
        click.echo(
            "WARNING: names with a period ('.') or underscore ('_') may collide in names of metrics; use only one of them.",
            err=True,
        )
    results = cluster.ask(cluster.admin.create_topics([topic]))
    error = results.errors.get(name)
    if error is not None and not (error.code == TOPIC_ALREADY_EXISTS and options["if_not_exists"]):
        raise error
    made = None if error is not None else results[name]
    if options["as_json"]:
        topic_id = uuid_text(made.topic_id) if made is not None and made.topic_id != ZERO_UUID else None
        echo_json({"topic": name, "created": made is not None, "topic_id": topic_id})
    elif made is not None:
        click.echo(f"Created topic {name}.")


def _assignment(text: str | None) -> tuple[tuple[int, ...], ...]:
    """Parse "1:2,2:3" into the brokers of each partition. Raises UsageError."""
    if not text:
        return ()
    try:
        replicas = tuple(tuple(int(node) for node in part.split(":")) for part in text.split(","))
    except ValueError:
        raise click.UsageError(f"--replica-assignment {text}: brokers are numbers, as in 1:2,2:3") from None
    if any(len(set(nodes)) != len(nodes) for nodes in replicas):
        raise click.UsageError(f"--replica-assignment {text}: a partition has the same broker twice")
    if len({len(nodes) for nodes in replicas}) > 1:
        raise click.UsageError(f"--replica-assignment {text}: partitions have different numbers of replicas")
    return replicas


def _alter(cluster: AdminConnection[Topics], options: dict[str, Any]) -> None:
    assignment = _assignment(options["replica_assignment"])
    # Kafka's option lists the replicas of all partitions, existing ones first.
    new_partitions = [
        NewPartitions(info.name, options["partitions"], assignment[len(info.leaders) :])
        for info in matching(cluster, options)
    ]
    results = cluster.ask(cluster.admin.create_partitions(new_partitions)).check()
    if options["as_json"]:
        echo_json({"altered": sorted(results)})


def _delete(cluster: AdminConnection[Topics], options: dict[str, Any]) -> None:
    names = [info.name for info in matching(cluster, {**options, "exclude_internal": False})]
    results = cluster.ask(cluster.admin.delete_topics(names)).check()
    if options["as_json"]:
        echo_json({"deleted": sorted(map(str, results))})
