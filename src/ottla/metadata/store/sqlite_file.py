"""One SQLite file with the entries of a metadata store: its format, and one transaction for each change.

Each change is flushed before it is answered (synchronous=FULL), unless the files of the broker may be lost: a created topic
survives a power cut. The revision is a row of
its own that is read and written within the transaction, so that it never decreases, even when keys are deleted, and has one
order for all processes that use the file.
"""

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

from ottla.environment import private_files
from ottla.metadata.store import Change, ChangeOutcome, Entry

METADATA_FILE: Final = "metadata.db"
_FORMAT: Final = 1
"""Format of the file (user_version); the file of a release before the first cluster has 0."""
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS entries (key TEXT PRIMARY KEY, value BLOB NOT NULL, revision INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS revision (newest INTEGER NOT NULL);
INSERT INTO revision SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM revision);
ALTER TABLE entries ADD COLUMN created INTEGER NOT NULL DEFAULT 0;
ALTER TABLE entries ADD COLUMN lease INTEGER NOT NULL DEFAULT 0;
UPDATE entries SET created = revision;
PRAGMA user_version = 1;
"""
"""Tables of a new file, and changes of one of format 0."""
COLUMNS: Final = "key, value, revision, created, lease"
_BUSY_TIMEOUT_S: Final = 5.0
_LAST_CHARACTER: Final = "\U0010ffff"

_BUGS: Final = (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.InterfaceError)
"""Errors of the caller, not of the disk."""


class DamagedStore(Exception):
    """File that is not a metadata store of this or an earlier release; the message names it."""


class Written(NamedTuple):
    """Outcome of a change, and the entries that it wrote or deleted."""

    outcome: ChangeOutcome
    entries: Sequence[Entry] = ()


class SqliteFile(ABC):
    """An open metadata store; used by one thread at a time.

    durable  False if changes may be lost in a power failure: then nothing is flushed

    Raises DamagedStore if the file is not a metadata store of this kind, OSError when it cannot be opened.
    """

    _LOCKING: ClassVar[str] = "EXCLUSIVE"

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        self._path = path
        self._synchronous = "FULL" if durable else "OFF"
        try:
            private_files.create(path)  # SQLite gives the files beside it the same mode
        except OSError as cause:
            raise OSError(f"cannot open {path}: {cause.strerror}") from None
        try:
            self._db = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
            try:
                self._open()
            except BaseException:
                self._db.close()
                raise
        except sqlite3.OperationalError as cause:
            raise OSError(f"cannot open {path}: {cause}") from None
        except sqlite3.DatabaseError as cause:
            raise DamagedStore(f"{path} is not a metadata store: {cause}") from None

    def _open(self) -> None:
        # The locking mode comes first: it decides whether SQLite maps an index of the write-ahead log at the first access.
        self._db.execute(f"PRAGMA locking_mode={self._LOCKING}")
        self._check_kind()
        self._db.execute(f"PRAGMA synchronous={self._synchronous}")
        self._db.execute("PRAGMA journal_mode=WAL")
        self._upgrade()
        (self._revision,) = self._db.execute("SELECT newest FROM revision").fetchone()

    @abstractmethod
    def _check_kind(self) -> None:
        """Raise DamagedStore for a file of the other kind: of a single broker, or of several ones."""

    def _application(self) -> int:
        """Return the mark in the file that tells both kinds apart."""
        return int(self._db.execute("PRAGMA application_id").fetchone()[0])

    def _upgrade(self) -> None:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version > _FORMAT:
            raise DamagedStore(f"{self._path} was written by a newer release of Ottla: upgrade this one")
        statements = (_TABLES if version < _FORMAT else "") + self._further_tables()
        if statements:
            # One transaction: a start in a new directory waits for one flush, and a power cut leaves all tables or none.
            self._db.executescript(f"BEGIN IMMEDIATE;{statements}COMMIT;")

    def _further_tables(self) -> str:
        """Return the statements that make the tables of this kind of store, empty if it has all."""
        return ""

    @property
    def revision(self) -> int:
        """The revision of the newest change, 0 for an empty store."""
        return int(self._revision)

    def get(self, key: str) -> Entry | None:
        """Return the entry of a key; not allowed while a background change is running."""
        row = self._db.execute(f"SELECT {COLUMNS} FROM entries WHERE key = ?", (key,)).fetchone()
        return Entry(*row) if row else None

    def range(self, prefix: str) -> Sequence[Entry]:
        """Return the entries whose keys begin with `prefix`, by key; not allowed while a background change is running."""
        query = f"SELECT {COLUMNS} FROM entries WHERE key >= ? AND key < ? ORDER BY key"
        return [Entry(*row) for row in self._db.execute(query, (prefix, prefix + _LAST_CHARACTER))]

    def _write(self, change: Change) -> Written:
        """Carry out a change."""

        def planned(revision: int) -> list[Entry] | ChangeOutcome:
            return self._refusal(change) or self._apply(change, revision)

        return self._commit(planned)

    def _commit(self, plan: Callable[[int], list[Entry] | ChangeOutcome]) -> Written:
        """Run a transaction; `plan` gets its revision and returns the entries that it wrote, or the outcome of a refusal."""
        db = self._db
        try:
            db.execute("BEGIN IMMEDIATE")
            (newest,) = db.execute("SELECT newest FROM revision").fetchone()
            revision = newest + 1
            planned = plan(revision)
            if isinstance(planned, ChangeOutcome):
                db.execute("ROLLBACK")
                return Written(planned)
            db.execute("UPDATE revision SET newest = ?", (revision,))
            db.execute("COMMIT")
        except BaseException as cause:
            with suppress(sqlite3.Error):  # SQLite has rolled back itself after some errors
                db.execute("ROLLBACK")
            if not isinstance(cause, sqlite3.Error) or isinstance(cause, _BUGS):
                raise
            return Written(ChangeOutcome(0, error=f"cannot write {self._path}: {cause}"))
        self._revision = revision
        return Written(ChangeOutcome(revision), planned)

    def _refusal(self, change: Change) -> ChangeOutcome | None:
        """Return the outcome of a change that must not be made; None if it may be made."""
        conflicts = self._conflicts(change)
        return ChangeOutcome(0, conflicts) if conflicts else None

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
        db.executemany(f"INSERT OR REPLACE INTO entries ({COLUMNS}) VALUES (?, ?, ?, ?, ?)", put)
        return [*deleted.values(), *put]
