"""Creation of topics on behalf of a request, or by the broker itself: on first use, and for its internal topics."""

import logging
from collections.abc import Callable, Sequence

from ottla.broker.config import BrokerConfig
from ottla.broker.coordination.internal_topics import internal_topic
from ottla.metadata.image import TopicImage
from ottla.metadata.metadata import Metadata
from ottla.metadata.refusal import ChangeResult
from ottla.metadata.topic_plans import RequestedTopic
from ottla.protocol.answer import Answer, after
from ottla.protocol.errors import KAFKA_STORAGE_ERROR, NONE
from ottla.replication.replicas import Replicas

_logger = logging.getLogger("ottla.broker")


class TopicCreation:
    """Creates topics through the metadata; a topic whose partitions cannot be opened on this broker is deleted again.

    config  returns the broker's configs in force
    """

    def __init__(self, metadata: Metadata, replicas: Replicas, config: Callable[[], BrokerConfig]) -> None:
        self._metadata = metadata
        self._replicas = replicas
        self._config = config

    def create(self, topic: RequestedTopic, requester: str = "the broker") -> Answer[ChangeResult]:
        """Create a topic without a CreateTopics request: usually on first use."""
        metadata = self._metadata

        def create() -> Answer[ChangeResult]:
            planned = [metadata.plans.plan(topic, {})]
            return after(self.create_planned(planned, requester), lambda changes: changes[topic.name])

        return metadata.decide(create)

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
        partitions, factor, configs = internal_topic(name, self._config())
        if self._metadata.is_single:
            factor = 1
        return self.create(RequestedTopic(name, partitions, factor, {}, configs))

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
