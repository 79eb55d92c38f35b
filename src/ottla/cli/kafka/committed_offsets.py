"""Changes of committed offsets by commands: those of consumer groups and of streams groups are changed alike."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import click

from ottla.cli.cluster_access import AdminConnection, CommandFailed
from ottla.cli.kafka.offset_plan import parse_topics, plan_for, show_plan
from ottla.cli.table import Column, as_objects, echo_json, echo_table
from ottla.client.admin.consumer_groups import ConsumerGroups
from ottla.client.admin.topics import Topics
from ottla.client.errors import KafkaError
from ottla.client.topics import TopicPartition

_COLUMNS = (Column("TOPIC", 15), Column("PARTITION", 10), Column("STATUS"))


class OffsetsAdmin(ConsumerGroups, Topics):
    """Subset of the admin client for committed offsets."""


def delete_offsets(
    cluster: AdminConnection[OffsetsAdmin],
    options: Mapping[str, Any],
    topic_option: str,
    inputs: Collection[str] | None = None,
) -> None:
    """Delete the committed offsets of a group in topics, in some of their partitions, or all, and print a row for each.

    topic_option  name of the option for topics, for errors
    inputs        without named topics, offsets in these are deleted; None: in all

    Raises CommandFailed if some are not deleted.
    """
    (group,) = options["groups"]
    rows: list[tuple[str, int | None, str]] = []
    partitions: list[TopicPartition] = []
    if options["topics"]:
        known = cluster.ask(cluster.admin.list_topics())
        for name, indexes in parse_topics(options["topics"], topic_option).items():
            if name in known:
                numbers = sorted(known[name].leaders) if indexes is None else indexes
                partitions += [TopicPartition(name, index) for index in numbers]
            else:
                rows.append((name, None, f"Error: topic {name} does not exist"))
    else:
        committed = cluster.ask(cluster.admin.list_consumer_group_offsets([group])).check()[group]
        partitions += [partition for partition in committed if inputs is None or partition.topic in inputs]
    if partitions:
        results = cluster.ask(cluster.admin.delete_consumer_group_offsets(group, partitions))
        for partition in sorted(results):
            error = results.errors.get(partition)
            rows.append((*partition, "Successful" if error is None else f"Error: {error}"))
    failed = [row for row in rows if row[2] != "Successful"]
    if options["as_json"]:
        echo_json(as_objects(_COLUMNS, rows))
    else:
        click.echo(
            f"Request succeeded for deleting offsets from group {group}."
            if not failed
            else "Error: Encountered some partition-level error, see the follow-up details."
        )
        click.echo()
        echo_table(_COLUMNS, rows)
    if failed:
        raise CommandFailed(f"offsets of {len(failed)} of {len(rows)} partitions were not deleted")


def without_members(states: Mapping[str, str]) -> list[str]:
    """Return the groups whose offsets can be reset; a state of "" stands for a group that does not exist yet."""
    return [name for name, state in states.items() if state in ("", "Empty", "Dead")]


def check_no_members(states: Mapping[str, str], kind: str) -> None:
    """Check that none of the groups had members. Raises CommandFailed; as in Kafka's tool, offsets of the others were reset.

    kind  kind of the groups, for the error
    """
    inactive = without_members(states)
    refused = [f"{kind} group '{name}' is {state}" for name, state in states.items() if name not in inactive]
    if refused:
        its = "its" if len(refused) == 1 else "their"
        raise CommandFailed(f"{', '.join(refused)}: stop {its} members, then reset {its} offsets")


def reset_offsets(
    cluster: AdminConnection[OffsetsAdmin],
    names: Sequence[str],
    options: Mapping[str, Any],
    inputs: Mapping[str, Collection[str]] | None = None,
) -> None:
    """Reset the committed offsets of groups without members, and print the plan. Raises CommandFailed.

    inputs  the topics whose offsets are reset, by group; None: any
    """
    offsets_of = cluster.ask(cluster.admin.list_consumer_group_offsets(names)).check()
    currents: Mapping[str, Mapping[TopicPartition, int | None]] = {
        name: {
            partition: commit.offset
            for partition, commit in offsets_of[name].items()
            if inputs is None or partition.topic in inputs[name]
        }
        for name in names
    }
    plan = plan_for(cluster, currents, options, inputs)
    failed: list[KafkaError] = []
    if options["execute"]:
        for name, offsets in plan.items():
            results = cluster.ask(cluster.admin.alter_consumer_group_offsets(name, offsets))
            failed += results.errors.values()
            plan[name] = {partition: offset for partition, offset in offsets.items() if partition in results.successes}
    show_plan(plan, options)
    if failed:
        raise CommandFailed(str(failed[0]))
