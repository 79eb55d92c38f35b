"""Members that join a new group, with the default timers, beside Apache Kafka 4.4.0: how long until they have partitions.

    python bench/joining.py [--rounds 5]

consumers   two consumers of librdkafka (group.protocol=consumer), the second one 100 ms after the first, on four partitions:
            from the first subscription until both have two
share       one member of a share group, which sends its next heartbeat when the response asks for it, as Kafka's own clients
            do: from the first heartbeat until it has its partitions
"""

import argparse
import statistics
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from confluent_kafka import Consumer

from broker_speed import new_topic
from brokers import Running, kafka, kafka_is_there, ottla, record
from groups import Wire
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

PARTITIONS = 4
APART_S = 0.1
LIMIT_S = 60


def consumers_ms(broker: Running, topic: str) -> float:
    """From the first subscription of two consumers until each has half of the partitions."""
    configs: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": f"bench-{uuid.uuid4().hex[:8]}",
        "group.protocol": "consumer",
    }
    members = [Consumer(configs) for _ in range(2)]
    for member in members:
        member.list_topics(topic, 10)  # connected
    begun = time.perf_counter()
    members[0].subscribe([topic])
    joins_at = begun + APART_S
    while any(len(member.assignment()) != PARTITIONS // 2 for member in members):
        now = time.perf_counter()
        assert now - begun < LIMIT_S, [len(member.assignment()) for member in members]
        if joins_at and now >= joins_at:
            members[1].subscribe([topic])
            joins_at = 0
        for member in members:
            member.poll(0)
        time.sleep(0.002)
    elapsed = time.perf_counter() - begun
    for member in members:
        member.close()
    return 1000 * elapsed


def share_ms(broker: Running, topic: str) -> float:
    """From the first heartbeat of a share group's only member until it has its partitions."""
    group, member = f"bench-{uuid.uuid4().hex[:8]}", uuid.uuid4().hex
    wire = Wire(broker)
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    while wire.ask(find, 4).coordinators[0].error_code:
        time.sleep(0.1)
    begun = time.perf_counter()
    epoch, topics = 0, [topic]
    while True:
        request = ShareGroupHeartbeatRequest(
            group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=topics or None
        )
        answer = wire.ask(request, 1)
        assert answer.error_code == 0, (answer.error_code, answer.error_message)
        if answer.assignment is not None and answer.assignment.topic_partitions:
            break
        epoch, topics = answer.member_epoch, []
        time.sleep(answer.heartbeat_interval_ms / 1000)
    elapsed = time.perf_counter() - begun
    wire.ask(ShareGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=-1), 1)
    wire.close()
    return 1000 * elapsed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    missing = kafka_is_there()
    if missing:
        print(f"Apache Kafka is left out: {missing}")
    measures: dict[str, Callable[[Running, str], float]] = {
        "two consumers until both have partitions, ms": consumers_ms,
        "member of a new share group until it has partitions, ms": share_ms,
    }
    figures: dict[str, object] = {}
    with ExitStack() as stack:
        sides = [stack.enter_context(ottla()), *([] if missing else [stack.enter_context(kafka())])]
        topics = {side.name: new_topic(side, PARTITIONS) for side in sides}
        for name, measure in measures.items():
            for side in sides:
                measure(side, topics[side.name])  # warm: the internal topics are there
            medians = {
                side.name: statistics.median(measure(side, topics[side.name]) for _ in range(arguments.rounds))
                for side in sides
            }
            print(f"{name}: {'; '.join(f'{side} {value:,.0f}' for side, value in medians.items())}", flush=True)
            figures[name] = medians
    record(figures)


if __name__ == "__main__":
    main()
