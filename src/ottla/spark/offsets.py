"""Offsets of a query: parsing of options, limits of a trigger, ranges of tasks. Pure functions: no broker, no Spark.

Offsets are JSON in the shape of Spark's own Kafka source, {"topic": {"0": 42}}: end offsets are exclusive, -2 and -1 mean
earliest and latest.
"""

import json
import math
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, Final, NamedTuple

from ottla.client.topics import EARLIEST, LATEST, FoundOffset, TopicPartition
from ottla.spelling import did_you_mean

Positions = dict[TopicPartition, int]


class InvalidOption(ValueError):
    """Option of the source or sink that is unknown, missing, or has an invalid value."""


class DataLoss(RuntimeError):
    """Records were deleted before the query read them (failOnDataLoss)."""


class Boundary(NamedTuple):
    """Start or end position of a read.

    option     option that it comes from, for error messages
    time       for all partitions: EARLIEST, LATEST or ms since the epoch; None if it is set by partition
    offsets    by partition: an offset, EARLIEST or LATEST
    times      by partition: ms since the epoch
    or_latest  a time after the last record means the latest offset; otherwise it is an error
    """

    option: str
    time: int | None = None
    offsets: Positions | None = None
    times: Positions | None = None
    or_latest: bool = False


class OffsetRange(NamedTuple):
    """Offsets `start` (inclusive) to `end` (exclusive) of a partition."""

    partition: TopicPartition
    start: int
    end: int


_NAMED: Final = {"earliest": EARLIEST, "latest": LATEST}


def parse_positions(text: str, option: str) -> Positions:
    """Parse JSON like {"t": {"0": 42}}. Raises InvalidOption with the expected shape."""
    shape = f'{option} must look like {{"topic": {{"0": 42, "1": -1}}}}'
    try:
        topics = json.loads(text)
    except ValueError as error:
        raise InvalidOption(f"{shape}: {text!r} is not JSON ({error})") from None
    positions: Positions = {}
    if not isinstance(topics, dict):
        raise InvalidOption(f"{shape}, not {text}")
    for topic, parts in topics.items():
        if not isinstance(parts, dict):
            raise InvalidOption(f"{shape}: {topic} has no object of partitions")
        for number, offset in parts.items():
            if not number.isdecimal() or type(offset) is not int or offset < EARLIEST:
                raise InvalidOption(
                    f'{shape}: "{number}": {json.dumps(offset)} of {topic} is not a partition and offset'
                )
            positions[TopicPartition(topic, int(number))] = offset
    return positions


def parse_assignment(text: str) -> list[TopicPartition]:
    """Parse JSON like {"t": [0, 1]}, the value of `assign`. Raises InvalidOption."""
    shape = 'assign must look like {"topic": [0, 1]}'
    try:
        topics = json.loads(text)
    except ValueError as error:
        raise InvalidOption(f"{shape}: {text!r} is not JSON ({error})") from None
    if not isinstance(topics, dict) or not topics:
        raise InvalidOption(f"{shape}, not {text}")
    partitions = []
    for topic, parts in topics.items():
        if not isinstance(parts, list) or not all(type(number) is int and number >= 0 for number in parts):
            raise InvalidOption(f"{shape}: {topic} has no list of partitions")
        partitions += [TopicPartition(topic, number) for number in parts]
    return partitions


def starting_boundary(options: Mapping[str, str], *, stream: bool) -> Boundary:
    """Return the start, from the first of startingTimestamp, startingOffsetsByTimestamp, startingOffsets.

    Raises InvalidOption.
    """
    strategy = options.get("startingOffsetsByTimestampStrategy", "error").lower()
    if strategy not in ("error", "latest"):
        raise InvalidOption(f"startingOffsetsByTimestampStrategy must be error or latest, not {strategy}")
    or_latest = strategy == "latest"
    default = LATEST if stream else EARLIEST
    boundary = _boundary(
        options, "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets", default, or_latest
    )
    if not stream:
        if boundary.time == LATEST:
            raise InvalidOption("startingOffsets=latest makes a batch read empty: use a stream or other offsets")
        if boundary.offsets and LATEST in boundary.offsets.values():
            raise InvalidOption("startingOffsets of a batch read cannot be -1 (latest)")
    return boundary


def ending_boundary(options: Mapping[str, str]) -> Boundary:
    """Return the end, from the first of endingTimestamp, endingOffsetsByTimestamp, endingOffsets. Raises InvalidOption."""
    boundary = _boundary(options, "endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets", LATEST, True)
    if boundary.time == EARLIEST or (boundary.offsets and EARLIEST in boundary.offsets.values()):
        raise InvalidOption("endingOffsets cannot be earliest (-2)")
    return boundary


def _boundary(
    options: Mapping[str, str], timestamp: str, by_timestamp: str, offsets: str, default: int, or_latest: bool
) -> Boundary:
    if timestamp in options:
        text = options[timestamp].strip()
        if not text.isdecimal():
            raise InvalidOption(f"{timestamp} must be milliseconds since the epoch, not {text!r}")
        return Boundary(timestamp, time=int(text), or_latest=or_latest)
    if by_timestamp in options:
        times = parse_positions(options[by_timestamp], by_timestamp)
        if min(times.values(), default=0) < 0:
            raise InvalidOption(f"{by_timestamp} must be milliseconds since the epoch, not negative")
        return Boundary(by_timestamp, times=times, or_latest=or_latest)
    if offsets in options:
        text = options[offsets].strip()
        if text.lower() in _NAMED:
            return Boundary(offsets, time=_NAMED[text.lower()])
        if not text.startswith("{"):
            raise InvalidOption(
                f'{offsets} must be earliest, latest or JSON like {{"topic": {{"0": 42}}}}, not {text!r}'
            )
        return Boundary(offsets, offsets=parse_positions(text, offsets))
    return Boundary(offsets, time=default)


def offset_lookups(boundary: Boundary, partitions: Iterable[TopicPartition]) -> Positions:
    """Return the times that ListOffsets must resolve for a boundary. Raises InvalidOption.

    JSON must name exactly the partitions that are read, as with Spark's own source.
    """
    requested = list(partitions)
    named = boundary.offsets if boundary.offsets is not None else boundary.times
    if named is None:
        assert boundary.time is not None
        return dict.fromkeys(requested, boundary.time)
    # Topics first: a misspelt topic would otherwise be reported as missing partitions of the correct one.
    topics = {partition.topic for partition in requested}
    for topic in sorted({partition.topic for partition in named} - topics):
        hint = did_you_mean(topic, sorted(topics))
        raise InvalidOption(f"{boundary.option} names topic {topic}, which this query does not read{hint}")
    missing = sorted(set(requested) - set(named))
    if missing:
        raise InvalidOption(f"{boundary.option} must name every partition, also {_list_text(missing)}")
    unknown = sorted(set(named) - set(requested))
    if unknown:
        raise InvalidOption(f"{boundary.option} names {_list_text(unknown)}, which this query does not read")
    if boundary.times is not None:
        return {partition: named[partition] for partition in requested}
    return {partition: named[partition] for partition in requested if named[partition] < 0}


def _list_text(partitions: list[TopicPartition]) -> str:
    return ", ".join(map(str, partitions[:5])) + (", ..." if len(partitions) > 5 else "")


def resolve(
    boundary: Boundary,
    partitions: Iterable[TopicPartition],
    answers: Mapping[TopicPartition, FoundOffset],
    latest: Mapping[TopicPartition, FoundOffset],
) -> Positions:
    """Return the offsets of a boundary.

    answers  results of the look-ups of `offset_lookups`
    latest   end offsets, for times after the last record

    Raises InvalidOption for a time after the last record, unless the boundary has `or_latest`.
    """
    positions: Positions = {}
    for partition in partitions:
        answer = answers.get(partition)
        if answer is None:
            assert boundary.offsets is not None
            positions[partition] = boundary.offsets[partition]
        elif answer.offset >= 0:
            positions[partition] = answer.offset
        elif boundary.or_latest:
            positions[partition] = latest[partition].offset
        else:
            raise InvalidOption(
                f"{boundary.option}: {partition} has no record at or after that time; "
                "set startingOffsetsByTimestampStrategy=latest to start at its end"
            )
    return positions


def check_order(start: Positions, end: Positions, start_option: str, end_option: str) -> None:
    """Check that no partition ends before it starts, as Spark's own source does. Raises InvalidOption."""
    for partition, offset in sorted(start.items()):
        if offset > end[partition]:
            raise InvalidOption(
                f"{partition} would be read from offset {offset} ({start_option}) to {end[partition]} ({end_option})"
            )


def check_times(start: Boundary, end: Boundary) -> None:
    """Check that no end time is before the start time, as Spark's own source does, also of empty partitions. Raises
    InvalidOption.
    """
    if start.option == "startingTimestamp" and end.option == "endingTimestamp":
        assert start.time is not None
        assert end.time is not None
        if start.time > end.time:
            raise InvalidOption(f"startingTimestamp ({start.time}) is later than endingTimestamp ({end.time})")
    for partition, time in (start.times or {}).items():
        last = (end.times or {}).get(partition, time)
        if time > last:
            raise InvalidOption(f"{start.option} of {partition} ({time}) is later than its {end.option} ({last})")


def to_json(positions: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return the JSON form of the checkpoint, sorted."""
    topics: dict[str, dict[str, int]] = {}
    for partition in sorted(positions):
        topics.setdefault(partition.topic, {})[str(partition.partition)] = positions[partition]
    return topics


def from_json(topics: Mapping[str, Any]) -> Positions:
    """Return the positions in the JSON form of a checkpoint: the inverse of `to_json`."""
    return {
        TopicPartition(topic, int(number)): int(offset)
        for topic, parts in topics.items()
        for number, offset in parts.items()
    }


def limit_rows(start: Positions, end: Positions, rows: int) -> Positions:
    """Reduce `end` so that about `rows` offsets are read, divided in proportion to the backlog of each partition.

    As in Spark's own source (maxOffsetsPerTrigger): every partition with a backlog advances by at least one offset.
    """
    backlog = {partition: max(offset - start.get(partition, offset), 0) for partition, offset in end.items()}
    total = sum(backlog.values())
    if total <= rows:
        return end
    held: Positions = {}
    for partition, offset in end.items():
        size = backlog[partition]
        share = max(size * rows // total, 1) if size else 0
        held[partition] = min(start[partition] + share, offset) if size else offset
    return held


def ranges(start: Positions, end: Positions) -> tuple[list[OffsetRange], list[str]]:
    """Return the ranges from `start` to `end`, and a message for each partition that lost data (failOnDataLoss)."""
    lost = [
        f"{partition} no longer exists (read up to offset {offset})"
        for partition, offset in sorted(start.items())
        if partition not in end
    ]
    pieces = []
    for partition, offset in sorted(end.items()):
        begin = start.get(partition, 0)
        if offset < begin:
            lost.append(
                f"the offset of {partition} went back from {begin} to {offset}: the topic may have been recreated"
            )
        elif offset > begin:
            pieces.append(OffsetRange(partition, begin, offset))
    return pieces, lost


def limit_bytes(start: Positions, end: Positions, sizes: Mapping[TopicPartition, float], most: int) -> Positions:
    """Reduce `end` so that about `most` bytes are read (maxBytesPerTrigger), divided as in `limit_rows`.

    sizes  estimated bytes per offset, for the partitions with an estimate
    """
    backlog = {partition: max(offset - start.get(partition, offset), 0) for partition, offset in end.items()}
    total = sum(count * sizes.get(partition, 0.0) for partition, count in backlog.items())
    if total <= most:
        return end
    held: Positions = {}
    for partition, offset in end.items():
        count = backlog[partition]
        share = max(int(count * most / total), 1) if partition in sizes else count
        held[partition] = min(start[partition] + share, offset) if count else offset
    return held


def split(ranges: list[OffsetRange], least: int, most: int | None = None) -> list[OffsetRange]:
    """Split ranges among tasks, with the same result as Spark's own connector (KafkaOffsetRangeCalculator).

    First into pieces of at most `most` offsets (maxRecordsPerPartition). If there are fewer than `least` (minPartitions), the
    larger pieces are split further in proportion to their sizes; pieces that stay whole are excluded from the proportion.
    """
    pieces = ranges
    if most is not None:
        pieces = [cut for piece in ranges for cut in _cut(piece, -(-_size(piece) // most))]
    if len(pieces) >= least:
        return pieces
    total = sum(map(_size, pieces))
    whole = [piece for piece in pieces if _share(_size(piece), total, least) == 1]
    kept = {piece.partition for piece in whole}
    total -= sum(map(_size, whole))
    left = max(least - len(whole), 1)
    return [
        cut
        for piece in pieces
        for cut in _cut(piece, 1 if piece.partition in kept else _share(_size(piece), total, left))
    ]


def _size(piece: OffsetRange) -> int:
    return piece.end - piece.start


def _share(size: int, total: int, least: int) -> int:
    return max(math.floor(size / total * least + 0.5), 1)


def _cut(piece: OffsetRange, count: int) -> list[OffsetRange]:
    """Split a range into at most `count` non-empty pieces; if their sizes differ, the first ones are smaller by one."""
    cuts = [piece.start]
    for number in range(count):
        cuts.append(cuts[-1] + (piece.end - cuts[-1]) // (count - number))
    return [OffsetRange(piece.partition, low, high) for low, high in pairwise(cuts) if high > low]
