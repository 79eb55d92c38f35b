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

import base64
import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from ottla.log.checkpoints import OffsetCheckpoint
from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.log.store import Store


CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
METADATA_LOG: Final = "__cluster_metadata-0"
STRAY: Final = "-stray"


class UnusableDirectory(Exception):
    """A directory that this broker may not or cannot use; the message says why and what to do."""


class Identity(NamedTuple):
    """What meta.properties says; `directory_id` is 16 bytes."""

    node_id: int
    cluster_id: str
    directory_id: bytes


def uuid_text(uuid: bytes) -> str:
    """16 bytes as Kafka writes them: base64url without padding, 22 characters."""
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode()


def uuid_bytes(text: str) -> bytes:
    """The inverse of `uuid_text`. Raises ValueError."""
    uuid = base64.urlsafe_b64decode(text + "==")
    if len(uuid) != 16:
        raise ValueError(f"{text!r} is not a uuid of 22 characters")
    return uuid


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
    """One directory with its lock, its identity and its partitions. Raises UnusableDirectory when it cannot be had."""

    def __init__(self, store: Store, path: Path) -> None:
        self._store = store
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = lock(path)
        except BlockingIOError as cause:
            raise UnusableDirectory(f"{cause}: stop it, or give another --data-dir") from None
        except OSError as cause:
            raise UnusableDirectory(f"cannot use {path} as a data directory: {cause.strerror}") from None
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

    def identity(self) -> Identity | None:
        """Whose directory this is, None for a new one."""
        found = read_identity(self._store, self.path)
        if found is None and (self.path / METADATA_LOG).exists():
            raise UnusableDirectory(f"{self.path} belongs to Apache Kafka: give Ottla a directory of its own")
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
            (self.path / CLEAN_SHUTDOWN).unlink(
                missing_ok=True
            )  # only now: a start that is refused has changed nothing
        directory = self.path / f"{topic}-{partition}"
        directory.mkdir(exist_ok=True)
        metadata = directory / "partition.metadata"
        text = self._store.read_text(metadata)
        wanted = f"version: 0\ntopic_id: {uuid_text(topic_id)}\n"
        if text is None:
            self._store.replace(metadata, wanted.encode())
        elif text.split() != wanted.split():
            raise UnusableDirectory(f"{directory} belongs to another topic of the same name: move it away")
        key = topic, partition
        start = self._known_start_offsets.get(key, 0)
        point = self._known_recovery_points.get(key, 0)
        log = Log(self._store, directory, config, recovery_point=point, log_start_offset=start)
        log.clean_until = min(max(log.start_offset, self._known_clean_offsets.get(key, 0)), log.end_offset)
        self._partitions[key] = log
        return log

    def discard_partition(self, topic: str, partition: int) -> Path:
        """Rename a partition's directory out of the way; `remove` takes it from the disk later."""
        log = self._partitions.pop((topic, partition))
        renamed = self.path / f"{f'{topic}-{partition}'[:214]}.{os.urandom(16).hex()}-delete"
        log.close(clean=False)
        log.directory.rename(renamed)
        self.checkpoint()
        return renamed

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

    def leftovers(self, known: Iterable[tuple[str, int]]) -> list[Path]:
        """Directories of partitions that are deleted or that the metadata does not know."""
        names = {f"{topic}-{partition}" for topic, partition in known}
        found = []
        for name in self._store.names(self.path):
            if name == METADATA_LOG or name.endswith(STRAY):
                continue  # Apache Kafka's own, when it had this directory before
            directory = self.path / name
            if name.endswith("-delete") or ((directory / "partition.metadata").exists() and name not in names):
                found.append(directory)
        return found

    def checkpoint(self) -> None:
        """Write the offsets of all partitions: now and then, after a roll, and at a stop."""
        logs = self._partitions
        self._recovery_points.write({key: log.recovery_point for key, log in logs.items()})
        self._start_offsets.write({key: log.start_offset for key, log in logs.items() if log.start_offset})
        self._high_watermarks.write({key: log.high_watermark for key, log in logs.items()})
        self._clean_offsets.write({key: log.clean_until for key, log in logs.items() if log.config.is_compacted})

    def close(self) -> None:
        """A clean stop: every log is flushed and its indexes written, then the marker is set."""
        for log in self._partitions.values():
            log.close()
        self.checkpoint()
        marker = json.dumps({"version": 0, "brokerEpoch": self._broker_epoch}, separators=(",", ":"))
        self._store.replace(self.path / CLEAN_SHUTDOWN, marker.encode())
        self.release()

    def release(self) -> None:
        """Give the directory up without a word, as after a failed start."""
        os.close(self._lock)
