"""Workers: slow functions on the records of consumers and share consumers, with a broker."""

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from ottla import Admin, Consumer, NewTopic, Producer, Record, ShareConsumer, TopicPartition, aio
from ottla.work import AsyncWorker, Retry, ShareWorker, Worker
from ottla.work.retry import ATTEMPT
from tests.conformance.members import wait_for

from .conftest import fresh

OPTIONS: dict[str, Any] = {"enable_auto_commit": False, "auto_offset_reset": "earliest", "heartbeat_interval_ms": 100}


def fill(bootstrap_servers: str, topic: str, count: int) -> None:
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        for number in range(count):
            producer.produce(topic, str(number), key=f"k{number % 7}", partition=number % 2)


def running(worker: Worker | ShareWorker) -> threading.Thread:
    thread = threading.Thread(target=worker.run)
    thread.start()
    return thread


def committed(bootstrap_servers: str, group: str, topic: str) -> dict[int, int]:
    with Admin(bootstrap_servers=bootstrap_servers) as admin:
        offsets = admin.list_consumer_group_offsets([group]).check()[group]
    return {place.partition: position.offset for place, position in offsets.items() if place.topic == topic}


def test_work_is_done_in_threads_in_order_by_key_and_committed(bootstrap_servers: str, topic: str) -> None:
    fill(bootstrap_servers, topic, 100)
    group = fresh("g")
    seen: dict[tuple[int, bytes | None], list[int]] = defaultdict(list)
    at_once = most = 0
    lock = threading.Lock()

    def work(record: Record) -> None:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        time.sleep(0.01)
        with lock:
            at_once -= 1
            seen[record.partition, record.key].append(record.offset)

    with Consumer(bootstrap_servers=bootstrap_servers, group_id=group, **OPTIONS) as consumer:
        consumer.subscribe([topic])
        worker = Worker(consumer, work, threads=8, queued=20, commit_s=0.1)
        thread = running(worker)
        wait_for(lambda: sum(map(len, seen.values())) == 100)
        wait_for(lambda: committed(bootstrap_servers, group, topic) == {0: 50, 1: 50})
        worker.stop()
        thread.join(20)
        assert not thread.is_alive()
    assert all(offsets == sorted(offsets) for offsets in seen.values())
    assert 1 < most <= 8


def test_slow_work_does_not_lose_the_group(bootstrap_servers: str, topic: str) -> None:
    """A function that takes longer than max.poll.interval.ms."""
    fill(bootstrap_servers, topic, 4)
    group = fresh("g")
    done: list[int] = []

    def work(record: Record) -> None:
        time.sleep(2.5)
        done.append(record.offset)

    options = OPTIONS | {"max_poll_interval_ms": 1_000, "session_timeout_ms": 6_000}
    with Consumer(bootstrap_servers=bootstrap_servers, group_id=group, **options) as consumer:
        consumer.subscribe([topic])
        worker = Worker(consumer, work, threads=4, commit_s=0.1)
        thread = running(worker)
        wait_for(lambda: len(done) == 4)
        worker.stop()
        thread.join(20)
    assert committed(bootstrap_servers, group, topic) == {0: 2, 1: 2}


def test_an_exception_ends_the_worker_and_nothing_behind_it_is_committed(bootstrap_servers: str, topic: str) -> None:
    fill(bootstrap_servers, topic, 20)
    group = fresh("g")

    def work(record: Record) -> None:
        if (record.partition, record.offset) == (0, 3):
            raise ZeroDivisionError("planted")

    with Consumer(bootstrap_servers=bootstrap_servers, group_id=group, **OPTIONS) as consumer:
        consumer.subscribe([topic])
        with pytest.raises(ZeroDivisionError, match="planted"):
            Worker(consumer, work, threads=4).run()
        assert committed(bootstrap_servers, group, topic).get(0, 0) <= 3
        assert consumer.position(TopicPartition(topic, 0)) <= 3  # who goes on with the consumer misses nothing


def test_partitions_that_move_are_committed_first(bootstrap_servers: str, topic: str) -> None:
    fill(bootstrap_servers, topic, 200)
    group = fresh("g")
    done: list[tuple[int, int]] = []
    lock = threading.Lock()

    def work(record: Record) -> None:
        time.sleep(0.02)
        with lock:
            done.append((record.partition, record.offset))

    consumers = [Consumer(bootstrap_servers=bootstrap_servers, group_id=group, **OPTIONS) for _ in range(2)]
    workers = [Worker(consumer, work, threads=2, commit_s=60) for consumer in consumers]
    threads = []
    for consumer, worker in zip(consumers, workers, strict=True):
        consumer.subscribe([topic])
        threads.append(running(worker))
        wait_for(lambda: len(done) >= 20)
    wait_for(lambda: len(set(done)) == 200)
    for worker, thread in zip(workers, threads, strict=True):
        worker.stop()
        thread.join(20)
    for consumer in consumers:
        consumer.close()
    assert len(done) - 200 <= 2 * 7 * len(
        workers
    )  # what ended out of order: at most a record of each key and partition


def test_retry_topics_and_dead_letters(bootstrap_servers: str, admin: Admin) -> None:
    topic = fresh("orders")
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        retry = Retry(topic, delays=[0.2, 0.4], dead_letter=f"{topic}.dead", producer=producer)
        admin.create_topics([NewTopic(name, 1, 1) for name in (*retry.topics, f"{topic}.dead")]).check()
        for number in range(5):
            producer.produce(topic, str(number))
        producer.flush()
        attempts: dict[bytes | None, list[float]] = defaultdict(list)

        def work(record: Record) -> None:
            attempts[record.value].append(time.monotonic())
            if record.value == b"3" or (record.value == b"1" and len(attempts[b"1"]) < 3):
                raise ValueError("not yet")

        with Consumer(bootstrap_servers=bootstrap_servers, group_id=fresh("g"), **OPTIONS) as consumer:
            consumer.subscribe(retry.topics)
            worker = Worker(consumer, work, threads=2, retry=retry)
            thread = running(worker)
            wait_for(lambda: len(attempts[b"3"]) == 3 and len(attempts[b"1"]) == 3)
            worker.stop()
            thread.join(20)
        assert {value: len(times) for value, times in attempts.items()} == {b"0": 1, b"1": 3, b"2": 1, b"3": 3, b"4": 1}
        first, second, third = attempts[b"3"]
        assert second - first >= 0.2
        assert third - second >= 0.4
        with Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as dead:
            dead.assign([TopicPartition(f"{topic}.dead", 0)])
            record = dead.poll(10)
    assert record is not None
    assert (record.value, dict(record.headers)[ATTEMPT]) == (b"3", b"4")


def test_the_asyncio_worker(bootstrap_servers: str, topic: str) -> None:
    fill(bootstrap_servers, topic, 100)
    group = fresh("g")
    seen: dict[tuple[int, bytes | None], list[int]] = defaultdict(list)

    workers: list[AsyncWorker] = []

    async def work(record: Record) -> None:
        await asyncio.sleep(0.01)
        seen[record.partition, record.key].append(record.offset)
        if sum(map(len, seen.values())) == 100:
            workers[0].stop()

    async def main() -> None:
        async with aio.Consumer(bootstrap_servers=bootstrap_servers, group_id=group, **OPTIONS) as consumer:
            consumer.subscribe([topic])
            workers.append(AsyncWorker(consumer, work, tasks=10, queued=20))
            await workers[0].run()

    asyncio.run(main())
    assert all(offsets == sorted(offsets) for offsets in seen.values())
    assert committed(bootstrap_servers, group, topic) == {0: 50, 1: 50}


def test_an_exception_ends_the_asyncio_worker(bootstrap_servers: str, topic: str) -> None:
    fill(bootstrap_servers, topic, 20)
    group = fresh("g")

    async def work(record: Record) -> None:
        if (record.partition, record.offset) == (1, 4):
            raise ZeroDivisionError("planted")

    async def main() -> None:
        async with aio.Consumer(bootstrap_servers=bootstrap_servers, group_id=group, **OPTIONS) as consumer:
            consumer.subscribe([topic])
            await AsyncWorker(consumer, work, tasks=4).run()

    with pytest.raises(ZeroDivisionError, match="planted"):
        asyncio.run(main())
    assert committed(bootstrap_servers, group, topic).get(1, 0) <= 4


def test_the_worker_of_a_share_group(bootstrap_servers: str, topic: str, share_group: str) -> None:
    fill(bootstrap_servers, topic, 20)
    attempts: dict[tuple[int, int], int] = defaultdict(int)
    lock = threading.Lock()

    def work(record: Record) -> None:
        with lock:
            attempts[record.partition, record.offset] += 1
        if (record.partition, record.offset) == (0, 3) and record.delivery_count < 3:
            raise ValueError("again")

    with ShareConsumer(
        bootstrap_servers=bootstrap_servers, group_id=share_group, share_acknowledgement_mode="explicit"
    ) as consumer:
        consumer.subscribe([topic])
        worker = ShareWorker(consumer, work, threads=4)
        thread = running(worker)
        wait_for(lambda: len(attempts) == 20 and attempts[0, 3] == 3)
        worker.stop()
        thread.join(20)
    assert sum(attempts.values()) == 22


def made(make: Callable[[], object]) -> str:
    with pytest.raises(ValueError, match=r".") as raised:
        make()
    return str(raised.value)


def test_consumers_that_a_worker_cannot_use(bootstrap_servers: str) -> None:
    with (
        Consumer(bootstrap_servers=bootstrap_servers, group_id="g") as consumer,
        ShareConsumer(bootstrap_servers=bootstrap_servers, group_id="g") as sharing,
    ):
        assert "enable_auto_commit=False" in made(lambda: Worker(consumer, print))
        assert "explicit" in made(lambda: ShareWorker(sharing, print))
    with Consumer(bootstrap_servers=bootstrap_servers, group_id="g", **OPTIONS) as consumer:
        assert made(lambda: Worker(consumer, print, threads=0)) == "a worker has at least one thread, not 0"
