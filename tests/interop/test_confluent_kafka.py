"""confluent-kafka (librdkafka): every compression, commit, restart and resume, a group of two through a rebalance."""

import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from .conftest import CODECS, PARTITIONS, RECORDS, SHARES, Cluster


def create(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(topic, PARTITIONS, -1)]).values():
        assert created.result(timeout=30) is None


def produce(bootstrap: str, topic: str, numbers: range, codec: str = "none") -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.type": codec, "linger.ms": 5}
    )
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    for number in numbers:
        headers: list[tuple[str, str | bytes | None]] = [("n", b"%d" % number)]
        producer.produce(topic, b"value %d" % number, b"key %d" % number, headers=headers, callback=delivered)
    assert producer.flush(30) == 0
    assert failures == []


def consumer(bootstrap: str, group: str, topic: str) -> Consumer:
    made = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 200,
            "fetch.wait.max.ms": 50,
        }
    )
    made.subscribe([topic])
    return made


def take(consumers: list[Consumer], until: Callable[[list[int]], bool]) -> list[int]:
    """Poll all in turn until `until(numbers so far)`; the numbers of the values."""
    numbers: list[int] = []
    deadline = time.monotonic() + 45
    while not until(numbers):
        assert time.monotonic() < deadline, f"{len(numbers)} records came"
        for member in consumers:
            for message in member.consume(100, timeout=0.05):
                error, key, value = message.error(), message.key(), message.value()
                assert error is None or error.retriable() or error.code() == KafkaError._ALL_BROKERS_DOWN, error
                if error is None:
                    assert key is not None
                    assert value is not None
                    assert message.headers() == [("n", key[4:])]
                    numbers.append(int(value[6:]))
    return numbers


def positions(consumers: list[Consumer]) -> int:
    """Return the sum of the members' positions over all partitions."""
    return sum(max(0, part.offset) for member in consumers for part in member.position(member.assignment()))


def assigned(*consumers: Consumer) -> list[int]:
    return [len(member.assignment()) for member in consumers]


def test_commit_restart_resume_with_every_compression(cluster: Cluster, topic: str, group: str) -> None:
    create(cluster.bootstrap, topic)
    for part, codec in zip(SHARES, CODECS, strict=True):
        produce(cluster.bootstrap, topic, part, codec)
    first = consumer(cluster.bootstrap, group, topic)
    assert sorted(take([first], lambda got: len(got) >= RECORDS)) == list(range(RECORDS))
    first.commit(asynchronous=False)
    first.close()
    produce(cluster.bootstrap, topic, range(RECORDS, 2 * RECORDS))
    cluster.restart()
    second = consumer(cluster.bootstrap, group, topic)
    assert sorted(take([second], lambda got: len(got) >= RECORDS)) == list(range(RECORDS, 2 * RECORDS))
    second.close()


def test_two_members_share_a_topic_and_one_takes_over(cluster: Cluster, topic: str, group: str) -> None:
    create(cluster.bootstrap, topic)
    produce(cluster.bootstrap, topic, range(RECORDS))
    one, two = (consumer(cluster.bootstrap, group, topic) for _ in range(2))
    both = [one, two]
    numbers = take(both, lambda _: assigned(one, two) == [2, 2] and positions(both) == RECORDS)
    assert set(numbers) == set(range(RECORDS))
    for member in both:
        member.commit(asynchronous=False)
    two.close()
    assert take([one], lambda _: assigned(one) == [PARTITIONS]) == []
    cluster.restart()
    produce(cluster.bootstrap, topic, range(RECORDS, 2 * RECORDS))
    assert sorted(take([one], lambda got: len(got) >= RECORDS)) == list(range(RECORDS, 2 * RECORDS))
    one.commit(asynchronous=False)
    committed = one.committed([TopicPartition(topic, index) for index in range(PARTITIONS)], timeout=10)
    assert sum(partition.offset for partition in committed) == 2 * RECORDS
    one.close()
