"""Share groups beside Apache Kafka 4.4.0.

    python bench/share_groups.py [--only rate] [--records 1000000]

rate      records/s of 100 bytes through one share group, with one consumer and with eight, over four partitions: each
          ShareFetch accepts what the one before it brought, up to 500 records at once, as Kafka's own consumer does by default.
          Both brokers are spoken to by the same program, which looks at what was acquired, not into the records
latency   the time from ShareAcknowledge of one record to its answer: until then it is in __share_group_state
memory    what Ottla needs for 10,000 records in flight in one partition, and for 2,000 in each of fifty, every record a batch
          of its own
"""

import argparse
import base64
import selectors
import socket
import statistics
import time
import uuid
from contextlib import ExitStack
from typing import Any

from confluent_kafka import Producer

from broker_speed import new_topic
from brokers import Running, kafka, kafka_is_there, ottla, record
from ottla.protocol.connection import ClientConnection
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeStateData,
    PartitionData,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from ottla.protocol.messages.share_fetch import AcknowledgementBatch as Piggybacked
from ottla.protocol.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from ottla.protocol.schema import Request

PARTITIONS = 4
ROUNDS = 3
AT_ONCE = 500
CONSUMERS = (1, 8)
VALUE = b"v" * 100
LOCKS = ("group.share.max.partition.max.record.locks=10000", "group.share.partition.max.record.locks=10000")


class Requests:
    """One connection, spoken to in messages."""

    def __init__(self, broker: Running) -> None:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), 60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = ClientConnection("bench")

    def send(self, request: Request, version: int) -> None:
        self.socket.sendall(b"".join(self._connection.request(request, version)))

    def received(self) -> list[Any]:
        """The answers that are complete with what has come."""
        data = self.socket.recv(1 << 18)
        if not data:
            raise SystemExit("the broker has closed a connection")
        return list(self._connection.feed(data))

    def ask(self, request: Request, version: int) -> Any:
        self.send(request, version)
        answers: list[Any] = []
        while not answers:
            answers = self.received()
        return answers[0]


class Group:
    """A share group at the beginning of a topic of its own."""

    def __init__(self, broker: Running, partitions: int) -> None:
        self.broker = broker
        self.name = new_topic(broker, partitions)
        self.partitions = partitions
        requests = Requests(broker)
        named = MetadataRequest(topics=[MetadataRequestTopic(name=self.name)], allow_auto_topic_creation=False)
        self.topic_id: bytes = requests.ask(named, 12).topics[0].topic_id
        text = base64.urlsafe_b64encode(self.topic_id).decode().rstrip("=")
        keys = [f"{self.name}:{text}:{index}" for index in range(partitions)]
        states = [PartitionData(partition=index, state_epoch=0, start_offset=0) for index in range(partitions)]
        begin = InitializeShareGroupStateRequest(
            group_id=self.name, topics=[InitializeStateData(topic_id=self.topic_id, partitions=states)]
        )
        while True:
            requests.ask(FindCoordinatorRequest(key_type=2, coordinator_keys=keys), 6)
            answer = requests.ask(begin, 0)
            if not any(partition.error_code for topic in answer.results for partition in topic.partitions):
                return
            time.sleep(0.1)  # the coordinator is asked until it has loaded its state

    def fill(self, records: int, batch_bytes: int = 16_384) -> None:
        """Produce `records` in all, in batches of so many bytes."""
        producer = Producer(
            {
                "bootstrap.servers": self.broker.bootstrap_servers,
                "linger.ms": 20,
                "batch.size": batch_bytes,
                "batch.num.messages": 1 if batch_bytes < len(VALUE) else 10_000,
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        for number in range(records):
            while True:
                try:
                    producer.produce(self.name, VALUE, partition=number % self.partitions)
                    break
                except BufferError:
                    producer.poll(0.01)
            if number % 1000 == 0:
                producer.poll(0)
        producer.flush(120)


class Member:
    """A consumer that accepts with each fetch what the one before it brought."""

    def __init__(self, group: Group) -> None:
        self.requests = Requests(group.broker)
        self.group = group
        self.member_id = uuid.uuid4().hex[:22]
        self.epoch = 0
        self.held: dict[int, list[tuple[int, int]]] = {}

    def fetch(self, most: int = AT_ONCE, size: int = AT_ONCE, wait_ms: int = 500) -> None:
        """Ask for records; acknowledge those that were brought."""
        acknowledged = {
            index: [Piggybacked(first_offset=first, last_offset=last, acknowledge_types=[1]) for first, last in ranges]
            for index, ranges in self.held.items()
        }
        if self.epoch == 0:
            acknowledged = {index: [] for index in range(self.group.partitions)}
        partitions = [
            FetchPartition(partition_index=index, acknowledgement_batches=batches)
            for index, batches in acknowledged.items()
        ]
        request = ShareFetchRequest(
            group_id=self.group.name,
            member_id=self.member_id,
            share_session_epoch=self.epoch,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=50 << 20,
            max_records=most,
            batch_size=size,
            topics=[FetchTopic(topic_id=self.group.topic_id, partitions=partitions)] if partitions else [],
        )
        self.requests.send(request, 1)
        self.epoch += 1

    def took(self, answer: Any) -> int:
        """Number of records of an answer."""
        assert answer.error_code == 0, answer.error_code
        self.held = {}
        count = 0
        for topic in answer.responses:
            for partition in topic.partitions:
                assert partition.error_code == partition.acknowledge_error_code == 0, (
                    partition.error_code,
                    partition.acknowledge_error_code,
                )
                if partition.acquired_records:
                    ranges = [(one.first_offset, one.last_offset) for one in partition.acquired_records]
                    self.held[partition.partition_index] = ranges
                    count += sum(last - first + 1 for first, last in ranges)
        return count

    def fetched(self, **wish: int) -> int:
        """Fetch, and wait for the answer."""
        self.fetch(**wish)
        answers: list[Any] = []
        while not answers:
            answers = self.requests.received()
        return self.took(answers[0])


def rate(broker: Running, consumers: int, records: int) -> float:
    """Records/s until all have been through the group."""
    group = Group(broker, PARTITIONS)
    group.fill(records)
    members = [Member(group) for _ in range(consumers)]
    selector = selectors.DefaultSelector()
    for member in members:
        selector.register(member.requests.socket, selectors.EVENT_READ, member)
    left = records
    started = time.perf_counter()
    for member in members:
        member.fetch()
    while left > 0:
        for key, _ in selector.select(30):
            for answer in key.data.requests.received():
                left -= key.data.took(answer)
                if left > 0:
                    key.data.fetch()
    elapsed = time.perf_counter() - started
    assert left == 0, left
    return records / elapsed


def rates(sides: list[Running], records: int) -> dict[str, object]:
    figures: dict[str, object] = {}
    for consumers in CONSUMERS:
        for side in sides:
            rate(side, consumers, records)  # warm
        by_side: dict[str, list[float]] = {side.name: [] for side in sides}
        for _ in range(ROUNDS):
            for side in sides:
                by_side[side.name].append(rate(side, consumers, records))
        medians = {name: statistics.median(values) for name, values in by_side.items()}
        shown = "; ".join(f"{name} {value:,.0f} records/s" for name, value in medians.items())
        print(f"share group with {consumers} consumer{'s' * (consumers > 1)}: {shown}", flush=True)
        figures[f"{consumers} consumers"] = medians
    return figures


def acknowledgement_times(broker: Running, count: int) -> list[float]:
    """Milliseconds from an acknowledgement of one record to its answer."""
    group = Group(broker, 1)
    group.fill(2 * count)
    member = Member(group)
    times: list[float] = []
    while len(times) < count:
        member.fetched()
        for first, last in member.held.pop(0, []):
            for offset in range(first, last + 1):
                batch = AcknowledgementBatch(first_offset=offset, last_offset=offset, acknowledge_types=[1])
                partition = AcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
                request = ShareAcknowledgeRequest(
                    group_id=group.name,
                    member_id=member.member_id,
                    share_session_epoch=member.epoch,
                    topics=[AcknowledgeTopic(topic_id=group.topic_id, partitions=[partition])],
                )
                begun = time.perf_counter()
                answer = member.requests.ask(request, 1)
                times.append((time.perf_counter() - begun) * 1000)
                member.epoch += 1
                assert answer.responses[0].partitions[0].error_code == 0
    return times


def latency(sides: list[Running], count: int) -> dict[str, object]:
    figures: dict[str, object] = {}
    shown = []
    for side in sides:
        acknowledgement_times(side, 500)  # warm
        times = sorted(acknowledgement_times(side, count))
        p50, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
        figures[side.name] = {"p50_ms": p50, "p99_ms": p99}
        shown.append(f"{side.name} p50 {p50:.2f} ms, p99 {p99:.2f} ms")
    print(f"acknowledgement to committed: {'; '.join(shown)}", flush=True)
    return figures


def allow_locks(group: Group, locks: int) -> None:
    """share.partition.max.record.locks of a group."""
    config = AlterableConfig(name="share.partition.max.record.locks", config_operation=0, value=str(locks))
    resource = AlterConfigsResource(resource_type=32, resource_name=group.name, configs=[config])
    (answer,) = Requests(group.broker).ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert answer.error_code == 0, answer.error_message


def memory() -> dict[str, object]:
    figures: dict[str, object] = {}
    for partitions, locks in ((1, 10_000), (50, 2000)):
        with ottla(*LOCKS) as broker:
            group = Group(broker, partitions)
            allow_locks(group, locks)
            group.fill(partitions * locks, batch_bytes=1)
            members = [Member(group) for _ in range(2)]
            members[0].fetched(most=1, size=1)
            before = broker.resident_mb()
            taken = 0
            while taken < partitions * locks - 1:
                held = members[1].fetched(most=2000, size=1)
                members[1].held = {}
                taken += held
            grown = broker.resident_mb() - before
        print(
            f"memory for {locks:,} records in flight in {partitions} partition{'s' * (partitions > 1)}: {grown:.1f} MB",
            flush=True,
        )
        figures[f"{partitions} x {locks}"] = grown
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["rate", "latency", "memory"], action="append")
    parser.add_argument("--records", type=int, default=1_000_000, help="records of a round of `rate`")
    parser.add_argument("--acknowledgements", type=int, default=5000, help="how many `latency` measures")
    arguments = parser.parse_args()
    only = arguments.only or ["rate", "latency", "memory"]
    figures: dict[str, object] = {}
    if "rate" in only or "latency" in only:
        missing = kafka_is_there()
        if missing:
            print(f"Apache Kafka is left out: {missing}")
        with ExitStack() as stack:
            sides = [stack.enter_context(ottla())]
            if not missing:
                sides.append(stack.enter_context(kafka()))
            if "rate" in only:
                figures["rate"] = rates(sides, arguments.records)
            if "latency" in only:
                figures["latency"] = latency(sides, arguments.acknowledgements)
    if "memory" in only:
        figures["memory"] = memory()
    record(figures)


if __name__ == "__main__":
    main()
