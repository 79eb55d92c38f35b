"""Ottla's clients beside confluent-kafka on three nodes of Apache Kafka that are killed and frozen, one after the other.

Replication factor 3, min.insync.replicas 2, so nothing that is acknowledged may be lost. While nodes fail, both clients write
with an idempotent and a transactional producer, and read in groups of every protocol; then the topics are read with a client
that took no part, and compared record by record. With `--interop`; `FAILURES_SECONDS` says how long (90). It prints figures.
"""

import json
import os
import random
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla import (
    Admin,
    ConfigChange,
    ConfigResource,
    Consumer,
    KafkaError,
    Producer,
    ResourceType,
    ShareConsumer,
)
from tests.free_ports import free_ports

from .apache_kafka import ROOT, skip_without

SCRIPT: Final = ROOT / "bench" / "reference" / "kafka-cluster"
NODES: Final = 3
PARTITIONS: Final = 6
SECONDS: Final = float(os.environ.get("FAILURES_SECONDS", "90"))
RATE: Final = 500.0
"""Records a second of each producer."""
pytestmark = pytest.mark.timeout(600 + 5 * SECONDS)


class KafkaCluster:
    """Three nodes of Apache Kafka, as the script runs them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.bootstrap = (
            self._run("start", str(NODES), str(free_ports(101 + NODES)[0]), str(directory)).strip().splitlines()[-1]
        )
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def _run(self, *arguments: str) -> str:
        log = self.directory.parent / "script.log"
        with log.open("w") as out:  # nodes inherit it: a pipe would never end
            done = subprocess.run([str(SCRIPT), *arguments], stdout=out, stderr=out, timeout=300, check=False)
        assert done.returncode == 0, log.read_text()
        return log.read_text()

    def do(self, verb: str, node: int) -> None:
        """kill, up, freeze, thaw."""
        self._run(verb, str(node), str(self.directory))

    def create(self, *topics: str) -> None:
        made = self.admin.create_topics([NewTopic(topic, PARTITIONS, NODES) for topic in topics])
        for future in made.values():
            future.result(60)
        wait_until(self.is_whole, 60)

    def is_whole(self) -> bool:
        """Return whether all replicas of every partition are in sync."""
        try:
            metadata = self.admin.list_topics(timeout=10)
        except confluent_kafka.KafkaException:
            return False
        partitions = [partition for topic in metadata.topics.values() for partition in topic.partitions.values()]
        return len(metadata.brokers) == NODES and all(
            len(partition.isrs) == len(partition.replicas) for partition in partitions
        )

    def answers(self, node: int) -> bool:
        """Return whether a node can be connected to."""
        host, port = self.bootstrap.split(",")[node - 1].split(":")
        try:
            socket.create_connection((host, int(port)), 1).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        self._run("stop", str(self.directory))


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.2)


class Worker(threading.Thread):
    """A thread that works until `stopping` is set; what it raises fails the test.

    figures  what it has done, by name
    """

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.stopping = threading.Event()
        self.error: BaseException | None = None
        self.figures: Counter[str] = Counter()
        self.longest = 0.0

    def run(self) -> None:
        try:
            self.work()
        except BaseException as error:  # noqa: BLE001  (the test raises it)
            self.error = error

    def work(self) -> None:
        raise NotImplementedError

    def note(self, begun: float) -> None:
        """A call took this long."""
        self.longest = max(self.longest, time.monotonic() - begun)


class PlainWriter(Worker):
    """An idempotent producer: records with rising numbers, at a steady rate.

    acknowledged  the numbers that were
    """

    def __init__(self, client: str, cluster: KafkaCluster, topic: str) -> None:
        super().__init__(f"{client} idempotent producer")
        self.topic = topic
        self.acknowledged: set[int] = set()
        self.failed: list[str] = []
        configs = {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 5}
        self.producer: Any = (
            Producer(configs) if client == "ottla" else confluent_kafka.Producer({**configs, "log_level": 0})
        )

    def work(self) -> None:
        count, begun = 0, time.monotonic()
        while not self.stopping.is_set():
            due = int((time.monotonic() - begun) * RATE)
            while count < due:
                self.producer.produce(
                    self.topic, b"%d" % count, key=b"%d" % (count % 97), on_delivery=self._settle(count)
                )
                count += 1
            self.producer.poll(0)
            time.sleep(0.005)
        begun = time.monotonic()
        assert self.producer.flush(150) == 0, "records have no outcome"
        self.note(begun)
        self.figures.update(produced=count, acknowledged=len(self.acknowledged), failed=len(self.failed))

    def _settle(self, number: int) -> Callable[[Any, Any], None]:
        def settle(error: Any, delivered: Any) -> None:
            del delivered
            if error is None:
                self.acknowledged.add(number)
            else:
                self.failed.append(str(error))

        return settle


class TransactionWriter(Worker):
    """Transactions of ten records each; a third is aborted.

    committed, aborted  the records of transactions whose outcome is known
    """

    def __init__(self, client: str, cluster: KafkaCluster, topic: str) -> None:
        super().__init__(f"{client} transactional producer")
        self.client, self.topic = client, topic
        self.committed: set[int] = set()
        self.aborted: set[int] = set()
        self._dice = random.Random(1)
        configs = {"bootstrap.servers": cluster.bootstrap, "transactional.id": f"{client}-tx", "linger.ms": 5}
        self.producer: Any = (
            Producer(configs) if client == "ottla" else confluent_kafka.Producer({**configs, "log_level": 0})
        )

    def _eventually(self, call: Callable[[float], None]) -> None:
        """Call again what may be called again."""
        while True:
            begun = time.monotonic()
            try:
                call(8.0)
                return
            except KafkaError as error:
                self.figures["timeouts"] += 1
                if not error.retriable:
                    raise
            except confluent_kafka.KafkaException as error:
                self.figures["timeouts"] += 1
                if not error.args[0].retriable():
                    raise
            finally:
                self.note(begun)

    def work(self) -> None:
        self._eventually(self.producer.init_transactions)
        count = 0
        while not self.stopping.is_set():
            numbers = range(count, count + 10)
            count += 10
            self.producer.begin_transaction()
            aborts = self._dice.random() < 1 / 3
            try:
                for number in numbers:
                    self.producer.produce(self.topic, b"%d" % number, key=b"%d" % (number % 97))
                if not aborts:
                    self._eventually(self.producer.commit_transaction)
            except (KafkaError, confluent_kafka.KafkaException, BufferError) as error:
                # A part of it failed: it is aborted. Anything else ends this producer.
                fatal = isinstance(error, confluent_kafka.KafkaException) and error.args[0].fatal()
                if fatal or (isinstance(error, KafkaError) and "abort_transaction" not in str(error)):
                    raise
                self.figures["failed"] += 1
                aborts = True
            if aborts:
                self._eventually(self.producer.abort_transaction)
            (self.aborted if aborts else self.committed).update(numbers)
            time.sleep(0.01)
        self.figures.update(committed=len(self.committed), aborted=len(self.aborted))


class Reader(Worker):
    """A member of a group that reads a topic, and commits once a second.

    read  how often each number came
    """

    def __init__(self, client: str, cluster: KafkaCluster, topic: str, group: str, **configs: str) -> None:
        super().__init__(f"{client} {group}")
        self.client, self.topic = client, topic
        self.read: Counter[int] = Counter()
        settings = {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **configs,
        }
        self.consumer: Any = (
            Consumer(settings) if client == "ottla" else confluent_kafka.Consumer({**settings, "log_level": 0})
        )

    def work(self) -> None:
        self.consumer.subscribe([self.topic])
        committed = last = time.monotonic()
        while not self.stopping.is_set():
            records = self.consumer.consume(500, 0.5)
            for record in records:
                if self.client == "ottla":
                    self.read[int(record.value)] += 1
                elif record.error() is None:
                    self.read[int(record.value())] += 1
            if records:
                self.note(last)  # how long nothing came
                last = time.monotonic()
            if time.monotonic() - committed > 1:
                self._commit()
                committed = time.monotonic()
        self.consumer.close()
        self.figures.update(read=len(self.read), again=self.read.total() - len(self.read))

    def _commit(self) -> None:
        try:
            if self.client == "ottla":
                self.consumer.commit(timeout=5)
            else:
                self.consumer.commit(asynchronous=False)
        except (KafkaError, confluent_kafka.KafkaException):
            self.figures["commits failed"] += 1


class ShareReader(Worker):
    """A member of a share group."""

    def __init__(self, cluster: KafkaCluster, topic: str) -> None:
        super().__init__("ottla share group")
        self.topic = topic
        self.read: Counter[int] = Counter()
        group = ConfigResource(ResourceType.GROUP, "shared")
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            changed = admin.incremental_alter_configs({group: [ConfigChange("share.auto.offset.reset", "earliest")]})
        assert not changed.errors
        self.consumer = ShareConsumer(bootstrap_servers=cluster.bootstrap, group_id="shared")

    def work(self) -> None:
        self.consumer.subscribe([self.topic])
        while not self.stopping.is_set():
            for record in self.consumer.poll(0.5):
                self.read[int(record.value or b"")] += 1
        self.consumer.close()
        self.figures.update(read=len(self.read), again=self.read.total() - len(self.read))


class Failures(Worker):
    """Kills and freezes nodes, one after the other, and waits until the cluster is whole again."""

    def __init__(self, cluster: KafkaCluster) -> None:
        super().__init__("failures")
        self._cluster = cluster
        self._dice = random.Random(int(os.environ.get("FAILURES_SEED", "7")))

    def work(self) -> None:
        cluster, dice = self._cluster, self._dice
        while not self.stopping.is_set():
            node = dice.randint(1, NODES)
            if dice.random() < 0.5:
                cluster.do("kill", node)
                self.figures["kills"] += 1
                time.sleep(dice.choice([0.5, 4, 12]))
                cluster.do("up", node)
                wait_until(lambda node=node: cluster.answers(node), 60)  # type: ignore[misc]
            else:
                cluster.do("freeze", node)
                self.figures["freezes"] += 1
                time.sleep(dice.choice([2, 12, 20]))
                cluster.do("thaw", node)
            wait_until(cluster.is_whole, 120)
            time.sleep(2)


def values(cluster: KafkaCluster, topic: str, *, committed: bool) -> list[list[int]]:
    """The numbers in each partition, in order, by a client that took no part."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "unused",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    partitions = []
    for index in range(PARTITIONS):
        consumer.assign([confluent_kafka.TopicPartition(topic, index, 0)])
        numbers: list[int] = []
        while True:
            record = consumer.poll(60)
            assert record is not None, f"{topic}-{index} cannot be read"
            error = record.error()
            if error is not None:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
                break
            numbers.append(int(record.value() or b""))
        partitions.append(numbers)
    consumer.close()
    return partitions


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KafkaCluster]:
    skip_without("kafka-4.4.0", request)
    made = KafkaCluster(tmp_path / "cluster")
    yield made
    made.stop()


def test_nothing_is_lost_or_doubled_while_nodes_fail(cluster: KafkaCluster, capsys: pytest.CaptureFixture[str]) -> None:
    clients = ("ottla", "confluent")
    cluster.create(*(f"{client}-{kind}" for client in clients for kind in ("plain", "tx")))
    plain = {client: PlainWriter(client, cluster, f"{client}-plain") for client in clients}
    transactions = {client: TransactionWriter(client, cluster, f"{client}-tx") for client in clients}
    readers = [
        Reader(client, cluster, "ottla-plain", f"{client}-{protocol}", **{"group.protocol": protocol})
        for client in clients
        for protocol in ("classic", "consumer")
        for _ in range(2)
    ]
    sharing = ShareReader(cluster, "ottla-plain")
    failures = Failures(cluster)
    writers: list[Worker] = [*plain.values(), *transactions.values()]
    workers: list[Worker] = [*writers, *readers, sharing]
    for worker in (*workers, failures):
        worker.start()
    deadline = time.monotonic() + SECONDS
    ours = [worker for worker in (*workers, failures) if not worker.name.startswith("confluent")]
    while time.monotonic() < deadline and not any(worker.error for worker in ours):
        time.sleep(0.5)
    end(failures, 300)
    for writer in writers:
        end(writer, 300)
    numbers = plain["ottla"].acknowledged
    groups: dict[str, list[Reader]] = {}
    for reader in readers:
        groups.setdefault(reader.name, []).append(reader)
    unread = {name: settle_group(members, numbers) for name, members in groups.items()}
    unread[sharing.name] = settle_group([sharing], numbers)
    for worker in (*readers, sharing):
        end(worker, 120)
    with capsys.disabled():
        print()  # noqa: T201
        for worker in (failures, *workers):
            summary = {"who": worker.name, **worker.figures, "longest_s": round(worker.longest, 1)}
            print(json.dumps(summary | ({"error": str(worker.error)} if worker.error else {})))  # noqa: T201
        print(json.dumps({"records never read": {name: len(missing) for name, missing in unread.items()}}))  # noqa: T201
        judged = {client: judge(cluster, plain[client], transactions[client]) for client in clients}
        for client, wrong in judged.items():
            print(json.dumps({"who": client, **{what: len(which) for what, which in wrong.items()}}))  # noqa: T201
    assert not any(judged["ottla"].values()), judged["ottla"]
    assert not any(missing for name, missing in unread.items() if name.startswith("ottla")), unread


def judge(cluster: KafkaCluster, writer: PlainWriter, transactions: TransactionWriter) -> dict[str, list[int]]:
    """Return the records that violate a guarantee, by kind of violation; all lists are empty if there are no violations."""
    partitions = values(cluster, writer.topic, committed=False)
    times = Counter(number for partition in partitions for number in partition)
    visible = Counter(
        number for partition in values(cluster, transactions.topic, committed=True) for number in partition
    )
    return {
        "lost": sorted(writer.acknowledged - times.keys()),
        "doubled": sorted(number for number, count in times.items() if count > 1),
        "out of order": [late for partition in partitions for early, late in pairwise(partition) if late < early],
        "committed and not visible": sorted(transactions.committed - visible.keys()),
        "aborted and visible": sorted(transactions.aborted & visible.keys()),
        "visible twice": sorted(number for number, count in visible.items() if count > 1),
    }


def settle_group(members: "list[Reader] | list[ShareReader]", numbers: set[int]) -> list[int]:
    """Wait until a group has read all numbers; those that it has not after two minutes."""
    deadline = time.monotonic() + 120
    while True:
        missing = numbers - {number for member in members for number in dict(member.read)}
        if not missing or time.monotonic() > deadline or any(member.error for member in members):
            return sorted(missing)
        time.sleep(0.5)


def end(worker: Worker, seconds: float) -> None:
    """Stop it. Raises what it raised, unless it is of the other client."""
    worker.stopping.set()
    worker.join(seconds)
    if worker.error is not None and not worker.name.startswith("confluent"):
        raise AssertionError(f"{worker.name}: {worker.error!r}") from worker.error
    assert not worker.is_alive(), f"{worker.name} does not stop"
