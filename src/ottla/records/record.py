"""Record object, for code that handles single records (consumers, coordinators, command line).

Hot paths do not create these objects: validation of produced batches works on bytes, the Spark data source on columns.

`acyclic` removes the compiled classes from garbage collection: they refer to bytes, strings and their origin, so they cannot be
part of a reference cycle. A consumer creates millions of them, and collections took more time than reading them.
"""

from typing import Any, Final, final

from mypy_extensions import i64, mypyc_attr

Header = tuple[str, bytes | None]


@final
@mypyc_attr(acyclic=True)
class Origin:
    """Origin shared by the consumed records of a batch: topic-partition and fields of the batch.

    timestamp_type  0 CreateTime, 1 LogAppendTime
    leader_epoch    leader epoch of the batch, -1 for none
    delivery_count  number of deliveries by a share group, this one included; 0 outside of share groups
    """

    def __init__(
        self, topic: str, partition: i64, timestamp_type: i64 = 0, leader_epoch: i64 = -1, delivery_count: i64 = 0
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.timestamp_type = timestamp_type
        self.leader_epoch = leader_epoch
        self.delivery_count = delivery_count

    def __reduce__(self) -> tuple[Any, ...]:
        # A compiled class is copied and pickled in no other way.
        return Origin, (self.topic, self.partition, self.timestamp_type, self.leader_epoch, self.delivery_count)


NOWHERE: Final = Origin("", -1)
"""Origin of a record that was not consumed."""


@final
@mypyc_attr(acyclic=True)
class Record:
    """Single record.

    offset     absolute offset in the partition
    timestamp  ms since the epoch, -1 for none
    key, value  None for null
    origin      topic-partition and batch fields, shared with the other records of its batch
    """

    def __init__(
        self,
        offset: i64,
        timestamp: i64,
        key: bytes | None,
        value: bytes | None,
        headers: list[Header] | None = None,
        origin: Origin = NOWHERE,
    ) -> None:
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.origin = origin
        self._headers = headers  # most records have no headers; no list is created for them

    @property
    def topic(self) -> str:
        """Return the topic, "" for a record that was not consumed."""
        return self.origin.topic

    @property
    def partition(self) -> int:
        """Return the partition, -1 for a record that was not consumed."""
        return self.origin.partition

    @property
    def timestamp_type(self) -> int:
        """Return the timestamp type: 0 CreateTime, 1 LogAppendTime."""
        return self.origin.timestamp_type

    @property
    def leader_epoch(self) -> int:
        """Return the leader epoch of the batch, -1 for none."""
        return self.origin.leader_epoch

    @property
    def delivery_count(self) -> int:
        """Return the number of deliveries by a share group, this one included; 0 outside of share groups."""
        return self.origin.delivery_count

    @property
    def headers(self) -> list[Header]:
        """Return the headers in order; a name may occur repeatedly (KIP-82)."""
        if self._headers is None:
            self._headers = []
        return self._headers

    def __reduce__(self) -> tuple[Any, ...]:
        return Record, (self.offset, self.timestamp, self.key, self.value, self._headers, self.origin)

    def __repr__(self) -> str:
        fields = [f"topic={self.topic!r}", f"partition={self.partition}"] if self.partition >= 0 else []
        fields += [f"offset={self.offset}", f"timestamp={self.timestamp}", f"key={self.key!r}", f"value={self.value!r}"]
        if self._headers:
            fields.append(f"headers={self._headers!r}")
        return f"Record({', '.join(fields)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and (
            (self.offset, self.timestamp, self.key, self.value, self.headers)
            == (other.offset, other.timestamp, other.key, other.value, other.headers)
        )

    def __hash__(self) -> int:
        return hash((self.offset, self.timestamp, self.key, self.value))
