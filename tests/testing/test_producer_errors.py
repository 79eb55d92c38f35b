"""Errors of records that a producer has sent until delivery.timeout.ms."""

import pytest

from ottla import KafkaError, Producer
from ottla.client.errors import RequestTimedOut
from ottla.testing import Kafka


@pytest.mark.parametrize("name", ["KAFKA_STORAGE_ERROR", "NOT_ENOUGH_REPLICAS", "NOT_LEADER_OR_FOLLOWER"])
def test_a_record_that_expires_keeps_the_last_error_of_the_broker(kafka: Kafka, name: str) -> None:
    kafka.create_topic("orders")
    with (
        kafka.fail("Produce", None, error=name),
        Producer(
            bootstrap_servers=kafka.bootstrap_servers, delivery_timeout_ms=700, request_timeout_ms=500, linger_ms=0
        ) as producer,
    ):
        future = producer.send("orders", b"v")
        producer.flush(10)
        with pytest.raises(RequestTimedOut) as raised:
            future.result()
    text = str(raised.value)
    assert text.startswith("produce to orders-0: not acknowledged within 700 ms: ")
    assert name in text
    assert isinstance(raised.value.__cause__, KafkaError)
    assert raised.value.__cause__.name == name
