"""The time at which the consumer sends the fetch after a response, in virtual time."""

import pytest

from ottla.client.consumer.core import ConsumerCore
from ottla.client.consumer.fetcher import FEW_BYTES, NEXT_FETCH_MS
from ottla.client.topics import TopicPartition
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.records.batch import build
from ottla.records.record import Record

from .world import TOPIC_ID, Later, World

WRITTEN_MS = 100
"""Time from a fetch at the end of the log to its response with a new record."""


class Scene:
    """A consumer that reads partitions of a topic from the beginning, and its broker."""

    def __init__(self, partitions: int) -> None:
        self.world = World()
        self.broker = self.world.broker()
        self.broker.topics["t"] = dict.fromkeys(range(partitions), 1)
        starts = [ListOffsetsPartitionResponse(partition_index=number, offset=0) for number in range(partitions)]
        self.broker.on(
            ListOffsetsRequest, ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=starts)])
        )
        self.core = self.world.core(auto_offset_reset="earliest")
        self.consumer = ConsumerCore(self.core)
        self.partitions = [TopicPartition("t", number) for number in range(partitions)]
        self.consumer.assign(self.partitions)


class Reading(Scene):
    """A partition whose next record, of `size` bytes, is there WRITTEN_MS after the fetch that waits for it."""

    def __init__(self, size: int) -> None:
        super().__init__(1)
        self.size = size
        self.fetched = 0
        self.broker.on(FetchRequest, self._fetch)

    def _fetch(self, request: FetchRequest, version: int) -> Later:
        offset = request.topics[0].partitions[0].fetch_offset if request.topics else self.fetched
        self.fetched = offset + 1
        row = PartitionData(partition_index=0, high_watermark=offset + 1, last_stable_offset=offset + 1)
        row.records = build([Record(offset, 0, None, bytes(self.size))], base_offset=offset)
        return Later(WRITTEN_MS, FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[row])]))

    def wait(self) -> None:
        """Wait for the next record as an application does."""
        assert self.world.run(self.core, self.consumer.wait(10_000))

    @property
    def in_flight(self) -> int:
        """Number of fetches without a response."""
        return sum(link.in_flight for link in self.core.network.open_links("fetch"))


def test_an_application_that_waits_for_few_records_is_served_before_the_next_fetch() -> None:
    reading = Reading(size=10)
    reading.wait()
    assert reading.in_flight == 0
    reading.world.advance(NEXT_FETCH_MS)
    assert reading.in_flight == 1


def test_the_next_poll_sends_the_next_fetch() -> None:
    reading = Reading(size=10)
    for offset in range(5):
        sent_ms = reading.world.now
        reading.wait()
        record = reading.consumer.take()
        assert record is not None
        assert record.offset == offset
        assert offset == 0 or reading.world.now - sent_ms == reading.broker.latency_ms + WRITTEN_MS


@pytest.mark.parametrize("size", [FEW_BYTES, 4 * FEW_BYTES])
def test_the_fetch_that_follows_many_bytes_is_sent_at_once(size: int) -> None:
    reading = Reading(size)
    reading.wait()
    assert reading.in_flight == 1


def test_records_that_were_requested_before_a_seek_are_dropped() -> None:
    reading = Reading(size=10)
    reading.wait()
    reading.world.advance(NEXT_FETCH_MS)
    assert reading.fetched == 1
    reading.world.advance(reading.broker.latency_ms)
    assert reading.fetched == 2  # a fetch of offset 1 is in flight
    reading.consumer.seek(reading.partitions[0], 0)
    offsets = []
    for _ in range(3):
        reading.wait()
        record = reading.consumer.take()
        assert record is not None
        offsets.append(record.offset)
    assert offsets == [0, 1, 2]


class Following(Scene):
    """Two partitions; the broker responds to all fetches alike, without a record."""

    def __init__(self, response: Later | None) -> None:
        super().__init__(2)
        self.broker.on(FetchRequest, lambda _, __: response)

    def wait(self, ms: int) -> None:
        assert not self.world.run(self.core, self.consumer.wait(ms))

    @property
    def last_fetch(self) -> tuple[list[int], list[int]]:
        """Partitions that the last fetch adds or changes, and those that it forgets."""
        request = [request for request, _ in self.broker.requests if isinstance(request, FetchRequest)][-1]
        added = [row.partition for topic in request.topics for row in topic.partitions]
        return added, [number for topic in request.forgotten_topics_data for number in topic.partitions]


def test_a_fetch_names_only_what_has_changed() -> None:
    reading = Following(Later(100, FetchResponse(session_id=7)))
    reading.wait(50)
    assert reading.last_fetch == ([0, 1], [])
    reading.wait(100)
    assert reading.last_fetch == ([], [])
    reading.consumer.pause(reading.partitions[1:])
    reading.wait(200)
    assert reading.last_fetch == ([], [])  # forgotten by the fetch before this one
    reading.consumer.resume(reading.partitions[1:])
    reading.wait(100)
    assert reading.last_fetch == ([1], [])
    reading.consumer.assign(reading.partitions[1:])
    reading.wait(100)
    assert reading.last_fetch == ([], [0])


def test_a_row_of_a_partition_that_was_not_requested_begins_a_new_session() -> None:
    row = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[PartitionData(partition_index=9)])
    reading = Following(Later(100, FetchResponse(session_id=7, responses=[row])))
    for _ in range(3):
        reading.wait(300)
        assert reading.last_fetch == ([0, 1], [])


def test_leaders_are_looked_up_again_and_again_while_a_node_does_not_respond() -> None:
    reading = Following(None)
    reading.wait(1000)
    lookups = []
    for _ in range(4):
        before = reading.broker.asked[MetadataRequest]
        reading.wait(3500)
        lookups.append(reading.broker.asked[MetadataRequest] - before)
    assert lookups == [1, 1, 1, 1]
    assert reading.broker.asked[FetchRequest] == 1  # the one in flight may still be answered


def test_leaders_are_not_looked_up_while_no_fetch_is_in_flight() -> None:
    reading = Following(Later(100, FetchResponse(session_id=7)))
    reading.wait(50)
    lookups = reading.broker.asked[MetadataRequest]
    reading.consumer.pause(reading.partitions)
    reading.wait(10_000)
    reading.consumer.resume(reading.partitions)
    reading.wait(1000)
    assert reading.broker.asked[MetadataRequest] == lookups
    assert reading.last_fetch == ([], [])  # the session goes on
