"""Creation of topics on behalf of a request, or by the broker itself: on first use, and for its internal topics."""

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from ottla.broker.config import BrokerConfig
from ottla.broker.coordination.internal_topics import internal_topic
from ottla.broker.requests.throttling import Mutations
from ottla.metadata import changes
from ottla.metadata.configs import InvalidConfig, schema_rules
from ottla.metadata.image import INTERNAL_TOPICS, TopicImage
from ottla.metadata.metadata import Conflict, Metadata, outdated
from ottla.metadata.plans.topics import RequestedTopic, TopicBatch
from ottla.metadata.refusal import CHANGED, ChangeResult, Refused, TooLarge
from ottla.protocol.errors import INVALID_CONFIG, KAFKA_STORAGE_ERROR, NONE, TOPIC_ALREADY_EXISTS, error
from ottla.replication.replicas import Replicas
from ottla.tasks.deferred import Answer
from ottla.tasks.scheduler import Scheduler

_logger = logging.getLogger("ottla.broker")


class TopicCreation:
    """Creates topics through the metadata; a topic whose partitions cannot be opened on this broker is deleted again.

    config  returns the broker's configs in force
    """

    MOST_AUTOMATIC: Final = 100
    """Topics that are created at a time because of Metadata requests; clients repeat their request for others."""

    def __init__(
        self, metadata: Metadata, replicas: Replicas, config: Callable[[], BrokerConfig], tasks: Scheduler
    ) -> None:
        self._metadata = metadata
        self._replicas = replicas
        self._config = config
        self._tasks = tasks
        self._automatic: set[str] = set()  # names of topics that are being created because of Metadata requests

    async def create(self, topic: RequestedTopic, requester: str = "the broker") -> ChangeResult:
        """Create a topic without a CreateTopics request: usually on first use."""
        return (await self.create_all([topic], requester))[topic.name]

    async def create_all(
        self, topics: Sequence[RequestedTopic], requester: str, mutations: Mutations | None = None
    ) -> dict[str, ChangeResult]:
        """Create topics without a CreateTopics request, within its limits; return the result of each by name.

        mutations  counts the partitions against the quota of the requester
        """
        try:
            created = await self.create_requested(topics, requester, mutations)
        except TooLarge as refused:
            return {topic.name: ChangeResult(refused.code, refused.message) for topic in topics}
        return created.results

    async def create_requested(
        self,
        topics: Sequence[RequestedTopic],
        requester: str,
        mutations: Mutations | None = None,
        *,
        validate_only: bool = False,
    ) -> "Creation":
        """Create topics; those that were created stay created when the rest is planned again, after a conflict.

        A topic with a partition that cannot be opened on this broker is deleted again, rather than reported as created.
        (Apache Kafka answers success, and the partition is offline.)

        Raises TooLarge before anything is created.
        """
        metadata = self._metadata
        metadata.plans.check_total(topics)
        creation = Creation({}, {})
        charged: set[str] = set()
        for image in metadata.attempts():
            plans, batch = metadata.plans.on(image), TopicBatch()
            for requested in topics:
                if requested.name in creation.results:
                    continue
                await self._tasks.pace()
                try:
                    topic = plans.plan(requested, batch)
                    self._check_schemas(topic)
                    if mutations is not None and topic.name not in charged:
                        mutations.add(len(topic.partitions))
                        charged.add(topic.name)
                    batch.add(topic)
                except TooLarge:
                    raise
                except Refused as refused:
                    creation.results[requested.name] = ChangeResult(refused.code, refused.message)
            if not validate_only and not self._replicas.is_working:
                creation.add(batch.topics.values(), _not_opened)
                break
            if validate_only:
                creation.add(batch.topics.values(), _success)
                break
            try:
                for chunk, change in changes.create_topics(image, list(batch.topics.values()), metadata.largest_change):
                    await metadata.commit(change, partial(plans.are_distinct, [topic.name for topic in chunk]))
                    creation.add(chunk, _success)
            except Conflict:
                continue
            except Refused as refused:
                creation.refuse(topics, refused)
            break
        else:
            creation.refuse(topics, outdated())
        if not validate_only:
            await self._report(creation, requester)
        return creation

    def _check_schemas(self, topic: TopicImage) -> None:
        """Raise Refused for a topic whose records cannot be validated."""
        try:
            schema_rules.check({}, topic.configs, self._config())
        except InvalidConfig as cause:
            raise Refused(INVALID_CONFIG, str(cause)) from None

    async def _report(self, creation: "Creation", requester: str) -> None:
        """Log what was created, and delete what cannot be opened here."""
        created = [topic for name, topic in creation.topics.items() if creation.results[name] == CHANGED]
        failed = [topic for topic in created if self._replicas.has_offline(topic)]
        for topic in created:
            if topic not in failed:
                count = len(topic.partitions)
                _logger.info("topic %s created with %d partitions by %s", topic.name, count, requester)
        if failed:
            creation.add(failed, _not_opened)
            await self._metadata.apply_all(lambda image, largest: changes.delete_left(image, failed, largest))

    def create_automatic(self, names: Iterable[str], requester: str, mutations: Mutations) -> Answer[object]:
        """Create topics that a Metadata request names, some of them: what is missing then is created for a later request."""
        room = self.MOST_AUTOMATIC - len(self._automatic)
        chosen = list(islice((name for name in names if name not in self._automatic), room))
        if not chosen:
            return None
        self._automatic.update(chosen)
        return self._tasks.run(self._create_automatic(chosen, requester, mutations), "creation of topics")

    async def _create_automatic(self, names: Sequence[str], requester: str, mutations: Mutations) -> None:
        try:
            created = await self.create_all([self._automatic_topic(name) for name in names], requester, mutations)
        finally:
            self._automatic.difference_update(names)
        for name, change in created.items():
            if change.error_code not in (NONE, TOPIC_ALREADY_EXISTS):
                reason = change.error_message or error(change.error_code).message
                _logger.info("cannot auto-create topic %s: %s", name, reason)

    def _automatic_topic(self, name: str) -> RequestedTopic:
        return self._internal(name) if name in INTERNAL_TOPICS else RequestedTopic(name, -1, -1, {}, {})

    async def create_internal(self, name: str) -> ChangeResult:
        """Create an internal topic. As in Kafka this fails while fewer brokers are registered than it has replicas; a single
        broker keeps one replica.
        """
        return await self.create(self._internal(name))

    def _internal(self, name: str) -> RequestedTopic:
        partitions, factor, configs = internal_topic(name, self._config())
        return RequestedTopic(name, partitions, 1 if self._metadata.is_single else factor, {}, configs)

    def provide_internal(self, name: str) -> Answer[bool]:
        """Create a coordinator's internal topic unless it exists; the answer is False if the creation fails."""
        if name in self._metadata.image.topics:
            return True
        return self._tasks.run(self._provide(name), f"creation of {name}")

    async def _provide(self, name: str) -> bool:
        change = await self.create_internal(name)
        if name in self._metadata.image.topics:
            return True
        _logger.warning("cannot create %s: %s", name, change.error_message)
        return False


class Creation(NamedTuple):
    """Outcome of the creation of topics, by name.

    results  of all requested topics
    topics   those that were planned and not refused
    """

    results: dict[str, ChangeResult]
    topics: dict[str, TopicImage]

    def add(self, topics: Iterable[TopicImage], result: Callable[[TopicImage], ChangeResult]) -> None:
        """Set the results of planned topics."""
        for topic in topics:
            self.topics[topic.name] = topic
            self.results[topic.name] = result(topic)

    def refuse(self, topics: Iterable[RequestedTopic], refused: Refused) -> None:
        """Set an error as the result of topics that have none."""
        for topic in topics:
            self.results.setdefault(topic.name, ChangeResult(refused.code, refused.message))


def _success(topic: TopicImage) -> ChangeResult:
    del topic
    return CHANGED


def _not_opened(topic: TopicImage) -> ChangeResult:
    text = f"Topic '{topic.name}' cannot be created: the broker cannot open its partitions, its log says why."
    return ChangeResult(KAFKA_STORAGE_ERROR, text)
