"""Files: appended whole or not at all, small ones replaced in one step."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from ottla.environment.disk import DiskStore
from ottla.environment.files import Region


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


def test_partial_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_file_is_not_mistaken_for_that_of_a_renamed_directory(tmp_path: Path) -> None:
    """A partition that moves to another log directory and back has its indexes under the same names, with other bytes."""
    store = DiskStore()
    for content in (b"a" * 20_000, b"b" * 20_000):
        store.make_directory(tmp_path / "future")
        store.write(tmp_path / "future" / "index", content)
        store.rename(tmp_path / "future", tmp_path / "t-0")
        assert store.mapped(tmp_path / "t-0" / "index")[:] == content
        store.rename(tmp_path / "t-0", tmp_path / f"deleted {content[:1]!r}")
    assert store.mapped(tmp_path / "t-0" / "index")[:] == b""
    store.close()


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


def test_few_files_are_open_however_many_there_are(tmp_path: Path) -> None:
    store = DiskStore(most_files=16)
    files = [store.open(tmp_path / f"{number}") for number in range(50)]
    for number, file in enumerate(files):
        file.append([b"%d" % number])
        files[0].read(0, 1)  # one that is always in use
        assert store.open_files <= 16
    for number, file in enumerate(files):
        file.append([b"!"])
        assert file.read(0, 10) == b"%d!" % number
    assert store.open_files == 16
    for file in files:
        file.close()
    assert store.open_files == 0


def test_indexes_are_mapped_only_while_they_are_used(tmp_path: Path) -> None:
    store = DiskStore()
    assert store.mapped(tmp_path / "none") == b""
    (tmp_path / "small").write_bytes(b"small")
    assert store.mapped(tmp_path / "small") == b"small"
    assert store.mappings == 0
    for number in range(600):
        (tmp_path / f"{number}").write_bytes(b"%d " % number * 8000)
        assert store.mapped(tmp_path / f"{number}")[:4].split()[0] == b"%d" % number
    assert store.mappings == 512
    store.write(tmp_path / "599", b"new")
    assert store.mapped(tmp_path / "599") == b"new"
    store.rename(tmp_path / "598", tmp_path / "0")
    assert store.mapped(tmp_path / "0")[:3] == b"598"


def test_reserved_space_is_released(tmp_path: Path) -> None:
    file = DiskStore().open(tmp_path / "f")
    file.reserve(10_000)
    file.append([b"abc"])
    assert (file.size, (tmp_path / "f").stat().st_size, file.read(0, 100)) == (3, 10_000, b"abc")
    file.truncate(3)
    assert (tmp_path / "f").read_bytes() == b"abc"
    file.close()
