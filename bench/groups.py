"""Groups and offsets beside Apache Kafka 4.4.0: commits, rebalances, heartbeats, and a restart with many offsets.

    python bench/groups.py [--only commits] [--only rebalance] [--only heartbeats] [--only restart]

commits     OffsetCommit 9 on one connection, one request in flight and ten, of one partition and of 100; alternating rounds of
            both brokers after a warm-up as in broker_speed.py, and the median of five
rebalance   20 consumers (confluent-kafka) on 200 partitions, from the last subscription to all assigned; for both protocols.
            Timers are the same on both brokers: group.initial.rebalance.delay.ms=0, heartbeats every 100 ms (classic) or
            500 ms (consumer), group.consumer.assignment.interval.ms=0
heartbeats  20,000 members of 4,000 groups on eight connections, each every 3 s, for both protocols: what one core is busy with
            them
restart     a million committed offsets in 1,000 groups: from the start of the process until all partitions of
            __consumer_offsets answer
"""

import argparse
import select
import shutil
import socket
import statistics
import struct
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer

from broker_speed import ROUNDS, compared, new_topic
from brokers import Running, kafka, kafka_is_there, ottla, record
from ottla.coordinators.partitions import partition_of
from ottla.protocol.connection import ClientConnection
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.protocol.messages.sync_group import SyncGroupRequest
from ottla.protocol.schema import Request

SECONDS: Final = 3.0
MEMBERS, PARTITIONS = 20, 200
GROUPS, GROUP_SIZE, EVERY_S, CONNECTIONS = 4_000, 5, 3.0, 8
OFFSET_GROUPS, OFFSETS_EACH = 1_000, 1_000
OFFSETS_TOPIC_PARTITIONS: Final = 50
CONFIGS: Final = (
    "group.initial.rebalance.delay.ms=0",
    "group.consumer.min.heartbeat.interval.ms=500",
    "group.consumer.heartbeat.interval.ms=500",
    "group.consumer.assignment.interval.ms=0",
)


class Wire:
    """A connection that waits for each answer, or sends prepared frames and counts answers."""

    def __init__(self, broker: Running) -> None:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), 60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._messages = ClientConnection("bench")

    def frame(self, request: Request, version: int) -> bytes:
        """A request's bytes, to be sent as often as wanted; its correlation id does not matter."""
        return b"".join(ClientConnection("bench").request(request, version))

    def prepared(self, request: Request, version: int) -> bytes:
        """A request's bytes, to be sent once, in the order of preparation."""
        return b"".join(self._messages.request(request, version))

    def send(self, request: Request, version: int) -> None:
        self.socket.sendall(self.prepared(request, version))

    def receive(self) -> Any:
        while True:
            messages = self._messages.feed(self.socket.recv(1 << 20))
            if messages:
                return messages[0]

    def ask(self, request: Request, version: int) -> Any:
        self.send(request, version)
        return self.receive()

    def close(self) -> None:
        self.socket.close()


class Answers:
    """Splits what a socket receives into answers."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        data = self._rest + data
        messages, at = [], 0
        while at + 4 <= len(data):
            size = struct.unpack_from(">i", data, at)[0]
            if at + 4 + size > len(data):
                break
            messages.append(data[at + 4 : at + 4 + size])
            at += 4 + size
        self._rest = data[at:]
        return messages


def ready(broker: Running) -> Wire:
    """A connection to a broker that coordinates groups in all partitions: it is asked until it says so."""
    wire = Wire(broker)
    groups = [f"any-{number}" for number in range(1000)]
    while any(
        coordinator.error_code
        for coordinator in wire.ask(FindCoordinatorRequest(coordinator_keys=groups), 4).coordinators
    ):
        time.sleep(0.1)  # a coordinator that loads says no more than that: it is asked again
    asked = [OffsetFetchRequestGroup(group_id=group, topics=[]) for group in groups]
    while any(group.error_code for group in wire.ask(OffsetFetchRequest(groups=asked), 8).groups):
        time.sleep(0.1)  # as above
    return wire


# Commits


def commit(group: str, topic: str, partitions: int, offset: int = 42) -> OffsetCommitRequest:
    parts = [
        OffsetCommitRequestPartition(partition_index=number, committed_offset=offset, committed_metadata="")
        for number in range(partitions)
    ]
    return OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=parts)])


def commits_per_second(broker: Running, topic: str, partitions: int, in_flight: int) -> float:
    """Answered OffsetCommits/s on one connection."""
    wire = ready(broker)
    frame = wire.frame(commit("bench-commits", topic, partitions), 9)
    answers, done, out = Answers(), 0, in_flight
    begun = time.perf_counter()
    wire.socket.sendall(frame * in_flight)
    while time.perf_counter() - begun < SECONDS:
        responses = answers.feed(wire.socket.recv(1 << 18))
        for response in responses:
            # The last partition's error code, before three empty sets of tags.
            assert response[-5:-3] == b"\0\0", response
        done += len(responses)
        wire.socket.sendall(frame * len(responses))
    rate = done / (time.perf_counter() - begun)
    while out:
        out -= len(answers.feed(wire.socket.recv(1 << 18)))
    wire.close()
    return rate


def commits(sides: list[Running]) -> dict[str, object]:
    topics = {side.name: new_topic(side, 100) for side in sides}
    return {
        (name := f"offset commits of {partitions} partition{'s' * (partitions > 1)}, {in_flight} in flight"): compared(
            name,
            "/s",
            sides,
            lambda side, p=partitions, n=in_flight: commits_per_second(side, topics[side.name], p, n),  # type: ignore[misc]
        )
        for partitions in (1, 100)
        for in_flight in (1, 10)
    }


# Rebalance


def rebalance_seconds(broker: Running, topic: str, protocol: str) -> float:
    """From the last subscription of MEMBERS consumers until each has its share."""
    settings: dict[str, str | int | bool] = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": f"bench-{uuid.uuid4().hex[:8]}",
        "group.protocol": protocol,
        "enable.auto.commit": False,
    }
    if protocol == "classic":
        settings |= {"heartbeat.interval.ms": 100, "partition.assignment.strategy": "cooperative-sticky"}
    members = [Consumer(settings) for _ in range(MEMBERS)]
    for member in members:
        member.list_topics(topic, 10)  # connected
    for member in members:
        member.subscribe([topic])
    begun = time.perf_counter()
    share = PARTITIONS // MEMBERS
    while True:
        for member in members:
            member.poll(0)
        shares = [member.assignment() for member in members]
        if all(len(assigned) == share for assigned in shares):
            break
        assert time.perf_counter() - begun < 60, [len(assigned) for assigned in shares]
        time.sleep(0.002)  # librdkafka works in threads of its own, and tells of an assignment in poll only
    elapsed = time.perf_counter() - begun
    for member in members:
        member.close()
    return elapsed


def rebalance(sides: list[Running]) -> dict[str, object]:
    topics = {side.name: new_topic(side, PARTITIONS) for side in sides}
    return {
        f"rebalance, {protocol} protocol": compared(
            f"rebalance of {MEMBERS} members on {PARTITIONS} partitions, {protocol}",
            "ms",
            sides,
            lambda side, p=protocol: 1000 * rebalance_seconds(side, topics[side.name], p),  # type: ignore[misc]
        )
        for protocol in ("classic", "consumer")
    }


# Heartbeats


def classic_members(broker: Running) -> Iterator[tuple[Request, int]]:
    """Join GROUPS groups of GROUP_SIZE members each, some at a time; the heartbeat of each member, and its version."""
    lanes = 40
    wires = [[Wire(broker) for _ in range(GROUP_SIZE)] for _ in range(lanes)]
    protocol = JoinGroupRequestProtocol(name="p", metadata=b"m")
    for first in range(0, GROUPS, lanes):
        for lane, wire_group in enumerate(wires):
            for wire in wire_group:
                request = JoinGroupRequest(
                    group_id=f"classic-{first + lane}",
                    session_timeout_ms=600_000,
                    rebalance_timeout_ms=60_000,
                    member_id="",
                    protocol_type="bench",
                    protocols=[protocol],
                )
                wire.send(request, 3)
        for lane, wire_group in enumerate(wires):
            group = f"classic-{first + lane}"
            joined = [wire.receive() for wire in wire_group]
            assert len({response.generation_id for response in joined}) == 1, joined
            for wire, response in zip(wire_group, joined, strict=True):
                sync = SyncGroupRequest(
                    group_id=group, generation_id=response.generation_id, member_id=response.member_id, assignments=[]
                )
                wire.send(sync, 2)
            for wire, response in zip(wire_group, joined, strict=True):
                assert wire.receive().error_code == 0
                yield (
                    HeartbeatRequest(
                        group_id=group, generation_id=response.generation_id, member_id=response.member_id
                    ),
                    3,
                )
    for wire_group in wires:
        for wire in wire_group:
            wire.close()


def consumer_members(broker: Running) -> Iterator[tuple[Request, int]]:
    """The same with the new protocol: their topic has a partition for each."""
    topic = new_topic(broker, GROUP_SIZE)
    wire = ready(broker)
    for number in range(GROUPS):
        group = f"consumer-{number}"
        for _ in range(GROUP_SIZE):
            member = str(uuid.uuid4())
            join = ConsumerGroupHeartbeatRequest(
                group_id=group,
                member_id=member,
                member_epoch=0,
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=[topic],
                topic_partitions=[],
            )
            answer = wire.ask(join, 1)
            assert answer.error_code == 0, answer
            epoch = answer.member_epoch
            yield ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch), 1
    wire.close()


def settle(wire: Wire, beats: list[tuple[Request, int]]) -> list[tuple[Request, int]]:
    """Consumers of the new protocol take and give back until all have one partition, so that only silence is left to tell."""
    topics: dict[int, Any] = {}
    for _ in range(6):
        moved = 0
        for at, (beat, version) in enumerate(beats):
            if not isinstance(beat, ConsumerGroupHeartbeatRequest):
                return beats
            beat.topic_partitions = topics.get(at)
            answer = wire.ask(beat, version)
            assert answer.error_code == 0, answer
            beat.member_epoch, beat.topic_partitions = answer.member_epoch, None
            if answer.assignment is not None:
                topics[at] = answer.assignment.topic_partitions
                moved += 1
        if not moved:
            break
    return beats


def beat(broker: Running, frames: list[bytes], seconds: float) -> float:
    """Send all frames every EVERY_S, evenly; how much of one core the broker was busy."""
    wires = [Wire(broker) for _ in range(CONNECTIONS)]
    answers = {wire.socket: Answers() for wire in wires}
    sent = received = refused = 0
    begun, cpu = time.perf_counter(), broker.cpu_seconds()
    rate = len(frames) / EVERY_S
    while (elapsed := time.perf_counter() - begun) < seconds:
        due = int(elapsed * rate)
        for number in range(sent, due):
            wires[number % CONNECTIONS].socket.sendall(frames[number % len(frames)])
        sent = max(sent, due)
        for readable in select.select([wire.socket for wire in wires], [], [], 0.005)[0]:
            for response in answers[readable].feed(readable.recv(1 << 16)):
                received += 1
                refused += response[8:10] != b"\0\0" and response[9:11] != b"\0\0"
    busy = (broker.cpu_seconds() - cpu) / (time.perf_counter() - begun)
    for wire in wires:
        wire.close()
    assert refused == 0, f"{refused} of {received} heartbeats were refused"
    assert received > 0.98 * rate * seconds, f"{received} answers in {seconds} s"
    return busy


def heartbeats(sides: list[Running]) -> dict[str, object]:
    figures: dict[str, object] = {}
    for protocol, join in (("classic", classic_members), ("consumer", consumer_members)):
        busy: dict[str, list[float]] = {}
        for side in sides:
            wire = ready(side)
            frames = [wire.frame(request, version) for request, version in settle(wire, list(join(side)))]
            beat(side, frames, 6)
            busy[side.name] = [beat(side, frames, 6) for _ in range(ROUNDS)]
            wire.close()
        shown = ", ".join(
            f"{name} {100 * statistics.median(values):.0f} % ({100 * min(values):.0f}-{100 * max(values):.0f})"
            for name, values in busy.items()
        )
        total = GROUPS * GROUP_SIZE
        print(
            f"{total:,} members of {GROUPS:,} groups, a heartbeat each {EVERY_S:.0f} s, {protocol}: {shown}", flush=True
        )
        figures[f"heartbeats, {protocol} protocol, share of a core"] = {
            name: statistics.median(values) for name, values in busy.items()
        }
    return figures


# Restart


def unloaded(wire: Wire, topic: str, groups: list[str]) -> list[str]:
    """The groups whose coordinator does not answer for their offsets yet."""
    asked = [
        OffsetFetchRequestGroup(group_id=group, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])])
        for group in groups
    ]
    response = wire.ask(OffsetFetchRequest(groups=asked), 8)
    for group in response.groups:
        if group.error_code == 0:
            assert group.topics[0].partitions[0].committed_offset == 42, group
    return [group.group_id for group in response.groups if group.error_code != 0]


def restart_seconds(start: Callable[[Path], AbstractContextManager[Running]]) -> tuple[list[float], list[float]]:
    """Seconds from the start of the process, and from its first answer, until all offsets are answered."""
    data = Path(tempfile.mkdtemp(prefix="offsets-bench-"))
    groups = [f"offsets-{number}" for number in range(OFFSET_GROUPS)]
    from_start, from_answer = [], []
    try:
        with start(data) as broker:
            topic = new_topic(broker, OFFSETS_EACH)
            wire = ready(broker)
            for group in groups:
                answer = wire.ask(commit(group, topic, OFFSETS_EACH), 9)
                assert {part.error_code for part in answer.topics[0].partitions} == {0}
            wire.close()
        for _ in range(ROUNDS):
            with start(data) as broker:
                begun = time.perf_counter()
                wire = Wire(broker)
                left = list({partition_of(group, OFFSETS_TOPIC_PARTITIONS): group for group in groups}.values())
                while left := unloaded(wire, topic, left):
                    time.sleep(0.1)  # there is no notification of the end of loading
                elapsed = time.perf_counter() - begun
                from_answer.append(elapsed)
                from_start.append(elapsed + broker.started_ms / 1000)
                wire.close()
    finally:
        shutil.rmtree(data, ignore_errors=True)
    return from_start, from_answer


def restart(with_kafka: bool) -> dict[str, object]:
    @contextmanager
    def our(data: Path) -> Iterator[Running]:
        with ottla(*CONFIGS, data=data) as broker:
            yield broker

    @contextmanager
    def theirs(data: Path) -> Iterator[Running]:
        with kafka(*CONFIGS, data=data) as broker:
            yield broker

    figures: dict[str, object] = {}
    for name, start in (("Ottla", our), ("Apache Kafka 4.4.0", theirs))[: 1 + with_kafka]:
        from_start, from_answer = restart_seconds(start)
        whole, loading = statistics.median(from_start), statistics.median(from_answer)
        print(
            f"restart with {OFFSET_GROUPS * OFFSETS_EACH:,} committed offsets: {name} {whole:.1f} s from its start "
            f"({min(from_start):.1f}-{max(from_start):.1f}), {loading:.1f} s from its first answer",
            flush=True,
        )
        figures[name] = {"from_start_s": whole, "from_first_answer_s": loading}
    return {"restart": figures}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = ["commits", "rebalance", "heartbeats", "restart"]
    parser.add_argument("--only", choices=parts, action="append")
    only = parser.parse_args().only or parts
    missing = kafka_is_there()
    if missing:
        print(f"Apache Kafka is left out: {missing}")
    figures: dict[str, object] = {}
    with ExitStack() as stack:
        sides = [stack.enter_context(ottla(*CONFIGS))]
        if not missing:
            sides.append(stack.enter_context(kafka(*CONFIGS)))
        if "commits" in only:
            figures |= commits(sides)
        if "rebalance" in only:
            figures |= rebalance(sides)
    if "heartbeats" in only:
        delayed = ("group.initial.rebalance.delay.ms=200", "group.consumer.session.timeout.ms=60000", *CONFIGS[1:])
        with ExitStack() as stack:
            sides = [stack.enter_context(ottla(*delayed))]
            if not missing:
                sides.append(stack.enter_context(kafka(*delayed)))
            figures |= heartbeats(sides)
    if "restart" in only:
        figures |= restart(not missing)
    record(figures)


if __name__ == "__main__":
    main()
