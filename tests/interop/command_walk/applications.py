"""Streams groups for the walk: applications that have processed something and are stopped."""

from typing import Final

from ottla import Admin, TopicPartition
from ottla.protocol.errors import NONE
from ottla.protocol.messages.streams_group_heartbeat import Endpoint, StreamsGroupHeartbeatRequest, Topology
from ottla.testing import EmbeddedBroker
from tests.conformance.conftest import Wire
from tests.conformance.members import wait_for
from tests.conformance.streams.play import info, subtopology

APPLICATIONS: Final = ("app1", "app2")
INTERNAL_TOPICS: Final = ("app1-words-repartition", "app1-counts-changelog")


def run(broker: EmbeddedBroker) -> None:
    """Start and stop two applications: one with internal topics and committed offsets, one without."""
    wire = Wire(broker.address, is_kafka=False)
    repartition, changelog = INTERNAL_TOPICS
    counts = Topology(
        epoch=1,
        subtopologies=[
            subtopology("0", sources=["t1", "t2"], sinks=[repartition]),
            subtopology("1", repartition=[info(repartition, 3, 1)], changelogs=[info(changelog, factor=1)]),
        ],
    )
    copies = Topology(epoch=1, subtopologies=[subtopology("0", sources=["t2"])])
    for group_id, topology in zip(APPLICATIONS, (counts, copies), strict=True):
        wait_for(lambda group_id=group_id, topology=topology: _heartbeat(wire, group_id, topology))
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        wait_for(lambda: set(INTERNAL_TOPICS) <= set(admin.list_topics()))
        for group_id in APPLICATIONS:
            leaving = StreamsGroupHeartbeatRequest(group_id=group_id, member_id="m", member_epoch=-1)
            assert wire.send(leaving, 1).error_code == NONE
        offsets = {TopicPartition("t1", 0): 1, TopicPartition("t1", 2): 2, TopicPartition(repartition, 1): 0}
        admin.alter_consumer_group_offsets(APPLICATIONS[0], offsets).check()
    wire.close()


def _heartbeat(wire: Wire, group_id: str, topology: Topology) -> bool:
    """Join a group, and return whether its coordinator was there."""
    request = StreamsGroupHeartbeatRequest(
        group_id=group_id,
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        topology=topology,
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id="p",
        user_endpoint=Endpoint(host="127.0.0.1", port=7001),
    )
    return bool(wire.send(request, 1).error_code == NONE)
