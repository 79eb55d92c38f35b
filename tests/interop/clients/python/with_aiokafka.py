"""aiokafka: producer, consumer in and out of a group, admin."""

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.interop.clients.contract import Record, equal, records, same, step, task

_PATIENCE_S = 30


async def produce(bootstrap: str, topic: str, numbers: range, codec: str) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec, linger_ms=20
    )
    await producer.start()
    try:
        await asyncio.gather(*[await producer.send(topic, value, key) for key, value in records(numbers)])
    finally:
        await producer.stop()


def consumer(bootstrap: str, group: str | None) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        fetch_max_wait_ms=50,
    )


async def take(source: AIOKafkaConsumer, count: int) -> list[Record]:
    """`count` records, and those of the next poll, which should be none."""
    received: list[Record] = []
    async with asyncio.timeout(_PATIENCE_S):
        while len(received) < count:
            received += await _poll(source, 100)
    return received + await _poll(source, 300)


async def _poll(source: AIOKafkaConsumer, timeout_ms: int) -> list[Record]:
    polled = await source.getmany(timeout_ms=timeout_ms)
    return [(one.key, one.value) for many in polled.values() for one in many]


async def admin_step(bootstrap: str, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, 3, 1)])
        (described,) = await admin.describe_topics([topic])
        equal(len(described["partitions"]), 3)
        await admin.delete_topics([topic])
    finally:
        await admin.close()


async def commit_step(bootstrap: str, topic: str, group: str) -> None:
    source = consumer(bootstrap, group)
    await source.start()
    try:
        partition = TopicPartition(topic, 0)
        source.assign([partition])
        await source.commit({partition: 42})
        equal(await source.committed(partition), 42)
    finally:
        await source.stop()


async def group_step(bootstrap: str, topic: str, group: str, numbers: range) -> None:
    member = consumer(bootstrap, group)
    member.subscribe([topic])
    await member.start()
    try:
        same(await take(member, len(numbers)), numbers)
        await member.commit()
    finally:
        await member.stop()


async def main() -> None:
    arguments = task()
    with step("admin"):
        await admin_step(arguments.bootstrap, f"{arguments.topic}-made")
    for codec, numbers in arguments.shares:
        with step(f"produce {codec}"):
            await produce(arguments.bootstrap, arguments.topic, numbers, codec)
    source = consumer(arguments.bootstrap, None)
    await source.start()
    partition = TopicPartition(arguments.topic, 0)
    with step("fetch"):
        source.assign([partition])
        same(await take(source, len(arguments.first)), arguments.first)
    with step("offsets"):
        equal((await source.beginning_offsets([partition]))[partition], 0)
        equal((await source.end_offsets([partition]))[partition], len(arguments.first))
    await source.stop()
    with step("commit"):
        await commit_step(arguments.bootstrap, arguments.topic, f"{arguments.group}-alone")
    with step("group"):
        await group_step(arguments.bootstrap, arguments.topic, arguments.group, arguments.first)
    with step("resume"):
        await produce(arguments.bootstrap, arguments.topic, arguments.more, "none")
        await group_step(arguments.bootstrap, arguments.topic, arguments.group, arguments.more)


if __name__ == "__main__":
    asyncio.run(main())
