"""Streams groups (KIP-1071) beside Apache Kafka 4.4.0: rebalances and heartbeats.

    python bench/streams_groups.py [--only rebalance] [--only heartbeats]

rebalance   10 members have 200 tasks, 10 more join: from the first of these until all have 10 tasks each. Members answer each
            response with the next heartbeat, and give back tasks at once; initial delay and assignment interval are 0
heartbeats  5,000 members of 1,000 groups on eight connections, each every 3 s: what one core is busy with them
"""

import argparse
import statistics
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final

from broker_speed import ROUNDS, compared, new_topic
from brokers import Running, kafka, kafka_is_there, ottla, record
from groups import Wire, beat, ready
from ottla.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    Topology,
)

MEMBERS, TASKS = 20, 200
GROUPS, GROUP_SIZE = 1_000, 5
CONFIGS: Final = (
    "group.streams.initial.rebalance.delay.ms=0",
    "group.streams.assignment.interval.ms=0",
    "group.streams.session.timeout.ms=60000",
)


class Member:
    """One thread of an application, on a connection of its own."""

    def __init__(self, wire: Wire, group: str, topic: str) -> None:
        self.wire = wire
        self.member_id = str(uuid.uuid4())
        self.group = group
        self.topic = topic
        self.epoch = 0
        self.tasks: list[TaskIds] = []

    @property
    def count(self) -> int:
        return sum(len(row.partitions) for row in self.tasks)

    def join(self) -> None:
        topology = Topology(epoch=0, subtopologies=[Subtopology(subtopology_id="0", source_topics=[self.topic])])
        self._ask(
            rebalance_timeout_ms=60_000,
            topology=topology,
            process_id=self.member_id,
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
        )

    def beat(self) -> None:
        self._ask(active_tasks=self.tasks, standby_tasks=[], warmup_tasks=[])

    def quiet(self) -> StreamsGroupHeartbeatRequest:
        """A heartbeat without news."""
        return self._request()

    def leave(self) -> None:
        self.epoch = -1
        self._ask()

    def _request(self, **fields: Any) -> StreamsGroupHeartbeatRequest:
        return StreamsGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, member_epoch=self.epoch, **fields
        )

    def _ask(self, **fields: Any) -> None:
        answer = self.wire.ask(self._request(**fields), 1)
        assert answer.error_code == 0, answer
        assert not answer.status, answer.status
        self.epoch = answer.member_epoch
        if answer.active_tasks is not None:
            self.tasks = answer.active_tasks


def settle(members: list[Member]) -> None:
    """Heartbeats of all members in turn until every one has its part of the tasks."""
    share = TASKS // len(members)
    begun = time.perf_counter()
    while any(member.count != share for member in members):
        assert time.perf_counter() - begun < 60, [member.count for member in members]
        for member in members:
            member.beat()


def rebalance_seconds(broker: Running, topic: str) -> float:
    group = f"streams-{uuid.uuid4()}"
    members = [Member(Wire(broker), group, topic) for _ in range(MEMBERS)]
    first, others = members[: MEMBERS // 2], members[MEMBERS // 2 :]
    for member in first:
        member.join()
    settle(first)
    begun = time.perf_counter()
    for member in others:
        member.join()
    settle(members)
    elapsed = time.perf_counter() - begun
    for member in members:
        member.leave()
        member.wire.close()
    return elapsed


def rebalance(sides: list[Running]) -> dict[str, object]:
    topics = {side.name: new_topic(side, TASKS) for side in sides}
    for side in sides:
        ready(side).close()
    return {
        "rebalance": compared(
            f"rebalance from {MEMBERS // 2} to {MEMBERS} members with {TASKS} tasks",
            "ms",
            sides,
            lambda side: 1000 * rebalance_seconds(side, topics[side.name]),
        )
    }


def members_of_groups(broker: Running, wire: Wire) -> Iterator[StreamsGroupHeartbeatRequest]:
    """Join all groups, and return a heartbeat of each member that has its task."""
    topic = new_topic(broker, GROUP_SIZE)
    for number in range(GROUPS):
        group = [Member(wire, f"beating-{number}", topic) for _ in range(GROUP_SIZE)]
        for member in group:
            member.join()
        while any(member.count != 1 for member in group):
            for member in group:
                member.beat()
        for member in group:
            member.beat()
            yield member.quiet()


def heartbeats(sides: list[Running]) -> dict[str, object]:
    busy: dict[str, list[float]] = {}
    for side in sides:
        wire = ready(side)
        frames = [wire.frame(request, 1) for request in members_of_groups(side, wire)]
        beat(side, frames, 6)
        busy[side.name] = [beat(side, frames, 6) for _ in range(ROUNDS)]
        wire.close()
    shown = ", ".join(
        f"{name} {100 * statistics.median(values):.0f} % ({100 * min(values):.0f}-{100 * max(values):.0f})"
        for name, values in busy.items()
    )
    print(f"{GROUPS * GROUP_SIZE:,} members of {GROUPS:,} streams groups, a heartbeat each 3 s: {shown}", flush=True)
    return {"heartbeats": {name: statistics.median(values) for name, values in busy.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["rebalance", "heartbeats"], action="append")
    only = parser.parse_args().only or ["rebalance", "heartbeats"]
    missing = kafka_is_there()
    if missing:
        print(f"Apache Kafka is left out: {missing}")
    figures: dict[str, object] = {}
    with ExitStack() as stack:
        sides = [stack.enter_context(ottla(*CONFIGS))]
        if not missing:
            sides.append(stack.enter_context(kafka(*CONFIGS)))
        if "rebalance" in only:
            figures |= rebalance(sides)
        if "heartbeats" in only:
            figures |= heartbeats(sides)
    record(figures)


if __name__ == "__main__":
    main()
