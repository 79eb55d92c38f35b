"""Data of the tests: a topic with records."""

import json

from ottla import Admin, NewTopic, Producer
from tests.console import Broker


def fill(broker: Broker) -> None:
    """Create the topic `flights` with three partitions and 30 records."""
    with Admin(broker.client) as client:
        client.create_topics([NewTopic("flights", 3, broker.replicas, config={"retention.ms": "315360000000"})]).check()
    with Producer(broker.client) as producer:
        for number in range(30):
            carrier = ("AA", "UA", "DL")[number % 3]
            value = json.dumps({"carrier": carrier, "delay": number, "route": {"from": "JFK", "to": ["LAX", "SFO"]}})
            headers = [("source", b"test"), ("number", str(number).encode())]
            producer.produce(
                "flights", value, carrier, number % 3, timestamp=1_700_000_000_000 + number * 60_000, headers=headers
            )
        producer.flush()
