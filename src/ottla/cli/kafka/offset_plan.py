"""Plans of offset resets: the options of --reset-offsets, and the resulting offsets of partitions.

A plan is computed and shown, and executed only with --execute. It can be saved as CSV (--export, --from-file): a line is
TOPIC,PARTITION,OFFSET for one --group, GROUP,TOPIC,PARTITION,OFFSET otherwise, as in Kafka's tools.
"""

import csv
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from ottla.cli.cluster_access import AdminConnection, CommandFailed
from ottla.cli.properties import selected_options
from ottla.cli.table import Column, as_objects, echo_json, echo_table
from ottla.client.admin.topics import Topics
from ottla.client.config import duration_ms
from ottla.client.topics import EARLIEST, LATEST, TopicPartition

ResetPlan = dict[str, dict[TopicPartition, int]]
"""group -> partition -> offset"""


_TARGETS = (
    "to-earliest",
    "to-latest",
    "to-datetime",
    "by-duration",
    "to-offset",
    "shift-by",
    "to-current",
    "from-file",
)
_SCOPES = ("topic", "all-topics", "from-file")
_COLUMNS = (Column("GROUP", 15), Column("TOPIC", 15), Column("PARTITION", 10), Column("NEW-OFFSET"))
CurrentOffsets = Mapping[TopicPartition, int | None]
"""Offsets of a group by partition; None if it has read nothing."""
F = TypeVar("F", bound=Callable[..., Any])


def reset_options(function: F) -> F:
    """Add the options of --reset-offsets to a command; `shift-by` and `by-duration` are options of consumer groups only."""
    for option in reversed(
        (
            click.option("--to-earliest", is_flag=True, help="Reset to the earliest offset."),
            click.option("--to-latest", is_flag=True, help="Reset to the latest offset."),
            click.option(
                "--to-datetime", metavar="TIME", help="Reset to the first record at or after YYYY-MM-DDTHH:mm:SS.sss."
            ),
            click.option(
                "--to-offset", type=int, metavar="N", help="Reset to this offset, limited to the range of the log."
            ),
            click.option("--to-current", is_flag=True, help="Reset to the current offset."),
            click.option(
                "--from-file", metavar="CSV", help="Reset to the offsets in a CSV file, as --export writes it."
            ),
            click.option("--dry-run", is_flag=True, help="Show the plan only."),
            click.option("--execute", is_flag=True, help="Execute the reset."),
            click.option("--export", is_flag=True, help="Print the plan as CSV."),
        )
    ):
        function = option(function)
    return function


class ResetTarget(NamedTuple):
    """Target of a reset: exactly one of these is set.

    moment   EARLIEST, LATEST, or ms since the epoch
    offset   one offset for all partitions
    shift    number of records from the group's offset, negative for backwards
    current  keep the group's offset
    file     CSV file of --export
    """

    moment: int | None = None
    offset: int | None = None
    shift: int | None = None
    current: bool = False
    file: str | None = None


def check_reset(options: Mapping[str, Any], topic: str = "topic") -> None:
    """Check the combination of options; `topic` is the name of the option for topics. Raises UsageError."""
    targets = [name for name in _TARGETS if name.replace("-", "_") in options]
    if len(selected_options(targets)) != 1:
        raise click.UsageError(
            f"--reset-offsets requires exactly one of {', '.join(f'--{option}' for option in targets)}"
        )
    scopes = [option.replace("topic", topic) for option in _SCOPES]
    if len(selected_options(scopes)) != 1:
        raise click.UsageError(f"--reset-offsets requires exactly one of {', '.join(f'--{name}' for name in scopes)}")


def target_of(options: Mapping[str, Any]) -> ResetTarget:
    """Return the target of the options. Raises BadParameter for an invalid time or duration."""
    if options["to_datetime"] is not None:
        return ResetTarget(moment=_timestamp_ms(options["to_datetime"]))
    if options.get("by_duration") is not None:
        try:
            return ResetTarget(moment=time.time_ns() // 1_000_000 - duration_ms(options["by_duration"]))
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
    if options["to_offset"] is not None:
        return ResetTarget(offset=options["to_offset"])
    if options.get("shift_by") is not None:
        return ResetTarget(shift=options["shift_by"])
    if options["from_file"] is not None:
        return ResetTarget(file=options["from_file"])
    if options.get("to_current"):
        return ResetTarget(current=True)
    return ResetTarget(moment=EARLIEST if options["to_earliest"] else LATEST)


def _timestamp_ms(text: str) -> int:
    """Parse a time in the notation of Kafka's command line, "YYYY-MM-DDTHH:mm:SS.sss", into ms since the epoch; it is in UTC,
    or has "Z" or an offset like +02:00. Raises BadParameter.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not of the form YYYY-MM-DDTHH:mm:SS.sss") from None
    if "T" not in text:
        raise click.BadParameter(f"{text!r} is not of the form YYYY-MM-DDTHH:mm:SS.sss")
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def plan_for(
    cluster: AdminConnection[Topics],
    currents: Mapping[str, CurrentOffsets],
    options: Mapping[str, Any],
    inputs: Mapping[str, Collection[str]] | None = None,
) -> ResetPlan:
    """Return the new offsets of each group.

    currents  its current offsets, whose partitions --all-topics selects
    inputs    the topics that it may have offsets of; None: any
    """
    target = target_of(options)
    if target.file is not None:
        plan = read_plan(target.file, list(currents))
        return {group: within_log(cluster, offsets) for group, offsets in plan.items()}
    named = parse_topics(options["topics"])
    plan = {}
    for group, current in currents.items():
        topics = {name: numbers for name, numbers in named.items() if inputs is None or name in inputs[group]}
        partitions = sorted(current) if options["all_topics"] else partitions_of(cluster, topics)
        plan[group] = _offsets(cluster, group, partitions, current, target)
    return plan


def _offsets(
    cluster: AdminConnection[Topics],
    group: str,
    partitions: list[TopicPartition],
    current: CurrentOffsets,
    target: ResetTarget,
) -> dict[TopicPartition, int]:
    if target.moment is not None:
        return offsets_at(cluster, partitions, target.moment)
    if target.offset is not None:
        return within_log(cluster, dict.fromkeys(partitions, target.offset))
    if target.shift is None:
        return current_or_end(cluster, partitions, current)
    shifted = {}
    for partition in partitions:
        offset = current.get(partition)
        if offset is None:
            raise CommandFailed(
                f"group {group} has no offset of {partition}, so it cannot be shifted: use another reset option"
            )
        shifted[partition] = offset + target.shift
    return within_log(cluster, shifted)


def current_or_end(
    cluster: AdminConnection[Topics], partitions: list[TopicPartition], current: CurrentOffsets
) -> dict[TopicPartition, int]:
    """Return the group's offsets, and the end offset of each partition that it has not read."""
    unread = [partition for partition in partitions if current.get(partition) is None]
    ends = cluster.ask(cluster.admin.list_offsets(dict.fromkeys(unread, LATEST))).check() if unread else {}
    offsets_kept = {}
    for partition in partitions:
        offset = current.get(partition)
        offsets_kept[partition] = ends[partition].offset if offset is None else offset
    return offsets_kept


def show_plan(plan: ResetPlan, options: Mapping[str, Any]) -> None:
    """Print a plan as a table, JSON, or CSV (--export)."""
    rows: Sequence[Sequence[Any]] = [
        (group, *partition, offset) for group, parts in plan.items() for partition, offset in sorted(parts.items())
    ]
    if options["export"]:
        for line in csv_lines(plan, names_groups=len(options["groups"]) != 1):
            click.echo(line)
    elif options["as_json"]:
        echo_json(as_objects(_COLUMNS, rows))
    else:
        click.echo()
        echo_table(_COLUMNS, rows)


def parse_topics(topics: Iterable[str], option: str = "--topic") -> dict[str, list[int] | None]:
    """Parse "T" or "T:0,1" into partitions by topic, None for all; `option` is for errors. Raises UsageError."""
    partitions_by_topic: dict[str, list[int] | None] = {}
    for text in topics:
        name, colon, numbers = text.partition(":")
        if not colon:
            partitions_by_topic[name] = None
            continue
        try:
            indexes = [int(number) for number in numbers.split(",")]
        except ValueError:
            raise click.UsageError(f"{option} {text}: partitions are numbers, as in {name}:0,1") from None
        partitions_by_topic[name] = [*(partitions_by_topic.get(name) or []), *indexes]
    return partitions_by_topic


def partitions_of(cluster: AdminConnection[Topics], topics: Mapping[str, list[int] | None]) -> list[TopicPartition]:
    """Return the selected partitions. Raises CommandFailed for a topic or partition that does not exist."""
    known = cluster.ask(cluster.admin.list_topics())
    partitions = []
    for name, indexes in topics.items():
        info = known.get(name)
        if info is None:
            raise CommandFailed(f"topic {name} does not exist")
        for index in sorted(info.leaders) if indexes is None else indexes:
            if index not in info.leaders:
                raise CommandFailed(f"topic {name} has no partition {index}")
            partitions.append(TopicPartition(name, index))
    return partitions


def offsets_at(
    cluster: AdminConnection[Topics], partitions: Iterable[TopicPartition], moment: int
) -> dict[TopicPartition, int]:
    """Return the offsets at a time; after the last record that is the end offset, with the warning of Kafka's tools."""
    moments = dict.fromkeys(partitions, moment)
    offsets = cluster.ask(cluster.admin.list_offsets(moments)).check()
    late = [partition for partition in moments if offsets[partition].offset < 0]
    ends = cluster.ask(cluster.admin.list_offsets(dict.fromkeys(late, LATEST))).check() if late else {}
    for partition in late:
        click.echo(
            f"\nWarn: Partition {partition.partition} from topic {partition.topic} is empty. "
            "Falling back to latest known offset.",
            err=bool(click.get_current_context().params.get("as_json")),  # standard output is the document
        )
    return {part: ends[part].offset if part in ends else offsets[part].offset for part in moments}


def within_log(cluster: AdminConnection[Topics], offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Limit offsets to the range of the log, with a warning."""
    first = cluster.ask(cluster.admin.list_offsets(dict.fromkeys(offsets, EARLIEST))).check()
    last = cluster.ask(cluster.admin.list_offsets(dict.fromkeys(offsets, LATEST))).check()
    offsets_kept = {}
    for partition, offset in offsets.items():
        low, high = first[partition].offset, last[partition].offset
        offsets_kept[partition] = min(max(offset, low), high)
        if offset > high:
            _warn_clipped("higher than latest", partition, offset, high)
        elif offset < low:
            _warn_clipped("lower than earliest", partition, offset, low)
    return offsets_kept


def _warn_clipped(how: str, partition: TopicPartition, offset: int, to: int) -> None:
    click.echo(
        f"Warn: New offset ({offset}) is {how} offset for topic partition {partition}. Value will be set to {to}",
        err=True,
    )


def read_plan(path: str, groups: list[str]) -> ResetPlan:
    """Read a plan from CSV. Raises CommandFailed."""
    plan: ResetPlan = {}
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
            columns = "TOPIC,PARTITION,OFFSET" if len(groups) == 1 else "GROUP,TOPIC,PARTITION,OFFSET"
            raise CommandFailed(f"{path}, line {number}: a line must be {columns}") from None
        if group in groups:
            plan.setdefault(group, {})[TopicPartition(topic, partition)] = offset
    return plan


def csv_lines(plan: ResetPlan, *, names_groups: bool) -> list[str]:
    """Return a plan as CSV lines, which begin with the group if more than one could be selected."""
    lines = []
    for group, offsets in plan.items():
        for partition, offset in sorted(offsets.items()):
            cells = [partition.topic, str(partition.partition), str(offset)]
            lines.append(",".join([group, *cells] if names_groups else cells))
    return lines
