"""Assignors of streams groups that the operator chooses (KIP-1357).

Against Apache Kafka the tests of the assignor "mock" run if it was started with
group.streams.assignors=sticky,org.apache.kafka.coordinator.group.streams.assignor.MockAssignor, which `Mock` here is equal to.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from ottla.broker.starting import CannotStart
from ottla.coordinators.groups.streams.assignors import AssignorFailed, GroupSpec, MemberAssignment
from ottla.protocol.errors import INVALID_CONFIG, name_of
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from ottla.protocol.messages.streams_group_heartbeat import KeyValue
from ottla.testing import EmbeddedBroker
from tests.conformance.conftest import TopicFactory, Wire
from tests.conformance.members import wait_for

from .play import Play, roles, subtopology

ASSIGNORS = "group.streams.assignors"
GROUP = 32


class Mock:
    """Keeps what members have, and gives the rest to the member with the fewest tasks; never a standby task."""

    name = "mock"

    def assign(self, group: GroupSpec) -> Mapping[str, MemberAssignment]:
        active: dict[str, dict[str, set[int]]] = {
            member_id: {name: set(tasks) for name, tasks in member.active_tasks.items()}
            for member_id, member in group.members.items()
        }
        taken = {(name, task) for tasks in active.values() for name, numbers in tasks.items() for task in numbers}
        for name, count in group.subtopologies.items():
            for task in range(count):
                if (name, task) not in taken:
                    fewest = min(active, key=lambda member_id: sum(map(len, active[member_id].values())))
                    active[fewest].setdefault(name, set()).add(task)
        return {member_id: MemberAssignment(tasks) for member_id, tasks in active.items()}


class LastTakesAll:
    """Gives all tasks to the last member, with a standby task at the first one; a stranger gets them as well.

    A client tag "fail" makes it refuse, "bug" raise any error, "number" return no tasks.
    """

    name = "last-takes-all"
    seen: GroupSpec | None = None

    def assign(self, group: GroupSpec) -> Mapping[str, MemberAssignment]:
        LastTakesAll.seen = group
        tags = {tag for member in group.members.values() for tag in member.client_tags}
        if "fail" in tags:
            raise AssignorFailed("no thanks")
        if "bug" in tags:
            raise ValueError("a bug")
        if "number" in tags:
            return 5  # type: ignore[return-value]
        everything = {name: range(count) for name, count in group.subtopologies.items()}
        first, *_, last = [*sorted(group.members), max(group.members)]
        standby = {name: tasks for name, tasks in everything.items() if name in group.stateful and first != last}
        return {
            first: MemberAssignment({}, standby),
            last: MemberAssignment(everything),
            "stranger": MemberAssignment(everything),
        }


class Sticky(Mock):
    name = "sticky"


class Nameless:
    def assign(self, group: GroupSpec) -> Mapping[str, MemberAssignment]:
        raise AssertionError


def playing(wire: Wire, **configs: str) -> Play:
    play = Play(wire, TopicFactory(wire), **configs)
    play.topology = [subtopology(sources=[play.topic("lines", 4)])]
    return play


@pytest.fixture
def wire(request: pytest.FixtureRequest) -> Iterator[Wire]:
    """A broker with the assignors "sticky" and "mock"."""
    address = request.config.getoption("--broker")
    if address:
        host, _, port = address.rpartition(":")
        wire = Wire((host, int(port)), is_kafka=True)
        if alter(wire, "probe", "mock")[0] == INVALID_CONFIG:
            wire.close()
            pytest.skip(f"this broker was started without the assignor mock in {ASSIGNORS}")
        yield wire
        wire.close()
        return
    with EmbeddedBroker({ASSIGNORS: f"sticky,{__name__}:Mock"}) as embedded:
        wire = Wire(embedded.address, is_kafka=False)
        yield wire
        wire.close()


@pytest.fixture
def last() -> Iterator[Wire]:
    """A broker whose default assignor is LastTakesAll."""
    with EmbeddedBroker({ASSIGNORS: f"{__name__}:LastTakesAll,sticky"}) as embedded:
        wire = Wire(embedded.address, is_kafka=False)
        yield wire
        wire.close()


def alter(wire: Wire, group_id: str, assignor: str) -> tuple[int, str | None]:
    config = AlterableConfig(name="streams.assignor.name", config_operation=0, value=assignor)
    resource = AlterConfigsResource(resource_type=GROUP, resource_name=group_id, configs=[config])
    row = wire.send(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses[0]
    return row.error_code, row.error_message


def default_of(wire: Wire, group_id: str) -> Any:
    resource = DescribeConfigsResource(
        resource_type=GROUP, resource_name=group_id, configuration_keys=["streams.assignor.name"]
    )
    return wire.send(DescribeConfigsRequest(resources=[resource], include_synonyms=True), 4).results[0].configs[0]


def assignor_of(play: Play) -> str | None:
    name: str | None = play.wire.send(StreamsGroupDescribeRequest(group_ids=[play.group_id]), 1).groups[0].assignor_name
    return name


def active(answer: Any) -> str:
    return roles(answer.active_tasks, answer.standby_tasks, answer.warmup_tasks)


def test_a_group_uses_the_assignor_of_its_config(wire: Wire) -> None:
    play = playing(wire, streams_assignor_name="mock")
    assert active(play.enter("A")) == "0:0+1+2+3"
    play.enter("B")  # Mock leaves A's tasks where they are, "sticky" would move two
    assert active(play.enter("C")) == "nothing"
    assert assignor_of(play) == "mock"


def test_without_a_config_the_first_assignor_is_the_default(wire: Wire) -> None:
    play = playing(wire)
    play.enter("A")
    play.enter("B")
    assert assignor_of(play) == "sticky"
    assert active(play.beat("A", owns={"0": [0, 1, 2, 3]})) in ("0:0+1", "0:2+3")
    row = default_of(wire, play.group_id)
    assert (row.value, row.synonyms[-1].name, row.synonyms[-1].value) == ("sticky", ASSIGNORS, "sticky")


def test_an_assignor_that_the_broker_lacks_is_refused_with_the_names_of_those_it_has(wire: Wire) -> None:
    message = (
        "streams.assignor.name 'weird' is not a registered task assignor. Registered assignors are: [sticky, mock]."
    )
    assert alter(wire, "g", "weird") == (INVALID_CONFIG, message)


def test_another_assignor_has_an_effect_from_the_next_epoch_on(wire: Wire) -> None:
    play = playing(wire)
    assert active(play.enter("A")) == "0:0+1+2+3"
    play.configure(streams_assignor_name="mock")
    epoch = play.epochs["A"]
    assert play.beat("A", owns={"0": [0, 1, 2, 3]}).member_epoch == epoch
    assert assignor_of(play) == "mock"
    play.enter("B")
    assert play.beat("A", owns={"0": [0, 1, 2, 3]}).member_epoch > epoch
    assert play.beat("A").active_tasks is None


def test_a_class_gets_the_members_with_their_tasks_and_tags(last: Wire) -> None:
    play = playing(last, streams_num_standby_replicas="1", streams_rack_aware_assignment_tags="zone,disk")
    tags = [KeyValue(key="zone", value="a"), KeyValue(key="disk", value="fast")]
    play.enter("A", client_tags=tags, rack_id="r1")
    play.enter("B", client_tags=tags, instance_id="i2", process_id="one")
    group = LastTakesAll.seen
    assert group is not None
    assert list(group.members) == ["A", "B"]
    assert (group.subtopologies, group.stateful) == ({"0": 4}, frozenset())
    assert (group.standby_replicas, group.tags) == (1, ("zone", "disk"))
    first, second = group.members.values()
    assert (first.rack_id, first.client_tags) == ("r1", {"zone": "a", "disk": "fast"})
    assert first.active_tasks == {"0": frozenset(range(4))}
    assert (second.instance_id, second.process_id, second.active_tasks) == ("i2", "one", {})


def test_the_default_of_a_group_is_the_name_of_the_first_class(last: Wire) -> None:
    play = playing(last)
    assert active(play.enter("A")) == "0:0+1+2+3"
    assert assignor_of(play) == "last-takes-all"
    assert default_of(last, play.group_id).value == "last-takes-all"
    assert active(play.enter("B")) == "nothing"
    assert active(play.beat("A", owns={"0": [0, 1, 2, 3]})) == "nothing"
    play.beat("A", owns={})
    assert active(play.beat("B")) == "0:0+1+2+3"


@pytest.mark.parametrize(
    ("tag", "text"),
    [("fail", "no thanks"), ("bug", "a bug"), ("number", "'int' object has no attribute 'items'")],
)
def test_an_assignor_that_fails_fails_the_heartbeat_and_changes_nothing(
    last: Wire, tag: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The heartbeat returns the same as that of Apache Kafka with a Java class that raises the same."""
    play = playing(last)
    play.enter("A")
    play.lines.clear()
    play.enter("B", client_tags=[KeyValue(key=tag, value="")])
    assert play.lines[1:] == ["  B <- UNKNOWN_SERVER_ERROR None"]
    assert text in caplog.text
    play.enter("C")
    assert play.beat("A", owns={"0": [0, 1, 2, 3]}).error_code == 0


def test_heartbeats_fail_if_the_assignor_fails_after_the_initial_delay(last: Wire) -> None:
    play = playing(last, streams_initial_rebalance_delay_ms="100")
    play.enter("A", client_tags=[KeyValue(key="fail", value="")])
    wait_for(lambda: name_of(play.beat("A").error_code) == "UNKNOWN_SERVER_ERROR")
    assert active(play.enter("A", client_tags=[])) == "0:0+1+2+3"


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        (
            f"{__name__}:Sticky",
            "Assignor name 'sticky' is reserved by a built-in assignor. A custom assignor must not reuse the name of a "
            "built-in assignor",
        ),
        (
            f"sticky,{__name__}:Mock,tests.conformance.streams.test_task_assignors:Mock2",
            "has no class Mock2",
        ),
        (
            "sticky,org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor",
            "Assignor name 'sticky' is already registered by another configured assignor. Assignor names, whether "
            "built-in or custom, must be unique",
        ),
        (f"{__name__}:Nameless", "the class has no attribute name with a text"),
        (f"{__name__}:Play", "the class has no method assign"),
        ("no_such_module:Mock", "No module named 'no_such_module'"),
    ],
)
def test_a_broker_does_not_start_with_an_assignor_that_it_cannot_use(entries: str, reason: str) -> None:
    with pytest.raises(CannotStart) as caught, EmbeddedBroker({ASSIGNORS: entries}):
        pass
    assert str(caught.value).startswith(f"Invalid value {entries.rpartition(',')[2]} for configuration {ASSIGNORS}: ")
    assert reason in str(caught.value)
