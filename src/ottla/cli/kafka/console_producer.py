"""`ottla console-producer`: send lines of standard input as records."""

import io
import os
import select
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

import click

from ottla.cli.cluster_access import (
    CommandFailed,
    answering_configs,
    bootstrap_options,
    command_errors,
    option_configs,
)
from ottla.cli.completion import complete_topics
from ottla.cli.kafka.line_reader import LineReader
from ottla.cli.properties import LONG_WARNING, properties, warn_if_deprecated
from ottla.cli.stopping import STEP_S, Stop, exit_on_signals
from ottla.client.blocking import Producer
from ottla.client.errors import KafkaError
from ottla.client.producer.closed import Delivered

_LINE_READER = "LineMessageReader"
_CHUNK = 65_536
_CONFIGS = {
    "batch_size": "batch.size",
    "max_block_ms": "max.block.ms",
    "max_memory_bytes": "buffer.memory",
    "message_send_max_retries": "retries",
    "metadata_expiry_ms": "metadata.max.age.ms",
    "request_required_acks": "acks",
    "request_timeout_ms": "request.timeout.ms",
    "retry_backoff_ms": "retry.backoff.ms",
    "socket_buffer_size": "send.buffer.bytes",
    "timeout": "linger.ms",
}
"""Options of producer configs; a file or --command-property overrides their defaults."""


@click.command("console-producer")
@bootstrap_options
@click.option("--topic", metavar="TOPIC", required=True, help="Topic to write to.", shell_complete=complete_topics)
@click.option("--sync", is_flag=True, help="Wait for the acknowledgement of each record before the next.")
@click.option(
    "--compression-codec", is_flag=False, flag_value="gzip", metavar="[CODEC]", help="none, gzip (without a value), ..."
)
@click.option("--line-reader", metavar="CLASS", default=_LINE_READER, show_default=True, help="Reader of input lines.")
@click.option("--reader-property", metavar="NAME=VALUE", multiple=True, help="parse.key=true, key.separator=:, ...")
@click.option("--reader-config", metavar="FILE", help="Properties of the line reader.")
@click.option("--property", "old_property", metavar="NAME=VALUE", multiple=True, help="Old name of --reader-property.")
@click.option("--command-config", metavar="FILE", help="Properties for the producer.")
@click.option("--command-property", metavar="NAME=VALUE", multiple=True, help="Client property; may be repeated.")
@click.option("--producer-config", "--producer.config", metavar="FILE", help="Old name of --command-config.")
@click.option("--producer-property", metavar="NAME=VALUE", multiple=True, help="Old name of --command-property.")
@click.option("--batch-size", type=int, default=16_384, show_default=True, metavar="BYTES")
@click.option("--max-partition-memory-bytes", type=int, metavar="BYTES", help="Old name of --batch-size.")
@click.option("--max-block-ms", type=int, default=60_000, show_default=True, metavar="MS")
@click.option("--max-memory-bytes", type=int, default=33_554_432, show_default=True, metavar="BYTES")
@click.option("--message-send-max-retries", type=int, default=3, show_default=True, metavar="N")
@click.option("--metadata-expiry-ms", type=int, default=300_000, show_default=True, metavar="MS")
@click.option("--request-required-acks", default="-1", show_default=True, metavar="ACKS")
@click.option("--request-timeout-ms", type=int, default=1500, show_default=True, metavar="MS")
@click.option("--retry-backoff-ms", type=int, default=100, show_default=True, metavar="MS")
@click.option("--socket-buffer-size", type=int, default=102_400, show_default=True, metavar="BYTES")
@click.option(
    "--timeout",
    type=int,
    default=1000,
    show_default=True,
    metavar="MS",
    help="Time a batch waits for more records (linger.ms).",
)
def console_producer(bootstrap_server: str | None, topic: str, **options: Any) -> None:
    """Send each line of standard input as a record. Apache Kafka's tool of this name, with its flags.

    SIGTERM or Ctrl-C stops it, after the lines that it has read are acknowledged; the second one does not wait for that.
    """
    for old, new in (
        ("--property", "--reader-property"),
        ("--producer.config", "--command-config"),
        ("--producer-property", "--command-property"),
    ):
        warn_if_deprecated(old, new, LONG_WARNING)
    warn_if_deprecated("--max-partition-memory-bytes", "--batch-size", LONG_WARNING, excludes=False)
    with command_errors(), exit_on_signals() as stop:
        reader = _reader(options)
        configs = answering_configs(stop, bootstrap_server, **_configs(options))
        with Producer(configs) as producer:
            try:
                failures = _send_all(producer, topic, reader, stop, sync=options["sync"])
            except KeyboardInterrupt:  # the second signal: nobody wants to wait for a broker any longer
                producer.close(timeout=0)
                raise
        if failures:
            raise CommandFailed(f"{len(failures)} records were not sent; the first: {failures[0]}")


def _reader(options: dict[str, Any]) -> LineReader:
    if options["line_reader"].rpartition(".")[2] != _LINE_READER:
        raise click.BadParameter(f"{options['line_reader']} is not a line reader; use {_LINE_READER}")
    texts = [*options["old_property"], *options["reader_property"]]
    try:
        return LineReader(properties(options["reader_config"], texts, "--reader-property"))
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _configs(options: dict[str, Any]) -> dict[str, Any]:
    configs = option_configs(_CONFIGS, options)
    if options["max_partition_memory_bytes"] is not None:
        configs["batch.size"] = options["max_partition_memory_bytes"]
    if options["compression_codec"] is not None:
        configs["compression.type"] = options["compression_codec"]
    texts = [*options["producer_property"], *options["command_property"]]
    return configs | properties(options["command_config"] or options["producer_config"], texts, "--command-property")


def _send_all(producer: Producer, topic: str, reader: LineReader, stop: Stop, *, sync: bool) -> list[KafkaError]:
    """Send all lines; return the errors."""
    failures: list[KafkaError] = []

    def report(error: KafkaError | None, delivered: Delivered | None) -> None:
        del delivered
        if error is not None:
            failures.append(error)

    for number, line in enumerate(_lines(sys.stdin.buffer, stop, prompts=sys.stdin.isatty()), 1):
        try:
            key, value, headers = reader.parse(line.removesuffix(b"\r"), number)
        except ValueError as error:
            producer.flush()
            raise CommandFailed(str(error)) from None
        producer.produce(topic, value, key, headers=headers, on_delivery=report)
        producer.poll(0)
        if sync:
            producer.flush()
    producer.flush()
    return failures


def _lines(source: BinaryIO, stop: Stop, *, prompts: bool) -> Iterator[bytes]:
    """Read lines until their end or a stop; whole lines that were read by then are returned, as all others."""
    unfinished = b""
    if prompts:
        click.echo(">", nl=False)
    while chunk := _chunk(source, stop):
        *lines, unfinished = (unfinished + chunk).split(b"\n")
        for line in lines:
            yield line
            if prompts:
                click.echo(">", nl=False)
    if unfinished and not stop.requested:
        yield unfinished


def _chunk(source: BinaryIO, stop: Stop) -> bytes:
    """Read what is there, after a wait; nothing at the end or after a stop."""
    try:
        descriptor = source.fileno()
    except io.UnsupportedOperation:  # no file
        return source.read()
    while not stop.requested:
        if select.select([descriptor], [], [], STEP_S)[0]:
            return os.read(descriptor, _CHUNK)
    return b""
