"""Enumerations of librdkafka's admin client, over its constants."""

from enum import Enum, IntEnum
from typing import Any, TypeVar

from ottla.compat.librdkafka import constants

E = TypeVar("E", bound=Enum)


class _Ordered(Enum):
    """Enumeration with the order of its values."""

    def __lt__(self, other: object) -> bool:
        return self.value < other.value if isinstance(other, type(self)) else NotImplemented


class ResourceType(_Ordered):
    """Type of a resource with configs or ACLs; BROKER is the cluster in an ACL."""

    UNKNOWN = constants.RESOURCE_UNKNOWN
    ANY = constants.RESOURCE_ANY
    TOPIC = constants.RESOURCE_TOPIC
    GROUP = constants.RESOURCE_GROUP
    BROKER = constants.RESOURCE_BROKER
    TRANSACTIONAL_ID = constants.RESOURCE_TRANSACTIONAL_ID


class ResourcePatternType(_Ordered):
    """Relation of an ACL's name to the names of resources."""

    UNKNOWN = constants.RESOURCE_PATTERN_UNKNOWN
    ANY = constants.RESOURCE_PATTERN_ANY
    MATCH = constants.RESOURCE_PATTERN_MATCH
    LITERAL = constants.RESOURCE_PATTERN_LITERAL
    PREFIXED = constants.RESOURCE_PATTERN_PREFIXED


class AclOperation(_Ordered):
    """Operation on a resource."""

    UNKNOWN = constants.ACL_OPERATION_UNKNOWN
    ANY = constants.ACL_OPERATION_ANY
    ALL = constants.ACL_OPERATION_ALL
    READ = constants.ACL_OPERATION_READ
    WRITE = constants.ACL_OPERATION_WRITE
    CREATE = constants.ACL_OPERATION_CREATE
    DELETE = constants.ACL_OPERATION_DELETE
    ALTER = constants.ACL_OPERATION_ALTER
    DESCRIBE = constants.ACL_OPERATION_DESCRIBE
    CLUSTER_ACTION = constants.ACL_OPERATION_CLUSTER_ACTION
    DESCRIBE_CONFIGS = constants.ACL_OPERATION_DESCRIBE_CONFIGS
    ALTER_CONFIGS = constants.ACL_OPERATION_ALTER_CONFIGS
    IDEMPOTENT_WRITE = constants.ACL_OPERATION_IDEMPOTENT_WRITE


class AclPermissionType(_Ordered):
    """Effect of an ACL."""

    UNKNOWN = constants.ACL_PERMISSION_TYPE_UNKNOWN
    ANY = constants.ACL_PERMISSION_TYPE_ANY
    DENY = constants.ACL_PERMISSION_TYPE_DENY
    ALLOW = constants.ACL_PERMISSION_TYPE_ALLOW


class AlterConfigOpType(Enum):
    """Operation on a config; APPEND and SUBTRACT change lists."""

    SET = constants.ALTER_CONFIG_OP_TYPE_SET
    DELETE = constants.ALTER_CONFIG_OP_TYPE_DELETE
    APPEND = constants.ALTER_CONFIG_OP_TYPE_APPEND
    SUBTRACT = constants.ALTER_CONFIG_OP_TYPE_SUBTRACT


class ConfigSource(Enum):
    """Source of a config's value."""

    UNKNOWN_CONFIG = constants.CONFIG_SOURCE_UNKNOWN_CONFIG
    DYNAMIC_TOPIC_CONFIG = constants.CONFIG_SOURCE_DYNAMIC_TOPIC_CONFIG
    DYNAMIC_BROKER_CONFIG = constants.CONFIG_SOURCE_DYNAMIC_BROKER_CONFIG
    DYNAMIC_DEFAULT_BROKER_CONFIG = constants.CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER_CONFIG
    STATIC_BROKER_CONFIG = constants.CONFIG_SOURCE_STATIC_BROKER_CONFIG
    DEFAULT_CONFIG = constants.CONFIG_SOURCE_DEFAULT_CONFIG
    GROUP_CONFIG = constants.CONFIG_SOURCE_GROUP_CONFIG


class ScramMechanism(_Ordered):
    """Hash function of a SCRAM credential."""

    UNKNOWN = constants.SCRAM_MECHANISM_UNKNOWN
    SCRAM_SHA_256 = constants.SCRAM_MECHANISM_SHA_256
    SCRAM_SHA_512 = constants.SCRAM_MECHANISM_SHA_512


class ConsumerGroupState(_Ordered):
    """State of a consumer group; UNKOWN is an old name of UNKNOWN."""

    UNKNOWN = constants.CONSUMER_GROUP_STATE_UNKNOWN
    UNKOWN = UNKNOWN
    PREPARING_REBALANCING = constants.CONSUMER_GROUP_STATE_PREPARING_REBALANCE
    COMPLETING_REBALANCING = constants.CONSUMER_GROUP_STATE_COMPLETING_REBALANCE
    STABLE = constants.CONSUMER_GROUP_STATE_STABLE
    DEAD = constants.CONSUMER_GROUP_STATE_DEAD
    EMPTY = constants.CONSUMER_GROUP_STATE_EMPTY


class ConsumerGroupType(_Ordered):
    """Protocol of a consumer group."""

    UNKNOWN = constants.CONSUMER_GROUP_TYPE_UNKNOWN
    CONSUMER = constants.CONSUMER_GROUP_TYPE_CONSUMER
    CLASSIC = constants.CONSUMER_GROUP_TYPE_CLASSIC


class IsolationLevel(_Ordered):
    """Reading of open and aborted transactions."""

    READ_UNCOMMITTED = constants.ISOLATION_LEVEL_READ_UNCOMMITTED
    READ_COMMITTED = constants.ISOLATION_LEVEL_READ_COMMITTED


class ElectionType(Enum):
    """Type of a leader election."""

    PREFERRED = constants.ELECTION_TYPE_PREFERRED
    UNCLEAN = constants.ELECTION_TYPE_UNCLEAN


class AcknowledgeType(IntEnum):
    """Outcome of a record that a share consumer has read."""

    ACCEPT = constants.SHARE_ACKNOWLEDGE_TYPE_ACCEPT
    RELEASE = constants.SHARE_ACKNOWLEDGE_TYPE_RELEASE
    REJECT = constants.SHARE_ACKNOWLEDGE_TYPE_REJECT


def member(value: Any, kind: type[E]) -> E:
    """Return a member of an enumeration by itself, its number, or its name in any case. Raises TypeError, ValueError."""
    if isinstance(value, str):
        try:
            return kind[value.upper()]
        except KeyError:
            raise ValueError(f'Unknown value "{value}": should be a {kind.__name__}') from None
    if isinstance(value, int):
        return kind(value)
    if not isinstance(value, kind):
        raise TypeError(f'Unknown value "{value}": should be a {kind.__name__}')
    return value


def operations(values: Any) -> list[AclOperation] | None:
    """Return authorized operations, without those that librdkafka has no name for; None for no operation."""
    known = {operation.value for operation in AclOperation}
    return [
        member(value, AclOperation) for value in values or () if not isinstance(value, int) or value in known
    ] or None
