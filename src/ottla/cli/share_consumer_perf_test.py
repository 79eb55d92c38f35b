"""`ottla share-consumer-perf-test`: how fast records come through a share group."""

import threading
import time
from typing import Any

import click

from ottla.cli.cluster_access import client_configs, told_in_one_line
from ottla.cli.consumer_perf_test import java_time
from ottla.cli.properties import deprecated, properties
from ottla.cli.table import echo_json
from ottla.client.blocking import ShareConsumer
from ottla.client.errors import KafkaError

_MEGABYTE = 1 << 20
_COLUMNS = (
    "start.time", "end.time", "data.consumed.in.MB", "MB.sec", "nMsg.sec", "data.consumed.in.nMsg", "fetch.time.ms",
)  # fmt: skip


@click.command("share-consumer-perf-test")
@click.option("--bootstrap-server", metavar="HOST:PORT", required=True, help="Brokers to connect to.")
@click.option("--topic", metavar="TOPIC", required=True, help="The topic to read.")
@click.option("--num-records", type=int, metavar="N", help="How many records.")
@click.option("--messages", type=int, metavar="N", help="Old name of --num-records.")
@click.option("--group", metavar="GROUP", default="perf-share-consumer", show_default=True, help="The share group.")
@click.option("--threads", type=int, default=1, show_default=True, metavar="N", help="How many share consumers.")
@click.option("--fetch-size", type=int, default=1_048_576, show_default=True, metavar="BYTES", help="Of one fetch.")
@click.option("--socket-buffer-size", type=int, default=2_097_152, show_default=True, metavar="BYTES")
@click.option(
    "--timeout", type=int, default=10_000, show_default=True, metavar="MS", help="Longest wait between records."
)
@click.option(
    "--date-format", default="yyyy-MM-dd HH:mm:ss:SSS", show_default=True, metavar="FORMAT", help="Java's letters."
)
@click.option("--show-consumer-stats", is_flag=True, help="A line for each consumer.")
@click.option("--hide-header", is_flag=True, help="No titles.")
@click.option("--print-metrics", is_flag=True, help="Say how many records each consumer had.")
@click.option("--command-config", metavar="FILE", help="Properties for the consumers.")
@click.option("--command-property", metavar="NAME=VALUE", multiple=True, help="One of them.")
@click.option("--consumer.config", "consumer_config", metavar="FILE", help="Old name of --command-config.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of columns.")
def share_consumer_perf_test(bootstrap_server: str, **given: Any) -> None:
    """Measure how fast records come through a share group. Apache Kafka's tool of this name, with its flags and its output."""
    deprecated("--messages", "--num-records", given["messages"] is not None)
    deprecated("--consumer.config", "--command-config", bool(given["consumer_config"]))
    count = given["num_records"] if given["num_records"] is not None else given["messages"]
    if count is None:
        raise click.UsageError("--num-records is missing")
    with told_in_one_line():
        file = given["command_config"] or given["consumer_config"]
        own: dict[str, Any] = {
            "group.id": given["group"],
            "receive.buffer.bytes": given["socket_buffer_size"],
            "fetch.max.bytes": given["fetch_size"],
            "check.crcs": "false",
            **properties(file, given["command_property"], "--command-property"),
        }
        readers = Readers(client_configs(bootstrap_server, None, **own), given, count)
        readers.run()
    readers.summary()


class Readers:
    """Share consumers in threads of their own, until together they have read enough."""

    def __init__(self, configs: dict[str, Any], given: dict[str, Any], count: int) -> None:
        self._configs = configs
        self._given = given
        self._count = count
        self._guard = threading.Lock()
        self._bytes = [0] * given["threads"]
        self._records = [0] * given["threads"]
        self._begun = self._ended = time.time()
        self._failure: KafkaError | None = None

    def run(self) -> None:
        """Read. Raises what one of the consumers met."""
        self._begun = self._ended = time.time()
        threads = [threading.Thread(target=self._read, args=(number,)) for number in range(self._given["threads"])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failure is not None:
            raise self._failure

    def _read(self, number: int) -> None:
        try:
            with ShareConsumer(self._configs) as consumer:
                consumer.subscribe([self._given["topic"]])
                last = time.monotonic()
                while sum(self._records) < self._count and self._failure is None:
                    records = consumer.poll(0.2)
                    if records:
                        last = time.monotonic()
                        with self._guard:
                            self._records[number] += len(records)
                            self._bytes[number] += sum(
                                len(each.value or b"") + len(each.key or b"") for each in records
                            )
                            self._ended = time.time()
                    elif (time.monotonic() - last) * 1000 > self._given["timeout"]:
                        click.echo(f"nothing came for {self._given['timeout']} ms: stopping", err=True)
                        return
        except KafkaError as error:
            self._failure = error

    def _cells(self, size: int, records: int) -> list[str]:
        seconds = max(self._ended - self._begun, 1e-9)
        return [
            f"{size / _MEGABYTE:.4f}",
            f"{size / _MEGABYTE / seconds:.4f}",
            f"{records / seconds:.4f}",
            f"{records}",
            f"{seconds * 1000:.0f}",
        ]

    def summary(self) -> None:
        """What came of it."""
        given = self._given
        whole = self._cells(sum(self._bytes), sum(self._records))
        if given["as_json"]:
            names = (name.replace(".", "_").lower() for name in _COLUMNS[2:])
            echo_json(dict(zip(names, map(float, whole), strict=True)) | {"records_by_consumer": self._records})
            return
        moments = [java_time(moment, given["date_format"]) for moment in (self._begun, self._ended)]
        if not given["hide_header"]:
            click.echo(", ".join(_COLUMNS))
        if given["show_consumer_stats"]:
            for size, records in zip(self._bytes, self._records, strict=True):
                click.echo(", ".join([*moments, *self._cells(size, records)]))
        click.echo(", ".join([*moments, *whole]))
        if given["print_metrics"]:
            for number, records in enumerate(self._records):
                click.echo(f"share consumer {number}: {records} records")
