"""Group membership and committed offsets, as values."""

import operator
from typing import NamedTuple, SupportsIndex


class GroupMetadata(NamedTuple):
    """Identity of a consumer group member, sent with offsets that a transaction commits (KIP-447).

    generation  of a classic group, or the member's epoch (KIP-848); -1 for a group without members
    """

    group_id: str
    generation: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class OffsetAndMetadata(NamedTuple):
    """Offset of the next record to read, with metadata of the consumer."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1

    @classmethod
    def of(cls, offset: "OffsetAndMetadata | SupportsIndex") -> "OffsetAndMetadata":
        """Return an offset, with or without metadata, as OffsetAndMetadata. The number may be one of NumPy, see
        `TopicPartition.of`. Raises TypeError for what is not a whole number.
        """
        if isinstance(offset, OffsetAndMetadata):
            return offset._replace(offset=operator.index(offset.offset))
        return cls(operator.index(offset))
