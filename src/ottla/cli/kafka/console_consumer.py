"""`ottla console-consumer`: write records of topics to standard output."""

import contextlib
import random
import re
import sys
import time
from collections.abc import Sequence
from typing import Any, BinaryIO

import click

from ottla.cli.cluster_access import (
    CommandFailed,
    answering_configs,
    bootstrap_options,
    command_errors,
    option_configs,
    profile_properties,
)
from ottla.cli.completion import complete_groups, complete_topics
from ottla.cli.kafka.formatters import DEFAULT_FORMATTER, Formatter, formatter_of
from ottla.cli.kafka.missing_topic import check_topic
from ottla.cli.properties import properties, warn_if_deprecated
from ottla.cli.stopping import STEP_S, Stop, exit_on_signals
from ottla.client.blocking import Consumer
from ottla.client.errors import IllegalState
from ottla.client.topics import TopicPartition
from ottla.records.record import Record


@click.command("console-consumer")
@bootstrap_options
@click.option("--topic", metavar="TOPIC", help="The topic to read.", shell_complete=complete_topics)
@click.option("--include", metavar="REGEX", help="All topics whose whole names match.")
@click.option("--partition", type=int, metavar="N", help="One partition of the topic.")
@click.option("--offset", metavar="OFFSET", help="Offset to start at: a number, earliest or latest. [default: latest]")
@click.option("--from-beginning", is_flag=True, help="Start at the earliest offset where no offset is committed.")
@click.option(
    "--group", metavar="GROUP", help="Consumer group; a random one if omitted.", shell_complete=complete_groups
)
@click.option("--max-messages", type=int, metavar="N", help="Number of records after which to stop.")
@click.option("--timeout-ms", type=int, metavar="MS", help="Exit when no record arrives for this time.")
@click.option(
    "--isolation-level",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_uncommitted",
    show_default=True,
)
@click.option("--skip-message-on-error", is_flag=True, help="Drop records that cannot be written.")
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
@click.option("--consumer-config", "--consumer.config", metavar="FILE", help="Old name of --command-config.")
@click.option("--consumer-property", metavar="NAME=VALUE", multiple=True, help="Old name of --command-property.")
@click.option("--enable-systest-events", is_flag=True, help="Print a message when the consumer has shut down.")
@click.option("--json", "as_json", is_flag=True, help="Write each record as a JSON object with all its fields.")
def console_consumer(bootstrap_server: str | None, **options: Any) -> None:
    """Write the records of a topic. Apache Kafka's tool of this name, with its flags and its output.

    SIGTERM or Ctrl-C stops it, after what it has written is committed and the group is left.
    """
    begun = time.monotonic()
    _check(options)
    for old, new in (
        ("--property", "--formatter-property"),
        ("--consumer.config", "--command-config"),
        ("--consumer-property", "--command-property"),
    ):
        warn_if_deprecated(old, new)
    with command_errors(), exit_on_signals() as stop:
        writer = formatter_of(options)
        configs = answering_configs(stop, bootstrap_server, **_configs(options))
        if options["topic"] is not None:
            check_topic(configs, options["topic"], options["partition"], stop, timeout_ms=options["timeout_ms"])
        consumer = Consumer(configs)
        reader = _ConsoleReader(consumer, writer, options, stop)
        try:
            _begin(consumer, options)
            reader.run(sys.stdout.buffer, begun)
        finally:
            consumer.close()
            sys.stdout.flush()
            if options["enable_systest_events"]:
                click.echo("shutdown_complete")
            click.echo(f"Processed a total of {reader.count} messages", err=True)


def _check(options: dict[str, Any]) -> None:
    """Check the combination of options. Raises UsageError."""
    if (options["topic"] is None) == (options["include"] is None):
        raise click.UsageError("specify exactly one of --topic and --include")
    if options["partition"] is not None and options["topic"] is None:
        raise click.UsageError("--partition requires --topic")
    if options["offset"] is not None:
        if options["partition"] is None:
            raise click.UsageError("--offset requires --partition")
        if options["from_beginning"]:
            raise click.UsageError("--from-beginning and --offset cannot be combined")
        if not re.fullmatch(r"\d+|earliest|latest", options["offset"]):
            raise click.UsageError(f"--offset {options['offset']}: a number, earliest or latest")
    if options["partition"] is not None and options["group"] is not None:
        raise click.UsageError("--group and --partition cannot be combined")


def _configs(options: dict[str, Any]) -> dict[str, Any]:
    texts = [*options["consumer_property"], *options["command_property"]]
    named = properties(options["command_config"] or options["consumer_config"], texts, "--command-property")
    if options["partition"] is not None and "group.id" in named:
        raise click.UsageError("group.id and --partition cannot be combined")
    own: dict[str, Any] = {**profile_properties(), **named}
    own |= option_configs({"isolation_level": "isolation.level"}, options)
    if options["from_beginning"]:
        if named.get("auto.offset.reset", "earliest") != "earliest":
            raise CommandFailed("--from-beginning contradicts auto.offset.reset: remove one of them")
        own["auto.offset.reset"] = "earliest"
    own.setdefault("auto.offset.reset", "latest")
    if options["group"] is not None:
        own["group.id"] = options["group"]
    elif options["partition"] is None and "group.id" not in own:
        own["group.id"] = f"console-consumer-{random.randrange(100_000)}"
        own.setdefault("enable.auto.commit", "false")
    return own


def _begin(consumer: Consumer, options: dict[str, Any]) -> None:
    if options["partition"] is None:
        try:
            consumer.subscribe([options["topic"]] if options["topic"] is not None else [], pattern=options["include"])
        except re.error as error:
            raise click.UsageError(f"--include {options['include']}: {error}") from None
        return
    partition = TopicPartition(options["topic"], options["partition"])
    consumer.assign([partition])
    offset = options["offset"] or ("earliest" if options["from_beginning"] else "latest")
    if offset == "earliest":
        consumer.seek_to_beginning([partition])
    elif offset == "latest":
        consumer.seek_to_end([partition])
    else:
        consumer.seek(partition, int(offset))


class _ConsoleReader:
    """Loop that reads records and writes them.

    count  number of records so far
    """

    def __init__(self, consumer: Consumer, writer: Formatter, options: dict[str, Any], stop: Stop) -> None:
        self.count = 0
        self._consumer = consumer
        self._writer = writer
        self._stop = stop
        self._max_messages: int | None = options["max_messages"]
        self._timeout_ms: int | None = options["timeout_ms"]
        self._skip: bool = options["skip_message_on_error"]

    def run(self, out: BinaryIO, begun: float) -> None:
        """Read until --max-messages or --timeout-ms is reached, or a stop is requested. Raises CommandFailed."""
        last = begun
        while not self._stop.requested and (self._max_messages is None or self.count < self._max_messages):
            wait = STEP_S
            if self._timeout_ms is not None:
                wait = min(wait, last + self._timeout_ms / 1000 - time.monotonic())
                if wait <= 0:
                    return
            most = 500 if self._max_messages is None else min(500, self._max_messages - self.count)
            records = self._consumer.consume(most, wait)
            count = self.count
            try:
                for record in records:
                    self.count += 1
                    self._write(record, out)
            except BaseException:
                self._give_back(records[self.count - count :])
                raise
            if records:
                last = time.monotonic()
                out.flush()

    def _write(self, record: Record, out: BinaryIO) -> None:
        try:
            self._writer.write(record, out)
        except ValueError as error:
            if not self._skip:
                where = f"{record.topic}-{record.partition}@{record.offset}"
                raise CommandFailed(f"the record {where} cannot be written: {error}") from None

    def _give_back(self, records: Sequence[Record]) -> None:
        """Set the positions, which are committed at the end, back to the first records that were not written."""
        first: dict[TopicPartition, int] = {}
        for record in records:
            first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        for partition, offset in first.items():
            with contextlib.suppress(IllegalState):  # another member has got the partition
                self._consumer.seek(partition, offset)
