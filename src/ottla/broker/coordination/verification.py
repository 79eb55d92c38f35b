"""Verification that a transactional batch belongs to an ongoing transaction of its producer (KIP-890).

The first batch of a transaction in each partition is verified. Without this check, a batch that was still in flight when its
transaction ended would open a transaction that never ends.

A verification may take long, and holds only for the state of the partition in which it began: the transaction may end
meanwhile, or this broker may become the leader of a partition that it could not verify. A guard of the partition shows that.

A client of transaction.version 2 begins its next transaction when the end of the one before is decided, and its markers are not
written yet. The coordinator refuses to add partitions until they are (CONCURRENT_TRANSACTIONS). The client would wait for its
retry.backoff.ms, a tenth of a second by default; so the broker tries again itself, as Kafka does: for
add.partitions.to.txn.retry.backoff.max.ms in all, with pauses of add.partitions.to.txn.retry.backoff.ms. The first ones are
shorter, as markers are written within some milliseconds. Unlike Kafka, it does so for AddPartitionsToTxn and AddOffsetsToTxn of
older clients too, which wait for 20 ms otherwise.
"""

from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple, Protocol, TypeVar

from ottla.broker.coordination.remote_verification import RemoteVerification
from ottla.broker.coordination.routing import CoordinatorRouting
from ottla.coordinators.transactions.coordinator import TransactionCoordinator
from ottla.coordinators.transactions.partitions import Codes, PartitionsOf, add_partitions, verify_partitions
from ottla.coordinators.transactions.transaction import VERSION_WITH_EPOCH_BUMP
from ottla.environment import Clock
from ottla.metadata.image import TRANSACTION_STATE_TOPIC
from ottla.protocol.errors import (
    CONCURRENT_TRANSACTIONS,
    INVALID_PRODUCER_EPOCH,
    INVALID_TXN_STATE,
    NONE,
    PRODUCER_FENCED,
    TRANSACTION_ABORTABLE,
)
from ottla.replication.partition import Partition
from ottla.tasks.deferred import Answer, Deferred, after, awaitable
from ottla.tasks.scheduler import Scheduler

_FIRST_PAUSE_MS: Final = 1
R = TypeVar("R")


class Client(Enum):
    """Transaction support of the sender of a batch."""

    OLD = "learns INVALID_TXN_STATE, which it takes as final"
    ABORTS = "learns TRANSACTION_ABORTABLE"
    ADDS_IMPLICITLY = "expects the broker to add the partition (transaction.version 2)"

    @classmethod
    def of(cls, version: int, *, aborts_from: int, adds_from: int) -> "Client":
        """Return the support of a request version; `aborts_from` and `adds_from` are the first versions of each level."""
        if version >= adds_from:
            return cls.ADDS_IMPLICITLY
        return cls.ABORTS if version >= aborts_from else cls.OLD


class VerificationGuard(NamedTuple):
    """State of a partition that a verification of a producer's transaction depends on.

    last_marker  offset of the producer's last marker, -1 without one
    """

    leader_epoch: int
    last_marker: int

    @classmethod
    def of(cls, partition: Partition, producer_id: int) -> "VerificationGuard":
        """Return the guard of a partition as it is now."""
        return cls(partition.leader_epoch, partition.log.producers.last_marker(producer_id))


class _WithError(Protocol):
    error_code: int


W = TypeVar("W", bound=_WithError)


def without_fenced(response: W) -> W:
    """Replace PRODUCER_FENCED by INVALID_PRODUCER_EPOCH, for a client that does not support PRODUCER_FENCED."""
    if response.error_code == PRODUCER_FENCED:
        response.error_code = INVALID_PRODUCER_EPOCH
    return response


class Verification:
    """Verifies transactional batches with the coordinator of their transaction.

    longest_pause_ms  longest pause between the attempts of `repeat`
    limit_ms          time after the beginning of the first attempt in which the last one begins
    """

    def __init__(
        self,
        transactions: TransactionCoordinator,
        routing: CoordinatorRouting,
        remote: RemoteVerification,
        clock: Clock,
        tasks: Scheduler,
        *,
        longest_pause_ms: int,
        limit_ms: int,
    ) -> None:
        self._transactions = transactions
        self._routing = routing
        self._remote = remote
        self._clock = clock
        self._tasks = tasks
        self._longest_pause_ms = longest_pause_ms
        self._limit_ms = limit_ms

    def repeat(self, verify: Callable[[], Answer[R]], is_concurrent: Callable[[R], bool]) -> Answer[R]:
        """Repeat a verification while the transaction before is still ending; returns the last outcome.

        verify         examines the partitions again, as markers change their state
        is_concurrent  whether an outcome is that of a transaction before which another one is ending
        """
        ends_ms = self._clock.now_ms() + self._limit_ms
        first = verify()
        if isinstance(first, Deferred) or (is_concurrent(first) and self._limit_ms):
            return self._tasks.run(self._repeat(first, verify, is_concurrent, ends_ms), "verification")
        return first  # the usual case, without a task

    async def _repeat(
        self, answer: Answer[R], verify: Callable[[], Answer[R]], is_concurrent: Callable[[R], bool], ends_ms: int
    ) -> R:
        pause_ms = _FIRST_PAUSE_MS
        while True:
            outcome = await awaitable(answer, self._tasks)
            if not is_concurrent(outcome) or self._clock.now_ms() >= ends_ms:
                return outcome
            await self._tasks.sleep(pause_ms)
            pause_ms = max(_FIRST_PAUSE_MS, min(2 * pause_ms, self._longest_pause_ms))
            answer = verify()

    def verify(self, partitions: PartitionsOf, client: Client, *, is_enabled: bool) -> Answer[Codes]:
        """Verify or add partitions; the answer has an error code for each, NONE if the producer may write to it.

        is_enabled  transaction.partition.verification.enable
        """
        adds = client is Client.ADDS_IMPLICITLY
        if not adds and not is_enabled:
            return dict.fromkeys(partitions.partitions, NONE)
        if adds:
            partitions = partitions._replace(version=VERSION_WITH_EPOCH_BUMP)
        transactional_id = partitions.transactional_id
        node_id = self._routing.coordinator(TRANSACTION_STATE_TOPIC, transactional_id)
        if self._routing.is_remote(node_id):
            answer = self._remote.run(node_id, partitions, only_verify=not adds)
        else:
            operation = add_partitions if adds else verify_partitions
            answer = self._transactions.run(transactional_id, operation, partitions)
        return after(answer, lambda codes: _as_seen_by(client, codes))


def is_concurrent(codes: Codes) -> bool:
    """Return True if a transaction is refused because the one before is still ending."""
    return CONCURRENT_TRANSACTIONS in codes.values()


def _as_seen_by(client: Client, codes: Codes) -> Codes:
    """Replace codes that the client cannot handle: PRODUCER_FENCED always, TRANSACTION_ABORTABLE for an old client."""
    replacements = {PRODUCER_FENCED: INVALID_PRODUCER_EPOCH}
    if client is Client.OLD:
        replacements[TRANSACTION_ABORTABLE] = INVALID_TXN_STATE
    return {partition: replacements.get(code, code) for partition, code in codes.items()}
