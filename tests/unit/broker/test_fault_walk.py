"""Every file of a data directory is damaged in its turn: the broker starts, and only the partition that the file belongs to
suffers; records that are missing are announced in the log."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.log import reading
from ottla.log.log import Log, StorageError
from ottla.records.batch import crc_ok, scan

from .test_log_directories import Machine

IDENTITY = ("metadata.db", "metadata.db-wal", "metadata.db-shm", "meta.properties", ".lock")
"""Without these a broker does not know which cluster it is part of: it does not start, with one line (tested elsewhere)."""


def flipped_at(share: float) -> Callable[[bytes], bytes | None]:
    def flip(data: bytes) -> bytes | None:
        if not data:
            return None
        at = min(len(data) - 1, int(len(data) * share))
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    return flip


HARMS: dict[str, Callable[[bytes], bytes | None]] = {
    "flipped first byte": flipped_at(0),
    "flipped middle byte": flipped_at(0.5),
    "flipped last byte": flipped_at(1),
    "cut": lambda data: data[: len(data) * 3 // 5],  # within a batch
    "emptied": lambda data: b"",
    "removed": lambda data: None,
}
REBUILT = (".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint")
"""Files that are rebuilt from the records: whatever happens to them, every record can be read."""
KEYS = (("t", 0), ("t", 1), ("u", 0), ("__consumer_offsets", 0))


def fill(machine: Machine) -> None:
    """Three topics: one of several segments and leader epochs, one compacted, and that of the groups."""
    machine.create("t", 2, segment_bytes="1048576", index_interval_bytes="100")
    machine.create("u", 1, cleanup_policy="compact")
    machine.create_internal("__consumer_offsets")
    for name, index in KEYS[:3]:
        log = machine.partition(name, index).log
        log.config = replace(log.config, segment_bytes=2500)
        machine.append(name, 20, index)
        log.delete_records(2)
        machine.append(name, 5, index)


def checked(log: Log) -> list[tuple[int, bytes | None]]:
    """Return the records that a client reads, which checks the CRC of each batch. Raise StorageError.

    The base offset is not covered by the CRC, and segments that are not scanned are sent as they are, by Apache Kafka too.
    """
    for segment in log.segments:
        data = segment.log.read(0, segment.size)
        offset = segment.base_offset
        for header in scan(data).batches:
            if header.base_offset != offset or not crc_ok(data, header):
                raise StorageError("a batch is damaged")
            offset = header.next_offset
    return [(record.offset, record.value) for _, records in reading.batches(log) for record in records]


def records_of(machine: Machine) -> dict[tuple[str, int], list[tuple[int, bytes | None]] | str]:
    """The records of each partition, or why they cannot be read."""
    read: dict[tuple[str, int], list[tuple[int, bytes | None]] | str] = {}
    for key in KEYS:
        partition = machine.broker.replicas.find(*key)
        if partition is None:
            read[key] = "offline"
            continue
        try:
            read[key] = checked(partition.log)
        except StorageError as cause:
            read[key] = str(cause)
    return read


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
def test_a_damaged_file_affects_its_own_partition_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kill: bool
) -> None:
    pristine = tmp_path / "pristine"
    with Machine(tmp_path / "first", "a", offsets_topic_num_partitions="1") as machine:
        fill(machine)
        whole = records_of(machine)
        for directory in machine.broker.replicas.directories:
            directory.checkpoint()
        if kill:
            shutil.copytree(machine.path, pristine)
    if not kill:
        shutil.copytree(machine.path, pristine)
    files = [path.relative_to(pristine) for path in sorted(pristine.rglob("*")) if path.is_file()]
    walked = 0
    for number, name in enumerate(file for file in files if file.name not in IDENTITY):
        for harm, change in HARMS.items():
            data = (pristine / name).read_bytes()
            changed = change(data)
            if changed == data:
                continue
            copy = tmp_path / f"{number}-{harm}"
            shutil.copytree(pristine, copy)
            (copy / name).unlink() if changed is None else (copy / name).write_bytes(changed)
            caplog.clear()
            with Machine(copy, "a", offsets_topic_num_partitions="1") as again:
                read = records_of(again)
                assert again.offline() == [], (name, harm)
            for key in KEYS:
                hurt = name.parent.name == f"{key[0]}-{key[1]}"
                records = read[key]
                if hurt and (name.suffix in REBUILT or name.name in REBUILT):
                    assert records == whole[key], (name, harm)
                elif hurt and records != whole[key] and isinstance(records, list):
                    # Fewer records (or deleted ones again) than there were are never met in silence.
                    assert any(str(name) in line or str(name.parent) in line for line in caplog.messages), (name, harm)
                elif not hurt and name.name != "log-start-offset-checkpoint":
                    assert records == whole[key], (name, harm, key)
                elif not hurt:  # what DeleteRecords removed can be read again, and that is all
                    assert isinstance(records, list)
                    assert records[-len(whole[key]) :] == whole[key] or records == whole[key][-len(records) :]
            shutil.rmtree(copy)
            walked += 1
    assert walked > 100, walked
