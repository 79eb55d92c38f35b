"""The interval until a member's next heartbeat: short while its assignment is about to change; on Apache Kafka always the
configured one.
"""

import time

import pytest

from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Subtopology, Topology

from .conftest import TopicFactory, Wire
from .consumers import Consumer, configure, interval_of
from .members import new_group
from .share_members import Sharer, all_of, settle, share_group

CONFIGURED_MS = 5_000


@pytest.mark.api(request=ShareGroupHeartbeatRequest)
def test_states_of_share_partitions(broker: Wire, make_topic: TopicFactory) -> None:
    """The first member of a share group gets its partitions with the second heartbeat."""
    topic, group_id = make_topic(2), share_group(broker)
    member = Sharer(broker, group_id)
    answer = member.join(topic.name)
    assert (answer.heartbeat_interval_ms, answer.assignment.topic_partitions) == (
        CONFIGURED_MS if broker.is_kafka else 50,
        [],
    )
    settle(all_of(topic, 2), member)
    assert member.beat().heartbeat_interval_ms == CONFIGURED_MS


@pytest.mark.usefixtures("ottla_only")
@pytest.mark.api(request=ShareGroupHeartbeatRequest)
def test_partitions_come_within_the_interval_that_was_told(broker: Wire, make_topic: TopicFactory) -> None:
    """Also with an interval between assignments (group.share.assignment.interval.ms=1000): the first one assigned nothing."""
    topic, group_id = make_topic(2), share_group(broker)
    member, begun = Sharer(broker, group_id), time.monotonic()
    answer = member.join(topic.name)
    while not member.assigned:
        time.sleep(answer.heartbeat_interval_ms / 1000)
        answer = member.beat()
    assert member.partitions_of(topic) == {0, 1}
    assert time.monotonic() - begun < CONFIGURED_MS / 1000


@pytest.mark.api(request=ConsumerGroupHeartbeatRequest)
def test_partitions_of_another_member(broker: Wire, make_topic: TopicFactory) -> None:
    """A member with partitions asks soon whether to give some back, a waiting member whether they are free."""
    topic, group_id = make_topic(2), new_group(broker)
    configure(broker, group_id, consumer_assignment_interval_ms="0")
    first, second = Consumer(broker, group_id), Consumer(broker, group_id)
    soon_ms = interval_of(broker, CONFIGURED_MS)
    assert (first.join(topic.name).heartbeat_interval_ms, first.partitions_of(topic)) == (soon_ms, {0, 1})
    assert (second.join(topic.name).heartbeat_interval_ms, second.partitions_of(topic)) == (soon_ms, set())
    first.beat()
    assert len(first.partitions_of(topic)) == 1
    first.beat_with_partitions()
    second.beat()
    assert first.partitions_of(topic) | second.partitions_of(topic) == {0, 1}


@pytest.mark.api(request=ConsumerGroupHeartbeatRequest)
def test_the_next_assignment(broker: Wire, make_topic: TopicFactory) -> None:
    topic, group_id = make_topic(2), new_group(broker)
    configure(broker, group_id, consumer_assignment_interval_ms="2000")
    first, second = Consumer(broker, group_id), Consumer(broker, group_id)
    first.join(topic.name)
    interval_ms = second.join(topic.name).heartbeat_interval_ms
    if broker.is_kafka:
        assert interval_ms == CONFIGURED_MS
    else:
        assert 500 < interval_ms <= 2000
        time.sleep(interval_ms / 1000)
        assert second.beat().member_epoch > first.epoch


@pytest.mark.api(request=StreamsGroupHeartbeatRequest)
@pytest.mark.parametrize("delay_ms", [0, 60_000])
def test_the_initial_delay_of_a_streams_group(broker: Wire, make_topic: TopicFactory, delay_ms: int) -> None:
    topic, group_id = make_topic(1), new_group(broker)
    configure(broker, group_id, streams_initial_rebalance_delay_ms=str(delay_ms))
    request = StreamsGroupHeartbeatRequest(
        group_id=group_id,
        member_id="m",
        member_epoch=0,
        process_id="p",
        rebalance_timeout_ms=60_000,
        topology=Topology(epoch=0, subtopologies=[Subtopology(subtopology_id="0", source_topics=[topic.name])]),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    )
    answer = broker.send(request, 0)
    assert answer.heartbeat_interval_ms == interval_of(broker, CONFIGURED_MS)
    assert bool(answer.active_tasks) is (delay_ms == 0)
