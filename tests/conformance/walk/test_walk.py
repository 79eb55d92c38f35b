"""The walk finds differences, and none between two equal brokers."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from ottla.protocol.messages.offset_fetch import OffsetFetchRequest
from ottla.protocol.schema import Request
from ottla.records.batch import build
from ottla.records.record import Record
from ottla.testing import EmbeddedBroker
from tests.conformance.cluster.brokers import OttlaBrokers
from tests.conformance.cluster.conftest import Cluster

from .__main__ import CONFIGS, start_cluster
from .apis import PROFILES
from .comparison import differences
from .identities import Alias, Identities
from .placement import topics_of
from .side import Side
from .walk import run, run_without_a_broker


@pytest.fixture(scope="module")
def sides() -> Iterator[list[Side]]:
    with ExitStack() as stack:
        addresses = [stack.enter_context(EmbeddedBroker(CONFIGS)).address for _ in range(2)]
        yield [stack.enter_context(closing(Side(str(address), {1: address}, is_kafka=False))) for address in addresses]


@pytest.fixture(autouse=True)
def _not_against_apache_kafka(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--broker"):
        pytest.skip("about the walk itself, between two brokers of Ottla")


@pytest.mark.parametrize("profile", PROFILES)
def test_two_equal_brokers_do_not_differ(sides: list[Side], profile: str) -> None:
    assert run(sides, 1, 80, print, profile) == []


def test_two_equal_clusters_do_not_differ() -> None:
    with ExitStack() as stack:
        brokers = [OttlaBrokers(start_cluster(3, stack)) for _ in range(2)]
        clusters = [stack.enter_context(closing(Cluster(cluster))) for cluster in brokers]
        sides = [
            stack.enter_context(closing(Side(str(at), cluster.addresses, is_kafka=False)))
            for at, cluster in enumerate(brokers)
        ]
        assert run(sides, 1, 80, print) == []
        views = [topics_of(side, "__", node_id) for side in sides for node_id in side.addresses]
        assert run_without_a_broker(sides, clusters, 2, 1, print) == []
    assert [[leader for _, leader, *_ in partitions] for partitions in views[0].values()] == [[2]] * 3
    assert views == views[:1] * 6


class Altered(Side):
    """A broker that answers OffsetFetch with another offset, so many times."""

    def __init__(self, other: Side, times: int = 1_000) -> None:
        super().__init__("altered", other.addresses, is_kafka=False)
        self.times = times

    def ask(self, request: Request, version: int, node_id: int = 0) -> Any:
        answer = super().ask(request, version, node_id)
        if self.times == 0 or not isinstance(request, OffsetFetchRequest):
            return answer
        altered = _with_other_offsets(answer)
        self.times -= altered != answer
        return altered


def _with_other_offsets(answer: Any) -> Any:
    if isinstance(answer, list):
        return [_with_other_offsets(value) for value in answer]
    if not isinstance(answer, dict):
        return answer
    return {
        name: value + 1 if name == "committed_offset" else _with_other_offsets(value) for name, value in answer.items()
    }


def test_another_answer_is_found(sides: list[Side]) -> None:
    reports: list[str] = []
    with closing(Altered(sides[1])) as altered:
        unequal = run([sides[0], altered], 1, 100, reports.append)
    assert unequal
    assert all(": OffsetFetch v" in difference for difference in unequal)
    assert all("committed_offset: " in difference for difference in unequal)
    assert reports == unequal


def test_a_difference_that_is_not_seen_again_does_not_count(sides: list[Side]) -> None:
    with closing(Altered(sides[1], times=1)) as altered:
        assert run([sides[0], altered], 1, 100, print) == []
        assert altered.times == 0


def compared(one: Any, other: Any, identities: Identities | None = None) -> list[str]:
    return list(differences(one, other, identities or Identities()))


def test_values_that_brokers_make_up_stand_for_each_other() -> None:
    identities = Identities()
    assert compared({"member_id": "a-1"}, {"member_id": "b-7"}, identities) == []
    assert identities.alias("leader", "b-7", 1) == Alias("member", 0)
    assert identities.value(Alias("member", 0), 1) == "b-7"
    assert compared({"leader": "a-1"}, {"leader": "b-7"}, identities) == []
    assert compared({"leader": "a-1"}, {"leader": "b-8"}, identities) != []
    assert compared({"leader": "a-1"}, {"leader": ""}, identities) != []
    assert compared({"leader": ""}, {"leader": ""}, identities) == []


def test_the_order_of_lists_does_not_count() -> None:
    identities = Identities()
    rows = [{"name": "a", "topic_id": b"1" * 16, "code": 1}, {"name": "b", "topic_id": b"2" * 16, "code": 2}]
    others = [{"name": "b", "topic_id": b"3" * 16, "code": 2}, {"name": "a", "topic_id": b"4" * 16, "code": 1}]
    assert compared({"rows": rows}, {"rows": others}, identities) == []
    assert identities.alias("topic_id", b"4" * 16, 1) == identities.alias("topic_id", b"1" * 16, 0)
    by_id = [{"topic_id": b"2" * 16, "code": 5}, {"topic_id": b"1" * 16, "code": 5}]
    assert compared(by_id, [{"topic_id": b"4" * 16, "code": 5}, {"topic_id": b"3" * 16, "code": 5}], identities) == []
    others[0]["code"] = 3
    assert compared({"rows": rows}, {"rows": others}, identities) == ["rows.code: 2 | 3"]


def test_neighbouring_ranges_of_acquired_records_count_as_one() -> None:
    def acquired(*rows: tuple[int, int, int]) -> dict[str, Any]:
        names = ("first_offset", "last_offset", "delivery_count")
        return {"acquired_records": [dict(zip(names, row, strict=True)) for row in rows]}

    assert compared(acquired((0, 3, 1)), acquired((2, 3, 1), (0, 1, 1))) == []
    assert compared(acquired((0, 3, 1)), acquired((0, 1, 1), (2, 3, 2))) != []
    assert compared(acquired((0, 3, 1)), acquired((0, 1, 1), (3, 3, 1))) != []


def test_rows_of_one_topic_count_as_one() -> None:
    one = [{"topic": "t", "partitions": [{"partition_index": 0}, {"partition_index": 1}]}]
    two = [{"topic": "t", "partitions": [{"partition_index": at}]} for at in (1, 0)]
    assert compared({"responses": one}, {"responses": two}) == []
    assert compared({"responses": one}, {"responses": two[:1]}) != []


def test_batches_are_compared_without_their_producers() -> None:
    def batch(producer_id: int, value: bytes = b"v") -> bytes:
        return build([Record(0, 1, None, value)], producer_id=producer_id, producer_epoch=0, base_sequence=0)

    assert compared({"records": batch(1) + batch(2)}, {"records": batch(8) + batch(9)}) == []
    assert compared({"records": batch(1)}, {"records": batch(1, b"w")}) != []
    assert compared({"records": batch(1)}, {"records": batch(1)[:-1]}) != []


def test_volatile_values_and_ids_within_texts_do_not_count() -> None:
    one = {"throttle_time_ms": 1, "error_message": "Member 0b3a9c1e-1111-2222-3333-444455556666 is unknown."}
    other = {"throttle_time_ms": 2, "error_message": "Member 7c3a9c1e-1111-2222-3333-444455556667 is unknown."}
    assert compared(one, other) == []
    assert compared(one, {**other, "error_message": "Member is unknown."}) != []


def test_a_member_may_be_asked_for_an_earlier_heartbeat() -> None:
    assert compared({"heartbeat_interval_ms": 50}, {"heartbeat_interval_ms": 5000}) == []
    assert compared({"heartbeat_interval_ms": 0}, {"heartbeat_interval_ms": 0}) == []
    assert compared({"heartbeat_interval_ms": 0}, {"heartbeat_interval_ms": 5000}) != []
    assert compared({"heartbeat_interval_ms": 5001}, {"heartbeat_interval_ms": 5000}) != []
