"""kafka-python of several releases, forced to `api_version=0.8.0` and so on, or as it is."""

import sys
import time
import warnings
from typing import Any

warnings.simplefilter("ignore")  # old releases on a new Python

try:
    import six  # type: ignore[import-untyped]

    # The copy of six inside kafka-python 1.4 and 2.0 cannot be imported from Python 3.12 on.
    sys.modules["kafka.vendor.six"] = six
    sys.modules["kafka.vendor.six.moves"] = six.moves
except ImportError:
    pass  # kafka-python 3 does not need it

from kafka import KafkaConsumer, KafkaProducer, TopicPartition  # noqa: E402  after six
from kafka.admin import KafkaAdminClient, NewTopic  # noqa: E402
from kafka.structs import OffsetAndMetadata  # noqa: E402

from tests.interop.clients.contract import Record, Task, equal, records, same, step, task  # noqa: E402

_PATIENCE_S = 30


def common(arguments: Task) -> dict[str, Any]:
    configs: dict[str, Any] = {"bootstrap_servers": arguments.bootstrap}
    if "api_version" in arguments.settings:
        configs["api_version"] = tuple(int(part) for part in arguments.settings["api_version"].split("."))
    return configs


def produce(configs: dict[str, Any], arguments: Task, numbers: range, codec: str) -> None:
    producer = KafkaProducer(**configs, compression_type=None if codec == "none" else codec, linger_ms=20)
    sent = [producer.send(arguments.topic, value, key) for key, value in records(numbers, arguments.nulls)]
    for future in sent:
        future.get(timeout=_PATIENCE_S)
    producer.close()


def consumer(configs: dict[str, Any], group: str | None) -> KafkaConsumer:
    return KafkaConsumer(
        **configs, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False, fetch_max_wait_ms=50
    )


def take(source: KafkaConsumer, count: int) -> list[Record]:
    """`count` records, and those of the next poll, which should be none."""
    received: list[Record] = []
    deadline = time.monotonic() + _PATIENCE_S
    while len(received) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(received)} of {count} records came")
        received += _poll(source, 100)
    return received + _poll(source, 300)


def _poll(source: KafkaConsumer, timeout_ms: int) -> list[Record]:
    return [(one.key, one.value) for many in source.poll(timeout_ms=timeout_ms).values() for one in many]


def offset_and_metadata(offset: int) -> Any:
    """Its fields differ: kafka-python 2.1 added the leader epoch."""
    return OffsetAndMetadata(offset, "", *([-1] if len(OffsetAndMetadata._fields) > 2 else []))


def admin_step(configs: dict[str, Any], topic: str) -> None:
    admin = KafkaAdminClient(**configs)
    admin.create_topics([NewTopic(topic, 3, 1)])
    source = KafkaConsumer(**configs)
    deadline = time.monotonic() + _PATIENCE_S
    while source.partitions_for_topic(topic) != {0, 1, 2} and time.monotonic() < deadline:
        source.topics()
    equal(source.partitions_for_topic(topic), {0, 1, 2})
    source.close()
    admin.delete_topics([topic])
    admin.close()


def commit_step(configs: dict[str, Any], arguments: Task) -> None:
    source = consumer(configs, f"{arguments.group}-alone")
    partition = TopicPartition(arguments.topic, 0)
    source.assign([partition])
    source.commit({partition: offset_and_metadata(42)})
    equal(source.committed(partition), 42)
    source.close()


def group_step(configs: dict[str, Any], arguments: Task, numbers: range) -> None:
    member = consumer(configs, arguments.group)
    member.subscribe([arguments.topic])
    same(take(member, len(numbers)), numbers)
    member.commit()
    member.close()


def main() -> None:
    arguments = task()
    configs = common(arguments)
    partition = TopicPartition(arguments.topic, 0)
    if "admin" not in arguments.lacks:
        with step("admin"):
            admin_step(configs, f"{arguments.topic}-made")
    for codec, numbers in arguments.shares:
        with step(f"produce {codec}"):
            produce(configs, arguments, numbers, codec)
    source = consumer(configs, None)
    source.assign([partition])
    with step("fetch"):
        same(take(source, len(arguments.first)), arguments.first, arguments.nulls)
    with step("offsets"):
        source.seek_to_beginning(partition)
        equal(source.position(partition), 0)
        source.seek_to_end(partition)
        equal(source.position(partition), len(arguments.first))
    source.close()
    if "commit" not in arguments.lacks:
        with step("commit"):
            commit_step(configs, arguments)
    if "group" not in arguments.lacks:
        with step("group"):
            group_step(configs, arguments, arguments.first)
        with step("resume"):
            produce(configs, arguments, arguments.more, "none")
            group_step(configs, arguments, arguments.more)


if __name__ == "__main__":
    main()
