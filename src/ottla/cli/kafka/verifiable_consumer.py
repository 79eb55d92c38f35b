"""`ottla verifiable-consumer`: read a topic as a group member, with events for assignments, records and commits."""

from collections.abc import Iterable
from typing import Any, Final

import click

from ottla.cli.cluster_access import answering_configs, bootstrap_options, command_errors
from ottla.cli.completion import complete_groups, complete_topics
from ottla.cli.kafka.events import Events, by_partition
from ottla.cli.properties import HAS_BEEN_DEPRECATED, properties, warn_if_deprecated
from ottla.cli.stopping import STEP_S, Stop, exit_on_signals
from ottla.client.blocking import Consumer
from ottla.client.errors import FencedError, KafkaError
from ottla.client.topics import TopicPartition
from ottla.records.record import Record

_RANGE: Final = "org.apache.kafka.clients.consumer.RangeAssignor"


@click.command("verifiable-consumer")
@bootstrap_options
@click.option("--topic", metavar="TOPIC", required=True, help="The topic to read.", shell_complete=complete_topics)
@click.option(
    "--group-protocol",
    type=click.Choice(["classic", "consumer"], case_sensitive=False),
    default="classic",
    show_default=True,
)
@click.option("--group-remote-assignor", metavar="NAME", help="The broker's assignor, with --group-protocol consumer.")
@click.option("--group-id", metavar="GROUP", required=True, help="The consumer group.", shell_complete=complete_groups)
@click.option("--group-instance-id", metavar="ID", help="Group instance id of a static member.")
@click.option(
    "--max-messages",
    type=int,
    default=-1,
    show_default=True,
    metavar="N",
    help="Number of messages; -1: until stopped.",
)
@click.option("--session-timeout", type=int, metavar="MS", help="Session timeout of classic groups.")
@click.option("--verbose", is_flag=True, help="An event for each record.")
@click.option("--enable-autocommit", is_flag=True, help="Commit periodically, not after each poll.")
@click.option(
    "--reset-policy", type=click.Choice(["earliest", "latest", "none"]), default="earliest", show_default=True
)
@click.option(
    "--assignment-strategy",
    metavar="CLASS",
    default=_RANGE,
    show_default=True,
    help="The members' own assignor, with --group-protocol classic.",
)
@click.option("--consumer.config", "consumer_config", metavar="FILE", help="Old name of --command-config.")
@click.option("--command-config", metavar="FILE", help="Properties for the consumer.")
def verifiable_consumer(bootstrap_server: str | None, **options: Any) -> None:
    """Read a topic and print events as JSON. Apache Kafka's tool of this name, with its flags.

    SIGTERM or Ctrl-C stops it; it leaves the group.
    """
    warn_if_deprecated("--consumer.config", "--command-config", HAS_BEEN_DEPRECATED)
    own = _configs(options)
    with command_errors(), exit_on_signals() as stop:
        session = _VerifiableConsumer(Consumer(answering_configs(stop, bootstrap_server, **own)), options, stop)
        try:
            session.run()
        finally:
            session.end()


def _configs(options: dict[str, Any]) -> dict[str, Any]:
    """Return the consumer configs; the options override the file. Raises UsageError."""
    file = options["command_config"] or options["consumer_config"]
    own: dict[str, Any] = {
        **properties(file, (), "--command-config"),
        "group.protocol": options["group_protocol"],
        "group.id": options["group_id"],
        "enable.auto.commit": "true" if options["enable_autocommit"] else "false",
        "auto.offset.reset": options["reset_policy"],
    }
    if options["group_instance_id"] is not None:
        own["group.instance.id"] = options["group_instance_id"]
    if options["group_protocol"] == "consumer":
        if options["session_timeout"] is not None:
            raise click.UsageError(
                "--session-timeout is for classic groups only: set group.consumer.session.timeout.ms on the broker"
            )
        if options["group_remote_assignor"] is not None:
            own["group.remote.assignor"] = options["group_remote_assignor"]
        return own
    own["partition.assignment.strategy"] = options["assignment_strategy"]
    if options["session_timeout"] is not None:
        own["session.timeout.ms"] = options["session_timeout"]
    return own


class _VerifiableConsumer:
    """Consumer that prints events."""

    def __init__(self, consumer: Consumer, options: dict[str, Any], stop: Stop) -> None:
        self._consumer = consumer
        self._topic: str = options["topic"]
        self._max_messages: int = options["max_messages"]
        self._verbose: bool = options["verbose"]
        self._commits: bool = not options["enable_autocommit"]
        self._stop = stop
        self._events = Events()
        self._count = 0
        self._held: set[TopicPartition] = set()

    def run(self) -> None:
        """Read until --max-messages is reached or a stop is requested."""
        self._events.emit("startup_complete")
        self._consumer.subscribe(
            [self._topic], on_assign=self._on_assigned, on_revoke=self._on_revoked, on_lost=self._on_revoked
        )
        while not self._stop.requested and not self._is_done:
            records = self._consumer.consume(timeout=STEP_S)
            if records:
                offsets = self._print_records(records)
                if self._commits:
                    self._commit(offsets)

    def end(self) -> None:
        """Leave the group and print the last events."""
        if self._stop.requested:
            self._events.emit("shutdown_requested")
        self._on_revoked(list(self._held))
        self._consumer.close()
        self._events.emit("shutdown_complete")
        if not self._stop.requested:
            self._events.emit("shutdown_requested")  # Kafka's tool prints it last

    @property
    def _is_done(self) -> bool:
        return 0 <= self._max_messages <= self._count

    def _on_assigned(self, partitions: list[TopicPartition]) -> None:
        self._held.update(partitions)
        self._events.emit("partitions_assigned", partitions=_places(partitions))

    def _on_revoked(self, partitions: list[TopicPartition]) -> None:
        gone = self._held.intersection(partitions)
        self._held -= gone
        if gone:
            self._events.emit("partitions_revoked", partitions=_places(gone))

    def _print_records(self, records: list[Record]) -> dict[TopicPartition, int]:
        """Print the records, up to --max-messages; return the offsets to commit."""
        offsets: dict[TopicPartition, int] = {}
        summaries = []
        for (topic, partition), partition_records in by_partition(records).items():
            taken = (
                partition_records if self._max_messages < 0 else partition_records[: self._max_messages - self._count]
            )
            if not taken:
                break
            self._count += len(taken)
            first, last = taken[0].offset, taken[-1].offset
            offsets[TopicPartition(topic, partition)] = last + 1
            summaries.append(
                {"topic": topic, "partition": partition, "count": len(taken), "minOffset": first, "maxOffset": last}
            )
            if self._verbose:
                self._events.records(taken)
        self._events.emit("records_consumed", count=len(records), partitions=summaries)
        return offsets

    def _commit(self, offsets: dict[TopicPartition, int]) -> None:
        committed = [{**_place(partition), "offset": offset} for partition, offset in offsets.items()]
        try:
            self._consumer.commit(offsets)
        except FencedError:
            raise
        except KafkaError as error:
            self._events.emit("offsets_committed", offsets=committed, error=str(error), success=False)
        else:
            self._events.emit("offsets_committed", offsets=committed, success=True)


def _place(partition: TopicPartition) -> dict[str, Any]:
    return {"topic": partition.topic, "partition": partition.partition}


def _places(partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    return [_place(partition) for partition in sorted(partitions)]
