"""A clean restart of a single broker: leader epochs, and what clients with the old ones are answered."""

from pathlib import Path
from typing import Any

from tests.conformance.conftest import TopicFactory, Wire

from ottla.protocol.errors import FENCED_LEADER_EPOCH, NONE
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.records.batch import build, scan
from ottla.records.record import Record
from ottla.testing import EmbeddedBroker

BATCH = build([Record(0, 1_700_000_000_000, None, b"v")])


def leader_epochs(wire: Wire) -> list[int]:
    topic = wire.send(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12).topics[0]
    return [partition.leader_epoch for partition in topic.partitions]


def fetch(wire: Wire, epoch: int) -> Any:
    partition = FetchPartition(partition=0, current_leader_epoch=epoch, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=10, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[partition])])
    return wire.send(request, 11).responses[0].partitions[0]


def list_end(wire: Wire, epoch: int) -> Any:
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=epoch)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[partition])])
    return wire.send(request, 4).topics[0].partitions[0]


def end_of_epoch(wire: Wire, epoch: int) -> Any:
    partition = OffsetForLeaderPartition(partition=0, current_leader_epoch=epoch, leader_epoch=0)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=[partition])])
    return wire.send(request, 3).topics[0].partitions[0]


def test_leader_epochs_rise_and_old_ones_are_fenced(tmp_path: Path) -> None:
    """Apache Kafka 4.4 raises them by two: the partition has no leader while the broker is down."""
    with EmbeddedBroker(data_dir=tmp_path) as broker:
        wire = Wire(broker.address, is_kafka=False)
        topic = TopicFactory(wire)(2, "t")
        (before, _) = leader_epochs(wire)
        assert topic.produce(BATCH).error_code == NONE
        wire.close()
    for restarts in (1, 2):
        with EmbeddedBroker(data_dir=tmp_path) as broker:
            wire = Wire(broker.address, is_kafka=False)
            topic.wire = wire
            assert leader_epochs(wire) == [before + restarts] * 2
            for ask in (fetch, list_end, end_of_epoch):
                assert ask(wire, before).error_code == FENCED_LEADER_EPOCH
                assert ask(wire, before + restarts).error_code == NONE
            row = fetch(wire, before + restarts)
            assert row.error_code == NONE
            assert [header.leader_epoch for header in scan(row.records).batches] == list(
                range(before, before + restarts)
            )
            assert topic.produce(BATCH).error_code == NONE
            wire.close()
