"""The embedded metadata store: one SQLite file in the data directory, for a broker on its own.

Each change is one transaction, flushed before it is answered (synchronous=FULL): a topic that was created is there after a
power cut. The revision is a row of its own, so that it never goes back even when keys are deleted.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

from ottla.metadata.store import Entry

_SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (key TEXT PRIMARY KEY, value BLOB NOT NULL, revision INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS revision (newest INTEGER NOT NULL);
INSERT INTO revision SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM revision);
"""


class DamagedStore(Exception):
    """The file is not a metadata store; the message names it."""


class SqliteStore:
    """`MetadataStore` in one file. Raises DamagedStore for a file that is none, OSError when it cannot be opened."""

    def __init__(self, path: Path) -> None:
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._db.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;" + _SCHEMA)
            (self._revision,) = self._db.execute("SELECT newest FROM revision").fetchone()
        except sqlite3.OperationalError as cause:
            raise OSError(f"cannot open {path}: {cause}") from None
        except sqlite3.DatabaseError as cause:
            raise DamagedStore(f"{path} is not a metadata store: {cause}") from None

    @property
    def revision(self) -> int:
        return int(self._revision)

    def get(self, key: str) -> Entry | None:
        row = self._db.execute("SELECT key, value, revision FROM entries WHERE key = ?", (key,)).fetchone()
        return Entry(*row) if row else None

    def range(self, prefix: str) -> Sequence[Entry]:
        query = "SELECT key, value, revision FROM entries WHERE key >= ? AND key < ? ORDER BY key"
        return [Entry(*row) for row in self._db.execute(query, (prefix, prefix + "\U0010ffff"))]

    def change(
        self,
        *,
        expect: Mapping[str, int] | None = None,
        put: Mapping[str, bytes] | None = None,
        delete: Sequence[str] = (),
    ) -> int | None:
        revision = self.revision + 1
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        try:
            for key, wanted in (expect or {}).items():
                found = self.get(key)
                if (found.revision if found else 0) != wanted:
                    db.execute("ROLLBACK")
                    return None
            rows = [(key, value, revision) for key, value in (put or {}).items()]
            db.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", rows)
            db.executemany("DELETE FROM entries WHERE key = ?", [(key,) for key in delete])
            db.execute("UPDATE revision SET newest = ?", (revision,))
            db.execute("COMMIT")
        except sqlite3.Error:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        self._revision = revision
        return revision

    def close(self) -> None:
        self._db.close()
