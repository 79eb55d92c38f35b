"""A Flink job copies a topic to another one, exactly once, although it is killed: by a transaction of each checkpoint."""

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

import ottla

from .clients.environments import Jars
from .committed import committed_messages
from .conftest import PARTITIONS, Cluster
from .programs import command_of, interop_only, running, wait_until

FLINK = Jars(
    (
        "org.apache.flink:flink-connector-kafka:4.0.1-2.0",
        "org.apache.flink:flink-connector-base:2.0.0",
        "org.apache.flink:flink-streaming-java:2.0.0",
        "org.apache.flink:flink-clients:2.0.0",
        "org.slf4j:slf4j-nop:1.7.36",
    ),
    ("FlinkJob",),
)
KILLS = 3
pytestmark = pytest.mark.timeout(240)


@contextmanager
def writing(bootstrap: str, topic: str) -> Iterator[list[bytes]]:
    """Write values in the background; yields those that were sent, of which there will be more until the end."""
    sent: list[bytes] = []
    stopped = threading.Event()

    def write() -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        while not stopped.is_set():
            for _ in range(10):
                sent.append(b"%d" % len(sent))
                producer.produce(topic, sent[-1])
            producer.flush()
            time.sleep(0.02)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield sent
    finally:
        stopped.set()
        writer.join()


def committed(bootstrap: str, group: str, topic: str) -> int:
    """Return the sum of the offsets of a topic that a group has committed."""
    with ottla.Admin(bootstrap_servers=bootstrap) as admin:
        offsets = admin.list_consumer_group_offsets([group])[group]
        return sum(entry.offset for place, entry in offsets.items() if place.topic == topic)


@pytest.mark.parametrize("naming", ["INCREMENTING", "POOLING"])
def test_a_job_that_dies_copies_every_record_once(
    cluster: Cluster, topic: str, group: str, naming: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    interop_only(request, "it takes half a minute")
    flink = command_of(FLINK)
    copy = f"{topic}-copy"
    with ottla.Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([ottla.NewTopic(name, PARTITIONS) for name in (topic, copy)]).check()
    command = [*flink, cluster.bootstrap, topic, copy, group, naming, str(tmp_path / "checkpoints")]

    def copied() -> list[bytes]:
        messages = (
            message for partition in committed_messages(cluster.bootstrap, copy, PARTITIONS) for message in partition
        )
        return [value for message in messages if (value := message.value()) is not None]

    def wait_for_copies(process: subprocess.Popen[bytes], count: int) -> None:
        wait_until(process, lambda: len(copied()) >= count)

    with writing(cluster.bootstrap, topic) as sent:
        for _ in range(KILLS):
            with running(command) as process:
                wait_for_copies(process, len(copied()) + 500)
    with running(command) as process:
        wait_for_copies(process, len(sent))
        # A checkpoint with the end of the topic is complete: the job has nothing left to write.
        wait_until(process, lambda: committed(cluster.bootstrap, group, topic) == len(sent))
    values = copied()
    assert len(values) == len(set(values)), "records were copied twice"
    assert set(values) == set(sent)
