"""Airflow's provider of Kafka: hooks, operators, the sensor's trigger, outside of a scheduler.

apache-airflow-providers-apache-kafka 2:
https://airflow.apache.org/docs/apache-airflow-providers-apache-kafka/stable/operators/index.html
"""

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import confluent_kafka

_WAIT_S = 30
delivered: list[tuple[str, int]] = []


def connect(name: str, configs: dict[str, Any]) -> None:
    """Define a connection, as Airflow reads it from the environment."""
    os.environ[f"AIRFLOW_CONN_{name.upper()}"] = json.dumps({"conn_type": "kafka", "extra": configs})


def numbers(count: int, prefix: str) -> Iterator[tuple[str, str]]:
    """Return keys and values, for the operator that produces."""
    for number in range(count):
        yield json.dumps(number), json.dumps(f"{prefix}{number}")


def on_delivery(error: Any, message: Any) -> None:
    """Note a delivery report."""
    assert error is None
    delivered.append((message.topic(), message.offset()))


def matching(message: Any) -> Any:
    """Return the value that the trigger waits for."""
    value = json.loads(message.value())
    return value if value == "v3" else None


def main(bootstrap: str, topic: str) -> None:
    """Create a topic, produce to it, consume from it, wait for a message, delete it."""
    connect("kafka_default", {"bootstrap.servers": bootstrap})
    for group in ("readers", "batches", "waiting"):
        configs = {"group.id": f"{topic}-{group}", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        connect(f"kafka_{group}", {"bootstrap.servers": bootstrap, **configs})
    sys.modules.setdefault("airflow_provider", sys.modules["__main__"])  # operators import functions by their names

    from airflow.providers.apache.kafka.hooks.client import (  # type: ignore[import-not-found]
        KafkaAdminClientHook,
    )
    from airflow.providers.apache.kafka.operators.consume import (  # type: ignore[import-not-found]
        ConsumeFromTopicOperator,
    )
    from airflow.providers.apache.kafka.operators.produce import (  # type: ignore[import-not-found]
        ProduceToTopicOperator,
    )
    from airflow.providers.apache.kafka.triggers.await_message import (  # type: ignore[import-not-found]
        AwaitMessageTrigger,
    )

    admin = KafkaAdminClientHook()
    admin.create_topic([(topic, 1, 1)])
    admin.create_topic([(topic, 1, 1)])  # exists, which is logged
    assert admin.test_connection() == (True, "Connection successful.")

    produce = ProduceToTopicOperator(
        task_id="produce",
        topic=topic,
        producer_function="airflow_provider.numbers",
        producer_function_args=[5],
        producer_function_kwargs={"prefix": "v"},
        delivery_callback="airflow_provider.on_delivery",
    )
    produce.execute({})
    assert delivered == [(topic, offset) for offset in range(5)]

    read: list[tuple[bytes, bytes]] = []
    one_by_one = ConsumeFromTopicOperator(
        task_id="consume",
        kafka_config_id="kafka_readers",
        topics=[topic],
        apply_function=lambda prefix, message: read.append((prefix + message.key(), message.value())),
        apply_function_args=[b"k"],
        max_messages=5,
        max_batch_size=2,
        commit_cadence="end_of_batch",
        poll_timeout=_WAIT_S,
    )
    one_by_one.execute({})
    assert read == [(b"k%d" % number, b'"v%d"' % number) for number in range(5)]

    batches: list[int] = []
    batch_wise = ConsumeFromTopicOperator(
        task_id="batches",
        kafka_config_id="kafka_batches",
        topics=[topic],
        apply_function_batch=lambda messages: batches.append(len(messages)),
        max_batch_size=3,
        poll_timeout=2,
    )
    batch_wise.execute({})  # to the end of the topic
    assert sum(batches) == 5

    async def wait() -> Any:
        trigger = AwaitMessageTrigger(
            topics=[topic],
            apply_function="airflow_provider.matching",
            kafka_config_id="kafka_waiting",
            poll_timeout=1,
            poll_interval=0.1,
        )
        event = await anext(trigger.run())
        await trigger.cleanup()
        return event.payload

    assert asyncio.run(asyncio.wait_for(wait(), _WAIT_S)) == "v3"
    check_offsets(bootstrap, topic)
    admin.delete_topic([topic])


def check_offsets(bootstrap: str, topic: str) -> None:
    """Check what the groups have committed."""
    offsets = {}
    for group in ("readers", "batches", "waiting"):
        with confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": f"{topic}-{group}"}) as consumer:
            [row] = consumer.committed([confluent_kafka.TopicPartition(topic, 0)], timeout=_WAIT_S)
            offsets[group] = row.offset
    assert offsets == {"readers": 5, "batches": 5, "waiting": 4}


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.write(f"{confluent_kafka.Producer.__module__}\n")
