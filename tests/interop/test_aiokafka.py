"""aiokafka: every compression, commit, restart and resume, a group of two through a rebalance."""

import asyncio
import time
from collections.abc import Callable

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from .conftest import CODECS, PARTITIONS, RECORDS, SHARES, Cluster


async def create(bootstrap: str, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
    finally:
        await admin.close()


async def produce(bootstrap: str, topic: str, numbers: range, codec: str = "none") -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        enable_idempotence=True,
        compression_type=None if codec == "none" else codec,
        linger_ms=5,
    )
    await producer.start()
    try:
        sent = [
            await producer.send(topic, b"value %d" % number, key=b"key %d" % number, headers=[("n", b"%d" % number)])
            for number in numbers
        ]
        await asyncio.gather(*sent)
    finally:
        await producer.stop()


async def consumer(bootstrap: str, group: str, topic: str) -> AIOKafkaConsumer:
    made = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=200,
        metadata_max_age_ms=500,
    )
    await made.start()
    return made


async def take(consumers: list[AIOKafkaConsumer], until: Callable[[list[int]], bool]) -> list[int]:
    """Poll all in turn until `until(numbers so far)`; the numbers of the values."""
    numbers: list[int] = []
    deadline = time.monotonic() + 45
    while not until(numbers):
        assert time.monotonic() < deadline, f"{len(numbers)} records came"
        for member in consumers:
            for records in (await member.getmany(timeout_ms=50)).values():
                for record in records:
                    assert list(record.headers) == [("n", record.key[4:])]
                    numbers.append(int(record.value[6:]))
    return numbers


async def positions(consumers: list[AIOKafkaConsumer]) -> int:
    """Return the sum of the members' positions over all partitions."""
    return sum([await member.position(part) for member in consumers for part in member.assignment()])


def test_commit_restart_resume_with_every_compression(cluster: Cluster, topic: str, group: str) -> None:
    async def before() -> None:
        await create(cluster.bootstrap, topic)
        for part, codec in zip(SHARES, CODECS, strict=True):
            await produce(cluster.bootstrap, topic, part, codec)
        await consume(range(RECORDS))
        await produce(cluster.bootstrap, topic, range(RECORDS, 2 * RECORDS))

    async def consume(numbers: range) -> None:
        member = await consumer(cluster.bootstrap, group, topic)
        assert sorted(await take([member], lambda got: len(got) >= RECORDS)) == list(numbers)
        await member.commit()
        await member.stop()

    asyncio.run(before())
    cluster.restart()
    asyncio.run(consume(range(RECORDS, 2 * RECORDS)))


def test_two_members_share_a_topic_and_one_takes_over(cluster: Cluster, topic: str, group: str) -> None:
    async def scenario() -> None:
        await create(cluster.bootstrap, topic)
        await produce(cluster.bootstrap, topic, range(RECORDS))
        one, two = await asyncio.gather(*(consumer(cluster.bootstrap, group, topic) for _ in range(2)))
        numbers = await take([one, two], lambda _: len(one.assignment()) == len(two.assignment()) == 2)
        while await positions([one, two]) < RECORDS:
            numbers += await take([one, two], lambda got: len(got) > 0)
        assert set(numbers) == set(range(RECORDS))
        await asyncio.gather(one.commit(), two.commit())
        await two.stop()
        assert await take([one], lambda _: len(one.assignment()) == PARTITIONS) == []
        await asyncio.to_thread(cluster.restart)
        await produce(cluster.bootstrap, topic, range(RECORDS, 2 * RECORDS))
        assert sorted(await take([one], lambda got: len(got) >= RECORDS)) == list(range(RECORDS, 2 * RECORDS))
        await one.commit()
        committed = [await one.committed(TopicPartition(topic, index)) for index in range(PARTITIONS)]
        assert sum(committed) == 2 * RECORDS
        await one.stop()

    asyncio.run(scenario())
