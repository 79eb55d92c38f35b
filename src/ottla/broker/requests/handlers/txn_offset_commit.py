"""TxnOffsetCommit: commit offsets of a group as part of a producer's transaction (KIP-98, KIP-447).

Authorization
    transactional id: WRITE   TRANSACTIONAL_ID_AUTHORIZATION_FAILED for each partition
    group: READ               GROUP_AUTHORIZATION_FAILED for each partition
    topic: READ               TOPIC_AUTHORIZATION_FAILED for its partitions

Behaviour
    until the transaction is committed, OffsetFetch returns the previous offsets, or UNSTABLE_OFFSET_COMMIT if stable offsets
    are required
    the partition of __consumer_offsets must belong to the transaction   else INVALID_TXN_STATE; from 4 on TRANSACTION_ABORTABLE
    another broker is the coordinator   NOT_COORDINATOR, without verification
    an older epoch                      INVALID_PRODUCER_EPOCH; another producer id: INVALID_PRODUCER_ID_MAPPING
    an empty group id                   INVALID_GROUP_ID
    members, topics and metadata        as OffsetCommit; a request without member and generation is accepted

Versions
    2  leader epochs
    3  generation and member
    4  TRANSACTION_ABORTABLE
    5  the partition is added to the transaction here (KIP-890)
    6  topic ids (KIP-1319)
"""

from functools import partial
from typing import Final

from ottla.broker.broker import Broker
from ottla.broker.coordination.unknown_partitions import merge_rows, reject_unknown
from ottla.broker.coordination.verification import Client, VerificationGuard
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_group, may_use_transactional_id
from ottla.coordinators.offsets import TransactionalCommit, commit_in_transaction, refuse_commit
from ottla.coordinators.runtime import coordinator_error
from ottla.coordinators.transactions.partitions import Codes, PartitionsOf
from ottla.metadata.image import OFFSETS_TOPIC
from ottla.protocol.errors import (
    CONCURRENT_TRANSACTIONS,
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    GROUP_AUTHORIZATION_FAILED,
    INVALID_GROUP_ID,
    INVALID_PRODUCER_EPOCH,
    NONE,
    NOT_COORDINATOR,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.security.operations import AclOperation
from ottla.tasks.deferred import Answer, after, awaitable

_FIRST_THAT_ABORTS: Final = 4
_FIRST_THAT_ADDS: Final = 5
_FIRST_WITH_TOPIC_IDS: Final = 6
_OFFSET_COMMIT_WITH_TOPIC_IDS: Final = 10
_MARKED_MEANWHILE: Final = -2
"""Outcome of a verification during which a marker of the producer came: maybe that of the transaction before."""


@handles(TxnOffsetCommitRequest, rows="topics.partitions")
async def txn_offset_commit(request: TxnOffsetCommitRequest, broker: Broker) -> TxnOffsetCommitResponse:
    commit = _as_offset_commit(request)
    if not may_use_transactional_id(request.context, AclOperation.WRITE, request.transactional_id):
        return _to_txn_response(refuse_commit(commit, TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    if not may_use_group(request.context, AclOperation.READ, request.group_id):
        return _to_txn_response(refuse_commit(commit, GROUP_AUTHORIZATION_FAILED))
    if not await awaitable(broker.topics.provide_internal(OFFSETS_TOPIC), broker.tasks):
        return _to_txn_response(refuse_commit(commit, COORDINATOR_NOT_AVAILABLE))
    by_id = request.context.version >= _FIRST_WITH_TOPIC_IDS
    version = _OFFSET_COMMIT_WITH_TOPIC_IDS if by_id else 0
    refused = reject_unknown(commit, version, broker.image, request.context)
    if not commit.topics:
        return _to_txn_response(OffsetCommitResponse(topics=list(refused.values())))
    if request.group_id:
        committed = await _commit(commit, request, broker)
    else:
        committed = refuse_commit(commit, INVALID_GROUP_ID)
    return _to_txn_response(merge_rows(refused, committed) if refused else committed)


def _as_offset_commit(request: TxnOffsetCommitRequest) -> OffsetCommitRequest:
    commit = OffsetCommitRequest(
        group_id=request.group_id,
        generation_id_or_member_epoch=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        retention_time_ms=-1,
        topics=[
            OffsetCommitRequestTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        committed_metadata=partition.committed_metadata,
                        commit_timestamp=-1,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
    by_id = request.context.version >= _FIRST_WITH_TOPIC_IDS
    commit.context = request.context._replace(version=_OFFSET_COMMIT_WITH_TOPIC_IDS if by_id else 0)
    return commit


async def _commit(commit: OffsetCommitRequest, request: TxnOffsetCommitRequest, broker: Broker) -> OffsetCommitResponse:
    """Verify the transaction of the offsets' partition, then commit the offsets."""
    index = broker.groups.partition_of(request.group_id)
    verified = broker.coordination.verification.repeat(partial(_verify, request, index, broker), _is_concurrent)
    code = await awaitable(verified, broker.tasks)
    if code != NONE:
        return refuse_commit(commit, COORDINATOR_LOAD_IN_PROGRESS if code == _MARKED_MEANWHILE else code)
    producer = request.producer_id, request.producer_epoch
    committed = broker.groups.run_on(index, commit_in_transaction, TransactionalCommit(commit, producer))
    return await awaitable(committed, broker.tasks)


def _verify(request: TxnOffsetCommitRequest, index: int, broker: Broker) -> Answer[int]:
    """Verify the transaction in a partition of the offsets; returns an error code, or _MARKED_MEANWHILE."""
    partition = broker.replicas.leader(OFFSETS_TOPIC, index)
    producer = request.producer_id, request.producer_epoch
    place = OFFSETS_TOPIC, index
    if isinstance(partition, int):
        return coordinator_error(partition)
    guard = VerificationGuard.of(partition, producer[0])

    def check(codes: Codes) -> int:
        now = broker.replicas.leader(OFFSETS_TOPIC, index)
        if codes[place] == NONE and not isinstance(now, int) and guard != VerificationGuard.of(now, producer[0]):
            if guard.leader_epoch != now.leader_epoch:
                return NOT_COORDINATOR
            return INVALID_PRODUCER_EPOCH if now.log.producers.is_fenced(*producer) else _MARKED_MEANWHILE
        return codes[place]

    producers = partition.log.producers
    if producers.is_fenced(*producer):
        return INVALID_PRODUCER_EPOCH
    if producers.has_open_transaction(*producer):
        return NONE
    client = Client.of(request.context.version, aborts_from=_FIRST_THAT_ABORTS, adds_from=_FIRST_THAT_ADDS)
    partitions = PartitionsOf(request.transactional_id, *producer, frozenset((place,)))
    is_enabled = broker.config.flag("transaction.partition.verification.enable")
    return after(broker.coordination.verification.verify(partitions, client, is_enabled=is_enabled), check)


def _is_concurrent(code: int) -> bool:
    return code in (CONCURRENT_TRANSACTIONS, _MARKED_MEANWHILE)


def _to_txn_response(response: OffsetCommitResponse) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=partition.error_code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in response.topics
        ]
    )
