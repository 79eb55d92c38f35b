"""Random requests, most of whose fields have values that the brokers know."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ottla.protocol.schema import Array, Field, Primitive, Request, Struct
from ottla.records.batch import build
from ottla.records.record import Record

from .draft import Batch, Draft
from .identities import STRANGERS, Alias, Identities
from .sharing import Sharing

_DEFAULT_RATE: Final = 0.7  # of tagged fields
_NULL_RATE: Final = 0.15
_LATEST: Final = 6
_TOPIC, _BROKER, _CLIENT_METRICS = 2, 4, 16
_TOPIC_CONFIGS: Final = (
    "retention.ms",
    "cleanup.policy",
    "max.message.bytes",
    "min.insync.replicas",
    "message.timestamp.type",
    "compression.type",
    "segment.bytes",
    "preallocate",
    "min.cleanable.dirty.ratio",
    "no.such",
)
_GROUP_CONFIGS: Final = (
    "consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms",
    "share.auto.offset.reset",
    "share.record.lock.duration.ms",
    "streams.num.standby.replicas",
    "no.such",
)
_BROKER_CONFIGS: Final = (
    "log.retention.ms",
    "log.cleanup.policy",
    "compression.type",
    "log.message.timestamp.type",
    "log.flush.interval.messages",
    "unclean.leader.election.enable",
    "log.cleaner.backoff.ms",
    "max.connections",
    "min.insync.replicas",
    "node.id",
    "no.such",
)
_CONFIGS: Final[Mapping[int, Sequence[str]]] = {
    _TOPIC: _TOPIC_CONFIGS,
    _BROKER: _BROKER_CONFIGS,
    _CLIENT_METRICS: ("interval.ms", "metrics", "match", "no.such"),
}
_CONFIG_VALUES: Final = (
    "1000",
    "50000",
    "-1",
    "compact",
    "delete",
    "",
    "x",
    "CreateTime",
    "true",
    "gzip",
    "0.5",
    "client_id=a.*",
)
_QUOTAS: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
    "no_such",
)
_QUOTA_VALUES: Final = (1e9, 2e9, 1.5, 0.0, -1.0, 1e20)
_OF_USERS: Final = frozenset(("deletions", "upsertions", "users"))
# What a field is drawn from, whatever the message.
_CHOICES: Final[Mapping[str, Sequence[Any]]] = {
    "acks": (-1, -1, 1),
    "acknowledge_types": (1, 1, 2, 3, 0),
    "assignment": (b"", b"x", bytes(10)),
    "batch_size": (100, 1),
    "committed_leader_epoch": (-1, 0, 5),
    "committed_metadata": ("", "m"),
    "committed_offset": (0, 1, 3, 10),
    "config_operation": (0, 0, 1, 2, 3),
    "count": (1, 3, 2, -1, 5),
    "current_leader_epoch": (-1, -1, -1, 0, 1),
    "duration_filter": (-1, 0),
    "election_type": (0, 1, 2),
    "entity_type": ("user", "user", "client-id", "client-id", "ip", "nosuch"),
    "endpoint_information_epoch": (-1, 0, 1),
    "epoch": (0, 1, 1, 2),
    "fetch_offset": (0, 0, 1, 2, 5, 1000, -2),
    "first_offset": (0, 1, 2),
    "generation_id": (1, 1, 0, -1, 2),
    "generation_id_or_member_epoch": (-1, -1, 0, 1, 2),
    "group_instance_id": (None, None, "i", "j"),
    "index": (0, 0, 0, 1, 1, 9, -1),
    "iterations": (4096, 5000, 4095, 16385, 0),
    "instance_id": (None, None, None, "i", "j"),
    "isolation_level": (0, 1),
    "key_type": (0, 0, 1, 2, 3),
    "last_fetched_epoch": (-1, -1, -1, 0),
    "last_offset": (0, 1, 3),
    "leader_epoch": (-1, 0, 0, 1, 5),
    "log_start_offset": (-1, 0),
    "match_type": (0, 0, 1, 2, 3),
    "max_bytes": (1 << 20,),
    "max_records": (100, 1),
    "max_wait_ms": (0, 10),
    "mechanism": (1, 2, 1, 2, 0, 3),
    "member_epoch": (0, 0, 2, 1, -1, -2, 3),
    "metadata": (bytes(6) + b"\xff\xff\xff\xff",),
    "min_bytes": (0, 1),
    "num_partitions": (1, 1, 3, -1, 0),
    "offset": (0, 1, 2, -1, 5),
    "partition": (0, 0, 0, 1, 1, 9, -1),
    "partition_id": (0, 0, 1, 9),
    "partition_index": (0, 0, 0, 1, 1, 9),
    "partition_indexes": (0, 0, 1, 9),
    "partition_max_bytes": (1 << 20,),
    "partitions": (0, 0, 1, 9),
    "process_id": ("p", "q"),
    "producer_epoch": (0, 0, 1, 2, -1),
    "protocol_name": ("range",),
    "protocol_type": ("consumer", "consumer", "connect"),
    "rack_id": (None,),
    "reason": ("because",),
    "rebalance_timeout_ms": (60_000,),
    "replica_id": (-1,),
    "replication_factor": (1, 1, -1, 0, 2),
    "resource_type": (2, 2, 32),
    "resource_types": (2, 16, 32, 8, 4, 0, 99),
    "salt": (b"s" * 16, b"t" * 10, b""),
    "salted_password": (b"p" * 32, b"p" * 64, b"p"),
    "response_partition_limit": (1000, 1),
    "retention_time_ms": (-1, 100_000),
    "server_assignor": (None, None, "uniform", "range", "nosuch"),
    "session_epoch": (-1, -1, 0, 1),
    "session_timeout_ms": (300_000, 300_000, 300_000, 10),
    "share_acquire_mode": (0, 0, 1),
    "share_session_epoch": (0, 0, 1, 2, -1),
    "start_offset": (0, 1, 5),
    "states_filter": ("Stable", "Empty", "stable", "nosuch"),
    "state_filters": ("Empty", "Ongoing", "CompleteCommit", "nosuch"),
    "subtopology_id": ("0", "1"),
    "timeout_ms": (*[5_000] * 9, 0),
    "timestamp": (-1, -2, -3, -4, 0, -7),
    "transaction_timeout_ms": (60_000, 60_000, 60_000, 0, 10**9),
    "types_filter": ("classic", "consumer", "share", "streams", "nosuch"),
    "value": _CONFIG_VALUES,
}


class Values:
    """Draws requests to the brokers `nodes`. The names in them begin with `prefix`; records are `now_ms` old.

    takes_brokers  whether configs of brokers and of client-metrics subscriptions are drawn
    """

    takes_brokers = False

    def __init__(
        self, rng: random.Random, prefix: str, identities: Identities, now_ms: int, nodes: Sequence[int]
    ) -> None:
        self.rng = rng
        self.nodes = nodes
        self.sharing = Sharing(rng, identities)
        self.topics = [f"{prefix}-{name}" for name in "abc"]
        self.groups = [f"{prefix}-{name}" for name in "gh"]
        self.classic_group = f"{prefix}-k"
        self.transactional_ids = [f"{prefix}-{name}" for name in "tu"]
        self.users = [f"{prefix}-{name}" for name in ("v", "w", "ü x")]
        self._strange_topics = [f"{prefix}-missing", f"{prefix}-new", "bad name!", "."]
        self._identities = identities
        self._now_ms = now_ms
        self._named: dict[str, Callable[[], Any]] = {
            "broker_ids": self._node,
            "configuration_keys": lambda: rng.choice((*_TOPIC_CONFIGS, *_GROUP_CONFIGS)),
            "coordinator_keys": lambda: rng.choice((self.group(), self.transactional_id(), "")),
            "entity_name": lambda: rng.choice(self.users),
            "group": self.group,
            "group_id": self.group,
            "group_ids": self.group,
            "groups": self.group,
            "groups_names": self.group,
            "key": lambda: rng.choice((self.group(), self.transactional_id())),
            "match": lambda: rng.choice(self.users),
            "member_id": self._member,
            "producer_id": lambda: self._known("producer", 0.9, -1, STRANGERS[2]),
            "producer_id_filters": lambda: self._known("producer", 1, -1),
            "records": self._records,
            "replicas": self._node,
            "session_id": lambda: self._known("session", 0.5, 0),
            "source_topics": self.topic,
            "subscribed_topic_names": self.topic,
            "topic": self.topic,
            "topic_id": lambda: self._known("topic", 0.95, STRANGERS[0]),
            "topic_name": self.topic,
            "topic_names": self.topic,
            "topics": self.topic,
            "transactional_id": self.transactional_id,
            "transactional_id_filters": self.transactional_id,
            "transactional_ids": self.transactional_id,
        }

    def request(self, cls: type[Request], version: int) -> Draft:
        """Draw a request."""
        return self._struct(cls, version, ())

    def topic(self) -> str:
        """Draw the name of a topic."""
        return self.rng.choice(self._strange_topics if self.rng.random() < 0.1 else self.topics)

    def group(self) -> str:
        """Draw a group id."""
        return self.rng.choice((*self.groups, self.classic_group))

    def transactional_id(self) -> str:
        """Draw a transactional id."""
        return self.rng.choice(self.transactional_ids)

    def resource(self, kind: int) -> tuple[int, str]:
        """Draw the name of a resource of a kind, or that of brokers or subscriptions if these take part."""
        if self.takes_brokers and self.rng.random() < 0.4:
            return _BROKER, self.rng.choice(("", *map(str, self.nodes), "9"))
        if self.takes_brokers and self.rng.random() < 0.2:
            return _CLIENT_METRICS, self.rng.choice((*self.users, *self.users, ""))
        return kind, self.topic() if kind == _TOPIC else self.group()

    def config(self, kind: int) -> str:
        """Draw the name of a config of a kind of resource."""
        return self.rng.choice(_CONFIGS.get(kind, _GROUP_CONFIGS))

    def _node(self) -> int:
        return 5 if self.rng.random() < (0.3 if len(self.nodes) == 1 else 0.05) else self.rng.choice(self.nodes)

    def _known(self, category: str, rate: float, *others: Any) -> Any:
        count = self._identities.count(category)
        if count and self.rng.random() < rate:
            return Alias(category, self.rng.randrange(max(0, count - _LATEST), count))
        return self.rng.choice(others)

    def _member(self) -> Any:
        return self._known("member", 0.5, "", "m", "n", STRANGERS[1])

    def _records(self) -> Any:
        rng = self.rng
        records = tuple(
            Record(at, self._now_ms + rng.randrange(10), rng.choice((None, b"k")), b"v")
            for at in range(rng.choice((1, 1, 2, 5)))
        )
        if rng.random() < 0.1:
            data = build(list(records))
            return rng.choice((data[:-1], data + data, data[:-1] + bytes([data[-1] ^ 1])))
        producer_id = self._known("producer", 0.5, -1)
        sequence = rng.choice((0, 0, 1, 2, 5)) if isinstance(producer_id, Alias) else -1
        epoch = rng.choice((0, 0, 1)) if isinstance(producer_id, Alias) else -1
        return Batch(records, rng.choice((0, 0, 1, 2, 3)), producer_id, epoch, sequence, rng.random() < 0.5)

    def _struct(self, cls: type[Struct], version: int, path: tuple[str, ...]) -> Draft:
        fields = {}
        for declared in cls.FIELDS:
            if version not in declared.versions:
                continue
            if version in declared.tagged and self.rng.random() < _DEFAULT_RATE:
                continue
            value = self._value(declared, version, path)
            if value is not None or version in declared.nullable:
                fields[declared.name] = value
        return Draft(cls, fields)

    def _value(self, declared: Field, version: int, path: tuple[str, ...]) -> Any:
        kind = declared.type
        if version in declared.nullable and declared.name != "records" and self.rng.random() < _NULL_RATE:
            return None
        if not isinstance(kind, Array):
            return self._one(kind, declared.name, version, path)
        count = self.rng.choice((1, 1, 1, 2))
        drawn = [self._one(kind.element, declared.name, version, path) for _ in range(count)]
        return list({_identity(value): value for value in drawn if value is not None}.values())

    def _one(self, kind: Any, name: str, version: int, path: tuple[str, ...]) -> Any:
        rng = self.rng
        if not isinstance(kind, Primitive):
            return self._struct(kind, version, (*path, name))
        if name == "key" and "ops" in path[-1:]:
            return rng.choice(_QUOTAS)
        if name == "value" and kind.name == "float64":
            return rng.choice(_QUOTA_VALUES)
        if name == "name":
            if _OF_USERS.intersection(path[-1:]):
                return rng.choice(self.users)
            if "configs" in path[-1:]:
                return rng.choice(_TOPIC_CONFIGS)
            return "range" if "protocols" in path[-1:] else self.topic()
        if name in self._named:
            return self._named[name]()
        if name in _CHOICES:
            return rng.choice(_CHOICES[name])
        if kind.name == "bool":
            return rng.random() < 0.4
        if kind.name == "string":
            return rng.choice(("x", "y"))
        if kind.name in ("bytes", "records", "uuid"):
            return bytes(16) if kind.name == "uuid" else b""
        return 1.5 if kind.name == "float64" else rng.choice((0, 1, 2))


def _identity(value: Any) -> object:
    """Return what makes an element of a list another one: its names, for a struct. None is asked for twice."""
    if not isinstance(value, Draft):
        return value
    names = [field for field in value.fields.items() if not isinstance(field[1], list | Draft | Batch | bytes)]
    for name in (
        "topic_id",
        "partition_index",
        "partition",
        "index",
        "name",
        "topic",
        "topic_name",
        "group_id",
        "transactional_id",
        "member_id",
        "key",
    ):
        if value.fields.get(name) is not None:
            return name, value.fields[name]
    return repr(names)
