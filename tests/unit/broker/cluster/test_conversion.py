"""Conversion of the directories of a single broker: interrupted at any step, and refused."""

from pathlib import Path

import pytest

from ottla.broker.cluster.conversion import CannotConvert, convert
from ottla.environment.disk import DiskStore
from ottla.log.directory import Identity, LogDirectory
from ottla.metadata.store.sqlite import SqliteStore
from ottla.metadata.store.sqlite_file import METADATA_FILE, DamagedStore

FILES = ("broker-1/00000000000000000000.log", "flights-0/00000000000000000000.log", "replication-offset-checkpoint")


class InterruptedStore(DiskStore):
    """Store that fails after a number of renames."""

    def __init__(self, renames: int) -> None:
        super().__init__()
        self.renames = renames

    def rename(self, old: Path, new: Path) -> None:
        if self.renames == 0:
            raise InterruptedError
        self.renames -= 1
        super().rename(old, new)


def single_broker(data: Path, *, node_id: int = 1) -> None:
    directory = LogDirectory(DiskStore(), data)
    directory.claim(Identity(node_id, "cluster", bytes(16)))
    directory.release()
    for name in FILES:
        (data / name).parent.mkdir(exist_ok=True)
        (data / name).write_text(name)
    store = SqliteStore(data / METADATA_FILE)
    store.initialize("cluster")
    store.close()


@pytest.mark.parametrize("renames", range(6))
def test_an_interrupted_conversion_goes_on(tmp_path: Path, renames: int) -> None:
    data = tmp_path / "data"
    single_broker(data)
    if renames < 5:
        with pytest.raises(InterruptedError):
            convert(InterruptedStore(renames), [data], data, 1)
        with pytest.raises(DamagedStore, match="has the data of several brokers"):
            SqliteStore(data / METADATA_FILE)
        (data / METADATA_FILE).with_suffix(".db-wal").unlink(missing_ok=True)
    for _ in range(2):  # the second time there is nothing left to do
        convert(DiskStore(), [data], data, 1)
        assert {name: (data / "broker-1" / name).read_text() for name in FILES} == {name: name for name in FILES}
        assert (data / "broker-1" / "meta.properties").exists()
        assert {path.name.removesuffix("-wal").removesuffix("-shm") for path in data.iterdir()} == {
            ".lock",
            "broker-1",
            METADATA_FILE,
        }


def test_the_directory_of_another_node_is_refused_unchanged(tmp_path: Path) -> None:
    data = tmp_path / "data"
    single_broker(data, node_id=7)
    with pytest.raises(CannotConvert, match=r"data belongs to node 7: give node\.id=7"):
        convert(DiskStore(), [data], data, 1)
    assert (data / "meta.properties").exists()
    SqliteStore(data / METADATA_FILE).close()


def test_a_directory_without_metadata_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    single_broker(data)
    (data / METADATA_FILE).unlink()
    with pytest.raises(CannotConvert, match=r"has no metadata\.db"):
        convert(DiskStore(), [data], data, 1)
    assert (data / "meta.properties").exists()
