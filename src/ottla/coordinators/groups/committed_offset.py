"""Committed offset of a partition, as a group coordinator keeps it in memory: a broker may have a million of them.

Compiled where there is a compiler. `acyclic` removes the class from garbage collection: it refers to a string and to bytes, so
it cannot be part of a reference cycle. A collection over a million messages would stop the broker for 0.1 s.
"""

from typing import Final, final

from mypy_extensions import mypyc_attr

from ottla.protocol.messages.offset_commit_record import OffsetCommitValue

NO_TOPIC_ID: Final = bytes(16)


@final
@mypyc_attr(acyclic=True)
class CommittedOffset:
    """Committed offset, with the fields of an `OffsetCommitValue`.

    commit_timestamp, expire_timestamp  ms since the epoch; an offset that follows the retention of its broker has no expiry, -1
    topic_id                            NO_TOPIC_ID if it is not known
    """

    def __init__(
        self,
        offset: int,
        leader_epoch: int,
        metadata: str,
        commit_timestamp: int,
        expire_timestamp: int = -1,
        topic_id: bytes = NO_TOPIC_ID,
    ) -> None:
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.metadata = metadata
        self.commit_timestamp = commit_timestamp
        self.expire_timestamp = expire_timestamp
        self.topic_id = topic_id

    def message(self) -> OffsetCommitValue:
        """Return the value of its record."""
        return OffsetCommitValue(
            offset=self.offset,
            leader_epoch=self.leader_epoch,
            metadata=self.metadata,
            commit_timestamp=self.commit_timestamp,
            expire_timestamp=self.expire_timestamp,
            topic_id=self.topic_id,
        )


def committed_offset(value: OffsetCommitValue) -> CommittedOffset:
    """Return the offset that the value of a record has."""
    return CommittedOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
    )
