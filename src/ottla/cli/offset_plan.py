"""Where a group is to go on: the options of --reset-offsets, and what they mean for partitions.

A plan is made first, shown, and only then carried out (--execute). Plans travel as CSV (--export, --from-file): a line is
TOPIC,PARTITION,OFFSET for one group, GROUP,TOPIC,PARTITION,OFFSET for several, as in Kafka's tools.
"""

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import click

from ottla.cli.cluster_access import Cluster, CommandFailed
from ottla.client.admin.topics import Topics
from ottla.client.topics import EARLIEST, LATEST, TopicPartition

Plan = dict[str, dict[TopicPartition, int]]
"""group -> partition -> offset"""


class Target(NamedTuple):
    """Where to go: exactly one of these is set.

    moment  EARLIEST, LATEST, or ms since the epoch
    offset  the same for all partitions
    current stay
    file    a CSV of --export
    """

    moment: int | None = None
    offset: int | None = None
    current: bool = False
    file: str | None = None


def parse_topics(topics: Iterable[str]) -> dict[str, list[int] | None]:
    """ "T" or "T:0,1": the partitions of each topic, None for all. Raises UsageError."""
    found: dict[str, list[int] | None] = {}
    for text in topics:
        name, colon, numbers = text.partition(":")
        if not colon:
            found[name] = None
            continue
        try:
            indexes = [int(number) for number in numbers.split(",")]
        except ValueError:
            raise click.UsageError(f"--topic {text}: partitions are numbers, as in {name}:0,1") from None
        found[name] = [*(found.get(name) or []), *indexes]
    return found


def partitions_of(cluster: Cluster[Topics], topics: Mapping[str, list[int] | None]) -> list[TopicPartition]:
    """The partitions meant. Raises CommandFailed for a topic or a partition that does not exist."""
    known = cluster.ask(cluster.admin.list_topics())
    found = []
    for name, indexes in topics.items():
        info = known.get(name)
        if info is None:
            raise CommandFailed(f"topic {name} does not exist")
        for index in sorted(info.leaders) if indexes is None else indexes:
            if index not in info.leaders:
                raise CommandFailed(f"topic {name} has no partition {index}")
            found.append(TopicPartition(name, index))
    return found


def offsets_at(
    cluster: Cluster[Topics], partitions: Iterable[TopicPartition], moment: int
) -> dict[TopicPartition, int]:
    """The offsets of a moment. After the last record that is the end, with a warning as Kafka's tools have it."""
    wanted = dict.fromkeys(partitions, moment)
    found = cluster.ask(cluster.admin.list_offsets(wanted)).check()
    late = [partition for partition in wanted if found[partition].offset < 0]
    ends = cluster.ask(cluster.admin.list_offsets(dict.fromkeys(late, LATEST))).check() if late else {}
    for partition in late:
        click.echo(
            f"\nWarn: Partition {partition.partition} from topic {partition.topic} is empty. "
            "Falling back to latest known offset."
        )
    return {part: ends[part].offset if part in ends else found[part].offset for part in wanted}


def within_log(cluster: Cluster[Topics], offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The same, but not before the beginning or behind the end, with a warning."""
    first = cluster.ask(cluster.admin.list_offsets(dict.fromkeys(offsets, EARLIEST))).check()
    last = cluster.ask(cluster.admin.list_offsets(dict.fromkeys(offsets, LATEST))).check()
    found = {}
    for partition, offset in offsets.items():
        low, high = first[partition].offset, last[partition].offset
        found[partition] = min(max(offset, low), high)
        if offset > high:
            _clipped("higher than latest", partition, offset, high)
        elif offset < low:
            _clipped("lower than earliest", partition, offset, low)
    return found


def _clipped(how: str, partition: TopicPartition, offset: int, to: int) -> None:
    click.echo(
        f"Warn: New offset ({offset}) is {how} offset for topic partition {partition}. Value will be set to {to}",
        err=True,
    )


def read_plan(path: str, groups: list[str]) -> Plan:
    """A plan from CSV. Raises CommandFailed."""
    plan: Plan = {}
    try:
        lines = list(csv.reader(Path(path).read_text(encoding="utf-8").splitlines()))
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    for number, row in enumerate(lines, 1):
        if not row:
            continue
        try:
            group = groups[0] if len(row) == 3 and len(groups) == 1 else row[-4]
            topic, partition, offset = row[-3], int(row[-2]), int(row[-1])
        except (IndexError, ValueError):
            wanted = "TOPIC,PARTITION,OFFSET" if len(groups) == 1 else "GROUP,TOPIC,PARTITION,OFFSET"
            raise CommandFailed(f"{path}, line {number}: a line is {wanted}") from None
        if group in groups:
            plan.setdefault(group, {})[TopicPartition(topic, partition)] = offset
    return plan


def csv_lines(plan: Plan) -> list[str]:
    """A plan as CSV, without the group when there is only one."""
    lines = []
    for group, offsets in plan.items():
        for partition, offset in sorted(offsets.items()):
            cells = [partition.topic, str(partition.partition), str(offset)]
            lines.append(",".join(cells if len(plan) == 1 else [group, *cells]))
    return lines
