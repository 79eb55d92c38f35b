"""Transactional batches of a Produce request: they are verified with the coordinator before they are appended (KIP-890).

examined ---> verified by the coordinator ---> compared with what was examined ---> appended, or an error for the partition
"""

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.broker import Broker
from ottla.broker.coordination.verification import Client, VerificationGuard, is_concurrent
from ottla.broker.requests.dispatch import PositionalRequest
from ottla.broker.requests.produce_version import ProduceVersion, produce_version
from ottla.coordinators.transactions.partitions import Codes, PartitionsOf
from ottla.protocol.errors import (
    CONCURRENT_TRANSACTIONS,
    INVALID_PRODUCER_EPOCH,
    INVALID_REQUEST,
    NOT_LEADER_OR_FOLLOWER,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from ottla.records.batch import base_sequence, transactional_producer
from ottla.tasks.deferred import Answer, Deferred, after

if TYPE_CHECKING:
    from ottla.replication.partition import Partition

TopicPartition = tuple[str, int]
Producer = tuple[int, int]
"""Id and epoch."""
Guards = dict[TopicPartition, tuple[Producer, VerificationGuard | None]]
"""Producer and guard of each partition with a transactional batch; no guard where this broker was not the leader."""
OF_SEVERAL_PRODUCERS: Final[Codes] = {}
"""Stands for the error of a request whose batches are of several producers or epochs."""
UNKNOWN_TOPIC: Final = frozenset((UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID))


def has_transactional(request: PositionalRequest) -> bool:
    """Return True if any batch is transactional."""
    frame = request.frame
    for topic in request.fields.topic_data:
        for data in topic.partition_data:
            if data.records is not None and transactional_producer(frame, *data.records) is not None:
                return True
    return False


def verify_batches(request: PositionalRequest, broker: Broker) -> Answer[Codes]:
    """Verify the transactional batches, again while the transaction before is still ending; the answer has the error codes of
    the partitions to which they are not appended, or is OF_SEVERAL_PRODUCERS.
    """
    return broker.coordination.verification.repeat(partial(_verify, request, broker), is_concurrent)


def _verify(request: PositionalRequest, broker: Broker) -> Answer[Codes]:
    """Verify the batches as the partitions are now."""
    version = produce_version(request.context.version)
    unverified, codes, guards = _find_unverified(request, version, broker)
    if unverified is None:
        return codes
    client = Client.OLD
    if version.aborts:
        client = Client.ADDS_IMPLICITLY if version.adds else Client.ABORTS
    is_enabled = broker.config.flag("transaction.partition.verification.enable")
    answer = broker.coordination.verification.verify(unverified, client, is_enabled=is_enabled)
    if not isinstance(answer, Deferred):
        return {**codes, **answer}

    def complete(verified: Codes) -> Codes:
        return {**codes, **verified, **_stale_verifications(guards, broker)}

    return after(answer, complete)


def _find_unverified(
    request: PositionalRequest, version: ProduceVersion, broker: Broker
) -> tuple[PartitionsOf | None, Codes, Guards]:
    """Return the partitions whose transactional batches must be verified, or None without such batches; the error codes of
    batches that fail without verification, or OF_SEVERAL_PRODUCERS; and the guards of all partitions with transactional
    batches.
    """
    frame = request.frame
    transactional_id = request.fields.transactional_id
    find = broker.replicas.leader_by_id if version.by_id else broker.replicas.leader
    producers_of_batches: set[Producer] = set()
    unverified: set[TopicPartition] = set()
    codes: dict[TopicPartition, int] = {}
    led: list[tuple[TopicPartition, Producer, Partition, int]] = []
    guards: Guards = {}
    for topic in request.fields.topic_data:
        for data in topic.partition_data:
            producer = None if data.records is None else transactional_producer(frame, *data.records)
            if producer is None:
                continue
            partition = find(topic.topic_id if version.by_id else topic.name, data.index)
            if partition not in UNKNOWN_TOPIC:
                producers_of_batches.add(producer)
            if isinstance(partition, int):
                guards[_name_of(topic, version, broker), data.index] = producer, None
                continue
            key = partition.topic, data.index
            led.append((key, producer, partition, base_sequence(frame, data.records[0])))
            producers = partition.log.producers
            if producers.is_fenced(*producer):
                codes[key] = INVALID_PRODUCER_EPOCH
            elif not producers.has_open_transaction(*producer):
                unverified.add(key)
    if len(producers_of_batches) > 1:
        return None, OF_SEVERAL_PRODUCERS, guards
    if not transactional_id:
        return None, {key: INVALID_REQUEST for key, *_ in led}, guards
    if not unverified:
        return None, codes, guards
    now_ms = broker.clock.wall_ms()
    for key, producer, partition, sequence in led:
        if key in unverified:
            producers = partition.log.producers
            producers.begin_verification(*producer, sequence, now_ms, begins_at_zero=version.adds)
        guards[key] = producer, VerificationGuard.of(partition, producer[0])
    return PartitionsOf(transactional_id, *producers_of_batches.pop(), frozenset(unverified)), codes, guards


def _name_of(topic: Any, version: ProduceVersion, broker: Broker) -> str:
    """Return the name of a topic, empty for an unknown topic id."""
    if not version.by_id:
        name: str = topic.name
        return name
    known = broker.image.topics_by_id.get(topic.topic_id)
    return "" if known is None else known.name


def _stale_verifications(guards: Guards, broker: Broker) -> Codes:
    """Return error codes for the partitions whose state is not that in which their verification began."""
    codes: dict[TopicPartition, int] = {}
    for key, (producer, guard) in guards.items():
        partition = broker.replicas.leader(*key)
        if isinstance(partition, int):
            continue  # not appended
        if guard is None or guard.leader_epoch != partition.leader_epoch:
            codes[key] = NOT_LEADER_OR_FOLLOWER
        elif guard != VerificationGuard.of(partition, producer[0]):
            # The marker may be that of the transaction before: the client sends the batch again, and it is verified again.
            codes[key] = CONCURRENT_TRANSACTIONS
            if partition.log.producers.is_fenced(*producer):
                codes[key] = INVALID_PRODUCER_EPOCH
    return codes
