"""The first offset of a consumer without a committed offset, or with one out of range: auto.offset.reset."""

import subprocess
import time

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from .clients.environments import Jars
from .conftest import Cluster
from .programs import command_of

OLD, NEW = 10, 10
END = OLD + NEW
BEYOND = 1000
JAVA = Jars(("org.apache.kafka:kafka-clients:4.4.0", "org.slf4j:slf4j-nop:1.7.36"), ("Reset",))
# setting, what is committed -> where it begins, or why it does not
BEGINS: dict[tuple[str, int | None], int | str] = {
    ("earliest", None): 0,
    ("earliest", 5): 5,
    ("earliest", BEYOND): 0,
    ("latest", None): END,
    ("latest", 5): 5,
    ("latest", BEYOND): END,
    ("none", None): "NoOffsetForPartitionException",
    ("none", 5): 5,
    ("none", BEYOND): "OffsetOutOfRangeException",
    ("by_duration:PT1H", None): OLD,
    ("by_duration:PT1H", 5): 5,
    ("by_duration:PT1H", BEYOND): OLD,
}


@pytest.fixture
def filled(cluster: Cluster, topic: str) -> str:
    """A topic of one partition: OLD records of two hours ago, and NEW ones."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 1, -1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    now = int(time.time() * 1000)
    for timestamp, count in ((now - 7_200_000, OLD), (now, NEW)):
        for _ in range(count):
            producer.produce(topic, b"value", timestamp=timestamp)
        assert producer.flush(30) == 0
    return topic


def begins(bootstrap: str, group: str, topic: str, reset: str, committed: int | None) -> int | str:
    """Return the offset of the first record, END if no record can come, or the error's name."""
    reader = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": reset, "enable.auto.commit": False}
    )
    try:
        if committed is not None:
            reader.commit(offsets=[TopicPartition(topic, 0, committed)], asynchronous=False)
        reader.assign([TopicPartition(topic, 0)])
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            message = reader.poll(0.1)
            error = None if message is None else message.error()
            if error is not None:
                assert error.code() == KafkaError._AUTO_OFFSET_RESET
                return "_AUTO_OFFSET_RESET"
            offset = None if message is None else message.offset()
            if offset is not None:
                return offset
            # librdkafka has no position before the first record: nothing came for what is at the end.
            if reset == "latest" and committed != 5 and time.monotonic() > deadline - 28:
                return END
        raise TimeoutError
    finally:
        reader.close()


@pytest.mark.parametrize(("reset", "committed"), [key for key in BEGINS if key[0] in ("earliest", "latest", "none")])
def test_confluent_kafka(cluster: Cluster, filled: str, group: str, reset: str, committed: int | None) -> None:
    expected = BEGINS[reset, committed]
    setting = "error" if reset == "none" else reset
    result = begins(cluster.bootstrap, group, filled, setting, committed)
    assert result == ("_AUTO_OFFSET_RESET" if isinstance(expected, str) else expected)


def test_java(cluster: Cluster, filled: str, group: str) -> None:
    command = command_of(JAVA)
    done = subprocess.run(
        [*command, cluster.bootstrap, filled, group, str(END)], capture_output=True, text=True, timeout=100, check=False
    )
    results: dict[tuple[str, int | None], int | str] = {}
    for line in done.stdout.splitlines():
        reset, committed, result = line.split()
        results[reset, None if committed == "-" else int(committed)] = int(result) if result.isdecimal() else result
    assert results == BEGINS, done.stderr
