"""ElectLeaders with many partitions: in several changes, and again after a conflict."""

from typing import Any

from tests.unit.broker.requests.handlers.test_reassignment_requests import ID, Broker

from ottla.broker.requests.handlers.elect_leaders import elect_leaders
from ottla.metadata.image import PartitionImage
from ottla.metadata.store import keys
from ottla.protocol.errors import ELECTION_NOT_NEEDED, NONE
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.tasks.deferred import after

PLACED = PartitionImage((1, 2), (1, 2), 2, 0)


def elect(broker: Broker, count: int) -> list[int]:
    """Request elections of the preferred leaders; return the error codes."""
    places = [TopicPartitions(topic="t", partitions=list(range(count)))]
    served: Any = broker
    coroutine: Any = elect_leaders(ElectLeadersRequest(topic_partitions=places), served)
    answer = broker.tasks.start(coroutine)
    broker.time.advance(200)
    responses: list[Any] = []
    after(answer, responses.append)
    broker.time.advance(0)
    return [row.error_code for row in responses[0].replica_election_results[0].partition_result]


def test_a_conflict_does_not_deny_what_the_request_has_elected_before() -> None:
    broker = Broker(*[PLACED] * 6)
    change, written = broker.shared.change, 0

    def changed(one: Any) -> Any:
        nonlocal written
        written += 1
        if written == 2:  # the change of partitions 2 and 3: another broker was faster with one of them
            state = broker.partitions[3]._replace(epoch=7)
            change(one._replace(expect={}, created={}, put={keys.partition_key(ID, 3): state.encoded()}))
        return change(one)

    broker.shared.change = changed  # type: ignore[assignment, method-assign]
    assert elect(broker, 6) == [NONE] * 6
    assert written > 3
    assert [partition.leader for partition in broker.partitions] == [1] * 6
    assert broker.partitions[3].epoch == 8
    assert elect(broker, 6) == [ELECTION_NOT_NEEDED] * 6
