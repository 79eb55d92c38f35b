"""`ottla producer-perf-test`: measure the throughput and latency of a producer."""

import random
import time
from pathlib import Path
from typing import Any

import click

from ottla.cli.cluster_access import CommandFailed, answering_configs, bootstrap_options, command_errors
from ottla.cli.completion import complete_topics
from ottla.cli.kafka.latencies import Latencies
from ottla.cli.properties import HAS_BEEN_DEPRECATED, properties, warn_if_deprecated
from ottla.cli.stopping import STEP_S, Stop, exit_on_signals
from ottla.cli.table import echo_json, echo_metrics
from ottla.client.blocking import Producer
from ottla.client.errors import KafkaError
from ottla.client.producer.closed import Delivered

_SHARES = (0.5, 0.95, 0.99, 0.999)


@click.command("producer-perf-test")
@bootstrap_options
@click.option("--topic", required=True, metavar="TOPIC", help="Topic to write to.", shell_complete=complete_topics)
@click.option("--num-records", type=int, required=True, metavar="N", help="Number of records.")
@click.option(
    "--throughput", type=float, required=True, metavar="N", help="Approximate records per second; -1: no limit."
)
@click.option("--record-size", type=int, metavar="BYTES", help="Random records of this size.")
@click.option("--payload-file", metavar="FILE", help="File with payloads, chosen at random for each record.")
@click.option(
    "--payload-delimiter", default="\\n", show_default=True, metavar="TEXT", help="Delimiter of payloads in the file."
)
@click.option("--payload-monotonic", is_flag=True, help="Payloads that increase: 0, 1, 2, ...")
@click.option("--producer-props", metavar="NAME=VALUE", multiple=True, help="Old name of --command-property.")
@click.option("--command-property", metavar="NAME=VALUE", multiple=True, help="A config of the producer.")
@click.option("--producer.config", "producer_config", metavar="FILE", help="Old name of --command-config.")
@click.option("--command-config", metavar="FILE", help="Properties for the producer.")
@click.option("--print-metrics", is_flag=True, help="Print the producer's metrics at the end.")
@click.option("--transactional-id", metavar="ID", help="Write in transactions.")
@click.option(
    "--transaction-duration-ms", type=int, metavar="MS", help="Maximum duration of a transaction. [default: 3000]"
)
@click.option(
    "--warmup-records", type=int, default=0, metavar="N", help="Exclude the first N records from a second summary."
)
@click.option("--reporting-interval", type=int, default=5000, show_default=True, metavar="MS")
@click.option(
    "--record-key-range",
    type=click.IntRange(max=2**31 - 1),
    metavar="N",
    help="Keys are integers from 0 to N-1. Required for the distributions range and random.",
)
@click.option(
    "--key-distribution",
    type=click.Choice(["none", "range", "random"]),
    default="none",
    show_default=True,
    help="Distribution of keys: null keys, round-robin keys, or random keys.",
)
@click.option(
    "--random-seed",
    type=click.IntRange(-(2**63), 2**63 - 1),
    default=0,
    show_default=True,
    metavar="N",
    help="Seed of random keys and payloads; runs with the same seed are the same.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end, and nothing else.")
def producer_perf_test(**options: Any) -> None:
    """Measure the throughput and latency of a producer. Apache Kafka's tool of this name, with its flags and its output.

    SIGTERM or Ctrl-C stops it, after the records that it has sent are acknowledged and its transaction is committed.
    """
    warn_if_deprecated("--producer-props", "--command-property", HAS_BEEN_DEPRECATED)
    warn_if_deprecated("--producer.config", "--command-config", HAS_BEEN_DEPRECATED)
    payloads = _payloads(options)
    if options["warmup_records"] >= options["num_records"]:
        raise click.UsageError("--warmup-records must be less than --num-records")
    _check_keys(options["key_distribution"], options["record_key_range"])
    with command_errors(), exit_on_signals() as stop:
        texts = [*options["producer_props"], *options["command_property"]]
        own: dict[str, Any] = {
            **properties(options["command_config"] or options["producer_config"], texts, "--command-property")
        }
        if options["transactional_id"] is not None:
            own["transactional.id"] = options["transactional_id"]
        elif options["transaction_duration_ms"] is not None:
            own.setdefault("transactional.id", f"performance-producer-{random.randrange(1 << 64):x}")
        own = {"client.id": "perf-producer-client", **own}
        with Producer(answering_configs(stop, options["bootstrap_server"], None, **own)) as producer:
            test = _ProducerPerfTest(producer, options, stop, transactional="transactional.id" in own)
            test.run(payloads)
            metrics = producer.metrics().of_client()
        test.summary(metrics if options["print_metrics"] else {})


def _check_keys(distribution: str, key_range: int | None) -> None:
    """Refuse a distribution of keys without a range, and a range without a distribution (KIP-1299). Raises UsageError."""
    if key_range is not None and key_range <= 0:
        raise click.UsageError("--record-key-range should be greater than zero.")
    if distribution != "none" and key_range is None:
        raise click.UsageError("--record-key-range is required when --key-distribution is 'range' or 'random'.")
    if distribution == "none" and key_range is not None:
        raise click.UsageError("--key-distribution must be 'range' or 'random' when --record-key-range is specified.")


def _payloads(options: dict[str, Any]) -> list[bytes]:
    """Return the payloads to send; an empty list for --payload-monotonic."""
    named = [name for name in ("record_size", "payload_file") if options[name] is not None]
    if len(named) + options["payload_monotonic"] != 1:
        raise click.UsageError("specify exactly one of --record-size, --payload-file, --payload-monotonic")
    if options["payload_monotonic"]:
        return []
    if options["record_size"] is not None:
        if options["record_size"] < 0:
            raise click.UsageError("--record-size must not be negative")
        random_source = random.Random(options["random_seed"])
        return [bytes(random_source.randrange(65, 91) for _ in range(options["record_size"]))]
    try:
        content = Path(options["payload_file"]).read_bytes()
    except OSError as error:
        raise CommandFailed(f"cannot read {options['payload_file']}: {error.strerror}") from None
    delimiter = options["payload_delimiter"].encode().decode("unicode_escape").encode()
    payloads = [part for part in content.split(delimiter) if part]
    if not payloads:
        raise CommandFailed(f"{options['payload_file']} has no payloads")
    return payloads


class _LatencyWindow:
    """Records and latencies of a period."""

    def __init__(self) -> None:
        self.begun = time.perf_counter()
        self.latencies = Latencies()
        self.bytes = 0

    def line(self, *, whole: bool, what: str = "records sent") -> str:
        """Format like Kafka's tool; with more digits and quantiles if `whole`."""
        seconds = max(time.perf_counter() - self.begun, 1e-9)
        rate, megabytes = self.latencies.count / seconds, self.bytes / seconds / (1 << 20)
        digits = (6, 2) if whole else (1, 1)
        text = (
            f"{self.latencies.count} {what}, {rate:.{digits[0]}f} records/sec ({megabytes:.2f} MB/sec), "
            f"{self.latencies.average_ms:.{digits[1]}f} ms avg latency, {self.latencies.most_ms:.{digits[1]}f} ms max latency"
        )
        if whole:
            quantiles = self.latencies.quantiles(_SHARES)
            text += "".join(f", {ms} ms {share * 100:g}th" for ms, share in zip(quantiles, _SHARES, strict=True))
        return f"{text}."


class _ProducerPerfTest:
    """One run of the test."""

    def __init__(self, producer: Producer, options: dict[str, Any], stop: Stop, *, transactional: bool) -> None:
        self._producer = producer
        self._stop = stop
        self._options = options
        self._transactional = transactional
        self._whole = _LatencyWindow()
        self._steady: _LatencyWindow | None = None
        self._recent = _LatencyWindow()
        self._steady_announced = True
        self._client_id: str = producer.config["client.id"]
        self._failure: KafkaError | None = None
        self._as_json: bool = options["as_json"]

    def run(self, payloads: list[bytes]) -> None:
        """Send all records, or those until a stop, and wait for their acknowledgement. Raises CommandFailed."""
        producer, options = self._producer, self._options
        duration = (options["transaction_duration_ms"] or 3000) / 1000
        if self._transactional:
            producer.init_transactions()
        if options["warmup_records"] and not self._as_json:
            click.echo(
                f"Warmup first {options['warmup_records']} records. "
                "Steady state results will print after the complete test summary."
            )
        random_source = random.Random(options["random_seed"])
        producer.partitions_for(options["topic"])
        self._whole = _LatencyWindow()
        began = 0.0
        for number in range(options["num_records"]):
            if self._stop.requested:
                break
            if self._transactional and not began:
                producer.begin_transaction()
                began = time.perf_counter()
            value = random_source.choice(payloads) if payloads else b"%d" % number
            self._send(number, value, self._key(number, random_source))
            if self._transactional and time.perf_counter() - began >= duration:
                producer.commit_transaction()
                began = 0.0
            self._throttle(number + 1)
        if self._transactional and began:
            producer.commit_transaction()
        producer.flush()
        if self._failure is not None:
            raise CommandFailed(str(self._failure))

    def _key(self, number: int, random_source: random.Random) -> bytes | None:
        """Return the key of a record: a decimal number, as in Kafka's tool, or None without a distribution."""
        distribution, key_range = self._options["key_distribution"], self._options["record_key_range"]
        if distribution == "none":
            return None
        return b"%d" % (number % key_range if distribution == "range" else random_source.randrange(key_range))

    def _send(self, number: int, value: bytes, key: bytes | None) -> None:
        sent = time.perf_counter()

        def report(error: KafkaError | None, delivered: Delivered | None) -> None:
            del delivered
            if error is not None:
                self._failure = self._failure or error
                return
            self._count(number, len(value), (time.perf_counter() - sent) * 1000)

        self._producer.produce(self._options["topic"], value, key, on_delivery=report)
        self._producer.poll(0)

    def _count(self, number: int, size: int, milliseconds: float) -> None:
        if number >= self._options["warmup_records"] > 0 and self._steady is None:
            self._steady, self._recent = _LatencyWindow(), _LatencyWindow()
            self._steady_announced = False
        for window in (self._whole, self._recent, self._steady):
            if window is not None:
                window.latencies.add(milliseconds)
                window.bytes += size
        if time.perf_counter() - self._recent.begun >= self._options["reporting_interval"] / 1000:
            if not self._as_json:
                if not self._steady_announced:
                    self._steady_announced = True
                    click.echo("In steady state.")
                click.echo(self._recent.line(whole=False))
            self._recent = _LatencyWindow()

    def _throttle(self, sent: int) -> None:
        """Limit the rate to --throughput records per second."""
        throughput: float = self._options["throughput"]
        if throughput > 0:
            while not self._stop.requested and (
                (ahead := sent / throughput - (time.perf_counter() - self._whole.begun)) > 0.002
            ):
                self._producer.poll(min(ahead, STEP_S))
                time.sleep(min(max(sent / throughput - (time.perf_counter() - self._whole.begun), 0), STEP_S))

    def summary(self, metrics: dict[str, float]) -> None:
        """Print the result."""
        if self._as_json:
            whole = self._whole
            seconds = time.perf_counter() - whole.begun
            quantiles = dict(
                zip(("p50_ms", "p95_ms", "p99_ms", "p999_ms"), whole.latencies.quantiles(_SHARES), strict=True)
            )
            echo_json(
                {
                    "records": whole.latencies.count,
                    "records_per_second": whole.latencies.count / seconds,
                    "bytes_per_second": whole.bytes / seconds,
                    "average_ms": whole.latencies.average_ms,
                    "max_ms": whole.latencies.most_ms,
                    **quantiles,
                    **({"metrics": metrics} if metrics else {}),
                }
            )
            return
        click.echo(self._whole.line(whole=True))
        if self._steady is not None:
            click.echo(self._steady.line(whole=True, what="steady state records sent"))
        if metrics:
            echo_metrics(self._client_id, {f"producer-metrics:{name}": value for name, value in metrics.items()})
