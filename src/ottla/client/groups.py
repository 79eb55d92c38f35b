"""Group membership and committed offsets, as values."""

from typing import NamedTuple


class GroupMetadata(NamedTuple):
    """A member of a consumer group as a transaction commits offsets for it (KIP-447).

    generation  of a classic group, or the member's epoch (KIP-848); -1 for a group without members
    """

    group_id: str
    generation: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class OffsetAndMetadata(NamedTuple):
    """The offset of the next record to read, and what the consumer notes with it."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1
