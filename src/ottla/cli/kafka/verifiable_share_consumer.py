"""`ottla verifiable-share-consumer`: read a topic in a share group, with events for records and acknowledgements."""

import logging
from collections.abc import Mapping
from typing import Any

import click

from ottla.cli.cluster_access import answering_configs, bootstrap_options, command_errors
from ottla.cli.completion import complete_groups, complete_topics
from ottla.cli.kafka.events import Events, by_partition
from ottla.cli.stopping import STEP_S, Stop, exit_on_signals
from ottla.client.admin.configs import ConfigChange, ConfigResource, ResourceType
from ottla.client.blocking import Admin, ShareConsumer
from ottla.client.errors import KafkaError
from ottla.client.topics import TopicPartition
from ottla.records.record import Record

_logger = logging.getLogger("ottla.verifiable")


@click.command("verifiable-share-consumer")
@bootstrap_options
@click.option("--topic", metavar="TOPIC", required=True, help="The topic to read.", shell_complete=complete_topics)
@click.option("--group-id", metavar="GROUP", required=True, help="The share group.", shell_complete=complete_groups)
@click.option(
    "--max-messages",
    type=int,
    default=-1,
    show_default=True,
    metavar="N",
    help="Number of acknowledged records after which to stop; -1: never.",
)
@click.option("--verbose", is_flag=True, help="An event for each record.")
@click.option(
    "--acknowledgement-mode",
    type=click.Choice(["auto", "sync", "async"], case_sensitive=False),
    default="auto",
    show_default=True,
    help="Acknowledge with the next poll (implicit) or by a commit after each poll (explicit).",
)
@click.option(
    "--offset-reset-strategy",
    type=click.Choice(["earliest", "latest"]),
    help="Set the initial offset of the group (share.auto.offset.reset).",
)
@click.option("--command-config", metavar="FILE", help="Properties for the consumer.")
def verifiable_share_consumer(bootstrap_server: str | None, **options: Any) -> None:
    """Read a topic in a share group and print events as JSON. Apache Kafka's tool of this name, with its flags.

    SIGTERM or Ctrl-C stops it, after records are acknowledged.
    """
    with command_errors(), exit_on_signals() as stop:
        configs = answering_configs(stop, bootstrap_server, options["command_config"])
        session = _VerifiableShareConsumer(ShareConsumer({**configs, "group.id": options["group_id"]}), options, stop)
        try:
            session.run(configs)
        finally:
            session.end()


class _VerifiableShareConsumer:
    """Share consumer that prints events."""

    def __init__(self, consumer: ShareConsumer, options: dict[str, Any], stop: Stop) -> None:
        self._consumer = consumer
        self._options = options
        self._mode: str = options["acknowledgement_mode"]
        self._max_messages: int = options["max_messages"]
        self._stop = stop
        self._events = Events()
        self._acknowledged = 0

    def run(self, configs: dict[str, Any]) -> None:
        """Read until --max-messages is reached or a stop is requested."""
        self._events.emit("startup_complete")
        strategy = self._options["offset_reset_strategy"]
        if strategy is not None:
            group = ConfigResource(ResourceType.GROUP, self._options["group_id"])
            with Admin(configs) as admin:
                admin.incremental_alter_configs({group: [ConfigChange("share.auto.offset.reset", strategy)]}).check()
            self._events.emit("offset_reset_strategy_set", offsetResetStrategy=strategy)
        self._consumer.set_acknowledgement_commit_callback(self._print_result)
        self._consumer.subscribe([self._options["topic"]])
        while not self._stop.requested and not 0 <= self._max_messages <= self._acknowledged:
            records = self._consumer.poll(STEP_S)
            if not records:
                continue
            self._print_records(records)
            if self._mode == "async":
                self._consumer.commit_async()
            elif self._mode == "sync":
                for partition, error in self._consumer.commit().items():
                    if error is not None:
                        _logger.error("acknowledgement of %s failed: %s", partition, error)

    def end(self) -> None:
        """Leave the group and print the last event."""
        self._consumer.close()
        self._events.emit("shutdown_complete")

    def _print_records(self, records: list[Record]) -> None:
        summaries = []
        for (topic, partition), partition_records in by_partition(records).items():
            offsets = [record.offset for record in partition_records]
            summaries.append({"topic": topic, "partition": partition, "count": len(offsets), "offsets": offsets})
            if self._options["verbose"]:
                self._events.records(partition_records)
        self._events.emit("records_consumed", count=len(records), partitions=summaries)

    def _print_result(self, offsets: Mapping[TopicPartition, set[int]], error: KafkaError | None) -> None:
        """Print the result of acknowledgements; called in the client's thread."""
        summaries = [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "count": len(acknowledged),
                "offsets": sorted(acknowledged),
            }
            for partition, acknowledged in offsets.items()
        ]
        count = sum(map(len, offsets.values()))
        if error is not None:
            self._events.emit(
                "offsets_acknowledged", count=count, partitions=summaries, error=str(error), success=False
            )
            return
        self._acknowledged += count
        self._events.emit("offsets_acknowledged", count=count, partitions=summaries, success=True)
