"""Consumer protocol embedded in the classic protocol: subscriptions and assignments as bytes (ConsumerProtocol*).

    version int16 | fields of that version, versions 0 to 3

A newer version only appends fields, so that its messages are decoded as the newest known version.
"""

from ottla.protocol.codec import decode, encode
from ottla.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from ottla.protocol.wire import PeerError


def decode_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """Decode the subscription of a member. Raises PeerError."""
    version = _version(metadata, ConsumerProtocolSubscription.VERSIONS.last)
    subscription, _ = decode(ConsumerProtocolSubscription, version, metadata, 2)
    return subscription


def decode_assignment(assignment: bytes) -> ConsumerProtocolAssignment:
    """Decode the assignment of a member. Raises PeerError."""
    version = _version(assignment, ConsumerProtocolAssignment.VERSIONS.last)
    decoded, _ = decode(ConsumerProtocolAssignment, version, assignment, 2)
    return decoded


def encode_assignment(topics: dict[str, list[int]], metadata: bytes) -> bytes:
    """Encode an assignment in the version of the member's subscription `metadata`."""
    version = _version(metadata, ConsumerProtocolAssignment.VERSIONS.last)
    partitions = [
        ConsumerProtocolAssignmentTopicPartition(topic=name, partitions=numbers) for name, numbers in topics.items()
    ]
    message = ConsumerProtocolAssignment(assigned_partitions=partitions)
    return version.to_bytes(2, "big") + encode(message, version)


def _version(data: bytes, newest: int) -> int:
    if len(data) < 2:
        raise PeerError("no version of the embedded consumer protocol")
    version = int.from_bytes(data[:2], "big", signed=True)
    if version < 0:
        raise PeerError(f"version {version} of the embedded consumer protocol")
    return min(version, newest)
