"""Committed records of a topic, as a consumer of confluent-kafka reads them."""

import time

from confluent_kafka import Consumer, Message, TopicPartition

_WITHIN_S = 90


def committed_messages(bootstrap: str, topic: str, partitions: int) -> list[list[Message]]:
    """Return the messages of each partition up to its end, without those of open and aborted transactions."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    messages: list[list[Message]] = [[] for _ in range(partitions)]
    ended = 0
    deadline = time.monotonic() + _WITHIN_S
    try:
        while ended < partitions:
            assert time.monotonic() < deadline, f"{ended} of {partitions} partitions were read to their end"
            message = consumer.poll(1)
            if message is None:
                continue
            partition = message.partition()
            assert partition is not None
            if message.error():
                ended += 1
            else:
                messages[partition].append(message)
    finally:
        consumer.close()
    return messages


def offset(message: Message) -> int:
    """Return the offset of a message that was read."""
    position = message.offset()
    assert position is not None
    return position
