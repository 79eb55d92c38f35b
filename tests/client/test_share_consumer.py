"""The share consumer: implicit and explicit acknowledgement, what commits tell, sessions that end."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from ottla import AcknowledgeType, Admin, KafkaError, Record, ShareConsumer, TopicPartition, aio
from ottla.client.errors import IllegalState, InvalidClientConfig

from .conftest import Produce, fresh

ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
Join = Callable[..., ShareConsumer]


@pytest.fixture
def join(bootstrap_servers: str, topic: str, share_group: str) -> Any:
    """Makes consumers of the group, which are closed at the end."""
    joined = []

    def make(**options: Any) -> ShareConsumer:
        consumer = ShareConsumer(bootstrap_servers=bootstrap_servers, group_id=share_group, **options)
        consumer.subscribe([topic])
        joined.append(consumer)
        return consumer

    yield make
    for consumer in joined:
        consumer.close()


def take(consumer: ShareConsumer, count: int) -> list[Record]:
    """Poll until there are so many records."""
    records: list[Record] = []
    deadline = time.monotonic() + 30
    while len(records) < count:
        assert time.monotonic() < deadline, records
        records += consumer.poll(1)
    return records


def places(records: list[Record]) -> list[tuple[int, int, int]]:
    return sorted((record.partition, record.offset, record.delivery_count) for record in records)


def test_implicit_mode_accepts_what_was_polled(
    join: Join, produce: Produce, topic: str, admin: Admin, share_group: str
) -> None:
    produce(topic, 3)
    consumer = join()
    records = take(consumer, 3)
    assert places(records) == [(0, 0, 1), (0, 1, 1), (0, 2, 1)]
    middle = records[1]
    assert (middle.topic, middle.key, middle.value, middle.headers, middle.timestamp_type) == (
        topic,
        b"k1",
        b"v1",
        [],
        0,
    )
    partition = TopicPartition(topic, 0)
    assert consumer.commit() == {partition: None}
    assert admin.list_share_group_offsets([share_group])[share_group][partition].lag == 0
    produce(topic, 2, 1)
    assert places(take(consumer, 2)) == [(1, 0, 1), (1, 1, 1)]


def test_the_next_poll_accepts_without_a_commit(join: Join, produce: Produce, topic: str) -> None:
    produce(topic, 3)
    consumer = join()
    take(consumer, 3)
    produce(topic, 2)
    assert places(take(consumer, 2)) == [(0, 3, 1), (0, 4, 1)]
    consumer.close()
    assert join().poll(1) == []


def test_max_poll_records_and_what_a_poll_leaves_for_the_next(join: Join, produce: Produce, topic: str) -> None:
    produce(topic, 25)
    consumer = join(max_poll_records=10)
    sizes: list[int] = []
    records: list[Record] = []
    while len(records) < 25:
        polled = consumer.poll(5)
        sizes.append(len(polled))
        records += polled
    assert max(sizes) <= 10
    assert [record.offset for record in records] == list(range(25))


def test_explicit_acknowledgements(join: Join, produce: Produce, topic: str) -> None:
    commits: list[tuple[dict[TopicPartition, set[int]], KafkaError | None]] = []
    consumer = join(share_acknowledgement_mode="explicit")
    consumer.set_acknowledgement_commit_callback(lambda offsets, error: commits.append((dict(offsets), error)))
    produce(topic, 4)
    records = take(consumer, 4)
    for record, kind in zip(records, (ACCEPT, RELEASE, REJECT, ACCEPT), strict=True):
        consumer.acknowledge(record, kind)
    partition = TopicPartition(topic, 0)
    assert consumer.commit() == {partition: None}
    assert commits == [({partition: {0, 1, 2, 3}}, None)]
    (again,) = take(consumer, 1)
    assert (again.offset, again.delivery_count) == (1, 2)
    with pytest.raises(IllegalState, match="acknowledge every record of the last poll"):
        consumer.poll(0)
    with pytest.raises(IllegalState, match="waits for no acknowledgement"):
        consumer.acknowledge(records[0])
    consumer.acknowledge(again)
    assert consumer.poll(0.5) == []


def test_unacknowledged_records_are_released_by_close(join: Join, produce: Produce, topic: str) -> None:
    produce(topic, 2)
    first = join(share_acknowledgement_mode="explicit")
    records = take(first, 2)
    first.acknowledge(records[0])
    first.close()
    (left,) = take(join(), 1)
    assert (left.offset, left.delivery_count) == (1, 2)


def test_a_renewed_record_stays_acquired(join: Join, produce: Produce, topic: str, admin: Admin) -> None:
    produce(topic, 1)
    consumer = join(share_acknowledgement_mode="explicit")
    (record,) = take(consumer, 1)
    lock_ms = consumer.acquisition_lock_timeout_ms()
    assert lock_ms is not None
    assert lock_ms > 0
    consumer.acknowledge(record, RENEW)
    assert consumer.commit() == {TopicPartition(topic, 0): None}
    consumer.acknowledge(record)
    assert consumer.commit() == {TopicPartition(topic, 0): None}
    assert consumer.poll(0.5) == []


def test_commits_in_the_background_call_the_callback(join: Join, produce: Produce, topic: str) -> None:
    errors: list[KafkaError | None] = []
    consumer = join()
    consumer.set_acknowledgement_commit_callback(lambda offsets, error: errors.append(error))
    produce(topic, 2)
    take(consumer, 2)
    consumer.commit_async()
    deadline = time.monotonic() + 10
    while not errors:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert errors == [None]


@pytest.mark.parametrize("creates", [True, False])
def test_a_subscribed_topic_is_created(join: Join, admin: Admin, creates: bool) -> None:
    consumer, name = join(allow_auto_create_topics=creates), fresh("t")
    consumer.subscribe([name])
    end = time.monotonic() + (30 if creates else 1)
    while name not in admin.list_topics() and time.monotonic() < end:
        consumer.poll(0.1)
    assert (name in admin.list_topics()) == creates


def test_two_consumers_share_the_partitions(
    join: Join, produce: Produce, topic: str, admin: Admin, share_group: str
) -> None:
    consumers = [join(max_poll_records=5, share_acquire_mode="record_limit") for _ in range(2)]
    while [len(peer.assignment) for peer in admin.describe_share_groups([share_group])[share_group].members] != [1, 1]:
        assert [consumer.poll(0.1) for consumer in consumers] == [[], []]
    for partition in range(2):
        produce(topic, 20, partition)
    seen: list[set[tuple[int, int]]] = [set(), set()]
    deadline = time.monotonic() + 30
    while sum(map(len, seen)) < 40:
        assert time.monotonic() < deadline, seen
        for consumer, positions in zip(consumers, seen, strict=True):
            positions |= {(record.partition, record.offset) for record in consumer.poll(0.2)}
    assert all(seen)
    assert seen[0] | seen[1] == {(partition, offset) for partition in range(2) for offset in range(20)}


def test_asyncio(bootstrap_servers: str, topic: str, share_group: str, produce: Produce) -> None:
    produce(topic, 3)

    async def read() -> list[int]:
        async with aio.ShareConsumer(bootstrap_servers=bootstrap_servers, group_id=share_group) as consumer:
            consumer.subscribe([topic])
            offsets = []
            async for record in consumer:
                offsets.append(record.offset)
                if len(offsets) == 3:
                    assert await consumer.commit() == {TopicPartition(topic, 0): None}
                    break
            return offsets

    assert asyncio.run(read()) == [0, 1, 2]


def test_invalid_calls_raise(bootstrap_servers: str, join: Join) -> None:
    with pytest.raises(InvalidClientConfig, match=r"group\.id is missing"):
        ShareConsumer(bootstrap_servers=bootstrap_servers)
    consumer = ShareConsumer(bootstrap_servers=bootstrap_servers, group_id=fresh("s"))
    with pytest.raises(IllegalState, match="after it has subscribed"):
        consumer.poll(0)
    consumer.close()
    with pytest.raises(IllegalState, match="closed"):
        consumer.poll(0)
    implicit = join()
    with pytest.raises(IllegalState, match="implicit mode"):
        implicit.acknowledge(Record(0, 0, None, None))
