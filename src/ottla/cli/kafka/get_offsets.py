"""`ottla get-offsets`: Kafka's kafka-get-offsets, with its flags and its lines."""

import re
from collections.abc import Callable
from typing import Any

import click

from ottla.cli.cluster_access import CommandFailed, cluster_options, connect, json_option
from ottla.cli.completion import complete_topics
from ottla.cli.table import echo_json
from ottla.client.admin.topics import Topics
from ottla.client.topics import TopicPartition

_SPECIAL = {
    "latest": -1,
    "earliest": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
    "earliest-pending-upload": -6,
}
_PATTERN = re.compile(r"([^:,]*)(?::(?:([0-9]*)|(?:([0-9]*)-([0-9]*))))?")
Filter = Callable[[TopicPartition], bool]


@click.command("get-offsets")
@cluster_options
@click.option("--topic", metavar="REGEX", help="Topics; all if omitted.", shell_complete=complete_topics)
@click.option("--partitions", metavar="N,M", help="Partitions; all if omitted.")
@click.option("--topic-partitions", metavar="T1:1,T2:0-3,T3:5-", help="Topics by regular expression, with partitions.")
@click.option(
    "--time", default="latest", show_default=True, metavar="TIME", help=f"ms since the epoch, or {', '.join(_SPECIAL)}."
)
@click.option("--exclude-internal-topics", is_flag=True, help="Exclude internal topics.")
@json_option
def get_offsets(bootstrap_server: str | None, command_config: str | None, **options: Any) -> None:
    """Print TOPIC:PARTITION:OFFSET: end offsets, or the offsets of the first records at or after a time."""
    if options["topic_partitions"] is not None and not (options["topic"] is options["partitions"] is None):
        raise click.UsageError("--topic-partitions cannot be combined with --topic or --partitions")
    moment = _moment(options["time"])
    filters = _filters(options["topic_partitions"]) if options["topic_partitions"] else [_simple(options)]
    with connect(Topics, bootstrap_server, command_config) as cluster:
        known = cluster.ask(cluster.admin.list_topics(internal=not options["exclude_internal_topics"]))
        partitions = [TopicPartition(info.name, number) for info in known.values() for number in sorted(info.leaders)]
        partitions = [partition for partition in partitions if any(fits(partition) for fits in filters)]
        if not partitions:
            raise CommandFailed("no partition matches the options")
        results = cluster.ask(cluster.admin.list_offsets(dict.fromkeys(sorted(partitions), moment)))
    # -1: no record at or after the time.
    rows = [(partition, end.offset) for partition, end in results.successes.items() if end.offset >= 0]
    rows.sort()
    if options["as_json"]:
        echo_json([{**partition._asdict(), "offset": offset} for partition, offset in rows])
    else:
        for partition, offset in rows:
            click.echo(f"{partition.topic}:{partition.partition}:{offset}")
    if results.errors:
        partition, error = min(results.errors.items())
        raise CommandFailed(f"no offsets of {len(results.errors)} partitions, {partition}: {error}")


def _moment(text: str) -> int:
    if text in _SPECIAL:
        return _SPECIAL[text]
    try:
        return int(text)
    except ValueError:
        raise click.UsageError(f"--time {text}: ms since the epoch, or one of {', '.join(_SPECIAL)}") from None


def _simple(options: dict[str, Any]) -> Filter:
    fits = _topic(options["topic"] or ".*", "--topic")
    numbers: set[int] | None = None
    if options["partitions"]:
        try:
            numbers = {int(number) for number in options["partitions"].split(",")}
        except ValueError:
            raise click.UsageError(f"--partitions {options['partitions']}: numbers, as in 0,1") from None
    return lambda partition: fits(partition.topic) and (numbers is None or partition.partition in numbers)


def _topic(pattern: str, option: str) -> Callable[[str], bool]:
    try:
        compiled = re.compile(pattern.replace(",", "|"))
    except re.error as error:
        raise click.UsageError(f"{option} {pattern}: {error}") from None
    return lambda name: compiled.fullmatch(name) is not None


def _filters(text: str) -> list[Filter]:
    """Parse partitions: N, or a range like 0-3 (end exclusive) in which either end may be omitted."""
    filters = []
    for part in text.split(","):
        match = _PATTERN.fullmatch(part)
        if match is None:
            raise click.UsageError(f"--topic-partitions {part}: TOPIC, TOPIC:N, TOPIC:N-M, TOPIC:N- or TOPIC:-M")
        name, number, low, high = match.groups()
        filters.append(_filter(_topic(name or ".*", "--topic-partitions"), number, low, high))
    return filters


def _filter(fits: Callable[[str], bool], number: str | None, low: str | None, high: str | None) -> Filter:
    first = int(number or low or 0)
    end = int(number) + 1 if number else int(high) if high else None
    return lambda partition: (
        fits(partition.topic) and first <= partition.partition and (end is None or partition.partition < end)
    )
