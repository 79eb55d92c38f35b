"""Controller of topics and other metadata: plans each change, writes it to the store, and publishes the delta.

A change goes through four steps, each of which may have to wait:

    turn      wait until all earlier changes have taken effect, so that the plan is based on the newest image
    store     write the change, if the revisions that the plan is based on are still current, and flush it to disk
    image     replace the old image by the new one
    delta     call the listeners, in pieces if they have much to do, then answer the change

Error messages are Kafka's, because operators search for them.
"""

import json
import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from ottla.environment import Random
from ottla.metadata import keys, placement
from ottla.metadata.configs import InvalidConfig, validate_topic
from ottla.metadata.image import BrokerImage, Delta, Image, PartitionImage, TopicImage
from ottla.metadata.refusal import CHANGED, ChangeResult, Refused
from ottla.metadata.store import ChangeOutcome, Entry, MetadataStore
from ottla.metadata.turns import Turns
from ottla.protocol.answer import Answer, Pending, Steps, after
from ottla.protocol.errors import (
    INVALID_CONFIG,
    INVALID_PARTITIONS,
    INVALID_REPLICA_ASSIGNMENT,
    INVALID_REPLICATION_FACTOR,
    INVALID_REQUEST,
    INVALID_TOPIC_EXCEPTION,
    KAFKA_STORAGE_ERROR,
    POLICY_VIOLATION,
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_TOPIC_OR_PARTITION,
    error,
)
from ottla.security.quotas import Entity
from ottla.security.scram import ScramCredential

_logger = logging.getLogger("ottla.metadata")
PRODUCER_ID_BLOCK: Final = 1000
MOST_PARTITIONS_AT_ONCE: Final = 10_000
_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")
LONGEST_TOPIC_NAME: Final = 249
R = TypeVar("R")
Listener = Callable[[Delta], Steps | None]


class RequestedTopic(NamedTuple):
    """Topic to create; -1 means the broker's default; `assignments` maps partition numbers to node ids."""

    name: str
    partitions: int
    replication_factor: int
    assignments: Mapping[int, Sequence[int]]
    configs: Mapping[str, str | None]


def check_name(name: str) -> None:
    """Raise Refused unless `name` is valid for a topic."""
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
    """Raise Refused unless a partition may have these manually assigned replicas."""
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


def _run_at_once(steps: Steps, done: Callable[[], None]) -> None:
    for _ in steps:
        pass
    done()


class Controller:
    """Plans and applies changes of the metadata.

    default_partitions, default_replicas  return the current num.partitions and default.replication.factor
    run_steps                             runs work in pieces, then calls back; by default all pieces at once
    """

    def __init__(
        self,
        store: MetadataStore,
        random: Random,
        broker: BrokerImage,
        default_partitions: Callable[[], int],
        default_replicas: Callable[[], int],
        run_steps: Callable[[Steps, Callable[[], None]], None] = _run_at_once,
    ) -> None:
        self._store = store
        self._random = random
        self._default_partitions = default_partitions
        self._default_replicas = default_replicas
        self._run_steps = run_steps
        self._listeners: list[Listener] = []
        self._turns = Turns()
        entries, revision = store.load()
        self._revisions = {entry.key: entry.revision for entry in entries}
        self._next_producer_id = 0
        self.image = self._load_image(entries, revision, broker)

    def _load_image(self, entries: Sequence[Entry], revision: int, broker: BrokerImage) -> Image:
        def under(prefix: str) -> dict[str, bytes]:
            return {entry.key: entry.value for entry in entries if entry.key.startswith(prefix)}

        cluster_id = under(keys.CLUSTER_ID).get(keys.CLUSTER_ID)
        if cluster_id is None:
            raise LookupError("the metadata store has no cluster id")
        self._next_producer_id = int(under(keys.PRODUCER_IDS).get(keys.PRODUCER_IDS, b"0"))
        named = ((key[len(keys.TOPICS) :], value) for key, value in under(keys.TOPICS).items())
        topics = {name: TopicImage.decoded(name, value) for name, value in named}
        return Image(
            revision=revision,
            cluster_id=cluster_id.decode(),
            controller_id=broker.node_id,
            brokers={broker.node_id: broker},
            topics=topics,
            topics_by_id={topic.id: topic for topic in topics.values()},
            configs={keys.config_of(key): json.loads(value) for key, value in under(keys.CONFIGS).items()},
            features={key[len(keys.FEATURES) :]: int(value) for key, value in under(keys.FEATURES).items()},
            quotas={keys.quota_of(key): keys.quota_values(value) for key, value in under(keys.QUOTAS).items()},
            credentials={
                keys.scram_of(key): ScramCredential.decoded(value) for key, value in under(keys.SCRAM).items()
            },
        )

    def subscribe(self, listener: Listener) -> None:
        """Call `listener` with every later delta. The steps that it returns are run in pieces; a change is answered when all
        listeners have finished.
        """
        self._listeners.append(listener)

    def in_turn(self, change: Callable[[], Answer[R]]) -> Answer[R]:
        """Run `change` after all earlier changes have taken effect, so that its plan is based on their image."""
        return self._turns.take(change)

    def decide(self, change: Callable[[], Answer[ChangeResult]]) -> Answer[ChangeResult]:
        """Run `change` like `in_turn`; if it raises `Refused`, that error is the result."""

        def decided() -> Answer[ChangeResult]:
            try:
                return change()
            except Refused as refused:
                return ChangeResult(refused.code, refused.message)

        return self._turns.take(decided)

    def plan(self, topic: RequestedTopic, taken: Mapping[str, TopicImage]) -> TopicImage:
        """Return the topic that CreateTopics would create. Raises Refused.

        taken  topics that the same request creates, by name
        """
        check_name(topic.name)
        for names in (self.image.topics, taken):
            if topic.name in names:
                raise Refused(TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
            self._check_collision(topic.name, names)
        configs = self._checked_configs(topic.configs)
        partitions = self._placed(topic)
        return TopicImage(topic.name, self._new_uuid(), tuple(partitions), configs)

    @staticmethod
    def _check_collision(name: str, names: Mapping[str, TopicImage]) -> None:
        """Raise Refused for a name that differs from another in '.' and '_' only: they would share their metrics' names."""
        if "." in name or "_" in name:
            plain = name.replace(".", "_")
            for other in names:
                if other.replace(".", "_") == plain:
                    raise Refused(INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")

    def _placed(self, topic: RequestedTopic) -> list[PartitionImage]:
        brokers = sorted(self.image.brokers)
        if topic.assignments:
            return self._assigned(topic, brokers)
        factor, count = topic.replication_factor, topic.partitions
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
    def _assigned(topic: RequestedTopic, brokers: Sequence[int]) -> list[PartitionImage]:
        if topic.replication_factor != -1:
            text = "A manual partition assignment was specified, but replication factor was not set to -1."
            raise Refused(INVALID_REQUEST, text)
        if topic.partitions != -1:
            text = "A manual partition assignment was specified, but numPartitions was not set to -1."
            raise Refused(INVALID_REQUEST, text)
        placed: list[PartitionImage] = []
        for number in range(len(topic.assignments)):
            replicas = topic.assignments.get(number)
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
    def _checked_configs(configs: Mapping[str, str | None]) -> dict[str, str]:
        """Return the overrides of a topic, checked. Raises Refused."""
        nulls = [name for name, text in configs.items() if text is None]
        if nulls:
            raise Refused(INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(nulls)}")
        kept = {name: text for name, text in configs.items() if text is not None}
        try:
            validate_topic(kept)
        except InvalidConfig as cause:
            raise Refused(INVALID_CONFIG, str(cause)) from None
        return kept

    def _new_uuid(self) -> bytes:
        """Return a random topic id; never one that Kafka reserves, or whose text begins with '-'."""
        while True:
            raw = bytearray(self._random.bytes16())
            raw[6] = (raw[6] & 0x0F) | 0x40
            raw[8] = (raw[8] & 0x3F) | 0x80
            if raw[0] >> 2 != 62:
                return bytes(raw)

    def create(self, topics: Sequence[TopicImage]) -> Answer[ChangeResult]:
        """Create planned topics, all or none; TOPIC_ALREADY_EXISTS if another broker has created one meanwhile."""
        put = {keys.TOPICS + topic.name: topic.encoded() for topic in topics}
        changed = {topic.name: topic for topic in topics}

        def taken(conflicts: Mapping[str, Entry | None]) -> ChangeResult:
            name = next(iter(conflicts))[len(keys.TOPICS) :]
            return ChangeResult(TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")

        return self._commit(put, [], lambda revision: self._with_topics(revision, changed, ()), taken)

    def grow(self, topic: TopicImage, count: int, assignments: Sequence[Sequence[int]] | None) -> TopicImage:
        """Return `topic` with `count` partitions in all; `assignments` are the replicas of each new one, None to place them.

        This is only a plan, which `change` carries out. Raises Refused.
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
            assigned = RequestedTopic(topic.name, -1, -1, dict(enumerate(assignments)), {})
            placed = self._assigned(assigned, brokers)
        return topic._replace(partitions=(*topic.partitions, *placed))

    def change(self, *topics: TopicImage) -> Answer[ChangeResult]:
        """Replace the stored topics by `topics` of the same names; UNKNOWN_TOPIC_OR_PARTITION if one was deleted meanwhile."""
        for topic in topics:
            if topic.name not in self.image.topics:
                return _unknown_topic()
        put = {keys.TOPICS + topic.name: topic.encoded() for topic in topics}
        changed = {topic.name: topic for topic in topics}
        return self._commit(
            put,
            [],
            lambda revision: self._with_topics(revision, changed, ()),
            lambda conflicts: _unknown_topic(),  # noqa: ARG005
        )

    def assign_directory(self, topic_id: bytes, index: int, node_id: int, directory_id: bytes) -> Answer[ChangeResult]:
        """Record which log directory of a broker a partition's replica is in (KIP-858).

        The answer is UNKNOWN_TOPIC_OR_PARTITION if the topic was deleted meanwhile.
        """
        topic = self.image.topics_by_id.get(topic_id)
        if topic is None:
            return _unknown_topic()
        partitions = list(topic.partitions)
        partitions[index] = partitions[index].assigned(node_id, directory_id)
        return self.change(topic._replace(partitions=tuple(partitions)))

    def configure(self, kind: int, name: str, texts: Mapping[str, str]) -> Answer[ChangeResult]:
        """Replace the configs of a broker ("" for all of them), group or client-metrics subscription by `texts`."""
        key = keys.config_key(kind, name)
        put = {key: keys.compact(dict(texts))} if texts else {}

        def configured(revision: int) -> Delta:
            configs = {**self.image.configs, (kind, name): dict(texts)}
            if not texts:
                del configs[kind, name]
            image = self.image._replace(revision=revision, configs=configs)
            return Delta(image, (), (), configured=(kind, name))

        return self._commit(put, [] if texts else [key], configured)

    def set_quotas(self, changed: Mapping[Entity, Mapping[str, float]]) -> Answer[ChangeResult]:
        """Replace the quotas of each entity; an empty mapping removes all of them."""
        kept = {entity: dict(values) for entity, values in changed.items() if values}
        put = {keys.quota_key(entity): keys.compact(values) for entity, values in kept.items()}
        quotas = {entity: values for entity, values in self.image.quotas.items() if entity not in changed}
        gone = [keys.quota_key(entity) for entity in changed if entity not in kept]
        return self._set(put, gone, quotas={**quotas, **kept})

    def set_features(self, levels: Mapping[str, int]) -> Answer[ChangeResult]:
        """Finalize feature levels; features that are not named keep their levels."""
        put = {keys.FEATURES + name: str(level).encode() for name, level in levels.items()}
        return self._set(put, [], features={**self.image.features, **levels})

    def set_credentials(self, changed: Mapping[tuple[str, int], ScramCredential | None]) -> Answer[ChangeResult]:
        """Set credentials by user and mechanism; None removes one."""
        kept = {user: credential for user, credential in changed.items() if credential is not None}
        put = {keys.scram_key(*user): credential.encoded() for user, credential in kept.items()}
        gone = [keys.scram_key(*user) for user in changed if user not in kept]
        others = {user: credential for user, credential in self.image.credentials.items() if user not in changed}
        return self._set(put, gone, credentials={**others, **kept})

    def _set(self, put: Mapping[str, bytes], delete: Sequence[str], **fields: Any) -> Answer[ChangeResult]:
        def changed(revision: int) -> Delta:
            return Delta(self.image._replace(revision=revision, **fields), (), (), settings=True)

        return self._commit(put, delete, changed)

    def delete(self, topics: Sequence[TopicImage]) -> Answer[ChangeResult]:
        """Delete topics that exist."""
        gone: dict[str, TopicImage | None] = {topic.name: None for topic in topics}
        return self._commit(
            {}, [keys.TOPICS + name for name in gone], lambda revision: self._with_topics(revision, gone, topics)
        )

    def _with_topics(
        self, revision: int, changed: Mapping[str, TopicImage | None], deleted: Sequence[TopicImage]
    ) -> Delta:
        image = self.image.with_topics(revision, changed)
        return Delta(image, tuple(topic for topic in changed.values() if topic is not None), tuple(deleted))

    def _commit(
        self,
        put: Mapping[str, bytes],
        delete: Sequence[str],
        delta: Callable[[int], Delta],
        refuse: Callable[[Mapping[str, Entry | None]], ChangeResult] = lambda conflicts: _conflict(conflicts),
    ) -> Answer[ChangeResult]:
        """Write a plan based on the current image to the store, then publish `delta(revision)`.

        refuse  returns the result if another writer has changed one of the keys since then
        """
        if not put and not delete:
            return CHANGED
        # These are the revisions that the plan is based on; they may have changed when the write is done.
        expect = {key: self._revisions.get(key, 0) for key in (*put, *delete)}

        def written(outcome: ChangeOutcome) -> Answer[ChangeResult]:
            if outcome.error is not None:
                _logger.error("%s; metadata cannot be changed until this is repaired", outcome.error)
                return ChangeResult(KAFKA_STORAGE_ERROR, outcome.error)
            if outcome.conflicts:
                return refuse(outcome.conflicts)
            # Revisions before the image: a listener may begin another change as soon as it is called.
            self._revisions.update(dict.fromkeys(put, outcome.revision))
            for key in delete:
                self._revisions.pop(key, None)
            return self._publish(delta(outcome.revision))

        return after(self._store.change(expect=expect, put=put, delete=delete), written)

    def _publish(self, delta: Delta) -> Answer[ChangeResult]:
        """Publish the new image; the change is answered after all listeners have acted on it."""
        # The image is replaced before any listener runs, and at once: a reader between two steps of the listeners sees the
        # whole change. The answer comes after the listeners, so that a client can use a topic as soon as it is created.
        self.image = delta.image
        answer = Pending[ChangeResult]()
        self._run_steps(self._act_on(delta), lambda: answer.complete(CHANGED))
        return CHANGED if answer.done else answer

    def _act_on(self, delta: Delta) -> Steps:
        for listener in tuple(self._listeners):  # in the order of subscription, one after the other
            steps = listener(delta)
            if steps is not None:
                yield from steps

    def producer_id_block(self) -> Answer[int]:
        """Reserve PRODUCER_ID_BLOCK producer ids and answer the first one; -1 when the store cannot be written."""
        # This does not wait for its turn. Of two concurrent calls the second fails the comparison of revisions, and reserves
        # the next block: no process assigns an id twice.
        first = self._next_producer_id
        key = keys.PRODUCER_IDS

        def written(outcome: ChangeOutcome) -> Answer[int]:
            if outcome.error is not None:
                _logger.error("%s; no producer ids can be given out", outcome.error)
                return -1
            if outcome.conflicts:
                entry = outcome.conflicts[key]
                self._next_producer_id = 0 if entry is None else int(entry.value)
                self._revisions[key] = 0 if entry is None else entry.revision
                return self.producer_id_block()
            self._next_producer_id = first + PRODUCER_ID_BLOCK
            self._revisions[key] = outcome.revision
            return first

        expect = {key: self._revisions.get(key, 0)}
        put = {key: str(first + PRODUCER_ID_BLOCK).encode()}
        return after(self._store.change(expect=expect, put=put), written)


def _unknown_topic() -> ChangeResult:
    return ChangeResult(UNKNOWN_TOPIC_OR_PARTITION, error(UNKNOWN_TOPIC_OR_PARTITION).message)


def _conflict(conflicts: Mapping[str, Entry | None]) -> ChangeResult:
    return ChangeResult(KAFKA_STORAGE_ERROR, f"{next(iter(conflicts))} was changed by another process")
