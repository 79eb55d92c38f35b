"""The queue of records whose topic is not known yet."""

import time

import ottla.compat.confluent_kafka as confluent_kafka
from ottla.testing import Kafka


def test_records_that_wait_for_the_metadata_do_not_make_later_ones_wait(kafka: Kafka) -> None:
    """A thread that produced without a pause added records faster than they were appended, and had half the throughput."""
    kafka.create_topic("orders")
    config = {"bootstrap.servers": kafka.bootstrap_servers, "queue.buffering.max.messages": 1_000_000}
    with confluent_kafka.Producer(config) as producer:
        count, end = 0, time.monotonic() + 15
        while (count < 1000 or producer._queue._waiting) and time.monotonic() < end:
            producer.produce("orders", str(count))
            count += 1
        assert not producer._queue._waiting
        producer.produce("orders", str(count))
        assert producer.flush(30) == 0
    assert [int(record.value or b"") for record in kafka.records("orders")] == list(range(count + 1))
