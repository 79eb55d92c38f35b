"""`ottla replica-verification`: Kafka's kafka-replica-verification, with its flags and its lines.

All replicas of a partition are read at the same offset, each at its own broker, with the replica id of a debugger (-2). The
batches that all of them returned are compared byte for byte; then the next ones are read:

    offset 40                            [40-44][45-51]          replica 1: the leader
                                         [40-44][45-51][52-60]   replica 2
    compared: 40 to 51, next offset 52

Brokers return nothing above their high watermarks, where replicas may differ. Replicas of a compacted topic may be compacted
up to different offsets, so that they differ without a fault.
"""

import re
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

import click

from ottla.cli.cluster_access import AdminConnection, CommandFailed, bootstrap_options, connect
from ottla.cli.completion import complete_topics
from ottla.cli.stopping import Stop, exit_on_signals
from ottla.client.admin.topics import Topics
from ottla.client.errors import KafkaError
from ottla.client.topics import EARLIEST, TopicPartition
from ottla.protocol.errors import NONE, OFFSET_OUT_OF_RANGE, name_of
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.records.batch import BatchHeader, crc_ok, scan

_DEBUGGER: Final = -2
"""Replica id that followers and leaders serve, and that counts as no follower."""
_NEWEST_BY_NAME: Final = 12
"""Newest version of Fetch that names topics, instead of their ids."""
_MAX_RESPONSE_BYTES: Final = 0x7FFFFFFF
_RETRY_S: Final = 1.0


@click.command("replica-verification")
@bootstrap_options
@click.option("--broker-list", metavar="HOST:PORT,...", help="The same as --bootstrap-server.")
@click.option("--command-config", metavar="FILE", help="Properties for the client, one name=value a line.")
@click.option(
    "--topics-include",
    default=".*",
    show_default=True,
    metavar="REGEX",
    help="Topics to verify.",
    shell_complete=complete_topics,
)
@click.option(
    "--fetch-size", type=click.IntRange(1), default=1 << 20, show_default=True, metavar="BYTES", help="Size of a fetch."
)
@click.option(
    "--max-wait-ms", type=click.IntRange(0), default=1000, show_default=True, metavar="MS", help="Wait of a fetch."
)
@click.option(
    "--report-interval-ms",
    type=click.IntRange(1),
    default=30_000,
    show_default=True,
    metavar="MS",
    help="Interval of reports.",
)
@click.option(
    "--time",
    "moment",
    type=int,
    default=-1,
    show_default=True,
    metavar="TIMESTAMP|-1|-2",
    help="Begin at the records of this time in ms, at the latest (-1) or the earliest (-2).",
)
@click.option(
    "--once", is_flag=True, help="End when all records that were there at the start are verified; 1 if replicas differ."
)
def replica_verification(
    bootstrap_server: str | None,
    broker_list: str | None,
    command_config: str | None,
    topics_include: str,
    *,
    fetch_size: int,
    max_wait_ms: int,
    report_interval_ms: int,
    moment: int,
    once: bool,
) -> None:
    """Verify that all replicas of topics have the same records, until SIGTERM or Ctrl-C."""
    with connect(Topics, bootstrap_server or broker_list, command_config) as cluster, exit_on_signals() as stop:
        replicas = _replicas(cluster, topics_include)
        verification = Verification(cluster, replicas, fetch_size, max_wait_ms)
        verification.begin(moment)
        click.echo(f"{_now()}: verification process is started")
        _verify(verification, stop, report_interval_ms / 1000, once=once)
    if verification.mismatches:
        raise CommandFailed(f"the replicas of {len(verification.mismatches)} partitions differ")


def _replicas(cluster: AdminConnection[Topics], pattern: str) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the nodes of the replicas of all partitions that a pattern matches. Raises UsageError and CommandFailed."""
    try:
        fits = re.compile(pattern.strip().strip("\"'").replace(",", "|")).fullmatch
    except re.error as error:
        raise click.UsageError(f"--topics-include {pattern}: {error}") from None
    topics = cluster.ask(cluster.admin.list_topics()).values()
    replicas = {
        TopicPartition(info.name, index): nodes
        for info in topics
        if fits(info.name)
        for index, nodes in sorted(info.replicas.items())
    }
    if not replicas:
        raise CommandFailed(f"no topic matches {pattern}")
    return replicas


def _verify(verification: "Verification", stop: Stop, interval_s: float, *, once: bool) -> None:
    report_at = time.monotonic() + interval_s
    while not stop.requested:
        for line in verification.compare():
            click.echo(f"{_now()}: {line}")
        is_complete = once and verification.is_complete
        if is_complete or time.monotonic() >= report_at:
            report_at += interval_s
            click.echo(f"{_now()}: {verification.report()}")
        if is_complete:
            return
        if verification.errors:
            stop.sleep(_RETRY_S)


def _now() -> str:
    moment = datetime.now()  # noqa: DTZ005  (the local time, as Kafka's tool)
    return f"{moment:%Y-%m-%d %H:%M:%S},{moment.microsecond // 1000:03}"


class _Replica(NamedTuple):
    """Response of one replica: batches from the offset on, and its high watermark."""

    node: int
    high_watermark: int
    data: bytes
    batches: list[BatchHeader]

    def batch(self, number: int) -> bytes:
        header = self.batches[number]
        return self.data[header.start : header.end]


class Verification:
    """Comparison of the replicas of partitions.

    mismatches  partitions with replicas that differ
    errors      error of each node and partition that could not be read in the last round
    """

    def __init__(
        self,
        cluster: AdminConnection[Topics],
        replicas: Mapping[TopicPartition, tuple[int, ...]],
        fetch_size: int,
        max_wait_ms: int,
    ) -> None:
        self.mismatches: set[TopicPartition] = set()
        self.errors: dict[tuple[int, TopicPartition], str] = {}
        self._cluster = cluster
        self._replicas = replicas
        self._fetch_size = fetch_size
        self._max_wait_ms = max_wait_ms
        self._offsets: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}
        """End of each partition at the start, exclusive."""
        self._high_watermarks: dict[TopicPartition, int] = {}

    def begin(self, moment: int) -> None:
        """Start at the first records at or after a time, or at a special time. Raises CommandFailed."""
        self._offsets = self._list_offsets(moment)
        self._ends = self._list_offsets(-1)
        for partition, offset in self._offsets.items():
            if offset < 0:  # no record is that new
                self._offsets[partition] = self._ends[partition]
        self._high_watermarks = dict(self._ends)

    def _list_offsets(self, moment: int) -> dict[TopicPartition, int]:
        admin = self._cluster.admin
        results = self._cluster.ask(admin.list_offsets(dict.fromkeys(self._replicas, moment)))
        if results.errors:
            partition, error = min(results.errors.items())
            raise CommandFailed(f"no offset of {partition}: {error}")
        return {partition: position.offset for partition, position in results.successes.items()}

    @property
    def is_complete(self) -> bool:
        """True when all records that were there at the start are verified."""
        return all(self._offsets[partition] >= end for partition, end in self._ends.items())

    def report(self) -> str:
        """Return the line about the partition that is verified least."""
        lags = {partition: self._high_watermarks[partition] - self._offsets[partition] for partition in self._replicas}
        partition = max(lags, key=lambda one: lags[one])
        place = f"partition {partition} at offset {self._offsets[partition]}"
        return f"max lag is {max(0, lags[partition])} for {place} among {len(lags)} partitions"

    def compare(self) -> Iterator[str]:
        """Read all replicas once, compare them, and yield a line for every difference and new error."""
        before, self.errors = self.errors, {}
        responses = self._read()
        for partition, replicas in responses.items():
            for replica in replicas:
                known = self._high_watermarks[partition]
                self._high_watermarks[partition] = max(known, replica.high_watermark)
            if len(replicas) == len(self._replicas[partition]):
                yield from self._compare(partition, replicas)
        for (node, partition), error in self.errors.items():
            if before.get((node, partition)) != error:
                yield f"partition {partition}: replica {node} at offset {self._offsets[partition]}: {error}"

    def _read(self) -> dict[TopicPartition, list[_Replica]]:
        """Read each partition at its offset at all brokers that have a replica."""
        by_node: dict[int, list[TopicPartition]] = {}
        for partition, nodes in self._replicas.items():
            for node in nodes:
                by_node.setdefault(node, []).append(partition)
        requests = [self._fetch(node, partitions) for node, partitions in sorted(by_node.items())]
        responses: dict[TopicPartition, list[_Replica]] = {}
        for replicas in self._cluster.ask(self._cluster.admin.side_by_side(requests)):
            for partition, replica in replicas.items():
                responses.setdefault(partition, []).append(replica)
        behind = [partition for (_, partition), error in self.errors.items() if error == name_of(OFFSET_OUT_OF_RANGE)]
        if behind:  # deleted at a replica meanwhile
            starts = self._cluster.ask(self._cluster.admin.list_offsets(dict.fromkeys(behind, EARLIEST)))
            for partition, start in starts.successes.items():
                self._offsets[partition] = max(self._offsets[partition], start.offset)
        return responses

    async def _fetch(self, node: int, partitions: list[TopicPartition]) -> dict[TopicPartition, _Replica]:
        topics: dict[str, FetchTopic] = {}
        for partition in partitions:
            row = FetchPartition(
                partition=partition.partition,
                fetch_offset=self._offsets[partition],
                partition_max_bytes=self._fetch_size,
            )
            topics.setdefault(partition.topic, FetchTopic(topic=partition.topic, partitions=[])).partitions.append(row)
        request = FetchRequest(
            replica_id=_DEBUGGER,
            max_wait_ms=self._max_wait_ms,
            min_bytes=1,
            max_bytes=_MAX_RESPONSE_BYTES,
            topics=list(topics.values()),
        )
        try:
            answer = await self._cluster.admin.on_node(node, request, _NEWEST_BY_NAME)
        except KafkaError as error:
            self.errors.update({(node, partition): str(error) for partition in partitions})
            return {}
        replicas = {}
        for topic in answer.responses:
            for data in topic.partitions:
                partition = TopicPartition(topic.topic, data.partition_index)
                replica = self._replica(node, partition, data)
                if replica is not None:
                    replicas[partition] = replica
        return replicas

    def _replica(self, node: int, partition: TopicPartition, data: Any) -> _Replica | None:
        if data.error_code != NONE:
            self.errors[node, partition] = name_of(data.error_code)
            return None
        records = bytes(data.records or b"")
        offset = self._offsets[partition]
        batches = [
            header for header in scan(records).batches if header.base_offset + header.last_offset_delta >= offset
        ]
        return _Replica(node, data.high_watermark, records, batches)

    def _compare(self, partition: TopicPartition, replicas: list[_Replica]) -> Iterator[str]:
        """Compare the batches that all replicas have returned, and move the offset behind them."""
        first, *others = replicas
        for number in range(min(len(replica.batches) for replica in replicas)):
            headers = [replica.batches[number] for replica in replicas]
            self._offsets[partition] = max(header.base_offset + header.last_offset_delta for header in headers) + 1
            differences = [
                line for other in others if (line := _difference(partition, first, other, number)) is not None
            ]
            for replica in replicas:
                header = replica.batches[number]
                if not crc_ok(replica.data, header):
                    differences.append(
                        f"partition {partition}: the batch at offset {header.base_offset} of replica {replica.node} is "
                        f"corrupt"
                    )
            yield from differences
            if differences:
                self.mismatches.add(partition)
                return  # the next batches may be shifted: they are read again from the new offset on


def _difference(partition: TopicPartition, one: _Replica, other: _Replica, number: int) -> str | None:
    """Return the line about two batches that differ, None for equal ones."""
    if one.batch(number) == other.batch(number):
        return None
    header, its = one.batches[number], other.batches[number]
    if header.base_offset != its.base_offset:
        return (
            f"partition {partition}: replica {one.node}'s offset {header.base_offset} doesn't match replica "
            f"{other.node}'s offset {its.base_offset}"
        )
    if header.crc != its.crc:
        return (
            f"partition {partition} has unmatched checksum at offset {header.base_offset}; replica {one.node}'s checksum "
            f"{header.crc}; replica {other.node}'s checksum {its.crc}"
        )
    return (
        f"partition {partition}: the batch at offset {header.base_offset} of replica {one.node} differs from that of "
        f"replica {other.node}"
    )
