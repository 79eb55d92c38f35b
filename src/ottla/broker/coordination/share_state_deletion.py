"""Deletion of a share group's state: begun by the group coordinator, done by the share coordinator, then recorded."""

from collections.abc import Mapping
from typing import NamedTuple

from ottla.broker.coordination.coordinators import Coordination
from ottla.coordinators.groups.share.offsets import Deleted, Deleting, Deletion, begin_deletion, finish_deletion
from ottla.coordinators.share.state import StateOutcome
from ottla.protocol.errors import NONE, error
from ottla.tasks.deferred import awaitable


class DeletedState(NamedTuple):
    """Outcome of a deletion: an error of the whole, or an outcome for each topic id."""

    error_code: int
    error_message: str | None = None
    topics: Mapping[bytes, StateOutcome] = {}

    @property
    def code(self) -> int:
        """The first error, or NONE."""
        return self.error_code or next((topic.error_code for topic in self.topics.values() if topic.error_code), NONE)


async def delete_share_state(
    coordination: Coordination, group_id: str, topics: Mapping[bytes, str] | None
) -> DeletedState:
    """Delete a group's state in topics (id -> name), or everywhere (None)."""
    tasks = coordination.tasks
    begun = coordination.groups.run(group_id, begin_deletion, Deletion(group_id, topics))
    deleting: Deleting = await awaitable(begun, tasks)
    if deleting.error_code != NONE:
        return DeletedState(deleting.error_code, deleting.error_message)
    places = [(topic_id, index) for topic_id, parts in deleting.partitions.items() for index in sorted(parts)]
    by_topic: dict[bytes, StateOutcome] = {}
    for (topic_id, _), outcome in (await awaitable(coordination.share_states.delete(group_id, places), tasks)).items():
        if by_topic.get(topic_id, StateOutcome()).error_code == NONE:
            by_topic[topic_id] = outcome
    gone = frozenset(topic_id for topic_id, outcome in by_topic.items() if outcome.error_code == NONE)
    if not gone or (topics is None and len(gone) == len(by_topic)):  # the group itself is deleted next
        return DeletedState(NONE, None, by_topic)
    code = await awaitable(coordination.groups.run(group_id, finish_deletion, Deleted(group_id, gone)), tasks)
    return DeletedState(code, error(code).message, by_topic)
