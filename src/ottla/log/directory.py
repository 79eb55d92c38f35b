"""A log directory (one of `log.dirs`): who owns it, which partitions lie in it, and what they looked like at the last stop.

.lock                               held as long as a broker lives
meta.properties                     node.id, cluster.id, directory.id: whose directory this is
.kafka_cleanshutdown                there after a clean stop, taken away at the next start
recovery-point-offset-checkpoint    per partition, up to where everything is on the medium
log-start-offset-checkpoint         per partition, where it begins
replication-offset-checkpoint       per partition, its high watermark
<topic>-<partition>/                segments and indexes
    partition.metadata              the topic's id
<topic>-<partition>.<hex>-delete/   a deleted partition, removed after file.delete.delay.ms
"""

import fcntl
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from ottla.log.checkpoints import OffsetCheckpoint
from ottla.log.config import LogConfig
from ottla.log.log import Log, StorageError
from ottla.log.relocation import Relocation
from ottla.log.store import Store
from ottla.protocol.uuids import uuid_bytes, uuid_text

CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
METADATA_LOG: Final = "__cluster_metadata-0"
STRAY: Final = "-stray"
DELETE: Final = "-delete"
FUTURE: Final = "-future"
_FLUSHED_ONE_BY_ONE: Final = 50
"""Logs that a stop flushes one after the other; above it, the whole system's cache at once is quicker."""
_logger = logging.getLogger("ottla.log")


class UnusableDirectory(Exception):
    """A directory that this broker may not or cannot use; the message says why and what to do."""


class FailedDirectory(UnusableDirectory):
    """A directory that the disk does not give us; a broker with others goes on without it."""


class Identity(NamedTuple):
    """What meta.properties says; `directory_id` is 16 bytes."""

    node_id: int
    cluster_id: str
    directory_id: bytes


def _broker_epoch(marker: str | None) -> int:
    """The epoch in the marker of a clean stop. It is handed on, so that an Apache Kafka which takes its directory back finds
    the epoch that it left; its controller holds any other for a crash (KIP-966)."""
    try:
        return int(json.loads(marker or "{}").get("brokerEpoch", 0))
    except (ValueError, AttributeError):
        return 0


def lock(path: Path) -> int:
    """Hold the directory at `path` for one broker alone; closing what is returned gives it up. Raises OSError, and
    BlockingIOError while another broker has it: Ottla's by flock, Apache Kafka's by the lock of POSIX that Java takes.
    """
    held = os.open(path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as cause:
        os.close(held)
        raise BlockingIOError(f"{path} is in use by another broker") from cause
    return held


def read_identity(store: Store, path: Path) -> Identity | None:
    """What meta.properties in the directory at `path` says, None where there is none. Raises UnusableDirectory."""
    text = store.read_text(path / "meta.properties")
    if text is None:
        return None
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))
    properties = {name.strip(): value.strip() for name, value in pairs}
    if properties.get("version") != "1":
        raise UnusableDirectory(
            f"{path} belongs to an Apache Kafka with ZooKeeper: its topics are not in it; give another --data-dir"
        )
    try:
        return Identity(int(properties["node.id"]), properties["cluster.id"], uuid_bytes(properties["directory.id"]))
    except (KeyError, ValueError) as cause:
        raise UnusableDirectory(f"{path}/meta.properties is damaged: {cause}") from None


class LogDirectory:
    """One directory with its lock, its identity and its partitions.

    jitter      a random number of ms up to the one given, for segment.jitter.ms
    offline     why the disk is not used any more, None while it is
    on_failure  called once when that happens

    Raises UnusableDirectory when it cannot be had, FailedDirectory when the disk is the reason.
    """

    def __init__(
        self,
        store: Store,
        path: Path,
        jitter: Callable[[int], int] = lambda most: 0,  # noqa: ARG005
    ) -> None:
        self._store = store
        self._jitter = jitter
        self.path = path
        self.offline: str | None = None
        self.on_failure: Callable[[LogDirectory], None] = lambda directory: None  # noqa: ARG005
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = lock(path)
        except BlockingIOError as cause:
            raise UnusableDirectory(f"{cause}: stop it, or give another --data-dir") from None
        except OSError as cause:
            raise FailedDirectory(f"cannot use {path} as a data directory: {cause.strerror}") from None
        self._recovery_points = OffsetCheckpoint(store, path / "recovery-point-offset-checkpoint")
        self._start_offsets = OffsetCheckpoint(store, path / "log-start-offset-checkpoint")
        self._high_watermarks = OffsetCheckpoint(store, path / "replication-offset-checkpoint")
        self._clean_offsets = OffsetCheckpoint(store, path / "cleaner-offset-checkpoint")
        marker = store.read_text(path / CLEAN_SHUTDOWN)
        self.stopped_cleanly = marker is not None
        self._broker_epoch = _broker_epoch(marker)
        self._known_recovery_points = self._recovery_points.read()
        self._known_start_offsets = self._start_offsets.read()
        self._known_clean_offsets = self._clean_offsets.read()
        self._partitions: dict[tuple[str, int], Log] = {}
        self._present = frozenset(store.names(path))
        """What was here at the start."""
        self.futures: dict[tuple[str, int], Relocation] = {}
        """Copies that are being made here of partitions in other directories."""

    def identity(self) -> Identity | None:
        """Whose directory this is, None for a new one."""
        found = read_identity(self._store, self.path)
        if found is None and (self.path / METADATA_LOG).exists():
            raise UnusableDirectory(
                f"{self.path} belongs to Apache Kafka: adopt it with `ottla storage import`, or give another --data-dir"
            )
        return found

    def claim(self, identity: Identity) -> None:
        """Write meta.properties into a new directory."""
        lines = [
            "#",
            f"cluster.id={identity.cluster_id}",
            f"directory.id={uuid_text(identity.directory_id)}",
            f"node.id={identity.node_id}",
            "version=1",
            "",
        ]
        self._store.replace(self.path / "meta.properties", "\n".join(lines).encode())

    def open_partition(self, topic: str, partition: int, topic_id: bytes, config: LogConfig) -> Log:
        """The log of a partition, made when it is missing. Raises StorageError, and UnusableDirectory for another's id."""
        if not self._partitions:
            # Only now: a start that is refused has changed nothing.
            (self.path / CLEAN_SHUTDOWN).unlink(missing_ok=True)
        directory = self.path / f"{topic}-{partition}"
        key = topic, partition
        try:
            if directory.name not in self._present:
                self._store.make_directory(directory)
            self._check_id(directory / "partition.metadata", topic_id)
            log = Log(
                self._store,
                directory,
                config,
                recovery_point=self._known_recovery_points.get(key, 0),
                log_start_offset=self._known_start_offsets.get(key, 0),
                clean=self.stopped_cleanly,
                jitter=self._jitter,
                failed=self.fail,
            )
        except OSError as cause:
            self.fail(cause)
            raise StorageError(f"{directory}: {cause.strerror}") from cause
        log.clean_until = min(max(log.start_offset, self._known_clean_offsets.get(key, 0)), log.end_offset)
        self._partitions[key] = log
        return log

    def _check_id(self, path: Path, topic_id: bytes) -> None:
        """A partition's directory knows whose it is. Raises UnusableDirectory, OSError."""
        text = self._store.read_text(path)
        wanted = f"version: 0\ntopic_id: {uuid_text(topic_id)}\n"
        if not text:
            self._store.write(path, wanted.encode())
        elif text.split() != wanted.split():
            raise UnusableDirectory(f"{path.parent} belongs to another topic of the same name: move it away")

    def fail(self, cause: OSError) -> None:
        """The disk did not do as told: what lies here is served no more until the broker is started again (KIP-112)."""
        if self.offline is not None:
            return
        self.offline = cause.strerror or str(cause)
        _logger.error(
            "%s is offline: %s (%s). Its %d partitions answer KAFKA_STORAGE_ERROR; mend the disk and restart the broker",
            self.path,
            self.offline,
            cause.filename or "a log",
            len(self._partitions),
        )
        for log in self._partitions.values():
            log.abandon()
        self.on_failure(self)

    def discard_partition(self, topic: str, partition: int) -> Path:
        """Rename a partition's directory out of the way; `remove_discarded` takes it from the disk later. A `checkpoint` must
        follow, so that a partition of the same name begins anew. Raises OSError.
        """
        key = topic, partition
        log = self._partitions.pop(key)
        self._present -= {log.directory.name}
        for known in (self._known_recovery_points, self._known_start_offsets, self._known_clean_offsets):
            known.pop(key, None)
        renamed = self.path / f"{f'{topic}-{partition}'[:214]}.{os.urandom(16).hex()}{DELETE}"
        log.close(clean=False)
        log.directory.rename(renamed)
        log.moved(renamed)
        return renamed

    def begin_move(self, topic: str, partition: int, topic_id: bytes, log: Log) -> Relocation:
        """Begin a copy here of a partition that lies in another directory. Raises OSError."""
        directory = self.path / f"{f'{topic}-{partition}'[:214]}.{os.urandom(16).hex()}{FUTURE}"
        self._store.make_directory(directory)
        self._check_id(directory / "partition.metadata", topic_id)
        self.futures[topic, partition] = relocation = Relocation(self._store, log, directory)
        return relocation

    def end_move(self, topic: str, partition: int, moved: Log) -> Log:
        """The copy, which is complete, becomes the partition's log: opened, with the offsets that only memory knew. The old one
        is still to be discarded. Raises OSError, StorageError.
        """
        relocation = self.futures.pop((topic, partition))
        directory = self.path / f"{topic}-{partition}"
        relocation.directory.rename(directory)
        self._store.flush(self.path)
        end = moved.end_offset
        log = Log(
            self._store,
            directory,
            moved.config,
            recovery_point=end,
            log_start_offset=moved.start_offset,
            clean=True,
            jitter=self._jitter,
            failed=self.fail,
        )
        log.high_watermark = moved.high_watermark
        log.recovery_point = min(moved.recovery_point, relocation.flushed_offset)
        log.clean_until = moved.clean_until
        self._partitions[topic, partition] = log
        return log

    def drop_move(self, topic: str, partition: int) -> None:
        """The copy is not wanted any more."""
        relocation = self.futures.pop((topic, partition))
        relocation.abandon()
        shutil.rmtree(relocation.directory, ignore_errors=True)

    def remove_discarded(self, path: Path) -> None:
        """Take a discarded partition from the disk."""
        shutil.rmtree(path, ignore_errors=True)

    def logs(self) -> Mapping[tuple[str, int], Log]:
        """The logs that lie here, by topic name and partition."""
        return self._partitions

    def room(self) -> tuple[int, int]:
        """Bytes of the volume: in all, and free for this process. Raises OSError."""
        total, _, free = shutil.disk_usage(self.path)
        return total, free

    def partitions(self, known: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
        """Those of `known` that lie here. Raises OSError."""
        names = set(self._store.names(self.path))
        return [(topic, index) for topic, index in known if f"{topic}-{index}" in names]

    def leftovers(self, known: Iterable[tuple[str, int]]) -> list[Path]:
        """Directories of partitions that are deleted, or were to come from another directory. One that the metadata does not
        know is renamed to -stray and kept, as in Kafka: somebody may want its records.
        """
        names = {f"{topic}-{partition}" for topic, partition in known}
        found = []
        for name in self._store.names(self.path):
            directory = self.path / name
            if name.endswith((DELETE, FUTURE)):
                found.append(directory)
            elif name in names or name == METADATA_LOG or name.endswith(STRAY):
                continue
            elif (directory / "partition.metadata").exists():
                stray = self.path / f"{name[:214]}.{os.urandom(16).hex()}{STRAY}"
                directory.rename(stray)
                _logger.warning("%s is no partition of this cluster: it is %s now", directory, stray.name)
        return found

    def checkpoint(self) -> None:
        """Write the offsets of all partitions: now and then, after a roll, and at a stop. Raises OSError."""
        if self.offline is not None:
            return
        logs = self._partitions
        self._recovery_points.write({key: log.recovery_point for key, log in logs.items()})
        self._start_offsets.write({key: log.start_offset for key, log in logs.items() if log.start_offset})
        self._high_watermarks.write({key: log.high_watermark for key, log in logs.items()})
        self._clean_offsets.write({key: log.clean_until for key, log in logs.items() if log.config.is_compacted})

    def close(self) -> None:
        """A clean stop: every log is flushed and its indexes written, then the marker is set. A directory that is offline is
        left as it is. Raises StorageError, OSError.
        """
        if self.offline is None:
            changed = sum(log.has_changed for log in self._partitions.values())
            at_once = changed > _FLUSHED_ONE_BY_ONE
            for log in self._partitions.values():
                log.close(flush=not at_once)
            if at_once:
                self._store.flush_everything()
        if self.offline is not None:
            self.release()
            return
        self.checkpoint()
        marker = json.dumps({"version": 0, "brokerEpoch": self._broker_epoch}, separators=(",", ":"))
        self._store.replace(self.path / CLEAN_SHUTDOWN, marker.encode())
        self.release()

    def release(self) -> None:
        """Give the directory up without a word, as after a failed start."""
        os.close(self._lock)
