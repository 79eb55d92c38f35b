"""Requests about partitions: their offsets, records and leaders."""

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, Self

from ottla.client.admin.replicas import ElectionType as ClientElection
from ottla.client.topics import FoundOffset
from ottla.client.topics import TopicPartition as ClientPartition
from ottla.compat.librdkafka import constants
from ottla.compat.librdkafka.admin.requests import Requests, distinct, limit, message, require
from ottla.compat.librdkafka.enums import ElectionType, IsolationLevel
from ottla.compat.librdkafka.errors import KafkaError
from ottla.compat.librdkafka.values import TopicPartition


class OffsetSpec:
    """Offset to look up: the first, the next, that of the newest timestamp, or the first at or after a time in ms."""

    _value: int

    def __new__(cls, index: int) -> "OffsetSpec":
        return _SPECS[index] if index < 0 else OffsetSpec.for_timestamp(index)

    @classmethod
    def _of(cls, value: int) -> Self:
        spec = object.__new__(cls)
        spec._value = value
        return spec

    @staticmethod
    def earliest() -> "OffsetSpec":
        """Return the first offset."""
        return _SPECS[constants.OFFSET_SPEC_EARLIEST]

    @staticmethod
    def latest() -> "OffsetSpec":
        """Return the next offset."""
        return _SPECS[constants.OFFSET_SPEC_LATEST]

    @staticmethod
    def max_timestamp() -> "OffsetSpec":
        """Return the offset of the record with the newest timestamp."""
        return _SPECS[constants.OFFSET_SPEC_MAX_TIMESTAMP]

    @staticmethod
    def for_timestamp(timestamp: int) -> "OffsetSpec":
        """Return the first offset at or after a time in ms."""
        return OffsetSpec._of(timestamp)

    def __lt__(self, other: object) -> bool:
        return self._value < other._value if isinstance(other, OffsetSpec) else NotImplemented


_SPECS: Final = {
    value: OffsetSpec._of(value)
    for value in (
        constants.OFFSET_SPEC_MAX_TIMESTAMP,
        constants.OFFSET_SPEC_EARLIEST,
        constants.OFFSET_SPEC_LATEST,
    )
}


@dataclass(eq=False)
class ListOffsetsResultInfo:
    """Offset of a partition; the timestamp is in ms, -1 for an offset without one, the leader epoch None if it is unknown."""

    offset: int
    timestamp: int
    leader_epoch: int | None

    def __post_init__(self) -> None:
        if self.leader_epoch is not None and self.leader_epoch < 0:
            self.leader_epoch = None


@dataclass(eq=False)
class DeletedRecords:
    """First offset of a partition after a deletion."""

    low_watermark: int


def _name(partition: TopicPartition) -> ClientPartition:
    return ClientPartition(partition.topic, partition.partition)


def _result_from(row: FoundOffset) -> ListOffsetsResultInfo:
    return ListOffsetsResultInfo(row.offset, row.timestamp, row.leader_epoch)


def _check_offsets(offsets: Any, isolation_level: Any) -> None:
    """Raise TypeError or ValueError for what is no dictionary of partitions and offsets."""
    reason = "Expected topic_partition_offsets to be dict of [TopicPartitions,OffsetSpec] for list offsets request"
    require(isinstance(offsets, dict), TypeError, reason)
    for partition, spec in offsets.items():
        require(partition is not None, TypeError, "partition cannot be None")
        require(isinstance(partition, TopicPartition), TypeError, "partition must be a TopicPartition")
        require(partition.topic, ValueError, "partition topic name cannot be empty")
        require(partition.partition >= 0, ValueError, "partition index must be non-negative")
        require(spec is not None, TypeError, "OffsetSpec cannot be None")
        require(isinstance(spec, OffsetSpec), TypeError, "Value must be a OffsetSpec")
    reason = "isolation_level argument should be an IsolationLevel"
    require(isinstance(isolation_level, IsolationLevel), TypeError, reason)


def _check_partitions(partitions: Any, what: str, where: str, negative: str) -> None:
    """Raise TypeError or ValueError for what is no list of partitions."""
    require(isinstance(partitions, list), TypeError, f"Expected {what} to be a list, got '{type(partitions).__name__}'")
    for partition in partitions:
        reason = f"Element of the {where} list must be of type 'TopicPartition' got '{type(partition).__name__}' "
        require(isinstance(partition, TopicPartition), TypeError, reason)
        require(partition.partition >= 0, ValueError, negative)


class Partitions(Requests):
    """Requests about partitions; futures are by TopicPartition."""

    def list_offsets(
        self,
        topic_partition_offsets: dict[TopicPartition, OffsetSpec],
        *,
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        request_timeout: float | None = None,
    ) -> dict[TopicPartition, "Future[ListOffsetsResultInfo]"]:
        """Look up offsets. Raises TypeError, ValueError."""
        _check_offsets(topic_partition_offsets, isolation_level)
        chosen = [
            TopicPartition(key.topic, key.partition, spec._value) for key, spec in topic_partition_offsets.items()
        ]
        seconds, committed = limit(request_timeout), isolation_level is IsolationLevel.READ_COMMITTED

        def request() -> Any:
            offsets = {_name(partition): partition.offset for partition in chosen}
            return self._admin.list_offsets(offsets, read_committed=committed, timeout=seconds)

        return self._futures(chosen, request, _result_from, name=_name)

    def delete_records(
        self,
        topic_partition_offsets: list[TopicPartition],
        *,
        request_timeout: float | None = None,
        operation_timeout: float | None = None,
    ) -> dict[TopicPartition, "Future[DeletedRecords]"]:
        """Delete the records before the offsets of partitions (OFFSET_END: all). Raises TypeError, ValueError."""
        chosen, seconds = topic_partition_offsets, limit(request_timeout, operation_timeout)
        _check_partitions(chosen, "Request", "request", "'partition' cannot be negative")

        def request() -> Any:
            distinct(chosen, "Duplicate partitions not allowed")
            offsets = {_name(partition): partition.offset for partition in chosen}
            return self._admin.delete_records(offsets, timeout=seconds)

        return self._futures(chosen, request, DeletedRecords, name=_name)

    def elect_leaders(
        self,
        election_type: ElectionType,
        partitions: list[TopicPartition] | None = None,
        *,
        request_timeout: float | None = None,
        operation_timeout: float | None = None,
    ) -> "Future[dict[TopicPartition, KafkaError | None]]":
        """Elect the leaders of partitions, or (None) of all that need it; the result has an error or None for each.

        Raises TypeError, ValueError.
        """
        reason = "Expected 'election_type' to be of type 'ElectionType'"
        require(isinstance(election_type, ElectionType), TypeError, reason)
        if partitions is not None:
            negative = "Elements of the 'partitions' list must not have negative value for 'partition' field"
            _check_partitions(partitions, "'partitions'", "'partitions'", negative)
        seconds = limit(request_timeout, operation_timeout)

        def request() -> dict[TopicPartition, KafkaError | None]:
            distinct(partitions or (), "Duplicate partitions specified")
            chosen = None if partitions is None else [_name(partition) for partition in partitions]
            kind = ClientElection(election_type.value)
            results = self._admin.elect_leaders(kind, chosen, timeout=seconds)
            elected: dict[TopicPartition, KafkaError | None] = {}
            for partition in results:
                error = results.errors.get(partition)
                code = None if error is None else KafkaError(error.code)
                reason = None if error is None else KafkaError(error.code, message(error) or None)
                elected[TopicPartition(*partition, 0).failed(code)] = reason
            return elected

        return self._future(request)
