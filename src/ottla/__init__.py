"""Ottla: Kafka you can pip install.

All names below are loaded on first use, so that `import ottla` is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ottla.version import VERSION

if TYPE_CHECKING:
    from ottla.client.admin.acls import (
        AccessControlEntry,
        AccessControlEntryFilter,
        AclBinding,
        AclBindingFilter,
        AclPermissionType,
        PatternType,
        ResourcePattern,
        ResourcePatternFilter,
    )
    from ottla.client.admin.cluster import FeatureUpdate, UpgradeType
    from ottla.client.admin.configs import ConfigChange, ConfigOperation, ConfigResource, ResourceType
    from ottla.client.admin.log_dirs import TopicPartitionReplica
    from ottla.client.admin.quotas import QuotaFilter
    from ottla.client.admin.replicas import ElectionType
    from ottla.client.admin.scram import ScramMechanism, UserScramCredentialDeletion, UserScramCredentialUpsertion
    from ottla.client.admin.topics import NewPartitions, NewTopic
    from ottla.client.admin.transactions import AbortTransactionSpec
    from ottla.client.blocking import Admin, Consumer, Producer, ShareConsumer
    from ottla.client.errors import KafkaError
    from ottla.client.groups import GroupMetadata, OffsetAndMetadata
    from ottla.client.permissions import AclOperation, AclResourceType
    from ottla.client.producer.closed import Delivered
    from ottla.client.share.delivery import AcknowledgeType
    from ottla.client.topics import EARLIEST, LATEST, TopicPartition
    from ottla.query.sql import sql
    from ottla.records.record import Record

__version__ = VERSION

_HOMES = {
    "AbortTransactionSpec": "ottla.client.admin.transactions",
    "AccessControlEntry": "ottla.client.admin.acls",
    "AccessControlEntryFilter": "ottla.client.admin.acls",
    "AcknowledgeType": "ottla.client.share.delivery",
    "AclBinding": "ottla.client.admin.acls",
    "AclBindingFilter": "ottla.client.admin.acls",
    "AclOperation": "ottla.client.permissions",
    "AclPermissionType": "ottla.client.admin.acls",
    "AclResourceType": "ottla.client.permissions",
    "Admin": "ottla.client.blocking",
    "ConfigChange": "ottla.client.admin.configs",
    "ConfigOperation": "ottla.client.admin.configs",
    "ConfigResource": "ottla.client.admin.configs",
    "Consumer": "ottla.client.blocking",
    "Delivered": "ottla.client.producer.closed",
    "EARLIEST": "ottla.client.topics",
    "ElectionType": "ottla.client.admin.replicas",
    "FeatureUpdate": "ottla.client.admin.cluster",
    "GroupMetadata": "ottla.client.groups",
    "KafkaError": "ottla.client.errors",
    "LATEST": "ottla.client.topics",
    "NewPartitions": "ottla.client.admin.topics",
    "NewTopic": "ottla.client.admin.topics",
    "OffsetAndMetadata": "ottla.client.groups",
    "PatternType": "ottla.client.admin.acls",
    "Producer": "ottla.client.blocking",
    "QuotaFilter": "ottla.client.admin.quotas",
    "Record": "ottla.records.record",
    "ResourcePattern": "ottla.client.admin.acls",
    "ResourcePatternFilter": "ottla.client.admin.acls",
    "ResourceType": "ottla.client.admin.configs",
    "ScramMechanism": "ottla.client.admin.scram",
    "ShareConsumer": "ottla.client.blocking",
    "TopicPartition": "ottla.client.topics",
    "TopicPartitionReplica": "ottla.client.admin.log_dirs",
    "UpgradeType": "ottla.client.admin.cluster",
    "UserScramCredentialDeletion": "ottla.client.admin.scram",
    "UserScramCredentialUpsertion": "ottla.client.admin.scram",
    "sql": "ottla.query.sql",
}

__all__ = [
    "EARLIEST",
    "LATEST",
    "AbortTransactionSpec",
    "AccessControlEntry",
    "AccessControlEntryFilter",
    "AcknowledgeType",
    "AclBinding",
    "AclBindingFilter",
    "AclOperation",
    "AclPermissionType",
    "AclResourceType",
    "Admin",
    "ConfigChange",
    "ConfigOperation",
    "ConfigResource",
    "Consumer",
    "Delivered",
    "ElectionType",
    "FeatureUpdate",
    "GroupMetadata",
    "KafkaError",
    "NewPartitions",
    "NewTopic",
    "OffsetAndMetadata",
    "PatternType",
    "Producer",
    "QuotaFilter",
    "Record",
    "ResourcePattern",
    "ResourcePatternFilter",
    "ResourceType",
    "ScramMechanism",
    "ShareConsumer",
    "TopicPartition",
    "TopicPartitionReplica",
    "UpgradeType",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
    "__version__",
    "sql",
]
_SUBMODULES = frozenset({"aio", "testing", "work"})
"""Those that `import ottla` makes available, on their first use."""


def __getattr__(name: str) -> Any:
    """Import a public name on its first use."""
    if name in _SUBMODULES:
        return import_module(f"ottla.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value
