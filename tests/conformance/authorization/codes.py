"""Codes of ACLs in the protocol, and of the errors that say that a right is missing."""

from typing import Final

# Resource types, in filters also ANY.
TOPIC: Final = 2
GROUP: Final = 3
CLUSTER: Final = 4
TRANSACTIONAL_ID: Final = 5
DELEGATION_TOKEN: Final = 6
USER: Final = 7
CLUSTER_NAME: Final = "kafka-cluster"

# Operations.
UNKNOWN: Final = 0
ANY: Final = 1
ALL: Final = 2
READ: Final = 3
WRITE: Final = 4
CREATE: Final = 5
DELETE: Final = 6
ALTER: Final = 7
DESCRIBE: Final = 8
CLUSTER_ACTION: Final = 9
DESCRIBE_CONFIGS: Final = 10
ALTER_CONFIGS: Final = 11
IDEMPOTENT_WRITE: Final = 12
CREATE_TOKENS: Final = 13
DESCRIBE_TOKENS: Final = 14
TWO_PHASE_COMMIT: Final = 15
OPERATIONS: Final = range(READ, TWO_PHASE_COMMIT + 1)

# Permissions.
DENY: Final = 2
ALLOW: Final = 3

# Pattern types, in filters also ANY and MATCH.
MATCH: Final = 2
LITERAL: Final = 3
PREFIXED: Final = 4

NO_TOPIC: Final = 29
NO_GROUP: Final = 30
NO_CLUSTER: Final = 31
NO_TRANSACTIONAL_ID: Final = 53
NO_TOKEN: Final = 65
DENIED: Final = frozenset((NO_TOPIC, NO_GROUP, NO_CLUSTER, NO_TRANSACTIONAL_ID, NO_TOKEN))

GRANTED_BY: Final = {
    operation: (operation, ALL)
    + ((READ, WRITE, DELETE, ALTER) if operation == DESCRIBE else ())
    + ((ALTER_CONFIGS,) if operation == DESCRIBE_CONFIGS else ())
    for operation in OPERATIONS
}
"""Operations whose ALLOW gives an operation."""
