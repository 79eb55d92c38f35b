"""`ottla e2e-latency`: measure the end-to-end latency of single records."""

import time
from typing import Any

import click

from ottla.cli.cluster_access import CommandFailed, answering_configs, bootstrap_options, command_errors
from ottla.cli.completion import complete_topics
from ottla.cli.kafka.latencies import Latencies
from ottla.cli.stopping import Stop, exit_on_signals
from ottla.cli.table import echo_json
from ottla.client.admin.topics import NewTopic
from ottla.client.blocking import Admin, Consumer, Producer
from ottla.client.topics import TopicPartition

_SHARES = (0.5, 0.99, 0.999)
_REPORT_EVERY = 1000
_TIMEOUT_S = 60.0


@click.command("e2e-latency")
@bootstrap_options
@click.option(
    "--topic",
    metavar="TOPIC",
    required=True,
    help="Topic; created with one partition if it does not exist.",
    shell_complete=complete_topics,
)
@click.option("--num-records", type=click.IntRange(0), required=True, metavar="N", help="Number of records.")
@click.option(
    "--producer-acks",
    type=click.Choice(["1", "all"]),
    required=True,
    help="Acknowledgements the producer waits for (acks).",
)
@click.option("--record-size", type=click.IntRange(0), required=True, metavar="BYTES", help="Size of a record's value.")
@click.option("--record-key-size", type=click.IntRange(0), default=0, metavar="BYTES", help="Size of its key.")
@click.option("--num-headers", type=click.IntRange(0), default=0, metavar="N", help="Number of headers.")
@click.option(
    "--record-header-size",
    type=click.IntRange(-1),
    default=0,
    metavar="BYTES",
    help="Size of a header's value; -1: null.",
)
@click.option(
    "--record-header-key-size", type=click.IntRange(0), default=0, metavar="BYTES", help="Size of a header's name."
)
@click.option("--command-config", metavar="FILE", help="Properties for both clients.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead.")
def e2e_latency(bootstrap_server: str | None, **options: Any) -> None:
    """Measure the time from produce to consume. Apache Kafka's tool of this name, with its flags and its output.

    SIGTERM or Ctrl-C stops it between two records.
    """
    with command_errors(), exit_on_signals() as stop:
        configs = answering_configs(stop, bootstrap_server, options["command_config"])
        partitions = _partitions(configs, options)
        sending = {**configs, "linger.ms": 0, "acks": options["producer_acks"]}
        reading = {**configs, "auto.offset.reset": "latest", "fetch.max.wait.ms": 0, "enable.auto.commit": "false"}
        with Producer(sending) as producer, Consumer(reading) as consumer:
            consumer.assign(partitions)
            for partition in partitions:
                consumer.position(partition)
            latencies = _measure(producer, consumer, options, stop)
        _summarize(latencies, as_json=options["as_json"])


def _summarize(latencies: Latencies, *, as_json: bool) -> None:
    quantiles = latencies.quantiles(_SHARES)
    if as_json:
        named = dict(zip(("p50_ms", "p99_ms", "p999_ms"), quantiles, strict=True))
        echo_json(
            {"records": latencies.count, "average_ms": latencies.average_ms, "max_ms": latencies.most_ms, **named}
        )
        return
    click.echo(f"Avg latency: {latencies.average_ms:.4f} ms")
    click.echo("Percentiles: 50th = {}, 99th = {}, 99.9th = {}".format(*quantiles))


def _partitions(configs: dict[str, Any], options: dict[str, Any]) -> list[TopicPartition]:
    topic: str = options["topic"]
    with Admin(configs) as admin:
        known = admin.list_topics()
        if topic in known:
            return [TopicPartition(topic, index) for index in sorted(known[topic].leaders)]
        if not options["as_json"]:
            click.echo(
                f'Topic "{topic}" does not exist. Will create topic with 1 partition(s) and replication factor = 1'
            )
        admin.create_topics([NewTopic(topic, 1, 1)]).check()
    return [TopicPartition(topic, 0)]


def _measure(producer: Producer, consumer: Consumer, options: dict[str, Any], stop: Stop) -> Latencies:
    latencies = Latencies()
    header = "h" * options["record_header_key_size"]
    size: int = options["record_header_size"]
    headers: list[tuple[str, bytes | None]] = [(header, None if size < 0 else bytes(size))] * options["num_headers"]
    key = b"k" * options["record_key_size"] if options["record_key_size"] else None
    for number in range(options["num_records"]):
        if stop.requested:
            break
        value = (b"%d" % number).ljust(options["record_size"], b".")[: options["record_size"]]
        begun = time.perf_counter()
        producer.produce(options["topic"], value, key, headers=headers)
        record = consumer.poll(_TIMEOUT_S)
        milliseconds = (time.perf_counter() - begun) * 1000
        if record is None:
            raise CommandFailed(f"record {number} was not received within {_TIMEOUT_S:.0f} s")
        if record.value != value or record.key != key:
            raise CommandFailed(
                f"record {number} was received as {record.value!r}: another client may be writing to the topic"
            )
        latencies.add(milliseconds)
        if number % _REPORT_EVERY == 0 and not options["as_json"]:
            click.echo(f"{number}\t{milliseconds:.6g}")
    return latencies
