"""Verification of transactions at coordinators on other brokers: AddPartitionsToTxn, batched (KIP-890).

One request at a time is sent to each broker; the transactions that arrive meanwhile go with the next one.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from ottla.broker.cluster.other_brokers import OtherBrokers
from ottla.coordinators.transactions.partitions import Codes, PartitionsOf
from ottla.protocol.errors import COORDINATOR_NOT_AVAILABLE, NONE
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestAddPartitionsToTxnTopic,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTransaction,
)
from ottla.tasks.deferred import Answer, Deferred, awaitable
from ottla.tasks.scheduler import Scheduler

_PURPOSE: Final = "transactions"


class _Verification(NamedTuple):
    """Transaction that waits to be sent."""

    partitions: PartitionsOf
    only_verify: bool
    answer: Deferred[Codes]


class RemoteVerification:
    """Verifies or adds partitions at transaction coordinators on other brokers."""

    def __init__(self, peers: OtherBrokers, tasks: Scheduler) -> None:
        self._peers = peers
        self._tasks = tasks
        self._queued: dict[int, list[_Verification]] = {}
        self._sending: set[int] = set()

    def run(self, node_id: int, partitions: PartitionsOf, *, only_verify: bool) -> Answer[Codes]:
        """Verify or add partitions; the answer has an error code for each.

        COORDINATOR_NOT_AVAILABLE if the coordinator does not answer
        """
        verification = _Verification(partitions, only_verify, Deferred(self._tasks))
        self._queued.setdefault(node_id, []).append(verification)
        if node_id not in self._sending:
            self._sending.add(node_id)
            self._tasks.background(self._send(node_id), f"verification at broker {node_id}")
        return verification.answer

    async def _send(self, node_id: int) -> None:
        """Send what is queued for a broker, one request after the other."""
        try:
            while queued := self._queued.pop(node_id, []):
                # A producer id is in a request once: the answers are matched by transactional id.
                chosen: dict[str, _Verification] = {}
                for verification in queued:
                    if chosen.setdefault(verification.partitions.transactional_id, verification) is not verification:
                        self._queued.setdefault(node_id, []).append(verification)
                request = AddPartitionsToTxnRequest(transactions=[_transaction(sent) for sent in chosen.values()])
                response = await awaitable(self._peers.request(node_id, request, purpose=_PURPOSE), self._tasks)
                for sent in chosen.values():
                    sent.answer.complete(_codes(sent.partitions, response))
        finally:
            self._sending.discard(node_id)


def _transaction(verification: _Verification) -> AddPartitionsToTxnTransaction:
    partitions = verification.partitions
    return AddPartitionsToTxnTransaction(
        transactional_id=partitions.transactional_id,
        producer_id=partitions.producer_id,
        producer_epoch=partitions.producer_epoch,
        verify_only=verification.only_verify,
        topics=[
            AddPartitionsToTxnRequestAddPartitionsToTxnTopic(name=name, partitions=indexes)
            for name, indexes in by_topic(sorted(partitions.partitions)).items()
        ],
    )


def _codes(partitions: PartitionsOf, response: AddPartitionsToTxnResponse | None) -> Codes:
    if response is None:
        return dict.fromkeys(partitions.partitions, COORDINATOR_NOT_AVAILABLE)
    if response.error_code != NONE:
        return dict.fromkeys(partitions.partitions, response.error_code)
    codes = dict.fromkeys(partitions.partitions, COORDINATOR_NOT_AVAILABLE)
    for transaction in response.results_by_transaction:
        if transaction.transactional_id == partitions.transactional_id:
            for topic in transaction.topic_results:
                for partition in topic.results_by_partition:
                    codes[topic.name, partition.partition_index] = partition.partition_error_code
    return codes


def by_topic(places: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """Group (topic, partition) pairs by topic."""
    grouped: dict[str, list[int]] = {}
    for name, index in places:
        grouped.setdefault(name, []).append(index)
    return grouped
