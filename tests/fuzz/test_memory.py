"""A frame costs at most ten times its bytes and 16 MB of memory, whatever it claims: lengths, counts, sizes, packed data.

A request may have 100,000 elements, so that an element may take a share of the 16 MB: 160 bytes.

Measured with tracemalloc as the highest total while one input is read. Compiled code allocates through Python too.
"""

import random
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.protocol import codec
from ottla.protocol.frames import FrameReader
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.schema import LEAST_OF_MANY, MOST_ELEMENTS, Array, Field, Message, Primitive, String, Struct
from ottla.protocol.wire import PeerError, write_uvarint
from ottla.records import compression, legacy
from ottla.records.batch import BatchHeader, records_of, scan, seal
from ottla.records.columns import ColumnReader
from ottla.records.errors import CorruptRecords
from ottla.records.validation import ProduceRules, prepare
from tests.fuzz.targets import NOW
from tests.oracles.dice import MessageDice, declared_messages

PER_BYTE = 10
CONSTANT = 16 << 20
PER_ELEMENT = CONSTANT // MOST_ELEMENTS
FLOOR = 50_000
LIMIT = 1 << 20
MESSAGES = list(declared_messages().values())


def peak(read: Callable[..., object], *arguments: object) -> int:
    """Bytes that `read` takes at most, above what there was."""
    tracemalloc.start()
    read(*arguments)
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return taken


def refused_or_read(cls: type[Message], version: int, data: bytes) -> None:
    for read in (codec.decode, codec.decode_positions):
        try:
            read(cls, version, data)
        except PeerError:
            continue


def test_a_lying_length_anywhere_costs_nothing(request: pytest.FixtureRequest) -> None:
    """The largest number that a count, a length or a varint can say, at places of a small message in turn, in every version.

    Twelve places of the oldest and newest version and four of those between them; with --soak, every byte of all.
    """
    in_full = request.config.getoption("--soak") > 1
    dice = MessageDice(random.Random(3), defaults=0.5)
    for cls, version in (
        (kind, version) for kind in MESSAGES for version in range(kind.VERSIONS.first, kind.VERSIONS.last + 1)
    ):
        good = min((codec.encode(dice.message(cls, version), version) for _ in range(5)), key=len)[:300]
        refused_or_read(cls, version, good)  # compiles the decoders
        places = 12 if version in {cls.VERSIONS.first, cls.VERSIONS.last} else 4
        for at in range(0, len(good), 1 if in_full else 1 + len(good) // places):
            for lie in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\x7f\xff"):
                data = good[:at] + lie + good[at + len(lie) :]
                refused_or_read(cls, version, data)  # what a codec is made of on first use is not what is measured
                assert peak(refused_or_read, cls, version, data) < FLOOR + PER_BYTE * len(data), (cls, data.hex())


def smallest(kind: Any, version: int, *, flexible: bool) -> bytes:
    """The encoding of a value with the fewest bytes."""
    if isinstance(kind, Array):
        return b"\x01" if flexible else bytes(4)
    if isinstance(kind, Primitive):
        return bytes(kind.size) if kind.format else b"\x01" if flexible else bytes(2 if kind is String else 4)
    fields = [field for field in kind.FIELDS if version in field.versions and version not in field.tagged]
    end = b"\0" if flexible else b""
    return b"".join(smallest_field(field, version, flexible=flexible) for field in fields) + end


def smallest_field(field: Field, version: int, *, flexible: bool) -> bytes:
    if not isinstance(field.type, Array | Primitive) and version in field.nullable:
        return b"\xff"
    return smallest(field.type, version, flexible=flexible and not field.never_flexible)


def arrays(cls: type[Struct], version: int) -> Iterator[tuple[Field, ...]]:
    """The path to every array in `cls`."""
    for field in cls.FIELDS:
        if version in field.versions and version not in field.tagged and isinstance(field.type, Array):
            yield (field,)
            if not isinstance(field.type.element, Primitive):
                yield from ((field, *path) for path in arrays(field.type.element, version))


def dense(cls: type[Struct], version: int, path: tuple[Field, ...], count: int, *, flexible: bool) -> bytes:
    """A message with `count` of the smallest elements in one array, and hardly anything else."""
    encoded = []
    for field in cls.FIELDS:
        if version not in field.versions or version in field.tagged:
            continue
        if field is not path[0]:
            encoded.append(smallest_field(field, version, flexible=flexible))
            continue
        element = field.type.element
        if len(path) == 1:
            length, elements = count, smallest(element, version, flexible=flexible) * count
        else:
            length, elements = 1, dense(element, version, path[1:], count, flexible=flexible)
        is_compact = flexible and not field.never_flexible
        encoded += [write_uvarint(length + 1) if is_compact else length.to_bytes(4, "big"), elements]
    return b"".join(encoded) + (b"\0" if flexible else b"")


REQUESTS = [cls for cls in MESSAGES if cls.__name__.endswith("Request")]


def test_every_element_of_a_list_takes_a_byte() -> None:
    """Otherwise a count alone would make as many objects as it says."""
    for cls in MESSAGES:
        for version in range(cls.VERSIONS.first, cls.VERSIONS.last + 1):
            for path in arrays(cls, version):
                element = path[-1].type.element
                assert smallest(element, version, flexible=version in cls.FLEXIBLE), (cls, version, element)


@pytest.mark.parametrize("cls", REQUESTS, ids=lambda cls: cls.__name__)
def test_the_densest_array_costs_a_bounded_multiple(cls: type[Message]) -> None:
    """Every array of every version, full of the smallest elements: each within its share, so that all are within the bound."""
    count = 2000
    measured = set()
    for version in range(cls.VERSIONS.last, cls.VERSIONS.first - 1, -1):
        flexible = version in cls.FLEXIBLE
        for path in arrays(cls, version):
            place = (
                tuple(field.name for field in path),
                flexible,
                len(dense(cls, version, path, 1, flexible=flexible)),
            )
            if place in measured:
                continue  # of the same size as in a later version
            measured.add(place)
            refused_or_read(cls, version, dense(cls, version, path, 3, flexible=flexible))  # compiles the decoders
            data = dense(cls, version, path, count, flexible=flexible)
            taken = peak(refused_or_read, cls, version, data)
            assert taken < FLOOR + PER_BYTE * len(data) + PER_ELEMENT * count, (version, place, taken / count)


def test_a_large_dense_frame_costs_a_bounded_multiple(request: pytest.FixtureRequest) -> None:
    """Whole frames as dense as they are accepted; with --soak of all requests, versions and arrays, and of 10 MB."""
    in_full = request.config.getoption("--soak") > 1
    size = (10 if in_full else 1) << 20
    for cls in REQUESTS if in_full else [MetadataRequest]:
        versions = range(cls.VERSIONS.first, cls.VERSIONS.last + 1) if in_full else (cls.VERSIONS.last,)
        for version in versions:
            flexible = version in cls.FLEXIBLE
            for path in arrays(cls, version):
                least = len(smallest(path[-1].type.element, version, flexible=flexible))
                densest = min(size // least, MOST_ELEMENTS)
                for count in {size // least, densest, MOST_ELEMENTS + size // LEAST_OF_MANY} if in_full else {densest}:
                    data = dense(cls, version, path, count, flexible=flexible)
                    if len(data) > size + 100:
                        continue
                    if len(data) < size:  # bytes behind the message: what is checked is what a count may say
                        data += bytes(size - len(data))
                    taken = peak(refused_or_read, cls, version, data)
                    assert taken < PER_BYTE * size + CONSTANT, (cls, version, path[-1].name, count, taken)


def test_an_announced_frame_costs_what_arrives() -> None:
    reader = FrameReader(2**31 - 1)
    start = bytearray((2**31 - 1).to_bytes(4, "big") + b"x")
    assert peak(reader.feed, start, len(start)) < 3 << 20


def batch_of(payload: bytes, *, codec_id: int, count: int) -> bytes:
    header = BatchHeader()
    header.attributes = codec_id
    header.count = count
    header.last_offset_delta = count - 1
    return seal(header, payload)


@pytest.mark.parametrize("count", [1, 2**31 - 1])
def test_a_batch_that_claims_many_records_costs_nothing(count: int) -> None:
    batch = batch_of(b"\x0c\0\0\0\x01\x01\0", codec_id=0, count=count)

    def read() -> None:
        for reader in (records_of, ColumnReader().read, lambda data: legacy.for_old_client(data, 1, 0, LIMIT)):
            try:
                reader(batch)
            except CorruptRecords:
                continue
        prepare(batch, 0, len(batch), ProduceRules(), NOW)
        legacy.all_at_once(legacy.rebuild(batch, 0, len(batch), LIMIT, LIMIT))
        scan(batch)

    assert peak(read) < FLOOR


def test_a_record_that_claims_many_headers_costs_nothing() -> None:
    record = b"\0\0\0\x01\x01\xfe\xff\xff\xff\x0f" + b"\0" * 20
    batch = batch_of(bytes([2 * len(record)]) + record, codec_id=0, count=1)

    def read() -> None:
        for reader in (records_of, ColumnReader().read):
            with pytest.raises(CorruptRecords):
                reader(batch)

    assert peak(read) < FLOOR


@pytest.mark.parametrize("kind", range(1, 5))
def test_packed_data_costs_no_more_than_its_limit(kind: int) -> None:
    """32 MiB of zeros in a few KiB, allowed to be one. cramjam's own memory is not traced, its output is Python's."""
    bomb = compression.compress(kind, bytes(32 << 20))
    batch = batch_of(bomb, codec_id=kind, count=1)

    def read() -> None:
        with pytest.raises(CorruptRecords):
            compression.decompress(kind, bomb, LIMIT)
        with pytest.raises(CorruptRecords):
            records_of(batch, 0, LIMIT)

    assert peak(read) < 4 * LIMIT + 2 * len(batch)
