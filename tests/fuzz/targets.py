"""Targets of the fuzzer: readers of foreign bytes, each with the error that it may raise and its invariants otherwise.

A target is `name` and a function of the input; any exception that leaves the function is a bug. Inputs are replayed by name.
"""

import random
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from crc32c import crc32c

from ottla.environment.disk import DiskStore
from ottla.log import reading
from ottla.log.checkpoints import DamagedCheckpoint, LeaderEpochs, OffsetCheckpoint
from ottla.log.config import LogConfig
from ottla.log.directory import LogDirectory, UnusableDirectory
from ottla.log.index import OffsetIndex, TimeIndex
from ottla.log.log import Log, OffsetNotInLog, StorageError
from ottla.log.producers import DamagedSnapshot, ProducerStates
from ottla.protocol import codec
from ottla.protocol.connection import open_envelope
from ottla.protocol.frames import FrameReader
from ottla.protocol.schema import Message
from ottla.protocol.wire import PeerError
from ottla.records import codec_names, compression, control, legacy
from ottla.records.batch import build, crc_ok, records_of, scan
from ottla.records.columns import ColumnReader
from ottla.records.errors import CorruptRecords
from ottla.records.record import Record
from ottla.records.schema_ids import RECORD_NAME, TOPIC_NAME, FieldSchemas, SchemaRules
from ottla.records.validation import ProduceRules, prepare
from tests.oracles.dice import declared_messages

NOW: Final = 1_700_000_000_000
# What compressed data may decompress to here.
LIMIT: Final = 1 << 20
_MESSAGES: Final = declared_messages()
_RULES: Final = (
    ProduceRules(before_max_ms=2**63 - 1, after_max_ms=2**62),
    ProduceRules(compacted=True, codec=codec_names.GZIP),
    ProduceRules(log_append_time=True, codec=codec_names.NONE),
    ProduceRules(
        schemas=SchemaRules(
            FieldSchemas("t", "key", TOPIC_NAME), FieldSchemas("t", "value", RECORD_NAME), now_ms=lambda: NOW
        )
    ),
)


def frames(data: bytes) -> None:
    """Cut in two ways, the same frames or the same refusal; nothing larger than its limit."""
    assert _frames(data, len(data) or 1) == _frames(data, 1 + len(data) // 3) == _frames(data, 1)


def _frames(data: bytes, step: int) -> list[bytes] | None:
    reader = FrameReader(10_000)
    whole_frames: list[bytes] = []
    try:
        for at in range(0, len(data), step):
            piece = bytearray(data[at : at + step])
            room = reader.room()
            if room is None:
                whole_frames += reader.feed(piece, len(piece))
                continue
            fitted = min(len(room), len(piece))
            room[:fitted] = piece[:fitted]
            room.release()
            whole_frames += reader.feed_rest(piece[fitted:], len(piece))
    except PeerError:
        return None
    assert all(len(frame) <= 10_000 for frame in whole_frames)
    return whole_frames


def request(data: bytes) -> None:
    """A frame as a broker opens it: header, then the body of whatever API it names, in both ways of reading."""
    try:
        envelope = open_envelope(data)
    except PeerError:
        return
    message(envelope.api.request_class(), envelope.version, data, envelope.body)


def message(cls: type[Message], version: int, data: bytes, position: int = 0) -> None:
    """Objects and positions agree; what was read can be written, and reads the same."""
    try:
        read, end = codec.decode(cls, version, data, position)
    except PeerError:
        read, end = None, -1
    try:
        assert codec.decode_positions(cls, version, data, position)[1] == end
    except PeerError:
        assert read is None
    if read is not None:
        written = codec.encode(read, version)
        again, size = codec.decode(cls, version, written)
        assert size == len(written)
        assert codec.encode(again, version) == written


def batches(data: bytes) -> None:
    """Records and columns are of one mind."""
    scanned = scan(data)
    for header in scanned.batches:
        crc_ok(data, header)
    try:
        records = records_of(data, 0, LIMIT)
    except CorruptRecords:
        records = None
    reader = ColumnReader()
    try:
        columns = reader.read(data, -(2**63))
    except CorruptRecords:
        return
    if records is not None and not any(header.is_control for header in scanned.batches):
        assert columns.rows == sum(1 for record in records if record.offset < 2**63 - 1)
        assert columns.values is not None
        assert columns.values.data == b"".join(record.value or b"" for record in records if record.offset < 2**63 - 1)


def produced(data: bytes) -> None:
    """Check that data a leader accepts is one batch that consumers can read, with as many records as its header states."""
    for rules in _RULES:
        prepared = prepare(data, 0, len(data), rules, NOW, "t-0")
        for _ in prepared.remaining or ():
            pass
        if prepared.error_code or prepared.unknown:
            continue
        stored = b"".join(prepared.stamp(1000, 7))
        (header,) = scan(stored).batches
        assert crc_ok(stored, header)
        assert header.base_offset == 1000
        assert len(records_of(stored, 0, LIMIT)) == header.count
        assert ColumnReader().read(stored, 0).complete


def message_set(data: bytes) -> None:
    try:
        for old_message in legacy.messages(data):
            assert old_message.magic in (0, 1)
    except CorruptRecords:
        pass
    rebuilt = legacy.all_at_once(legacy.rebuild(data, 0, len(data), 1 << 20, LIMIT))
    if rebuilt.batch:
        assert rebuilt.error_code == 0
        assert records_of(rebuilt.batch)


def for_old_clients(data: bytes) -> None:
    for magic in (0, 1):
        try:
            written = legacy.for_old_client(data, magic, 0, 1 << 20)
        except (CorruptRecords, legacy.NotForOldClients):
            continue
        # A damaged batch may hold timestamps that the old formats do not have.
        with suppress(CorruptRecords):
            list(legacy.messages(written))


def marker(data: bytes) -> None:
    for key, value in ((data, data), (data[:4], data[4:]), (None, data), (data, None)):
        try:
            control.read_marker(key, value)
        except CorruptRecords:
            continue


def packed(data: bytes) -> None:
    for kind in range(6):
        try:
            assert len(compression.decompress(kind, data, LIMIT)) <= LIMIT
        except CorruptRecords:
            continue
    try:
        legacy.with_lz4_checksum(data, wrong=True)
    except CorruptRecords:
        return


def snapshot(data: bytes) -> None:
    for encoded in (data, _with_snapshot_crc(data)):
        try:
            ProducerStates.from_snapshot(encoded).snapshot()
        except DamagedSnapshot:
            continue


def _with_snapshot_crc(data: bytes) -> bytes:
    return data[:2] + crc32c(data[6:]).to_bytes(4, "big") + data[6:]


def small_files(data: bytes) -> None:
    """Indexes, checkpoints and meta.properties that a disk has eaten at."""
    with tempfile.TemporaryDirectory() as folder:
        directory, store = Path(folder), DiskStore()
        path = directory / "file"
        path.write_bytes(data)
        index, time_index = OffsetIndex(store, path.parent, path.name, 10), TimeIndex(store, path.parent, path.name, 10)
        assert index.position_before(50) is not None
        index.truncate(40)
        time_index.offset_before(NOW)
        time_index.truncate(40)
        for read in (OffsetCheckpoint(store, path).read, lambda: LeaderEpochs(store, path)):
            try:
                read()
            except DamagedCheckpoint:
                continue
        (directory / "meta.properties").write_bytes(data)
        owned = LogDirectory(store, directory)
        try:
            owned.identity()
        except UnusableDirectory:
            pass
        finally:
            owned.release()


def log(data: bytes) -> None:
    """A segment in disorder: it is cut or believed, and what is left can be read and appended to."""
    rng = random.Random(len(data))
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "t-0"
        directory.mkdir()
        name = f"{0:020d}"
        (directory / f"{name}.log").write_bytes(data)
        (directory / f"{name}.index").write_bytes(rng.randbytes(8 * rng.randrange(3)))
        (directory / f"{name}.timeindex").write_bytes(rng.randbytes(12 * rng.randrange(3)))
        for recovery_point in (0, 2**62):
            try:
                opened = Log(DiskStore(), directory, LogConfig(index_interval_bytes=1), recovery_point=recovery_point)
            except StorageError:
                continue
            try:
                _used(opened)
            finally:
                opened.close()


def _used(opened: Log) -> None:
    try:
        opened.read(opened.start_offset, 1000, opened.end_offset, whole_first=True)
        reading.offset_at(opened, NOW)
        legacy.all_at_once(reading.find_newest(opened))
        list(reading.batches(opened))
    except (StorageError, OffsetNotInLog):
        pass
    batch = build([Record(0, NOW, b"k", b"v")])
    if opened.end_offset < 2**62:
        opened.append(batch, 0, len(batch), 0, NOW)


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    "frames": frames,
    "request": request,
    "batches": batches,
    "produced": produced,
    "message_set": message_set,
    "for_old_clients": for_old_clients,
    "marker": marker,
    "packed": packed,
    "snapshot": snapshot,
    "small_files": small_files,
    "log": log,
}


def run(name: str, data: bytes) -> None:
    """Run a target of TARGETS, or "Message/version"."""
    if name in TARGETS:
        TARGETS[name](data)
        return
    cls, _, version = name.partition("/")
    message(_MESSAGES[cls], int(version), data)
