"""A frame costs memory in proportion to its size, whatever it claims: lengths, counts, sizes of tagged sections, packed data.

Measured with tracemalloc as the highest total while one input is read. Compiled code allocates through Python too.
"""

import random
import tracemalloc
from collections.abc import Callable

import pytest

from ottla.protocol import codec
from ottla.protocol.frames import FrameReader
from ottla.protocol.schema import Array, Message, Primitive, Struct
from ottla.protocol.wire import PeerError
from ottla.records import compression, legacy
from ottla.records.batch import BatchHeader, records_of, scan, seal
from ottla.records.columns import ColumnReader
from ottla.records.errors import CorruptRecords
from ottla.records.validation import ProduceRules, prepare
from tests.fuzz.targets import NOW
from tests.oracles.dice import MessageDice, declared_messages

# Bytes of Python objects for one byte of a message: an array of empty strings is the worst, 8 for the reference and the
# list's spare room; a struct of nothing but defaults costs its slots.
PER_BYTE = 200
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


def test_a_lying_length_anywhere_costs_nothing() -> None:
    """The largest number that a count, a length or a varint can say, at every place of a small message in turn."""
    dice = MessageDice(random.Random(3), defaults=0.5)
    for cls, version in ((each, version) for each in MESSAGES for version in (each.VERSIONS.first, each.VERSIONS.last)):
        good = min((codec.encode(dice.message(cls, version), version) for _ in range(5)), key=len)[:300]
        refused_or_read(cls, version, good)  # compiles the decoders
        for at in range(0, len(good), 1 + len(good) // 12):
            for lie in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\x7f\xff"):
                data = good[:at] + lie + good[at + len(lie) :]
                refused_or_read(cls, version, data)  # what a codec is made of on first use is not what is measured
                assert peak(refused_or_read, cls, version, data) < FLOOR + PER_BYTE * len(data), (cls, data.hex())


def smallest(kind: object, version: int, *, flexible: bool) -> int:
    """The fewest bytes that a value takes on the wire."""
    if isinstance(kind, Array):
        return 1 if flexible else 4
    if isinstance(kind, Primitive):
        if kind.format:
            return kind.size
        return 1 if flexible else 2 if kind.name == "string" else 4
    assert isinstance(kind, type)
    assert issubclass(kind, Struct)
    fields = [f for f in kind.FIELDS if version in f.versions and version not in f.tagged]
    return sum(smallest(f.type, version, flexible=flexible) for f in fields) + (1 if flexible else 0)


def elements(cls: type[Struct], version: int) -> list[object]:
    """The element types of every list in `cls`."""
    found: list[object] = []
    for declared in cls.FIELDS:
        if version in declared.versions:
            kind = declared.type
            if isinstance(kind, Array):
                kind = kind.element
                found.append(kind)
            if isinstance(kind, type) and issubclass(kind, Struct):
                found += elements(kind, version)
    return found


def test_every_element_of_a_list_takes_a_byte() -> None:
    """Otherwise a count alone would make as many objects as it says."""
    for cls in MESSAGES:
        for version in range(cls.VERSIONS.first, cls.VERSIONS.last + 1):
            for kind in elements(cls, version):
                assert smallest(kind, version, flexible=version in cls.FLEXIBLE) > 0, (cls, version, kind)


def test_the_densest_frame_costs_a_bounded_multiple() -> None:
    """Nothing but zeros, or ones: lists as long as they can be, of elements as small as they can be."""
    for cls in MESSAGES:
        if not cls.__name__.endswith("Request"):
            continue
        version = cls.VERSIONS.last
        for byte in (b"\0", b"\x01"):
            for count in (b"\0\0\x27\x10", b"\x91\x4e"):
                data = count + byte * 10_000
                refused_or_read(cls, version, data[:10])
                assert peak(refused_or_read, cls, version, data) < FLOOR + PER_BYTE * len(data), (cls, byte, count)


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
