"""The embedded metadata store: one SQLite file, for a single broker.

Each change is one transaction, flushed before it is answered (synchronous=FULL): a created topic survives a power cut. The
revision is a row of its own, so that it never decreases, even when keys are deleted.

The flush may take long on a busy disk, so a broker gives the store a background thread; the connection then belongs to that
thread, and no other thread may use it until the store is closed. The lock is exclusive: this makes SQLite keep the index of its
write-ahead log in memory, and not in a mapped file, whose loss would end the process with SIGBUS.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from ottla.environment import Worker
from ottla.metadata import keys
from ottla.metadata.store import Change, ChangeOutcome, Entry, LeaseOutcome, Snapshot, Watcher
from ottla.protocol.answer import Answer, Pending

_FORMAT: Final = 1
"""Format of the file (user_version); the file of a release before the first cluster has 0."""
_SCHEMA: Final = """
PRAGMA locking_mode=EXCLUSIVE;
PRAGMA journal_mode=WAL;
PRAGMA synchronous=FULL;
CREATE TABLE IF NOT EXISTS entries (key TEXT PRIMARY KEY, value BLOB NOT NULL, revision INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS revision (newest INTEGER NOT NULL);
INSERT INTO revision SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM revision);
"""
_UPGRADE: Final = """
BEGIN IMMEDIATE;
ALTER TABLE entries ADD COLUMN created INTEGER NOT NULL DEFAULT 0;
ALTER TABLE entries ADD COLUMN lease INTEGER NOT NULL DEFAULT 0;
UPDATE entries SET created = revision;
PRAGMA user_version = 1;
COMMIT;
"""
_COLUMNS: Final = "key, value, revision, created, lease"
_LAST_CHARACTER: Final = "\U0010ffff"

_BUGS: Final = (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.InterfaceError)
"""Errors of the caller, not of the disk."""


class DamagedStore(Exception):
    """File that is not a metadata store of this or an earlier release; the message names it."""


class _Written(NamedTuple):
    """Outcome of a change, and the entries that it wrote or deleted."""

    outcome: ChangeOutcome
    entries: Sequence[Entry] = ()


class SqliteStore:
    """Implementation of `MetadataStore` in one SQLite file.

    background  thread that makes the changes; None to make and answer each change at once

    Raises DamagedStore if the file is not a metadata store, OSError when it cannot be opened.
    """

    largest_change: Final = 1 << 30

    def __init__(self, path: Path, background: Worker | None = None) -> None:
        self._path = path
        self._background = background
        self._watcher: Watcher | None = None
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            try:
                self._db.executescript(_SCHEMA)
                self._upgrade()
                (self._revision,) = self._db.execute("SELECT newest FROM revision").fetchone()
            except BaseException:
                self._db.close()
                raise
        except sqlite3.OperationalError as cause:
            raise OSError(f"cannot open {path}: {cause}") from None
        except sqlite3.DatabaseError as cause:
            raise DamagedStore(f"{path} is not a metadata store: {cause}") from None

    def _upgrade(self) -> None:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version > _FORMAT:
            raise DamagedStore(f"{self._path} was written by a newer release of Ottla: upgrade this one")
        if version < _FORMAT:
            self._db.executescript(_UPGRADE)

    @property
    def revision(self) -> int:
        """The revision of the newest change, 0 for an empty store."""
        return int(self._revision)

    def initialize(
        self, cluster_id: str, features: Mapping[str, int] | None = None, min_insync_replicas: int = 1
    ) -> None:
        """Write the cluster id, chosen feature levels and min.insync.replicas to a new store; an initialized one is unchanged.

        As in Kafka, min.insync.replicas counts as an altered config from the start. Raises OSError.
        """
        put = {keys.FEATURES + name: str(level).encode() for name, level in (features or {}).items()}
        put[keys.BROKER_DEFAULTS] = keys.compact({keys.MIN_ISR: str(min_insync_replicas)})
        put[keys.CLUSTER_ID] = cluster_id.encode()
        put[keys.METADATA_VERSION] = str(keys.NEWEST_METADATA_VERSION).encode()
        outcome = self.change_now(Change({keys.CLUSTER_ID: 0}, put=put))
        if outcome.error is not None:
            raise OSError(outcome.error)

    @property
    def cluster_id(self) -> str | None:
        """The cluster's id; None for a store that was not initialized."""
        entry = self.get(keys.CLUSTER_ID)
        return entry.value.decode() if entry is not None and entry.value is not None else None

    def load(self) -> Snapshot:
        """See `MetadataStore.load`; not allowed while a background change is running."""
        return Snapshot(self.range(""), self.revision)

    def watch(self, revision: int, watcher: Watcher) -> None:
        if revision != self.revision:
            raise ValueError(f"the store is at revision {self.revision}, not {revision}")
        self._watcher = watcher

    def get(self, key: str) -> Entry | None:
        """Return the entry of a key; not allowed while a background change is running."""
        row = self._db.execute(f"SELECT {_COLUMNS} FROM entries WHERE key = ?", (key,)).fetchone()
        return Entry(*row) if row else None

    def range(self, prefix: str) -> Sequence[Entry]:
        """Return the entries whose keys begin with `prefix`, by key; not allowed while a background change is running."""
        query = f"SELECT {_COLUMNS} FROM entries WHERE key >= ? AND key < ? ORDER BY key"
        return [Entry(*row) for row in self._db.execute(query, (prefix, prefix + _LAST_CHARACTER))]

    def change(self, change: Change) -> Answer[ChangeOutcome]:
        if self._background is None:
            return self._delivered(self._write(change))
        answer = Pending[ChangeOutcome]()
        self._background.run(
            partial(self._write, change),
            lambda written: answer.complete(self._delivered(written)),
            answer.abandon,
        )
        return answer

    def change_now(self, change: Change) -> ChangeOutcome:
        """Make a change on the calling thread; for a store without a watcher."""
        return self._write(change).outcome

    def _delivered(self, written: _Written) -> ChangeOutcome:
        """Pass a change to the watcher, on the event loop."""
        outcome = written.outcome
        if outcome.revision and self._watcher is not None:
            self._watcher.changed(outcome.revision, written.entries)
        return outcome

    def _write(self, change: Change) -> _Written:
        db = self._db
        try:
            db.execute("BEGIN IMMEDIATE")
            (newest,) = db.execute("SELECT newest FROM revision").fetchone()
            conflicts = self._conflicts(change)
            if conflicts:
                db.execute("ROLLBACK")
                return _Written(ChangeOutcome(0, conflicts))
            revision = newest + 1
            entries = self._apply(change, revision)
            db.execute("UPDATE revision SET newest = ?", (revision,))
            db.execute("COMMIT")
        except BaseException as cause:
            with suppress(sqlite3.Error):  # SQLite has rolled back itself after some errors
                db.execute("ROLLBACK")
            if not isinstance(cause, sqlite3.Error) or isinstance(cause, _BUGS):
                raise
            return _Written(ChangeOutcome(0, error=f"cannot write {self._path}: {cause}"))
        self._revision = revision
        return _Written(ChangeOutcome(revision), entries)

    def _conflicts(self, change: Change) -> dict[str, Entry]:
        conflicts: dict[str, Entry] = {}
        for key in (*change.expect, *change.created):
            entry = self.get(key) or Entry(key, None, 0, 0)
            is_current = change.expect.get(key, entry.revision) == entry.revision
            if not is_current or change.created.get(key, entry.created) != entry.created:
                conflicts[key] = entry
        return conflicts

    def _apply(self, change: Change, revision: int) -> list[Entry]:
        """Write a change whose comparisons hold, and return the entries of the changed keys."""
        db = self._db
        deleted: dict[str, Entry] = {}
        for prefix in change.delete_under:
            for entry in self.range(prefix):
                deleted[entry.key] = Entry(entry.key, None, revision, 0)
        for key in change.delete:
            if self.get(key) is not None:
                deleted[key] = Entry(key, None, revision, 0)
        db.executemany("DELETE FROM entries WHERE key = ?", [(key,) for key in deleted])
        put = []
        for key, value in change.put.items():
            known = db.execute("SELECT created FROM entries WHERE key = ?", (key,)).fetchone()
            put.append(Entry(key, value, revision, known[0] if known else revision, change.lease))
        db.executemany(f"INSERT OR REPLACE INTO entries ({_COLUMNS}) VALUES (?, ?, ?, ?, ?)", put)
        return [*deleted.values(), *put]

    def grant(self, ttl_ms: int) -> LeaseOutcome:  # noqa: ARG002
        """See `MetadataStore.grant`; the only broker of its store needs no lease."""
        return LeaseOutcome(0, f"{self._path} has a single broker: there are no leases")

    def renew(self, lease: int) -> LeaseOutcome:  # noqa: ARG002
        return LeaseOutcome(0)

    def revoke(self, lease: int) -> bool:  # noqa: ARG002
        return True

    def close(self) -> None:
        self._watcher = None
        self._db.close()
