"""Identity of a group's member as opaque bytes, which a consumer hands to a producer for its transaction (KIP-447)."""

import json
from typing import Any, Final

from ottla.client.groups import GroupMetadata

_PREFIX: Final = b"CGMD"


def opaque_group_metadata(group: GroupMetadata) -> bytes:
    """Return the identity of a member as bytes."""
    return _PREFIX + json.dumps(list(group)).encode()


def group_metadata_from(opaque: Any) -> GroupMetadata:
    """Return the identity in `opaque_group_metadata`. Raises TypeError, ValueError."""
    if not isinstance(opaque, bytes):
        raise TypeError(f"expected consumer group metadata, not {type(opaque).__name__}")
    if not opaque.startswith(_PREFIX):
        raise ValueError("not the metadata of a consumer group")
    return GroupMetadata(*json.loads(opaque[len(_PREFIX) :]))
