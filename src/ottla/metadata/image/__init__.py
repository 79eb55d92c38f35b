"""Metadata of the cluster at one revision: an immutable image, and the deltas from one image to the next.

Readers hold an image, which never changes; code that must act on changes subscribes to deltas.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from ottla.metadata.image.layered import Layered
from ottla.security.acls import Acl
from ottla.security.delegation_tokens import DelegationToken
from ottla.security.quotas import Quotas
from ottla.security.scram import ScramCredential

OFFSETS_TOPIC: Final = "__consumer_offsets"
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_NO_FIELDS: Final[Mapping[str, Any]] = MappingProxyType({})
_NOT_ASSIGNED: Final[Mapping[int, bytes]] = MappingProxyType({})
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
SHARE_STATE_TOPIC: Final = "__share_group_state"
UNASSIGNED: Final = bytes(16)
"""Directory id of a replica without an assigned log directory (`DirectoryId.UNASSIGNED` in Kafka)."""
INTERNAL_TOPICS: Final = frozenset((OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_STATE_TOPIC))
NO_LEADER: Final = -1
FORMAT: Final = 1
"""Format number of values written by this release; values of earlier releases have none."""


class UnknownFormat(Exception):
    """Value of the metadata store that a newer release has written; the message has the key and the remedy."""


class PartitionImage(NamedTuple):
    """The replicas of a partition and their state. Node ids, in the order of the assignment; the preferred leader is first.

    replicas         assigned replicas
    isr              replicas in sync
    leader           NO_LEADER without a leader
    leader_epoch     increases with every election, and whenever a replica leaves the assignment
    directories      directory id (16 bytes) of each replica's log directory (KIP-858), UNASSIGNED for a replica whose log does
                     not exist yet, or that an earlier release has opened; empty when no replica has one
    epoch            partition epoch: increases with every change of the state
    adding           replicas that a reassignment adds, or has added (KIP-455); cancelling it removes them
    removing         replicas that a reassignment removes; one that was replaced by another may have added them
    elr              eligible leader replicas: they left the ISR while it was below min.insync.replicas (KIP-966)
    last_known_leader  leader, or last member of the ISR, before the ISR became empty; NO_LEADER while there is a leader
    min_isr          min.insync.replicas in force, with which ISR and ELR were computed; 0: the partition has no ELR
    offline          replicas whose log directory has failed
    replaced         replicas that have begun again in a new log directory, because the assigned one is gone, and have not been
                     in the ISR since: they lack records
    is_recovering    True from an unclean election until the leader has taken over
    unknown          fields that a newer release has written
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    directories: tuple[bytes, ...] = ()
    epoch: int = 0
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_leader: int = NO_LEADER
    min_isr: int = 0
    offline: tuple[int, ...] = ()
    replaced: tuple[int, ...] = ()
    is_recovering: bool = False
    unknown: Mapping[str, Any] = _NO_FIELDS

    @classmethod
    def new(
        cls, replicas: tuple[int, ...], min_isr: int = 0, assigned: Mapping[int, bytes] = _NOT_ASSIGNED
    ) -> "PartitionImage":
        """Return a partition of a new topic: the first replica leads, all are in sync.

        assigned  directory ids by node id
        """
        directories = tuple(assigned.get(node, UNASSIGNED) for node in replicas) if assigned else ()
        return _new_partition(replicas, min_isr, directories if set(directories) - {UNASSIGNED} else ())

    def directory_of(self, node_id: int) -> bytes:
        """Return the directory id that the replica on `node_id` is assigned to, or UNASSIGNED."""
        return self.directories[self.replicas.index(node_id)] if self.directories else UNASSIGNED

    def with_replicas(self, replicas: tuple[int, ...]) -> "PartitionImage":
        """Return this partition with other assigned replicas, each in the log directory that it is in; ISR and ELR stay."""
        directories = tuple(
            self.directory_of(node) if node in self.replicas else UNASSIGNED for node in replicas if self.directories
        )
        offline = tuple(node for node in self.offline if node in replicas)
        replaced = tuple(node for node in self.replaced if node in replicas)
        return self._replace(replicas=replicas, directories=directories, offline=offline, replaced=replaced)

    def assigned(self, node_id: int, directory_id: bytes) -> "PartitionImage":
        """Return this partition with the replica on `node_id` assigned to another log directory."""
        old = self.directories or (UNASSIGNED,) * len(self.replicas)
        new = (directory_id if node == node_id else before for node, before in zip(self.replicas, old, strict=True))
        return self._replace(directories=tuple(new), epoch=self.epoch + 1)

    def encoded(self) -> bytes:
        """Encode the state as the value of the partition's key in the metadata store."""
        fields: dict[str, Any] = {
            **self.unknown,
            "format": FORMAT,
            "replicas": self.replicas,
            "isr": self.isr,
            "leader": self.leader,
            "leader_epoch": self.leader_epoch,
            "epoch": self.epoch,
        }
        if self.directories:
            fields["directories"] = [directory.hex() for directory in self.directories]
        for name in _OPTIONAL:
            value = getattr(self, name)
            if value != self._field_defaults[name]:
                fields[name] = value
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decoded(cls, key: str, value: bytes) -> "PartitionImage":
        """Decode a state from the value of its key. Raises UnknownFormat."""
        fields = _fields(key, value)
        own: dict[str, Any] = {
            name: tuple(item) if isinstance(item := fields.pop(name), list) else item
            for name in cls._fields
            if name in fields and name not in ("directories", "unknown")
        }
        directories = tuple(bytes.fromhex(text) for text in fields.pop("directories", ()))
        return cls(**own, directories=directories, unknown=fields or _NO_FIELDS)


_OPTIONAL: Final = ("adding", "removing", "elr", "last_known_leader", "min_isr", "offline", "replaced", "is_recovering")


@lru_cache(maxsize=16_384)
def _new_partition(replicas: tuple[int, ...], min_isr: int, directories: tuple[bytes, ...]) -> PartitionImage:
    """See `PartitionImage.new`: many partitions have the same replicas, and share one object."""
    return PartitionImage(replicas, replicas, replicas[0], 0, directories, min_isr=min_isr)


def _fields(key: str, value: bytes) -> dict[str, Any]:
    """Return the fields of a value without its format number. Raises UnknownFormat."""
    fields: dict[str, Any] = json.loads(value)
    if fields.pop("format", 0) > FORMAT:
        raise UnknownFormat(f"{key} was written by a newer release of Ottla: upgrade this one")
    return fields


class TopicImage(NamedTuple):
    """A topic.

    configs  its overrides as text, under Kafka's names
    unknown  fields that a newer release has written
    min_isr  that of partitions without a key in the store: the value in force when the topic was created
    directories  assigned directories of their replicas, by node id: of the brokers that had one log directory then
    """

    name: str
    id: bytes
    partitions: tuple[PartitionImage, ...]
    configs: Mapping[str, str]
    unknown: Mapping[str, Any] = _NO_FIELDS
    min_isr: int = 0
    directories: Mapping[int, bytes] = _NOT_ASSIGNED

    def has_default(self, partition: PartitionImage) -> bool:
        """Return True for the state that a partition with these replicas has without a key in the store."""
        return partition == PartitionImage.new(partition.replicas, self.min_isr, self.directories)

    @property
    def is_internal(self) -> bool:
        """True for an internal topic, such as __consumer_offsets."""
        return self.name in INTERNAL_TOPICS

    def encoded(self) -> bytes:
        """Encode id, configs and assignment as the value of the topic's key; states of partitions have keys of their own."""
        fields = {
            **self.unknown,
            "format": FORMAT,
            "id": self.id.hex(),
            "configs": dict(self.configs),
            "replicas": [partition.replicas for partition in self.partitions],
        }
        if self.min_isr:
            fields["min_isr"] = self.min_isr
        if self.directories:
            fields["directories"] = {str(node): directory.hex() for node, directory in self.directories.items()}
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decoded(cls, key: str, name: str, value: bytes) -> "TopicImage":
        """Decode a topic from the value of its key; all partitions have the state of new ones. Raises UnknownFormat."""
        fields = _fields(key, value)
        if "partitions" in fields:
            return cls._of_first_format(name, fields)
        min_isr = fields.pop("min_isr", 0)
        texts = fields.pop("directories", {})
        assigned = {int(node): bytes.fromhex(text) for node, text in texts.items()} or _NOT_ASSIGNED
        partitions = tuple(
            PartitionImage.new(tuple(replicas), min_isr, assigned) for replicas in fields.pop("replicas")
        )
        topic_id, configs = bytes.fromhex(fields.pop("id")), fields.pop("configs")
        return cls(name, topic_id, partitions, configs, fields or _NO_FIELDS, min_isr, assigned)

    @classmethod
    def _of_first_format(cls, name: str, fields: dict[str, Any]) -> "TopicImage":
        """Decode a topic whose value has the states of its partitions too, as releases for a single broker wrote it."""
        partitions = []
        for replicas, isr, leader, epoch, *directories in fields["partitions"]:
            ids = tuple(bytes.fromhex(directory) for directory in directories[0]) if directories else ()
            partitions.append(PartitionImage(tuple(replicas), tuple(isr), leader, epoch, ids))
        return cls(name, bytes.fromhex(fields["id"]), tuple(partitions), fields["configs"])

    def with_partition(self, index: int, partition: PartitionImage) -> "TopicImage":
        """Return this topic with another state of one partition."""
        partitions = list(self.partitions)
        partitions[index] = partition
        return self._replace(partitions=tuple(partitions))


class Endpoint(NamedTuple):
    """Address of a broker's listener; `protocol` is Kafka's name of its security protocol."""

    listener: str
    host: str
    port: int
    protocol: str = "PLAINTEXT"


class BrokerImage(NamedTuple):
    """Registered broker.

    host, port   the advertised address of the first listener, or ("", -1) for the address that a client connected to
    rack         broker.rack
    epoch        broker epoch: the revision of the registration
    incarnation  random id of the broker's current process
    endpoints    all listeners; empty for a single broker
    directories  ids of its log directories, as hex
    defaults     static values of configs that must be equal on all brokers
    listener     listener that other brokers use
    features     lowest and highest supported level of each feature; empty for a release that did not register them
    log_dirs     its log.dirs; empty for a release that did not register them
    cordoned     cordoned.log.dirs at its start
    """

    node_id: int
    host: str
    port: int
    rack: str | None
    epoch: int = 0
    incarnation: str = ""
    endpoints: tuple[Endpoint, ...] = ()
    directories: tuple[str, ...] = ()
    defaults: Mapping[str, str] = _NOTHING
    listener: str = ""
    features: Mapping[str, tuple[int, int]] = _NO_FIELDS
    log_dirs: tuple[str, ...] = ()
    cordoned: tuple[str, ...] = ()
    unknown: Mapping[str, Any] = _NO_FIELDS

    def encoded(self) -> bytes:
        """Encode the registration as the value of its key in the metadata store."""
        fields = {
            **self.unknown,
            "format": FORMAT,
            "incarnation": self.incarnation,
            "endpoints": self.endpoints,
            "rack": self.rack,
            "directories": self.directories,
            "defaults": dict(self.defaults),
            "listener": self.listener,
            "features": dict(self.features),
            "log_dirs": self.log_dirs,
            "cordoned": self.cordoned,
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decoded(cls, key: str, node_id: int, value: bytes, epoch: int) -> "BrokerImage":
        """Decode a registration from the value of its key, which was written at revision `epoch`. Raises UnknownFormat."""
        fields = _fields(key, value)
        endpoints = tuple(Endpoint(*endpoint) for endpoint in fields.pop("endpoints"))
        first = endpoints[0] if endpoints else Endpoint("", "", -1)
        rack, incarnation = fields.pop("rack"), fields.pop("incarnation")
        directories, defaults = tuple(fields.pop("directories")), fields.pop("defaults")
        listener = fields.pop("listener")
        features = {name: (lowest, highest) for name, (lowest, highest) in fields.pop("features", {}).items()}
        log_dirs, cordoned = tuple(fields.pop("log_dirs", ())), tuple(fields.pop("cordoned", ()))
        return cls(
            node_id,
            first.host,
            first.port,
            rack,
            epoch,
            incarnation,
            endpoints,
            directories,
            defaults,
            listener,
            features,
            log_dirs,
            cordoned,
            fields or _NO_FIELDS,
        )

    def endpoint(self, listener: str) -> Endpoint | None:
        """Return the endpoint of a listener; None if the broker does not have it."""
        return next((endpoint for endpoint in self.endpoints if endpoint.listener == listener), None)


class Liveness(NamedTuple):
    """Sign of life of a broker, which ends with its lease.

    incarnation  that of the registration it belongs to
    lease        its lease in the metadata store
    created      revision at which it was created
    is_stopping  True once the broker has requested a controlled shutdown
    awaited      revision of the last move of its controlled shutdown: it ends when the other brokers have applied it; 0 before
    applied      revision that it has applied, published while another broker waits for it; -1 in earlier releases
    """

    incarnation: str
    lease: int
    created: int
    is_stopping: bool = False
    awaited: int = 0
    applied: int = -1

    def encoded(self) -> bytes:
        """Encode it as the value of its key in the metadata store."""
        fields = {
            "format": FORMAT,
            "incarnation": self.incarnation,
            "lease": self.lease,
            "stopping": self.is_stopping,
            "awaited": self.awaited,
            "applied": self.applied,
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decoded(cls, key: str, value: bytes, created: int) -> "Liveness":
        """Decode it from the value of its key. Raises UnknownFormat."""
        fields = _fields(key, value)
        is_stopping, awaited, applied = fields["stopping"], fields.get("awaited", 0), fields.get("applied", -1)
        return cls(fields["incarnation"], fields["lease"], created, is_stopping, awaited, applied)


class ControllerImage(NamedTuple):
    """The controller; `epoch` is the revision at which it became controller, `lease` that of its broker."""

    node_id: int
    lease: int
    epoch: int

    def encoded(self) -> bytes:
        """Encode it as the value of its key in the metadata store."""
        fields = {"format": FORMAT, "node_id": self.node_id, "lease": self.lease}
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decoded(cls, key: str, value: bytes, created: int) -> "ControllerImage":
        """Decode it from the value of its key. Raises UnknownFormat."""
        fields = _fields(key, value)
        return cls(fields["node_id"], fields["lease"], created)


class KeyRevision(NamedTuple):
    """Revisions of the store at which a key was last written, and created."""

    revision: int
    created: int


_NEVER: Final = KeyRevision(0, 0)


class Image(NamedTuple):
    """All metadata at `revision`.

    controller_id  node id of the controller, NO_LEADER without one
    brokers      live brokers
    configs      texts by (resource type, name), for brokers, groups and client-metrics subscriptions; topics have their own
    features     finalized levels that differ from the release's own
    credentials  SCRAM credentials by user and mechanism
    tokens       delegation tokens by id
    acls         ACLs by their keys
    registered   all registered brokers, live or fenced
    live         signs of life by node id; a broker is live if it has one of the incarnation that is registered
    controller   the controller; None without one, and for a single broker
    secret       secret of the cluster, the same on all brokers; empty until it is stored
    written      when each key of the store was written: a change that was planned on this image is compared with it
    """

    revision: int
    cluster_id: str
    controller_id: int
    brokers: Mapping[int, BrokerImage]
    topics: Mapping[str, TopicImage]
    topics_by_id: Mapping[bytes, TopicImage]
    configs: Mapping[tuple[int, str], Mapping[str, str]] = MappingProxyType({})
    features: Mapping[str, int] = MappingProxyType({})
    quotas: Quotas = MappingProxyType({})
    credentials: Mapping[tuple[str, int], ScramCredential] = MappingProxyType({})
    tokens: Mapping[str, DelegationToken] = MappingProxyType({})
    acls: Mapping[str, Acl] = MappingProxyType({})
    registered: Mapping[int, BrokerImage] = MappingProxyType({})
    live: Mapping[int, Liveness] = MappingProxyType({})
    controller: ControllerImage | None = None
    secret: bytes = b""
    written: Mapping[str, KeyRevision] = Layered()

    def revision_of(self, key: str) -> int:
        """Return the revision at which a key of the store was last written; 0 if it does not exist."""
        return self.written.get(key, _NEVER).revision

    def created_of(self, key: str) -> int:
        """Return the revision at which a key of the store was created; 0 if it does not exist."""
        return self.written.get(key, _NEVER).created

    def is_active(self, node_id: int) -> bool:
        """Return True if a broker is live and does not stop: it may lead partitions and join ISRs."""
        sign = self.live.get(node_id)
        return node_id in self.brokers and (sign is None or not sign.is_stopping)

    @property
    def active(self) -> frozenset[int]:
        """Brokers that are live and do not stop."""
        return frozenset(filter(self.is_active, self.brokers))

    def configs_of(self, kind: int, name: str) -> Mapping[str, str]:
        """Return the config overrides of a resource other than a topic."""
        return self.configs.get((kind, name), _NOTHING)

    def partition(self, topic_id: bytes, index: int) -> PartitionImage | None:
        """Return a partition; None for an unknown topic or index."""
        topic = self.topics_by_id.get(topic_id)
        return topic.partitions[index] if topic is not None and 0 <= index < len(topic.partitions) else None


EMPTY: Final = Image(0, "", NO_LEADER, MappingProxyType({}), Layered(), Layered())


class Delta(NamedTuple):
    """Changes that led to `image`.

    changed     topics that are new, or whose number of partitions or configs have changed
    deleted     deleted topics; a topic that was deleted and created again is in both
    moved       indexes of partitions whose state has changed, by topic name; only topics that are not in `changed`
    configured  resources other than topics whose configs have changed
    settings    True if features, quotas, credentials, tokens or ACLs have changed
    membership  True if brokers have registered, become live or fenced, or the controller has changed
    before      the image before the changes
    """

    image: Image
    changed: tuple[TopicImage, ...] = ()
    deleted: tuple[TopicImage, ...] = ()
    configured: frozenset[tuple[int, str]] = frozenset()
    settings: bool = False
    moved: Mapping[str, tuple[int, ...]] = MappingProxyType({})
    membership: bool = False
    before: Image = EMPTY
