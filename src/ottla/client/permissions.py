"""Resource types and operations of ACLs, as Kafka's Admin names them, and operations that a response lists as authorized."""

from ottla.security.operations import NOT_REQUESTED, AclOperation, AclResourceType


def authorized_operations(bits: int) -> tuple[AclOperation, ...] | None:
    """Return the operations of a bit field in a response: bit n is the operation with code n. None if the field is not set
    (KIP-430). Operations of newer brokers are left out."""
    if bits == NOT_REQUESTED:
        return None
    return tuple(operation for operation in AclOperation if operation > AclOperation.ANY and bits >> operation & 1)


__all__ = ["AclOperation", "AclResourceType", "authorized_operations"]
