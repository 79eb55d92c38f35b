"""A log directory (one of `log.dirs`): its lock, its identity, its partitions, and their offsets at the last stop.

.lock                               held as long as a broker lives
meta.properties                     node.id, cluster.id and directory.id
.kafka_cleanshutdown                there after a clean stop, taken away at the next start
recovery-point-offset-checkpoint    per partition, the offset up to which everything is flushed to disk
log-start-offset-checkpoint         per partition, where it begins
replication-offset-checkpoint       per partition, its high watermark
<topic>-<partition>/                segments and indexes
    partition.metadata              the topic's id (`partition_metadata.py`)
<topic>-<partition>.<hex>-delete/   a deleted partition, removed after file.delete.delay.ms
"""

import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from ottla.environment import Random
from ottla.environment.files import Store
from ottla.environment.system import SystemRandom
from ottla.log import recovery
from ottla.log.checkpoints import DamagedCheckpoint, OffsetCheckpoint
from ottla.log.config import LogConfig
from ottla.log.disk_errors import is_disk_failure
from ottla.log.log import Log, StorageError
from ottla.log.partition_metadata import PARTITION_METADATA, Owner, owner_of, write_topic_id
from ottla.log.relocation import Relocation
from ottla.protocol.uuids import uuid_bytes, uuid_text

CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
METADATA_LOG: Final = "__cluster_metadata-0"
STRAY: Final = "-stray"
DELETE: Final = "-delete"
FUTURE: Final = "-future"
_MOST_OF_A_NAME: Final = 214
"""Characters of a partition's name in that of a directory that is set aside: file names have 255 at most."""
_FLUSHED_ONE_BY_ONE: Final = 50
"""Logs that a stop flushes one after the other; above it, the whole system's cache at once is quicker."""
_logger = logging.getLogger("ottla.log")


class UnusableDirectory(Exception):
    """A directory that this broker may not or cannot use; the message says why and what to do."""


class FailedDirectory(UnusableDirectory):
    """A directory that the disk does not give us; a broker with others goes on without it."""


class Identity(NamedTuple):
    """Contents of meta.properties; `directory_id` is 16 bytes."""

    node_id: int
    cluster_id: str
    directory_id: bytes


def _broker_epoch(marker: str | None) -> int:
    """The epoch in the marker of a clean stop. It is handed on, so that an Apache Kafka which takes its directory back finds
    the epoch that it left; its controller holds any other for a crash (KIP-966)."""
    try:
        return int(json.loads(marker or "{}").get("brokerEpoch", 0))
    except (ValueError, AttributeError, TypeError):
        return 0


class Inventory(NamedTuple):
    """The partitions whose directories are in a log directory, and directories that are to be removed.

    certain    their partition.metadata names the topic's id
    uncertain  their partition.metadata is missing or damaged; they may belong to an earlier topic of the same name
    leftovers  of deletions and moves
    """

    certain: list[tuple[str, int]]
    uncertain: list[tuple[str, int]]
    leftovers: list[Path]


def read_identity(store: Store, path: Path) -> Identity | None:
    """Return the contents of meta.properties in the directory at `path`, None if it is missing. Raises UnusableDirectory."""
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

    random      for segment.jitter.ms, and for the names of directories that are set aside
    id          directory.id of its meta.properties, 16 bytes; empty before `identity` or `claim`
    offline     why the disk is not used any more, None while it is
    failed      called once when that happens

    Raises UnusableDirectory when it cannot be had, FailedDirectory when the disk is the reason.
    """

    def __init__(
        self,
        store: Store,
        path: Path,
        random: Random | None = None,
    ) -> None:
        self._store = store
        self._random = SystemRandom() if random is None else random
        self.path = path
        self.id = b""
        self.offline: str | None = None
        self.failed: list[Callable[[LogDirectory], None]] = []
        try:
            store.make_directory(path, parents=True)
            self._unlock = store.lock(path)
        except BlockingIOError as cause:
            raise UnusableDirectory(f"{cause}: stop it, or give another --data-dir") from None
        except OSError as cause:
            raise FailedDirectory(f"cannot use {path} as a data directory: {cause.strerror}") from None
        self._recovery_points = OffsetCheckpoint(store, path / "recovery-point-offset-checkpoint")
        self._start_offsets = OffsetCheckpoint(store, path / "log-start-offset-checkpoint")
        self._high_watermarks = OffsetCheckpoint(store, path / "replication-offset-checkpoint")
        self._clean_offsets = OffsetCheckpoint(store, path / "cleaner-offset-checkpoint")
        self._partitions: dict[tuple[str, int], Log] = {}
        self._certain: dict[tuple[str, int], bytes] = {}
        """Topic ids that the partition.metadata of directories here name: found at the start, until the partition is opened."""
        self.futures: dict[tuple[str, int], Relocation] = {}
        """Copies that are being made here of partitions in other directories."""
        try:
            self._read()
        except OSError as cause:
            self.release()
            raise FailedDirectory(f"cannot read {cause.filename or path}: {cause.strerror}") from None

    def _read(self) -> None:
        """Read what the last stop left. Raises OSError."""
        marker = self._store.read_text(self.path / CLEAN_SHUTDOWN)
        self.stopped_cleanly = marker is not None
        self._broker_epoch = _broker_epoch(marker)
        self._present = set(self._store.names(self.path))
        """Names of the partitions' directories, and of all else that was here at the start."""
        if self.stopped_cleanly and not self._recovery_points.exists:
            _logger.warning("%s has no recovery-point-offset-checkpoint: all records are checked", self.path)
        # Each by (topic, partition), until the partition is opened; what is not opened is kept for the next start.
        self._known_recovery_points = self._offsets(self._recovery_points, "all records are checked")
        self._known_start_offsets = self._offsets(
            self._start_offsets, "records that DeleteRecords removed since their segments began can be read again"
        )
        self._known_high_watermarks = self._offsets(self._high_watermarks, "nothing is lost by it")
        self._known_clean_offsets = self._offsets(self._clean_offsets, "compaction begins at the start of each log")

    @staticmethod
    def _offsets(checkpoint: OffsetCheckpoint, consequence: str) -> dict[tuple[str, int], int]:
        try:
            return checkpoint.read()
        except DamagedCheckpoint as cause:
            _logger.warning("%s; the file is written again: %s", cause, consequence)
            return {}

    def _drop_offsets(self, key: tuple[str, int]) -> None:
        """Drop the checkpointed offsets of a partition: they are used up, or belong to a log that is not there any more."""
        for known in (
            self._known_recovery_points,
            self._known_start_offsets,
            self._known_high_watermarks,
            self._known_clean_offsets,
        ):
            known.pop(key, None)

    def identity(self) -> Identity | None:
        """Return the identity in meta.properties, None for a new directory. Raises UnusableDirectory, FailedDirectory."""
        try:
            identity = read_identity(self._store, self.path)
        except OSError as cause:
            raise FailedDirectory(f"cannot read {self.path / 'meta.properties'}: {cause.strerror}") from None
        if identity is None and self._store.exists(self.path / METADATA_LOG):
            raise UnusableDirectory(
                f"{self.path} belongs to Apache Kafka: adopt it with `ottla storage import`, or give another --data-dir"
            )
        if identity is not None:
            self.id = identity.directory_id
        return identity

    def claim(self, identity: Identity) -> None:
        """Write meta.properties into a new directory. Raises OSError."""
        self.id = identity.directory_id
        lines = [
            "#",
            f"cluster.id={identity.cluster_id}",
            f"directory.id={uuid_text(identity.directory_id)}",
            f"node.id={identity.node_id}",
            "version=1",
            "",
        ]
        self._store.replace(self.path / "meta.properties", "\n".join(lines).encode())

    def open_partition(
        self, topic: str, partition: int, topic_id: bytes, config: LogConfig, *, only_place: bool = True
    ) -> Log:
        """The log of a partition, made when it is missing; a directory of another topic id is renamed to -stray first.

        only_place  no other directory can hold this partition: one without a readable topic id must then be this topic's

        Raises StorageError when the log is damaged or the disk has failed, and OSError for what concerns this partition alone.
        """
        key = topic, partition
        if self.offline is not None:
            raise StorageError(f"{self.path} is offline")
        directory = self.path / f"{topic}-{partition}"
        try:
            if not self._partitions:
                # Only now: a start that is refused has changed nothing.
                self._store.remove(self.path / CLEAN_SHUTDOWN)
            if directory.name in self._present and self._certain.get(key) != topic_id:
                self._check_owner(key, directory, topic_id, only_place=only_place)
            if directory.name not in self._present:
                self._drop_offsets(key)  # offsets of a predecessor, which a crash kept from being dropped
                self._store.make_directory(directory)
                self._present.add(directory.name)
                write_topic_id(self._store, directory, topic_id)
            log = self._open(key, directory, config)
        except OSError as cause:
            self.fail(cause)
            if is_disk_failure(cause):
                raise StorageError(f"{cause.filename or directory}: {cause.strerror}") from cause
            raise
        self._certain.pop(key, None)
        self._drop_offsets(key)
        self._partitions[key] = log
        return log

    def _check_owner(self, key: tuple[str, int], directory: Path, topic_id: bytes, *, only_place: bool) -> None:
        """See to it that `directory` belongs to the topic: another topic's becomes a stray, and a damaged partition.metadata is
        written again if it can only be this topic's. Raises StorageError, OSError.
        """
        path = directory / PARTITION_METADATA
        text = self._store.read_text(path)
        owner = owner_of(self._store, directory, topic_id)
        if owner is Owner.OTHER:
            self.set_aside(directory.name, "belongs to another topic of the same name")
        elif owner is Owner.UNCERTAIN and not only_place and (text or self.stopped_cleanly):
            raise StorageError(
                f"{path} is missing or damaged, so these records may be those of an earlier topic {key[0]}: if they are not, "
                f"write 'version: 0' and 'topic_id: {uuid_text(topic_id)}' into it as two lines, else move {directory} away; "
                "then restart"
            )
        elif owner is not Owner.NAMED:
            if owner is Owner.UNCERTAIN or text:
                _logger.warning(
                    "%s is missing or damaged; it is written again with topic id %s", path, uuid_text(topic_id)
                )
            write_topic_id(self._store, directory, topic_id)

    def _open(self, key: tuple[str, int], directory: Path, config: LogConfig) -> Log:
        """Open a log with the offsets that the checkpoints have of it. Raises StorageError, OSError.

        No recovery point and no start offset is beyond the high watermark, which is a checkpoint of its own: one that is was
        damaged.
        """
        high_watermark = self._known_high_watermarks.get(key)
        recovery_point = self._known_recovery_points.get(key, 0)
        start_offset = self._known_start_offsets.get(key, 0)
        if high_watermark is not None:
            recovery_point = min(recovery_point, high_watermark)
            if start_offset > high_watermark:
                _logger.warning(
                    "log-start-offset-checkpoint says %d for %s, which ended at %d: it is damaged, and ignored",
                    start_offset,
                    directory,
                    high_watermark,
                )
                start_offset = 0
        log = Log(
            self._store,
            directory,
            config,
            recovery_point=recovery_point,
            high_watermark=high_watermark or 0,
            log_start_offset=start_offset,
            clean=self.stopped_cleanly,
            jitter=self._jitter,
            failed=self.fail,
        )
        if high_watermark is not None and log.end_offset < high_watermark:
            _logger.error(
                "%s ends at offset %d, and had reached %d: the records between them were not on disk when the machine or the "
                "broker went down",
                directory,
                log.end_offset,
                high_watermark,
            )
        log.clean_until = min(max(log.start_offset, self._known_clean_offsets.get(key, 0)), log.end_offset)
        return log

    def _unique(self, name: str, suffix: str) -> str:
        """Return a name that no other directory has for the directory `name`, as Kafka makes them."""
        return f"{name[:_MOST_OF_A_NAME]}.{self._random.bytes16().hex()}{suffix}"

    def _jitter(self, most: int) -> int:
        return self._random.below(most + 1) if most else 0

    def set_aside(self, name: str, reason: str) -> None:
        """Rename a partition's directory to -stray and keep it: its records may be wanted. Raises OSError."""
        stray = self._unique(name, STRAY)
        self._store.rename(self.path / name, self.path / stray)
        self._present.discard(name)
        topic, _, partition = name.rpartition("-")
        if partition.isdecimal():
            self._drop_offsets((topic, int(partition)))
            self._certain.pop((topic, int(partition)), None)
        _logger.warning("%s %s: it is %s now", self.path / name, reason, stray)

    def fail(self, cause: OSError) -> None:
        """Judge an error of a file operation. If the disk has failed, nothing in this directory is served any more until the
        broker is started again (KIP-112); any other error is left to the caller.
        """
        if self.offline is not None or not is_disk_failure(cause):
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
        for listener in self.failed:
            listener(self)

    def discard_partition(self, topic: str, partition: int) -> Path | None:
        """Rename a partition's directory out of the way; `remove_discarded` takes it from the disk later. Returns None if there
        is no directory: the partition could not be opened. A `checkpoint` must follow, so that the offsets are forgotten on the
        disk too. Raises OSError.
        """
        key = topic, partition
        name = f"{topic}-{partition}"
        log = self._partitions.pop(key, None)
        self._drop_offsets(key)
        self._certain.pop(key, None)
        if name not in self._present:
            return None
        renamed = self.path / self._unique(name, DELETE)
        if log is not None:
            log.close(clean=False)
        self._store.rename(self.path / name, renamed)
        self._present.discard(name)
        if log is not None:
            log.moved(renamed)
        return renamed

    def has_copy(self, topic: str, partition: int, topic_id: bytes) -> bool:
        """Return whether a partition of the topic with this id is here that was not opened, for another directory has it, or
        should have it.
        """
        return self._certain.get((topic, partition)) == topic_id

    def begin_move(self, topic: str, partition: int, topic_id: bytes, log: Log) -> Relocation:
        """Begin a copy here of a partition that lies in another directory. Raises OSError."""
        directory = self.path / self._unique(f"{topic}-{partition}", FUTURE)
        self._store.make_directory(directory)
        write_topic_id(self._store, directory, topic_id)
        self.futures[topic, partition] = relocation = Relocation(self._store, log, directory)
        return relocation

    def end_move(self, topic: str, partition: int, moved: Log) -> Log:
        """The copy, which is complete, becomes the partition's log: opened, with the offsets that only memory knew. The old one
        is still to be discarded. Raises OSError, StorageError.
        """
        key = topic, partition
        relocation = self.futures[key]
        directory = self.path / f"{topic}-{partition}"
        end = moved.end_offset
        if self._store.exists(directory):
            self.set_aside(directory.name, "is in the place of a partition that moves here")
        self._store.rename(relocation.directory, directory)
        try:
            self._store.flush(self.path)
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
        except (OSError, StorageError):
            with suppress(OSError):  # the old log goes on: the copy must not stand beside it under the same name
                self._store.rename(directory, relocation.directory)
            raise
        del self.futures[key]
        log.take_over(moved, relocation.flushed_offset)
        self._present.add(directory.name)
        self._partitions[key] = log
        return log

    def drop_move(self, topic: str, partition: int) -> Path:
        """End a move before it is complete; returns the directory of the copy, for `remove_discarded`."""
        relocation = self.futures.pop((topic, partition))
        relocation.abandon()
        return relocation.directory

    def remove_discarded(self, path: Path) -> None:
        """Remove the directory of a discarded partition, or of a copy, from the disk."""
        self._store.remove_tree(path)

    def logs(self) -> Mapping[tuple[str, int], Log]:
        """The logs that lie here, by topic name and partition."""
        return self._partitions

    def room(self) -> tuple[int, int]:
        """Bytes of the volume: in all, and free for this process. Raises OSError."""
        return self._store.room(self.path)

    def take_inventory(self, known: Mapping[tuple[str, int], bytes]) -> Inventory:
        """Find the partitions of `known` (topic ids by topic name and partition) that lie here. A directory of another topic
        id, or of a partition that is not known, is renamed to -stray and kept, as in Kafka. Raises OSError.
        """
        keys = {f"{topic}-{partition}": (topic, partition) for topic, partition in known}
        inventory = Inventory([], [], [])
        for name in self._store.names(self.path):
            directory = self.path / name
            if name.endswith((DELETE, FUTURE)):
                inventory.leftovers.append(directory)
            elif name == METADATA_LOG or name.endswith(STRAY):
                continue
            elif name in keys:
                self._classify(name, keys[name], known[keys[name]], inventory)
            elif self._is_partition(name):
                self.set_aside(name, "is no partition of this cluster")
        here = {*inventory.certain, *inventory.uncertain}
        checkpointed = {
            **self._known_recovery_points,
            **self._known_start_offsets,
            **self._known_high_watermarks,
            **self._known_clean_offsets,
        }
        for key in checkpointed:
            if key in here:
                continue
            end = self._known_recovery_points.get(key, 0)
            if key in known and self.stopped_cleanly and end > self._known_start_offsets.get(key, 0):
                _logger.error(
                    "%s-%d, which ended at offset %d when the broker stopped, is not in %s any more",
                    *key,
                    end,
                    self.path,
                )
            self._drop_offsets(key)
        return inventory

    def _is_partition(self, name: str) -> bool:
        """Return whether a directory that the metadata does not know is a partition's: it has a partition.metadata, or the name
        and a .log file. A loss of power after a deletion may leave the records and not the file. Raises OSError.
        """
        directory = self.path / name
        if self._store.exists(directory / PARTITION_METADATA):
            return True
        if not name.rpartition("-")[2].isdecimal() or not self._store.is_directory(directory):
            return False
        try:
            return recovery.has_segments(self._store, directory)
        except OSError as cause:
            if is_disk_failure(cause):
                raise
            _logger.warning("cannot read %s: %s", directory, cause.strerror)
            return False

    def _classify(self, name: str, key: tuple[str, int], topic_id: bytes, inventory: Inventory) -> None:
        try:
            owner = owner_of(self._store, self.path / name, topic_id)
        except OSError:
            owner = Owner.UNCERTAIN  # opening the partition reports the same error
        if owner is Owner.OTHER:
            self.set_aside(name, "belongs to another topic of the same name")
        elif owner is Owner.UNCERTAIN:
            inventory.uncertain.append(key)
        else:
            inventory.certain.append(key)
            if owner is Owner.NAMED:
                self._certain[key] = topic_id

    def end_of(self, topic: str, partition: int) -> tuple[int, int]:
        """Return where a log that is not open ends and begins, as (end offset by its batches, start offset by the checkpoint);
        -1 for an end that cannot be read.
        """
        try:
            end = recovery.log_end(self._store, self.path / f"{topic}-{partition}")
        except OSError:
            end = -1
        return end, self._known_start_offsets.get((topic, partition), 0)

    def checkpoint(self) -> None:
        """Write the offsets of all partitions. Raises OSError."""
        write = self.prepare_checkpoint()
        if write is not None:
            write()

    def prepare_checkpoint(self) -> Callable[[], None] | None:
        """Take the offsets of all partitions as they are now, and return a function that writes them, which any thread may call
        and which raises OSError. None for a directory that is offline.
        """
        if self.offline is not None:
            return None
        logs = self._partitions
        high_watermarks = {
            **self._known_high_watermarks,
            **{key: log.high_watermark for key, log in logs.items()},
        }
        recovery_points = {**self._known_recovery_points, **{key: log.recovery_point for key, log in logs.items()}}
        start_offsets = {
            **self._known_start_offsets,
            **{key: log.start_offset for key, log in logs.items() if log.start_offset},
        }
        compacted = {key: log.clean_until for key, log in logs.items() if log.config.is_compacted}
        clean_offsets = {**self._known_clean_offsets, **compacted}

        def write() -> None:
            # The high watermarks come first: no other offset of a checkpoint is beyond them, whenever a crash comes.
            self._high_watermarks.write(high_watermarks)
            self._recovery_points.write(recovery_points)
            self._start_offsets.write(start_offsets)
            self._clean_offsets.write(clean_offsets)

        return write

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
        """Unlock the directory and write nothing, as after a failed start."""
        self._unlock()
