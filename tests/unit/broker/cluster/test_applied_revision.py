"""The newest applied revision in the data directory, and a start on older metadata."""

import errno
import random
from pathlib import Path

import pytest
from tests.memory_store import MemoryStore
from tests.unit.metadata.stores import VirtualTime

from ottla.broker.cluster.applied_revision import AppliedRevision, Newest, why_older
from ottla.metadata.store import Entry, Snapshot

HOME = Path("/data")


def contents(revision: int, **keys: int) -> Snapshot:
    """Return a store at a revision, whose keys were written at these revisions."""
    return Snapshot([Entry(f"/{name}", b"", written, 1) for name, written in keys.items()], revision)


def kept(newest: Newest) -> MemoryStore:
    files = MemoryStore()
    AppliedRevision(files, HOME, lambda: newest, VirtualTime()).write()
    return files


def test_the_same_metadata_and_newer_one_are_accepted() -> None:
    files = kept(Newest(20, "/a", 18))
    assert why_older(MemoryStore(), HOME, contents(5)) is None
    assert why_older(files, HOME, contents(20, a=18)) is None
    assert why_older(files, HOME, contents(40, a=31)) is None
    assert why_older(files, HOME, contents(40, b=31)) is None  # deleted since


def test_a_lower_revision_is_refused() -> None:
    reason = why_older(kept(Newest(20, "/a", 18)), HOME, contents(19, a=18))
    assert reason is not None
    assert "its revision is 19, and was 20" in reason
    assert "--accept-older-metadata" in reason


def test_a_higher_revision_with_an_older_key_is_refused() -> None:
    reason = why_older(kept(Newest(20, "/a", 18)), HOME, contents(1_000_020, a=12))
    assert reason is not None
    assert "/a is of revision 12, and was of 18" in reason


@pytest.mark.parametrize("seed", range(10))
def test_an_older_store_is_refused_after_a_loss_of_power(seed: int) -> None:
    files = kept(Newest(20, "/a", 18)).power_loss(random.Random(seed))
    assert why_older(files, HOME, contents(19, a=18)) is not None


def test_a_damaged_file_refuses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    files = MemoryStore()
    files.write(HOME / "ottla-metadata-revision", b"{}")
    assert why_older(files, HOME, contents(1)) is None
    assert "is damaged" in caplog.text


def test_the_revision_is_written_when_it_has_changed(caplog: pytest.LogCaptureFixture) -> None:
    time, writes, newest = VirtualTime(), list[bytes](), [1]

    class Files(MemoryStore):
        def replace(self, path: Path, data: bytes) -> None:
            if newest[0] == 3:
                raise OSError(errno.ENOSPC, "No space left on device")
            writes.append(data)
            super().replace(path, data)

    applied = AppliedRevision(Files(), HOME, lambda: Newest(newest[0], "/a", 1), time)
    applied.begin()
    time.advance(5_000)
    assert len(writes) == 1
    newest[0] = 2
    time.advance(1_000)
    assert len(writes) == 2
    newest[0] = 3
    time.advance(5_000)
    assert caplog.text.count("No space left on device") == 1
    newest[0] = 4
    applied.close()
    time.advance(5_000)
    assert len(writes) == 2
