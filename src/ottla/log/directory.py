"""Log directory (one of `log.dirs`): its lock, its identity, its partitions and their checkpoints.

.lock                               locked while a broker is running
meta.properties                     node.id, cluster.id and directory.id
.kafka_cleanshutdown                exists after a clean stop, removed at the next start
recovery-point-offset-checkpoint    per partition, the offset up to which the log is flushed to disk
log-start-offset-checkpoint         per partition, the log start offset
replication-offset-checkpoint       per partition, the high watermark
<topic>-<partition>/                segments and indexes
    partition.metadata              the topic's id (`partition_metadata.py`)
<topic>-<partition>.<hex>-delete/   a deleted partition, removed after file.delete.delay.ms

One file, because start, checkpoints, moves and failure of a directory all change its table of open partitions.
"""

import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
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
_NOTHING: Final[Mapping[tuple[str, int], bytes]] = MappingProxyType({})
_MOST_OF_A_NAME: Final = 214
"""Maximum characters of a partition's name in the name of a renamed directory, as file names are limited to 255."""
_FLUSHED_ONE_BY_ONE: Final = 50
"""Number of logs up to which a stop flushes each log; beyond it one sync of the whole system is faster."""
_logger = logging.getLogger("ottla.log")


class UnusableDirectory(Exception):
    """The broker cannot use the directory; the message gives the reason and a remedy."""


class FailedDirectory(UnusableDirectory):
    """The disk of the directory has failed; a broker with other directories continues without it."""


class Identity(NamedTuple):
    """Contents of meta.properties; `directory_id` is 16 bytes."""

    node_id: int
    cluster_id: str
    directory_id: bytes


def _broker_epoch(marker: str | None) -> int:
    """Return the broker epoch in the marker of a clean stop. It is preserved for an Apache Kafka broker that uses the
    directory later: its controller treats any other epoch as a crash (KIP-966)."""
    try:
        return int(json.loads(marker or "{}").get("brokerEpoch", 0))
    except (ValueError, AttributeError, TypeError):
        return 0


class Inventory(NamedTuple):
    """Partitions in a log directory, and leftover directories to remove.

    certain    partitions whose partition.metadata has the topic's id
    uncertain  partitions with missing or damaged partition.metadata; they may belong to an earlier topic of the same name
    leftovers  directories of unfinished deletions and moves, and of partitions that were assigned to other brokers
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
    """Log directory with its lock, identity and partitions.

    random      for segment.jitter.ms, and for the names of renamed directories
    broker_epoch  broker epoch in the marker of the last clean stop, later the current one; 0 for a single broker
    id          directory.id in meta.properties, 16 bytes; empty before `identity` or `claim`
    offline     error that took the directory offline, None while it is online
    is_cordoned  whether it gets no new partitions (cordoned.log.dirs)
    failed      called once when the directory goes offline

    Raises UnusableDirectory if the directory cannot be used, FailedDirectory if its disk has failed.
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
        self.is_cordoned = False
        self.on_failure: list[Callable[[LogDirectory], None]] = []
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
        """Topic ids in the partition.metadata files at the start, by partition, until the partition is opened."""
        self._unflushed: set[str] = set()
        """Names of partitions' directories whose partition.metadata may not be on the disk yet."""
        self.futures: dict[tuple[str, int], Relocation] = {}
        """Copies in progress, from partitions in other directories to this one."""
        try:
            self._read()
        except OSError as cause:
            self.release()
            raise FailedDirectory(f"cannot read {cause.filename or path}: {cause.strerror}") from None

    def _read(self) -> None:
        """Read the marker, names and checkpoints of the last stop. Raises OSError."""
        marker = self._store.read_text(self.path / CLEAN_SHUTDOWN)
        self.stopped_cleanly = marker is not None
        self.ends_below_checkpoint = False  # set by a log that ends below its checkpointed offsets
        self.broker_epoch = _broker_epoch(marker)
        self._present = set(self._store.names(self.path))
        """Names of all files and directories in this directory at the start."""
        if self.stopped_cleanly and not self._recovery_points.exists:
            _logger.warning("%s has no recovery-point-offset-checkpoint: all records are checked", self.path)
        # By (topic, partition), until the partition is opened; offsets of unopened partitions are kept for the next start.
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
        """Drop the checkpointed offsets of a partition, after its log was opened or removed."""
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
        self,
        topic: str,
        partition: int,
        topic_id: bytes,
        config: LogConfig,
        *,
        only_place: bool = True,
        in_cluster: bool = False,
        may_refill: bool = False,
    ) -> Log:
        """Open the log of a partition, and create it if missing; a directory of another topic id is renamed to -stray first.

        only_place  no other directory can have this partition: a log without a readable topic id must be this topic's then
        in_cluster  whether other brokers may have replicas: the log may be flushed beyond its high watermark
        may_refill  whether damage of flushed records may be cut, as in `Log`: the caller knows that this replica is no leader

        Raises StorageError if the log is damaged or the disk has failed, OSError for errors of this partition alone.
        """
        key = topic, partition
        if self.offline is not None:
            raise StorageError(f"{self.path} is offline")
        directory = self.path / f"{topic}-{partition}"
        try:
            if not self._partitions:
                # Only now, so that a start that fails before has changed nothing.
                self._store.remove(self.path / CLEAN_SHUTDOWN)
            if directory.name in self._present and self._certain.get(key) != topic_id:
                self._check_owner(key, directory, topic_id, only_place=only_place)
            if directory.name not in self._present:
                self._drop_offsets(key)  # offsets of a predecessor, which a crash kept from being dropped
                self._store.make_directory(directory)
                self._present.add(directory.name)
                write_topic_id(self._store, directory, topic_id)
                self._unflushed.add(directory.name)
            elif not self.stopped_cleanly:
                self._unflushed.add(directory.name)
            log = self._open(key, directory, config, in_cluster=in_cluster, may_refill=may_refill)
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
        """Check the topic id of `directory`: rename that of another topic to -stray; rewrite a damaged partition.metadata if it
        can only be this topic's. Raises StorageError, OSError.
        """
        path = directory / PARTITION_METADATA
        text = self._store.read_text(path)
        owner = owner_of(self._store, directory, topic_id)
        if owner is Owner.OTHER:
            self.set_aside(directory.name, "belongs to another topic of the same name")
        elif owner is Owner.UNCERTAIN and not only_place and self.stopped_cleanly:
            # After another stop the file may be what a loss of power left of it: nothing, a part, or other bytes.
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
            self._unflushed.add(directory.name)

    def _open(
        self, key: tuple[str, int], directory: Path, config: LogConfig, *, in_cluster: bool, may_refill: bool
    ) -> Log:
        """Open a log with its checkpointed offsets. Raises StorageError, OSError.

        The high watermark begins as checkpointed, within the log; a leader without followers then moves it to the log end.

        A start offset beyond the high watermark, which is in a separate checkpoint, is damaged. So is a recovery point beyond
        that of a single broker, which is the log end; a follower flushes records before they are committed.
        """
        high_watermark = self._known_high_watermarks.get(key)
        recovery_point = self._known_recovery_points.get(key, 0)
        start_offset = self._known_start_offsets.get(key, 0)
        if high_watermark is not None:
            recovery_point = recovery_point if in_cluster else min(recovery_point, high_watermark)
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
            may_refill=may_refill,
            jitter=self._jitter,
            failed=self.fail,
        )
        if log.was_cut:
            self.ends_below_checkpoint = True
        elif high_watermark is not None and log.end_offset < high_watermark:
            self.ends_below_checkpoint = True
            _logger.log(
                logging.WARNING if in_cluster else logging.ERROR,
                "%s ends at offset %d, and had reached %d: the records between them were not on disk when the machine or "
                "the broker went down",
                directory,
                log.end_offset,
                high_watermark,
            )
        log.clean_until = min(max(log.start_offset, self._known_clean_offsets.get(key, 0)), log.end_offset)
        return log

    def _unique(self, name: str, suffix: str) -> str:
        """Return a unique new name for the directory `name`, in Kafka's format."""
        return f"{name[:_MOST_OF_A_NAME]}.{self._random.bytes16().hex()}{suffix}"

    def _jitter(self, most: int) -> int:
        return self._random.below(most + 1) if most > 0 else 0

    def set_aside(self, name: str, reason: str) -> None:
        """Rename a partition's directory to -stray and keep it, as its records may be needed. Raises OSError."""
        stray = self._unique(name, STRAY)
        self._store.rename(self.path / name, self.path / stray)
        self._present.discard(name)
        self._unflushed.discard(name)
        topic, _, partition = name.rpartition("-")
        if partition.isdecimal():
            self._drop_offsets((topic, int(partition)))
            self._certain.pop((topic, int(partition)), None)
        _logger.warning("%s %s: it is %s now", self.path / name, reason, stray)

    def fail(self, cause: OSError) -> None:
        """Handle an error of a file operation. If the disk has failed, the directory goes offline until the broker is restarted
        (KIP-112); other errors are left to the caller.
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
        for listener in self.on_failure:
            listener(self)

    def discard_partition(self, topic: str, partition: int) -> Path | None:
        """Rename a partition's directory for deletion; `remove_discarded` removes it later. Returns None without a directory,
        if the partition could not be opened. A `checkpoint` must follow, to remove the offsets on disk as well. Raises
        OSError.
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
        self._unflushed.discard(name)
        if log is not None:
            log.moved(renamed)
        return renamed

    def has_copy(self, topic: str, partition: int, topic_id: bytes) -> bool:
        """Return True if this directory has an unopened copy of a partition, with this topic id, that belongs to another
        directory.
        """
        return self._certain.get((topic, partition)) == topic_id

    def begin_move(self, topic: str, partition: int, topic_id: bytes, log: Log) -> Relocation:
        """Begin to copy a partition from another directory to this one. Raises OSError."""
        directory = self.path / self._unique(f"{topic}-{partition}", FUTURE)
        self._store.make_directory(directory)
        write_topic_id(self._store, directory, topic_id)
        self.futures[topic, partition] = relocation = Relocation(self._store, log, directory)
        return relocation

    def end_move(self, topic: str, partition: int, moved: Log) -> Log:
        """Open a complete copy as the log of the partition, with the in-memory offsets of the old log, which the caller
        discards. Raises OSError, StorageError.
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
            with suppress(OSError):  # the old log stays in use: the copy must not have the same name
                self._store.rename(directory, relocation.directory)
            raise
        del self.futures[key]
        log.take_over(moved, relocation.flushed_offset)
        self._present.add(directory.name)
        self._unflushed.add(directory.name)
        self._partitions[key] = log
        return log

    def drop_move(self, topic: str, partition: int) -> Path:
        """Cancel a move; return the directory of the copy, for `remove_discarded`."""
        relocation = self.futures.pop((topic, partition))
        relocation.abandon()
        return relocation.directory

    def remove_discarded(self, path: Path) -> None:
        """Remove the directory of a discarded partition or copy from disk."""
        self._store.remove_tree(path)

    def logs(self) -> Mapping[tuple[str, int], Log]:
        """Return the open logs of this directory, by topic name and partition."""
        return self._partitions

    def room(self) -> tuple[int, int]:
        """Return the total bytes of the volume, and the bytes free for this process. Raises OSError."""
        return self._store.room(self.path)

    def take_inventory(
        self, known: Mapping[tuple[str, int], bytes], elsewhere: Mapping[tuple[str, int], bytes] = _NOTHING
    ) -> Inventory:
        """Find the partitions of `known` (topic ids by topic name and partition) in this directory. The directory of another
        topic id, or of an unknown partition, is renamed to -stray and kept, as in Kafka; that of a partition in `elsewhere` is
        discarded, if it certainly has its topic id, or no records. Raises OSError.
        """
        keys = {f"{topic}-{partition}": (topic, partition) for topic, partition in known}
        others = {f"{topic}-{partition}": topic_id for (topic, partition), topic_id in elsewhere.items()}
        inventory = Inventory([], [], [])
        for name in self._store.names(self.path):
            directory = self.path / name
            if name.endswith((DELETE, FUTURE)):
                inventory.leftovers.append(directory)
            elif name == METADATA_LOG or name.endswith(STRAY):
                continue
            elif name in keys:
                self._classify(name, keys[name], known[keys[name]], inventory)
            elif name in others and (self._names(directory, others[name]) or self._has_no_records(directory)):
                _logger.info("%s was reassigned to other brokers: it is removed", directory)
                renamed = self.path / self._unique(name, DELETE)
                self._store.rename(directory, renamed)
                self._present.discard(name)
                inventory.leftovers.append(renamed)
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
        """Return True if a directory that is not in the metadata belongs to a partition: it has a partition.metadata, or the
        name and a .log file. A power failure after a deletion may leave the records without the file. Raises OSError.
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

    def _has_no_records(self, directory: Path) -> bool:
        """Return True for a directory without partition.metadata and segments: what a power failure may leave of a new one."""
        store = self._store
        try:
            return (
                store.is_directory(directory)
                and not store.exists(directory / PARTITION_METADATA)
                and not recovery.has_segments(store, directory)
            )
        except OSError:
            return False

    def _names(self, directory: Path, topic_id: bytes) -> bool:
        """Return True if the partition.metadata in a directory certainly has this topic id."""
        try:
            return owner_of(self._store, directory, topic_id) is Owner.NAMED
        except OSError:
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
        """Return (log end offset by its batches, log start offset by the checkpoint) of an unopened log; -1 for an unreadable
        end.
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
        """Take a snapshot of the offsets of all partitions, and return a function that writes it, which any thread may call and
        which raises OSError. None for an offline directory.
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
            # The high watermarks first: after a crash at any point no other checkpointed offset is beyond them.
            self._high_watermarks.write(high_watermarks)
            self._recovery_points.write(recovery_points)
            self._start_offsets.write(start_offsets)
            self._clean_offsets.write(clean_offsets)

        return write

    def close(self) -> None:
        """Stop cleanly: flush every log, write its indexes, then set the marker. An offline directory is left unchanged. Raises
        StorageError, OSError.
        """
        if self.offline is None:
            changed = sum(log.has_changed for log in self._partitions.values())
            at_once = changed + len(self._unflushed) > _FLUSHED_ONE_BY_ONE
            for log in self._partitions.values():
                log.close(flush=not at_once)
            if at_once:
                self._store.flush_everything()
            else:
                self._flush_topic_ids()
        if self.offline is not None:
            self.release()
            return
        self.checkpoint()
        marker = json.dumps({"version": 0, "brokerEpoch": self.broker_epoch}, separators=(",", ":"))
        self._store.replace(self.path / CLEAN_SHUTDOWN, marker.encode())
        self.release()

    def _flush_topic_ids(self) -> None:
        """Flush each partition.metadata that a loss of power could take: after a clean stop a missing one is no trace of a
        crash, and its partition would stay offline. Raises OSError.
        """
        for name in sorted(self._unflushed):
            self._store.flush(self.path / name / PARTITION_METADATA)
            self._store.flush(self.path / name)

    def release(self) -> None:
        """Unlock the directory without writing, after a failed start."""
        self._unlock()
