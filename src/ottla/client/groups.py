"""Group membership and committed offsets, as values."""

from typing import NamedTuple


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
