"""Migration of a single broker's metadata to a shared store, such as etcd, and back. The broker is stopped meanwhile.

The logs stay where they are: only the metadata moves. The id of the cluster is written last, so that an interrupted migration
leaves nothing that a broker would take for a cluster, and it can be repeated.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from ottla.metadata.image import UnknownFormat
from ottla.metadata.image.deltas import loaded
from ottla.metadata.image.stored import upgraded
from ottla.metadata.store import Change, Entry, MetadataStore, Snapshot, keys
from ottla.tasks.deferred import awaitable
from ottla.tasks.queue import CallbackQueue

_OF_MEMBERS: Final = (keys.BROKERS, keys.LIVE, keys.CONTROLLER)
"""Keys of running brokers, which a single broker does not have."""
_LARGEST_BYTES: Final = 1_000_000


class CannotMigrate(Exception):
    """Metadata that cannot be moved; the message has the reason and a remedy."""


def values_to_move(entries: Sequence[Entry]) -> dict[str, bytes]:
    """Return the keys and values of a store in the format of this release, without those of running brokers."""
    values = {
        entry.key: entry.value for entry in entries if entry.value is not None and not entry.key.startswith(_OF_MEMBERS)
    }
    return values | upgraded(entries)


async def move_to(store: MetadataStore, tasks: CallbackQueue, values: Mapping[str, bytes]) -> None:
    """Write the metadata into an empty store. Raises CannotMigrate."""
    snapshot = await awaitable(store.load(), tasks)
    if snapshot.error is not None:
        raise CannotMigrate(snapshot.error)
    present = {entry.key for entry in snapshot.entries}
    if keys.CLUSTER_ID in present:
        raise CannotMigrate("the metadata store has a cluster already: choose another prefix")
    outdated = sorted(present - values.keys())
    # What an interrupted migration has left is written again, or removed.
    for change in [*_changes(values, store.largest_change), *_deletions(outdated, store.largest_change)]:
        await _make(store, tasks, change)
    cluster_id = {keys.CLUSTER_ID: values[keys.CLUSTER_ID]}
    await _make(store, tasks, Change({keys.CLUSTER_ID: 0}, put=cluster_id))


def _changes(values: Mapping[str, bytes], largest: int) -> list[Change]:
    """Split values into changes that the store accepts; the cluster's id is left out."""
    changes: list[Change] = []
    some: dict[str, bytes] = {}
    size = 0
    for key, value in values.items():
        if key == keys.CLUSTER_ID:
            continue
        if some and (len(some) == largest or size + len(value) > _LARGEST_BYTES):
            changes.append(Change(put=some))
            some, size = {}, 0
        some[key] = value
        size += len(key) + len(value)
    return [*changes, Change(put=some)] if some else changes


def _deletions(outdated: Sequence[str], largest: int) -> list[Change]:
    return [Change(delete=outdated[first : first + largest]) for first in range(0, len(outdated), largest)]


async def _make(store: MetadataStore, tasks: CallbackQueue, change: Change) -> None:
    outcome = await awaitable(store.change(change), tasks)
    if outcome.error is not None:
        raise CannotMigrate(f"{outcome.error}: nothing was moved, repeat the command")
    if outcome.conflicts:
        raise CannotMigrate("a cluster was founded in the metadata store at the same time")


async def read_from(
    store: MetadataStore, tasks: CallbackQueue, node_id: int, cluster_id: str | None
) -> dict[str, bytes]:
    """Return the metadata of a shared store for a single broker. Raises CannotMigrate unless it can serve all of it.

    cluster_id  id in its data directories, None for new ones
    """
    snapshot = await awaitable(store.load(), tasks)
    if snapshot.error is not None:
        raise CannotMigrate(snapshot.error)
    check_single(snapshot, node_id, cluster_id)
    return values_to_move(snapshot.entries)


def check_single(snapshot: Snapshot, node_id: int, cluster_id: str | None) -> None:
    """Raise CannotMigrate unless this broker alone can serve the metadata."""
    try:
        image = loaded(snapshot)
    except UnknownFormat as cause:
        raise CannotMigrate(str(cause)) from None
    if not image.cluster_id:
        raise CannotMigrate("the metadata store has no cluster")
    if cluster_id not in (None, image.cluster_id):
        raise CannotMigrate(f"the data directories belong to cluster {cluster_id}, the store has {image.cluster_id}")
    if image.live:
        nodes = ", ".join(map(str, sorted(image.live)))
        raise CannotMigrate(f"brokers of the cluster are running: stop {nodes} first")
    for topic in image.topics.values():
        for index, partition in enumerate(topic.partitions):
            if partition.replicas != (node_id,):
                raise CannotMigrate(
                    f"{topic.name}-{index} is on brokers {', '.join(map(str, partition.replicas))}: a single broker can "
                    f"only take over what is on node {node_id} alone"
                )


async def clear(store: MetadataStore, tasks: CallbackQueue) -> None:
    """Remove the metadata that was moved away. Raises CannotMigrate."""
    await _make(store, tasks, Change(delete_under=["/"]))
