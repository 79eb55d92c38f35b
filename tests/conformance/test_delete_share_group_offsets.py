"""DeleteShareGroupOffsets, and DeleteGroups of share groups, over a socket."""

from ottla.protocol.errors import name_of
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest

from .conftest import Topic, TopicFactory, Wire
from .consumers import Consumer
from .members import new_group
from .share_members import (
    UNKNOWN_TOPIC,
    Sharer,
    alter,
    delete_offsets,
    described,
    offsets,
    places,
    share_group,
    summary,
)

API = DeleteShareGroupOffsetsRequest
NOTHING = "There is no offset information to delete."


def test_topics_one_by_one(broker: Wire, make_topic: TopicFactory) -> None:
    topic, kept, unread, group_id = make_topic(2), make_topic(1), make_topic(1), share_group(broker)
    alter(broker, group_id, [(topic.name, {0: 1, 1: 2}), (kept.name, {0: 0})])
    answer = delete_offsets(broker, group_id, topic.name, "nope", unread.name)
    assert (answer.error_code, answer.error_message) == (0, None)
    outcomes = {row.topic_name: (row.topic_id, name_of(row.error_code), row.error_message) for row in answer.responses}
    assert outcomes == {
        topic.name: (topic.id, "NONE", None),
        "nope": (bytes(16), "UNKNOWN_TOPIC_OR_PARTITION", UNKNOWN_TOPIC),
        unread.name: (bytes(16), "UNKNOWN_TOPIC_OR_PARTITION", NOTHING),
    }
    assert places(offsets(broker, group_id)).keys() == {(kept.name, 0)}
    assert summary(broker, group_id, topic.id, 1).start_offset == -1
    again = delete_offsets(broker, group_id, topic.name).responses[0]
    assert (again.topic_id, again.error_message) == (bytes(16), NOTHING)
    group = described(broker, group_id)
    assert (group.group_state, group.group_epoch) == ("Empty", 1)


def test_unknown_and_nonempty_groups_are_refused(broker: Wire, topic: Topic) -> None:
    def outcome(group_id: str, *topics: str) -> tuple[str, str | None, int]:
        answer = delete_offsets(broker, group_id, *topics)
        return name_of(answer.error_code), answer.error_message, len(answer.responses)

    group_id, consumers = share_group(broker), new_group(broker)
    assert outcome("", topic.name) == ("INVALID_GROUP_ID", "The group id is invalid.", 0)
    assert outcome(group_id, topic.name) == ("GROUP_ID_NOT_FOUND", f"Group {group_id} not found.", 0)
    Consumer(broker, consumers).join(topic.name)
    assert outcome(consumers, topic.name) == ("GROUP_ID_NOT_FOUND", f"Group {consumers} is not a share group.", 0)
    Sharer(broker, group_id).join(topic.name)
    for topics in ((topic.name,), ("nope",), ()):
        assert outcome(group_id, *topics) == ("NON_EMPTY_GROUP", "The group is not empty.", 0)


def test_no_topics(broker: Wire, topic: Topic) -> None:
    group_id = share_group(broker)
    alter(broker, group_id, [(topic.name, {0: 1})])
    answer = delete_offsets(broker, group_id)
    assert (answer.error_code, answer.responses) == (0, [])
    assert places(offsets(broker, group_id)).keys() == {(topic.name, 0)}


def test_a_group_goes_with_its_state(broker: Wire, make_topic: TopicFactory) -> None:
    topic, group_id = make_topic(3), share_group(broker)
    member = Sharer(broker, group_id)
    member.join(topic.name)

    def delete_group() -> str:
        (result,) = broker.send(DeleteGroupsRequest(groups_names=[group_id]), 2).results
        return name_of(result.error_code)

    assert delete_group() == "NON_EMPTY_GROUP"
    member.leave()
    alter(broker, group_id, [(topic.name, {0: 1, 1: 1, 2: 1})])
    assert delete_group() == "NONE"
    assert name_of(described(broker, group_id).error_code) == "GROUP_ID_NOT_FOUND"
    assert [summary(broker, group_id, topic.id, index).start_offset for index in range(3)] == [-1, -1, -1]
    assert delete_group() == "GROUP_ID_NOT_FOUND"
    assert Consumer(broker, group_id).join(topic.name).error_code == 0  # the id is free again
