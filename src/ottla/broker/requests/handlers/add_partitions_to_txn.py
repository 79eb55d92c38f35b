"""AddPartitionsToTxn: add partitions to a transaction, which begins with the first ones.

Authorization
    transactional id: WRITE   TRANSACTIONAL_ID_AUTHORIZATION_FAILED for each partition, versions 0-3
    topic: WRITE              TOPIC_AUTHORIZATION_FAILED, and nothing is added, versions 0-3
    cluster: CLUSTER_ACTION   CLUSTER_AUTHORIZATION_FAILED, from version 4 on: brokers only

Behaviour
    an unknown topic or partition   UNKNOWN_TOPIC_OR_PARTITION; the others of the transaction OPERATION_NOT_ATTEMPTED
    an internal topic of a client   TOPIC_AUTHORIZATION_FAILED, whether it exists or not; the others as above
    the transaction before ends     a client waits for it, add.partitions.to.txn.retry.backoff.max.ms at the most; then
                                    CONCURRENT_TRANSACTIONS
    verify only                     nothing is added; TRANSACTION_ABORTABLE for a partition that does not belong to it
    an empty transactional id       INVALID_REQUEST
    no transactions (4 and later)   an empty answer (Kafka 4.4 never answers)

Versions
    0  one transaction of a client
    2  PRODUCER_FENCED; before, INVALID_PRODUCER_EPOCH
    4  several transactions, as brokers send them to each other; verification (KIP-890)
    5  TRANSACTION_ABORTABLE
"""

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from ottla.broker.broker import Broker
from ottla.broker.coordination.verification import is_concurrent
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_cluster, may_use_topic, may_use_transactional_id
from ottla.coordinators.transactions.partitions import Codes, PartitionsOf, add_partitions, verify_partitions
from ottla.coordinators.transactions.transaction import VERSION_WITH_EPOCH_BUMP
from ottla.metadata.image import INTERNAL_TOPICS
from ottla.protocol.context import RequestContext
from ottla.protocol.errors import (
    CLUSTER_AUTHORIZATION_FAILED,
    INVALID_PRODUCER_EPOCH,
    OPERATION_NOT_ATTEMPTED,
    PRODUCER_FENCED,
    TOPIC_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResponseAddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponseAddPartitionsToTxnTopicResult,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from ottla.security.operations import AclOperation
from ottla.tasks.deferred import Answer, awaitable

_FIRST_WITH_FENCED: Final = 2
_FIRST_WITH_SEVERAL: Final = 4


class _Asked(NamedTuple):
    """One transaction of the request, with its topics in the order of the request."""

    topics: Sequence[tuple[str, Sequence[int]]]
    partitions: PartitionsOf
    only_verify: bool = False
    by_client: bool = False


@handles(AddPartitionsToTxnRequest, rows=("transactions.topics", "v3_and_below_topics"), is_whole=True)
async def add_partitions_to_txn(request: AddPartitionsToTxnRequest, broker: Broker) -> AddPartitionsToTxnResponse:
    context = request.context
    version = context.version
    if version >= _FIRST_WITH_SEVERAL and not may_use_cluster(context, AclOperation.CLUSTER_ACTION):
        return AddPartitionsToTxnResponse(error_code=CLUSTER_AUTHORIZATION_FAILED)
    if version < _FIRST_WITH_SEVERAL:
        asked = _of_client(request)
        codes = await awaitable(_add(asked, broker, context), broker.tasks)
        return _of_one(asked, codes, INVALID_PRODUCER_EPOCH if version < _FIRST_WITH_FENCED else PRODUCER_FENCED)
    begun: list[tuple[_Asked, Answer[Codes]]] = []
    for transaction in request.transactions:
        await broker.tasks.pace()
        asked = _of_broker(transaction)
        begun.append((asked, _add(asked, broker, context)))
    results = []
    for asked, answer in begun:
        await broker.tasks.pace()
        results.append(_result(asked, await awaitable(answer, broker.tasks)))
    return AddPartitionsToTxnResponse(results_by_transaction=results)


def _of_client(request: AddPartitionsToTxnRequest) -> _Asked:
    topics = [(topic.name, topic.partitions) for topic in request.v3_and_below_topics if topic.partitions]
    partitions = PartitionsOf(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        _places(topics),
    )
    return _Asked(topics, partitions, by_client=True)


def _of_broker(transaction: AddPartitionsToTxnTransaction) -> _Asked:
    topics = [(topic.name, topic.partitions) for topic in transaction.topics if topic.partitions]
    partitions = PartitionsOf(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        _places(topics),
        VERSION_WITH_EPOCH_BUMP,
    )
    return _Asked(topics, partitions, transaction.verify_only)


def _places(topics: Sequence[tuple[str, Sequence[int]]]) -> frozenset[tuple[str, int]]:
    return frozenset((name, index) for name, indexes in topics for index in indexes)


def _add(asked: _Asked, broker: Broker, context: RequestContext) -> Answer[Codes]:
    topics = broker.image.topics
    forbidden: frozenset[str] = frozenset()
    if asked.by_client:
        if not may_use_transactional_id(context, AclOperation.WRITE, asked.partitions.transactional_id):
            return dict.fromkeys(asked.partitions.partitions, TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        names = [name for name, _ in asked.topics]
        denied = [name for name in names if not may_use_topic(context, AclOperation.WRITE, name)]
        forbidden = INTERNAL_TOPICS | frozenset(denied)
    refused = {
        (name, index): TOPIC_AUTHORIZATION_FAILED if name in forbidden else UNKNOWN_TOPIC_OR_PARTITION
        for name, index in asked.partitions.partitions
        if name in forbidden or name not in topics or not 0 <= index < len(topics[name].partitions)
    }
    if refused:
        return {place: refused.get(place, OPERATION_NOT_ATTEMPTED) for place in asked.partitions.partitions}
    operation = verify_partitions if asked.only_verify else add_partitions
    transactional_id = asked.partitions.transactional_id
    run = partial(broker.coordination.transactions.run, transactional_id, operation, asked.partitions)
    # Brokers try again themselves; they could not add partitions of other transactions meanwhile.
    return broker.coordination.verification.repeat(run, is_concurrent) if asked.by_client else run()


def _of_one(asked: _Asked, codes: Codes, fenced: int) -> AddPartitionsToTxnResponse:
    results = [
        AddPartitionsToTxnTopicResult(
            name=name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=fenced if codes[name, index] == PRODUCER_FENCED else codes[name, index],
                )
                for index in indexes
            ],
        )
        for name, indexes in asked.topics
    ]
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


def _result(asked: _Asked, codes: Codes) -> AddPartitionsToTxnResult:
    topics = [
        AddPartitionsToTxnResponseAddPartitionsToTxnTopicResult(
            name=name,
            results_by_partition=[
                AddPartitionsToTxnResponseAddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=codes[name, index]
                )
                for index in indexes
            ],
        )
        for name, indexes in asked.topics
    ]
    return AddPartitionsToTxnResult(transactional_id=asked.partitions.transactional_id, topic_results=topics)
