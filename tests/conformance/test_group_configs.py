"""Brokers that are told which group protocols to serve. Each test starts its own, so that only Ottla is under test here; the
answers were seen on an Apache Kafka 4.4 with the same configs.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ottla.protocol.errors import (
    GROUP_ID_NOT_FOUND,
    GROUP_MAX_SIZE_REACHED,
    INCONSISTENT_GROUP_PROTOCOL,
    INVALID_SESSION_TIMEOUT,
    NONE,
    UNKNOWN_MEMBER_ID,
    UNSUPPORTED_VERSION,
)
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    Topology,
)
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.testing import EmbeddedBroker

from .conftest import TopicFactory, Wire
from .consumers import Consumer, configure, described_consumers, interval_of, joining
from .members import Member, join_request, new_group, wait_for
from .share_members import Sharer, all_of, described, settle, share_group
from .test_group_migration import classic_group, subscription

API = ConsumerGroupHeartbeatRequest
pytestmark = pytest.mark.usefixtures("ottla_only")


@contextmanager
def start(**configs: str) -> Iterator[Wire]:
    """A broker with these configs; `_` stands for `.`."""
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    with EmbeddedBroker({"group.initial.rebalance.delay.ms": "0"} | settings) as embedded:
        wire = Wire(embedded.address, is_kafka=False)
        yield wire
        wire.close()


def test_without_the_consumer_protocol() -> None:
    with start(group_coordinator_rebalance_protocols="classic") as broker:
        group_id = new_group(broker)
        answer = broker.send(joining(group_id, "t"), 1)
        assert (answer.error_code, answer.error_message) == (UNSUPPORTED_VERSION, None)
        for name in (group_id, ""):
            group = described_consumers(broker, name)
            assert (group.error_code, group.error_message) == (UNSUPPORTED_VERSION, None)


def test_the_feature_turned_off() -> None:
    with start() as broker:
        update = FeatureUpdateKey(feature="group.version", max_version_level=0, upgrade_type=2)
        answer = broker.send(UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=[update]), 1)
        assert answer.error_code == NONE
        group_id = new_group(broker)
        assert broker.send(joining(group_id, "t"), 1).error_code == UNSUPPORTED_VERSION
        assert described_consumers(broker, group_id).error_code == UNSUPPORTED_VERSION


def test_without_migration() -> None:
    with start(group_consumer_migration_policy="disabled") as broker:
        topic = TopicFactory(broker)(2)
        (classic,) = classic_group(broker, topic, 2)
        refused = broker.send(joining(classic.group_id, topic.name), 1)
        assert (refused.error_code, refused.error_message) == (
            GROUP_ID_NOT_FOUND,
            f"Cannot upgrade classic group {classic.group_id} to consumer group because online upgrade is disabled.",
        )
        consumer = Consumer(broker, new_group(broker))
        assert consumer.join(topic.name).error_code == NONE
        protocols = [("range", subscription(topic.name))]
        answer = broker.send(join_request(consumer.group_id, protocols=protocols), 9)
        assert answer.error_code == INCONSISTENT_GROUP_PROTOCOL
        short = broker.send(join_request(consumer.group_id, protocols=protocols, session_timeout_ms=1), 9)
        assert short.error_code == INVALID_SESSION_TIMEOUT


def test_the_brokers_configs_are_those_of_groups_without_their_own() -> None:
    configs = {
        "group_consumer_heartbeat_interval_ms": "6000",
        "group_consumer_assignors": "range",
        "group_consumer_max_size": "1",
    }
    with start(**configs) as broker:
        topic = TopicFactory(broker)(2)
        member = Consumer(broker, new_group(broker))
        assert member.join(topic.name).heartbeat_interval_ms == interval_of(broker, 6_000)
        assert described_consumers(broker, member.group_id).assignor_name == "range"
        refused = Consumer(broker, member.group_id).join(topic.name)
        assert refused.error_message == "The consumer group has reached its maximum capacity of 1 members."
        unknown = broker.send(joining(member.group_id, "t", server_assignor="uniform"), 1)
        assert unknown.error_message == "ServerAssignor uniform is not supported. Supported assignors: range."
        configure(broker, member.group_id, consumer_heartbeat_interval_ms="7000")
        wait_for(lambda: member.beat().heartbeat_interval_ms == interval_of(broker, 7_000))


def test_a_full_classic_group_takes_no_more_members() -> None:
    with start(group_max_size="1") as broker:
        group_id = new_group(broker)
        assert Member(broker, group_id).join().error_code == NONE
        # Already the member id is refused.
        assert broker.send(join_request(group_id), 9).error_code == GROUP_MAX_SIZE_REACHED


def test_a_full_streams_group_takes_no_more_members() -> None:
    with start(group_streams_max_size="1") as broker:
        topic, group_id = TopicFactory(broker)(1), new_group(broker)
        source = Subtopology(subtopology_id="0", source_topics=[topic.name])

        def join(member_id: str) -> StreamsGroupHeartbeatResponse:
            joining_member = StreamsGroupHeartbeatRequest(
                group_id=group_id,
                member_id=member_id,
                member_epoch=0,
                rebalance_timeout_ms=60_000,
                topology=Topology(epoch=0, subtopologies=[source]),
                active_tasks=[],
                standby_tasks=[],
                warmup_tasks=[],
                process_id=member_id,
            )
            answer: StreamsGroupHeartbeatResponse = broker.send(joining_member, 0)
            return answer

        assert join("first").error_code == NONE
        refused = join("second")
        assert refused.error_code == GROUP_MAX_SIZE_REACHED
        assert refused.error_message == "The streams group has reached its maximum capacity of 1 members."


def test_share_groups_obey_their_own() -> None:
    """`share` among the protocols is known, and changes nothing: share.version says whether there are share groups."""
    with start(
        group_coordinator_rebalance_protocols="classic,consumer,share",
        group_share_max_size="1",
        group_share_min_session_timeout_ms="1000",
        group_share_session_timeout_ms="2500",
        group_share_min_heartbeat_interval_ms="500",
        group_share_heartbeat_interval_ms="500",
    ) as broker:
        share_groups_obey(broker)


def share_groups_obey(broker: Wire) -> None:
    topic, group_id = TopicFactory(broker)(1), share_group(broker)
    first, second = Sharer(broker, group_id), Sharer(broker, group_id)
    first.join(topic.name)
    settle(all_of(topic, 1), first)
    assert first.beat().heartbeat_interval_ms == 500
    answer = second.join(topic.name)
    assert answer.error_code == GROUP_MAX_SIZE_REACHED
    assert answer.error_message == "The share group has reached its maximum capacity of 1 members."
    wait_for(lambda: described(broker, group_id).group_state == "Empty")  # the first one says nothing any more
    assert first.beat().error_code == UNKNOWN_MEMBER_ID
    assert second.join(topic.name).error_code == NONE
