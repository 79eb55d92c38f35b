"""Dump of a log or of a metadata snapshot for `ottla dump-log`: its batches or old messages, and records."""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from ottla.cli import record_json
from ottla.cli.cluster_access import CommandFailed
from ottla.cli.kafka.dumped_messages import OldMessage, is_old, old_messages
from ottla.cli.kafka.remote_log_metadata import remote_log_metadata
from ottla.records.batch import DELETE_HORIZON, BatchHeader, crc_ok, read_records, scan
from ottla.records.codec_names import CODEC_NAMES
from ottla.records.control import ABORT, COMMIT, read_marker
from ottla.records.errors import CorruptRecords
from ottla.records.record import NOWHERE, Record


def _string(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _number(layout: str) -> Any:
    def read(data: bytes) -> str:
        """Decode the first bytes, as Kafka's decoders do."""
        size = struct.calcsize(layout)
        return str(struct.unpack_from(layout, data)[0]) if len(data) >= size else f"{len(data)} bytes are not {size}"

    return read


DECODERS: Final[dict[str, Any]] = {
    "StringDecoder": _string,
    "DefaultDecoder": repr,
    "IntegerDecoder": _number(">i"),
    "LongDecoder": _number(">q"),
    "DoubleDecoder": _number(">d"),
}
_DEFAULT_DECODER: Final = "StringDecoder"


class Dump:
    """Output about one file: text lines or JSON entries, and the problems in the file."""

    def __init__(self, path: Path, *, quiet: bool) -> None:
        self.path = path
        self.entries: list[dict[str, Any]] = []
        self.wrong: list[str] = []
        self._quiet = quiet

    def line(self, line: str) -> None:
        """Print a line, unless the output is JSON."""
        if not self._quiet:
            click.echo(line)

    def entry(self, line: str, document: dict[str, Any]) -> dict[str, Any]:
        """Print a line and store the same entry as an object."""
        self.line(line)
        self.entries.append(document)
        return document

    def problem(self, title: str, lines: list[str]) -> None:
        """Print and store a problem, with details."""
        self.line(title)
        for line in lines:
            self.line(line)
        self.wrong += [f"{title} {line.strip()}" for line in lines] or [title]


class LogDumper:
    """Prints logs according to the options.

    kind  kind of internal records, None for user records
    """

    def __init__(self, kind: str | None, options: Mapping[str, Any]) -> None:
        self._kind = kind
        key_decoder, value_decoder = options["key_decoder_class"], options["value_decoder_class"]
        self._data = bool(options["print_data_log"] or kind or key_decoder or value_decoder)
        self._deep = bool(options["deep_iteration"] or self._data)
        self._short = bool(options["skip_record_metadata"])
        self._limit = options["max_bytes"]
        self._read_key = DECODERS[(key_decoder or _DEFAULT_DECODER).rpartition(".")[2]]
        self._read_value = DECODERS[(value_decoder or _DEFAULT_DECODER).rpartition(".")[2]]
        self._last = -1
        self._gaps: list[tuple[int, int]] = []

    def dump(self, path: Path, dump: Dump) -> None:
        """Dump one log. Raises OSError."""
        if path.suffix == ".log":
            dump.line(f"Log starting offset: {int(path.name[:20])}")
        else:
            epoch = path.stem.partition("-")[2]
            dump.line(f"Snapshot end offset: {int(path.name[:20])}, epoch: {int(epoch or 0)}")
        data = path.read_bytes()
        if self._limit is not None:
            data = data[: self._limit]
        self._last, self._gaps = -1, []
        position, why = self._entries(data, dump)
        left = len(data) - position
        if left and self._limit is None:
            dump.problem(f"Found {left} invalid bytes at the end of {path.name}{why}", [])
        if self._gaps:
            dump.line(f"Non-consecutive offsets in {path}")
            for before, after in self._gaps:
                dump.line(f"  {before} is followed by {after}")

    def _entries(self, data: bytes, dump: Dump) -> tuple[int, str]:
        """Dump batches and messages of older formats; return the end position and the reason for a premature end."""
        position = 0
        while True:
            scanned = scan(data, position)
            for header in scanned.batches:
                document = self._batch(data, header, dump)
                if self._deep:
                    self._records(data, header, document, dump)
            position = scanned.end
            if not is_old(data, position):
                return position, f": {scanned.corrupt}" if scanned.corrupt else ""
            begun = position
            try:
                for message in old_messages(data, position):
                    self._message(message, dump)
                    position = message.end
            except CorruptRecords as error:
                return position, f": {error}"
            if position == begun:
                return position, ""

    def _message(self, message: OldMessage, dump: Dump) -> None:
        """Dump a message of magic 0 or 1, and its inner messages."""
        codec = CODEC_NAMES[message.codec] if message.codec < len(CODEC_NAMES) else str(message.codec)
        line = (
            f"offset: {message.offset} position: {message.start} {message.timestamp_type}: {message.timestamp} "
            f"size: {message.size} magic: {message.magic} compresscodec: {codec} crc: {message.crc} "
            f"isvalid: {_java(message.valid)}"
        )
        if not message.valid:
            dump.wrong.append(f"the message at position {message.start} of {dump.path} fails its CRC")
        names = ("offset", "timestamp_type", "timestamp", "size", "magic", "crc", "valid")
        document = dump.entry(
            line, {**{name: getattr(message, name) for name in names}, "position": message.start, "codec": codec}
        )
        if not self._deep:
            return
        try:
            records = message.records()
        except CorruptRecords as error:
            dump.problem(f"The message at offset {message.offset} cannot be read", [f"  {error}"])
            self._last = message.offset
            return
        shown = document.setdefault("records", [])
        for inner in records:
            self._check_gap(inner.offset)
            key_size, value_size = _sizes(inner.key, inner.value)
            words = []
            if not self._short:
                words.append(
                    f"offset: {inner.offset} {message.timestamp_type}: {inner.timestamp} keySize: {key_size} "
                    f"valueSize: {value_size} isValid: {_java(inner.valid)} crc: {inner.crc}"
                )
            entry = {
                "offset": inner.offset,
                "timestamp": inner.timestamp,
                "key_size": key_size,
                "value_size": value_size,
                "valid": inner.valid,
                "crc": inner.crc,
            }
            if inner is not message and not inner.valid:
                dump.wrong.append(f"the message at offset {inner.offset} of {dump.path} fails its CRC")
            self._payload_line(inner.record(), words, entry, dump)
            shown.append(entry)

    def _check_gap(self, offset: int) -> None:
        """Record a gap if the offset does not follow the previous one."""
        if offset != self._last + 1:
            self._gaps.append((self._last, offset))
        self._last = offset

    def _payload_line(self, record: Record, words: list[str], entry: dict[str, Any], dump: Dump) -> None:
        """Print a record, with key and payload if requested."""
        if self._data:
            for title, text in zip(("key", "payload"), self._texts(record), strict=True):
                if text is not None:
                    entry[title] = text
                    words.append(f"{title}: {text}")
        dump.line(f"| {' '.join(words)}" if words else "")

    def _batch(self, data: bytes, header: BatchHeader, dump: Dump) -> dict[str, Any]:
        sound = crc_ok(data, header)
        last_sequence = header.base_sequence
        if last_sequence >= 0:
            last_sequence = (last_sequence + header.last_offset_delta) & 0x7FFFFFFF
        horizon = header.base_timestamp if header.attributes & DELETE_HORIZON else None
        kind = "LogAppendTime" if header.timestamp_type else "CreateTime"
        size = header.end - header.start
        codec = CODEC_NAMES[header.compression]
        line = (
            f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.count} "
            f"baseSequence: {header.base_sequence} lastSequence: {last_sequence} producerId: {header.producer_id} "
            f"producerEpoch: {header.producer_epoch} partitionLeaderEpoch: {header.leader_epoch} "
            f"isTransactional: {_java(header.is_transactional)} isControl: {_java(header.is_control)} "
            f"deleteHorizonMs: {optional_long(horizon)} position: {header.start} {kind}: {header.max_timestamp} "
            f"size: {size} magic: {header.magic} compresscodec: {codec} crc: {header.crc} isvalid: {_java(sound)}"
        )
        if not sound:
            dump.wrong.append(f"the batch at position {header.start} of {dump.path} fails its CRC")
        return dump.entry(
            line,
            {
                "base_offset": header.base_offset,
                "last_offset": header.last_offset,
                "count": header.count,
                "base_sequence": header.base_sequence,
                "last_sequence": last_sequence,
                "producer_id": header.producer_id,
                "producer_epoch": header.producer_epoch,
                "leader_epoch": header.leader_epoch,
                "transactional": header.is_transactional,
                "control": header.is_control,
                "delete_horizon_ms": horizon,
                "position": header.start,
                "timestamp_type": kind,
                "timestamp": header.max_timestamp,
                "size": size,
                "codec": codec,
                "crc": header.crc,
                "valid": sound,
            },
        )

    def _records(self, data: bytes, header: BatchHeader, document: dict[str, Any], dump: Dump) -> None:
        """Dump the records of a batch."""
        try:
            records = read_records(data, header, NOWHERE)
        except CorruptRecords as error:
            dump.problem(f"The batch at offset {header.base_offset} cannot be read", [f"  {error}"])
            self._last = header.last_offset
            return
        shown = document.setdefault("records", [])
        for index, record in enumerate(records):
            self._check_gap(record.offset)
            sequence = (header.base_sequence + index) & 0x7FFFFFFF if header.base_sequence >= 0 else -1
            shown.append(self._record(header, record, sequence, dump))

    def _record(self, header: BatchHeader, record: Record, sequence: int, dump: Dump) -> dict[str, Any]:
        """Print a record and return it as an object."""
        kind = "LogAppendTime" if header.timestamp_type else "CreateTime"
        names = [name for name, _ in record.headers]
        key_size, value_size = _sizes(record.key, record.value)
        entry: dict[str, Any] = {
            "offset": record.offset,
            "timestamp": record.timestamp,
            "sequence": sequence,
            "header_keys": names,
            "key_size": key_size,
            "value_size": value_size,
        }
        words = []
        if not self._short:
            words.append(
                f"offset: {record.offset} {kind}: {record.timestamp} keySize: {key_size} valueSize: {value_size} "
                f"sequence: {sequence} headerKeys: [{','.join(names)}]"
            )
        if header.is_control:
            entry["control"] = _control(record)
            dump.line("" if self._short else f"| {words[0]} {entry['control']}")
        else:
            self._payload_line(record, words, entry, dump)
        return entry

    def _texts(self, record: Record) -> record_json.KeyAndPayload:
        if self._kind == "cluster-metadata":
            return None, record_json.metadata(record.value or b"", record.offset)
        if self._kind == "remote-log-metadata":
            try:
                return None, remote_log_metadata(record.value)
            except ValueError as error:
                return None, f"Error at offset {record.offset}, skipping. {error}"
        if self._kind is not None:
            if record.key is None:
                raise CommandFailed(f"the record at offset {record.offset} has no key: it is not of that topic")
            read = {
                "offsets": record_json.offsets,
                "transactions": record_json.transactions,
                "share-group-state": record_json.share_state,
            }[self._kind]
            return read(record.key, record.value, record.offset)
        key = None if record.key is None else self._read_key(record.key)
        return key, None if record.value is None else self._read_value(record.value)


def _sizes(key: bytes | None, value: bytes | None) -> tuple[int, int]:
    return -1 if key is None else len(key), -1 if value is None else len(value)


def _control(record: Record) -> str:
    try:
        marker = read_marker(record.key, record.value)
    except CorruptRecords as error:
        return f"control record that cannot be read: {error}"
    if marker.type in (ABORT, COMMIT):
        name = "COMMIT" if marker.type == COMMIT else "ABORT"
        return f"endTxnMarker: {name} coordinatorEpoch: {marker.coordinator_epoch}"
    return record_json.control(marker.type, record.value)


def _java(value: bool) -> str:
    return "true" if value else "false"


def optional_long(value: int | None) -> str:
    """Format like a Java OptionalLong."""
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"
