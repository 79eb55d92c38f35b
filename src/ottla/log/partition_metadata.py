"""partition.metadata: the file in a partition's directory with the id of its topic.

    version: 0
    topic_id: <22 characters of base64>

It is written without a flush, and flushed with the first records or at the clean stop: until then a power failure may leave it
missing or damaged. Then the directory is accepted as the topic's if it has no records, or if the stop was not clean.
"""

from enum import Enum, auto
from pathlib import Path
from typing import Final

from ottla.environment.files import Store
from ottla.log import recovery
from ottla.protocol.uuids import uuid_bytes, uuid_text

PARTITION_METADATA: Final = "partition.metadata"
_MOST_CHANGED: Final = 8
"""Maximum number of changed characters in a damaged partition.metadata; two random topic ids differ in far more."""


class Owner(Enum):
    """The topic that a partition's directory belongs to, by its partition.metadata."""

    NAMED = auto()
    THIS = auto()
    """The file is missing or damaged, and the directory can only be this topic's: the file is nearly right, or there are no
    records."""
    OTHER = auto()
    UNCERTAIN = auto()
    """The file is missing or damaged, and there are records."""


def _metadata_text(topic_id: bytes) -> str:
    return f"version: 0\ntopic_id: {uuid_text(topic_id)}\n"


def _is_nearly(text: str, expected: str) -> bool:
    """Return True if `text` is `expected` with a few characters changed or its end cut off."""
    same = sum(one == other for one, other in zip(text, expected, strict=False))
    return same >= len(expected) - _MOST_CHANGED and len(text) <= len(expected) + _MOST_CHANGED


def _is_metadata(text: str) -> bool:
    """Return True if `text` is a complete partition.metadata of any topic."""
    words = text.split()
    if len(words) != 4 or words[:3] != ["version:", "0", "topic_id:"]:
        return False
    try:
        uuid_bytes(words[3])
    except ValueError:
        return False
    return True


def write_topic_id(store: Store, directory: Path, topic_id: bytes) -> None:
    """Write the partition.metadata of a topic. Raises OSError."""
    store.write(directory / PARTITION_METADATA, _metadata_text(topic_id).encode())


def owner_of(store: Store, directory: Path, topic_id: bytes) -> Owner:
    """Compare the partition.metadata in `directory` with a topic's id. Raises OSError."""
    text = store.read_text(directory / PARTITION_METADATA)
    expected = _metadata_text(topic_id)
    if text and text.split() == expected.split():
        return Owner.NAMED
    if text and _is_nearly(text, expected):
        return Owner.THIS
    if text and _is_metadata(text):
        return Owner.OTHER
    # Without records the directory was created just before a crash, and the file not yet written.
    return Owner.UNCERTAIN if recovery.log_end(store, directory) > 0 else Owner.THIS
