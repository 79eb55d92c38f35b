"""Transactions of real clients: confluent-kafka (librdkafka), aiokafka, Java's producer, and Kafka's own tool for operators."""

import asyncio
import shutil
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AIOTopicPartition
from aiokafka.errors import KafkaError as AIOKafkaError
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from ottla.testing import EmbeddedBroker
from tests.conformance.conftest import TopicFactory, Wire
from tests.conformance.transactions import TransactionalProducer

from .apache_kafka import SCRIPT, skip_without
from .clients.environments import Jars
from .conftest import PARTITIONS, Cluster
from .programs import command_of
from .test_confluent_kafka import create

SECONDS = 60
COUNT = 100
pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def transactional_id() -> str:
    return f"tx-{uuid.uuid4().hex[:12]}"


def read_all(bootstrap: str, topic: str, *, committed: bool = True, least: int = 0) -> list[str]:
    """The values of all partitions, as far as a reader gets now; at least so many are waited for."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    values: list[str] = []
    ended: set[int] = set()
    deadline = time.monotonic() + SECONDS
    while len(ended) < PARTITIONS or len(values) < least:
        assert time.monotonic() < deadline, (ended, len(values))
        message = consumer.poll(1)
        if message is None:
            continue
        error, value, partition = message.error(), message.value(), message.partition()
        assert partition is not None
        if error is not None:
            ended.add(partition)
        else:
            assert value is not None
            ended.discard(partition)
            values.append(value.decode())
    consumer.close()
    return values


def words(values: list[str]) -> Counter[str]:
    return Counter(value.split()[0] for value in values)


# librdkafka


def confluent(bootstrap: str, transactional_id: str, **configs: object) -> Producer:
    settings: dict[str, object] = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id}
    made = Producer(settings | {name.replace("_", "."): value for name, value in configs.items()})
    made.init_transactions(SECONDS)
    return made


def send(producer: Producer, topic: str, word: str, count: int = COUNT) -> None:
    for number in range(count):
        producer.produce(topic, f"{word} {number}".encode(), partition=number % PARTITIONS)
    assert producer.flush(SECONDS) == 0


def test_confluent_kafka_commits_and_aborts(cluster: Cluster, topic: str, transactional_id: str) -> None:
    create(cluster.bootstrap, topic)
    producer = confluent(cluster.bootstrap, transactional_id)
    for turn in range(6):
        producer.begin_transaction()
        send(producer, topic, f"{'aborted' if turn % 3 == 1 else 'committed'} {turn}")
        if turn % 3 == 1:
            producer.abort_transaction(SECONDS)
        else:
            producer.commit_transaction(SECONDS)
    producer.begin_transaction()
    producer.abort_transaction(SECONDS)
    assert words(read_all(cluster.bootstrap, topic, least=4 * COUNT)) == {"committed": 4 * COUNT}
    everything = words(read_all(cluster.bootstrap, topic, committed=False))
    assert everything == {"committed": 4 * COUNT, "aborted": 2 * COUNT}
    cluster.restart()
    assert words(read_all(cluster.bootstrap, topic, least=4 * COUNT)) == {"committed": 4 * COUNT}
    producer.begin_transaction()
    send(producer, topic, "later")
    producer.commit_transaction(SECONDS)
    counts = words(read_all(cluster.bootstrap, topic, least=5 * COUNT))
    assert counts == {"committed": 4 * COUNT, "later": COUNT}


def test_confluent_kafka_is_fenced_by_a_twin(cluster: Cluster, topic: str, transactional_id: str) -> None:
    create(cluster.bootstrap, topic)
    zombie = confluent(cluster.bootstrap, transactional_id)
    zombie.begin_transaction()
    send(zombie, topic, "zombie")
    twin = confluent(cluster.bootstrap, transactional_id)
    with pytest.raises(KafkaException) as caught:
        zombie.commit_transaction(SECONDS)
    assert caught.value.args[0].fatal()
    twin.begin_transaction()
    send(twin, topic, "twin")
    twin.commit_transaction(SECONDS)
    assert words(read_all(cluster.bootstrap, topic, least=COUNT)) == {"twin": COUNT}


def test_confluent_kafka_is_too_late(cluster: Cluster, topic: str, transactional_id: str) -> None:
    """The coordinator has aborted the transaction when the commit comes."""
    create(cluster.bootstrap, topic)
    producer = confluent(cluster.bootstrap, transactional_id, transaction_timeout_ms=1000)
    producer.begin_transaction()
    send(producer, topic, "late")
    send_plainly(cluster.bootstrap, topic)
    assert words(read_all(cluster.bootstrap, topic, least=COUNT)) == {"plain": COUNT}
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(SECONDS)
    error = caught.value.args[0]
    assert error.fatal() or error.txn_requires_abort()
    again = confluent(cluster.bootstrap, transactional_id)
    again.begin_transaction()
    send(again, topic, "again")
    again.commit_transaction(SECONDS)
    counts = words(read_all(cluster.bootstrap, topic, least=2 * COUNT))
    assert counts == {"plain": COUNT, "again": COUNT}


def send_plainly(bootstrap: str, topic: str, count: int = COUNT) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    send(producer, topic, "plain", count)


def test_confluent_kafka_reads_processes_and_writes(
    cluster: Cluster, topic: str, group: str, transactional_id: str
) -> None:
    source, target = f"{topic}-in", f"{topic}-out"
    for name in (source, target):
        create(cluster.bootstrap, name)
    send_plainly(cluster.bootstrap, source)
    producer = confluent(cluster.bootstrap, transactional_id)
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 50,
        }
    )
    consumer.subscribe([source])
    done, turn = 0, 0
    deadline = time.monotonic() + SECONDS
    while done < COUNT:
        assert time.monotonic() < deadline
        messages = [message for message in consumer.consume(15, timeout=0.5) if message.error() is None]
        if not messages:
            continue
        turn += 1
        producer.begin_transaction()
        for message in messages:
            value = message.value()
            assert value is not None
            producer.produce(target, value)
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), SECONDS)
        if turn % 3 == 0:
            producer.abort_transaction(SECONDS)
            for begin in first_offsets([(message.partition(), message.offset()) for message in messages], source):
                consumer.seek(begin)
        else:
            producer.commit_transaction(SECONDS)
            done += len(messages)
    consumer.close()
    values = read_all(cluster.bootstrap, target, least=COUNT)
    assert sorted(values) == sorted(f"plain {number}" for number in range(COUNT))
    assert committed(cluster.bootstrap, group, source) == COUNT


def first_offsets(read: list[tuple[int | None, int | None]], topic: str) -> list[TopicPartition]:
    """Return the first offset of each partition."""
    begins: dict[int, int] = {}
    for partition, offset in read:
        assert partition is not None
        assert offset is not None
        begins[partition] = min(offset, begins.get(partition, offset))
    return [TopicPartition(topic, partition, offset) for partition, offset in begins.items()]


def committed(bootstrap: str, group: str, topic: str) -> int:
    """The sum of the group's committed offsets."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    offsets = consumer.committed([TopicPartition(topic, index) for index in range(PARTITIONS)], timeout=SECONDS)
    consumer.close()
    return sum(max(0, part.offset) for part in offsets)


# aiokafka


def test_aiokafka(cluster: Cluster, topic: str, group: str, transactional_id: str) -> None:
    """Commit, abort, a fenced twin, offsets with the output; what it reads is committed."""
    create(cluster.bootstrap, topic)
    asyncio.run(_aiokafka(cluster.bootstrap, topic, group, transactional_id))
    assert words(read_all(cluster.bootstrap, topic, least=COUNT + 40)) == {"committed": COUNT, "twin": 40}
    assert committed(cluster.bootstrap, group, topic) == 7


async def _aiokafka(bootstrap: str, topic: str, group: str, transactional_id: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
    await producer.start()
    async with producer.transaction():
        await _send(producer, topic, "committed", COUNT)
    await producer.begin_transaction()
    await _send(producer, topic, "aborted", COUNT)
    await producer.abort_transaction()
    await producer.begin_transaction()
    await _send(producer, topic, "fenced", COUNT)
    twin = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
    await twin.start()
    with pytest.raises(AIOKafkaError):
        await producer.commit_transaction()
    await twin.begin_transaction()
    await _send(twin, topic, "twin", 40)
    await twin.send_offsets_to_transaction({AIOTopicPartition(topic, 0): 7}, group)
    await twin.commit_transaction()
    await twin.stop()
    await producer.stop()
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    await consumer.start()
    values: list[str] = []
    while len(values) < COUNT + 40:
        for records in (await consumer.getmany(timeout_ms=500)).values():
            values += [record.value.decode() for record in records]
    await consumer.stop()
    assert words(values) == {"committed": COUNT, "twin": 40}


async def _send(producer: AIOKafkaProducer, topic: str, word: str, count: int) -> None:
    sent = [
        await producer.send(topic, f"{word} {number}".encode(), partition=number % PARTITIONS)
        for number in range(count)
    ]
    await asyncio.gather(*sent)


# Java


def client(version: str) -> Jars:
    return Jars((f"org.apache.kafka:kafka-clients:{version}", "org.slf4j:slf4j-nop:1.7.36"), ("Transactions",))


@pytest.fixture(params=["4.4.0", "3.9.1"], ids=["java-4.4", "java-3.9"])
def java(request: pytest.FixtureRequest) -> Callable[..., list[str]]:
    """Runs the Java program with transactions of version 2 (4.4) and 1 (3.9); what it prints, by line."""
    command = command_of(client(request.param))

    def run(*arguments: str) -> list[str]:
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout.splitlines()

    return run


def test_java_commits_aborts_and_is_fenced(
    cluster: Cluster, topic: str, transactional_id: str, java: Callable[..., list[str]]
) -> None:
    create(cluster.bootstrap, topic)
    output = java("write", cluster.bootstrap, transactional_id, topic)
    assert output in (["ProducerFencedException"], ["InvalidProducerEpochException"])
    assert words(read_all(cluster.bootstrap, topic, least=40)) == {"committed": 20, "twin": 20}


def test_java_reads_processes_and_writes(
    cluster: Cluster, topic: str, group: str, transactional_id: str, java: Callable[..., list[str]]
) -> None:
    source, target = f"{topic}-in", f"{topic}-out"
    for name in (source, target):
        create(cluster.bootstrap, name)
    send_plainly(cluster.bootstrap, source)
    output = java("loop", cluster.bootstrap, transactional_id, source, target, group, str(COUNT))
    assert output == [f"done {COUNT}"]
    values = read_all(cluster.bootstrap, target, least=COUNT)
    assert sorted(values) == sorted(f"plain {number} done" for number in range(COUNT))
    assert committed(cluster.bootstrap, group, source) == COUNT


# Kafka's tool


@pytest.fixture
def lenient(request: pytest.FixtureRequest) -> Iterator[str]:
    """A broker that lets transactions hang: transaction.partition.verification.enable=false. The one that `--broker` names must
    be such a one too.
    """
    skip_without("kafka-tools-4.3.1", request)
    address = request.config.getoption("--broker")
    if address:
        yield str(address)
        return
    with EmbeddedBroker({"transaction.partition.verification.enable": "false"}) as broker:
        yield broker.bootstrap_servers


def tool(bootstrap: str, *arguments: str) -> list[list[str]]:
    """Run kafka-transactions; the words of the lines that it prints."""
    command = [str(SCRIPT), "tool", "org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", bootstrap]
    assert shutil.which("java")
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return [line.split() for line in done.stdout.splitlines()]


def test_kafkas_tool_finds_and_aborts_a_hanging_transaction(lenient: str) -> None:
    host, _, port = lenient.rpartition(":")
    wire = Wire((host, int(port)), is_kafka=False)
    topic = TopicFactory(wire)(PARTITIONS)
    known, hangs = TransactionalProducer(wire), TransactionalProducer(wire)
    known.produce(topic, 1)
    hangs.produce(topic, 0, version=11)  # the partition was never added: nobody will end this
    header, *listed = tool(lenient, "list")
    assert header == ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"]
    states = {line[0]: line[2:] for line in listed}
    assert states[known.transactional_id] == [str(known.producer_id), "Ongoing"]
    assert states[hangs.transactional_id] == [str(hangs.producer_id), "Empty"]
    header, row = tool(lenient, "describe", "--transactional-id", known.transactional_id)
    by_column = dict(zip(header, row, strict=True))
    assert (by_column["TransactionState"], by_column["TopicPartitions"]) == ("Ongoing", f"{topic.name}-1")
    header, row = tool(lenient, "describe-producers", "--topic", topic.name, "--partition", "0")
    by_column = dict(zip(header, row, strict=True))
    assert (by_column["ProducerId"], by_column["CurrentTransactionStartOffset"]) == (str(hangs.producer_id), "0")
    arguments = ["--topic", topic.name, "--max-transaction-timeout", "0"]
    found_hanging = tool(lenient, "find-hanging", *arguments)
    assert [line[:3] for line in found_hanging[1:]] == [[topic.name, "0", str(hangs.producer_id)]]
    tool(lenient, "abort", "--topic", topic.name, "--partition", "0", "--start-offset", "0")
    assert tool(lenient, "find-hanging", *arguments)[1:] == []
    assert read_all(lenient, topic.name) == []
    assert read_all(lenient, topic.name, committed=False) != []
    wire.close()
