"""Topics, partitions and offsets as a client speaks of them."""

from typing import Final, NamedTuple

EARLIEST: Final = -2
LATEST: Final = -1


class TopicPartition(NamedTuple):
    """A partition of a topic; prints as Kafka writes it: t-0."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicInfo(NamedTuple):
    """A topic of the metadata. leaders: partition -> node, -1 without a leader; id is ZERO_UUID before Kafka 2.8."""

    name: str
    id: bytes
    internal: bool
    leaders: dict[int, int]
    fetched_ms: int
    epochs: dict[int, int] = {}  # noqa: RUF012  (never changed)
    """partition -> leader epoch, -1 where the broker does not return it (before Kafka 2.1)."""
    replicas: dict[int, tuple[int, ...]] = {}  # noqa: RUF012  (never changed)
    """partition -> the nodes that have a copy"""


class FoundOffset(NamedTuple):
    """Answer of ListOffsets: offset -1 when no record has such a time; timestamp in ms, -1 for the two ends."""

    offset: int
    timestamp: int
    leader_epoch: int = -1
