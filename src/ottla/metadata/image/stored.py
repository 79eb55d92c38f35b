"""Values of topics as the metadata store has them, and the upgrade of values that earlier releases have written."""

import json
from collections.abc import Sequence

from ottla.metadata.image import TopicImage
from ottla.metadata.store import Entry, keys


def stored(topic: TopicImage, first: int = 0) -> dict[str, bytes]:
    """Return the keys and values of a topic, and of its partitions from `first` on that do not have the state of new ones."""
    states = {
        keys.partition_key(topic.id, index): partition.encoded()
        for index, partition in enumerate(topic.partitions[first:], first)
        if not topic.has_default(partition)
    }
    return {keys.TOPICS + topic.name: topic.encoded(), **states}


def upgraded(entries: Sequence[Entry]) -> dict[str, bytes]:
    """Return the keys to write so that all values have the format of this release; empty if they have it.

    Releases for a single broker wrote the states of partitions into the value of their topic.
    """
    if any(entry.key == keys.METADATA_VERSION for entry in entries):
        return {}
    put = {keys.METADATA_VERSION: str(keys.NEWEST_METADATA_VERSION).encode()}
    for entry in entries:
        if entry.key.startswith(keys.TOPICS) and entry.value is not None and "format" not in json.loads(entry.value):
            put |= stored(TopicImage.decoded(entry.key, entry.key[len(keys.TOPICS) :], entry.value))
    return put
