"""Operations on resources that a client may be allowed to do, by the codes that ACLs and responses use (KIP-430)."""

from enum import IntEnum
from typing import Final

from ottla.protocol.context import RequestContext

NOT_REQUESTED: Final = -(2**31)
"""Value in place of the authorized operations, if they were not requested."""


class AclResourceType(IntEnum):
    """Type of a resource that has ACLs; ANY is for filters only."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclOperation(IntEnum):
    """Operation on a resource; ANY is for filters only, ALL stands for every operation.

    READ, WRITE, DELETE and ALTER imply DESCRIBE, ALTER_CONFIGS implies DESCRIBE_CONFIGS. In a response with authorized
    operations each is one bit.
    """

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


CLUSTER_NAME: Final = "kafka-cluster"
"""Name of the one resource of type CLUSTER."""
OPERATIONS: Final = {
    AclResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    AclResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    AclResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
    AclResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.TWO_PHASE_COMMIT),
    AclResourceType.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
    AclResourceType.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
}
"""Operations by type of resource, without ALL, which fits every type."""
_UNRESTRICTED: Final = {
    resource_type: sum(1 << operation for operation in operations) for resource_type, operations in OPERATIONS.items()
}


def authorized_operations(context: RequestContext, resource_type: AclResourceType, name: str = CLUSTER_NAME) -> int:
    """Bits of the operations that the sender of a request may do on a resource: bit n is the operation with code n.

    For the cluster 0 without DESCRIBE.
    """
    if context.authorizer is None:
        return _UNRESTRICTED[resource_type]
    is_cluster = resource_type == AclResourceType.CLUSTER
    if is_cluster and not context.allowed(AclOperation.DESCRIBE, resource_type, name):
        return 0
    operations = OPERATIONS[resource_type]
    allowed = (op for op in operations if context.allowed(op, resource_type, name, is_logged=False))
    return sum(1 << operation for operation in allowed)
