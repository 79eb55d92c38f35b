"""A file that a clean start trusts is damaged: readers get every record or an error, never less in silence.

Each round damages one file of a cleanly stopped log: bits are flipped, the file is cut or extended, or a range is overwritten.
Then the log is opened as after a clean stop, and read as clients do: in sequence, from any offset, committed records only, and
by timestamp. A strict client refuses bytes that are no batch; damage within a batch it sees by the CRC.
"""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from ottla.log import reading
from ottla.log.config import LogConfig
from ottla.log.log import Log, StorageError
from ottla.log.segment import MOST_CHECKED
from ottla.records.batch import build, crc_ok, records_of, scan
from ottla.records.record import Record
from tests.memory_store import MemoryStore

DIRECTORY: Final = Path("/data/t-0")
BEGIN_MS: Final = 1_700_000_000_000
CONFIG: Final = LogConfig(segment_bytes=4_000, index_interval_bytes=200)
ROUNDS: Final = 400
MOST: Final = 1 << 20


class Damage(Exception):
    """Damage that a strict client detects in the bytes that it received."""


class Found(NamedTuple):
    """Results of readers: records as (offset, value), and offsets by timestamp."""

    records: list[tuple[int, bytes | None]]
    committed: list[tuple[int, bytes | None]]
    times: list[tuple[int, int, int] | None]


def fill(log: Log, chance: random.Random) -> None:
    """Append batches of one to three records, transactions that are committed or aborted, and two more leader epochs."""
    sequences = dict.fromkeys(range(4), 0)
    for number in range(150):
        epoch = 1 + number // 60
        stamp = BEGIN_MS + 10 * number - chance.choice((0, 0, 25))
        producer = chance.choice((-1, -1, 0, 1, 2, 3))
        records = [
            Record(at, stamp + at, b"k%d" % number, b"v" * chance.randrange(80)) for at in range(chance.randrange(1, 4))
        ]
        values: dict[str, Any] = {}
        if producer >= 0:
            values = {
                "producer_id": producer,
                "producer_epoch": 0,
                "base_sequence": sequences[producer],
                "transactional": True,
            }
            sequences[producer] += len(records)
        batch = build(records, **values)
        assert log.append(batch, 0, len(batch), epoch, stamp).error_code == 0
        if producer >= 0 and chance.random() < 0.7:
            log.append_marker(producer, 0, 0, epoch, stamp, commit=chance.random() < 0.5, new_epoch=False)
        log.high_watermark = log.end_offset
    for producer in sequences:
        log.append_marker(producer, 0, 0, epoch, stamp, commit=True, new_epoch=False)
    log.high_watermark = log.end_offset


def closed(config: LogConfig, chance: random.Random) -> tuple[MemoryStore, int]:
    """A log that was stopped cleanly, and its end offset."""
    store = MemoryStore()
    store.make_directory(DIRECTORY, parents=True)
    log = Log(store, DIRECTORY, config)
    fill(log, chance)
    assert len(log.segments) > 3
    log.close()
    return store, log.end_offset


def batches_in(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The batches in what a client was sent. Raises Damage."""
    scanned = scan(data)
    for header in scanned.batches:
        if not crc_ok(data, header):
            raise Damage("the CRC of a batch is wrong")
        yield header.base_offset, data[header.start : header.end]
    if scanned.corrupt is not None or scanned.end < len(data):
        raise AssertionError(f"bytes that are no batch: {scanned.corrupt}")


def sequence(log: Log, offset: int, max_bytes: int) -> Iterator[bytes]:
    """The batches that a consumer gets from an offset to the end. Raises StorageError and Damage."""
    while offset < log.end_offset:
        region = log.read(offset, max_bytes, log.end_offset, whole_first=True)
        if region is None:
            raise AssertionError(f"no records from offset {offset} to {log.end_offset}")
        before = offset
        for _, batch in batches_in(region.read()):
            yield batch
            offset = scan(batch).batches[0].next_offset
        assert offset > before, f"a consumer stands still at offset {offset}"


def consumed(log: Log, offset: int, max_bytes: int) -> list[tuple[int, bytes | None]]:
    """The records of a consumer that begins at an offset: it drops those below its position."""
    position = offset
    records = []
    for batch in sequence(log, offset, max_bytes):
        header = scan(batch).batches[0]
        if not header.is_control:
            records += [(record.offset, record.value) for record in records_of(batch) if record.offset >= position]
        position = max(position, header.next_offset)
    return records


def consumed_committed(log: Log) -> list[tuple[int, bytes | None]]:
    """The records of a consumer with read_committed."""
    offset, records = log.start_offset, []
    while offset < log.last_stable_offset:
        region = log.read(offset, 700, log.last_stable_offset, whole_first=True)
        assert region is not None
        aborted = sorted((entry.first_offset, entry.producer_id) for entry in reading.aborted_in(log, region, offset))
        open_aborts: set[int] = set()
        for base, batch in batches_in(region.read()):
            header = scan(batch).batches[0]
            while aborted and aborted[0][0] <= header.last_offset:
                open_aborts.add(aborted.pop(0)[1])
            if header.is_control:
                open_aborts.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in open_aborts):
                records += [(record.offset, record.value) for record in records_of(batch) if record.offset >= offset]
            offset = max(offset, header.next_offset)
            assert base <= offset
    return records


def observe(log: Log) -> Found:
    """Read a log in all ways. Raises StorageError and Damage."""
    times = [reading.offset_at(log, BEGIN_MS + at) for at in range(-5, 1600, 40)]
    return Found(consumed(log, log.start_offset, MOST), consumed_committed(log), times)


def reopen(store: MemoryStore, config: LogConfig, end: int) -> Log:
    return Log(store, DIRECTORY, config, recovery_point=end, high_watermark=end, clean=True)


def flip(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 3))):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data))]


def extend(data: bytes, chance: random.Random) -> bytes:
    size = chance.choice((1, 8, 12, 34, 61, 100, 500))
    return data + chance.choice((bytes(size), chance.randbytes(size), data[-size:]))


def overwrite(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data))
    size = min(len(data) - at, chance.choice((4, 12, 61, 200)))
    return data[:at] + chance.choice((bytes(size), chance.randbytes(size))) + data[at + size :]


HARMS: Final[list[Callable[[bytes, random.Random], bytes]]] = [flip, cut, extend, overwrite]


@pytest.mark.parametrize("short", [False, True], ids=["long last segment", "short last segment"])
def test_readers_get_every_record_or_an_error(short: bool, dice_seed: int) -> None:
    chance = random.Random(dice_seed)
    config = CONFIG if short else LogConfig(segment_bytes=9_000, index_interval_bytes=200)
    store, end = closed(config, random.Random(3 if short else 4))
    whole = observe(reopen(store, config, end))
    pristine = {name: bytes(store.content(DIRECTORY / name).data) for name in store.names(DIRECTORY)}
    silent = []
    outcomes = {"right": 0, "error": 0}
    for number in range(ROUNDS):
        name = chance.choice([name for name, data in pristine.items() if data])
        harm = chance.choice(HARMS)
        copy = MemoryStore()
        copy.make_directory(DIRECTORY, parents=True)
        for file_name, data in pristine.items():
            copy.write(DIRECTORY / file_name, harm(data, chance) if file_name == name else data)
        try:
            log = reopen(copy, config, end)
            if log.end_offset != end:
                silent.append((number, name, harm.__name__, "the end of the log has moved"))
                continue
            offset = chance.randrange(end)
            for begin, size in ((offset, 1), (offset, 900), (offset, MOST)):
                assert consumed(log, begin, size) == [row for row in whole.records if row[0] >= begin]
            observed = observe(log)
            # A look-up by timestamp trusts the headers of batches, as in Apache Kafka: they are not worth a CRC for each.
            for field in Found._fields[: 2 if name.endswith(".log") else 3]:
                assert getattr(observed, field) == getattr(whole, field), field
        except (StorageError, Damage):
            outcomes["error"] += 1
        except Exception as cause:  # noqa: BLE001 - whatever it is, it is no error that a reader is to get
            silent.append((number, name, harm.__name__, f"{type(cause).__name__}: {cause}".splitlines()[0]))
        else:
            outcomes["right"] += 1
    assert not silent, "\n".join(map(str, silent))
    assert min(outcomes.values()) > ROUNDS // 10, outcomes


def test_one_read_compares_a_bounded_number_of_headers() -> None:
    """A fetch of tiny batches of an earlier process would keep all other clients waiting. The next read goes on behind them."""
    store = MemoryStore()
    store.make_directory(DIRECTORY, parents=True)
    count = 3 * MOST_CHECKED + 7
    config = LogConfig(segment_bytes=1 << 30)
    log = Log(store, DIRECTORY, config)
    for number in range(count):
        batch = build([Record(0, BEGIN_MS + number, None, b"")])
        assert log.append(batch, 0, len(batch), 1, BEGIN_MS).error_code == 0
    log.close()
    log = reopen(store, config, count)
    sizes = []
    offset = 0
    while offset < count:
        region = log.read(offset, 1 << 30, count, whole_first=True)
        assert region is not None
        bases = [base for base, _ in batches_in(region.read())]
        assert bases == list(range(offset, offset + len(bases)))
        sizes.append(len(bases))
        offset += len(bases)
    assert sizes == [MOST_CHECKED] * 3 + [7]
    whole = log.read(0, 1 << 30, count, whole_first=True)
    assert whole is not None
    assert len(list(batches_in(whole.read()))) == count, "what was compared once is compared again"
