"""DeleteShareGroupOffsets (KIP-932): delete offsets of a share group without members.

Behaviour
    feature share.version at 0            UNSUPPORTED_VERSION
    an empty group id                     INVALID_GROUP_ID
    unknown group, or one of another type  GROUP_ID_NOT_FOUND
    a group with members                  NON_EMPTY_GROUP, whatever the topics
    an unknown topic                      UNKNOWN_TOPIC_OR_PARTITION
    a topic that the group never read     the same, with a message that says so
    the share coordinator fails           its error; asked again, the deletion goes on
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.coordination.share_state import Place
from ottla.broker.dispatch import handles
from ottla.broker.handlers.share_group_heartbeat import serves_share_groups
from ottla.coordinators.groups.share.offsets import (
    NOTHING_TO_DELETE,
    Deleted,
    Deleting,
    Deletion,
    begin_deletion,
    deleted,
)
from ottla.coordinators.share.state import StateOutcome
from ottla.protocol.answer import Answer, after
from ottla.protocol.errors import INVALID_GROUP_ID, NONE, UNKNOWN_TOPIC_OR_PARTITION, UNSUPPORTED_VERSION, error
from ottla.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from ottla.broker.lifecycle import Broker


class DeletedState(NamedTuple):
    """Outcome of a deletion: as a whole, or topic by topic (id -> outcome)."""

    error_code: int
    error_message: str | None = None
    topics: Mapping[bytes, StateOutcome] = {}

    @property
    def code(self) -> int:
        """NONE, or the first error there was."""
        return self.error_code or next((each.error_code for each in self.topics.values() if each.error_code), NONE)


@handles(DeleteShareGroupOffsetsRequest)
def delete_share_group_offsets(
    request: DeleteShareGroupOffsetsRequest, broker: "Broker"
) -> Answer[DeleteShareGroupOffsetsResponse]:
    if not serves_share_groups(broker):
        return _refused(UNSUPPORTED_VERSION)
    if not request.group_id:
        return _refused(INVALID_GROUP_ID)
    ids = {
        topic.topic_name: broker.image.topics[topic.topic_name].id
        for topic in request.topics
        if topic.topic_name in broker.image.topics
    }

    def response(end: DeletedState) -> DeleteShareGroupOffsetsResponse:
        if end.error_code != NONE:
            return _refused(end.error_code, end.error_message)
        names = dict.fromkeys(topic.topic_name for topic in request.topics)
        return DeleteShareGroupOffsetsResponse(responses=[_topic(name, ids.get(name), end) for name in names])

    named = {topic_id: name for name, topic_id in ids.items()}
    return after(deleted_share_state(request.group_id, named, broker), response)


def deleted_share_state(group_id: str, topics: Mapping[bytes, str] | None, broker: "Broker") -> Answer[DeletedState]:
    """Delete a group's state in topics (id -> name), or everywhere (None)."""

    def delete(deleting: Deleting) -> Answer[DeletedState]:
        if deleting.error_code != NONE:
            return DeletedState(deleting.error_code, deleting.error_message)
        places = [(topic_id, index) for topic_id, parts in deleting.partitions.items() for index in sorted(parts)]
        return after(broker.coordination.share_states.delete(group_id, places), settle)

    def settle(outcomes: dict[Place, StateOutcome]) -> Answer[DeletedState]:
        found: dict[bytes, StateOutcome] = {}
        for (topic_id, _), outcome in outcomes.items():
            if found.get(topic_id, StateOutcome()).error_code == NONE:
                found[topic_id] = outcome
        gone = frozenset(topic_id for topic_id, outcome in found.items() if outcome.error_code == NONE)
        if not gone or (topics is None and len(gone) == len(found)):  # the group itself goes next
            return DeletedState(NONE, None, found)
        settled = broker.groups.run(group_id, deleted, Deleted(group_id, gone))
        return after(settled, lambda code: DeletedState(code, error(code).message, found))

    return after(broker.groups.run(group_id, begin_deletion, Deletion(group_id, topics)), delete)


def _refused(code: int, message: str | None = None) -> DeleteShareGroupOffsetsResponse:
    return DeleteShareGroupOffsetsResponse(error_code=code, error_message=message or error(code).message)


def _topic(name: str, topic_id: bytes | None, end: DeletedState) -> DeleteShareGroupOffsetsResponseTopic:
    if topic_id is not None and topic_id in end.topics:
        code, message = end.topics[topic_id]
        return DeleteShareGroupOffsetsResponseTopic(
            topic_name=name, topic_id=topic_id, error_code=code, error_message=message
        )
    why = error(UNKNOWN_TOPIC_OR_PARTITION).message if topic_id is None else NOTHING_TO_DELETE
    return DeleteShareGroupOffsetsResponseTopic(
        topic_name=name, topic_id=bytes(16), error_code=UNKNOWN_TOPIC_OR_PARTITION, error_message=why
    )
