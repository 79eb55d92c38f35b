"""AddOffsetsToTxn: the transaction also commits offsets of a group, which lie in a partition of __consumer_offsets.

Authorization
    transactional id: WRITE   TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    group: READ               GROUP_AUTHORIZATION_FAILED

Behaviour
    an empty transactional id, an unknown one, another producer id or epoch   as AddPartitionsToTxn
    the transaction before ends                                               as AddPartitionsToTxn

Versions
    2  PRODUCER_FENCED; before, INVALID_PRODUCER_EPOCH
    4  TRANSACTION_ABORTABLE; clients of transaction.version 2 do without this request (KIP-890)
"""

from functools import partial
from typing import Final

from ottla.broker.broker import Broker
from ottla.broker.coordination.verification import is_concurrent
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_group, may_use_transactional_id
from ottla.coordinators.transactions.partitions import PartitionsOf, add_partitions
from ottla.metadata.image import OFFSETS_TOPIC
from ottla.protocol.errors import (
    COORDINATOR_NOT_AVAILABLE,
    GROUP_AUTHORIZATION_FAILED,
    INVALID_PRODUCER_EPOCH,
    PRODUCER_FENCED,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.security.operations import AclOperation
from ottla.tasks.deferred import awaitable

_FIRST_WITH_FENCED: Final = 2


@handles(AddOffsetsToTxnRequest)
async def add_offsets_to_txn(request: AddOffsetsToTxnRequest, broker: Broker) -> AddOffsetsToTxnResponse:
    if not may_use_transactional_id(request.context, AclOperation.WRITE, request.transactional_id):
        return AddOffsetsToTxnResponse(error_code=TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not may_use_group(request.context, AclOperation.READ, request.group_id):
        return AddOffsetsToTxnResponse(error_code=GROUP_AUTHORIZATION_FAILED)
    if not await awaitable(broker.topics.provide_internal(OFFSETS_TOPIC), broker.tasks):
        return AddOffsetsToTxnResponse(error_code=COORDINATOR_NOT_AVAILABLE)
    place = OFFSETS_TOPIC, broker.groups.partition_of(request.group_id)
    partitions = PartitionsOf(
        request.transactional_id, request.producer_id, request.producer_epoch, frozenset((place,))
    )
    run = partial(broker.coordination.transactions.run, request.transactional_id, add_partitions, partitions)
    codes = await awaitable(broker.coordination.verification.repeat(run, is_concurrent), broker.tasks)
    return _to_txn_response(codes[place], old=request.context.version < _FIRST_WITH_FENCED)


def _to_txn_response(code: int, *, old: bool) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=INVALID_PRODUCER_EPOCH if old and code == PRODUCER_FENCED else code)
