"""partition.metadata: the file in a partition's directory that names its topic's id.

    version: 0
    topic_id: <22 characters of base64>

It is written without being flushed to disk, so that a power loss may leave it missing or damaged: then the records decide
whether the directory may be taken for the topic's.
"""

from enum import Enum, auto
from pathlib import Path
from typing import Final

from ottla.environment.files import Store
from ottla.log import recovery
from ottla.protocol.uuids import uuid_bytes, uuid_text

PARTITION_METADATA: Final = "partition.metadata"
_MOST_CHANGED: Final = 8
"""Characters that a damaged partition.metadata may differ by: two random topic ids agree in far fewer than the rest."""


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
    """Return whether `text` is `expected` with a few characters changed or with its end cut off."""
    same = sum(one == other for one, other in zip(text, expected, strict=False))
    return same >= len(expected) - _MOST_CHANGED and len(text) <= len(expected) + _MOST_CHANGED


def _is_metadata(text: str) -> bool:
    """Return whether `text` is a whole partition.metadata of some topic."""
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
    # Made, and not yet named when the process or the machine went down, unless there are records.
    return Owner.UNCERTAIN if recovery.log_end(store, directory) > 0 else Owner.THIS
