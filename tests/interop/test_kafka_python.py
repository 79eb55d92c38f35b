"""kafka-python: every compression, commit, restart and resume, a group of two through a rebalance."""

import threading
import time
import warnings
from collections.abc import Callable, Iterator

import pytest

with warnings.catch_warnings():
    warnings.filterwarnings(
        "ignore", r"\w+_text is deprecated", DeprecationWarning
    )  # kafka-python reads its schemas so
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import NewTopic
    from kafka.errors import KafkaError

from .conftest import CODECS, PARTITIONS, RECORDS, SHARES, Cluster


def create(bootstrap: str, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.create_topics([NewTopic(topic, PARTITIONS, -1)])
    finally:
        admin.close()


def produce(bootstrap: str, topic: str, numbers: range, codec: str = "none") -> None:
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        enable_idempotence=True,
        compression_type=None if codec == "none" else codec,
        linger_ms=5,
    )
    sent = [
        producer.send(topic, b"value %d" % number, key=b"key %d" % number, headers=[("n", b"%d" % number)])
        for number in numbers
    ]
    for future in sent:
        future.get(timeout=30)
    producer.close()


def consumer(bootstrap: str, group: str, topic: str) -> KafkaConsumer:
    return KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=200,
        fetch_max_wait_ms=50,
        metadata_max_age_ms=500,  # it may join before it knows the partitions, and looks again only then
    )


MEMBERS: list["Member"] = []


class Member(threading.Thread):
    """A consumer that polls in a thread of its own: a member that does not poll holds up the rebalance of the others."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.consumer = consumer(bootstrap, group, topic)
        self.numbers: list[int] = []
        self.assigned = 0
        self.position = 0
        self._leave = threading.Event()
        self.failure: BaseException | None = None
        MEMBERS.append(self)
        self.start()

    def run(self) -> None:
        try:
            while not self._leave.is_set():
                self.numbers += numbers_of(self.consumer)
                parts = self.consumer.assignment()
                try:
                    self.position = sum(self.consumer.position(part, timeout_ms=10_000) for part in parts)
                except KafkaError:  # a rebalance took one of them away in the meantime
                    continue
                self.assigned = len(parts)
            self.consumer.commit()
            self.consumer.close()
        except BaseException as failure:  # noqa: BLE001  shown by `leave`
            self.failure = failure

    def leave(self) -> None:
        """Commit and leave the group."""
        self.stop()
        assert self.failure is None
        assert not self.is_alive()

    def stop(self) -> None:
        self._leave.set()
        self.join(30)


@pytest.fixture(autouse=True)
def _nobody_stays(cluster: Cluster, sockets_of_kafka_python: None) -> Iterator[None]:
    yield
    for member in MEMBERS:
        member.stop()
    MEMBERS.clear()


def numbers_of(consumer: KafkaConsumer) -> list[int]:
    """Poll once; return the numbers of the records.

    A poll that ends between the answers to JoinGroup and to SyncGroup may lose an assignment for good (kafka-python
    3.0.12: `need_rejoin` compares snapshots that are already those of the unfinished join, so that no call asks for its
    result, and the heartbeat stays off until the session ends). Without partitions we therefore wait a long time.
    """
    numbers = []
    for records in consumer.poll(timeout_ms=50 if consumer.assignment() else 20_000).values():
        for record in records:
            assert list(record.headers) == [("n", record.key[4:])]
            numbers.append(int(record.value[6:]))
    return numbers


def wait(until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 90
    while not until():
        assert [member.failure for member in MEMBERS if member.failure is not None] == []
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


def test_commit_restart_resume_with_every_compression(cluster: Cluster, topic: str, group: str) -> None:
    create(cluster.bootstrap, topic)
    for part, codec in zip(SHARES, CODECS, strict=True):
        produce(cluster.bootstrap, topic, part, codec)
    first = Member(cluster.bootstrap, group, topic)
    wait(lambda: len(first.numbers) >= RECORDS)
    first.leave()
    assert sorted(first.numbers) == list(range(RECORDS))
    produce(cluster.bootstrap, topic, range(RECORDS, 2 * RECORDS))
    cluster.restart()
    second = Member(cluster.bootstrap, group, topic)
    wait(lambda: len(second.numbers) >= RECORDS)
    second.leave()
    assert sorted(second.numbers) == list(range(RECORDS, 2 * RECORDS))


def test_two_members_share_a_topic_and_one_takes_over(cluster: Cluster, topic: str, group: str) -> None:
    create(cluster.bootstrap, topic)
    produce(cluster.bootstrap, topic, range(RECORDS))
    one, two = (Member(cluster.bootstrap, group, topic) for _ in range(2))
    wait(lambda: one.assigned == two.assigned == 2 and one.position + two.position == RECORDS)
    assert set(one.numbers + two.numbers) == set(range(RECORDS))
    two.leave()
    wait(lambda: one.assigned == PARTITIONS)
    # No restart under its feet: kafka-python forgets to close a socket whose connect is refused, and warnings are errors.
    produce(cluster.bootstrap, topic, range(RECORDS, 2 * RECORDS))
    wait(lambda: set(range(RECORDS, 2 * RECORDS)) <= set(one.numbers))
    one.leave()
    last = consumer(cluster.bootstrap, group, topic)
    committed = [last.committed(TopicPartition(topic, index)) for index in range(PARTITIONS)]
    last.close()
    assert sum(committed) == 2 * RECORDS
