"""`ottla consumer-perf-test`: measure the throughput of a consumer."""

import random
import time
from datetime import datetime
from typing import Any

import click

from ottla.cli.cluster_access import answering_configs, bootstrap_options, command_errors, profile_properties
from ottla.cli.completion import complete_groups, complete_topics
from ottla.cli.properties import WARNING, properties, warn_if_deprecated
from ottla.cli.stopping import STEP_S, Stop, exit_on_signals
from ottla.cli.table import echo_json, echo_metrics
from ottla.client.blocking import Consumer
from ottla.client.topics import TopicPartition

MEGABYTE = 1 << 20
_COLUMNS = (
    "start.time", "end.time", "data.consumed.in.MB", "MB.sec", "data.consumed.in.nMsg", "nMsg.sec",
    "rebalance.time.ms", "fetch.time.ms", "fetch.MB.sec", "fetch.nMsg.sec",
)  # fmt: skip


@click.command("consumer-perf-test")
@bootstrap_options
@click.option("--topic", metavar="TOPIC", help="The topic to read.", shell_complete=complete_topics)
@click.option("--include", metavar="REGEX", help="All topics whose whole names match.")
@click.option("--num-records", type=int, metavar="N", help="Number of records.")
@click.option("--messages", type=int, metavar="N", help="Old name of --num-records.")
@click.option(
    "--group", metavar="GROUP", help="Consumer group; a random one if omitted.", shell_complete=complete_groups
)
@click.option(
    "--fetch-size",
    type=int,
    default=1_048_576,
    show_default=True,
    metavar="BYTES",
    help="Maximum bytes per partition of a fetch.",
)
@click.option("--from-latest", is_flag=True, help="Start at the log end where no offset is committed.")
@click.option("--socket-buffer-size", type=int, default=2_097_152, show_default=True, metavar="BYTES")
@click.option(
    "--timeout", type=int, default=10_000, show_default=True, metavar="MS", help="Maximum time between records."
)
@click.option("--reporting-interval", type=int, default=5000, show_default=True, metavar="MS")
@click.option("--show-detailed-stats", is_flag=True, help="A line for every reporting interval.")
@click.option(
    "--date-format",
    default="yyyy-MM-dd HH:mm:ss:SSS",
    show_default=True,
    metavar="FORMAT",
    help="Date format in Java's pattern letters.",
)
@click.option("--hide-header", is_flag=True, help="Omit the header.")
@click.option("--print-metrics", is_flag=True, help="Print the consumer's metrics at the end.")
@click.option("--command-config", metavar="FILE", help="Properties for the consumer.")
@click.option("--command-property", metavar="NAME=VALUE", multiple=True, help="Client property; may be repeated.")
@click.option("--consumer.config", "consumer_config", metavar="FILE", help="Old name of --command-config.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of columns.")
def consumer_perf_test(bootstrap_server: str | None, **options: Any) -> None:
    """Measure the throughput of a consumer. Apache Kafka's tool of this name, with its flags and its output.

    SIGTERM or Ctrl-C stops it, after it has left its group.
    """
    if (options["topic"] is None) == (options["include"] is None):
        raise click.UsageError("specify exactly one of --topic and --include")
    count = record_count(options)
    with command_errors(), exit_on_signals() as stop:
        own: dict[str, Any] = {
            "client.id": "perf-consumer-client",
            "group.id": options["group"]
            or profile_properties().get("group.id")
            or f"perf-consumer-{random.randrange(100_000)}",
            "receive.buffer.bytes": options["socket_buffer_size"],
            "max.partition.fetch.bytes": options["fetch_size"],
            "auto.offset.reset": "latest" if options["from_latest"] else "earliest",
            "check.crcs": "false",
            **consumer_properties(options),
        }
        with Consumer(answering_configs(stop, bootstrap_server, **own)) as consumer:
            test = _ConsumerPerfTest(options, count, stop)
            test.run(consumer)
            metrics = consumer.metrics().of_client()
        test.summary(metrics if options["print_metrics"] else {})


def record_count(options: dict[str, Any]) -> int:
    """Return --num-records, with warnings for deprecated options. Raises UsageError."""
    warn_if_deprecated("--messages", "--num-records", WARNING)
    warn_if_deprecated("--consumer.config", "--command-config", WARNING)
    count: int | None = options["num_records"] if options["num_records"] is not None else options["messages"]
    if count is None:
        raise click.UsageError("--num-records is missing")
    return count


def consumer_properties(options: dict[str, Any]) -> dict[str, str]:
    """Return the consumer configs of the options. Raises UsageError, CommandFailed."""
    file = options["command_config"] or options["consumer_config"]
    return properties(file, options["command_property"], "--command-property")


def timeout_warning(timeout_ms: int) -> str:
    """Return the warning that Kafka's tools print when they stop early."""
    return (
        f"WARNING: Exiting before consuming the expected number of records: timeout ({timeout_ms} ms) exceeded. "
        "You can use the --timeout option to increase the timeout."
    )


def java_time(moment: float, pattern: str) -> str:
    """Format a time with the letters yyyy MM dd HH mm ss SSS of Java's SimpleDateFormat."""
    local = datetime.fromtimestamp(moment)  # noqa: DTZ006  (local time)
    for letters, text in (
        ("yyyy", f"{local:%Y}"), ("MM", f"{local:%m}"), ("dd", f"{local:%d}"), ("HH", f"{local:%H}"),
        ("mm", f"{local:%M}"), ("ss", f"{local:%S}"), ("SSS", f"{local.microsecond // 1000:03}"),
    ):  # fmt: skip
        pattern = pattern.replace(letters, text)
    return pattern


_GROUPS = {
    "assigned-partitions": "consumer-coordinator-metrics",
    "commit-total": "consumer-coordinator-metrics",
    "commit-rate": "consumer-coordinator-metrics",
    "commit-latency-avg": "consumer-coordinator-metrics",
    "commit-latency-max": "consumer-coordinator-metrics",
    "connection-count": "consumer-metrics",
    "connection-creation-total": "consumer-metrics",
}
"""Groups of metrics other than fetch metrics."""


class _ConsumerPerfTest:
    """One run: records and bytes read, and the time."""

    def __init__(self, options: dict[str, Any], count: int, stop: Stop) -> None:
        self._options = options
        self._stop = stop
        self._count = count
        self._bytes = self._records = 0
        self._begun = self._ended = time.time()
        self._joined_ms = 0.0
        self._client_id = ""

    def run(self, consumer: Consumer) -> None:
        """Read until --num-records or --timeout is reached, or a stop is requested."""
        options = self._options
        self._client_id = consumer.config["client.id"]
        if options["show_detailed_stats"] and not options["hide_header"]:
            click.echo(", ".join(("time", "threadId", *_COLUMNS[2:])))
        begun = time.time()

        def on_joined(partitions: list[TopicPartition]) -> None:
            del partitions
            self._joined_ms = self._joined_ms or (time.time() - begun) * 1000

        self._begun = begun
        consumer.subscribe(
            [options["topic"]] if options["topic"] else [], pattern=options["include"], on_assign=on_joined
        )
        reported = begun
        last = (0, 0)
        late_at = time.monotonic() + options["timeout"] / 1000
        while self._records < self._count and not self._stop.requested:
            wait = min(max(late_at - time.monotonic(), 0), STEP_S)
            records = consumer.consume(min(500, self._count - self._records), wait)
            if not records:
                if time.monotonic() < late_at:
                    continue
                click.echo(timeout_warning(options["timeout"]), err=True)
                break
            late_at = time.monotonic() + options["timeout"] / 1000
            self._records += len(records)
            self._bytes += sum(len(record.value or b"") + len(record.key or b"") for record in records)
            self._ended = time.time()
            if options["show_detailed_stats"] and (self._ended - reported) * 1000 >= options["reporting_interval"]:
                click.echo(
                    ", ".join([java_time(self._ended, options["date_format"]), "0", *self._cells(reported, last)])
                )
                reported, last = self._ended, (self._bytes, self._records)

    def _cells(self, since: float, before: tuple[int, int]) -> list[str]:
        seconds = max(self._ended - since, 1e-9)
        fetching = max(self._ended - self._begun - self._joined_ms / 1000, 1e-9)
        size, records = self._bytes - before[0], self._records - before[1]
        return [
            f"{self._bytes / MEGABYTE:.4f}",
            f"{size / MEGABYTE / seconds:.4f}",
            f"{self._records}",
            f"{records / seconds:.4f}",
            f"{self._joined_ms:.0f}",
            f"{fetching * 1000:.0f}",
            f"{self._bytes / MEGABYTE / fetching:.4f}",
            f"{self._records / fetching:.4f}",
        ]

    def summary(self, metrics: dict[str, float]) -> None:
        """Print the result."""
        options = self._options
        if options["as_json"]:
            cells = [float(cell) for cell in self._cells(self._begun, (0, 0))]
            named = dict(zip((name.replace(".", "_").lower() for name in _COLUMNS[2:]), cells, strict=True))
            echo_json({**named, **({"metrics": metrics} if metrics else {})})
            return
        if not options["show_detailed_stats"]:
            if not options["hide_header"]:
                click.echo(", ".join(_COLUMNS))
            moments = [java_time(moment, options["date_format"]) for moment in (self._begun, self._ended)]
            click.echo(", ".join([*moments, *self._cells(self._begun, (0, 0))]))
        if metrics:
            named = {f"{_GROUPS.get(name, 'consumer-fetch-manager-metrics')}:{name}": metrics[name] for name in metrics}
            echo_metrics(self._client_id, named)
