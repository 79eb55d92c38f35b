"""The data directories of a broker: opened before everything else, verified to belong to it, closed last."""

import logging
import sqlite3
from pathlib import Path

from ottla.broker.config import BrokerConfig
from ottla.environment import Random, Worker, private_files
from ottla.environment.files import Store
from ottla.log.directory import FailedDirectory, Identity, LogDirectory, UnusableDirectory
from ottla.log.log import StorageError
from ottla.metadata.changes.elections import restarted_alone
from ottla.metadata.image.deltas import image_from
from ottla.metadata.image.stored import upgraded
from ottla.metadata.store import Change, keys
from ottla.metadata.store.sqlite import SqliteStore
from ottla.protocol.uuids import uuid_text
from ottla.tasks.scheduler import Scheduler

_logger = logging.getLogger("ottla.broker")


class Storage:
    """The log directories and the metadata store of one broker.

    missing  log directories that failed at the start: their partitions are offline

    Raises UnusableDirectory, with a remedy, for directories that this broker may not or cannot use; `release` closes those that
    are open.
    """

    def __init__(
        self, config: BrokerConfig, random: Random, files: Store, worker: Worker | None, tasks: Scheduler
    ) -> None:
        self._config = config
        self._random = random
        self._files = files
        self._worker = worker
        self._tasks = tasks
        self.directories: list[LogDirectory] = []
        self.missing: list[Path] = []
        self.metadata: SqliteStore | None = None
        self._identities: dict[LogDirectory, Identity | None] = {}

    def open(self) -> SqliteStore:
        """Open everything, and return the metadata store of a single broker."""
        identities = self._open_directories()
        self.metadata = metadata = self._open_metadata(has_identity=any(identities.values()))
        self._check_identities(identities, self._cluster_id(metadata))
        self._prepare(metadata)
        return metadata

    def open_directories(self) -> str | None:
        """Open the log directories only; return the cluster id that they have, None if all are new."""
        self._identities = identities = self._open_directories()
        return next((identity.cluster_id for identity in identities.values() if identity is not None), None)

    def claim(self, cluster_id: str) -> None:
        """Verify that the log directories belong to this node of a cluster, and claim new ones."""
        self._check_identities(self._identities, cluster_id)

    def _prepare(self, metadata: SqliteStore) -> None:
        """Upgrade the values of an earlier release, begin new leader epochs, and make the secret of a cluster that has none.

        After an unclean stop a log may lack batches that were not flushed: others must not get their offset and epoch. After a
        clean one Apache Kafka begins new epochs too, and clients that compare them notice the restart.
        """
        snapshot = metadata.load()
        put = upgraded(snapshot.entries)
        if not any(entry.key == keys.SECRET for entry in snapshot.entries):
            put[keys.SECRET] = (self._random.bytes16() + self._random.bytes16()).hex().encode()
        put |= restarted_alone(image_from(snapshot), self._config.node_id)
        if put:
            outcome = metadata.change_now(Change(put=put))
            if outcome.error is not None:
                raise UnusableDirectory(outcome.error)

    def _open_directories(self) -> dict[LogDirectory, Identity | None]:
        """Open the log directories. Those that fail are `missing`, if another one and the metadata can be opened."""
        identities = {}
        for name in self._config.log_dirs:
            path = Path(name)
            try:
                directory = LogDirectory(self._files, path, self._random)
                self.directories.append(directory)
                identities[directory] = directory.identity()
            except FailedDirectory as cause:
                if self.directories and self.directories[-1].path == path:
                    self.directories.pop().release()
                if len(self._config.log_dirs) == 1 or path == Path(self._config.metadata_log_dir):
                    raise
                _logger.error("%s is offline: %s. Its partitions answer KAFKA_STORAGE_ERROR", path, cause)
                self.missing.append(path)
        exposed = private_files.open_to_others(
            [*(directory.path for directory in self.directories), Path(self._config.metadata_log_dir) / "metadata.db"]
        )
        if exposed and self._files.durable:
            _logger.warning(
                "other users of this machine may have access to stored passwords and records: %s; run chmod -R go-rwx on them",
                ", ".join(exposed),
            )
        if not self.directories:
            raise UnusableDirectory(f"none of the log directories can be used: {', '.join(map(str, self.missing))}")
        return identities

    def _open_metadata(self, *, has_identity: bool) -> SqliteStore:
        home = Path(self._config.metadata_log_dir)
        path = home / "metadata.db"
        if not self._files.exists(path) and has_identity:
            raise UnusableDirectory(
                f"{home} has a meta.properties but no metadata.db: if it is Apache Kafka's, adopt it with "
                f"`ottla storage import {home}`; else it is damaged: give another --data-dir"
            )
        try:
            self._files.make_directory(home, parents=True)
            return SqliteStore(path, self._worker, self._tasks, durable=self._files.durable)
        except (OSError, sqlite3.Error) as cause:
            raise UnusableDirectory(f"cannot open {path}: {cause}") from None

    def _cluster_id(self, metadata: SqliteStore) -> str:
        """The cluster id of the store, which is initialized if it has none."""
        cluster_id = metadata.cluster_id
        if cluster_id is not None:
            return cluster_id
        cluster_id = uuid_text(self._random.bytes16())
        try:
            metadata.initialize(cluster_id, min_insync_replicas=self._config.integer(keys.MIN_ISR))
        except OSError as cause:
            raise UnusableDirectory(str(cause)) from None
        return cluster_id

    def _check_identities(self, identities: dict[LogDirectory, Identity | None], cluster_id: str) -> None:
        """Verify that all directories belong to this node of this cluster, and claim new ones."""
        node_id = self._config.node_id
        for directory, identity in identities.items():
            if identity is None:
                try:
                    directory.claim(Identity(node_id, cluster_id, self._random.bytes16()))
                except OSError as cause:
                    raise UnusableDirectory(f"cannot write {cause.filename}: {cause.strerror}") from None
            elif (identity.node_id, identity.cluster_id) != (node_id, cluster_id):
                raise UnusableDirectory(
                    f"{directory.path} belongs to node {identity.node_id} of cluster {identity.cluster_id}, "
                    f"this is node {node_id} of cluster {cluster_id}: give the right node.id or another --data-dir"
                )

    def close(self) -> None:
        """Close all logs cleanly, so that the next start scans nothing."""
        for directory in self.directories:
            try:
                directory.close()
            except (OSError, StorageError) as cause:
                _logger.error("cannot stop %s cleanly: %s; the next start looks through it", directory.path, cause)
        if self.metadata is not None:
            self.metadata.close()

    def release(self) -> None:
        """Release all directories without a clean stop: the next start recovers the logs."""
        if self.metadata is not None:
            self.metadata.close()
        for directory in self.directories:
            directory.release()
