"""ListGroups, over a socket."""

from typing import Any

import pytest

from ottla.protocol.errors import NONE
from ottla.protocol.messages.list_groups import ListGroupsRequest

from .conftest import Topic, TopicFactory, Wire, versions
from .consumers import Consumer, configure, settle
from .members import Member, new_group, stable, wait_for

API = ListGroupsRequest


def listed(wire: Wire, group_id: str, version: int = 5, **fields: Any) -> list[tuple[str, str, str]]:
    answer = wire.send(ListGroupsRequest(**fields), version)
    assert answer.error_code == NONE
    return [
        (group.protocol_type, group.group_state, group.group_type)
        for group in answer.groups
        if group.group_id == group_id
    ]


@pytest.mark.parametrize("version", versions(API))
def test_state_and_type_of_a_group_depend_on_the_version(broker: Wire, version: int) -> None:
    member = Member(broker, new_group(broker))
    stable(broker, member)
    state = "Stable" if version >= 4 else ""
    assert listed(broker, member.group_id, version) == [("consumer", state, "classic" if version >= 5 else "")]


def test_filters_in_any_case(broker: Wire) -> None:
    member = Member(broker, new_group(broker))
    stable(broker, member)
    group_id = member.group_id
    for states in (["Stable"], ["stable"], ["Empty", "STABLE"]):
        assert len(listed(broker, group_id, states_filter=states)) == 1
    for types in (["classic"], ["CLASSIC", "consumer"]):
        assert len(listed(broker, group_id, types_filter=types)) == 1
    assert listed(broker, group_id, states_filter=["Empty"]) == []
    assert listed(broker, group_id, types_filter=["consumer"]) == []
    assert listed(broker, group_id, states_filter=["Stable"], types_filter=["share"]) == []


def test_filters_that_name_nothing_match_nothing(broker: Wire) -> None:
    member = Member(broker, new_group(broker))
    stable(broker, member)
    assert listed(broker, member.group_id, states_filter=["no-such-state"]) == []
    assert listed(broker, member.group_id, types_filter=["no-such-type"]) == []


@pytest.mark.parametrize("version", versions(API))
def test_a_consumer_group(broker: Wire, topic: Topic, version: int) -> None:
    member = Consumer(broker, new_group(broker))
    member.join(topic.name)
    state = "Stable" if version >= 4 else ""
    assert listed(broker, member.group_id, version) == [("consumer", state, "consumer" if version >= 5 else "")]


def test_the_states_of_a_consumer_group(broker: Wire, make_topic: TopicFactory) -> None:
    topic, group_id = make_topic(2), new_group(broker)
    configure(broker, group_id, consumer_assignment_interval_ms="2000")
    one, two = Consumer(broker, group_id), Consumer(broker, group_id)

    def state() -> str:
        ((_, group_state, _),) = listed(broker, group_id, types_filter=["Consumer"])
        assert listed(broker, group_id, states_filter=[group_state.upper()]) == [("consumer", group_state, "consumer")]
        assert listed(broker, group_id, types_filter=["classic"]) == []
        return group_state

    one.join(topic.name)
    assert state() == "Stable"
    two.join(topic.name)
    assert state() == "Assigning"
    wait_for(lambda: two.beat().member_epoch == 3)
    assert state() == "Reconciling"
    settle(broker, group_id, one, two)
    one.leave()
    two.leave()
    assert state() == "Empty"
