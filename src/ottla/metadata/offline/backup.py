"""Backup of metadata.db, also while its broker is running.

A running broker holds SQLite's exclusive lock, so that no other process can open the database with SQLite. Instead its two
files are copied as bytes. The copy is consistent if neither file was written to meanwhile; SQLite ignores an incomplete
transaction at the end of the write-ahead log.
"""

import shutil
import sqlite3
import time
from pathlib import Path
from typing import Final

from ottla.environment import private_files

_ATTEMPTS: Final = 50
_PAUSE_S: Final = 0.05


class CannotCopyMetadata(Exception):
    """Failed copy of a database; the message has the reason."""


def copy_database(source: Path, target: Path) -> int:
    """Copy the database `source` to the new file `target` and return its revision. Raises CannotCopyMetadata, OSError."""
    log, copied_log = source.with_name(source.name + "-wal"), target.with_name(target.name + "-wal")
    for _ in range(_ATTEMPTS):
        before = _state(source), _state(log)
        private_files.create(target)
        shutil.copyfile(source, target)
        copied_log.unlink(missing_ok=True)
        if log.exists():
            private_files.create(copied_log)
            shutil.copyfile(log, copied_log)
        if (_state(source), _state(log)) == before:
            return _checked(target)
        time.sleep(_PAUSE_S)
    raise CannotCopyMetadata(f"{source} was written to all the time: try again when fewer topics and configs change")


def _state(path: Path) -> tuple[int, int] | None:
    """Return size and time of the last write of a file; None if it is missing."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_size, status.st_mtime_ns


def _checked(path: Path) -> int:
    """Merge the write-ahead log of a copy into its database and check it; returns the revision."""
    try:
        db = sqlite3.connect(path)
        try:
            db.execute("PRAGMA journal_mode=DELETE")
            (verdict,) = db.execute("PRAGMA integrity_check").fetchone()
            (revision,) = db.execute("SELECT newest FROM revision").fetchone()
        finally:
            db.close()
    except sqlite3.DatabaseError as cause:
        raise CannotCopyMetadata(f"the copy of metadata.db cannot be read: {cause}") from None
    if verdict != "ok":
        raise CannotCopyMetadata(f"the copy of metadata.db is damaged: {verdict}")
    return int(revision)
