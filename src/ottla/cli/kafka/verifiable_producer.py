"""`ottla verifiable-producer`: send increasing numbers to a topic, with an event for each result."""

import time
from typing import Any

import click

from ottla.cli.cluster_access import answering_configs, bootstrap_options, command_errors
from ottla.cli.completion import complete_topics
from ottla.cli.kafka.events import Events, java_class
from ottla.cli.properties import HAS_BEEN_DEPRECATED, properties, warn_if_deprecated
from ottla.cli.stopping import STEP_S, Stop, exit_on_signals
from ottla.client.blocking import Producer
from ottla.client.errors import KafkaError
from ottla.client.producer.closed import Delivered


@click.command("verifiable-producer")
@bootstrap_options
@click.option("--topic", metavar="TOPIC", required=True, help="Topic to write to.", shell_complete=complete_topics)
@click.option(
    "--max-messages",
    type=int,
    default=-1,
    show_default=True,
    metavar="N",
    help="Number of messages; -1: until stopped.",
)
@click.option(
    "--throughput",
    type=int,
    default=-1,
    show_default=True,
    metavar="N",
    help="Approximate messages per second; -1: no limit.",
)
@click.option(
    "--acks",
    type=int,
    default=-1,
    show_default=True,
    metavar="ACKS",
    help="Acknowledgements the producer waits for (acks).",
)
@click.option(
    "--message-create-time",
    type=int,
    default=-1,
    show_default=True,
    metavar="MS",
    help="Timestamp of the first record, in ms; later ones increase. -1: the current time.",
)
@click.option("--value-prefix", type=int, metavar="N", help="Prefix of each value, separated by a dot.")
@click.option("--repeating-keys", type=int, metavar="N", help="Keys from 0 to N - 1, repeated.")
@click.option("--producer.config", "producer_config", metavar="FILE", help="Old name of --command-config.")
@click.option("--command-config", metavar="FILE", help="Properties for the producer.")
def verifiable_producer(bootstrap_server: str | None, **options: Any) -> None:
    """Send 0, 1, 2, ... and print an event for each as JSON. Apache Kafka's tool of this name, with its flags.

    SIGTERM or Ctrl-C stops it, after sent records are acknowledged.
    """
    warn_if_deprecated("--producer.config", "--command-config", HAS_BEEN_DEPRECATED)
    with command_errors(), exit_on_signals() as stop:
        own = {
            "acks": str(options["acks"]),
            "retries": "0",
            **properties(options["command_config"] or options["producer_config"], (), "--command-config"),
        }
        producer = Producer(answering_configs(stop, bootstrap_server, **own))
        session = _VerifiableProducer(producer, options, stop)
        try:
            session.run()
        finally:
            producer.close()
            session.end()


class _VerifiableProducer:
    """Producer that prints events."""

    def __init__(self, producer: Producer, options: dict[str, Any], stop: Stop) -> None:
        self._producer = producer
        self._topic: str = options["topic"]
        self._max_messages: int = options["max_messages"]
        self._rate: int = options["throughput"]
        self._prefix = "" if options["value_prefix"] is None else f"{options['value_prefix']}."
        self._keys: int | None = options["repeating_keys"]
        self._created: int | None = options["message_create_time"] if options["message_create_time"] != -1 else None
        self._stop = stop
        self._events = Events()
        self._begun = time.time()
        self._sent = self._acked = 0
        self._is_known = False

    def run(self) -> None:
        """Send until --max-messages is reached or a stop is requested."""
        self._events.emit("startup_complete")
        while not self._stop.requested and (self._max_messages < 0 or self._sent < self._max_messages):
            self._send()
            self._throttle()

    def end(self) -> None:
        """Print the last two events."""
        self._events.emit("shutdown_complete")
        self._events.emit(
            "tool_data",
            sent=self._sent,
            acked=self._acked,
            target_throughput=self._rate,
            avg_throughput=self._acked / max(time.time() - self._begun, 1e-3),
        )

    def _send(self) -> None:
        value = f"{self._prefix}{self._sent}"
        key = None if self._keys is None else str(self._sent % self._keys)

        def report(error: KafkaError | None, delivered: Delivered | None) -> None:
            if delivered is None:
                self._print_error(key, value, error)
                return
            self._acked += 1
            self._events.emit(
                "producer_send_success",
                key=key,
                value=value,
                offset=delivered.offset,
                topic=delivered.topic,
                partition=delivered.partition,
            )

        try:
            if not self._is_known:
                with self._stop.interruptible():  # blocks, as produce() would, while metadata of the topic is missing
                    self._producer.partitions_for(self._topic)
                    self._is_known = True
                if self._stop.requested:
                    return
            self._sent += 1
            self._producer.produce(self._topic, value, key, on_delivery=report, timestamp=self._created)
        except KafkaError as error:
            self._sent += not self._is_known
            self._print_error(key, value, error)
        if self._created is not None:
            self._created += int((time.time() - self._begun) * 1000)  # as Kafka's tool computes it
        self._producer.poll(0)

    def _print_error(self, key: str | None, value: str, error: KafkaError | None) -> None:
        kind = "" if error is None else java_class(error)
        message = "" if error is None else str(error)
        self._events.emit(
            "producer_send_error", topic=self._topic, key=key, value=value, exception=kind, message=message
        )

    def _throttle(self) -> None:
        """Limit the rate to --throughput records per second; 0 stops after the first one."""
        while self._rate >= 0 and not self._stop.requested and self._sent != self._max_messages:
            ahead = self._sent / self._rate - (time.time() - self._begun) if self._rate else STEP_S
            if ahead <= 0:
                return
            self._producer.poll(min(ahead, STEP_S))
            if self._rate and ahead < STEP_S:
                time.sleep(max(0.0, self._sent / self._rate - (time.time() - self._begun)))
