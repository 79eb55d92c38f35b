"""Topics, partitions and offsets as values of the client API."""

import operator
from typing import Final, NamedTuple, SupportsIndex

EARLIEST: Final = -2
LATEST: Final = -1


class TopicPartition(NamedTuple):
    """A partition of a topic; prints as Kafka writes it: t-0."""

    topic: str
    partition: int

    @classmethod
    def of(cls, pair: "tuple[str, SupportsIndex]") -> "TopicPartition":
        """Return a pair of a topic and a number as a partition. The number may be one of NumPy, which compiled code refuses."""
        topic, number = pair
        return cls(topic, operator.index(number))

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicInfo(NamedTuple):
    """Topic in the metadata. leaders: partition -> node, -1 without a leader; id is ZERO_UUID before Kafka 2.8."""

    name: str
    id: bytes
    internal: bool
    leaders: dict[int, int]
    fetched_ms: int
    epochs: dict[int, int] = {}  # noqa: RUF012  (never changed)
    """partition -> leader epoch, -1 where the broker does not return it (before Kafka 2.1)."""
    replicas: dict[int, tuple[int, ...]] = {}  # noqa: RUF012  (never changed)
    """partition -> nodes with a replica"""


class FoundOffset(NamedTuple):
    """Result of ListOffsets: offset -1 if no record is that new; timestamp in ms, -1 for EARLIEST and LATEST."""

    offset: int
    timestamp: int
    leader_epoch: int = -1
