"""Requests whose time is over before all replicas have done their part: what is told of the leader's."""

from ottla.protocol.errors import name_of
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.records.batch import build
from ottla.records.record import Record

from .conftest import Cluster


def test_a_batch_that_is_not_committed_in_time_has_its_offset(cluster: Cluster) -> None:
    topic = cluster.topic([1, 2, 3])
    records = build([Record(0, 1_700_000_000_000, None, b"v")])
    rows = [topic.produce(records, timeout_ms=0) for _ in range(5)]
    assert {name_of(row.error_code) for row in rows} == {"REQUEST_TIMED_OUT"}
    assert [(row.base_offset, row.log_start_offset) for row in rows] == [(offset, 0) for offset in range(5)]


def test_records_that_are_not_deleted_in_time_leave_the_low_watermark(cluster: Cluster) -> None:
    topic = cluster.topic([1, 2, 3])
    for _ in range(2):
        assert topic.produce(build([Record(0, 1_700_000_000_000, None, b"v")])).error_code == 0

    def delete(offset: int, timeout_ms: int) -> tuple[str, int]:
        part = DeleteRecordsPartition(partition_index=0, offset=offset)
        topics = [DeleteRecordsTopic(name=topic.name, partitions=[part])]
        (answer,) = topic.wire.send(DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms), 2).topics
        (row,) = answer.partitions
        return name_of(row.error_code), row.low_watermark

    assert delete(1, 0) == ("REQUEST_TIMED_OUT", 0)
    assert delete(1, 30_000) == ("NONE", 1)
    assert delete(2, 0) == ("REQUEST_TIMED_OUT", 1)
