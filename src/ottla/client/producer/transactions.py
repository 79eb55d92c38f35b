"""Transactions of a producer: state machine and requests (KIP-98, KIP-360, KIP-447, KIP-890).

    init() --> READY --begin()--> OPEN --commit()--> COMMITTING --flushed--> ENDING --> READY
                                   |                     |
                                   |  a batch fails      |  abort() while nothing has been decided
                                   v  for good           v
                               ABORTABLE --abort()--> ABORTING --> READY         fenced: FATAL, permanently

A commit first flushes; EndTxn is sent only when every record is acknowledged. Both steps share the caller's timeout. After
RequestTimedOut the state is unchanged: another call continues at the same step. Once EndTxn was sent the coordinator may
have committed, so only another commit is possible.

During an abort no further batch is sent: waiting batches fail, and so do batches whose request got no response. Such a batch
may be in the log, before the marker; the next transaction begins with sequence 0.

Under transaction.version 2 the brokers add partitions to a transaction implicitly, and the epoch is raised at the end of each
transaction. Under version 1 `admit` adds each partition (AddPartitionsToTxn) before the first batch for it is sent.
"""

from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import Final, TypeVar

from ottla.client.coordinator import GROUP, TRANSACTION, CoordinatorClient
from ottla.client.core import Core
from ottla.client.errors import (
    FencedError,
    IllegalState,
    KafkaError,
    NotAuthorized,
    Permission,
    RequestTimedOut,
    TransactionAborted,
    UnknownTopic,
)
from ottla.client.groups import GroupMetadata, OffsetAndMetadata
from ottla.client.producer.sender import Sender
from ottla.client.topics import TopicPartition
from ottla.protocol import errors as table
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.protocol.schema import ZERO_UUID, Request, Response

T = TypeVar("T")
R = TypeVar("R", bound=Response)
_FENCED: Final = frozenset(
    {
        table.PRODUCER_FENCED,
        table.INVALID_PRODUCER_EPOCH,
        table.INVALID_PRODUCER_ID_MAPPING,
        table.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        table.CLUSTER_AUTHORIZATION_FAILED,
        table.INVALID_TXN_STATE,
        table.UNSUPPORTED_VERSION,
    }
)
_NEWEST_FOR_CLIENTS: Final = 3
"""Newest AddPartitionsToTxn version for clients; later ones are for brokers."""


class _TransactionState(Enum):
    NEW = "init_transactions() comes first"
    READY = "begin_transaction() comes first"
    OPEN = "a transaction is open"
    COMMITTING = "commit_transaction() timed out: call it again, or abort_transaction()"
    ENDING = "commit_transaction() timed out and may have succeeded: call commit_transaction() again"
    ABORTABLE = "the transaction has failed: abort_transaction() is what is left"
    ABORTING = "abort_transaction() timed out: call abort_transaction() again"
    FATAL = "another producer with this transactional.id has taken over, or may not write: close this one"


class ProducerTransactions:
    """Transactions of one producer."""

    def __init__(self, core: Core, sender: Sender, transactional_id: str) -> None:
        self._core = core
        self._sender = sender
        self._id = transactional_id
        self._coordinator = CoordinatorClient(core.metadata, TRANSACTION, transactional_id)
        self._state = _TransactionState.NEW
        self._error: KafkaError | None = None
        self._added: set[TopicPartition] = set()
        self._to_add: set[TopicPartition] = set()
        self._adding = False
        self._touched = False
        sender.admit = self._admit
        sender.on_failed.append(self.on_failed)

    # -- states --

    def _expect(self, state: _TransactionState) -> None:
        if self._state is _TransactionState.FATAL and self._error is not None:
            raise self._error
        if self._state is _TransactionState.ABORTABLE and self._error is not None:
            raise IllegalState(f"{self._state.value}; it failed with: {self._error}", self._error.code)
        if self._state is not state:
            raise IllegalState(self._state.value)

    def check_open(self) -> None:
        """Raise IllegalState unless a transaction is open for writes."""
        self._expect(_TransactionState.OPEN)

    def on_failed(self, error: KafkaError) -> None:
        """Change the state after a batch or request has failed for good."""
        if error.code in _FENCED or isinstance(error, FencedError):
            self._state, self._error = _TransactionState.FATAL, error
        elif self._state in (_TransactionState.OPEN, _TransactionState.COMMITTING) or (
            self._state is _TransactionState.ENDING and error.code == table.TRANSACTION_ABORTABLE
        ):
            # During an abort an error does not change the state: the abort continues.
            self._state, self._error = _TransactionState.ABORTABLE, error
        else:
            return
        self._sender.refuse(error)

    async def _ask(self, about: str, attempt: Callable[[], Awaitable[T]], timeout_ms: int | None = None) -> T:
        """Retry a request until it succeeds; an error that is not retriable changes the state."""
        try:
            return await self._core.metadata.retrying(about, attempt, timeout_ms)
        except KafkaError as error:
            if not error.retriable:
                self.on_failed(error)
            raise

    async def _request_coordinator(self, request: Request[R], newest: int = 32767) -> R:
        return await self._coordinator.request(request, newest=newest)

    def _check(self, code: int, about: str, *needed: Permission) -> None:
        self._coordinator.check(code, about, None, *needed)

    # -- public calls --

    async def init(self, timeout_ms: int | None) -> None:
        """Register as the producer of transactional.id: older producers are fenced, their open transaction is aborted."""
        if self._state is not _TransactionState.NEW:
            raise IllegalState("init_transactions() is called once, before anything else")
        try:
            await self._init(timeout_ms, -1, -1)
        except NotAuthorized:
            # It may be called again once it is permitted. Java's producer allows that too, if it may describe the id.
            self._state, self._error, self._sender.refused = _TransactionState.NEW, None, None
            raise
        self._state = _TransactionState.READY

    async def _init(self, timeout_ms: int | None, producer_id: int, epoch: int) -> None:
        about = f"init transactions of {self._id}"

        async def attempt() -> InitProducerIdResponse:
            link = await self._coordinator.link()
            self._sender.transaction_version = link.features.get("transaction.version", 1)
            request = InitProducerIdRequest(
                transactional_id=self._id, transaction_timeout_ms=self._core.config["transaction.timeout.ms"]
            )
            version = link.version(InitProducerIdRequest, 5)
            if version >= 3:
                request.producer_id, request.producer_epoch = producer_id, epoch
            answer = await self._coordinator.response(link.request(request, version))
            self._check(answer.error_code, about)
            return answer

        limit = self._core.config["max.block.ms"] if timeout_ms is None else timeout_ms
        answer = await self._ask(about, attempt, limit)
        self._sender.new_identity(answer.producer_id, answer.producer_epoch)

    def begin(self) -> None:
        """Open a transaction."""
        self._expect(_TransactionState.READY)
        self._state = _TransactionState.OPEN
        self._added.clear()
        self._to_add.clear()
        self._touched = False

    def _admit(self, partition: TopicPartition) -> bool:
        """Return True if a batch for the partition may be sent now. Starts to add the partition to the open transaction if
        it is missing there."""
        if self._state not in (_TransactionState.OPEN, _TransactionState.COMMITTING):
            return False
        self._touched = True
        if self._sender.transaction_version >= 2 or partition in self._added:
            return True
        self._to_add.add(partition)
        if not self._adding:
            self._adding = True
            self._core.scheduler.background(self._add_partitions(), "add partitions to the transaction")
        return False

    async def _add_partitions(self) -> None:
        try:
            while self._to_add:
                partitions = set(self._to_add)
                await self._ask(f"partitions of transaction {self._id}", lambda: self._add(partitions))  # noqa: B023
                self._added |= partitions
                self._to_add -= partitions
        except KafkaError as error:
            self.on_failed(error)
        finally:
            self._adding = False
        self._sender.pump()

    async def _add(self, partitions: set[TopicPartition]) -> None:
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for name, index in sorted(partitions):
            topics.setdefault(name, AddPartitionsToTxnTopic(name=name)).partitions.append(index)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._sender.producer_id,
            v3_and_below_producer_epoch=self._sender.epoch,
            v3_and_below_topics=list(topics.values()),
        )
        answer = await self._request_coordinator(request, _NEWEST_FOR_CLIENTS)
        rows = [
            (topic.name, row) for topic in answer.results_by_topic_v3_and_below for row in topic.results_by_partition
        ]
        # The error that stopped the others comes first.
        for name, row in sorted(rows, key=lambda item: item[1].partition_error_code == table.OPERATION_NOT_ATTEMPTED):
            about = f"add {name}-{row.partition_index} to the transaction"
            self._check(row.partition_error_code, about, Permission("Write", "topic", (name,)))

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: GroupMetadata,
        timeout_ms: int | None,
    ) -> None:
        """Add the offsets of a consumer group to the transaction; `timeout_ms` is the limit of both requests together."""
        self._expect(_TransactionState.OPEN)
        if not offsets:
            return
        deadline, _ = self._deadline(timeout_ms)
        self._touched = True
        about = f"add offsets of group {group.group_id} to the transaction"
        if self._sender.transaction_version < 2:
            request = AddOffsetsToTxnRequest(
                transactional_id=self._id,
                producer_id=self._sender.producer_id,
                producer_epoch=self._sender.epoch,
                group_id=group.group_id,
            )

            async def add() -> None:
                permission = Permission("Read", "group", (group.group_id,))
                self._check((await self._request_coordinator(request)).error_code, about, permission)

            await self._ask(about, add, self._remaining_ms(deadline))
        ids: dict[str, bytes] = {}
        await self._ask(about, lambda: self._commit_offsets(offsets, group, ids, about), self._remaining_ms(deadline))

    async def _commit_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: GroupMetadata,
        ids: dict[str, bytes],
        about: str,
    ) -> None:
        """Send one TxnOffsetCommit. `ids` are the topic ids of the first attempt, to commit no offset to a recreated topic."""
        metadata = self._core.metadata
        for name in dict.fromkeys(partition.topic for partition in offsets):
            topic_id = (await metadata.topic(name)).id
            if ids.setdefault(name, topic_id) != topic_id:
                raise UnknownTopic(f"{about}: topic {name} was deleted and created again")
        topics: dict[str, TxnOffsetCommitRequestTopic] = {}
        for (name, index), offset in offsets.items():
            topic = topics.setdefault(name, TxnOffsetCommitRequestTopic(name=name, topic_id=ids[name]))
            topic.partitions.append(
                TxnOffsetCommitRequestPartition(
                    partition_index=index,
                    committed_offset=offset.offset,
                    committed_leader_epoch=offset.leader_epoch,
                    committed_metadata=offset.metadata,
                )
            )
        request = TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=group.group_id,
            producer_id=self._sender.producer_id,
            producer_epoch=self._sender.epoch,
            topics=list(topics.values()),
        )
        coordinator = CoordinatorClient(metadata, GROUP, group.group_id)
        link = await coordinator.link()
        newest = 4 if self._sender.transaction_version < 2 else 5 if ZERO_UUID in ids.values() else 32767
        version = link.version(TxnOffsetCommitRequest, newest)
        if version >= 3:
            request.generation_id_or_member_epoch = group.generation
            request.member_id = group.member_id
            request.group_instance_id = group.group_instance_id
        answer = await coordinator.response(link.request(request, version))
        of_transaction = Permission("Write", "transactional-id", (self._id,))
        for topic_answer in answer.topics:
            name = topic_answer.name or next(
                name for name, topic_id in ids.items() if topic_id == topic_answer.topic_id
            )
            permissions = (of_transaction, Permission("Read", "topic", (name,)))
            for row in topic_answer.partitions:
                coordinator.check(row.error_code, about, None, *permissions)

    async def commit(self, timeout_ms: int | None) -> None:
        """Wait until all records are acknowledged, then commit the transaction.

        Raises RequestTimedOut: commit again, or abort while records are not acknowledged. Raises IllegalState, with the
        cause, if a record or request of the transaction failed.
        """
        if self._state not in (_TransactionState.COMMITTING, _TransactionState.ENDING):
            self._expect(_TransactionState.OPEN)
            self._state = _TransactionState.COMMITTING
        deadline, limit = self._deadline(timeout_ms)
        if self._state is _TransactionState.COMMITTING:
            left = await self._sender.drain(deadline)
            if self._state is _TransactionState.COMMITTING and left:
                raise RequestTimedOut(
                    f"commit transaction {self._id}: {_count_text(left)} not acknowledged within {limit} ms"
                    f"{self._core.network.reasons()}: commit again, or abort"
                )
            self._expect(_TransactionState.COMMITTING)
            self._state = _TransactionState.ENDING
        await self._end(deadline, commit=True)

    async def abort(self, timeout_ms: int | None) -> None:
        """Abort the transaction and discard its records. Raises RequestTimedOut; the call can be repeated."""
        if self._state not in (_TransactionState.ABORTABLE, _TransactionState.ABORTING, _TransactionState.COMMITTING):
            self._expect(_TransactionState.OPEN)
        self._state = _TransactionState.ABORTING
        deadline, limit = self._deadline(timeout_ms)
        self._sender.refuse(TransactionAborted("the transaction was aborted before this was acknowledged"))
        left = await self._sender.drain(deadline)
        if left and self._state is _TransactionState.ABORTING:
            raise RequestTimedOut(
                f"abort transaction {self._id}: {_count_text(left)} in flight after {limit} ms"
                f"{self._core.network.reasons()}: abort again"
            )
        self._expect(_TransactionState.ABORTING)
        await self._end(deadline, commit=False)

    def _deadline(self, timeout_ms: int | None) -> tuple[int, int]:
        """Return the deadline of a call by the core's clock, and the timeout in ms."""
        limit = int(self._core.config["default.api.timeout.ms"] if timeout_ms is None else timeout_ms)
        return self._core.clock.now_ms() + limit, limit

    def _remaining_ms(self, deadline: int) -> int:
        """Return the ms left until a deadline."""
        return max(deadline - self._core.clock.now_ms(), 0)

    async def _end(self, deadline: int, *, commit: bool) -> None:
        about = f"{'commit' if commit else 'abort'} transaction {self._id}"
        if self._touched:
            newest = 32767 if self._sender.transaction_version >= 2 else 4
            request = EndTxnRequest(
                transactional_id=self._id,
                producer_id=self._sender.producer_id,
                producer_epoch=self._sender.epoch,
                committed=commit,
            )

            async def attempt() -> EndTxnResponse:
                answer = await self._request_coordinator(request, newest)
                self._check(answer.error_code, about)
                return answer

            try:
                answer = await self._ask(about, attempt, self._remaining_ms(deadline))
            except KafkaError as error:
                # The coordinator has no partition of this transaction: there is nothing to abort.
                if commit or error.code != table.INVALID_TXN_STATE or self._added:
                    raise
                answer = None
            self._touched = False
            if answer is not None and answer.producer_id >= 0:
                self._sender.new_identity(answer.producer_id, answer.producer_epoch)
                self._sender.forget_batches()
        if self._sender.is_broken:
            await self._init(self._remaining_ms(deadline), self._sender.producer_id, self._sender.epoch)
            self._sender.forget_batches()
        self._sender.refused = None
        self._state, self._error = _TransactionState.READY, None


def _count_text(records: int) -> str:
    return "1 record is" if records == 1 else f"{records} records are"


async def end_transaction(
    core: Core, transactional_id: str, producer_id: int, epoch: int, *, commit: bool, timeout_ms: int | None = None
) -> None:
    """End the open transaction of a producer in another process, with that producer's id and epoch.

    Raises FencedError if a newer producer took over, or if the transaction was aborted by its timeout.
    """
    about = f"{'commit' if commit else 'abort'} transaction {transactional_id}"
    coordinator = CoordinatorClient(core.metadata, TRANSACTION, transactional_id)

    async def attempt() -> None:
        link = await coordinator.link()
        newest = 32767 if link.features.get("transaction.version", 1) >= 2 else 4
        request = EndTxnRequest(
            transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch, committed=commit
        )
        answer = await coordinator.response(link.request(request, link.version(EndTxnRequest, newest)))
        coordinator.check(answer.error_code, about)

    await core.metadata.retrying(about, attempt, timeout_ms)
