"""Apache Kafka's metadata: the records of `__cluster_metadata-0` (KRaft, KIP-631) replayed into the state they describe.

The log consists of record batches. A snapshot, `<end offset>-<epoch>.checkpoint`, has the same format, holds the current
records only, and replaces all offsets below its end. The value of a record:

    +---------------+-------------------+-----------------+--------+
    | frame version | record type       | version         | body   |   three uvarints, then a flexible message
    +---------------+-------------------+-----------------+--------+

Records between a begin and an end of a metadata transaction (KIP-866) apply only once the end is read. A clean stop is
assumed: all records of a single controller are committed.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from ottla.protocol import codec
from ottla.protocol.messages import metadata_records as records
from ottla.protocol.schema import Message
from ottla.protocol.wire import PeerError, read_uvarint
from ottla.records.record import Record
from ottla.security.acls import Acl
from ottla.security.delegation_tokens import DelegationToken
from ottla.security.quotas import Entity, entity_of
from ottla.security.scram import ScramCredential

_FRAME: Final = 1
_MESSAGES: Final[dict[int, type[Message]]] = {
    cls.API: cls
    for cls in (
        records.RegisterBrokerRecord,
        records.UnregisterBrokerRecord,
        records.TopicRecord,
        records.PartitionRecord,
        records.ConfigRecord,
        records.PartitionChangeRecord,
        records.RemoveTopicRecord,
        records.DelegationTokenRecord,
        records.UserScramCredentialRecord,
        records.FeatureLevelRecord,
        records.ClientQuotaRecord,
        records.ProducerIdsRecord,
        records.AccessControlEntryRecord,
        records.RemoveAccessControlEntryRecord,
        records.RemoveUserScramCredentialRecord,
        records.BeginTransactionRecord,
        records.EndTransactionRecord,
        records.AbortTransactionRecord,
        records.RemoveDelegationTokenRecord,
    )
}
_OF_NO_CONCERN: Final = frozenset(
    (
        7,  # FenceBroker
        8,  # UnfenceBroker
        17,  # BrokerRegistrationChange
        20,  # NoOp
        21,  # ZkMigrationState
        27,  # RegisterController
        28,  # ClearElr: eligible leaders matter only with several brokers
        29,  # UnregisterController
    )
)
_NO_LEADER_CHANGE: Final = -2


class UnreadableMetadata(Exception):
    """Metadata log that this release cannot read; the message has the offset and the reason."""


class KraftPartition(NamedTuple):
    """Partition in the metadata of Kafka's controller."""

    replicas: tuple[int, ...]
    leader_epoch: int


class KraftTopic:
    """Topic in the metadata of Kafka's controller."""

    def __init__(self, name: str, topic_id: bytes) -> None:
        self.name = name
        self.id = topic_id
        self.partitions: dict[int, KraftPartition] = {}


class KraftMetadata:
    """State of a metadata log; filled by `replay`.

    offset   offset of the next record, after all replayed ones
    configs  by (resource type, name), including topics
    unknown  number of records of each type that this release does not know
    """

    def __init__(self) -> None:
        self.offset = 0
        self.brokers: set[int] = set()
        self.topics: dict[bytes, KraftTopic] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.features: dict[str, int] = {}
        self.quotas: dict[Entity, dict[str, float]] = {}
        self.scram: dict[tuple[str, int], ScramCredential] = {}
        self.acls: dict[bytes, Acl] = {}
        self.tokens: dict[str, DelegationToken] = {}
        self.next_producer_id = 0
        self.unknown: Counter[int] = Counter()
        self._open: list[Message] | None = None  # records of the open metadata transaction

    def replay(self, log: Iterable[Record]) -> None:
        """Replay data records in the order of the log. Raises UnreadableMetadata."""
        for record in log:
            message = self._read(record)
            self.offset = record.offset + 1
            if message is not None:
                try:
                    self._replay_message(message)
                except KeyError:
                    raise UnreadableMetadata(
                        f"offset {record.offset}: of a topic or partition that is not there"
                    ) from None

    def _read(self, record: Record) -> Message | None:
        value = record.value or b""
        try:
            frame, position = read_uvarint(value, 0)
            kind, position = read_uvarint(value, position)
            version, position = read_uvarint(value, position)
            if frame != _FRAME:
                raise PeerError(f"a frame of version {frame}")
            if kind in _OF_NO_CONCERN:
                return None
            cls = _MESSAGES.get(kind)
            if cls is None:
                self.unknown[kind] += 1
                return None
            if version not in cls.VERSIONS:
                raise PeerError(f"{cls.__name__} of version {version} is from a newer Apache Kafka")
            return codec.decode(cls, version, value, position)[0]
        except (PeerError, IndexError) as cause:
            raise UnreadableMetadata(f"offset {record.offset}: {cause}") from None

    def _replay_message(self, message: Message) -> None:
        if isinstance(message, records.BeginTransactionRecord):
            self._open = []
        elif isinstance(message, records.AbortTransactionRecord):
            self._open = None
        elif isinstance(message, records.EndTransactionRecord):
            held, self._open = self._open or [], None
            for change in held:
                _CHANGES[change.API](self, change)
        elif self._open is not None:
            self._open.append(message)
        else:
            _CHANGES[message.API](self, message)

    def _register(self, record: records.RegisterBrokerRecord) -> None:
        self.brokers.add(record.broker_id)

    def _unregister(self, record: records.UnregisterBrokerRecord) -> None:
        self.brokers.discard(record.broker_id)

    def _topic(self, record: records.TopicRecord) -> None:
        self.topics[record.topic_id] = KraftTopic(record.name, record.topic_id)

    def _remove_topic(self, record: records.RemoveTopicRecord) -> None:
        topic = self.topics.pop(record.topic_id)
        self.configs.pop((_TOPIC, topic.name), None)  # Kafka writes no records for the configs of a deleted topic

    def _partition(self, record: records.PartitionRecord) -> None:
        partition = KraftPartition(tuple(record.replicas), record.leader_epoch)
        self.topics[record.topic_id].partitions[record.partition_id] = partition

    def _partition_change(self, record: records.PartitionChangeRecord) -> None:
        partitions = self.topics[record.topic_id].partitions
        replicas, epoch = partitions[record.partition_id]
        if record.replicas is not None:
            replicas = tuple(record.replicas)
        if record.leader != _NO_LEADER_CHANGE:
            epoch += 1
        partitions[record.partition_id] = KraftPartition(replicas, epoch)

    def _config(self, record: records.ConfigRecord) -> None:
        key = record.resource_type, record.resource_name
        texts = self.configs.setdefault(key, {})
        if record.value is None:
            texts.pop(record.name, None)
        else:
            texts[record.name] = record.value
        if not texts:
            del self.configs[key]

    def _feature(self, record: records.FeatureLevelRecord) -> None:
        if record.feature_level:
            self.features[record.name] = record.feature_level
        else:
            self.features.pop(record.name, None)

    def _quota(self, record: records.ClientQuotaRecord) -> None:
        entity = entity_of((part.entity_type, part.entity_name) for part in record.entity)
        quotas = self.quotas.setdefault(entity, {})
        if record.remove:
            quotas.pop(record.key, None)
        else:
            quotas[record.key] = record.value
        if not quotas:
            del self.quotas[entity]

    def _scram(self, record: records.UserScramCredentialRecord) -> None:
        self.scram[record.name, record.mechanism] = ScramCredential(
            record.salt, record.stored_key, record.server_key, record.iterations
        )

    def _remove_scram(self, record: records.RemoveUserScramCredentialRecord) -> None:
        self.scram.pop((record.name, record.mechanism), None)

    def _producer_ids(self, record: records.ProducerIdsRecord) -> None:
        self.next_producer_id = record.next_producer_id

    def _acl(self, record: records.AccessControlEntryRecord) -> None:
        self.acls[record.id] = Acl(
            record.resource_type,
            record.pattern_type,
            record.resource_name,
            record.principal,
            record.host,
            record.operation,
            record.permission_type,
        )

    def _remove_acl(self, record: records.RemoveAccessControlEntryRecord) -> None:
        self.acls.pop(record.id, None)

    def _token(self, record: records.DelegationTokenRecord) -> None:
        self.tokens[record.token_id] = DelegationToken(
            record.token_id,
            record.owner,
            record.requester,
            tuple(record.renewers),
            record.issue_timestamp,
            record.expiration_timestamp,
            record.max_timestamp,
        )

    def _remove_token(self, record: records.RemoveDelegationTokenRecord) -> None:
        self.tokens.pop(record.token_id, None)


_TOPIC: Final = 2
_CHANGES: Final[dict[int, Callable[[KraftMetadata, Any], None]]] = {
    records.RegisterBrokerRecord.API: KraftMetadata._register,
    records.UnregisterBrokerRecord.API: KraftMetadata._unregister,
    records.TopicRecord.API: KraftMetadata._topic,
    records.RemoveTopicRecord.API: KraftMetadata._remove_topic,
    records.PartitionRecord.API: KraftMetadata._partition,
    records.PartitionChangeRecord.API: KraftMetadata._partition_change,
    records.ConfigRecord.API: KraftMetadata._config,
    records.FeatureLevelRecord.API: KraftMetadata._feature,
    records.ClientQuotaRecord.API: KraftMetadata._quota,
    records.UserScramCredentialRecord.API: KraftMetadata._scram,
    records.RemoveUserScramCredentialRecord.API: KraftMetadata._remove_scram,
    records.ProducerIdsRecord.API: KraftMetadata._producer_ids,
    records.AccessControlEntryRecord.API: KraftMetadata._acl,
    records.RemoveAccessControlEntryRecord.API: KraftMetadata._remove_acl,
    records.DelegationTokenRecord.API: KraftMetadata._token,
    records.RemoveDelegationTokenRecord.API: KraftMetadata._remove_token,
}
