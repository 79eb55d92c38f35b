"""Internal topics of streams groups: their creation on behalf of members, which the members' heartbeats do not wait for.

A topic whose creation runs is not created twice. A failure is reported by the heartbeats that follow, for a while.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ottla.broker.requests.throttling import Mutations, Throttling
from ottla.broker.requests.topic_creation import TopicCreation
from ottla.broker.security.permission import may_use_cluster, may_use_topic
from ottla.metadata.plans.topics import RequestedTopic
from ottla.protocol.api import STREAMS_GROUP_HEARTBEAT
from ottla.protocol.context import RequestContext
from ottla.protocol.errors import NONE, TOPIC_ALREADY_EXISTS, error
from ottla.security.operations import AclOperation
from ottla.tasks.scheduler import Scheduler

if TYPE_CHECKING:
    from ottla.coordinators.groups.streams.subtopologies import InternalTopic

_BY_DEFAULT = -1


class StreamsTopics:
    """Creation of the internal topics of streams groups."""

    def __init__(self, topics: TopicCreation, throttling: Callable[[], Throttling | None], tasks: Scheduler) -> None:
        self._topics = topics
        self._throttling = throttling
        self._tasks = tasks
        self._creating: set[str] = set()
        self._errors: dict[str, tuple[str, int]] = {}
        """Topic -> reason of the failure, and the time until which it is reported, in ms."""

    def provide(self, missing: Iterable["InternalTopic"], context: RequestContext, keep_ms: int) -> str:
        """Create topics in the name of the requester, after its response; returns what to add to its status.

        keep_ms  time for which a failure is reported
        """
        topics = list(missing)
        denied = _denied_names(topics, context)
        text = f"; Unauthorized to CREATE on topics {', '.join(denied)}." if denied else ""
        now_ms = self._tasks.clock.now_ms()
        failures = []
        created = []
        for topic in topics:
            reason, until_ms = self._errors.get(topic.name, ("", 0))
            if now_ms < until_ms:
                failures.append(f"{topic.name} ({reason})")
            if topic.name not in denied and topic.name not in self._creating:
                self._creating.add(topic.name)
                created.append(topic)
        if created:
            mutations = Mutations(self._throttling(), STREAMS_GROUP_HEARTBEAT, context)
            self._tasks.background(self._create(created, str(context), mutations, keep_ms), "creation of topics")
        return text + (f"; Creation failed: {', '.join(failures)}." if failures else "")

    async def _create(
        self, topics: Sequence["InternalTopic"], requester: str, mutations: Mutations, keep_ms: int
    ) -> None:
        await self._tasks.sleep(0)  # the heartbeat is answered first
        requested = [
            RequestedTopic(
                topic.name, topic.partitions, topic.replication_factor or _BY_DEFAULT, {}, dict(topic.configs)
            )
            for topic in topics
        ]
        try:
            results = await self._topics.create_all(requested, requester, mutations)
        finally:
            self._creating.difference_update(topic.name for topic in topics)
        now_ms = self._tasks.clock.now_ms()
        # Topics of groups that do not ask again would be kept forever.
        self._errors = {name: failure for name, failure in self._errors.items() if now_ms < failure[1]}
        for name, change in results.items():
            if change.error_code not in (NONE, TOPIC_ALREADY_EXISTS):
                reason = change.error_message or error(change.error_code).message
                self._errors[name] = reason, now_ms + keep_ms


def _denied_names(topics: Iterable["InternalTopic"], context: RequestContext) -> list[str]:
    """Return the names of topics that the requester may not create."""
    if may_use_cluster(context, AclOperation.CREATE, is_logged=False):
        return []
    return [topic.name for topic in topics if not may_use_topic(context, AclOperation.CREATE, topic.name)]
