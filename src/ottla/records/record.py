"""One record, for the places where records are looked at one by one (consumers, coordinators, command line).

The broker's hot paths never make these: produce validation walks bytes, the data source goes from bytes to columns.
"""

from typing import Final, final

from mypy_extensions import i64

Header = tuple[str, bytes | None]


@final
class Origin:
    """Origin that the records of a consumer share: their topic-partition and the fields of their batch.

    timestamp_type  0 CreateTime, 1 LogAppendTime
    leader_epoch    of the batch, -1 for none
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


NOWHERE: Final = Origin("", -1)
"""Of a record that no consumer has read."""


@final
class Record:
    """A record outside of its batch.

    offset     absolute offset in the partition
    timestamp  ms since the epoch, -1 for none
    key, value None is null
    origin     what it shares with those around it
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
        self._headers = headers  # most records have none, and then no list is made

    @property
    def topic(self) -> str:
        """ "" for a record that was not consumed."""
        return self.origin.topic

    @property
    def partition(self) -> int:
        """-1 for a record that was not consumed."""
        return self.origin.partition

    @property
    def timestamp_type(self) -> int:
        """0 CreateTime, 1 LogAppendTime."""
        return self.origin.timestamp_type

    @property
    def leader_epoch(self) -> int:
        """Of the batch, -1 for none."""
        return self.origin.leader_epoch

    @property
    def delivery_count(self) -> int:
        """Number of deliveries by a share group, this one included; 0 outside of share groups."""
        return self.origin.delivery_count

    @property
    def headers(self) -> list[Header]:
        """In order; a name may repeat (KIP-82)."""
        if self._headers is None:
            self._headers = []
        return self._headers

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
