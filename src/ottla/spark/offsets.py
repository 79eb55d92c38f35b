"""Offsets of a query: what options say, what a trigger takes, what is read. Decisions only: no broker, no Spark.

Offsets travel as JSON in the shape of Spark's own Kafka source, {"topic": {"0": 42}}, where the offset of an end is
exclusive and -2 and -1 stand for the earliest and the latest.
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
    """An option of the source or sink that is not known, missing, or has a value it cannot have."""


class DataLoss(RuntimeError):
    """Records that the query should have read are gone (failOnDataLoss)."""


class Boundary(NamedTuple):
    """Start or end of a read.

    time      for all partitions: EARLIEST, LATEST or ms since the epoch; None when partitions are named
    offsets   by partition: an offset, EARLIEST or LATEST
    times     by partition: ms since the epoch
    option    the option that said so, for messages
    or_latest a time after the last record means the latest offset instead of an error
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
    """{"t": {"0": 42}} as positions. Raises InvalidOption that shows the shape."""
    shape = f'{option} must look like {{"topic": {{"0": 42, "1": -1}}}}'
    try:
        topics = json.loads(text)
    except ValueError as error:
        raise InvalidOption(f"{shape}: {text!r} is no JSON ({error})") from None
    positions: Positions = {}
    if not isinstance(topics, dict) or not topics:
        raise InvalidOption(f"{shape}, not {text}")
    for topic, parts in topics.items():
        if not isinstance(parts, dict):
            raise InvalidOption(f"{shape}: {topic} has no object of partitions")
        for number, offset in parts.items():
            if not number.isdecimal() or type(offset) is not int or offset < EARLIEST:
                raise InvalidOption(f'{shape}: "{number}": {json.dumps(offset)} of {topic} is no partition and offset')
            positions[TopicPartition(topic, int(number))] = offset
    return positions


def parse_assignment(text: str) -> list[TopicPartition]:
    """{"t": [0, 1]}, the value of `assign`. Raises InvalidOption."""
    shape = 'assign must look like {"topic": [0, 1]}'
    try:
        topics = json.loads(text)
    except ValueError as error:
        raise InvalidOption(f"{shape}: {text!r} is no JSON ({error})") from None
    if not isinstance(topics, dict) or not topics:
        raise InvalidOption(f"{shape}, not {text}")
    partitions = []
    for topic, parts in topics.items():
        if not isinstance(parts, list) or not all(type(number) is int and number >= 0 for number in parts):
            raise InvalidOption(f"{shape}: {topic} has no list of partitions")
        partitions += [TopicPartition(topic, number) for number in parts]
    return partitions


def starting_boundary(options: Mapping[str, str], *, stream: bool) -> Boundary:
    """From startingTimestamp, startingOffsetsByTimestamp or startingOffsets, in this order. Raises InvalidOption."""
    strategy = options.get("startingOffsetsByTimestampStrategy", "error").lower()
    if strategy not in ("error", "latest"):
        raise InvalidOption(f"startingOffsetsByTimestampStrategy is error or latest, not {strategy}")
    or_latest = strategy == "latest"
    default = LATEST if stream else EARLIEST
    boundary = _boundary(
        options, "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets", default, or_latest
    )
    if not stream:
        if boundary.time == LATEST:
            raise InvalidOption("startingOffsets=latest leaves a batch read nothing: use a stream or other offsets")
        if boundary.offsets and LATEST in boundary.offsets.values():
            raise InvalidOption("startingOffsets of a batch read cannot be -1 (latest)")
    return boundary


def ending_boundary(options: Mapping[str, str]) -> Boundary:
    """From endingTimestamp, endingOffsetsByTimestamp or endingOffsets, in this order. Raises InvalidOption."""
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
            raise InvalidOption(f"{timestamp} is a number of milliseconds since the epoch, not {text!r}")
        return Boundary(timestamp, time=int(text), or_latest=or_latest)
    if by_timestamp in options:
        times = parse_positions(options[by_timestamp], by_timestamp)
        if min(times.values()) < 0:
            raise InvalidOption(f"{by_timestamp} takes milliseconds since the epoch, none of them negative")
        return Boundary(by_timestamp, times=times, or_latest=or_latest)
    if offsets in options:
        text = options[offsets].strip()
        if text.lower() in _NAMED:
            return Boundary(offsets, time=_NAMED[text.lower()])
        if not text.startswith("{"):
            raise InvalidOption(f'{offsets} is earliest, latest or JSON like {{"topic": {{"0": 42}}}}, not {text!r}')
        return Boundary(offsets, offsets=parse_positions(text, offsets))
    return Boundary(offsets, time=default)


def offset_lookups(boundary: Boundary, partitions: Iterable[TopicPartition]) -> Positions:
    """Return the ListOffsets times to request before the boundary is known. Raises InvalidOption.

    JSON must name every partition that is read, and no other, as with Spark's own source.
    """
    requested = list(partitions)
    named = boundary.offsets if boundary.offsets is not None else boundary.times
    if named is None:
        assert boundary.time is not None
        return dict.fromkeys(requested, boundary.time)
    # Topics first: a misspelt one is also the reason why partitions of the right one are missing.
    topics = {partition.topic for partition in requested}
    for topic in sorted({partition.topic for partition in named} - topics):
        hint = did_you_mean(topic, sorted(topics))
        raise InvalidOption(f"{boundary.option} names topic {topic}, which this query does not read{hint}")
    missing = sorted(set(requested) - set(named))
    if missing:
        raise InvalidOption(f"{boundary.option} must name every partition, also {_listed(missing)}")
    unknown = sorted(set(named) - set(requested))
    if unknown:
        raise InvalidOption(f"{boundary.option} names {_listed(unknown)}, which this query does not read")
    if boundary.times is not None:
        return {partition: named[partition] for partition in requested}
    return {partition: named[partition] for partition in requested if named[partition] < 0}


def _listed(partitions: list[TopicPartition]) -> str:
    return ", ".join(map(str, partitions[:5])) + (", ..." if len(partitions) > 5 else "")


def resolve(
    boundary: Boundary,
    partitions: Iterable[TopicPartition],
    answers: Mapping[TopicPartition, FoundOffset],
    latest: Mapping[TopicPartition, FoundOffset],
) -> Positions:
    """The boundary as offsets.

    found   answers to `questions`
    latest  the ends, for times that no record has reached

    Raises InvalidOption for such a time when the boundary does not take the latest instead.
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
                "startingOffsetsByTimestampStrategy=latest starts at its end"
            )
    return positions


def check_order(start: Positions, end: Positions, start_option: str, end_option: str) -> None:
    """A batch read that would end before it starts is a mistake, as Spark's own source takes it. Raises InvalidOption."""
    for partition, offset in sorted(start.items()):
        if offset > end[partition]:
            raise InvalidOption(
                f"{partition} would be read from offset {offset} ({start_option}) to {end[partition]} ({end_option})"
            )


def to_json(positions: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """The shape that Spark keeps in its checkpoint, sorted."""
    topics: dict[str, dict[str, int]] = {}
    for partition in sorted(positions):
        topics.setdefault(partition.topic, {})[str(partition.partition)] = positions[partition]
    return topics


def from_json(topics: Mapping[str, Any]) -> Positions:
    """Return the positions of what `to_json` returned, read back from a checkpoint."""
    return {
        TopicPartition(topic, int(number)): int(offset)
        for topic, parts in topics.items()
        for number, offset in parts.items()
    }


def limited(start: Positions, end: Positions, rows: int) -> Positions:
    """`end` held back so that about `rows` offsets are read, shared out in proportion to what each partition has.

    As in Spark's own source (maxOffsetsPerTrigger): every partition with something to read moves by at least one.
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
    """Return the ranges between two offsets of a query, and the losses between them (sentences for failOnDataLoss)."""
    lost = [
        f"{partition} is gone, at offset {offset}"
        for partition, offset in sorted(start.items())
        if partition not in end
    ]
    pieces = []
    for partition, offset in sorted(end.items()):
        begin = start.get(partition, 0)
        if offset < begin:
            lost.append(f"the offset of {partition} went back from {begin} to {offset}: was the topic created again?")
        elif offset > begin:
            pieces.append(OffsetRange(partition, begin, offset))
    return pieces, lost


def limited_by_bytes(start: Positions, end: Positions, sizes: Mapping[TopicPartition, float], most: int) -> Positions:
    """`end` held back so that about `most` bytes are read (maxBytesPerTrigger); shared out as in `limited`.

    sizes  bytes that an offset takes, as far as that is known
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
    """Ranges as tasks read them, cut where Spark's own connector cuts (its KafkaOffsetRangeCalculator).

    First into pieces of at most `most` offsets (maxRecordsPerPartition). If these are fewer than `least` (minPartitions), the
    larger ones are cut further, in proportion to their sizes; those that stay whole do not count in that proportion.
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
    """A range in so many pieces, the earlier ones smaller by one offset where it does not come out even; none is empty."""
    cuts = [piece.start]
    for number in range(count):
        cuts.append(cuts[-1] + (piece.end - cuts[-1]) // (count - number))
    return [OffsetRange(piece.partition, low, high) for low, high in pairwise(cuts) if high > low]
