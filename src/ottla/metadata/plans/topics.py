"""Plans of new topics and partitions: names, configs and assignments are checked, replicas are placed on brokers.

A plan is only a value; `Metadata` writes it to the store. Error messages are Kafka's, because operators search for them.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.environment import Random
from ottla.metadata.configs import InvalidConfig, validate_topic
from ottla.metadata.image import NO_LEADER, Image, PartitionImage, TopicImage
from ottla.metadata.plans.cordons import cordoned_brokers, is_cordoned
from ottla.metadata.plans.eligibility import min_isr_of
from ottla.metadata.plans.placement import ReplicaPlacer, assigned
from ottla.metadata.refusal import Refused, TooLarge, check_records
from ottla.protocol.errors import (
    INVALID_CONFIG,
    INVALID_PARTITIONS,
    INVALID_REPLICA_ASSIGNMENT,
    INVALID_REPLICATION_FACTOR,
    INVALID_REQUEST,
    INVALID_TOPIC_EXCEPTION,
    POLICY_VIOLATION,
    TOPIC_ALREADY_EXISTS,
)

MOST_PARTITIONS_AT_ONCE: Final = 10_000
"""Records that one request may write in Apache Kafka: one for each topic, config and partition."""
_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")
LONGEST_TOPIC_NAME: Final = 249


class RequestedTopic(NamedTuple):
    """Topic to create; -1 means the broker's default; `assignments` maps partition numbers to node ids."""

    name: str
    partitions: int
    replication_factor: int
    assignments: Mapping[int, Sequence[int]]
    configs: Mapping[str, str | None]


def check_additions(partitions: int) -> None:
    """Raise TooLarge if one request adds more partitions to its topics, all together, than it may."""
    if partitions > MOST_PARTITIONS_AT_ONCE:
        raise TooLarge(POLICY_VIOLATION, "Excessively large number of additional partitions per request.")


class TopicBatch:
    """Topics that one request creates, by name."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicImage] = {}
        self.by_metric_name: dict[str, str] = {}
        self._records = 0

    def add(self, topic: TopicImage) -> None:
        """Add a planned topic. Raises TooLarge if Kafka could not write so many at once."""
        self._records += 1 + len(topic.configs) + len(topic.partitions)
        check_records(self._records)
        self.topics[topic.name] = topic
        self.by_metric_name[_metric_name(topic.name)] = topic.name


class _MetricNames:
    """Topics by their names in metrics, which are kept for the image that was looked at last."""

    def __init__(self) -> None:
        self._topics: Mapping[str, TopicImage] = {}
        self._names: dict[str, str] = {}

    def of(self, topics: Mapping[str, TopicImage]) -> dict[str, str]:
        """Return the topics of an image by their names in metrics."""
        if topics is not self._topics:
            self._topics, self._names = topics, {_metric_name(topic): topic for topic in topics}
        return self._names


def _metric_name(topic: str) -> str:
    """Return the name of a topic in metrics, which two topics must not share."""
    return topic.replace(".", "_")


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


def check_replicas(replicas: Sequence[int], image: Image) -> None:
    """Raise Refused unless a partition may have these manually assigned replicas."""
    if not replicas:
        text = "The manual partition assignment includes an empty replica list."
        raise Refused(INVALID_REPLICA_ASSIGNMENT, text)
    for number, node in enumerate(ordered := sorted(replicas)):
        if number and node == ordered[number - 1]:
            text = f"The manual partition assignment includes the broker {node} more than once."
            raise Refused(INVALID_REPLICA_ASSIGNMENT, text)
        if node not in image.registered:
            text = f"The manual partition assignment includes broker {node}, but no such broker is registered."
            raise Refused(INVALID_REPLICA_ASSIGNMENT, text)
        if is_cordoned(image, image.registered[node]):
            text = f"The manual partition assignment includes broker {node}, but all its log directories are cordoned."
            raise Refused(INVALID_REPLICA_ASSIGNMENT, text)


class TopicPlans:
    """Plans topics on the current image, or on one (`on`).

    image                                 returns the current image
    default_partitions, default_replicas  return the current num.partitions and default.replication.factor
    """

    def __init__(
        self,
        image: Callable[[], Image],
        random: Random,
        default_partitions: Callable[[], int],
        default_replicas: Callable[[], int],
    ) -> None:
        self._image = image
        self._random = random
        self._default_partitions = default_partitions
        self._default_replicas = default_replicas
        self._names = _MetricNames()

    def on(self, image: Image) -> "TopicPlans":
        """Return plans that stay on an image, for a handler that makes pauses."""
        bound = TopicPlans(lambda: image, self._random, self._default_partitions, self._default_replicas)
        bound._names = self._names
        return bound

    def check_total(self, topics: Iterable[RequestedTopic]) -> None:
        """Raise TooLarge if one request creates more partitions than it may, before any of them is planned."""
        total = 0
        for topic in topics:
            if topic.assignments:
                total += len(topic.assignments)
            elif topic.partitions == -1:
                total += self._default_partitions()
            else:
                total += max(topic.partitions, 0)
        if total > MOST_PARTITIONS_AT_ONCE:
            raise TooLarge(POLICY_VIOLATION, "Excessively large number of partitions per request.")

    def plan(self, topic: RequestedTopic, batch: TopicBatch) -> TopicImage:
        """Return the topic that CreateTopics would create. Raises Refused.

        batch  topics that the same request creates; the caller adds this one
        """
        check_name(topic.name)
        if topic.name in self._image().topics or topic.name in batch.topics:
            raise Refused(TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
        self._check_collision(topic.name, batch, self._image().topics)
        configs = self._checked_configs(topic.configs)
        min_isr = min_isr_of(self._image(), configs)
        directories = _only_directories(self._image())
        partitions = _begun(self._placed(topic), min_isr, directories)
        used = {node for partition in partitions for node in partition.replicas}
        directories = {node: directory for node, directory in directories.items() if node in used}
        return TopicImage(topic.name, self._new_uuid(), partitions, configs, min_isr=min_isr, directories=directories)

    def are_distinct(self, names: Iterable[str], image: Image) -> bool:
        """Return whether these names collide with none in an image; for names that were planned on an older one."""
        try:
            for name in names:
                self._check_collision(name, TopicBatch(), image.topics)
        except Refused:
            return False
        return True

    def _check_collision(self, name: str, batch: TopicBatch, topics: Mapping[str, TopicImage]) -> None:
        """Raise Refused for a name that differs from another in '.' and '_' only: they would share their metrics' names."""
        if "." not in name and "_" not in name:
            return
        for names in (self._names.of(topics), batch.by_metric_name):
            other = names.get(_metric_name(name))
            if other is not None:
                raise Refused(INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")

    def _placed(self, topic: RequestedTopic) -> list[PartitionImage]:
        if topic.assignments:
            return self._assigned(topic)
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
        try:
            return self._striped(factor, count)
        except Refused as refused:
            text = f"Unable to replicate the partition {factor} time(s): {refused.message}"
            raise Refused(refused.code, text) from None

    def _striped(self, factor: int, count: int) -> list[PartitionImage]:
        """Return new partitions, spread over racks and brokers. Raises Refused if too few brokers may have them."""
        image = self._image()
        cordoned = cordoned_brokers(image)
        if not image.active - cordoned:
            text = "All brokers are currently fenced, or have all their log directories cordoned."
            raise Refused(INVALID_REPLICATION_FACTOR, text)
        usable = len(image.registered) - len(cordoned)
        if factor > usable:
            raise Refused(
                INVALID_REPLICATION_FACTOR,
                f"The target replication factor of {factor} cannot be reached because only {usable} broker(s) are registered "
                "or some brokers have all their log directories cordoned.",
            )
        if len(image.registered) == 1:
            return [assigned(list(image.registered), image.active)] * count
        placer = ReplicaPlacer(image, self._random, cordoned)
        return [placer.place(factor) for _ in range(count)]

    def _assigned(self, topic: RequestedTopic, first: int = 0, factor: int | None = None) -> list[PartitionImage]:
        """Return partitions, numbered from `first`, with manually assigned replicas: `factor` each. Raises Refused."""
        image = self._image()
        if topic.replication_factor != -1:
            text = "A manual partition assignment was specified, but replication factor was not set to -1."
            raise Refused(INVALID_REQUEST, text)
        if topic.partitions != -1:
            text = "A manual partition assignment was specified, but numPartitions was not set to -1."
            raise Refused(INVALID_REQUEST, text)
        placed: dict[int, PartitionImage] = {}
        for number, replicas in topic.assignments.items():
            check_replicas(replicas, image)
            factor = len(replicas) if factor is None else factor
            if len(replicas) != factor:
                text = (
                    f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not "
                    f"consistent with previous partitions, which have {factor} replica(s)."
                )
                raise Refused(INVALID_REPLICA_ASSIGNMENT, text)
            partition = assigned(replicas, image.active)
            if partition.leader == NO_LEADER:
                text = (
                    f"All brokers specified in the manual partition assignment for partition {first + number} are fenced or "
                    "in controlled shutdown."
                )
                raise Refused(INVALID_REPLICA_ASSIGNMENT, text)
            placed[number] = partition
        if set(placed) != set(range(len(placed))):
            raise Refused(INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence")
        return [placed[number] for number in range(len(placed))]

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

    def grow(self, topic: TopicImage, count: int, assignments: Sequence[Sequence[int]] | None) -> TopicImage:
        """Return `topic` with `count` partitions in all; `assignments` are the replicas of each new one, None to place them.

        This is only a plan, which `change` carries out. Raises Refused.
        """
        image, have = self._image(), len(topic.partitions)
        if count == have:
            raise Refused(INVALID_PARTITIONS, f"Topic already has {have} partition(s).")
        if count < have:
            text = f"The topic {topic.name} currently has {have} partition(s); {count} would not be an increase."
            raise Refused(INVALID_PARTITIONS, text)
        more = count - have
        check_additions(more)
        if assignments is None:
            placed = self._striped(len(topic.partitions[0].replicas), more)
        else:
            if len(assignments) != more:
                text = (
                    f"Attempted to add {more} additional partition(s), but only {len(assignments)} assignment(s) "
                    "were specified."
                )
                raise Refused(INVALID_REPLICA_ASSIGNMENT, text)
            requested = RequestedTopic(topic.name, -1, -1, dict(enumerate(assignments)), {})
            placed = self._assigned(requested, have, len(topic.partitions[0].replicas))
        added = _begun(placed, min_isr_of(image, topic.configs), _only_directories(image))
        return topic._replace(partitions=(*topic.partitions, *added))


def _only_directories(image: Image) -> dict[int, bytes]:
    """Return the directory ids of the brokers that have one log directory, by node id. Others assign theirs when they have
    opened the log.
    """
    return {
        node: bytes.fromhex(broker.directories[0])
        for node, broker in image.registered.items()
        if len(broker.directories) == 1
    }


def _begun(
    placed: Sequence[PartitionImage], min_isr: int, directories: Mapping[int, bytes]
) -> tuple[PartitionImage, ...]:
    """Return new partitions with the min.insync.replicas in force and their log directories; those with the same replicas
    share one object.
    """
    distinct = {id(partition): partition for partition in placed}
    shared = {
        key: partition._replace(
            min_isr=min_isr,
            directories=PartitionImage.new(partition.replicas, min_isr, directories).directories,
        )
        for key, partition in distinct.items()
    }
    return tuple(shared[id(partition)] for partition in placed)
