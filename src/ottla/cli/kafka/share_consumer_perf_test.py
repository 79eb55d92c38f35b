"""`ottla share-consumer-perf-test`: measure the throughput of share consumers."""

import threading
import time
from typing import Any, NamedTuple

import click

from ottla.cli.cluster_access import answering_configs, bootstrap_options, command_errors
from ottla.cli.completion import complete_groups, complete_topics
from ottla.cli.kafka.consumer_perf_test import MEGABYTE, consumer_properties, java_time, record_count, timeout_warning
from ottla.cli.stopping import Stop, exit_on_signals
from ottla.cli.table import echo_json, echo_metrics
from ottla.client.blocking import ShareConsumer
from ottla.client.errors import KafkaError

_CLIENT_ID = "perf-share-consumer-client"
_COLUMNS = (
    "start.time", "end.time", "data.consumed.in.MB", "MB.sec", "nMsg.sec", "data.consumed.in.nMsg", "fetch.time.ms",
)  # fmt: skip


@click.command("share-consumer-perf-test")
@bootstrap_options
@click.option("--topic", metavar="TOPIC", required=True, help="The topic to read.", shell_complete=complete_topics)
@click.option("--num-records", type=int, metavar="N", help="Number of records.")
@click.option("--messages", type=int, metavar="N", help="Old name of --num-records.")
@click.option(
    "--group",
    metavar="GROUP",
    default="perf-share-consumer",
    show_default=True,
    help="The share group.",
    shell_complete=complete_groups,
)
@click.option("--threads", type=int, default=1, show_default=True, metavar="N", help="Number of share consumers.")
@click.option(
    "--fetch-size", type=int, default=1_048_576, show_default=True, metavar="BYTES", help="Maximum bytes of a fetch."
)
@click.option("--socket-buffer-size", type=int, default=2_097_152, show_default=True, metavar="BYTES")
@click.option(
    "--timeout", type=int, default=10_000, show_default=True, metavar="MS", help="Maximum time between records."
)
@click.option(
    "--date-format",
    default="yyyy-MM-dd HH:mm:ss:SSS",
    show_default=True,
    metavar="FORMAT",
    help="Date format in Java's pattern letters.",
)
@click.option("--reporting-interval", type=int, default=5000, show_default=True, metavar="MS")
@click.option("--show-detailed-stats", is_flag=True, help="A line for every reporting interval of each consumer.")
@click.option("--show-consumer-stats", is_flag=True, help="A line for each consumer.")
@click.option("--hide-header", is_flag=True, help="Omit the header.")
@click.option("--print-metrics", is_flag=True, help="Print the metrics of each consumer at the end.")
@click.option("--command-config", metavar="FILE", help="Properties for the consumers.")
@click.option("--command-property", metavar="NAME=VALUE", multiple=True, help="Client property; may be repeated.")
@click.option("--consumer.config", "consumer_config", metavar="FILE", help="Old name of --command-config.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of columns.")
def share_consumer_perf_test(bootstrap_server: str | None, **options: Any) -> None:
    """Measure the throughput of share consumers. Apache Kafka's tool of this name, with its flags and its output.

    SIGTERM or Ctrl-C stops it, after the records are acknowledged and the group is left.
    """
    count = record_count(options)
    with command_errors(), exit_on_signals() as stop:
        own: dict[str, Any] = {
            "group.id": options["group"],
            "receive.buffer.bytes": options["socket_buffer_size"],
            "fetch.max.bytes": options["fetch_size"],
            "check.crcs": "false",
            **consumer_properties(options),
        }
        options["has_client_id"] = "client.id" in own
        readers = _ShareConsumerThreads(answering_configs(stop, bootstrap_server, **own), options, count, stop)
        readers.run()
        readers.summary()


class _ShareConsumerThreads:
    """Share consumers in threads that read until they have --num-records together."""

    def __init__(self, configs: dict[str, Any], options: dict[str, Any], count: int, stop: Stop) -> None:
        self._configs = configs
        self._options = options
        self._count = count
        self._stop = stop
        self._lock = threading.Lock()
        self._client_ids = [
            configs["client.id"] if options["has_client_id"] else f"{_CLIENT_ID}-{number + 1}"
            for number in range(options["threads"])
        ]
        self._bytes = [0] * options["threads"]
        self._records = [0] * options["threads"]
        self._begun = self._ended = time.time()
        self._failure: KafkaError | BrokenPipeError | None = None

    def run(self) -> None:
        """Run all consumers. Raises the first KafkaError or BrokenPipeError of one of them."""
        if not self._options["hide_header"] and not self._options["as_json"]:
            click.echo(", ".join(_COLUMNS))
        self._begun = self._ended = time.time()
        threads = [threading.Thread(target=self._read, args=(number,)) for number in range(self._options["threads"])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failure is not None:
            raise self._failure

    def _read(self, number: int) -> None:
        try:
            with ShareConsumer({**self._configs, "client.id": self._client_ids[number]}) as consumer:
                consumer.subscribe([self._options["topic"]])
                last = time.monotonic()
                reported = _ProgressMark(self._begun, 0, 0)
                while sum(self._records) < self._count and self._failure is None and not self._stop.requested:
                    records = consumer.poll(0.2)
                    if records:
                        last = time.monotonic()
                        with self._lock:
                            self._records[number] += len(records)
                            self._bytes[number] += sum(
                                len(record.value or b"") + len(record.key or b"") for record in records
                            )
                            self._ended = time.time()
                    elif (time.monotonic() - last) * 1000 > self._options["timeout"]:
                        click.echo(timeout_warning(self._options["timeout"]), err=True)
                        return
                    if self._options["show_detailed_stats"]:
                        reported = self._progress(number, reported)
        except (KafkaError, BrokenPipeError) as error:
            self._failure = error

    def _progress(self, number: int, reported: "_ProgressMark") -> "_ProgressMark":
        """Print the progress of a consumer if the reporting interval has passed; return the new mark."""
        now = time.time()
        if (now - reported.moment) * 1000 < self._options["reporting_interval"]:
            return reported
        cells = _cells(
            now - reported.moment, self._bytes[number] - reported.bytes, self._records[number] - reported.records
        )
        moments = [java_time(moment, self._options["date_format"]) for moment in (reported.moment, now)]
        if not self._options["as_json"]:
            click.echo(f"{', '.join([*moments, *cells])} for share consumer {number + 1}")
        return _ProgressMark(now, self._bytes[number], self._records[number])

    def summary(self) -> None:
        """Print the result."""
        options = self._options
        seconds = self._ended - self._begun
        whole = _cells(seconds, sum(self._bytes), sum(self._records))
        if options["as_json"]:
            names = (name.replace(".", "_").lower() for name in _COLUMNS[2:])
            echo_json(dict(zip(names, map(float, whole), strict=True)) | {"records_by_consumer": self._records})
            return
        moments = [java_time(moment, options["date_format"]) for moment in (self._begun, self._ended)]
        totals = list(zip(self._client_ids, self._bytes, self._records, strict=True))
        if options["show_consumer_stats"]:
            for number, (client_id, size, records) in enumerate(totals, 1):
                line = ", ".join([*moments, *_cells(seconds, size, records)])
                click.echo(f"Share consumer {number} having client id {client_id} consumption metrics- {line}")
        click.echo(", ".join([*moments, *whole]))
        if options["print_metrics"]:
            for client_id, size, records in totals:
                group = "consumer-share-fetch-manager-metrics"
                echo_metrics(
                    client_id, {f"{group}:bytes-consumed-total": size, f"{group}:records-consumed-total": records}
                )


class _ProgressMark(NamedTuple):
    """State of a consumer at its last progress line: seconds since the epoch, and its totals."""

    moment: float
    bytes: int
    records: int


def _cells(seconds: float, size: int, records: int) -> list[str]:
    seconds = max(seconds, 1e-9)
    return [
        f"{size / MEGABYTE:.4f}",
        f"{size / MEGABYTE / seconds:.4f}",
        f"{records / seconds:.4f}",
        f"{records}",
        f"{seconds * 1000:.0f}",
    ]
