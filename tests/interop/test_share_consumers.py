"""Share groups of real clients: five consumers, one killed while it holds locks, the broker killed and started again. Every
record is processed at least once, and none is lost.

confluent-kafka's consumer always; with `--interop` Kafka's Java consumer and console-share-consumer too.
"""

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from tests.conformance.shares import configure
from tests.crash.conftest import Process

from .apache_kafka import ROOT, SCRIPT, skip_without
from .clients.environments import Jars
from .programs import command_of

RECORDS = 20_000
PARTITIONS = 3
MEMBERS = 5
OPTIONS = (
    "-o",
    "group.share.min.record.lock.duration.ms=1000",
    "-o",
    "group.share.heartbeat.interval.ms=1000",
    "-o",
    "group.share.min.heartbeat.interval.ms=1000",
    "-o",
    "group.share.max.delivery.count.limit=10",
)
JAVA = Jars(("org.apache.kafka:kafka-clients:4.4.0", "org.slf4j:slf4j-nop:1.7.36"), ("ShareMember",))
pytestmark = pytest.mark.timeout(240)


class Member:
    """A consumer in a process of its own, and what it has processed."""

    def __init__(self, command: list[str], bootstrap: str, group: str, topic: str) -> None:
        self.process = subprocess.Popen(
            [*command, bootstrap, group, topic],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
        )
        self.seen: list[str] = []
        self._ears = threading.Thread(target=self._listen, daemon=True)
        self._ears.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.seen.append(line.strip())

    def kill(self) -> None:
        self.process.kill()
        self.stop()

    def stop(self) -> None:
        """Ask it to end, and see that it does."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(20)
        self._ears.join(20)
        self.process.stdout.close()


def confluent() -> list[str]:
    return [sys.executable, "-m", "tests.interop.members.share_confluent"]


def java() -> list[str]:
    return command_of(JAVA)


@contextmanager
def members(broker: Process, command: list[str], group: str, topic: str) -> Iterator[list[Member]]:
    """Five of them; those that are left are stopped at the end."""
    begun = [Member(command, broker.bootstrap_servers, group, topic) for _ in range(MEMBERS)]
    try:
        yield begun
    finally:
        for member in begun:
            member.stop()


def wait_until(what: Callable[[], bool], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def prepare(broker: Process, group: str, topic: str, **configs: str) -> None:
    """A topic, and a group that reads it from its beginning."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, -1)])[topic].result(20)
    configure(broker.wire(), group, share_auto_offset_reset="earliest", **configs)


def produce(broker: Process, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all", "batch.size": 4096})
    for number in numbers:
        producer.produce(topic, value=b"%d" % number)
        if number % 1000 == 0:
            producer.flush(20)
    assert producer.flush(60) == 0


@pytest.mark.parametrize("command", [confluent, java])
def test_nothing_is_lost(request: pytest.FixtureRequest, tmp_path: Path, command: Callable[[], list[str]]) -> None:
    if command is java and not request.config.getoption("--interop"):
        pytest.skip("with --interop")
    program = command()
    broker = Process(tmp_path / "data", *OPTIONS)
    try:
        prepare(broker, "g", "t", share_record_lock_duration_ms="2000", share_delivery_count_limit="10")
        produce(broker, "t", range(RECORDS // 2))
        with members(broker, program, "g", "t") as begun:

            def seen() -> Counter[str]:
                return Counter(value for member in begun for value in list(member.seen))

            wait_until(lambda: all(member.seen for member in begun) or len(seen()) == RECORDS // 2)
            victim = max(begun, key=lambda member: len(member.seen))
            produce(broker, "t", range(RECORDS // 2, RECORDS * 3 // 4))
            victim.kill()
            port = broker.port
            broker.kill()
            broker = Process(tmp_path / "data", *OPTIONS, port=port)
            produce(broker, "t", range(RECORDS * 3 // 4, RECORDS))
            wait_until(lambda: len(seen()) == RECORDS)
            assert seen().keys() == {str(number) for number in range(RECORDS)}
    finally:
        if broker.runs:
            broker.kill()


@pytest.mark.parametrize("command", [confluent, java])
def test_a_group_that_is_set_back(
    request: pytest.FixtureRequest, tmp_path: Path, command: Callable[[], list[str]]
) -> None:
    """AlterShareGroupOffsets to the beginning: all is delivered again, accepted or not."""
    if command is java and not request.config.getoption("--interop"):
        pytest.skip("with --interop")
    program = command()
    broker = Process(tmp_path / "data", *OPTIONS)
    try:
        prepare(broker, "g", "t")
        produce(broker, "t", range(1000))
        everything = {str(number) for number in range(1000)}
        for turn in range(2):
            with members(broker, program, "g", "t") as begun:
                wait_until(lambda: {value for member in begun for value in list(member.seen)} == everything)
            if turn == 0:
                topics = [
                    AlterShareGroupOffsetsRequestTopic(
                        topic_name="t",
                        partitions=[
                            AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=0)
                            for index in range(PARTITIONS)
                        ],
                    )
                ]
                answer = broker.wire().send(AlterShareGroupOffsetsRequest(group_id="g", topics=topics), 0)
                assert answer.error_code == 0, answer.error_message
    finally:
        broker.kill()


@pytest.mark.parametrize(
    ("flags", "processed"), [([], 10), (["--release"], 10), (["--reject"], 10), (["--reject-message-on-error"], 10)]
)
def test_the_console_consumer(request: pytest.FixtureRequest, tmp_path: Path, flags: list[str], processed: int) -> None:
    """Kafka's own, which accepts what it prints unless it is told otherwise."""
    skip_without("kafka-tools-4.3.1", request)
    broker = Process(tmp_path / "data", *OPTIONS)
    try:
        prepare(broker, "g", "t")
        produce(broker, "t", range(10))
        command = [str(SCRIPT), "tool", "org.apache.kafka.tools.consumer.ConsoleShareConsumer"]
        command += ["--bootstrap-server", broker.bootstrap_servers, "--topic", "t", "--group", "g"]
        command += ["--max-messages", str(processed), "--timeout-ms", "20000", *flags]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        assert sorted(done.stdout.split(), key=int)[:10] == [str(number) for number in range(10)], done.stderr
    finally:
        broker.kill()
