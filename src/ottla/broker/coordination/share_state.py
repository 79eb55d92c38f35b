"""Requests to the share coordinator: from other brokers (APIs 83 to 87), and from the group coordinator of this broker.

Requests of the group coordinator are retried for some seconds while the share coordinator is not available: its topic is
created at first use, and loaded when the broker starts.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar, cast

from ottla.broker.cluster.other_brokers import OtherBrokers
from ottla.broker.coordination.routing import CoordinatorRouting
from ottla.coordinators.runtime import COORDINATOR_UNAVAILABLE, Operation
from ottla.coordinators.share.coordinator import ShareCoordinator
from ottla.coordinators.share.state import (
    DeleteState,
    InitializeState,
    StateOutcome,
    StateSummary,
    SummarizeState,
    delete_state,
    initialize_state,
    share_key,
    summarize_state,
)
from ottla.metadata.image import SHARE_STATE_TOPIC
from ottla.protocol.errors import CLUSTER_AUTHORIZATION_FAILED, error
from ottla.tasks.deferred import Answer, Deferred, awaitable, gather
from ottla.tasks.scheduler import Scheduler

P = TypeVar("P")
R = TypeVar("R")
W = TypeVar("W")


def deny_each(topics: Iterable[Any], result: Callable[..., R], partition_result: Callable[..., Any]) -> list[R]:
    """Return CLUSTER_AUTHORIZATION_FAILED for each partition of a request, in rows of these types."""
    code = CLUSTER_AUTHORIZATION_FAILED
    text = error(code).message
    return [
        result(
            topic_id=topic.topic_id,
            partitions=[
                partition_result(partition=row.partition, error_code=code, error_message=text)
                for row in topic.partitions
            ],
        )
        for topic in topics
    ]


def ask_each(
    coordinator: ShareCoordinator,
    group_id: str,
    topics: Iterable[tuple[bytes, Sequence[P]]],
    operation: Operation[Any, R],
    question: Callable[[bytes, P], Any],
    combine: Callable[[dict[bytes, list[tuple[int, R]]]], W],
) -> Answer[W]:
    """Run an operation of the share coordinator for each partition.

    question  builds the request for a partition from its topic id and data
    combine   builds the response from (partition, answer) by topic id

    The response is empty for an empty group id, for no topics, and if any topic has no partitions. For a partition that is
    named twice the operation runs twice, and the response has the last result only.
    """
    partitions_by_topic = list(topics)
    if not group_id or not all(partitions for _, partitions in partitions_by_topic):
        return combine({})
    questions = [
        question(topic_id, partition) for topic_id, partitions in partitions_by_topic for partition in partitions
    ]
    answers = [
        coordinator.run(share_key(group_id, question.topic_id, question.partition), operation, question)
        for question in questions
    ]

    def combine_answers(responses: list[R]) -> W:
        last = {
            (request.topic_id, request.partition): answer for request, answer in zip(questions, responses, strict=True)
        }
        by_topic: dict[bytes, list[tuple[int, R]]] = {}
        for (topic_id, partition), answer in last.items():
            by_topic.setdefault(topic_id, []).append((partition, answer))
        return combine(by_topic)

    return gather(answers, combine_answers)


_ATTEMPTS: Final = 51
"""Attempts before the share coordinator's error is returned: 5 seconds."""
_RETRY_MS: Final = 100

TopicIdPartition = tuple[bytes, int]
"""Topic id and partition."""


class ShareCoordinators:
    """The share coordinators of the cluster: this broker for some keys, other brokers for the rest."""

    def __init__(
        self, local: ShareCoordinator, routing: CoordinatorRouting, peers: OtherBrokers, tasks: Scheduler
    ) -> None:
        self._local = local
        self._routing = routing
        self._peers = peers
        self._tasks = tasks

    def run(self, operation: Operation[Any, R], request: Any) -> Answer[R]:
        """Run an operation at the coordinator of its share partition; COORDINATOR_NOT_AVAILABLE if that does not answer."""
        key = share_key(request.group_id, request.topic_id, request.partition)
        node_id = self._routing.coordinator(SHARE_STATE_TOPIC, key)
        if self._routing.is_remote(node_id):
            from ottla.broker.coordination.remote_share_state import run_remotely

            remote = run_remotely(self._peers, self._tasks, node_id, operation, request)
            return cast(Answer[R], self._tasks.run(remote, "a request to a share coordinator"))
        return self._local.run(key, operation, request)

    def run_when_available(
        self, operation: Operation[Any, R], request: Any, *, attempts: int, pause_ms: int
    ) -> Answer[R]:
        """Run an operation, and repeat it while the coordinator is not available."""
        first: Any = self.run(operation, request)
        if isinstance(first, Deferred) or first.error_code in COORDINATOR_UNAVAILABLE:
            repeated = self._repeat(first, operation, request, attempts - 1, pause_ms)
            return self._tasks.run(repeated, "an operation of the share coordinator")
        return cast(Answer[R], first)

    async def _repeat(
        self, answer: Any, operation: Operation[Any, Any], request: Any, attempts_left: int, pause_ms: int
    ) -> Any:
        while (outcome := await awaitable(answer, self._tasks)).error_code in COORDINATOR_UNAVAILABLE and attempts_left:
            attempts_left -= 1
            await self._tasks.sleep(pause_ms)
            answer = self.run(operation, request)
        return outcome


class ShareStateKeeper:
    """Requests of the group coordinator to the share coordinator, each for many partitions of one group.

    provide_topic  creates __share_group_state if it does not exist
    """

    def __init__(
        self, coordinators: ShareCoordinators, tasks: Scheduler, provide_topic: Callable[[], Answer[bool]]
    ) -> None:
        self._coordinators = coordinators
        self._tasks = tasks
        self._provide_topic = provide_topic

    def initialize(
        self, group_id: str, state_epoch: int, start_offsets: Mapping[TopicIdPartition, int]
    ) -> Answer[dict[TopicIdPartition, StateOutcome]]:
        """Initialise the state of each of these partitions; the previous state is dropped."""
        requests = [InitializeState(group_id, *place, state_epoch, offset) for place, offset in start_offsets.items()]
        return self._ask(initialize_state, requests)

    def delete(self, group_id: str, places: Iterable[TopicIdPartition]) -> Answer[dict[TopicIdPartition, StateOutcome]]:
        """Delete the state of these partitions."""
        return self._ask(delete_state, [DeleteState(group_id, *place) for place in places])

    def summarize(
        self, group_id: str, places: Iterable[TopicIdPartition]
    ) -> Answer[dict[TopicIdPartition, StateSummary]]:
        """Return the group's position in these partitions."""
        return self._ask(summarize_state, [SummarizeState(group_id, *place) for place in places])

    def _ask(self, operation: Operation[Any, Any], requests: Sequence[Any]) -> Answer[dict[TopicIdPartition, Any]]:
        return self._tasks.run(self._outcomes(operation, requests), "a request to the share coordinator")

    async def _outcomes(self, operation: Operation[Any, Any], requests: Sequence[Any]) -> dict[TopicIdPartition, Any]:
        if requests:
            await awaitable(self._provide_topic(), self._tasks)
        run = partial(self._coordinators.run_when_available, operation, attempts=_ATTEMPTS, pause_ms=_RETRY_MS)
        answers = [run(request) for request in requests]  # all are under way before the first one is awaited
        return {
            (request.topic_id, request.partition): await awaitable(answer, self._tasks)
            for request, answer in zip(requests, answers, strict=True)
        }
