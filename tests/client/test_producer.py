"""The producer: where records go, what is said of them, retries, limits, transactions."""

import asyncio
import concurrent.futures
import threading
import time
from contextlib import suppress
from typing import Any

import pytest

from ottla import Admin, Consumer, Delivered, GroupMetadata, KafkaError, NewTopic, Producer, TopicPartition, aio
from ottla.client.errors import (
    BufferExhausted,
    FencedError,
    IllegalState,
    InvalidClientConfig,
    RecordTooLarge,
    UnknownTopic,
)

from .conftest import Read, fresh

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture
def producer(bootstrap_servers: str) -> Any:
    with Producer(bootstrap_servers=bootstrap_servers) as client:
        yield client


def test_everything_of_a_record_arrives(producer: Producer, topic: str, read: Read) -> None:
    producer.produce(topic, "text", key=b"k", partition=1, timestamp=1234, headers={"a": "1", "n": None})
    producer.produce(topic, None, partition=1, timestamp=1235, headers=[("a", b"1"), ("a", "2")])
    producer.produce(topic, b"", key="", partition=0, timestamp=1236)
    assert producer.flush(10) == 0
    first, second, third = read(topic, 3)
    assert (first.partition, first.key, first.value, first.timestamp, first.headers) == (0, b"", b"", 1236, [])
    assert (second.key, second.value, second.timestamp) == (b"k", b"text", 1234)
    assert second.headers == [("a", b"1"), ("n", None)]
    assert (third.key, third.value, third.headers) == (None, None, [("a", b"1"), ("a", b"2")])


def test_reports_come_from_poll_and_flush_in_the_callers_thread(producer: Producer, topic: str) -> None:
    reports: list[tuple[KafkaError | None, Delivered | None, str]] = []

    def report(error: KafkaError | None, delivered: Delivered | None) -> None:
        reports.append((error, delivered, threading.current_thread().name))

    for number in range(3):
        producer.produce(topic, str(number), partition=0, on_delivery=report, timestamp=number)
    assert len(producer) == 3
    assert producer.flush(10) == 0
    assert len(producer) == 0
    here = threading.current_thread().name
    assert reports == [(None, Delivered(topic, 0, number, number), here) for number in range(3)]
    producer.produce(topic, "x", partition=0, on_delivery=report)
    assert producer.poll(10) == 1


def test_a_future_for_each_record(producer: Producer, topic: str) -> None:
    futures = [producer.send(topic, str(number), partition=1, timestamp=7) for number in range(3)]
    assert [future.result(10) for future in futures] == [Delivered(topic, 1, number, 7) for number in range(3)]


@pytest.mark.parametrize("codec", CODECS)
def test_compression(bootstrap_servers: str, topic: str, read: Read, codec: str) -> None:
    with Producer(bootstrap_servers=bootstrap_servers, compression_type=codec) as producer:
        for number in range(2000):
            producer.produce(topic, f"value {number}" * 5, partition=0)
    values = [record.value for record in read(topic, 2000)]
    assert values == [(f"value {number}" * 5).encode() for number in range(2000)]


@pytest.mark.parametrize(("codec", "low", "high"), [("gzip", 1, 9), ("lz4", 1, 17), ("zstd", 1, 19)])
def test_levels_of_compression(bootstrap_servers: str, topic: str, read: Read, codec: str, low: int, high: int) -> None:
    """A higher level makes the same records smaller."""
    words = [b"%x" % (number * number) for number in range(3000)]
    sizes = []
    for level in (low, high):
        configs = {"compression.type": codec, f"compression.{codec}.level": level, "linger.ms": 1000}
        with Producer({"bootstrap.servers": bootstrap_servers, "batch.size": 1 << 20, **configs}) as producer:
            for word in words:
                producer.produce(topic, word, partition=0, timestamp=0)
            producer.flush()
            sizes.append(producer.metrics().value("byte-total"))
    assert sizes[1] < sizes[0]
    assert [record.value for record in read(topic, 6000)] == words * 2


@pytest.mark.parametrize(
    "configs", [{"acks": "0"}, {"acks": "1"}, {"linger_ms": 0}, {"batch_size": 0}, {"linger_ms": 50}]
)
def test_ways_to_send(bootstrap_servers: str, topic: str, read: Read, configs: dict[str, Any]) -> None:
    with Producer(bootstrap_servers=bootstrap_servers, **configs) as producer:
        futures = [producer.send(topic, str(number), partition=0) for number in range(50)]
        assert producer.flush(10) == 0
        offsets = [future.result(1).offset for future in futures]
    assert offsets == ([-1] * 50 if configs.get("acks") == "0" else list(range(50)))
    assert [record.value for record in read(topic, 50)] == [str(number).encode() for number in range(50)]


def test_keys_decide_and_others_fill_batches(producer: Producer, topic: str, read: Read) -> None:
    for number in range(100):
        producer.produce(topic, "keyed", key=f"k{number % 10}")
        producer.produce(topic, "free")
    producer.flush(10)
    records = read(topic, 200)
    places: dict[bytes | None, set[int]] = {}
    for record in records:
        places.setdefault(record.key, set()).add(record.partition)
    free = places.pop(None)
    assert all(len(partitions) == 1 for partitions in places.values())
    assert {next(iter(partitions)) for partitions in places.values()} == {0, 1}
    assert len(free) == 1  # a batch's worth sticks to a partition


def test_order_is_kept_with_five_requests_on_their_way(bootstrap_servers: str, topic: str, read: Read) -> None:
    with Producer(bootstrap_servers=bootstrap_servers, batch_size=200, linger_ms=0) as producer:
        for number in range(3000):
            producer.produce(topic, b"%d" % number, partition=0)
        assert producer.flush(30) == 0
        assert producer.metrics().value("record-send-total") == 3000
    assert [int(record.value or b"") for record in read(topic, 3000)] == list(range(3000))


def test_many_threads(producer: Producer, topic: str, read: Read) -> None:
    def work(mark: int) -> None:
        for number in range(500):
            producer.produce(topic, b"%d %d" % (mark, number), partition=0)

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert producer.flush(30) == 0
    pairs = [tuple(map(int, (record.value or b"").split())) for record in read(topic, 2000)]
    for mark in range(4):
        assert [number for its, number in pairs if its == mark] == list(range(500))


def test_invalid_calls_raise(producer: Producer, topic: str, bootstrap_servers: str) -> None:
    with pytest.raises(UnknownTopic, match=f"topic {topic} has no partition 2"):
        producer.produce(topic, "x", partition=2)
    with pytest.raises(UnknownTopic, match=f"topic {topic} has no partition -2"):
        producer.produce(topic, "x", partition=-2)
    with pytest.raises(ValueError, match="the timestamp of a record is negative"):
        producer.produce(topic, "x", timestamp=-2)
    with pytest.raises(RecordTooLarge, match=r"above max\.request\.size"):
        producer.produce(topic, bytes(2 << 20))
    with pytest.raises(IllegalState, match=r"transactional\.id"):
        producer.begin_transaction()
    with pytest.raises(InvalidClientConfig, match=r"linger\.mx is no client config; did you mean linger\.ms"):
        Producer(bootstrap_servers=bootstrap_servers, linger_mx=1)
    with pytest.raises(InvalidClientConfig, match=r"bootstrap\.servers is missing"):
        Producer()
    closed = Producer(bootstrap_servers=bootstrap_servers)
    closed.produce(topic, "x")
    closed.close()
    with pytest.raises(IllegalState, match="closed"):
        closed.produce(topic, "x")


def test_a_record_that_the_broker_refuses(producer: Producer, admin: Admin, bootstrap_servers: str) -> None:
    name = fresh()
    admin.create_topics([NewTopic(name, 1, 1, config={"max.message.bytes": "1000"})]).check()
    # They go out as one batch, which is divided until it is known whose fault it is (KIP-126).
    futures = [producer.send(name, bytes(size)) for size in (10, 20, 5000, 30, 40)]
    producer.flush(20)
    assert [futures[number].result(10).offset for number in (0, 1, 3, 4)] == [0, 1, 2, 3]
    with pytest.raises(RecordTooLarge, match=r"raise those or lower batch\.size"):
        futures[2].result(10)
    assert producer.send(name, b"more").result(10).offset == 4


def test_memory_is_bounded(topic: str) -> None:
    with Producer(bootstrap_servers="127.0.0.1:1", max_block_ms=200) as nowhere, pytest.raises(KafkaError):
        nowhere.produce(topic, "x")


def test_memory_that_stays_full(bootstrap_servers: str, topic: str) -> None:
    producer = Producer(
        bootstrap_servers=bootstrap_servers, buffer_memory=3000, batch_size=1000, max_block_ms=300, linger_ms=60_000
    )
    producer.produce(topic, bytes(900), partition=0)
    producer._call(producer._core.network.close)  # nobody answers any more
    for _ in range(2):
        producer.produce(topic, bytes(900), partition=0)
    with pytest.raises(BufferExhausted, match=r"buffer\.memory \(3000 bytes\) was full for 300 ms"):
        producer.produce(topic, bytes(900), partition=0)
    producer.close(0.1)


def test_transactions(bootstrap_servers: str, topic: str, read: Read) -> None:
    with Producer(bootstrap_servers=bootstrap_servers, transactional_id=fresh("tx")) as producer:
        with pytest.raises(IllegalState, match=r"init_transactions\(\) comes first"):
            producer.begin_transaction()
        producer.init_transactions(30)
        with pytest.raises(IllegalState, match=r"begin_transaction\(\) comes first"):
            producer.produce(topic, "too early")
        for number in range(4):
            producer.begin_transaction()
            for partition in range(2):
                producer.produce(topic, str(number), partition=partition)
            if number % 2:
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)
    assert [record.value for record in read(topic, 4, isolation_level="read_committed")] == [b"0", b"2"] * 2


def test_a_block_is_a_transaction(bootstrap_servers: str, topic: str, read: Read) -> None:
    with Producer(bootstrap_servers=bootstrap_servers, transactional_id=fresh("tx")) as producer:
        producer.init_transactions(30)
        with producer.transaction():
            producer.produce(topic, "committed", partition=0)
        with suppress(ZeroDivisionError), producer.transaction():
            producer.produce(topic, "aborted", partition=0)
            producer.flush(30)
            raise ZeroDivisionError
        with producer.transaction():
            producer.produce(topic, "next", partition=0)
    assert [record.value for record in read(topic, 2, isolation_level="read_committed")] == [b"committed", b"next"]


def test_a_block_whose_record_fails_is_aborted(bootstrap_servers: str, admin: Admin) -> None:
    name = fresh()
    admin.create_topics([NewTopic(name, 1, 1, config={"max.message.bytes": "1000"})]).check()
    with Producer(bootstrap_servers=bootstrap_servers, transactional_id=fresh("tx")) as producer:
        producer.init_transactions(30)
        with pytest.raises(IllegalState), producer.transaction():
            producer.produce(name, bytes(5000))
        with producer.transaction():
            producer.produce(name, "small")


def test_an_asyncio_block_is_a_transaction(bootstrap_servers: str, topic: str, read: Read) -> None:
    async def write() -> None:
        async with aio.Producer(bootstrap_servers=bootstrap_servers, transactional_id=fresh("tx")) as producer:
            await producer.init_transactions(30)
            async with producer.transaction():
                await producer.produce(topic, "committed", partition=0)
            with suppress(ZeroDivisionError):
                async with producer.transaction():
                    await producer.produce(topic, "aborted", partition=0)
                    raise ZeroDivisionError
            async with producer.transaction():
                await producer.produce(topic, "next", partition=0)

    asyncio.run(write())
    assert [record.value for record in read(topic, 2, isolation_level="read_committed")] == [b"committed", b"next"]


def test_offsets_go_with_the_transaction(bootstrap_servers: str, topic: str) -> None:
    group, partition = fresh("g"), TopicPartition(topic, 0)
    consumer = Consumer(bootstrap_servers=bootstrap_servers, group_id=group)
    with consumer, Producer(bootstrap_servers=bootstrap_servers, transactional_id=fresh("tx")) as producer:
        producer.init_transactions(30)
        for offset, ends in ((5, producer.abort_transaction), (7, producer.commit_transaction)):
            producer.begin_transaction()
            producer.send_offsets_to_transaction({partition: offset}, GroupMetadata(group))
            ends(30)
            offsets = consumer.committed([partition])
            assert {part: committed.offset for part, committed in offsets.items()} == (
                {partition: 7} if offset == 7 else {}
            )


def test_a_zombie_is_fenced(bootstrap_servers: str, topic: str, read: Read) -> None:
    name = fresh("tx")
    with (
        Producer(bootstrap_servers=bootstrap_servers, transactional_id=name) as old,
        Producer(bootstrap_servers=bootstrap_servers, transactional_id=name) as new,
    ):
        old.init_transactions(30)
        old.begin_transaction()
        old.send(topic, "old", partition=0).result(10)
        new.init_transactions(30)
        new.begin_transaction()
        new.produce(topic, "new", partition=0)
        with pytest.raises(FencedError):
            old.commit_transaction(30)
        with pytest.raises(FencedError):
            old.begin_transaction()
        new.commit_transaction(30)
    assert [record.value for record in read(topic, 1, isolation_level="read_committed")] == [b"new"]


def test_a_failed_record_fails_its_transaction(bootstrap_servers: str, admin: Admin) -> None:
    name = fresh()
    admin.create_topics([NewTopic(name, 1, 1, config={"max.message.bytes": "1000"})]).check()
    with Producer(bootstrap_servers=bootstrap_servers, transactional_id=fresh("tx")) as producer:
        producer.init_transactions(30)
        producer.begin_transaction()
        future = producer.send(name, bytes(5000))
        with pytest.raises(IllegalState, match=r"abort_transaction\(\) is what is left"):
            producer.commit_transaction(30)
        assert isinstance(future.exception(10), RecordTooLarge)
        producer.abort_transaction(30)
        producer.begin_transaction()
        producer.produce(name, "small")
        producer.commit_transaction(30)


def test_asyncio(bootstrap_servers: str, topic: str, read: Read) -> None:
    async def write() -> list[int]:
        async with aio.Producer(bootstrap_servers=bootstrap_servers) as producer:
            await producer.produce(topic, "first", partition=0)
            futures = [await producer.send(topic, str(number), partition=0) for number in range(3)]
            assert await producer.flush(10) == 0
            return [(await future).offset for future in futures]

    assert asyncio.run(write()) == [1, 2, 3]
    assert [record.value for record in read(topic, 4)] == [b"first", b"0", b"1", b"2"]


def test_unreachable_brokers_raise_after_max_block_ms() -> None:
    begun = time.monotonic()
    with (
        Producer(bootstrap_servers="127.0.0.1:1", max_block_ms=500) as producer,
        pytest.raises(KafkaError, match=r"127\.0\.0\.1:1"),
    ):
        producer.produce("t", "x")
    assert time.monotonic() - begun >= 0.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"value": 5}, "value must be bytes, str or None, not int"),
        ({"value": b"v", "key": 1.5}, "key must be bytes, str or None, not float"),
        ({"topic": None, "value": b"v"}, "topic must be str, not NoneType"),
        ({"value": b"v", "partition": "0"}, "partition must be int, not str"),
        ({"value": b"v", "timestamp": "now"}, "timestamp must be int (ms since the epoch) or None, not str"),
        ({"value": b"v", "headers": {"h": 5}}, "header h must be bytes, str or None, not int"),
        ({"value": b"v", "headers": {5: b"h"}}, "the name of a header must be str, not int"),
        ({"value": b"v", "headers": ["h"]}, "headers are (name, value) pairs, not 'h'"),
        ({"value": b"v", "headers": 5}, "headers must be a mapping, pairs or None, not int"),
        ({"value": b"v", "headers": "name"}, "headers must be a mapping, pairs or None, not str"),
        ({"value": b"v", "headers": b"name"}, "headers must be a mapping, pairs or None, not bytes"),
    ],
)
def test_an_argument_of_another_type_is_named(bootstrap_servers: str, arguments: dict[str, Any], message: str) -> None:
    """`produce("t", 5)` was answered with "bytes or None object expected; got int"."""
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        for _ in range(2):  # of a topic that is not known yet, and of one that is
            with pytest.raises(TypeError) as raised:
                producer.produce(**{"topic": "types", **arguments})
            assert str(raised.value) == message
            producer.produce("types", b"fine")


def test_a_record_shows_where_it_came_from(bootstrap_servers: str) -> None:
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        producer.produce("shown", b"v", b"k", timestamp=7)
        producer.produce("shown", None, headers={"h": b"x"}, timestamp=8)
    with Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("shown", 0)])
        records = [consumer.poll(10), consumer.poll(10)]
    assert repr(records[0]) == "Record(topic='shown', partition=0, offset=0, timestamp=7, key=b'k', value=b'v')"
    assert repr(records[1]) == (
        "Record(topic='shown', partition=0, offset=1, timestamp=8, key=None, value=None, headers=[('h', b'x')])"
    )


def test_a_call_that_waits_in_a_callback_raises_instead_of_waiting_for_itself(producer: Producer, topic: str) -> None:
    outcome: concurrent.futures.Future[str] = concurrent.futures.Future()

    def callback(_: Any) -> None:
        try:
            producer.flush(1)
            outcome.set_result("flushed")
        except KafkaError as error:
            outcome.set_result(f"{type(error).__name__}: {error}")

    producer.send(topic, "value").add_done_callback(callback)
    assert "IllegalState: a callback of a client runs in the client's own thread" in outcome.result(20)
