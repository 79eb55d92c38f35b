"""Inputs to damage: one valid input of each kind for every target."""

import random
from functools import cache
from typing import Final

from ottla.log.producers import ProducerStates
from ottla.protocol import codec
from ottla.protocol.api import APIS
from ottla.protocol.messages.header import RequestHeader
from ottla.records import codec_names, compression, control, legacy
from ottla.records.batch import build, scan
from ottla.records.record import Record
from tests.fuzz.targets import NOW
from tests.oracles.dice import MessageDice

_RECORDS: Final = (
    Record(0, NOW, b"key", b"value", [("h", b"1"), ("empty", None)]),
    Record(1, NOW - 5, None, b"v" * 200),
    Record(2, NOW + 70_000, b"", None),
)


@cache
def batches() -> tuple[bytes, ...]:
    """RecordBatch v2: every codec, an idempotent one, one with LogAppendTime, two in a row, a control batch."""
    single = [build(_RECORDS, codec=kind) for kind in range(5)]
    later = [Record(10 + n, NOW, b"k", b"x" * n) for n in range(70)]
    return (
        *single,
        build(_RECORDS, producer_id=5, producer_epoch=0, base_sequence=0, transactional=True),
        build(_RECORDS, timestamp_type=1),
        build(_RECORDS) + build(later, base_offset=10),
        build(_RECORDS, codec=2) + build(later, base_offset=10, codec=4),
        control.build_marker(commit=True, producer_id=5, producer_epoch=0, coordinator_epoch=1, timestamp=NOW),
    )


@cache
def message_sets() -> tuple[bytes, ...]:
    """Magic 0 and 1, plain and packed with each codec that they know."""
    return tuple(legacy.for_old_client(batch, magic, 0, 1 << 20) for batch in batches()[:4] for magic in (0, 1))


@cache
def packed() -> tuple[bytes, ...]:
    text = b"abcdefgh" * 300
    bomb = compression.compress(codec_names.ZSTD, bytes(2 << 20))
    return (bomb, *(compression.compress(kind, text) for kind in range(1, 5)))


@cache
def snapshots() -> tuple[bytes, ...]:
    states = ProducerStates()
    for number in range(3):
        batch = build(_RECORDS, producer_id=number, producer_epoch=0, base_sequence=7)
        states.appended(scan(batch).batches[0], 3 * number)
    return (ProducerStates().snapshot(), states.snapshot())


@cache
def small_files() -> tuple[bytes, ...]:
    return (
        bytes.fromhex("00000005 00000040 00000009 00000080"),
        bytes.fromhex("0000018bcfe56800 00000005 0000018bcfe57800 00000009"),
        b"0\n2\nflights 0 1234\nflights 1 987\n",
        b"0\n2\n1 0\n3 1234\n",
        b"version=1\nnode.id=1\ncluster.id=abc\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAA\n",
    )


def a_request(rng: random.Random) -> bytes:
    """A good frame of any API and version."""
    api = rng.choice(list(APIS.values()))
    cls = api.request_class()
    version = rng.randint(cls.VERSIONS.first, cls.VERSIONS.last)
    header = RequestHeader(
        request_api_key=api.key, request_api_version=version, correlation_id=1, client_id=rng.choice((None, "c"))
    )
    head = codec.encode(header, api.request_header_version(version))
    return head + codec.encode(MessageDice(rng).message(cls, version), version)


def some_frames(rng: random.Random) -> bytes:
    bodies = [rng.randbytes(rng.choice((0, 1, 3, 40, 5000))) for _ in range(rng.randrange(1, 6))]
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


def seed_of(target: str, rng: random.Random) -> bytes:
    """One good input."""
    if target == "frames":
        return some_frames(rng)
    if target == "request":
        return a_request(rng)
    pools = {
        "batches": batches,
        "produced": batches,
        "for_old_clients": batches,
        "log": batches,
        "message_set": message_sets,
        "packed": packed,
        "snapshot": snapshots,
        "small_files": small_files,
    }
    if target == "marker":
        return control.marker_key(rng.randrange(3)) + control.marker_value(7)
    return rng.choice(pools[target]())
