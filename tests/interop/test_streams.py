"""A Kafka Streams application, mostly on the classic protocol: a word count with a repartition and a changelog topic, stopped
and started in the middle, counts every word exactly. `make interop` runs it.
"""

import shutil
import subprocess
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.testing import KafkaCluster

from .clients.environments import Jars
from .conftest import PARTITIONS, Cluster
from .programs import command_of, interop_only

STREAMS = Jars(("org.apache.kafka:kafka-streams:4.3.1", "org.slf4j:slf4j-nop:1.7.36"), ("WordCount",))
WORDS = ["what", "one", "word", "says", "another", "word", "hears", "and", "a", "third", "word", "forgets"]
SECONDS = 60
pytestmark = pytest.mark.timeout(240)


class Application:
    """The word count as a process."""

    def __init__(self, command: list[str], errors: Path) -> None:
        self._errors = errors
        with errors.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self._runs = threading.Event()
        self._ears = threading.Thread(target=self._listen)
        self._ears.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.strip() == "running":
                self._runs.set()

    def until_it_runs(self) -> None:
        assert self._runs.wait(SECONDS), self._errors.read_text(encoding="utf-8")

    def stop(self) -> None:
        """Close it in good order."""
        assert self.process.stdin is not None
        self.process.stdin.write("stop\n")
        self.process.stdin.close()
        assert self.process.wait(SECONDS) == 0, self._errors.read_text(encoding="utf-8")

    def close(self) -> None:
        """Not there any more, whatever came before."""
        self.process.kill()
        self.process.wait()
        self._ears.join()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()


class Counts:
    """The output as a consumer sees it that waits for transactions to end: word -> all its counts in order."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": topic, "isolation.level": "read_committed"}
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        self.of: defaultdict[str, list[int]] = defaultdict(list)

    def until(self, enough: Callable[["Counts"], bool]) -> None:
        deadline = time.monotonic() + SECONDS
        while not enough(self):
            assert time.monotonic() < deadline, dict(self.latest())
            for message in self._consumer.consume(1000, timeout=0.1):
                assert message.error() is None
                key, value = message.key(), message.value()
                assert key is not None
                assert value is not None
                self.of[key.decode()].append(int(value))

    def latest(self) -> Counter[str]:
        return Counter({word: counts[-1] for word, counts in self.of.items()})

    def close(self) -> None:
        self._consumer.close()


def write(bootstrap: str, topic: str, lines: range) -> Counter[str]:
    """Lines of four words; how often each word is in them."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    written = Counter[str]()
    for number in lines:
        words = [WORDS[(number * step) % len(WORDS)] for step in (1, 2, 3, 5)]
        written.update(words)
        producer.produce(topic, " ".join(words).encode(), partition=number % PARTITIONS)
    assert producer.flush(30) == 0
    return written


def has_counted(written: Counter[str], counts: Counts) -> bool:
    return counts.latest() == written


def topics_of(bootstrap: str, application: str) -> set[str]:
    """The topics that the application made for itself."""
    listed = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=10).topics
    return {name.removeprefix(f"{application}-") for name in listed if name.startswith(f"{application}-")}


@contextmanager
def running(command: list[str], errors: Path) -> Iterator[Application]:
    application = Application(command, errors)
    try:
        application.until_it_runs()
        yield application
    finally:
        application.close()


@pytest.fixture
def command(request: pytest.FixtureRequest) -> list[str]:
    """Command of the application."""
    interop_only(request, "it takes half a minute")
    return command_of(STREAMS)


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_a_word_count_stopped_in_the_middle_is_exact(
    cluster: Cluster, topic: str, group: str, guarantee: str, tmp_path: Path, command: list[str]
) -> None:
    output, state, errors = f"{topic}-counts", tmp_path / "state", tmp_path / "errors"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for made in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (topic, output)]).values():
        made.result(timeout=30)
    command += [cluster.bootstrap, group, topic, output, str(state), guarantee]
    written = write(cluster.bootstrap, topic, range(300))
    with closing(Counts(cluster.bootstrap, output)) as counts:
        with running(command, errors) as application:
            counts.until(lambda counts: counts.latest() == written)
            written += write(cluster.bootstrap, topic, range(300, 3000))
            counts.until(lambda counts: counts.latest().total() > 1500)
            application.stop()
        assert topics_of(cluster.bootstrap, group) == {"counts-changelog", "words-repartition"}
        shutil.rmtree(state)  # what it knows is in the changelog
        with running(command, errors) as application:
            counts.until(lambda counts: counts.latest() == written)
            written += write(cluster.bootstrap, topic, range(3000, 4000))
            if guarantee == "at_least_once":
                counts.until(lambda counts: counts.latest() == written)
                application.stop()
            else:
                counts.until(lambda counts: counts.latest().total() > 12_500)
        if (
            guarantee == "exactly_once_v2"
        ):  # it was killed: its transactions are ended by the next one, of the same state
            with running(command, errors) as application:
                counts.until(lambda counts: counts.latest() == written)
                application.stop()
        counts.until(lambda counts: counts.latest() == written)
        assert {word: list(range(1, total + 1)) for word, total in written.items()} == counts.of


@pytest.mark.parametrize("protocol", ["classic", "streams"])
def test_a_word_count_is_exact_while_brokers_die(
    kafka_cluster: Callable[..., KafkaCluster], tmp_path: Path, command: list[str], protocol: str
) -> None:
    """Every broker is killed once: coordinators, leaders of changelogs and the controller are among them."""
    cluster = kafka_cluster(3, {"default.replication.factor": 3, "min.insync.replicas": 2})
    for name in ("lines", "lines-counts"):
        cluster.create_topic(name, PARTITIONS)
    servers = cluster.bootstrap_servers
    command += [servers, "counting", "lines", "lines-counts", str(tmp_path / "state"), "exactly_once_v2", "3", "1"]
    command.append(protocol)
    written = write(servers, "lines", range(300))
    with closing(Counts(servers, "lines-counts")) as counts, running(command, tmp_path / "errors") as application:
        counts.until(lambda counts: counts.latest() == written)
        for round_number, node_id in enumerate(cluster.brokers):
            first = 300 + 500 * round_number
            written += write(servers, "lines", range(first, first + 250))
            cluster.kill(node_id)
            written += write(servers, "lines", range(first + 250, first + 500))
            counts.until(partial(has_counted, written))
            cluster.restart(node_id)
            in_sync = [partition for topic in cluster.image.topics.values() for partition in topic.partitions]
            deadline = time.monotonic() + SECONDS
            while not all(len(partition.isr) == 3 for partition in in_sync):
                assert time.monotonic() < deadline
                time.sleep(0.05)
                in_sync = [partition for topic in cluster.image.topics.values() for partition in topic.partitions]
        application.stop()
        counts.until(lambda counts: counts.latest() == written)
        assert {word: list(range(1, total + 1)) for word, total in written.items()} == counts.of
