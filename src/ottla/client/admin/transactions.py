"""Admin requests about producers and transactions: describe and list them, abort a hanging transaction, fence producers."""

from collections.abc import Iterable
from typing import NamedTuple

from ottla.arguments import checked_tuple
from ottla.client.admin.requests import Requests, by_topic, refusal
from ottla.client.admin.results import Results
from ottla.client.coordinator import TRANSACTION
from ottla.client.errors import KafkaError, Permission, error_for
from ottla.client.topics import TopicPartition
from ottla.protocol.errors import NONE
from ottla.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.list_transactions import ListTransactionsRequest
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)


class ProducerState(NamedTuple):
    """State of a producer in one partition, as known by a replica.

    last_timestamp                    ms since the epoch
    coordinator_epoch                 epoch of the last transaction marker, None before the first
    current_transaction_start_offset  None without an open transaction
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int | None
    current_transaction_start_offset: int | None


class ListedTransaction(NamedTuple):
    """Transactional id with its producer and state."""

    transactional_id: str
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    """State of a transactional id at its coordinator (a node); start_time_ms is None without an open transaction."""

    coordinator_id: int
    state: str
    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    start_time_ms: int | None
    partitions: frozenset[TopicPartition]


@checked_tuple
class AbortTransactionSpec(NamedTuple):
    """Hanging transaction of one partition, with values from `describe_producers`."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


class HangingTransaction(NamedTuple):
    """Transaction that is open in a partition and that no coordinator will end.

    partition  partition whose readers of committed records stop at it
    producer   its producer, as the partition knows it
    """

    partition: TopicPartition
    producer: ProducerState

    @property
    def abort_spec(self) -> AbortTransactionSpec:
        """Return what `abort_transaction` takes to end it. The epoch of its coordinator is unknown until a transaction of the
        producer has ended in the partition: 0 then.
        """
        state = self.producer
        coordinator_epoch = max(state.coordinator_epoch or 0, 0)
        return AbortTransactionSpec(self.partition, state.producer_id, state.producer_epoch, coordinator_epoch)


class FencedProducer(NamedTuple):
    """Producer id and epoch after fencing; producers with an older epoch can no longer write."""

    producer_id: int
    producer_epoch: int


class TransactionRequests(Requests):
    """Requests about producers and transactions (KIP-664; since Kafka 2.8 and 3.0)."""

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, broker_id: int | None = None, timeout: float | None = None
    ) -> Results[TopicPartition, tuple[ProducerState, ...]]:
        """Describe the active producers of partitions, as known by their leaders or by the replicas on `broker_id`."""

        async def ask(
            node: int, its: list[TopicPartition]
        ) -> dict[TopicPartition, tuple[ProducerState, ...] | KafkaError]:
            topics = [TopicRequest(name=name, partition_indexes=indexes) for name, indexes in by_topic(its).items()]
            answer = await self.on_node(node, DescribeProducersRequest(topics=topics))
            outcomes: dict[TopicPartition, tuple[ProducerState, ...] | KafkaError] = {}
            for topic in answer.topics:
                for row in topic.partitions:
                    partition = TopicPartition(topic.name, row.partition_index)
                    if row.error_code != NONE:
                        about = f"producers of {partition}"
                        outcomes[partition] = error_for(
                            row.error_code, about, row.error_message, Permission("Read", "topic", (topic.name,))
                        )
                        continue
                    outcomes[partition] = tuple(
                        ProducerState(
                            producer.producer_id,
                            producer.producer_epoch,
                            producer.last_sequence,
                            producer.last_timestamp,
                            producer.coordinator_epoch if producer.coordinator_epoch >= 0 else None,
                            producer.current_txn_start_offset if producer.current_txn_start_offset >= 0 else None,
                        )
                        for producer in row.active_producers
                    )
            return outcomes

        if broker_id is None:
            return await self.at_leaders("describe producers", partitions, ask, timeout)
        node = broker_id

        async def of_node(its: list[TopicPartition]) -> dict[TopicPartition, tuple[ProducerState, ...] | KafkaError]:
            return await ask(node, its)

        return await self.repeating("describe producers", partitions, of_node, timeout)

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        duration_ms: int = -1,
        transactional_id_pattern: str | None = None,
        timeout: float | None = None,
    ) -> Results[int, list[ListedTransaction]]:
        """List the transactional ids of all coordinators, by node.

        duration_ms               only transactions that have been open for longer (KIP-994; since Kafka 3.8)
        transactional_id_pattern  only ids that match this pattern (RE2; KIP-1152; since Kafka 4.1)
        """
        request = ListTransactionsRequest(state_filters=list(states), producer_id_filters=list(producer_ids))
        request.duration_filter = duration_ms
        request.transactional_id_pattern = transactional_id_pattern
        limit = self.limit_ms(timeout)

        async def one(node: int) -> list[ListedTransaction]:
            async def attempt() -> list[ListedTransaction]:
                answer = await self.on_node(node, request)
                if answer.error_code != NONE:
                    raise error_for(answer.error_code, f"list transactions of node {node}")
                return [
                    ListedTransaction(row.transactional_id, row.producer_id, row.transaction_state)
                    for row in answer.transaction_states
                ]

            return await self.metadata.retrying(f"list transactions of node {node}", attempt, limit)

        return await self.for_each(await self.metadata.retrying("list brokers", self.nodes, limit), one)

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout: float | None = None
    ) -> Results[str, TransactionDescription]:
        """Describe the state, producer and partitions of transactional ids."""

        async def one(name: str) -> TransactionDescription:
            def code_of(answer: DescribeTransactionsResponse) -> tuple[int, str | None]:
                return answer.transaction_states[0].error_code, None

            request = DescribeTransactionsRequest(transactional_ids=[name])
            answer = await self.at_coordinator(name, request, timeout, code_of, kind=TRANSACTION)
            row = answer.transaction_states[0]
            return TransactionDescription(
                await self.metadata.coordinator(TRANSACTION, name),
                row.transaction_state,
                row.producer_id,
                row.producer_epoch,
                row.transaction_timeout_ms,
                row.transaction_start_time_ms if row.transaction_start_time_ms >= 0 else None,
                frozenset(TopicPartition(topic.topic, index) for topic in row.topics for index in topic.partitions),
            )

        return await self.for_each(transactional_ids, one)

    async def find_hanging_transactions(
        self,
        partitions: Iterable[TopicPartition],
        *,
        older_than_ms: int = 900_000,
        broker_id: int | None = None,
        timeout: float | None = None,
    ) -> list[HangingTransaction]:
        """Return the transactions that are open in a partition and in none that a coordinator knows (KIP-664).

        older_than_ms  time since their last record, at least: a coordinator may not have ended a younger one yet
        broker_id      ask its replicas, in place of the leaders
        """
        producers = (await self.describe_producers(partitions, broker_id=broker_id, timeout=timeout)).check()
        latest_ms = self.core.clock.wall_ms() - older_than_ms
        candidates = [
            HangingTransaction(partition, state)
            for partition, states in sorted(producers.items())
            for state in states
            if state.current_transaction_start_offset is not None and state.last_timestamp < latest_ms
        ]
        if not candidates:
            return []
        ids = sorted({candidate.producer.producer_id for candidate in candidates})
        listed = (await self.list_transactions(producer_ids=ids, timeout=timeout)).check()
        names = {
            transaction.producer_id: transaction.transactional_id
            for transactions in listed.values()
            for transaction in transactions
        }
        described = (await self.describe_transactions(names.values(), timeout=timeout)).successes
        return [
            candidate
            for candidate in candidates
            if (known := described.get(names.get(candidate.producer.producer_id, ""))) is None
            or candidate.partition not in known.partitions
        ]

    async def abort_transaction(self, spec: AbortTransactionSpec, *, timeout: float | None = None) -> None:
        """Abort a hanging transaction in one partition by writing its marker, independent of its coordinator."""

        async def ask(node: int, its: list[TopicPartition]) -> dict[TopicPartition, KafkaError | None]:
            topics = [
                WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in by_topic(its).items()
            ]
            marker = WritableTxnMarker(
                producer_id=spec.producer_id,
                producer_epoch=spec.producer_epoch,
                transaction_result=False,
                topics=topics,
                coordinator_epoch=spec.coordinator_epoch,
            )
            answer = await self.on_node(node, WriteTxnMarkersRequest(markers=[marker]))
            return {
                TopicPartition(topic.name, row.partition_index): refusal(
                    row.error_code,
                    f"abort the transaction of producer {spec.producer_id} in {spec.partition}",
                    None,
                    Permission("Alter", "cluster"),
                )
                for marker_answer in answer.markers
                for topic in marker_answer.topics
                for row in topic.partitions
            }

        (await self.at_leaders("abort a transaction", [spec.partition], ask, timeout)).check()

    async def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout: float | None = None
    ) -> Results[str, FencedProducer]:
        """Fence the producers with these ids; an open transaction is aborted (since Kafka 0.11)."""

        async def one(name: str) -> FencedProducer:
            def code_of(answer: InitProducerIdResponse) -> tuple[int, str | None]:
                return answer.error_code, None

            # The newest version is needed only for two-phase commit (KIP-939), which is not requested here.
            request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1)
            answer = await self.at_coordinator(
                name, request, timeout, code_of, kind=TRANSACTION, newest=5, operation="Write"
            )
            return FencedProducer(answer.producer_id, answer.producer_epoch)

        return await self.for_each(transactional_ids, one)

    async def force_terminate_transaction(self, transactional_id: str, *, timeout: float | None = None) -> None:
        """Abort the open transaction of this transactional id, and fence its producer (KIP-939)."""
        (await self.fence_producers([transactional_id], timeout=timeout)).check()
