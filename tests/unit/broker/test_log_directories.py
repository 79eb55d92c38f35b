"""A broker on two log directories whose disks fail when a test says so: what suffers, and what does not.

One file, because all tests break the disks of the same broker, and differ in the moment only.
"""

import asyncio
import errno
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.faulty_store import FaultyStore
from tests.queues import drain

from ottla.broker.config import broker_config
from ottla.broker.lifecycle import BrokerServer
from ottla.environment.disk import DiskStore
from ottla.environment.process import process_environment
from ottla.metadata import changes
from ottla.metadata.image import Image
from ottla.metadata.plans.topics import RequestedTopic
from ottla.metadata.refusal import ChangeResult, Refused
from ottla.metadata.store import Change
from ottla.protocol.connection import ClientConnection, open_envelope
from ottla.protocol.context import RequestContext
from ottla.protocol.errors import KAFKA_STORAGE_ERROR
from ottla.protocol.schema import Request
from ottla.replication.partition import Partition
from ottla.tasks.deferred import Answer, after

EIO = OSError(errno.EIO, "Input/output error")
EROFS = OSError(errno.EROFS, "Read-only file system")
EMFILE = OSError(errno.EMFILE, "Too many open files")
READING = ("read", "short read", "list")


class Machine:
    """A broker on the directories a and b (or on those that `names` says), which is stopped, killed and started again.

    fails  what an operation on a path raises
    """

    def __init__(self, path: Path, names: str = "ab", **configs: str) -> None:
        self.path = path
        self.names = names
        self.fails: Callable[[str, Path], OSError | None] = lambda operation, path: None
        self.loop = asyncio.new_event_loop()
        self._disk = DiskStore(durable=False)
        self._configs = configs
        self.start()

    def start(self) -> None:
        store = FaultyStore(self._disk, self._fault)
        values = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": ",".join(str(self.path / name) for name in self.names),
            "log.initial.task.delay.ms": "0",
            "log.retention.check.interval.ms": "10",
            **{name.replace("_", "."): value for name, value in self._configs.items()},
        }
        self.server = BrokerServer(broker_config(values), process_environment(self.loop, files=store))
        self.server.start()
        self.broker = self.server.broker

    def _fault(self, operation: str, path: Path) -> OSError | None:
        cause = self.fails(operation, path)
        return None if cause is None else OSError(cause.errno, cause.strerror)

    def disk_fails(self, name: str, cause: OSError, *operations: str, spare: tuple[str, ...] = ()) -> None:
        """Let these operations (all if none is named) fail on one directory."""
        disk = self.path / name

        def fails(operation: str, path: Path) -> OSError | None:
            counts = operation in operations if operations else operation not in spare
            return cause if counts and path.is_relative_to(disk) else None

        self.fails = fails

    def mend(self) -> None:
        self.fails = lambda operation, path: None

    def restart(self, *, kill: bool = False) -> None:
        if kill:
            self.end()
        else:
            self.server.stop()
        self.mend()
        self.start()

    def end(self) -> None:
        """As a kill -9 would."""
        self.server._removals._waiting.clear()
        assert self.server._maintenance is not None
        self.server._maintenance.close()
        self.server.kill()

    def __enter__(self) -> "Machine":
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()
        self.loop.close()

    def until(self, condition: Callable[[], bool]) -> None:
        async def wait() -> None:
            async with asyncio.timeout(20):
                while not condition():
                    await asyncio.sleep(0.001)

        self.loop.run_until_complete(wait())

    def result(self, change: Callable[[], Answer[ChangeResult]]) -> None:
        """Wait for a change of the metadata. Raises Refused."""
        changes: list[ChangeResult] = []
        after(change(), changes.append)
        self.until(lambda: bool(changes))
        if changes[0].error_code:
            raise Refused(*changes[0])

    def apply(self, plan: Callable[[Image], Change]) -> None:
        """Make a change of the metadata. Raises Refused."""
        self.result(lambda: self.server.tasks.start(self.broker.metadata.result_of(plan)))

    def apply_all(self, plan: Callable[[Image, int], Iterable[Change]]) -> None:
        """Make several changes of the metadata. Raises Refused."""
        self.result(lambda: self.server.tasks.start(self.broker.metadata.apply_all(plan)))

    def serve(self, request: Request, version: int) -> Answer[Any]:
        """Hand a request to its handler."""
        frame = b"".join(bytes(piece) for piece in ClientConnection("x").request(request, version))[4:]
        context = RequestContext(version=version, client_host="/h")
        answer = self.server.pipeline.serve(open_envelope(frame), context)
        assert answer is not None
        self.settle()
        return answer

    def settle(self) -> None:
        """Let everything that was completed take effect."""
        drain(self.server.tasks)

    def create(self, name: str, partitions: int = 1, **configs: str) -> None:
        texts: dict[str, str | None] = {key.replace("_", "."): value for key, value in configs.items()}
        topic = RequestedTopic(name, partitions, 1, {}, texts)
        self.result(lambda: self.broker.tasks.start(self.broker.topics.create(topic)))

    def create_internal(self, name: str) -> None:
        self.result(lambda: self.broker.tasks.start(self.broker.topics.create_internal(name)))

    def delete(self, name: str) -> None:
        metadata = self.broker.metadata
        topic = metadata.image.topics[name]
        self.apply_all(lambda image, largest: changes.delete_left(image, [topic], largest))

    def partition(self, name: str, index: int = 0) -> Partition:
        partition = self.broker.replicas.find(name, index)
        assert partition is not None
        return partition

    def home(self, name: str, index: int = 0) -> str:
        """The directory that a partition lies in."""
        return self.broker.replicas.home_of(self.partition(name, index)).path.name

    def append(self, name: str, count: int = 1, index: int = 0) -> None:
        now_ms = self.broker.clock.wall_ms()
        for _ in range(count):
            assert self.partition(name, index).append_records([(b"k", b"v" * 100)], now_ms).error_code == 0
        self.settle()

    def move(self, name: str, target: str) -> None:
        directory = next(candidate for candidate in self.broker.replicas.directories if candidate.path.name == target)
        self.broker.moves.begin(self.partition(name), directory)

    def offline(self) -> list[str]:
        return [directory.path.name for directory in self.broker.replicas.directories if directory.offline is not None]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with Machine(tmp_path) as machine:
        yield machine


def place(machine: Machine, name: str, home: str) -> None:
    """Create a topic of one partition in `home`."""
    fillers = 0
    machine.create(name)
    while machine.home(name) != home:
        machine.delete(name)
        machine.create(f"filler-{fillers}")
        fillers += 1
        machine.create(name)


def test_the_live_topic_wins_over_a_deleted_one_of_its_name(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    """The disk of b is away while t is deleted and created again; what comes back with it is a stray."""
    place(machine, "t", "b")
    machine.append("t", 3)
    machine.server.stop()
    (machine.path / "b").rename(machine.path / "away")
    (machine.path / "b").write_text("")
    machine.start()
    machine.delete("t")
    machine.create("t")
    machine.append("t", 100)
    assert machine.home("t") == "a"
    machine.server.stop()
    (machine.path / "b").unlink()
    (machine.path / "away").rename(machine.path / "b")
    caplog.clear()
    machine.start()
    assert machine.home("t") == "a"
    assert machine.partition("t").log.end_offset == 100
    (stray,) = machine.path.glob("*/*-stray")
    assert caplog.messages == [
        f"{machine.path / 'b' / 't-0'} belongs to another topic of the same name: it is {stray.name} now"
    ]
    assert (stray / "00000000000000000000.log").stat().st_size > 0
    machine.restart()
    assert machine.partition("t").log.end_offset == 100


def test_a_topic_is_created_again_while_its_full_directory_is_offline(machine: Machine) -> None:
    """Deleted to make room, and a producer creates it again at once."""
    place(machine, "t", "b")
    machine.append("t", 3)
    machine.disk_fails("b", OSError(errno.ENOSPC, "No space left on device"), spare=READING)
    with pytest.raises(Exception, match="No space left"):
        machine.append("t")
    assert machine.offline() == ["b"]
    machine.delete("t")
    machine.create("t")
    machine.append("t", 5)
    assert machine.home("t") == "a"
    machine.restart()
    assert (machine.home("t"), machine.partition("t").log.end_offset, machine.offline()) == ("a", 5, [])
    assert len(list((machine.path / "b").glob("t-0.*-stray"))) == 1


def test_a_partition_moves_off_a_disk_that_became_read_only(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    """Its disk goes offline for it, the healthy one does not; the stale copy does not win when the disk is back."""
    place(machine, "t", "b")
    machine.append("t", 10)
    machine.disk_fails("b", EROFS, spare=READING)
    machine.move("t", "a")
    machine.until(lambda: machine.home("t") == "a")
    assert machine.offline() == ["b"]
    machine.append("t", 5)
    assert [path.parent.name for path in sorted(machine.path.glob("*/t-0"))] == ["a", "b"]
    for kill in (True, False):
        machine.restart(kill=kill)
        assert machine.home("t") == "a"
        assert machine.partition("t").log.end_offset == 15
    assert len(list((machine.path / "b").glob("t-0.*-stray"))) == 1
    assert (
        f"{machine.path / 'b' / 't-0'} is not the current copy of this partition, which is in {machine.path / 'a'}"
        in caplog.text
    )


def test_the_longer_of_two_copies_wins_wherever_it_is(tmp_path: Path) -> None:
    for names in ("ab", "ba"):
        with Machine(tmp_path / names, names) as machine:
            place(machine, "t", "b")
            machine.append("t", 10)
            machine.disk_fails("b", EROFS, spare=READING)
            machine.move("t", "a")
            machine.until(lambda: machine.home("t") == "a")
            machine.append("t", 1)
            machine.restart(kill=True)
            assert (machine.home("t"), machine.partition("t").log.end_offset) == ("a", 11)


def away(machine: Machine, name: str) -> None:
    """Take a disk out: a file is in the place of the directory, so that the broker cannot make a new one."""
    (machine.path / name).rename(machine.path / "away")
    (machine.path / name).write_text("")


def back(machine: Machine, name: str) -> None:
    (machine.path / name).unlink()
    (machine.path / "away").rename(machine.path / name)


@pytest.fixture
def moved(tmp_path: Path) -> Iterator[Machine]:
    """Partition t moved from b, which failed, to c; 5 of its 15 records are in c only. The broker is stopped."""
    with Machine(tmp_path, "abc") as machine:
        place(machine, "t", "b")
        machine.append("t", 10)
        machine.disk_fails("b", EROFS, spare=READING)
        machine.move("t", "c")
        machine.until(lambda: machine.home("t") == "c")
        machine.append("t", 5)
        machine.server.stop()
        machine.mend()
        yield machine


def test_an_old_copy_is_not_used_while_the_new_directory_is_missing(
    moved: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    away(moved, "c")
    caplog.clear()
    for _ in range(2):
        moved.start()
        assert moved.broker.replicas.is_offline("t", 0)
        assert (moved.path / "b" / "t-0").is_dir()
        moved.server.stop()
    old = moved.path / "b"
    assert (
        caplog.text.count(f"t-0 is offline: it was moved to a log directory that is offline, and the copy in {old}")
        == 2
    )
    back(moved, "c")
    moved.start()
    assert (moved.home("t"), moved.partition("t").log.end_offset) == ("c", 15)


@pytest.mark.parametrize("is_assigned", [True, False])
def test_a_log_is_opened_without_its_topic_id_where_it_is_assigned_to(
    machine: Machine, caplog: pytest.LogCaptureFixture, is_assigned: bool
) -> None:
    """A power loss may take partition.metadata and leave records: such replicas stayed offline until the operator wrote it."""
    place(machine, "t", "b")
    machine.append("t", 10)
    home = "b"
    if is_assigned:
        machine.move("t", "a")
        machine.until(lambda: machine.home("t") == "a")
        home = "a"
    machine.server.stop()
    (machine.path / home / "t-0" / "partition.metadata").unlink()
    caplog.clear()
    machine.start()
    if not is_assigned:
        assert machine.broker.replicas.is_offline("t", 0)
        return
    assert (machine.home("t"), machine.partition("t").log.end_offset) == ("a", 10)
    assert "is missing or damaged; it is written again with topic id" in caplog.text


def test_an_old_copy_is_used_when_the_new_directory_is_gone_for_good(
    moved: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    """Not in log.dirs any more, or replaced by an empty disk. From then on the old copy is the partition."""
    (moved.path / "c").rename(moved.path / "away")
    moved.names = "ab"
    moved.start()
    assert (moved.home("t"), moved.partition("t").log.end_offset) == ("b", 10)
    line = "t-0 was moved to a log directory that is not in log.dirs any more"
    assert caplog.text.count(line) == 1
    moved.until(lambda: not moved.broker.replicas.misassigned())
    moved.names = "abc"
    for _ in range(2):
        moved.restart()
        assert (moved.home("t"), moved.partition("t").log.end_offset) == ("b", 10)
    assert caplog.text.count(line) == 1


def test_a_topic_that_is_created_again_begins_empty_though_an_old_copy_of_its_predecessor_was_left(
    moved: Machine,
) -> None:
    """The directory that t was moved to is missing: t is offline, and deleted. Its old copy in b must not become the new t."""
    away(moved, "c")
    moved.start()
    assert moved.broker.replicas.is_offline("t", 0)
    moved.delete("t")
    assert not (moved.path / "b" / "t-0").exists()
    place(moved, "t", "b")
    assert moved.partition("t").log.end_offset == 0
    moved.append("t", 100)
    moved.restart()
    assert (moved.home("t"), moved.partition("t").log.end_offset) == ("b", 100)


def test_a_topic_that_is_created_again_begins_empty_though_a_copy_could_not_be_renamed(tmp_path: Path) -> None:
    with Machine(tmp_path) as machine:
        place(machine, "t", "b")
        machine.append("t", 10)
        machine.disk_fails("b", EROFS, spare=READING)
        machine.move("t", "a")
        machine.until(lambda: machine.home("t") == "a")
        machine.append("t", 1)
        machine.server.stop()
        machine.disk_fails("b", OSError(errno.EACCES, "Permission denied"), "rename")
        machine.start()
        assert (machine.home("t"), machine.partition("t").log.end_offset, machine.offline()) == ("a", 11, [])
        machine.delete("t")
        machine.mend()
        place(machine, "t", "b")
        assert machine.partition("t").log.end_offset == 0


def test_a_partition_that_was_moved_by_hand_is_found_and_kept(moved: Machine) -> None:
    for directory in moved.path.glob("[bc]/t-0"):
        directory.rename(moved.path / f"{directory.parent.name}-t")
    (moved.path / "c-t").rename(moved.path / "b" / "t-0")
    moved.start()
    assert (moved.home("t"), moved.partition("t").log.end_offset) == ("b", 15)
    moved.until(lambda: not moved.broker.replicas.misassigned())
    moved.server.stop()
    away(moved, "c")
    moved.start()
    assert (moved.home("t"), moved.partition("t").log.end_offset) == ("b", 15)


def test_a_move_that_fails_at_its_end_leaves_the_partition_usable_without_the_target(tmp_path: Path) -> None:
    with Machine(tmp_path) as machine:
        place(machine, "t", "a")
        machine.append("t", 10)
        machine.disk_fails("b", EIO, "rename")
        machine.move("t", "b")
        machine.until(lambda: machine.offline() == ["b"])
        machine.until(lambda: not machine.broker.replicas.misassigned())
        machine.server.stop()
        machine.mend()
        away(machine, "b")
        machine.start()
        assert (machine.home("t"), machine.partition("t").log.end_offset) == ("a", 10)


def test_a_move_that_the_metadata_cannot_record_is_given_up(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    place(machine, "t", "b")
    machine.append("t", 10)

    def refuse(*_: object) -> Change:
        raise Refused(KAFKA_STORAGE_ERROR, "cannot write metadata.db")

    monkeypatch.setattr(changes, "assign_directory", refuse)
    machine.move("t", "a")
    machine.until(lambda: not machine.broker.moves._under_way)
    assert (machine.home("t"), machine.partition("t").log.is_moving) == ("b", False)
    assert f"cannot move t-0 to {machine.path / 'a'}: cannot write metadata.db" in caplog.text
    machine.until(lambda: not list((machine.path / "a").glob("*-future")))


def test_a_partition_moves_back_to_where_its_old_directory_could_not_be_renamed(machine: Machine) -> None:
    place(machine, "t", "b")
    machine.append("t", 10)
    machine.disk_fails("b", OSError(errno.EACCES, "Permission denied"), "rename")
    machine.move("t", "a")
    machine.until(lambda: machine.home("t") == "a")
    machine.mend()
    assert (machine.path / "b" / "t-0").is_dir()
    machine.append("t", 5)
    machine.move("t", "b")
    machine.until(lambda: not machine.broker.moves._under_way)
    assert (machine.home("t"), machine.offline()) == ("b", [])
    machine.restart()
    assert (machine.home("t"), machine.partition("t").log.end_offset) == ("b", 15)
    assert len(list((machine.path / "b").glob("t-0.*-stray"))) == 1


def test_a_partition_that_cannot_be_read_stays_and_the_target_goes_on(machine: Machine) -> None:
    place(machine, "t", "b")
    place(machine, "u", "a")
    machine.append("t", 10)
    machine.disk_fails("b", EIO)
    machine.move("t", "a")
    machine.until(lambda: machine.offline() == ["b"])
    machine.append("u")
    assert machine.broker.replicas.is_offline("t", 0)
    machine.until(lambda: not list((machine.path / "a").glob("*-future")))
    machine.restart()
    assert (machine.home("t"), machine.partition("t").log.end_offset) == ("b", 10)


def test_a_move_of_a_file_that_lost_its_end_is_given_up(machine: Machine) -> None:
    place(machine, "t", "b")
    machine.append("t", 10)
    machine.disk_fails("b", EIO, "short read")
    machine.move("t", "a")
    machine.until(lambda: not machine.broker.moves._under_way)
    assert machine.home("t") == "b"
    assert machine.offline() == []


def test_a_target_that_fails_leaves_the_partition_where_it_was(machine: Machine) -> None:
    place(machine, "t", "b")
    machine.append("t", 10)
    machine.disk_fails("a", EIO, "rename")
    machine.move("t", "a")
    machine.until(lambda: machine.offline() == ["a"])
    assert machine.home("t") == "b"
    machine.append("t")
    assert not machine.partition("t").log.is_moving
    machine.restart()
    assert (machine.home("t"), machine.partition("t").log.end_offset) == ("b", 11)


def test_a_move_without_descriptors_is_given_up_and_nothing_goes_offline(machine: Machine) -> None:
    place(machine, "t", "b")
    machine.append("t", 10)
    machine.disk_fails("a", EMFILE, "append", "flush")
    machine.move("t", "a")
    machine.until(lambda: not machine.broker.moves._under_way)
    assert not machine.partition("t").log.is_moving
    assert machine.offline() == []
    machine.mend()
    machine.move("t", "a")
    machine.until(lambda: machine.home("t") == "a")
    machine.append("t")


def test_a_batch_that_waits_for_its_flush_is_acknowledged_when_its_partition_has_moved(machine: Machine) -> None:
    """flush.messages=1: the old log's flush is under way when the partition gets its new log."""
    machine.create("filler")
    machine.create("t", flush_messages="1")
    target = "a" if machine.home("t") == "b" else "b"
    old = machine.path / machine.home("t") / "t-0"
    machine.append("t", 5)
    machine.until(lambda: machine.partition("t").log.high_watermark == 5)
    flushing, go = threading.Event(), threading.Event()

    def fails(operation: str, path: Path) -> None:
        if operation == "flush" and path.is_relative_to(old):
            flushing.set()
            assert go.wait(30)

    machine.fails = fails
    machine.append("t")
    machine.until(flushing.is_set)
    acknowledged: list[int] = []
    partition = machine.partition("t")
    partition.when_committed(partition.leader_epoch, 6, acknowledged.append)
    machine.move("t", target)
    try:
        machine.until(lambda: machine.home("t") == target)
        machine.until(lambda: acknowledged == [0])
    finally:
        go.set()
    assert (partition.log.recovery_point, partition.log.high_watermark) == (6, 6)


@pytest.mark.replaces_code
def test_an_emptied_partition_keeps_its_offsets_when_it_is_moved_and_the_broker_killed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    place(machine, "t", "b")
    machine.append("t", 100)
    log = machine.partition("t").log
    log.flush()
    log.config = replace(log.config, retention_bytes=0)
    machine.until(lambda: log.start_offset == 100)
    monkeypatch.setattr(machine.broker.replicas, "_checkpoint", lambda: None)  # the kill comes before it
    machine.move("t", "a")
    machine.until(lambda: machine.home("t") == "a")
    machine.restart(kill=True)
    log = machine.partition("t").log
    assert (machine.home("t"), log.start_offset, log.end_offset) == ("a", 100, 100)


def test_retention_goes_on_in_other_directories_when_a_disk_fails(machine: Machine) -> None:
    machine.create("t", 4, segment_bytes="1048576", retention_ms="1", segment_ms="1")
    for index in range(4):
        machine.append("t", 2, index)
    machine.disk_fails("b", EIO)
    machine.until(lambda: machine.offline() == ["b"])
    others = [partition.log for partition in machine.broker.replicas.all()]
    assert len(others) == 2
    machine.until(lambda: all(log.start_offset == 2 for log in others))
    for partition in machine.broker.replicas.all():
        machine.append("t", 2, partition.index)
    machine.until(lambda: all(log.start_offset == 4 for log in others))


def test_retention_goes_on_when_the_age_of_a_file_cannot_be_read(machine: Machine) -> None:
    place(machine, "empty", "b")
    place(machine, "t", "a")
    machine.append("t", 2)
    log = machine.partition("t").log
    machine.disk_fails("b", EIO, "read times")
    log.config = replace(log.config, retention_bytes=0)
    machine.until(lambda: log.start_offset == 2)


@pytest.mark.parametrize("operation", ["make directory", "write", "list"])
def test_a_topic_that_cannot_be_opened_is_not_created(
    machine: Machine, caplog: pytest.LogCaptureFixture, operation: str
) -> None:
    machine.fails = lambda called, path: EMFILE if called == operation else None
    with pytest.raises(Refused, match="cannot be created") as refused:
        machine.create("t", 3)
    assert refused.value.code == KAFKA_STORAGE_ERROR
    assert machine.offline() == []
    assert "t" not in machine.broker.image.topics
    assert "Too many open files" in caplog.text
    machine.mend()
    machine.create("t", 3)
    machine.append("t", 2, 2)
    machine.restart()
    assert machine.partition("t", 2).log.end_offset == 2
    assert not list(machine.path.glob("*/*-stray"))


def test_a_topic_is_not_created_without_a_directory(machine: Machine) -> None:
    for directory in machine.broker.replicas.directories:
        directory.fail(EIO)
    with pytest.raises(Refused, match="cannot be created"):
        machine.create("t")
    assert "t" not in machine.broker.image.topics


def test_a_partition_that_found_no_descriptor_at_the_start_is_opened_later(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    machine.create("t", 2)
    for index in range(2):
        machine.append("t", 5, index)
    path = machine.path / machine.home("t", 1) / "t-1"
    machine.server.stop()
    machine.fails = lambda operation, path: EMFILE if operation == "list" and path.name == "t-1" else None
    caplog.clear()
    machine.start()
    assert machine.partition("t", 0).log.end_offset == 5
    assert machine.broker.replicas.is_offline("t", 1)
    assert machine.offline() == []
    assert caplog.messages == [f"t-1 is offline, and is tried again: {path}: Too many open files"]
    machine.mend()
    machine.until(lambda: not machine.broker.replicas.is_offline("t", 1))
    assert machine.partition("t", 1).log.end_offset == 5
    machine.append("t", 1, 1)


def test_a_flush_without_descriptors_is_done_again(machine: Machine) -> None:
    machine.create("t", flush_messages="1")
    flushes = []

    def fails(operation: str, path: Path) -> OSError | None:
        if operation != "flush" or not path.is_relative_to(machine.path / machine.home("t") / "t-0"):
            return None
        flushes.append(path)
        return EMFILE if len(flushes) < 3 else None

    machine.fails = fails
    machine.append("t")
    machine.until(lambda: machine.partition("t").log.high_watermark == 1)
    assert len(flushes) > 2
    assert machine.offline() == []


def test_a_damaged_partition_keeps_no_other_one_from_starting(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    machine.create("t", 2)
    for index in range(2):
        machine.append("t", 3, index)
    hurt = machine.path / machine.home("t") / "t-0"
    machine.server.stop()
    (hurt / "00000000000000000000.log").unlink()
    caplog.clear()
    machine.start()
    assert machine.broker.replicas.is_offline("t", 0)
    machine.append("t", 1, 1)
    (line,) = caplog.messages
    assert line.startswith(
        f"t-0 is offline: {hurt / '00000000000000000000.log'} is missing, of records that were flushed to disk: "
    )
    machine.delete("t")
    machine.create("t", 2)
    machine.append("t", 1, 0)
    assert caplog.messages == [line]
    assert not list(machine.path.glob("*/*-stray"))


def test_a_coordinator_comes_back_with_its_partition(machine: Machine) -> None:
    machine.create_internal("__consumer_offsets")
    machine.server.stop()
    machine.fails = lambda operation, path: EMFILE if path.name == "__consumer_offsets-7" else None
    machine.start()
    assert machine.broker.groups.leads(6)
    assert not machine.broker.groups.leads(7)
    machine.mend()
    machine.until(lambda: machine.broker.groups.leads(7))
