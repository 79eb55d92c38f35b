"""Throttles of replication: which partitions they name, when they hold back, and the requests of a held follower."""

import pytest

from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.replication.follower.fetching import Fetching, FetchLimits
from ottla.replication.follower.followed import Append, Effect, Position
from ottla.replication.throttle import FOLLOWER, UNLIMITED, ReplicationThrottle
from ottla.security.quotas import Window

NODE = 2
ID = b"t" * 16
MB = 1 << 20


def throttle(replicas: str, limit: int = 100) -> ReplicationThrottle:
    """Return a throttle over ten seconds, where topic t has these throttled replicas."""
    result = ReplicationThrottle(
        FOLLOWER, NODE, lambda topic: {FOLLOWER: replicas} if topic == "t" else {}, Window(11, 1000)
    )
    result.limit = limit
    return result


@pytest.mark.parametrize(
    ("replicas", "named"),
    [
        ("*", [0, 1, 2, 3]),
        (" * ", [0, 1, 2, 3]),
        ("", []),
        ("0:2", [0]),
        ("0:1,1:2, 3:2", [1, 3]),
        ("0:22", []),
    ],
)
def test_the_config_names_replicas_of_brokers(replicas: str, named: list[int]) -> None:
    one = throttle(replicas)
    assert [index for index in range(4) if one.names("t", index)] == named
    assert not one.names("other", 0)
    one.limit = UNLIMITED
    assert not any(one.names("t", index) for index in range(4))


def test_the_rate_is_that_of_all_windows() -> None:
    one = throttle("*", limit=100)
    assert one.wait_ms(0) == 0
    one.record(1000, 0)
    assert one.wait_ms(0) == 0, "1000 bytes in 10 s"
    one.record(1, 0)
    assert 0 < one.wait_ms(0) <= 1000
    assert one.wait_ms(12_000) == 0


def test_a_limit_of_nothing_holds_back_once_something_was_sent() -> None:
    one = throttle("*", limit=0)
    assert one.wait_ms(0) == 0
    one.record(1, 0)
    assert one.wait_ms(0) == 1000


def test_a_raised_limit_takes_effect_within_a_second() -> None:
    one = throttle("*", limit=1)
    one.record(MB, 0)
    assert one.wait_ms(0) == 1000
    one.limit = MB
    assert one.wait_ms(1000) == 0


def row(index: int, size: int, end: int) -> PartitionData:
    return PartitionData(partition_index=index, high_watermark=end, aborted_transactions=None, records=b"x" * size)


class Follower:
    """Machine that follows partitions 0 and 1, of which only 0 is throttled."""

    def __init__(self, limit: int) -> None:
        self.now = 0
        self.throttle = throttle("0:2", limit)
        self.machine = Fetching(NODE, 9, FetchLimits(), self.throttle)
        for index in range(2):
            begun = self.machine.follow("t", ID, index, 5)
            assert begun is not None
            self.machine.resume(begun.partition, Position(0, -1, 0))
        self.session: set[int] = set()

    def exchange(self, size: int, end: int) -> set[int]:
        """Send the next request, and return the partitions that it fetches; each gets a row, with records up to `end`."""
        request = self.machine.request(self.now)
        assert request is not None
        self.session |= {part.partition for topic in request.topics for part in topic.partitions}
        self.session -= {index for topic in request.forgotten_topics_data for index in topic.partitions}
        asked = set(self.session)
        rows = [row(index, size, end) for index in sorted(asked)]
        topics = [FetchableTopicResponse(topic_id=ID, partitions=rows)]
        response = FetchResponse(session_id=7, responses=topics)
        for effect in self.machine.on_response(request, response, self.now):
            assert isinstance(effect, Append)
            position = effect.partition.position.offset + size
            effect.partition.is_in_sync = position >= end
            self.machine.resume(effect.partition, Position(position, 5, 0))
        return asked


def test_a_throttled_follower_is_left_out_of_requests_until_its_rate_is_low_enough() -> None:
    follower = Follower(limit=100)
    assert follower.exchange(2000, 10_000) == {0, 1}
    assert follower.exchange(2000, 10_000) == {1}
    assert follower.exchange(2000, 10_000) == {1}
    assert follower.machine.due_ms() is not None
    follower.now = 12_000
    assert follower.exchange(2000, 10_000) == {0, 1}
    assert follower.exchange(2000, 10_000) == {1}


def test_a_follower_in_sync_is_not_held_back() -> None:
    follower = Follower(limit=100)
    assert follower.exchange(2000, 2000) == {0, 1}
    assert follower.exchange(2000, 4000) == {0, 1}


def test_a_removed_throttle_lets_the_follower_go_on() -> None:
    follower = Follower(limit=1)
    follower.exchange(2000, 10_000)
    assert follower.exchange(2000, 10_000) == {1}
    follower.throttle.limit = UNLIMITED
    follower.now += 1001
    assert follower.exchange(2000, 10_000) == {0, 1}


def respond(follower: Follower, request: FetchRequest, size: int, *indexes: int) -> list[Effect]:
    """Answer a request with records of some partitions."""
    topics = [FetchableTopicResponse(topic_id=ID, partitions=[row(index, size, 10_000) for index in indexes])]
    return follower.machine.on_response(request, FetchResponse(session_id=7, responses=topics), follower.now)


def test_a_response_that_arrives_above_the_rate_is_appended() -> None:
    follower = Follower(limit=100)
    request = follower.machine.request(0)
    assert request is not None
    follower.throttle.record(2000, 0)  # by fetches from another leader, which share the rate
    assert follower.machine.request(0) is None
    assert follower.machine.request_aside(0) is None
    effects = respond(follower, request, 2000, 0)
    assert [(type(effect), effect.partition.index) for effect in effects] == [(Append, 0)]


def test_a_response_of_the_second_request_that_arrives_above_the_rate_is_appended() -> None:
    follower = Follower(limit=100)
    begun = follower.machine.follow("t", ID, 2, 5)
    assert begun is not None
    follower.throttle = throttle("2:2", 100)
    follower.machine._throttle = follower.throttle
    assert follower.machine.request(0) is not None
    follower.machine.resume(begun.partition, Position(0, -1, 0))
    aside = follower.machine.request_aside(0)
    assert aside is not None
    follower.throttle.record(2000, 0)
    assert follower.machine.request_aside(0) is None
    assert [effect.partition.index for effect in respond(follower, aside, 2000, 2)] == [2]


def test_throttled_partitions_are_left_out_of_the_second_request() -> None:
    follower = Follower(limit=100)
    begun = follower.machine.follow("t", ID, 2, 5)
    assert begun is not None
    follower.throttle = throttle("2:2", 100)
    follower.machine._throttle = follower.throttle
    assert follower.machine.request(0) is not None
    follower.throttle.record(2000, 0)
    follower.machine.resume(begun.partition, Position(0, -1, 0))
    assert follower.machine.request_aside(0) is None


def test_records_that_are_not_appended_are_counted() -> None:
    follower = Follower(limit=100)
    request = follower.machine.request(0)
    assert request is not None
    assert follower.machine.follow("t", ID, 0, 6) is not None  # a new leader epoch: the row is void
    assert respond(follower, request, 2000, 0) == []
    assert follower.throttle.wait_ms(0) > 0


def test_records_of_a_request_that_counts_no_more_are_counted() -> None:
    follower = Follower(limit=100)
    request = follower.machine.request(0)
    assert request is not None
    follower.machine.leader_restarted()
    assert respond(follower, request, 2000, 0) == []
    assert follower.throttle.wait_ms(0) > 0
