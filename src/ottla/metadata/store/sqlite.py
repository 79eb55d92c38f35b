"""The embedded metadata store: one SQLite file in the data directory, for a single broker.

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
from typing import Final

from ottla.environment import Worker
from ottla.metadata import keys
from ottla.metadata.store import ChangeOutcome, Entry
from ottla.protocol.answer import Answer, Pending

_SCHEMA: Final = """
PRAGMA locking_mode=EXCLUSIVE;
PRAGMA journal_mode=WAL;
PRAGMA synchronous=FULL;
CREATE TABLE IF NOT EXISTS entries (key TEXT PRIMARY KEY, value BLOB NOT NULL, revision INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS revision (newest INTEGER NOT NULL);
INSERT INTO revision SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM revision);
"""


_BUGS: Final = (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.InterfaceError)
"""Errors of the caller, not of the disk."""


class DamagedStore(Exception):
    """File that is not a metadata store; the message names it."""


class SqliteStore:
    """Implementation of `MetadataStore` in one SQLite file.

    background  thread that makes the changes; None to make and answer each change at once

    Raises DamagedStore if the file is not a metadata store, OSError when it cannot be opened.
    """

    def __init__(self, path: Path, background: Worker | None = None) -> None:
        self._path = path
        self._background = background
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            try:
                self._db.executescript(_SCHEMA)
                (self._revision,) = self._db.execute("SELECT newest FROM revision").fetchone()
            except BaseException:
                self._db.close()
                raise
        except sqlite3.OperationalError as cause:
            raise OSError(f"cannot open {path}: {cause}") from None
        except sqlite3.DatabaseError as cause:
            raise DamagedStore(f"{path} is not a metadata store: {cause}") from None

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
        outcome = self.change_now(expect={keys.CLUSTER_ID: 0}, put={keys.CLUSTER_ID: cluster_id.encode(), **put})
        if outcome.error is not None:
            raise OSError(outcome.error)

    @property
    def cluster_id(self) -> str | None:
        """The cluster's id; None for a store that was not initialized."""
        entry = self.get(keys.CLUSTER_ID)
        return entry.value.decode() if entry else None

    def load(self) -> tuple[Sequence[Entry], int]:
        return self.range(""), self.revision

    def get(self, key: str) -> Entry | None:
        """Return the entry of a key; not allowed while a background change is running."""
        row = self._db.execute("SELECT key, value, revision FROM entries WHERE key = ?", (key,)).fetchone()
        return Entry(*row) if row else None

    def range(self, prefix: str) -> Sequence[Entry]:
        """Return the entries whose keys begin with `prefix`, by key; not allowed while a background change is running."""
        query = "SELECT key, value, revision FROM entries WHERE key >= ? AND key < ? ORDER BY key"
        return [Entry(*row) for row in self._db.execute(query, (prefix, prefix + "\U0010ffff"))]

    def change(
        self,
        *,
        expect: Mapping[str, int] | None = None,
        put: Mapping[str, bytes] | None = None,
        delete: Sequence[str] = (),
    ) -> Answer[ChangeOutcome]:
        write = partial(self.change_now, expect=expect, put=put, delete=delete)
        if self._background is None:
            return write()
        answer = Pending[ChangeOutcome]()
        self._background.run(write, answer.complete, answer.abandon)
        return answer

    def change_now(
        self,
        *,
        expect: Mapping[str, int] | None = None,
        put: Mapping[str, bytes] | None = None,
        delete: Sequence[str] = (),
    ) -> ChangeOutcome:
        """Make a change on the calling thread; see `change`."""
        revision = self.revision + 1
        db = self._db
        try:
            db.execute("BEGIN IMMEDIATE")
            conflicts: dict[str, Entry | None] = {}
            for key, expected in (expect or {}).items():
                entry = self.get(key)
                if (entry.revision if entry else 0) != expected:
                    conflicts[key] = entry
            if conflicts:
                db.execute("ROLLBACK")
                return ChangeOutcome(0, conflicts)
            rows = [(key, value, revision) for key, value in (put or {}).items()]
            db.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", rows)
            db.executemany("DELETE FROM entries WHERE key = ?", [(key,) for key in delete])
            db.execute("UPDATE revision SET newest = ?", (revision,))
            db.execute("COMMIT")
        except BaseException as cause:
            with suppress(sqlite3.Error):  # SQLite has rolled back itself after some errors
                db.execute("ROLLBACK")
            if not isinstance(cause, sqlite3.Error) or isinstance(cause, _BUGS):
                raise
            return ChangeOutcome(0, error=f"cannot write {self._path}: {cause}")
        self._revision = revision
        return ChangeOutcome(revision)

    def close(self) -> None:
        self._db.close()
