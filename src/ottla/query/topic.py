"""A topic when a statement begins: the offsets that the statement reads, and what its keys and values are."""

from itertools import chain, zip_longest
from typing import Any, Final, NamedTuple

import pyarrow as pa

from ottla.client.topics import EARLIEST, LATEST, TopicPartition
from ottla.query.reader import QueryReader
from ottla.query.texts import Texts
from ottla.records.arrow import column_flags, record_batch, schema
from ottla.records.columns import ColumnReader

SAMPLE: Final = 100
"""Number of keys and values, null ones not counted, that decide whether all of a topic are JSON."""
SAMPLED_ROWS: Final = 10_000
"""Most records of a partition that are searched for them."""


class Range(NamedTuple):
    """Offsets of a partition, from `start` (inclusive) to `end` (exclusive)."""

    partition: TopicPartition
    start: int
    end: int


class Topic(NamedTuple):
    """A topic when a statement began.

    id      id of the topic: a statement fails if it is created again while it is read
    ranges  committed records at the time, partition by partition
    """

    name: str
    id: bytes
    ranges: tuple[Range, ...]


def topic_of(reader: QueryReader, name: str) -> Topic:
    """Return a topic as it is now. Raises UnknownTopic, KafkaError."""
    info = reader.topic(name)
    partitions = [TopicPartition(name, number) for number in sorted(info.leaders)]
    starts = reader.offsets(dict.fromkeys(partitions, EARLIEST))
    ends = reader.offsets(dict.fromkeys(partitions, LATEST))
    return Topic(name, info.id, tuple(Range(place, starts[place], ends[place]) for place in partitions))


def samples(reader: QueryReader, topic: Topic) -> tuple[list[bytes], list[bytes]]:
    """Return the first keys and the first values of a topic, null ones left out: the first ones of each partition, then the
    second ones, up to SAMPLE. Raises KafkaError."""
    keys: list[list[bytes]] = []
    values: list[list[bytes]] = []
    for piece in topic.ranges:
        if min(sum(map(bool, keys)), sum(map(bool, values))) >= SAMPLE:
            break  # one of each of these partitions is enough
        some_keys, some_values = _first(reader, topic, piece)
        keys.append(some_keys)
        values.append(some_values)
    return _in_turns(keys), _in_turns(values)


def _first(reader: QueryReader, topic: Topic, piece: Range) -> tuple[list[bytes], list[bytes]]:
    target = schema(["key", "value"])
    columns = ColumnReader(column_flags(target.names), max_rows=1000)
    keys: list[bytes] = []
    values: list[bytes] = []
    rows = 0
    for read in reader.read(piece.partition, piece.start, piece.end, topic.id, columns):
        batch = record_batch(read, topic.name, piece.partition.partition, target)
        keys += _some(batch.column(0), SAMPLE - len(keys))
        values += _some(batch.column(1), SAMPLE - len(values))
        rows += read.rows
        if rows >= SAMPLED_ROWS or min(len(keys), len(values)) >= SAMPLE:
            break
    return keys, values


def _some(column: Any, most: int) -> list[bytes]:
    values: list[bytes] = column.drop_null()[: max(most, 0)].to_pylist()
    return values


def _in_turns(lists: list[list[bytes]]) -> list[bytes]:
    return [value for value in chain.from_iterable(zip_longest(*lists)) if value is not None][:SAMPLE]


def texts_of(texts: Texts, sample: list[bytes]) -> list[str]:
    """Return a sample as text. Raises RegistryError if it needs a registry that does not answer."""
    texts.check(sample)
    decoded: list[str] = texts.column(pa.array(sample, pa.binary())).to_pylist()
    return decoded
