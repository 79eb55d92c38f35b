"""Records of Apache Kafka's metadata log, `__cluster_metadata-0`: those that Kafka 4 writes.

A value is framed as `uvarint 1 | uvarint record type | uvarint version | body`; the record type is a message's API here.
"""

from ottla.protocol.schema import (
    Array,
    Bool,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    Uint16,
    Uuid,
    field,
    message,
)


class BrokerEndpoint(Struct):
    name: str = field(String)
    host: str = field(String)
    port: int = field(Uint16)
    security_protocol: int = field(Int16)


class BrokerFeature(Struct):
    name: str = field(String)
    min_supported_version: int = field(Int16)
    max_supported_version: int = field(Int16)


@message(api=0, versions="0-4", flexible="0+")
class RegisterBrokerRecord(Message):
    broker_id: int = field(Int32)
    is_migrating_zk_broker: bool = field(Bool, versions="2+", default=False)
    incarnation_id: bytes = field(Uuid)
    broker_epoch: int = field(Int64)
    end_points: list[BrokerEndpoint] = field(Array(BrokerEndpoint))
    features: list[BrokerFeature] = field(Array(BrokerFeature))
    rack: str | None = field(String, nullable="0+")
    fenced: bool = field(Bool, default=True)
    in_controlled_shutdown: bool = field(Bool, versions="1+", default=False)
    log_dirs: list[bytes] = field(Array(Uuid), versions="3+", tag=0)
    cordoned_log_dirs: list[bytes] | None = field(Array(Uuid), versions="4+", nullable="4+", tag=1, default=None)


@message(api=1, versions="0", flexible="0+")
class UnregisterBrokerRecord(Message):
    broker_id: int = field(Int32)
    broker_epoch: int = field(Int64)


@message(api=2, versions="0", flexible="0+")
class TopicRecord(Message):
    name: str = field(String)
    topic_id: bytes = field(Uuid)


@message(api=3, versions="0-2", flexible="0+")
class PartitionRecord(Message):
    partition_id: int = field(Int32, default=-1)
    topic_id: bytes = field(Uuid)
    replicas: list[int] = field(Array(Int32))
    isr: list[int] = field(Array(Int32))
    removing_replicas: list[int] = field(Array(Int32))
    adding_replicas: list[int] = field(Array(Int32))
    leader: int = field(Int32, default=-1)
    leader_recovery_state: int = field(Int8, tag=0)
    leader_epoch: int = field(Int32, default=-1)
    partition_epoch: int = field(Int32, default=-1)
    directories: list[bytes] = field(Array(Uuid), versions="1+")  # KIP-858
    eligible_leader_replicas: list[int] | None = field(Array(Int32), versions="2+", nullable="2+", tag=1, default=None)
    last_known_elr: list[int] | None = field(Array(Int32), versions="2+", nullable="2+", tag=2, default=None)


@message(api=4, versions="0", flexible="0+")
class ConfigRecord(Message):
    resource_type: int = field(Int8)
    resource_name: str = field(String)
    name: str = field(String)
    value: str | None = field(String, nullable="0+")


@message(api=5, versions="0-2", flexible="0+")
class PartitionChangeRecord(Message):
    partition_id: int = field(Int32, default=-1)
    topic_id: bytes = field(Uuid)
    isr: list[int] | None = field(Array(Int32), nullable="0+", tag=0, default=None)
    leader: int = field(Int32, tag=1, default=-2)
    replicas: list[int] | None = field(Array(Int32), nullable="0+", tag=2, default=None)
    removing_replicas: list[int] | None = field(Array(Int32), nullable="0+", tag=3, default=None)
    adding_replicas: list[int] | None = field(Array(Int32), nullable="0+", tag=4, default=None)
    leader_recovery_state: int = field(Int8, tag=5, default=-1)
    directories: list[bytes] | None = field(Array(Uuid), versions="1+", nullable="1+", tag=8, default=None)
    eligible_leader_replicas: list[int] | None = field(Array(Int32), versions="2+", nullable="2+", tag=6, default=None)
    last_known_elr: list[int] | None = field(Array(Int32), versions="2+", nullable="2+", tag=7, default=None)


@message(api=9, versions="0", flexible="0+")
class RemoveTopicRecord(Message):
    topic_id: bytes = field(Uuid)


@message(api=10, versions="0", flexible="0+")
class DelegationTokenRecord(Message):
    owner: str = field(String)
    requester: str = field(String)
    renewers: list[str] = field(Array(String))
    issue_timestamp: int = field(Int64)
    max_timestamp: int = field(Int64)
    expiration_timestamp: int = field(Int64)
    token_id: str = field(String)


@message(api=11, versions="0", flexible="0+")
class UserScramCredentialRecord(Message):
    name: str = field(String)
    mechanism: int = field(Int8)
    salt: bytes = field(Bytes)
    stored_key: bytes = field(Bytes)
    server_key: bytes = field(Bytes)
    iterations: int = field(Int32)


@message(api=12, versions="0", flexible="0+")
class FeatureLevelRecord(Message):
    name: str = field(String)
    feature_level: int = field(Int16)


class EntityData(Struct):
    entity_type: str = field(String)
    entity_name: str | None = field(String, nullable="0+")


@message(api=14, versions="0", flexible="0+")
class ClientQuotaRecord(Message):
    entity: list[EntityData] = field(Array(EntityData))
    key: str = field(String)
    value: float = field(Float64)
    remove: bool = field(Bool)


@message(api=15, versions="0", flexible="0+")
class ProducerIdsRecord(Message):
    broker_id: int = field(Int32)
    broker_epoch: int = field(Int64, default=-1)
    next_producer_id: int = field(Int64)


@message(api=18, versions="0", flexible="0+")
class AccessControlEntryRecord(Message):
    id: bytes = field(Uuid)
    resource_type: int = field(Int8)
    resource_name: str = field(String)
    pattern_type: int = field(Int8)
    principal: str = field(String)
    host: str = field(String)
    operation: int = field(Int8)
    permission_type: int = field(Int8)


@message(api=19, versions="0", flexible="0+")
class RemoveAccessControlEntryRecord(Message):
    id: bytes = field(Uuid)


@message(api=22, versions="0", flexible="0+")
class RemoveUserScramCredentialRecord(Message):
    name: str = field(String)
    mechanism: int = field(Int8)


@message(api=23, versions="0", flexible="0+")
class BeginTransactionRecord(Message):
    """KIP-866: what follows counts only once its end is there."""

    name: str | None = field(String, nullable="0+", tag=0, default=None)


@message(api=24, versions="0", flexible="0+")
class EndTransactionRecord(Message):
    pass


@message(api=25, versions="0", flexible="0+")
class AbortTransactionRecord(Message):
    reason: str | None = field(String, nullable="0+", tag=0, default=None)


@message(api=26, versions="0", flexible="0+")
class RemoveDelegationTokenRecord(Message):
    token_id: str = field(String)


# What follows says something about brokers and controllers alone: it is shown (`ottla dump-log`), and nothing comes of it.


@message(api=7, versions="0", flexible="0+")
class FenceBrokerRecord(Message):
    id: int = field(Int32)
    epoch: int = field(Int64)


@message(api=8, versions="0", flexible="0+")
class UnfenceBrokerRecord(Message):
    id: int = field(Int32)
    epoch: int = field(Int64)


@message(api=17, versions="0-3", flexible="0+")
class BrokerRegistrationChangeRecord(Message):
    broker_id: int = field(Int32)
    broker_epoch: int = field(Int64)
    fenced: int = field(Int8, tag=0)
    in_controlled_shutdown: int = field(Int8, versions="1+", tag=1)
    log_dirs: list[bytes] = field(Array(Uuid), versions="2+", tag=2)
    cordoned_log_dirs: list[bytes] | None = field(Array(Uuid), versions="3+", nullable="3+", tag=3, default=None)


@message(api=20, versions="0", flexible="0+")
class NoOpRecord(Message):
    pass


@message(api=21, versions="0", flexible="0+")
class ZkMigrationStateRecord(Message):
    zk_migration_state: int = field(Int8)


class ControllerEndpoint(Struct):
    name: str = field(String)
    host: str = field(String)
    port: int = field(Uint16)
    security_protocol: int = field(Int16)


class ControllerFeature(Struct):
    name: str = field(String)
    min_supported_version: int = field(Int16)
    max_supported_version: int = field(Int16)


@message(api=27, versions="0", flexible="0+")
class RegisterControllerRecord(Message):
    controller_id: int = field(Int32)
    incarnation_id: bytes = field(Uuid)
    zk_migration_ready: bool = field(Bool)
    end_points: list[ControllerEndpoint] = field(Array(ControllerEndpoint))
    features: list[ControllerFeature] = field(Array(ControllerFeature))


@message(api=28, versions="0", flexible="0+")
class ClearElrRecord(Message):
    topic_name: str = field(String)


@message(api=29, versions="0", flexible="0+")
class UnregisterControllerRecord(Message):
    controller_id: int = field(Int32)
