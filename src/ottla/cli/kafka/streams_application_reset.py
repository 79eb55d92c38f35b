"""`ottla streams-application-reset`: Kafka's kafka-streams-application-reset: prepares an application to begin again.

Sets the offsets of its input topics, and deletes the internal topics that Kafka Streams has created for it.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import click

from ottla.cli.cluster_access import AdminConnection, CommandFailed, cluster_options, connect, json_option
from ottla.cli.completion import complete_groups
from ottla.cli.kafka.committed_offsets import OffsetsAdmin
from ottla.cli.kafka.offset_plan import (
    ResetTarget,
    current_or_end,
    offsets_at,
    partitions_of,
    read_plan,
    target_of,
    within_log,
)
from ottla.cli.properties import WARNING, selected_options, warn_if_deprecated
from ottla.cli.table import echo_json
from ottla.client.topics import EARLIEST, LATEST, TopicPartition
from ottla.protocol.errors import GROUP_ID_NOT_FOUND

_TARGETS: Final = ("to-earliest", "to-latest", "to-datetime", "by-duration", "to-offset", "shift-by", "from-file")
_INTERNAL: Final = re.compile(
    r".*-(changelog|repartition|subscription-registration-topic|subscription-response-topic)"
    r"|.+-KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-\d+-topic"
)
"""Names of the topics that Kafka Streams creates, behind the id of the application."""


@click.command("streams-application-reset")
@cluster_options
@click.option("--config-file", metavar="FILE", help="Old name of --command-config.")
@click.option(
    "--application-id",
    metavar="ID",
    required=True,
    help="Id of the application, which is its group.",
    shell_complete=complete_groups,
)
@click.option("--input-topics", metavar="TOPIC,...", default="", help="Topics whose offsets are set.")
@click.option("--intermediate-topics", metavar="TOPIC,...", default="", help="Topics that are skipped to their end.")
@click.option(
    "--internal-topics",
    metavar="TOPIC,...",
    default="",
    help="Internal topics to delete. [default: all of the application]",
)
@click.option("--to-earliest", is_flag=True, help="Set offsets to the earliest ones (the default).")
@click.option("--to-latest", is_flag=True, help="Set offsets to the latest ones.")
@click.option(
    "--to-datetime", metavar="TIME", help="Set offsets to the first record at or after YYYY-MM-DDTHH:mm:SS.sss."
)
@click.option("--by-duration", metavar="PnDTnHnMnS", help="Set offsets to those of DURATION ago.")
@click.option("--to-offset", type=int, metavar="N", help="Set offsets to this one, limited to the range of the log.")
@click.option("--shift-by", type=int, metavar="N", help="Shift offsets by N records (negative: backwards).")
@click.option("--from-file", metavar="CSV", help="Set offsets to those in a file of lines TOPIC,PARTITION,OFFSET.")
@click.option("--force", is_flag=True, help="Remove the members that the group has.")
@click.option("--dry-run", is_flag=True, help="Show what would be done.")
@json_option
def streams_application_reset(bootstrap_server: str | None, command_config: str | None, **options: Any) -> None:
    """Reset a Kafka Streams application: set the offsets of its input topics, delete its internal topics.

    Stop all its instances first, and clean up their local state before they start again.
    """
    warn_if_deprecated("--config-file", "--command-config", WARNING)
    if len(selected_options(_TARGETS)) > 1:
        raise click.UsageError(f"specify at most one of {', '.join(f'--{target}' for target in _TARGETS)}")
    file = command_config or options["config_file"]
    with connect(OffsetsAdmin, bootstrap_server, file, changes=not options["dry_run"]) as cluster:
        reset = _Reset(cluster, options)
        reset.check_members()
        missing = reset.set_offsets()
        reset.delete_topics()
        reset.end()
    if missing:
        raise CommandFailed(f"topics {', '.join(missing)} do not exist")


class _Reset:
    """One reset; without --json each step prints the lines of Kafka's tool."""

    def __init__(self, cluster: AdminConnection[OffsetsAdmin], options: Mapping[str, Any]) -> None:
        self._cluster = cluster
        self._options = options
        self._group: str = options["application_id"]
        self._inputs = _names(options["input_topics"])
        self._intermediate = _names(options["intermediate_topics"])
        self._topics: Collection[str] = cluster.ask(cluster.admin.list_topics())
        self._offsets: dict[TopicPartition, int] = {}
        self._deleted: list[str] = []
        if options["dry_run"]:
            self._say("----Dry run displays the actions which will be performed when running Streams Reset Tool----")

    def _say(self, line: str) -> None:
        if not self._options["as_json"]:
            click.echo(line)

    def check_members(self) -> None:
        """Check that the application has stopped, or remove its members (--force). Raises CommandFailed."""
        described = self._cluster.ask(self._cluster.admin.describe_consumer_groups([self._group]))
        error = described.errors.get(self._group)
        if error is not None and error.code != GROUP_ID_NOT_FOUND:
            raise error
        if error is not None or not described[self._group].members:
            return
        if not self._options["force"]:
            raise CommandFailed(
                f"application {self._group} has {len(described[self._group].members)} members: "
                "stop all its instances, or remove members that are left with --force"
            )
        if self._options["dry_run"]:
            return
        self._say(f"Force deleting all active members in the group: {self._group}")
        self._cluster.ask(self._cluster.admin.remove_members_from_consumer_group(self._group)).check()

    def set_offsets(self) -> list[str]:
        """Set the offsets of input and intermediate topics; return those that do not exist. Raises CommandFailed."""
        if not self._inputs and not self._intermediate:
            self._say("No input or intermediate topics specified. Skipping seek.")
            return []
        for title, names in (
            ("Reset-offsets for input topics", self._inputs),
            ("Seek-to-end for intermediate topics", self._intermediate),
        ):
            if names:
                self._say(f"{title} {_list_text(names)}")
        missing = [name for name in (*self._inputs, *self._intermediate) if name not in self._topics]
        inputs = self._partitions(name for name in self._inputs if name not in missing)
        ends = self._partitions(name for name in self._intermediate if name not in missing)
        if not inputs and not ends:
            return missing
        if inputs:
            self._say(f"Following input topics offsets will be reset to (for consumer group {self._group})")
            self._offsets |= self._targets(inputs)
            for partition in inputs:
                offset = self._offsets[partition]
                self._say(f"Topic: {partition.topic} Partition: {partition.partition} Offset: {offset}")
        if ends:
            self._say(f"Following intermediate topics offsets will be reset to end (for consumer group {self._group})")
            for partition in ends:
                self._say(f"Topic: {partition.topic}")
            self._offsets |= offsets_at(self._cluster, ends, LATEST)
        if self._offsets and not self._options["dry_run"]:
            self._cluster.ask(self._cluster.admin.alter_consumer_group_offsets(self._group, self._offsets)).check()
        self._say("Done.")
        return missing

    def _partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        return partitions_of(self._cluster, dict.fromkeys(topics))

    def _targets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the new offsets of the input topics."""
        target = target_of(self._options) if selected_options(_TARGETS) else ResetTarget(moment=EARLIEST)
        if target.file is not None:
            planned = read_plan(target.file, [self._group]).get(self._group, {})
            absent = [str(partition) for partition in partitions if partition not in planned]
            if absent:
                raise CommandFailed(f"{target.file} has no offset of {', '.join(absent)}")
            return within_log(self._cluster, {partition: planned[partition] for partition in partitions})
        if target.moment is not None:
            return offsets_at(self._cluster, partitions, target.moment)
        if target.offset is not None:
            return within_log(self._cluster, dict.fromkeys(partitions, target.offset))
        committed = self._cluster.ask(self._cluster.admin.list_consumer_group_offsets([self._group])).check()
        positions = {partition: commit.offset for partition, commit in committed[self._group].items()}
        positions = current_or_end(self._cluster, partitions, positions)
        return within_log(
            self._cluster, {partition: offset + (target.shift or 0) for partition, offset in positions.items()}
        )

    def delete_topics(self) -> None:
        """Delete the internal topics. Raises CommandFailed."""
        internal = [name for name in self._topics if self._is_internal(name)]
        chosen = _names(self._options["internal_topics"])
        strange = [name for name in chosen if name not in internal]
        if strange:
            raise CommandFailed(
                f"{', '.join(strange)} in --internal-topics are no internal topics of {self._group}, which are: "
                f"{', '.join(internal) or 'none'}"
            )
        self._deleted = chosen or sorted(internal)
        self._say(f"Deleting {'specified' if chosen else 'inferred'} internal topics {_list_text(self._deleted)}")
        if self._deleted and not self._options["dry_run"]:
            self._cluster.ask(self._cluster.admin.delete_topics(self._deleted)).check()
        self._say("Done.")

    def _is_internal(self, name: str) -> bool:
        """Return whether Kafka Streams has created a topic for the application; those of the user may be called alike."""
        is_users = name in self._inputs or name in self._intermediate
        return not is_users and name.startswith(f"{self._group}-") and _INTERNAL.fullmatch(name) is not None

    def end(self) -> None:
        """Print the result as JSON."""
        if self._options["as_json"]:
            offsets = [
                {"topic": partition.topic, "partition": partition.partition, "offset": offset}
                for partition, offset in sorted(self._offsets.items())
            ]
            echo_json({"offsets": offsets, "deleted_topics": self._deleted, "dry_run": self._options["dry_run"]})


def _names(text: str) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def _list_text(names: Iterable[str]) -> str:
    return f"[{', '.join(names)}]"
