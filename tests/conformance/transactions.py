"""Transactional producers, spoken for over a socket: what the tests of the transaction APIs share.

A method `ask_...` sends one request and returns what it was told, errors by name. The others want it done: they ask again
while the broker is busy with the transaction before, and fail on every other error. Apache Kafka answers the end of a
transaction before its markers are written; `end` waits for them.
"""

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ottla.protocol.errors import name_of
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.records.batch import build
from ottla.records.record import Record

from .conftest import Topic, Wire

T = TypeVar("T")
Identity = tuple[str, int, int]
"""An error's name, a producer id, an epoch."""
_BUSY = ("CONCURRENT_TRANSACTIONS", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR")


def retry_while_busy(ask: Callable[[], T]) -> T:
    """The first answer that is not that the broker is busy."""
    deadline = time.monotonic() + 30
    answer = ask()
    while any(name in str(answer) for name in _BUSY):
        assert time.monotonic() < deadline, answer
        answer = ask()
    return answer


class Described(NamedTuple):
    """The result of DescribeTransactions for one transactional id."""

    error: str
    state: str
    timeout_ms: int
    started_ms: int
    producer_id: int
    epoch: int
    partitions: set[tuple[str, int]]


class TransactionalProducer:
    """A producer with a transactional id of this test alone."""

    def __init__(self, wire: Wire, timeout_ms: int = 60_000, transactional_id: str = "") -> None:
        self.wire = wire
        self.transactional_id = transactional_id or f"tx-{uuid.uuid4().hex[:12]}"
        self.timeout_ms = timeout_ms
        self.producer_id = self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}
        retry_while_busy(lambda: [name_of(coordinator.error_code) for coordinator in self._coordinators()])
        self.begin_anew()

    def _coordinators(self) -> Sequence[Any]:
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=[self.transactional_id])
        return list(self.wire.send(request, 4).coordinators)

    def twin(self) -> "TransactionalProducer":
        """The same producer once more, as a process that was forgotten."""
        other = TransactionalProducer.__new__(TransactionalProducer)
        other.__dict__ |= self.__dict__ | {"sequences": dict(self.sequences)}
        return other

    def begin_anew(self) -> None:
        """InitProducerId."""
        answer = retry_while_busy(self.ask_init)
        assert answer[0] == "NONE", answer
        self._take(*answer[1:])

    def _take(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.sequences.clear()
        self.producer_id, self.epoch = producer_id, epoch

    def ask_init(self, version: int = 5, **fields: Any) -> Identity:
        body: dict[str, Any] = {
            "transactional_id": self.transactional_id,
            "transaction_timeout_ms": self.timeout_ms,
        } | fields
        answer = self.wire.send(InitProducerIdRequest(**body), version)
        return name_of(answer.error_code), answer.producer_id, answer.producer_epoch

    def _who(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The fields that say who asks; `epoch_by` moves the epoch."""
        epoch = self.epoch + fields.pop("epoch_by", 0)
        who = {"transactional_id": self.transactional_id, "producer_id": self.producer_id, "producer_epoch": epoch}
        return who | fields

    def ask_end(self, *, commit: bool, version: int = 5, **fields: Any) -> Identity:
        answer = self.wire.send(EndTxnRequest(committed=commit, **self._who(fields)), version)
        return name_of(answer.error_code), answer.producer_id, answer.producer_epoch

    def end(self, *, commit: bool, version: int = 5) -> None:
        """EndTxn, and wait until it is complete."""
        name, producer_id, epoch = retry_while_busy(lambda: self.ask_end(commit=commit, version=version))
        assert name == "NONE"
        if version >= 5:
            self._take(producer_id, epoch)
        self.wait_until_complete()

    def wait_until_complete(self) -> str:
        """The state, once it is not one in which markers are written."""
        deadline = time.monotonic() + 30
        while (state := self.described().state).startswith("Prepare"):
            assert time.monotonic() < deadline
        return state

    def ask_add(self, topics: Mapping[str, Sequence[int]], version: int = 3, **fields: Any) -> dict[Any, str]:
        """AddPartitionsToTxn as clients send it: the error's name of each (topic, partition)."""
        who = self._who(fields)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=who["transactional_id"],
            v3_and_below_producer_id=who["producer_id"],
            v3_and_below_producer_epoch=who["producer_epoch"],
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=list(parts)) for name, parts in topics.items()
            ],
        )
        return {
            (topic.name, partition.partition_index): name_of(partition.partition_error_code)
            for topic in self.wire.send(request, version).results_by_topic_v3_and_below
            for partition in topic.results_by_partition
        }

    def add(self, topic: Topic, *partitions: int) -> None:
        """AddPartitionsToTxn."""
        answer = retry_while_busy(lambda: self.ask_add({topic.name: partitions or (0,)}))
        assert set(answer.values()) == {"NONE"}, answer

    def ask_produce(
        self, topic: Topic, partition: int = 0, version: int = 12, *, batch: bytes | None = None, **fields: Any
    ) -> tuple[str, int, str | None]:
        """(error, base offset, message)."""
        who = self._who(fields)
        records = self.batch(topic, partition, **who) if batch is None else batch
        data = TopicProduceData(partition_data=[PartitionProduceData(index=partition, records=records)])
        if version >= 13:
            data.topic_id = topic.id
        else:
            data.name = topic.name
        request = ProduceRequest(
            transactional_id=who["transactional_id"], acks=-1, timeout_ms=10_000, topic_data=[data]
        )
        ((answer,),) = (row.partition_responses for row in self.wire.send(request, version).responses)
        return name_of(answer.error_code), answer.base_offset, answer.error_message

    def batch(self, topic: Topic, partition: int = 0, **fields: Any) -> bytes:
        """The next batch of this producer; `sequence`, `count`, `timestamp` and `transactional` may be others."""
        timestamp = fields.get("timestamp", int(time.time() * 1000))
        records = [Record(at, timestamp, b"k%d" % at, b"v%d" % at) for at in range(fields.get("count", 1))]
        return build(
            records,
            producer_id=fields.get("producer_id", self.producer_id),
            producer_epoch=fields.get("producer_epoch", self.epoch),
            base_sequence=fields.get("sequence", self.sequences.get((topic.name, partition), 0)),
            transactional=fields.get("transactional", True),
        )

    def produce(self, topic: Topic, partition: int = 0, count: int = 1, version: int = 12, **fields: Any) -> int:
        """Produce one batch of `count` records; returns its first offset."""
        name, offset, message = retry_while_busy(
            lambda: self.ask_produce(topic, partition, version, count=count, **fields)
        )
        assert name == "NONE", (name, message)
        at = topic.name, partition
        self.sequences[at] = self.sequences.get(at, 0) + count
        return offset

    def ask_add_offsets(self, group_id: str, version: int = 4, **fields: Any) -> str:
        return name_of(
            self.wire.send(AddOffsetsToTxnRequest(group_id=group_id, **self._who(fields)), version).error_code
        )

    def ask_commit_offsets(
        self, group_id: str, topic: Topic, offsets: Mapping[int, int], version: int = 5, **fields: Any
    ) -> list[str]:
        """TxnOffsetCommit: the error's name of each partition."""
        row = TxnOffsetCommitRequestTopic(
            partitions=[
                TxnOffsetCommitRequestPartition(
                    partition_index=index, committed_offset=offset, committed_metadata=fields.pop("metadata", "m")
                )
                for index, offset in offsets.items()
            ]
        )
        if version >= 6:
            row.topic_id = topic.id
        else:
            row.name = topic.name
        request = TxnOffsetCommitRequest(group_id=group_id, topics=[row], **self._who(fields))
        answer = self.wire.send(request, version)
        return [name_of(partition.error_code) for result in answer.topics for partition in result.partitions]

    def commit_offsets(self, group_id: str, topic: Topic, offsets: Mapping[int, int], version: int = 5) -> None:
        """TxnOffsetCommit."""
        answer = retry_while_busy(lambda: self.ask_commit_offsets(group_id, topic, offsets, version))
        assert set(answer) == {"NONE"}, answer

    def described(self) -> Described:
        return described(self.wire, self.transactional_id)


def described(wire: Wire, transactional_id: str) -> Described:
    """DescribeTransactions of one id."""
    (transaction,) = wire.send(DescribeTransactionsRequest(transactional_ids=[transactional_id]), 0).transaction_states
    assert transaction.transactional_id == transactional_id
    return Described(
        name_of(transaction.error_code),
        transaction.transaction_state,
        transaction.transaction_timeout_ms,
        transaction.transaction_start_time_ms,
        transaction.producer_id,
        transaction.producer_epoch,
        {(topic.topic, index) for topic in transaction.topics for index in topic.partitions},
    )


def fetch_partitions(
    wire: Wire,
    topic: Topic,
    *partitions: int,
    offset: int = 0,
    committed: bool = True,
    version: int = 12,
    **fields: Any,
) -> list[Any]:
    """The partitions of a fetch's answer."""
    fetch_topic = FetchTopic(
        partitions=[
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20) for index in partitions
        ]
    )
    if version >= 13:
        fetch_topic.topic_id = topic.id
    else:
        fetch_topic.topic = topic.name
    body: dict[str, Any] = {
        "max_wait_ms": 100,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": int(committed),
        "topics": [fetch_topic] if partitions else [],
    }
    if version < 15:
        body["replica_id"] = -1
    answer = wire.send(FetchRequest(**(body | fields)), version)
    return [partition for response in answer.responses for partition in response.partitions]


def committed_offsets(
    wire: Wire, group_id: str, topic: Topic, *partitions: int, stable: bool = False, version: int = 8
) -> dict[int, int | str]:
    """OffsetFetch: by partition the offset, or the name of an error; of no `partitions`: of all that have an offset."""
    topics = [OffsetFetchRequestTopics(name=topic.name, partition_indexes=list(partitions))] if partitions else None
    group = OffsetFetchRequestGroup(group_id=group_id, topics=topics)
    (result,) = wire.send(OffsetFetchRequest(groups=[group], require_stable=stable), version).groups
    assert name_of(result.error_code) == "NONE"
    return {
        partition.partition_index: name_of(partition.error_code) if partition.error_code else partition.committed_offset
        for answer in result.topics
        for partition in answer.partitions
    }
