"""`ottla console-share-consumer`: write records of a topic, read by a share group, to standard output."""

import sys
import time
from typing import Any, BinaryIO

import click

from ottla.cli.cluster_access import CommandFailed, answering_configs, bootstrap_options, command_errors
from ottla.cli.completion import complete_groups, complete_topics
from ottla.cli.kafka.formatters import DEFAULT_FORMATTER, Formatter, formatter_of
from ottla.cli.kafka.missing_topic import check_topic
from ottla.cli.properties import properties, warn_if_deprecated
from ottla.cli.stopping import STEP_S, Stop, exit_on_signals
from ottla.client.blocking import ShareConsumer
from ottla.client.share.delivery import AcknowledgeType
from ottla.records.record import Record


@click.command("console-share-consumer")
@bootstrap_options
@click.option("--topic", metavar="TOPIC", required=True, help="The topic to read.", shell_complete=complete_topics)
@click.option(
    "--group",
    metavar="GROUP",
    default="console-share-consumer",
    show_default=True,
    help="The share group.",
    shell_complete=complete_groups,
)
@click.option("--max-messages", type=int, metavar="N", help="Number of records after which to stop; none if omitted.")
@click.option("--timeout-ms", type=int, metavar="MS", help="Exit when no record arrives for this time.")
@click.option("--release", is_flag=True, help="Release records instead of accepting them.")
@click.option("--reject", is_flag=True, help="Reject records instead of accepting them.")
@click.option("--reject-message-on-error", is_flag=True, help="Reject records that cannot be written, and continue.")
@click.option("--formatter", "formatter_name", metavar="CLASS", default=DEFAULT_FORMATTER, show_default=True)
@click.option("--formatter-config", metavar="FILE", help="Properties of the formatter.")
@click.option(
    "--formatter-property",
    metavar="NAME=VALUE",
    multiple=True,
    help="Property of the formatter, e.g. print.key=true; may be repeated.",
)
@click.option(
    "--property", "old_property", metavar="NAME=VALUE", multiple=True, help="Old name of --formatter-property."
)
@click.option("--key-deserializer", metavar="CLASS", help="Deserializer of keys.")
@click.option("--value-deserializer", metavar="CLASS", help="Deserializer of values.")
@click.option("--command-config", metavar="FILE", help="Properties for the consumer.")
@click.option("--command-property", metavar="NAME=VALUE", multiple=True, help="Client property; may be repeated.")
@click.option("--consumer-config", metavar="FILE", help="Old name of --command-config.")
@click.option("--consumer-property", metavar="NAME=VALUE", multiple=True, help="Old name of --command-property.")
@click.option("--enable-systest-events", is_flag=True, help="Print a message when the consumer has shut down.")
@click.option("--json", "as_json", is_flag=True, help="Write each record as a JSON object with all its fields.")
def console_share_consumer(bootstrap_server: str | None, topic: str, group: str, **options: Any) -> None:
    """Write the records of a topic, read by a share group. Each is accepted once it is written.

    Apache Kafka's tool of this name, with its flags and its output. SIGTERM or Ctrl-C stops it, after the records are
    acknowledged and the group is left.
    """
    begun = time.monotonic()
    if options["release"] and options["reject"]:
        raise click.UsageError("at most one of --release and --reject")
    for old, new in (
        ("--property", "--formatter-property"),
        ("--consumer-config", "--command-config"),
        ("--consumer-property", "--command-property"),
    ):
        warn_if_deprecated(old, new)
    with command_errors(), exit_on_signals() as stop:
        writer = formatter_of(options)
        own = properties(
            options["command_config"] or options["consumer_config"],
            [*options["consumer_property"], *options["command_property"]],
            "--command-property",
        )
        configs = {**own, "group.id": group, "share.acknowledgement.mode": "explicit"}
        configs = answering_configs(stop, bootstrap_server, **configs)
        check_topic(configs, topic, None, stop, timeout_ms=options["timeout_ms"])
        consumer = ShareConsumer(configs)
        reader = _ShareConsoleReader(consumer, writer, options, stop)
        try:
            consumer.subscribe([topic])
            reader.run(sys.stdout.buffer, begun)
        finally:
            consumer.close()
            sys.stdout.flush()
            if options["enable_systest_events"]:
                click.echo("shutdown_complete")
            click.echo(f"Processed a total of {reader.count} messages", err=True)


class _ShareConsoleReader:
    """Loop that reads records, writes and acknowledges them.

    count  number of records so far
    """

    def __init__(self, consumer: ShareConsumer, writer: Formatter, options: dict[str, Any], stop: Stop) -> None:
        self.count = 0
        self._consumer = consumer
        self._writer = writer
        self._stop = stop
        self._max_messages: int | None = options["max_messages"]
        self._timeout_ms: int | None = options["timeout_ms"]
        self._reject_on_error: bool = options["reject_message_on_error"]
        self._kind = AcknowledgeType.ACCEPT
        if options["release"]:
            self._kind = AcknowledgeType.RELEASE
        elif options["reject"]:
            self._kind = AcknowledgeType.REJECT

    def run(self, out: BinaryIO, begun: float) -> None:
        """Read until --max-messages or --timeout-ms is reached, or a stop is requested. Raises CommandFailed."""
        last = begun
        while not self._stop.requested:
            wait = STEP_S
            if self._timeout_ms is not None:
                wait = min(wait, last + self._timeout_ms / 1000 - time.monotonic())
                if wait <= 0:
                    return
            records = self._consumer.poll(wait)
            for record in records:
                self._consumer.acknowledge(record, self._write(record, out))
                self.count += 1
                if self.count == self._max_messages:
                    return
            if records:
                last = time.monotonic()
                out.flush()

    def _write(self, record: Record, out: BinaryIO) -> AcknowledgeType:
        """Write a record and return its acknowledgement type."""
        try:
            self._writer.write(record, out)
        except ValueError as error:
            if self._reject_on_error:
                return AcknowledgeType.REJECT
            where = f"{record.topic}-{record.partition}@{record.offset}"
            raise CommandFailed(f"the record {where} cannot be written: {error}") from None
        return self._kind
