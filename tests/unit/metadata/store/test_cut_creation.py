"""A power cut while a metadata store is created: whatever its files have by then, the next start can use them."""

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.metadata.store.shared_sqlite import _SharedFile
from ottla.metadata.store.sqlite import SqliteStore
from ottla.metadata.store.sqlite_file import METADATA_FILE, SqliteFile


@pytest.mark.parametrize("store", [SqliteStore, _SharedFile])
def test_store_opens_after_a_power_cut_at_each_statement_of_its_creation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: Callable[[Path], SqliteFile]
) -> None:
    home = tmp_path / "store"
    home.mkdir()
    copies: list[Path] = []

    def copy_files(statement: str) -> None:
        del statement
        copies.append(Path(shutil.copytree(home, tmp_path / str(len(copies)))))

    class Traced(sqlite3.Connection):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self.set_trace_callback(copy_files)

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **options: connect(*args, **options, factory=Traced))
    first = store(home / METADATA_FILE)
    monkeypatch.undo()
    first._db.set_trace_callback(None)
    first._db.close()
    assert len(copies) > 10
    for copy in copies:
        again = store(copy / METADATA_FILE)
        assert again.revision == 0
        again._db.close()
