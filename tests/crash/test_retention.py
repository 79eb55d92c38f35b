"""Old segments leave a running broker, and a restart knows where the log begins."""

import time

from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.records.batch import build
from ottla.records.record import Record
from tests.conformance.conftest import Topic, TopicFactory
from tests.conformance.members import wait_for

from .conftest import Start

OLD = build([Record(0, 1_000_000, None, bytes(1000))])


def earliest(topic: Topic) -> int:
    query = ListOffsetsTopic(name=topic.name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-2)])
    answer = topic.wire.send(ListOffsetsRequest(replica_id=-1, topics=[query]), 5)
    return int(answer.topics[0].partitions[0].offset)


def test_segments_older_than_the_retention_are_deleted(start: Start) -> None:
    often = "-o", "log.retention.check.interval.ms=50", "-o", "log.initial.task.delay.ms=50"
    broker = start(*often)
    topic = TopicFactory(broker.wire())(segment_bytes="1048576", retention_ms="60000", file_delete_delay_ms="0")
    for _ in range(5):
        topic.produce(OLD)
    wait_for(lambda: earliest(topic) == 5)
    directory = broker.data_dir / f"{topic.name}-0"
    wait_for(lambda: not list(directory.glob("*.deleted")))
    assert [path.name for path in directory.glob("*.log")] == [f"{5:020d}.log"]
    assert topic.append(2, timestamp=int(time.time() * 1000)) == 5
    broker.stop()
    again = start(*often)
    known = Topic(again.wire(), topic.name, topic.id)
    assert earliest(known) == 5
    assert known.append(1, timestamp=int(time.time() * 1000)) == 7
