"""AlterPartitionReassignments with many partitions: in steps, in several changes, and again after a conflict."""

from typing import Any

import pytest
from tests.queues import unexpected
from tests.unit.metadata.stores import VirtualTime

from ottla.broker.requests.handlers.alter_partition_reassignments import alter_partition_reassignments
from ottla.metadata.changes.elections import ElectionRules
from ottla.metadata.changes.reassignment import begin_reassignment
from ottla.metadata.image import BrokerImage, Liveness, PartitionImage, TopicImage
from ottla.metadata.image.stored import topic_entries
from ottla.metadata.metadata import Metadata
from ottla.metadata.store import Change, keys
from ottla.metadata.store.memory import SharedMetadata
from ottla.protocol.errors import INVALID_REPLICA_ASSIGNMENT, NO_REASSIGNMENT_IN_PROGRESS, NONE
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.tasks.deferred import Deferred
from ottla.tasks.scheduler import Scheduler

ID = b"t" * 16
PLACED = PartitionImage((1, 2), (1, 2), 1, 0)


class Broker:
    """The parts of a broker that the handler needs, on a store in memory that takes two partitions a change."""

    def __init__(self, *partitions: PartitionImage, largest_change: int = 4) -> None:
        self.time = VirtualTime()
        self.steps = 0
        self.tasks = Scheduler(self.time, self)
        self.shared = SharedMetadata(self.time, self.time)
        put = {keys.CLUSTER_ID: b"cluster", keys.METADATA_VERSION: str(keys.NEWEST_METADATA_VERSION).encode()}
        for node in (1, 2, 3):
            put[keys.broker_key(node)] = BrokerImage(node, f"b{node}", 9092, None, incarnation=f"{node}").encoded()
            put[keys.live_key(node)] = Liveness(f"{node}", 0, 0).encoded()
        self.shared.change(Change(put=put | topic_entries(TopicImage("t", ID, partitions, {}))))
        random: Any = None
        store = self.shared.connect(latency=lambda: 1)
        store.largest_change = largest_change  # type: ignore[misc]
        self.metadata = Metadata(
            store,
            self.shared.snapshot(),
            random=random,
            tasks=self.tasks,
            default_partitions=lambda: 1,
            default_replicas=lambda: 1,
        )
        self.metadata.follow()
        self.rules = 0
        self.steps = 0

    @property
    def image(self) -> Any:
        return self.metadata.image

    def call_later(self, delay_ms: int, callback: Any) -> Any:
        self.steps += 1
        return self.time.call_later(delay_ms, callback)

    def election_rules(self, topic: TopicImage) -> ElectionRules:
        del topic
        self.rules += 1
        return ElectionRules(min_isr=1)

    @property
    def partitions(self) -> tuple[PartitionImage, ...]:
        partitions: tuple[PartitionImage, ...] = self.image.topics["t"].partitions
        return partitions

    def reassign(self, *entries: tuple[int, list[int] | None]) -> list[int]:
        """Request new replicas of partitions; return the error codes."""
        rows = [ReassignablePartition(partition_index=index, replicas=replicas) for index, replicas in entries]
        topics = [ReassignableTopic(name="t", partitions=rows)]
        broker: Any = self
        coroutine: Any = alter_partition_reassignments(AlterPartitionReassignmentsRequest(topics=topics), broker)
        self.answer: Any = self.tasks.start(coroutine)
        self.time.advance(200)
        assert isinstance(self.answer, Deferred)
        responses: list[Any] = []
        self.answer.then(responses.append, unexpected)
        self.time.advance(0)
        return [row.error_code for row in responses[0].responses[0].partitions]


def test_a_conflict_does_not_deny_what_the_request_has_cancelled_before() -> None:
    broker = Broker(*[begin_reassignment(PLACED, (2, 3))] * 6)
    change, written = broker.shared.change, 0

    def changed(one: Change) -> Any:
        nonlocal written
        written += 1
        if written == 2:  # the change of partitions 2 and 3: another broker was faster with one of them
            state = broker.partitions[3]._replace(epoch=7)
            change(Change(put={keys.partition_key(ID, 3): state.encoded()}))
        return change(one)

    broker.shared.change = changed  # type: ignore[assignment, method-assign]
    assert broker.reassign(*((index, None) for index in range(6))) == [NONE] * 6
    assert written > 3
    assert [partition.replicas for partition in broker.partitions] == [(2, 1)] * 6
    assert broker.partitions[3].epoch == 8


def test_cancelling_without_a_reassignment_returns_no_reassignment_in_progress() -> None:
    broker = Broker(begin_reassignment(PLACED, (2, 3)), PLACED)
    assert broker.reassign((0, None), (1, None)) == [NONE, NO_REASSIGNMENT_IN_PROGRESS]
    assert broker.reassign((0, None)) == [NO_REASSIGNMENT_IN_PROGRESS]


def test_the_last_valid_entry_of_a_partition_counts() -> None:
    broker = Broker(PLACED)
    assert broker.reassign((0, [1, 3]), (0, [2, 3]), (0, [])) == [NONE, NONE, INVALID_REPLICA_ASSIGNMENT]
    assert broker.partitions[0].replicas == (2, 3, 1)


def test_many_partitions_are_planned_in_steps_with_the_rules_of_a_step(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    broker = Broker(*[PLACED] * 1600, largest_change=1 << 30)
    assert broker.reassign(*((index, [2, 1]) for index in range(1600))) == [NONE] * 1600
    assert {partition.replicas for partition in broker.partitions} == {(2, 1)}
    assert broker.rules == 4
    assert [record.getMessage() for record in caplog.records] == [
        "t: 0 partitions are reassigned, 1600 were reassigned at once"
    ]


def test_requests_are_served_between_the_steps() -> None:
    broker = Broker(*[PLACED] * 1100)
    broker.reassign(*((index, [1, 2]) for index in range(1100)))  # nothing to write, which is known at once
    assert broker.steps >= 3
