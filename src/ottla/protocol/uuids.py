"""Text form of uuids: ids of topics, clusters, directories, clients."""

import base64


def uuid_text(uuid: bytes) -> str:
    """Format 16 bytes as Kafka does: base64url without padding, 22 characters."""
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode()


def uuid_bytes(text: str) -> bytes:
    """Parse the text form of a uuid, as written by `uuid_text`. Raises ValueError."""
    uuid = base64.urlsafe_b64decode(text + "==")
    if len(uuid) != 16:
        raise ValueError(f"{text!r} is not a uuid of 22 characters")
    return uuid
