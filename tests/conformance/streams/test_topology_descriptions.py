"""Descriptions of topologies (KIP-1331): with the plug-in that Apache Kafka ships, and with Python classes.

Against Apache Kafka the tests run if it was started with the plug-in:
group.streams.topology.description.plugin.class=org.apache.kafka.server.streams.InMemoryTopologyDescriptionPlugin
"""

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.broker.coordination.topology_descriptions import DescriptionRefused
from ottla.protocol.errors import name_of
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from ottla.protocol.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    TopologyDescription,
    TopologyDescriptionGlobalStore,
    TopologyDescriptionNode,
    TopologyDescriptionSubtopology,
)
from ottla.testing import EmbeddedBroker
from tests.conformance.conftest import TopicFactory, Wire

from .play import Play, subtopology

API = StreamsGroupTopologyDescriptionUpdateRequest
PLUGIN = "group.streams.topology.description.plugin.class"
IN_MEMORY = "org.apache.kafka.server.streams.InMemoryTopologyDescriptionPlugin"


class FullPlugin:
    """Has no room for a while; never stores a description with a node named "wrong"; does not delete."""

    def set(self, group_id: str, topology_epoch: int, description: TopologyDescription) -> None:
        names = [node.name for row in description.subtopologies for node in row.nodes]
        if "wrong" in names:
            raise DescriptionRefused("a node is wrong")
        if "full" in names:
            raise OSError("no space left")

    def get(self, group_id: str, topology_epoch: int) -> TopologyDescription | None:
        raise OSError("cannot be read")

    def delete(self, group_id: str) -> None:
        raise OSError("cannot be deleted")


def playing(wire: Wire) -> Play:
    play = Play(wire, TopicFactory(wire))
    play.topology = [subtopology(sources=[play.topic("lines", 1)])]
    return play


@pytest.fixture
def play(request: pytest.FixtureRequest) -> Iterator[Play]:
    """A group without members, at a broker with the plug-in."""
    address = request.config.getoption("--broker")
    if address:
        host, _, port = address.rpartition(":")
        wire = Wire((host, int(port)), is_kafka=True)
        missing = "The broker has no streams group topology description plugin configured."
        if update(wire, "g", "A").error_message == missing:
            wire.close()
            pytest.skip(f"this broker was started without {PLUGIN}")
        yield playing(wire)
        wire.close()
        return
    with EmbeddedBroker({PLUGIN: IN_MEMORY}) as embedded:
        wire = Wire(embedded.address, is_kafka=False)
        yield playing(wire)
        wire.close()


@pytest.fixture
def full() -> Iterator[Play]:
    """The same with FullPlugin."""
    with EmbeddedBroker({PLUGIN: f"{__name__}:FullPlugin"}) as embedded:
        wire = Wire(embedded.address, is_kafka=False)
        yield playing(wire)
        wire.close()


def description(name: str = "SOURCE", node_type: int = 1) -> TopologyDescription:
    node = TopologyDescriptionNode(name=name, node_type=node_type, source_topics=["t"], successors=["SINK"])
    sink = TopologyDescriptionNode(name="SINK", node_type=3, sink_topic="out")
    store = TopologyDescriptionNode(name="STORE", node_type=2, stores=["s"])
    return TopologyDescription(
        subtopologies=[TopologyDescriptionSubtopology(subtopology_id="0", nodes=[node, sink])],
        global_stores=[TopologyDescriptionGlobalStore(source=node, processor=store)],
    )


def update(wire: Wire, group: str, member: str, epoch: int = 0, what: TopologyDescription | None = None) -> Any:
    request = StreamsGroupTopologyDescriptionUpdateRequest(
        group_id=group, member_id=member, topology_epoch=epoch, topology_description=what or description()
    )
    return wire.send(request, 0)


def described(play: Play) -> Any:
    request = StreamsGroupDescribeRequest(group_ids=[play.group_id], include_topology_description=True)
    return play.wire.send(request, 1).groups[0]


def delete(play: Play) -> str:
    answer = play.wire.send(DeleteGroupsRequest(groups_names=[play.group_id]), 3)
    return name_of(answer.results[0].error_code)


def test_a_description_is_requested_once_and_returned_by_describe(play: Play) -> None:
    assert play.enter("A").topology_description_required
    assert not play.enter("B").topology_description_required
    assert not play.beat("A").topology_description_required
    assert described(play).topology_description_status == 1
    play.log()
    play.lines.clear()
    assert update(play.wire, play.group_id, "A").error_code == 0
    play.log()
    (line,) = play.lines
    assert [part.rpartition("num.standby.replicas=0 ")[2] for part in line.split("; ")] == [
        "stored=-2 failed=-1",
        "stored=0 failed=-1",
    ]
    group = described(play)
    assert group.topology_description_status == 3
    (row,) = group.topology_description.subtopologies
    assert [(node.name, node.node_type, node.sink_topic) for node in row.nodes] == [
        ("SOURCE", 1, None),
        ("SINK", 3, "out"),
    ]
    (store,) = group.topology_description.global_stores
    assert (store.source.name, store.processor.name, store.processor.stores) == ("SOURCE", "STORE", ["s"])
    assert update(play.wire, play.group_id, "B").error_code == 0
    play.quit("A")
    play.quit("B")
    play.lines.clear()
    assert delete(play) == "NONE"
    play.log()
    (line,) = play.lines
    assert [part.rpartition("num.standby.replicas=0")[2].strip() for part in line.split("; ")] == [
        "stored=-2 failed=-1",
        "",
        "target epoch tombstone",
        "epoch tombstone",
        "topology tombstone",
    ]


def test_descriptions_that_are_refused(play: Play) -> None:
    group_id = play.group_id
    play.enter("A")
    for arguments, code, text in (
        (("", "A"), "INVALID_REQUEST", None),
        ((group_id, ""), "INVALID_REQUEST", None),
        (("g-nowhere", "A"), "GROUP_ID_NOT_FOUND", None),
        ((group_id, "X"), "UNKNOWN_MEMBER_ID", None),
        (
            (group_id, "A", 1),
            "INVALID_REQUEST",
            "Topology epoch 1 does not match the group's current topology epoch 0.",
        ),
        ((group_id, "A", 0, description(node_type=0)), "INVALID_REQUEST", "Unknown topology node type: 0"),
    ):
        answer = update(play.wire, *arguments)
        assert name_of(answer.error_code) == code, arguments
        assert text in (None, answer.error_message)


def test_a_plug_in_that_fails(full: Play) -> None:
    full.enter("A")
    answer = update(full.wire, full.group_id, "A", 0, description("full"))
    assert (name_of(answer.error_code), answer.error_message) == (
        "STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED",
        "no space left",
    )
    assert described(full).topology_description_status == 1
    assert update(full.wire, full.group_id, "A").error_code == 0
    assert described(full).topology_description_status == 2
    full.quit("A")
    assert delete(full) == "GROUP_DELETION_FAILED"


def test_a_description_that_can_never_be_stored_is_not_wanted_again(full: Play) -> None:
    full.enter("A")
    full.log()
    full.lines.clear()
    answer = update(full.wire, full.group_id, "A", 0, description("wrong"))
    assert (name_of(answer.error_code), answer.error_message) == (
        "STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED",
        "a node is wrong",
    )
    full.log()
    assert full.lines[0].endswith("failed=0")
