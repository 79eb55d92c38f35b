"""Deliberate differences from Apache Kafka 4.4.0."""

from ottla.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from tests.conformance.conftest import TopicFactory, Wire

from .play import Play, subtopology

API = StreamsGroupHeartbeatRequest


def test_a_refused_join_does_not_cost_a_static_member_its_tasks(broker: Wire, make_topic: TopicFactory) -> None:
    """Apache Kafka takes the tasks away when the rightful member comes back, until the next assignment."""
    play = Play(broker, make_topic)
    play.topology = [subtopology(sources=[play.topic("lines", 2)])]
    play.enter("A", instance_id="i")
    play.beat("A", owns={"0": [0, 1]}, instance_id="i")
    play.enter("B", instance_id="i")  # UNRELEASED_INSTANCE_ID
    play.quit("A", -2, instance_id="i")
    answer = play.enter("A9", instance_id="i", process_id="process-A")
    tasks = [row.partitions for row in answer.active_tasks]
    assert tasks == ([] if broker.is_kafka else [[0, 1]])
