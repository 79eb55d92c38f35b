"""AlterPartitionReassignments: move partitions to other brokers (KIP-455).

Authorization
    cluster: ALTER   CLUSTER_AUTHORIZATION_FAILED, also for each partition

Behaviour
    other replicas                the new ones are assigned besides the old ones; the controller completes the reassignment when
                                  all of them are in the ISR. Another reassignment in progress is replaced
    the present replicas          done at once, also in another order, and if some are only removed and the leader stays
    replicas null                 cancels: the original replicas stay; NO_REASSIGNMENT_IN_PROGRESS: nothing to cancel;
                                  INVALID_REPLICA_ASSIGNMENT: only new replicas are in the ISR
    invalid replicas              INVALID_REPLICA_ASSIGNMENT, with the reason; fenced brokers are valid
    another number of replicas    INVALID_REPLICATION_FACTOR where the request does not allow it
    unknown topic, partition      UNKNOWN_TOPIC_OR_PARTITION
    a timeout of 0 or below       REQUEST_TIMED_OUT, also for each partition, unless there is no topic

Versions
    1  whether the number of replicas may change (KIP-860)
"""

import logging
from collections.abc import Iterable
from itertools import chain, islice
from typing import Final, NamedTuple

from ottla.broker.broker import Broker
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_cluster
from ottla.metadata import changes
from ottla.metadata.changes.elections import ElectionRules
from ottla.metadata.changes.reassignment import (
    begin_reassignment,
    cancel_reassignment,
    complete_reassignment,
    is_reassigned,
    keeps_records,
    target_of,
)
from ottla.metadata.image import Image, PartitionImage, TopicImage
from ottla.metadata.metadata import Conflict, outdated
from ottla.metadata.plans.topics import check_replicas
from ottla.metadata.refusal import Refused
from ottla.protocol.errors import (
    CLUSTER_AUTHORIZATION_FAILED,
    INVALID_REPLICA_ASSIGNMENT,
    INVALID_REPLICATION_FACTOR,
    NO_REASSIGNMENT_IN_PROGRESS,
    NONE,
    REQUEST_TIMED_OUT,
    UNKNOWN_TOPIC_OR_PARTITION,
    error,
)
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ottla.security.operations import AclOperation

_logger: Final = logging.getLogger("ottla.metadata")
_PARTITIONS_A_STEP: Final = 500
"""Number of partitions that are planned in one step of some milliseconds, and written together."""
_Place = tuple[str, int]
"""Topic name and index of a partition."""
_Entry = tuple[ReassignablePartition, ReassignablePartitionResponse]


class _Planned(NamedTuple):
    """Next state of a partition, and the rows that depend on it."""

    topic: TopicImage
    partition: int
    state: PartitionImage
    rows: list[ReassignablePartitionResponse]
    cancels: bool


@handles(AlterPartitionReassignmentsRequest, rows="topics.partitions", is_whole=True)
async def alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, broker: Broker
) -> AlterPartitionReassignmentsResponse:
    if not may_use_cluster(request.context, AclOperation.ALTER):
        return _refuse(request, CLUSTER_AUTHORIZATION_FAILED, error(CLUSTER_AUTHORIZATION_FAILED).message)
    if not request.topics:
        return AlterPartitionReassignmentsResponse(
            error_message=""
        )  # Kafka answers the defaults, without its controller
    if request.timeout_ms <= 0:
        return _refuse(request, REQUEST_TIMED_OUT, None)
    return await _Alteration(request, broker).run()


class _Alteration:
    """One request. Its partitions are changed some at a time, each part planned on the newest image until it is written."""

    def __init__(self, request: AlterPartitionReassignmentsRequest, broker: Broker) -> None:
        self._request = request
        self._broker = broker
        self._counts: dict[str, list[int]] = {}
        """Partitions that are being and were reassigned, by topic."""

    async def run(self) -> AlterPartitionReassignmentsResponse:
        """Plan and write all changes, in steps."""
        entries: dict[_Place, list[_Entry]] = {}
        responses: list[ReassignableTopicResponse] = []
        for topic in self._request.topics:
            rows: list[ReassignablePartitionResponse] = []
            responses.append(ReassignableTopicResponse(name=topic.name, partitions=rows))
            for asked in topic.partitions:
                await self._broker.tasks.pace()
                row = ReassignablePartitionResponse(partition_index=asked.partition_index, error_message=None)
                rows.append(row)
                entries.setdefault((topic.name, asked.partition_index), []).append((asked, row))
        remaining = iter(entries.items())
        while some := list(islice(remaining, _PARTITIONS_A_STEP)):
            await self._write(dict(some))
            await self._broker.tasks.sleep(0)
        for name, (begun_count, ended_count) in self._counts.items():
            _logger.info("%s: %d partitions are reassigned, %d were reassigned at once", name, begun_count, ended_count)
        return AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=self._request.allow_replication_factor_change,
            error_message=None,
            responses=responses,
        )

    async def _write(self, entries: dict[_Place, list[_Entry]]) -> None:
        """Change some partitions; after a conflict those that are still open are planned again."""
        metadata = self._broker.metadata
        for image in metadata.attempts():
            for _, row in chain.from_iterable(entries.values()):
                row.error_code, row.error_message = NONE, None
            planned = {(one.topic.name, one.partition): one for one in self._plan(entries.items(), image)}
            states = [one[:3] for one in planned.values()]
            refused = outdated()
            try:
                for chunk, change in changes.chunks_of_states(image, states, metadata.largest_change):
                    await metadata.commit(change)
                    for topic, index, _ in chunk:
                        self._note(planned.pop((topic.name, index)))
                        del entries[topic.name, index]
            except Conflict:
                continue
            except Refused as cause:
                refused = cause
            break
        for one in planned.values():
            for row in one.rows:
                row.error_code, row.error_message = refused.code, refused.message

    def _plan(self, entries: Iterable[tuple[_Place, list[_Entry]]], image: Image) -> list[_Planned]:
        rules: dict[str, ElectionRules] = {}
        planned = []
        for (name, index), its in entries:
            topic = image.topics.get(name)
            if topic is not None and name not in rules:
                rules[name] = self._broker.election_rules(topic)
            # Of several entries for a partition the last valid one counts.
            state, cancels = None, False
            for partition, row in its:
                try:
                    if topic is None:
                        raise Refused(UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
                    if not 0 <= index < len(topic.partitions):
                        raise Refused(UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}.")
                    state = self._next_state(topic, index, partition.replicas, rules[name], image)
                    cancels = partition.replicas is None
                except Refused as refused:
                    row.error_code, row.error_message = refused.code, refused.message
            if topic is not None and state is not None and state != topic.partitions[index]:
                rows = [row for _, row in its if row.error_code == NONE]
                state = state._replace(epoch=topic.partitions[index].epoch + 1)
                planned.append(_Planned(topic, index, state, rows, cancels))
        return planned

    def _next_state(
        self, topic: TopicImage, index: int, replicas: list[int] | None, rules: ElectionRules, image: Image
    ) -> PartitionImage:
        """Return a partition after a reassignment, or its cancellation, was requested. Raises Refused."""
        before = topic.partitions[index]
        if replicas is not None:
            check_replicas(replicas, image)
            if not self._request.allow_replication_factor_change:
                _check_factor(before, len(replicas))
            state = begin_reassignment(before, replicas)
        else:
            state = _cancel(topic, index, rules)
        return _complete(state, rules, image)

    def _note(self, planned: _Planned) -> None:
        """Note the change of a partition."""
        topic, index, state = planned.topic, planned.partition, planned.state
        self._counts.setdefault(topic.name, [0, 0])[not is_reassigned(state)] += 1
        before = topic.partitions[index].replicas
        _logger.debug("%s-%d is reassigned from %s to %s", topic.name, index, list(before), list(target_of(state)))


def _refuse(
    request: AlterPartitionReassignmentsRequest, code: int, text: str | None
) -> AlterPartitionReassignmentsResponse:
    """Refuse the whole request."""
    topics = [
        ReassignableTopicResponse(
            name=topic.name,
            partitions=[
                ReassignablePartitionResponse(partition_index=one.partition_index, error_code=code, error_message=text)
                for one in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return AlterPartitionReassignmentsResponse(error_code=code, error_message=text, responses=topics)


def _cancel(topic: TopicImage, index: int, rules: ElectionRules) -> PartitionImage:
    """Return a partition whose reassignment is cancelled. Raises Refused."""
    before = topic.partitions[index]
    if not is_reassigned(before):
        raise Refused(NO_REASSIGNMENT_IN_PROGRESS, None)
    if not keeps_records(before) and not rules.allows_unclean:
        text = (
            f"Unable to revert partition assignment for {topic.name}:{index} because it would require an unclean leader "
            "election."
        )
        raise Refused(INVALID_REPLICA_ASSIGNMENT, text)
    return cancel_reassignment(before)


def _check_factor(before: PartitionImage, count: int) -> None:
    """Raise Refused unless a partition will have as many replicas as before (KIP-860)."""
    present = len(target_of(before))
    if count != present:
        text = f"The replication factor is changed from {present} to {count}"
        raise Refused(INVALID_REPLICATION_FACTOR, text)


def _complete(state: PartitionImage, rules: ElectionRules, image: Image) -> PartitionImage:
    """Complete a reassignment that needs no new replica, unless the leader changes: elections are the controller's."""

    def acceptable(node: int) -> bool:
        return node not in state.offline and image.is_active(node)

    result = complete_reassignment(state, acceptable, rules._replace(allows_unclean=False))
    return state if result is None or result.leader != state.leader else result
