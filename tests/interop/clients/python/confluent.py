"""confluent-kafka (librdkafka); `fallback=0.8.0` and so on make it speak as it would to a broker of that version."""

import time
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.interop.clients.contract import Record, Task, equal, records, same, step, task

_PATIENCE_S = 30
_QUIET_S = 0.3


def common(arguments: Task) -> dict[str, Any]:
    configs: dict[str, Any] = {"bootstrap.servers": arguments.bootstrap}
    if "fallback" in arguments.settings:
        configs |= {"api.version.request": False, "broker.version.fallback": arguments.settings["fallback"]}
    return configs


def produce(configs: dict[str, Any], topic: str, numbers: range, codec: str) -> None:
    producer = Producer({**configs, "compression.type": codec, "linger.ms": 20})
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    for key, value in records(numbers):
        producer.produce(topic, value, key, callback=delivered)
    equal(producer.flush(_PATIENCE_S), 0)
    equal(failures, [])


def consumer(configs: dict[str, Any], group: str) -> Consumer:
    own = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False, "fetch.wait.max.ms": 50}
    return Consumer({**configs, **own})


def take(source: Consumer, count: int) -> list[Record]:
    """`count` records, and those that come in a while after them, which should be none.

    Raises TimeoutError.
    """
    received: list[Record] = []
    deadline = time.monotonic() + _PATIENCE_S
    while len(received) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(received)} of {count} records came")
        received += _some(source, count - len(received), 0.2)
    return received + _some(source, 1, _QUIET_S)


def _some(source: Consumer, count: int, patience_s: float) -> list[Record]:
    records: list[Record] = []
    for message in source.consume(count, timeout=patience_s):
        error = message.error()
        if error is None:
            records.append((message.key() or b"", message.value()))
        elif not error.retriable() and error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise KafkaException(error)
    return records


def read_all(bootstrap: str, topic: str, count: int) -> list[Record]:
    """`count` records of partition 0 from the beginning, and any that follow them."""
    source = consumer({"bootstrap.servers": bootstrap}, "read-back")
    try:
        source.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        return take(source, count)
    finally:
        source.close()


def admin_step(configs: dict[str, Any], topic: str) -> None:
    admin = AdminClient(configs)
    admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(timeout=_PATIENCE_S)
    equal(len(admin.list_topics(topic, timeout=_PATIENCE_S).topics[topic].partitions), 3)
    admin.delete_topics([topic])[topic].result(timeout=_PATIENCE_S)


def commit_step(configs: dict[str, Any], arguments: Task) -> None:
    source = consumer(configs, f"{arguments.group}-alone")
    source.assign([TopicPartition(arguments.topic, 0, OFFSET_BEGINNING)])
    take(source, len(arguments.first))
    source.commit(offsets=[TopicPartition(arguments.topic, 0, 42)], asynchronous=False)
    equal(
        [committed.offset for committed in source.committed([TopicPartition(arguments.topic, 0)], timeout=_PATIENCE_S)],
        [42],
    )
    source.close()


def group_step(configs: dict[str, Any], arguments: Task, numbers: range) -> None:
    member = consumer(configs, arguments.group)
    member.subscribe([arguments.topic])
    same(take(member, len(numbers)), numbers)
    member.commit(asynchronous=False)
    member.close()


def main() -> None:
    arguments = task()
    configs = common(arguments)
    if "admin" not in arguments.lacks:
        with step("admin"):
            admin_step(configs, f"{arguments.topic}-made")
    for codec, numbers in arguments.shares:
        with step(f"produce {codec}"):
            produce(configs, arguments.topic, numbers, codec)
    with step("fetch"):
        source = consumer(configs, f"{arguments.group}-none")
        source.assign([TopicPartition(arguments.topic, 0, OFFSET_BEGINNING)])
        same(take(source, len(arguments.first)), arguments.first)
    with step("offsets"):
        equal(source.get_watermark_offsets(TopicPartition(arguments.topic, 0), _PATIENCE_S), (0, len(arguments.first)))
        source.close()
    if "commit" not in arguments.lacks:
        with step("commit"):
            commit_step(configs, arguments)
    if "group" not in arguments.lacks:
        with step("group"):
            group_step(configs, arguments, arguments.first)
        with step("resume"):
            produce(configs, arguments.topic, arguments.more, "none")
            group_step(configs, arguments, arguments.more)


if __name__ == "__main__":
    main()
