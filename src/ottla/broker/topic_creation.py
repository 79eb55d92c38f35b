"""Creation of topics on behalf of a request, or by the broker itself: on first use, and for its internal topics."""

import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final

from ottla.broker.config import BrokerConfig
from ottla.broker.coordination.internal_topics import internal_topic
from ottla.broker.throttling import Mutations
from ottla.metadata.image import INTERNAL_TOPICS, TopicImage
from ottla.metadata.metadata import Metadata
from ottla.metadata.refusal import ChangeResult, Refused
from ottla.metadata.topic_plans import RequestedTopic, TooLarge, TopicBatch
from ottla.protocol.errors import KAFKA_STORAGE_ERROR, NONE, TOPIC_ALREADY_EXISTS, error
from ottla.replication.replicas import Replicas
from ottla.tasks.answers import after
from ottla.tasks.deferred import Answer

_logger = logging.getLogger("ottla.broker")


class TopicCreation:
    """Creates topics through the metadata; a topic whose partitions cannot be opened on this broker is deleted again.

    config  returns the broker's configs in force
    """

    MOST_AUTOMATIC: Final = 100
    """Topics that are created at a time because of Metadata requests; clients repeat their request for others."""

    def __init__(self, metadata: Metadata, replicas: Replicas, config: Callable[[], BrokerConfig]) -> None:
        self._metadata = metadata
        self._replicas = replicas
        self._config = config
        self._automatic: set[str] = set()  # names of topics that are being created because of Metadata requests

    def create(self, topic: RequestedTopic, requester: str = "the broker") -> Answer[ChangeResult]:
        """Create a topic without a CreateTopics request: usually on first use."""
        return after(self.create_all([topic], requester), lambda changes: changes[topic.name])

    def create_all(
        self, topics: Sequence[RequestedTopic], requester: str, mutations: Mutations | None = None
    ) -> Answer[dict[str, ChangeResult]]:
        """Create topics without a CreateTopics request, within its limits; the answer has the result of each by name.

        mutations  counts the partitions against the quota of the requester
        """
        plans = self._metadata.plans

        def create() -> Answer[dict[str, ChangeResult]]:
            refused: dict[str, ChangeResult] = {}
            batch = TopicBatch()
            try:
                plans.check_total(topics)
                for topic in topics:
                    try:
                        planned = plans.plan(topic, batch)
                        if mutations is not None:
                            mutations.add(len(planned.partitions))
                        batch.add(planned)
                    except TooLarge:
                        raise
                    except Refused as refusal:
                        refused[topic.name] = ChangeResult(refusal.code, refusal.message)
            except TooLarge as refusal:
                return {topic.name: ChangeResult(refusal.code, refusal.message) for topic in topics}
            if not batch.topics:
                return refused
            return after(
                self.create_planned(list(batch.topics.values()), requester), lambda changes: {**changes, **refused}
            )

        return self._metadata.in_turn(create)

    def create_automatic(self, names: Iterable[str], requester: str, mutations: Mutations) -> Answer[object]:
        """Create topics that a Metadata request names, some of them: what is missing then is created for a later request."""
        room = self.MOST_AUTOMATIC - len(self._automatic)
        chosen = list(islice((name for name in names if name not in self._automatic), room))
        if not chosen:
            return None
        self._automatic.update(chosen)

        def created(changes: dict[str, ChangeResult]) -> None:
            self._automatic.difference_update(chosen)
            for name, change in changes.items():
                if change.error_code not in (NONE, TOPIC_ALREADY_EXISTS):
                    reason = change.error_message or error(change.error_code).message
                    _logger.info("cannot auto-create topic %s: %s", name, reason)

        return after(self.create_all([self._automatic_topic(name) for name in chosen], requester, mutations), created)

    def _automatic_topic(self, name: str) -> RequestedTopic:
        return self._internal(name) if name in INTERNAL_TOPICS else RequestedTopic(name, -1, -1, {}, {})

    def create_planned(self, topics: Sequence[TopicImage], requester: str) -> Answer[dict[str, ChangeResult]]:
        """Create planned topics in a turn of the metadata, and answer the result of each by name.

        A topic with a partition that cannot be opened on this broker is deleted again, rather than reported as created.
        (Apache Kafka answers success, and the partition is offline.)
        """
        if not self._replicas.is_working:
            return {topic.name: _not_opened(topic) for topic in topics}

        def created(change: ChangeResult) -> Answer[dict[str, ChangeResult]]:
            results = {topic.name: change for topic in topics}
            failed = [topic for topic in topics if change.error_code == NONE and self._replicas.has_offline(topic)]
            for topic in topics:
                if change.error_code == NONE and topic not in failed:
                    count = len(topic.partitions)
                    _logger.info("topic %s created with %d partitions by %s", topic.name, count, requester)
            if not failed:
                return results
            results.update({topic.name: _not_opened(topic) for topic in failed})
            return after(self._metadata.delete(failed), lambda deletion: results)  # noqa: ARG005

        return after(self._metadata.create(topics), created)

    def create_internal(self, name: str) -> Answer[ChangeResult]:
        """Create an internal topic. As in Kafka this fails while fewer brokers are registered than it has replicas; a single
        broker keeps one replica.
        """
        return self.create(self._internal(name))

    def _internal(self, name: str) -> RequestedTopic:
        partitions, factor, configs = internal_topic(name, self._config())
        return RequestedTopic(name, partitions, 1 if self._metadata.is_single else factor, {}, configs)

    def provide_internal(self, name: str) -> Answer[bool]:
        """Create a coordinator's internal topic unless it exists; the answer is False if the creation fails."""
        metadata = self._metadata
        if name in metadata.image.topics:
            return True

        def exists(change: ChangeResult) -> bool:
            if name in metadata.image.topics:
                return True
            _logger.warning("cannot create %s: %s", name, change.error_message)
            return False

        return after(self.create_internal(name), exists)


def _not_opened(topic: TopicImage) -> ChangeResult:
    text = f"Topic '{topic.name}' cannot be created: the broker cannot open its partitions, its log says why."
    return ChangeResult(KAFKA_STORAGE_ERROR, text)
