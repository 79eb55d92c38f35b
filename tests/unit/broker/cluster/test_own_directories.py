"""Log directories of a broker that starts again: which logs are gone with them."""

import json
from pathlib import Path

import pytest
from tests.memory_store import MemoryStore

from ottla.broker.cluster.directories import OwnDirectories
from ottla.log.directory import LogDirectory
from ottla.metadata.image import UNASSIGNED, BrokerImage, PartitionImage, TopicImage

NODE = 1
FIRST, SECOND, NEW = (bytes([number]) * 16 for number in (1, 2, 3))


class Zeros:
    def bytes16(self) -> bytes:
        return bytes(16)

    def below(self, bound: int) -> int:
        del bound
        return 0


class Disks:
    """Log directories by name; each start opens some of them."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.before: BrokerImage | None = None
        self.ids = {"a": FIRST, "b": SECOND}
        self.starts = 0
        self.earlier: tuple[str, ...] = ()
        """The processes before the last one that was started."""

    def start(self, *names: str, is_partial: bool = False, registers: bool = True) -> OwnDirectories:
        """Start a process with these directories."""
        opened = []
        for name in names:
            directory = LogDirectory(self.store, Path(f"/{name}"), Zeros())
            directory.id = self.ids[name]
            opened.append(directory)
        own = OwnDirectories(opened, self.store, self.before, is_partial=is_partial)
        self.starts += 1
        incarnation = own.begin(f"process {self.starts}")
        self.earlier = incarnation.earlier
        if registers:
            ids = tuple(directory.id.hex() for directory in opened)
            self.before = BrokerImage(NODE, "b1", 9092, None, incarnation=incarnation.id, directories=ids)
        for directory in opened:
            directory.release()
        return own


def topic(directory: bytes) -> TopicImage:
    return TopicImage("t", b"t" * 16, (PartitionImage.new((NODE, 2)).assigned(NODE, directory),), {})


def has_lost(own: OwnDirectories, directory: bytes = FIRST) -> bool:
    return own.has_lost(topic(directory), 0, NODE)


def test_a_log_is_there_while_its_directory_is() -> None:
    disks = Disks()
    assert not has_lost(disks.start("a", "b"))
    assert not has_lost(disks.start("a", "b"))


def test_a_log_is_gone_with_its_directory() -> None:
    disks = Disks()
    disks.start("a", "b")
    disks.ids["a"] = NEW
    own = disks.start("a", "b")
    assert has_lost(own, FIRST)
    assert not has_lost(own, SECOND)


def test_a_directory_that_cannot_be_opened_may_come_back() -> None:
    disks = Disks()
    disks.start("a", "b")
    own = disks.start("b", is_partial=True)
    assert not has_lost(own, FIRST)
    assert own.only_id == UNASSIGNED


def test_an_old_copy_has_lost_its_logs_until_its_broker_has_registered(caplog: pytest.LogCaptureFixture) -> None:
    disks = Disks()
    disks.start("a")
    copied = disks.store.read_text(Path("/a/ottla-incarnation"))
    disks.start("a")
    disks.start("a")
    assert copied is not None
    disks.store.replace(Path("/a/ottla-incarnation"), copied.encode())
    assert has_lost(disks.start("a", registers=False))
    assert "/a is an old copy" in caplog.text
    assert has_lost(disks.start("a"))
    assert not has_lost(disks.start("a"))


def test_processes_that_never_registered_make_no_old_copy() -> None:
    disks = Disks()
    disks.start("a")
    for _ in range(40):
        assert not has_lost(disks.start("a", registers=False))


def test_all_earlier_processes_of_a_directory_are_known() -> None:
    """The last of them may have ended before it registered, and the sign of life of one before it may still be there."""
    disks = Disks()
    disks.start("a", "b")
    assert not disks.earlier
    disks.start("a", "b", registers=False)
    disks.start("a", "b", registers=False)
    disks.start("a", "b")
    assert set(disks.earlier) == {"process 1", "process 2", "process 3"}


def test_a_directory_of_an_earlier_release_is_no_old_copy() -> None:
    disks = Disks()
    disks.start("a", "b")
    assert disks.before is not None
    value = {"version": 0, "incarnation": disks.before.incarnation}
    disks.store.replace(Path("/a/ottla-incarnation"), json.dumps(value).encode())
    disks.store.remove(Path("/b/ottla-incarnation"))
    own = disks.start("a", "b")
    assert not has_lost(own, FIRST)
    assert not has_lost(own, SECOND)


def test_a_log_without_an_assigned_directory_is_gone_if_it_is_in_none_and_one_was_replaced() -> None:
    disks = Disks()
    disks.start("a", "b")
    assert not has_lost(disks.start("a", "b"), UNASSIGNED)
    disks.ids["a"] = NEW
    disks.store.make_directory(Path("/b/t-0"))
    before = disks.before
    assert not has_lost(disks.start("a", "b"), UNASSIGNED)
    disks.before = before
    disks.store.remove_tree(Path("/b/t-0"))
    assert has_lost(disks.start("a", "b"), UNASSIGNED)
