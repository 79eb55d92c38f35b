"""Kombu's transport over Kafka: a simple queue, and a consumer with a routing key, an acknowledgement and a requeue.

Kombu 5: https://docs.celeryq.dev/projects/kombu/en/stable/reference/kombu.transport.confluentkafka.html
"""

import sys
from typing import Any

import confluent_kafka
from kombu import Connection, Consumer, Exchange, Producer, Queue  # type: ignore[import-not-found]

_WAIT_S = 30


def simple_queue(connection: Any, name: str) -> None:
    """Put messages into a queue and get them; another connection goes on after the last acknowledgement."""
    for numbers in (range(3), range(3, 5)):
        with connection.clone() as other:
            queue = other.SimpleQueue(name)
            for number in numbers:
                queue.put({"number": number}, serializer="json", compression="zlib" if number == 1 else None)
            for number in numbers:
                message = queue.get(timeout=_WAIT_S)
                assert message.payload == {"number": number}, message.payload
                message.ack()
            try:
                extra = queue.get(timeout=1)
            except queue.Empty:
                extra = None
            assert extra is None
            queue.close()


def routed(connection: Any, name: str) -> None:
    """Publish to an exchange with two queues; a requeued message comes again."""
    exchange = Exchange(f"{name}-exchange", type="direct")
    queues = [Queue(f"{name}-{key}", exchange, routing_key=key) for key in ("video", "audio")]
    received: list[tuple[str, Any]] = []
    rejected: list[Any] = []

    def on_message(body: Any, message: Any) -> None:
        key = message.delivery_info["routing_key"]
        if body["number"] == 5 and not rejected:
            rejected.append(body)
            message.requeue()
            return
        received.append((key, body["number"]))
        message.ack()

    with connection.channel() as channel:
        producer = Producer(channel, exchange)
        for number in range(6):
            key = "audio" if number % 2 else "video"
            producer.publish({"number": number}, routing_key=key, declare=list(queues))
        with Consumer(channel, queues, callbacks=[on_message], accept=["json"]):
            while len(received) < 6:
                connection.drain_events(timeout=_WAIT_S)
    assert sorted(received) == [("audio", 1), ("audio", 3), ("audio", 5), ("video", 0), ("video", 2), ("video", 4)]
    assert rejected == [{"number": 5}]


def main(bootstrap: str, topic: str) -> None:
    """Run both, with the options that the transport documents."""
    options = {
        "wait_time_seconds": 1,
        "num_partitions": 1,
        "topic_config": {"retention.ms": "3600000"},
        "kafka_common_config": {"client.id": "kombu"},
        "kafka_producer_config": {"linger.ms": 0},
        "kafka_consumer_config": {"session.timeout.ms": 10_000},
    }
    with Connection(f"confluentkafka://{bootstrap}", transport_options=options) as connection:
        assert connection.transport.driver_version() == confluent_kafka.__version__
        simple_queue(connection, topic)
        try:
            routed(connection, topic)
        except TimeoutError as error:
            raise AssertionError("messages are missing") from error


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.write(f"{confluent_kafka.Producer.__module__}\n")
