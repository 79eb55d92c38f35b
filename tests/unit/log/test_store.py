"""Files: appended whole or not at all, small ones replaced in one step."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from ottla.log.store import DiskStore, Region


def test_a_file_is_made_with_its_first_append(tmp_path: Path) -> None:
    file = DiskStore().open(tmp_path / "f")
    assert file.size == 0
    assert not (tmp_path / "f").exists()
    file.append([b"ab", memoryview(b"cd")])
    assert (file.size, (tmp_path / "f").read_bytes()) == (4, b"abcd")
    file.close()
    again = DiskStore().open(tmp_path / "f")
    assert (again.size, again.read(1, 2), again.read(3, 100), again.read(9, 1)) == (4, b"bc", b"d", b"")
    assert Region(again, 1, 3).read() == b"bcd"
    again.close()


def test_what_the_kernel_takes_in_parts_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.pwrite
    monkeypatch.setattr(os, "pwritev", lambda fd, buffers, at: whole(fd, b"".join(buffers)[:2], at))
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: whole(fd, data[:1], at))
    file = DiskStore().open(tmp_path / "f")
    file.append([b"abc", b"def"])
    assert (file.size, file.read(0, 10)) == (6, b"abcdef")
    file.close()


def test_a_failed_append_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = DiskStore().open(tmp_path / "f")
    file.append([b"abc"])

    def full(fd: int, buffers: Sequence[bytes], at: int) -> int:
        os.pwrite(fd, buffers[0][:1], at)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwritev", full)
    with pytest.raises(OSError, match="No space left"):
        file.append([b"def"])
    assert (file.size, (tmp_path / "f").read_bytes()) == (3, b"abc")
    file.close()


def test_small_files_are_replaced(tmp_path: Path) -> None:
    store = DiskStore()
    assert store.read_text(tmp_path / "f") is None
    for text in (b"old", b"new"):
        store.replace(tmp_path / "f", text)
    assert store.read_text(tmp_path / "f") == "new"
    store.rename(tmp_path / "f", tmp_path / "g")
    assert store.names(tmp_path) == ["g"]
    store.remove(tmp_path / "g")
    store.remove(tmp_path / "g")
    assert store.names(tmp_path) == []
