"""Records of __share_group_state: their decoding, and the records that the share coordinator writes.

    ShareSnapshot (0)   all of a share partition's state; a tombstone deletes it
    ShareUpdate (1)     the changes of one write: batches, the start offset, the leader epoch

The keys of both differ in the type only.
"""

from collections.abc import Sequence
from typing import Final

from ottla.coordinators.decoding import record_decoder
from ottla.coordinators.records import CoordinatorRecord
from ottla.coordinators.runtime import Millis
from ottla.coordinators.share.state_batches import StateBatch
from ottla.protocol.messages import share_snapshot_record, share_update_record
from ottla.protocol.messages.share_snapshot_record import ShareSnapshotKey, ShareSnapshotValue
from ottla.protocol.messages.share_update_record import ShareUpdateKey, ShareUpdateValue
from ottla.protocol.schema import Message

SharePartitionKey = tuple[str, bytes, int]
"""Group id, topic id, partition."""
_MESSAGES: Final[dict[int, tuple[type[Message], type[Message]]]] = {
    ShareSnapshotKey.API: (ShareSnapshotKey, ShareSnapshotValue),
    ShareUpdateKey.API: (ShareUpdateKey, ShareUpdateValue),
}
decode_record: Final = record_decoder(_MESSAGES)


def snapshot(
    where: SharePartitionKey,
    *,
    snapshot_epoch: int,
    state_epoch: int,
    leader_epoch: int,
    start_offset: int,
    delivery_complete_count: int,
    batches: Sequence[StateBatch],
    created: Millis,
    now: Millis,
) -> CoordinatorRecord:
    """Return the snapshot of a share partition's state. `created` is the time of its last change, `now` that of writing: they
    differ for a partition that was idle in between.
    """
    group_id, topic_id, partition = where
    value = ShareSnapshotValue(
        snapshot_epoch=snapshot_epoch,
        state_epoch=state_epoch,
        leader_epoch=leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=delivery_complete_count,
        create_timestamp=created,
        write_timestamp=now,
        state_batches=[
            share_snapshot_record.StateBatch(
                first_offset=first, last_offset=last, delivery_state=state, delivery_count=count
            )
            for first, last, state, count in batches
        ],
    )
    return CoordinatorRecord(ShareSnapshotKey(group_id=group_id, topic_id=topic_id, partition=partition), value)


def update(
    where: SharePartitionKey,
    *,
    snapshot_epoch: int,
    leader_epoch: int,
    start_offset: int,
    delivery_complete_count: int,
    batches: Sequence[StateBatch],
) -> CoordinatorRecord:
    """Return the record of one write; offset, count and epoch are the values after the write."""
    group_id, topic_id, partition = where
    value = ShareUpdateValue(
        snapshot_epoch=snapshot_epoch,
        leader_epoch=leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=delivery_complete_count,
        state_batches=[
            share_update_record.StateBatch(
                first_offset=first, last_offset=last, delivery_state=state, delivery_count=count
            )
            for first, last, state, count in batches
        ],
    )
    return CoordinatorRecord(ShareUpdateKey(group_id=group_id, topic_id=topic_id, partition=partition), value)


def tombstone(where: SharePartitionKey) -> CoordinatorRecord:
    """Return the tombstone of a share partition's state."""
    group_id, topic_id, partition = where
    return CoordinatorRecord(ShareSnapshotKey(group_id=group_id, topic_id=topic_id, partition=partition), None)
