"""The replica that a consumer reads (KIP-392), in virtual time: the one that the leader names, as long as it is usable."""

from collections.abc import Callable

import pytest

from ottla.client.consumer.core import ConsumerCore
from ottla.client.topics import TopicPartition
from ottla.protocol.errors import NONE, NOT_LEADER_OR_FOLLOWER, OFFSET_OUT_OF_RANGE
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.records.batch import build
from ottla.records.record import Record

from .world import LOST, TOPIC_ID, Broker, Later, World

PART = TopicPartition("t", 0)
BEGINNING = ListOffsetsResponse(
    topics=[ListOffsetsTopicResponse(name="t", partitions=[ListOffsetsPartitionResponse(partition_index=0, offset=0)])]
)


class Pair:
    """Broker 1 leads partition 0 of topic t and sends readers of rack b to broker 2.

    end       records that there are
    followers what broker 2 answers: an error code, LOST, or None for records
    """

    def __init__(self, rack: str = "b") -> None:
        self.world = World()
        self.leader, self.follower = self.world.broker("one", 1), self.world.broker("two", 2)
        self.end = 0
        self.answers: list[int | str] = []
        for broker in (self.leader, self.follower):
            broker.topics["t"] = {0: 1}
            broker.on(FetchRequest, self._fetch(broker))
            broker.on(ListOffsetsRequest, BEGINNING)
        self.core = self.world.core(auto_offset_reset="earliest", client_rack=rack, metadata_max_age_ms=60_000)
        self.consumer = ConsumerCore(self.core)
        self.consumer.assign([PART])

    def _fetch(self, broker: Broker) -> Callable[[FetchRequest, int], FetchResponse | Later | str]:
        def answer(request: FetchRequest, version: int) -> FetchResponse | Later | str:
            row = PartitionData(partition_index=0, high_watermark=self.end, last_stable_offset=self.end)
            failure = self.answers.pop(0) if broker is self.follower and self.answers else None
            if failure == LOST:
                return LOST
            offset = request.topics[0].partitions[0].fetch_offset if request.topics else self.end
            if isinstance(failure, int):
                row.error_code = failure
            elif broker is self.leader and request.rack_id == "b" and self.following:
                row.preferred_read_replica = 2
            elif offset < self.end:
                row.records = build([Record(offset, 0, None, b"%d" % offset)], base_offset=offset)
            response = FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[row])])
            waits = row.error_code == NONE and row.preferred_read_replica < 0 and not row.records
            return Later(500, response) if waits else response

        return answer

    following = True

    def read(self) -> bytes | None:
        """The next record, of another that is written now."""
        self.end += 1
        while (record := self.consumer.take()) is None:
            assert self.world.run(self.core, self.consumer.wait(10_000))
        return record.value

    def fetches(self) -> tuple[int, int]:
        """Return the number of fetches of the leader and of the follower since the last call."""
        counts = tuple(len(broker.sent(FetchRequest)) for broker in (self.leader, self.follower))
        self.leader.requests.clear()
        self.follower.requests.clear()
        return counts[0], counts[1]


@pytest.fixture
def pair() -> Pair:
    return Pair()


def test_the_leader_names_a_replica_once(pair: Pair) -> None:
    assert [pair.read() for _ in range(3)] == [b"0", b"1", b"2"]
    leader, follower = pair.fetches()
    assert leader == 1
    assert follower >= 3


@pytest.mark.parametrize("failure", [OFFSET_OUT_OF_RANGE, NOT_LEADER_OR_FOLLOWER, LOST])
def test_a_replica_that_cannot_serve_sends_back_to_the_leader(pair: Pair, failure: int | str) -> None:
    pair.answers = [failure]
    assert pair.read() == b"0"
    assert pair.fetches()[0] >= 2  # the leader was asked again, and sent us back


def test_a_replica_that_is_gone_is_not_asked(pair: Pair) -> None:
    assert pair.read() == b"0"
    del pair.world.brokers["two", 9092]
    pair.follower.lose_all()
    pair.following = False
    assert pair.read() == b"1"


def test_after_metadata_max_age_the_leader_is_asked_again(pair: Pair) -> None:
    assert pair.read() == b"0"
    pair.fetches()
    pair.world.advance(30_000)
    assert pair.fetches()[0] == 0
    pair.world.advance(40_000)
    assert pair.fetches()[0] == 1


def test_without_a_rack_the_leader_serves() -> None:
    pair = Pair(rack="")
    assert pair.read() == b"0"
    assert pair.fetches()[1] == 0
