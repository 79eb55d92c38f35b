"""Decides about topics, writes the decision to the store, and hands the delta to everyone who subscribed.

The wording of refusals is Kafka's: people search for it, and tools print it.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ottla.environment import Random
from ottla.metadata import keys, placement
from ottla.metadata.configs import InvalidConfig, validate_topic
from ottla.metadata.image import BrokerImage, Delta, Image, PartitionImage, TopicImage
from ottla.metadata.refusal import Refused
from ottla.metadata.store import MetadataStore
from ottla.protocol.errors import (
    INVALID_CONFIG,
    INVALID_PARTITIONS,
    INVALID_REPLICA_ASSIGNMENT,
    INVALID_REPLICATION_FACTOR,
    INVALID_REQUEST,
    INVALID_TOPIC_EXCEPTION,
    POLICY_VIOLATION,
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from ottla.security.quotas import Entity
from ottla.security.scram import ScramCredential

PRODUCER_ID_BLOCK: Final = 1000
MOST_PARTITIONS_AT_ONCE: Final = 10_000
_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")
LONGEST_TOPIC_NAME: Final = 249


class NewTopic(NamedTuple):
    """What CreateTopics asks for; -1 stands for the broker's default; `assignments` maps partition to node ids."""

    name: str
    partitions: int
    replication_factor: int
    assignments: Mapping[int, Sequence[int]]
    configs: Mapping[str, str | None]


def check_name(name: str) -> None:
    """Raise Refused unless `name` may be a topic's."""
    if not name:
        why = "the empty string is not allowed"
    elif name in (".", ".."):
        why = f"'{name}' is not allowed"
    elif len(name) > LONGEST_TOPIC_NAME:
        why = f"the length of '{name}' is longer than the max allowed length {LONGEST_TOPIC_NAME}"
    elif not _LEGAL_NAME.fullmatch(name):
        why = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return
    raise Refused(INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {why}")


def check_replicas(replicas: Sequence[int], brokers: Collection[int]) -> None:
    """Raise Refused unless a partition may have these replicas, given by hand."""
    if not replicas:
        text = "The manual partition assignment includes an empty replica list."
        raise Refused(INVALID_REPLICA_ASSIGNMENT, text)
    if len(set(replicas)) != len(replicas):
        double = next(node for node in sorted(replicas) if list(replicas).count(node) > 1)
        text = f"The manual partition assignment includes the broker {double} more than once."
        raise Refused(INVALID_REPLICA_ASSIGNMENT, text)
    for node in sorted(replicas):
        if node not in brokers:
            text = f"The manual partition assignment includes broker {node}, but no such broker is registered."
            raise Refused(INVALID_REPLICA_ASSIGNMENT, text)


class Controller:
    """The one that changes metadata.

    default_partitions, default_replicas  num.partitions and default.replication.factor, read when they are needed
    """

    def __init__(
        self,
        store: MetadataStore,
        random: Random,
        broker: BrokerImage,
        default_partitions: Callable[[], int],
        default_replicas: Callable[[], int],
    ) -> None:
        self._store = store
        self._random = random
        self._default_partitions = default_partitions
        self._default_replicas = default_replicas
        self._listeners: list[Callable[[Delta], None]] = []
        topics = {
            entry.key[len(keys.TOPICS) :]: TopicImage.decoded(entry.key[len(keys.TOPICS) :], entry.value)
            for entry in store.range(keys.TOPICS)
        }
        self.image = Image(
            revision=store.revision,
            cluster_id=self._cluster_id(),
            controller_id=broker.node_id,
            brokers={broker.node_id: broker},
            topics=topics,
            topics_by_id={topic.id: topic for topic in topics.values()},
            configs=dict(self._stored_configs()),
            features={entry.key[len(keys.FEATURES) :]: int(entry.value) for entry in store.range(keys.FEATURES)},
            quotas={keys.quota_of(entry.key): keys.quota_values(entry.value) for entry in store.range(keys.QUOTAS)},
            credentials={
                keys.scram_of(entry.key): ScramCredential.decoded(entry.value) for entry in store.range(keys.SCRAM)
            },
        )

    def _stored_configs(self) -> Iterator[tuple[tuple[int, str], Mapping[str, str]]]:
        for entry in self._store.range(keys.CONFIGS):
            yield keys.config_of(entry.key), json.loads(entry.value)

    def subscribe(self, listener: Callable[[Delta], None]) -> None:
        """Call `listener` with every delta from now on."""
        self._listeners.append(listener)

    def _cluster_id(self) -> str:
        found = self._store.get(keys.CLUSTER_ID)
        if found is None:
            raise LookupError("the metadata store has no cluster id")
        return found.value.decode()

    def plan(self, wanted: NewTopic, taken: Mapping[str, TopicImage]) -> TopicImage:
        """The topic that CreateTopics would make. Raises Refused.

        taken  topics that the same request makes, beside those that exist
        """
        check_name(wanted.name)
        for names in (self.image.topics, taken):
            if wanted.name in names:
                raise Refused(TOPIC_ALREADY_EXISTS, f"Topic '{wanted.name}' already exists.")
            self._check_collision(wanted.name, names)
        configs = self._checked_configs(wanted.configs)
        partitions = self._placed(wanted)
        return TopicImage(wanted.name, self._new_uuid(), tuple(partitions), configs)

    @staticmethod
    def _check_collision(name: str, names: Mapping[str, TopicImage]) -> None:
        """Names that differ only in '.' and '_' would share their metrics' names."""
        if "." in name or "_" in name:
            plain = name.replace(".", "_")
            for other in names:
                if other.replace(".", "_") == plain:
                    raise Refused(INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")

    def _placed(self, wanted: NewTopic) -> list[PartitionImage]:
        brokers = sorted(self.image.brokers)
        if wanted.assignments:
            return self._assigned(wanted, brokers)
        factor, count = wanted.replication_factor, wanted.partitions
        if factor < -1 or factor == 0:
            raise Refused(
                INVALID_REPLICATION_FACTOR,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            )
        if count < -1 or count == 0:
            raise Refused(INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
        factor = self._default_replicas() if factor == -1 else factor
        count = self._default_partitions() if count == -1 else count
        if factor > len(brokers):
            raise Refused(
                INVALID_REPLICATION_FACTOR,
                f"Unable to replicate the partition {factor} time(s): The target replication factor of {factor} "
                f"cannot be reached because only {len(brokers)} broker(s) are registered or some brokers have all their log "
                "directories cordoned.",
            )
        return placement.place(count, factor, brokers, self._random.below(len(brokers)))

    @staticmethod
    def _assigned(wanted: NewTopic, brokers: Sequence[int]) -> list[PartitionImage]:
        if wanted.replication_factor != -1:
            text = "A manual partition assignment was specified, but replication factor was not set to -1."
            raise Refused(INVALID_REQUEST, text)
        if wanted.partitions != -1:
            text = "A manual partition assignment was specified, but numPartitions was not set to -1."
            raise Refused(INVALID_REQUEST, text)
        placed: list[PartitionImage] = []
        for number in range(len(wanted.assignments)):
            replicas = wanted.assignments.get(number)
            if replicas is None:
                text = "partitions should be a consecutive 0-based integer sequence"
                raise Refused(INVALID_REPLICA_ASSIGNMENT, text)
            check_replicas(replicas, brokers)
            if placed and len(placed[0].replicas) != len(replicas):
                text = (
                    f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not "
                    f"consistent with previous partitions, which have {len(placed[0].replicas)} replica(s)."
                )
                raise Refused(INVALID_REPLICA_ASSIGNMENT, text)
            placed.append(PartitionImage(tuple(replicas), tuple(replicas), replicas[0], 0))
        return placed

    @staticmethod
    def _checked_configs(wanted: Mapping[str, str | None]) -> dict[str, str]:
        """Overrides that a topic takes. Raises Refused."""
        nulls = [name for name, text in wanted.items() if text is None]
        if nulls:
            raise Refused(INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(nulls)}")
        kept = {name: text for name, text in wanted.items() if text is not None}
        try:
            validate_topic(kept)
        except InvalidConfig as cause:
            raise Refused(INVALID_CONFIG, str(cause)) from None
        return kept

    def _new_uuid(self) -> bytes:
        """A random topic id; none of Kafka's reserved ones, and none whose text begins with '-'."""
        while True:
            raw = bytearray(self._random.bytes16())
            raw[6] = (raw[6] & 0x0F) | 0x40
            raw[8] = (raw[8] & 0x3F) | 0x80
            if raw[0] >> 2 != 62:
                return bytes(raw)

    def create(self, topics: Sequence[TopicImage]) -> None:
        """Make planned topics, all or none. Raises Refused when another broker was faster."""
        if not topics:
            return
        put = {keys.TOPICS + topic.name: topic.encoded() for topic in topics}
        revision = self._store.change(expect=dict.fromkeys(put, 0), put=put)
        if revision is None:
            raise Refused(TOPIC_ALREADY_EXISTS, f"Topic '{topics[0].name}' already exists.")
        self._publish(revision, {topic.name: topic for topic in topics}, ())

    def grow(self, topic: TopicImage, count: int, assignments: Sequence[Sequence[int]] | None) -> TopicImage:
        """`topic` with `count` partitions in all; `assignments` are the replicas of each new one, None leaves it to us.

        Only a plan, as `plan` makes one: `change` carries it out. Raises Refused.
        """
        have = len(topic.partitions)
        if count == have:
            raise Refused(INVALID_PARTITIONS, f"Topic already has {have} partition(s).")
        if count < have:
            text = f"The topic {topic.name} currently has {have} partition(s); {count} would not be an increase."
            raise Refused(INVALID_PARTITIONS, text)
        more = count - have
        if more > MOST_PARTITIONS_AT_ONCE:
            raise Refused(POLICY_VIOLATION, "Excessively large number of additional partitions per request.")
        brokers = sorted(self.image.brokers)
        if assignments is None:
            factor = len(topic.partitions[0].replicas)
            placed = placement.place(more, factor, brokers, self._random.below(len(brokers)))
        else:
            if len(assignments) != more:
                text = (
                    f"Attempted to add {more} additional partition(s), but only {len(assignments)} assignment(s) "
                    "were specified."
                )
                raise Refused(INVALID_REPLICA_ASSIGNMENT, text)
            wanted = NewTopic(topic.name, -1, -1, dict(enumerate(assignments)), {})
            placed = self._assigned(wanted, brokers)
        return topic._replace(partitions=(*topic.partitions, *placed))

    def change(self, topic: TopicImage) -> None:
        """Put `topic` in the place of the one with its name. Raises Refused when that is gone."""
        found = self._store.get(keys.TOPICS + topic.name)
        revision = None
        if found is not None:
            key = keys.TOPICS + topic.name
            revision = self._store.change(expect={key: found.revision}, put={key: topic.encoded()})
        if revision is None:
            raise Refused(UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
        self._publish(revision, {topic.name: topic}, ())

    def configure(self, kind: int, name: str, texts: Mapping[str, str]) -> None:
        """Give a broker ("" for all of them), group or client-metrics subscription the configs `texts` and no others."""
        key = keys.config_key(kind, name)
        put = {key: keys.compact(dict(texts))} if texts else {}
        revision = self._store.change(put=put, delete=[] if texts else [key])
        assert revision is not None  # nothing was expected that could differ
        configs = {**self.image.configs, (kind, name): dict(texts)}
        if not texts:
            del configs[kind, name]
        self.image = self.image._replace(revision=revision, configs=configs)
        self._tell(Delta(self.image, (), (), configured=(kind, name)))

    def set_quotas(self, changed: Mapping[Entity, Mapping[str, float]]) -> None:
        """Give each entity these quotas and no others; an empty mapping takes all of them away."""
        kept = {entity: dict(values) for entity, values in changed.items() if values}
        put = {keys.quota_key(entity): keys.compact(values) for entity, values in kept.items()}
        quotas = {entity: values for entity, values in self.image.quotas.items() if entity not in changed}
        gone = [keys.quota_key(entity) for entity in changed if entity not in kept]
        self._set(put, gone, quotas={**quotas, **kept})

    def set_features(self, levels: Mapping[str, int]) -> None:
        """Finalize these levels; a feature that is not named stays at its own."""
        put = {keys.FEATURES + name: str(level).encode() for name, level in levels.items()}
        self._set(put, [], features={**self.image.features, **levels})

    def set_credentials(self, changed: Mapping[tuple[str, int], ScramCredential | None]) -> None:
        """Give users these credentials, by user and mechanism; None takes one away."""
        kept = {user: credential for user, credential in changed.items() if credential is not None}
        put = {keys.scram_key(*user): credential.encoded() for user, credential in kept.items()}
        gone = [keys.scram_key(*user) for user in changed if user not in kept]
        others = {user: credential for user, credential in self.image.credentials.items() if user not in changed}
        self._set(put, gone, credentials={**others, **kept})

    def _set(self, put: Mapping[str, bytes], delete: Sequence[str], **fields: Any) -> None:
        if not put and not delete:
            return
        revision = self._store.change(put=put, delete=delete)
        assert revision is not None  # nothing was expected that could differ
        self.image = self.image._replace(revision=revision, **fields)
        self._tell(Delta(self.image, (), (), settings=True))

    def delete(self, topics: Sequence[TopicImage]) -> None:
        """Delete topics that exist."""
        if not topics:
            return
        revision = self._store.change(delete=[keys.TOPICS + topic.name for topic in topics])
        assert revision is not None  # nothing was expected that could differ
        self._publish(revision, {topic.name: None for topic in topics}, topics)

    def _publish(self, revision: int, changed: Mapping[str, TopicImage | None], deleted: Sequence[TopicImage]) -> None:
        self.image = self.image.with_topics(revision, changed)
        self._tell(Delta(self.image, tuple(topic for topic in changed.values() if topic is not None), tuple(deleted)))

    def _tell(self, delta: Delta) -> None:
        for listener in self._listeners:
            listener(delta)

    def producer_id_block(self) -> int:
        """The first of PRODUCER_ID_BLOCK producer ids that nobody else will ever get."""
        while True:
            found = self._store.get(keys.PRODUCER_IDS)
            first = int(found.value) if found else 0
            expected = {keys.PRODUCER_IDS: found.revision if found else 0}
            after = str(first + PRODUCER_ID_BLOCK).encode()
            if self._store.change(expect=expected, put={keys.PRODUCER_IDS: after}) is not None:
                return first


def found_cluster(store: MetadataStore, cluster_id: str, features: Mapping[str, int] | None = None) -> None:
    """Give a new store its cluster id, and the levels of features if some are chosen; one that has an id stays as it is."""
    put = {keys.FEATURES + name: str(level).encode() for name, level in (features or {}).items()}
    store.change(expect={keys.CLUSTER_ID: 0}, put={keys.CLUSTER_ID: cluster_id.encode(), **put})


def stored_cluster_id(store: MetadataStore) -> str | None:
    """The cluster id of a store that has one."""
    found = store.get(keys.CLUSTER_ID)
    return found.value.decode() if found else None
