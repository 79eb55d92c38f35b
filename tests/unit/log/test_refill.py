"""Truncation of a replica at damaged records that it had flushed, when its leader still has them."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.environment.disk import DiskStore
from ottla.log.config import LogConfig
from ottla.log.directory import LogDirectory
from ottla.log.log import Log, StorageError
from tests.unit.log.test_replicated import append, content, open_log, replicate, state

COUNT = 20
SETTINGS: dict[str, Any] = {"segment_bytes": 400, "index_interval_bytes": 120}


def write_log(directory: Path, **config: Any) -> Log:
    log = open_log(directory, **{**SETTINGS, **config})
    for number in range(COUNT):
        append(log, epoch=number // 5)
    log.high_watermark = log.end_offset
    return log


def reopen(directory: Path, *, clean: bool = False, may_refill: bool = True, **config: Any) -> Log:
    return Log(
        DiskStore(),
        directory,
        LogConfig(**{**SETTINGS, **config}),
        recovery_point=COUNT,
        high_watermark=COUNT,
        clean=clean,
        may_refill=may_refill,
    )


def nth(directory: Path, number: int, suffix: str = ".log") -> Path:
    return sorted(directory.glob(f"*{suffix}"))[number]


def break_header(directory: Path) -> None:
    data = bytearray(nth(directory, -1).read_bytes())
    data[16] = 77
    nth(directory, -1).write_bytes(data)


def break_middle(directory: Path) -> None:
    """A segment whose index is lost as well, so that it is looked at."""
    data = bytearray(nth(directory, 4).read_bytes())
    data[16 + len(data) // 2] ^= 255
    data[16] = 77
    nth(directory, 4).write_bytes(data)
    nth(directory, 4, ".index").write_bytes(b"123")


def lose_middle(directory: Path) -> None:
    nth(directory, 3).unlink()


def lose_last(directory: Path) -> None:
    nth(directory, -1).unlink()


def lose_first(directory: Path) -> None:
    nth(directory, 0).unlink()


def lose_all(directory: Path) -> None:
    for path in directory.iterdir():
        path.unlink()


DAMAGE: list[tuple[Callable[[Path], None], int]] = [
    (break_header, 18),
    (break_middle, 8),
    (lose_middle, 6),
    (lose_last, 18),
    (lose_first, 0),
    (lose_all, 0),
]


@pytest.mark.parametrize(("damage", "end"), DAMAGE)
@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("compacted", [False, True])
def test_damage_is_cut_and_fetched_again(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    damage: Callable[[Path], None],
    end: int,
    clean: bool,
    compacted: bool,
) -> None:
    leader = write_log(tmp_path / "a-0")
    directory = tmp_path / "b-0"
    write_log(directory).close()
    damage(directory)
    policy = ("compact",) if compacted else ("delete",)
    with pytest.raises(StorageError, match="b-0"):
        reopen(directory, clean=clean, may_refill=False, cleanup_policy=policy)
    assert not [record for record in caplog.records if "fetched again" in record.message]
    log = reopen(directory, clean=clean, cleanup_policy=policy)
    warnings = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    cuts = [text for text in warnings if "fetched again from the leader" in text]
    assert len(cuts) == 1
    assert f"cut at offset {end}, and what it had up to {COUNT}" in cuts[0]
    assert "backup" not in cuts[0]
    assert (log.was_cut, log.start_offset, log.end_offset) == (True, 0, end)
    assert max(log.recovery_point, log.high_watermark) <= end
    assert content(log) == content(leader)[: len(content(log))]
    replicate(leader, log)
    log.high_watermark = COUNT
    assert state(log) == state(leader)
    log.close()
    again = reopen(directory, clean=True, may_refill=False, cleanup_policy=policy)
    assert state(again) == state(leader)
    assert not again.was_cut
    again.close()
    leader.close()


@pytest.mark.parametrize("compacted", [False, True])
def test_a_hole_between_unflushed_segments_is_cut(tmp_path: Path, compacted: bool) -> None:
    """A power failure may take the end of a segment, and not the next one."""
    directory = tmp_path / "b-0"
    log = write_log(directory)
    segment = log.segments[3]
    start, end = segment.base_offset, segment.next_offset
    size = list(segment.walk(0))[-1].start
    log.close(clean=False)
    path = nth(directory, 3)
    path.write_bytes(path.read_bytes()[:size])
    policy = ("compact",) if compacted else ("delete",)
    config = LogConfig(**SETTINGS, cleanup_policy=policy)
    again = Log(
        DiskStore(), directory, config, recovery_point=start, high_watermark=start, clean=False, may_refill=True
    )
    assert start < again.end_offset < end
    again.close()


def test_an_intact_log_is_not_cut(tmp_path: Path) -> None:
    write_log(tmp_path / "b-0").close(clean=False)
    log = reopen(tmp_path / "b-0")
    assert (log.was_cut, log.end_offset) == (False, COUNT)
    log.close()


def test_epochs_above_the_recovery_point_are_those_of_the_batches(tmp_path: Path) -> None:
    """The file may be newer than the batches after a power failure: it must not name them after an epoch of others."""
    log = open_log(tmp_path / "b-0")
    append(log, 10, epoch=1)
    append(log, 10, epoch=2)
    log.close(clean=False)
    (tmp_path / "b-0" / "leader-epoch-checkpoint").write_text("0\n2\n1 0\n3 10\n")
    again = open_log(tmp_path / "b-0", recovery_point=10)
    assert again.epochs._entries == [(1, 0), (2, 10)]
    again.close()


# Damage that is noticed while the broker runs.


@pytest.mark.parametrize("number", [0, 3, -1])
@pytest.mark.parametrize("at", [16, 100, 150 + 16, 150 + 100])
def test_a_follower_cuts_damage_that_it_reads(tmp_path: Path, number: int, at: int) -> None:
    leader, log = write_log(tmp_path / "a-0"), write_log(tmp_path / "b-0")
    path = nth(log.directory, number)
    data = bytearray(path.read_bytes())
    size = len(data) // 2
    at = at if at < 150 else at - 150 + size
    data[at] ^= 85
    path.write_bytes(data)
    base = int(path.stem)
    end = base + at // size
    assert log.cut_damage(base + 1) == log.end_offset == end
    assert content(log) == content(leader)[: len(content(log))]
    replicate(leader, log)
    log.high_watermark = COUNT
    assert state(log) == state(leader)
    log.close()
    leader.close()


def test_an_intact_segment_is_not_cut(tmp_path: Path) -> None:
    log = write_log(tmp_path / "b-0")
    assert [log.cut_damage(offset) for offset in range(COUNT)] == [COUNT] * COUNT
    log.close()


def test_a_segment_with_bytes_after_its_last_batch_is_cut_there(tmp_path: Path) -> None:
    leader, log = write_log(tmp_path / "a-0"), write_log(tmp_path / "b-0")
    segment = log.segments[3]
    segment.log.append((b"x" * 100,))
    assert log.cut_damage(segment.base_offset) == segment.next_offset
    assert log.segments[-1] is segment
    replicate(leader, log)
    assert content(log) == content(leader)
    log.close()
    leader.close()


# The high watermark at a start.


def write_checkpoint(directory: Path, name: str, offset: int) -> None:
    (directory / name).write_text(f"0\n1\nt 0 {offset}\n")


@pytest.mark.parametrize(("known", "start"), [(None, 0), (3, 3), (5, 5), (9, 5)])
def test_a_log_of_a_cluster_begins_with_its_checkpointed_high_watermark(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, known: int | None, start: int
) -> None:
    home = LogDirectory(DiskStore(), tmp_path)
    log = home.open_partition("t", 0, b"1" * 16, LogConfig(), in_cluster=True)
    assert log.high_watermark == 0
    append(log, 2)
    append(log, 1)
    append(log, 2)
    log.flush()
    log.high_watermark = 3
    home.close()
    assert (tmp_path / "replication-offset-checkpoint").read_text() == "0\n1\nt 0 3\n"
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 5\n"
    (tmp_path / "replication-offset-checkpoint").unlink()
    if known is not None:
        write_checkpoint(tmp_path, "replication-offset-checkpoint", known)
    home = LogDirectory(DiskStore(), tmp_path)
    with caplog.at_level(logging.INFO):
        log = home.open_partition("t", 0, b"1" * 16, LogConfig(), in_cluster=True)
    assert (log.high_watermark, log.end_offset, log.recovery_point) == (start, 5, 5)
    assert "checked" not in caplog.text
    warnings = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert [text for text in warnings if "ends at offset 5" in text] == warnings
    assert len(warnings) == (1 if known == 9 else 0)
    home.release()


def test_the_high_watermark_is_not_below_the_log_start(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=400)
    log.restart_at(40)
    log.close()
    again = Log(DiskStore(), tmp_path / "t-0", LogConfig(), recovery_point=40, high_watermark=0, clean=True)
    assert (again.start_offset, again.high_watermark, again.end_offset) == (40, 40, 40)
    again.close()


def test_a_cut_log_asks_for_checkpoints_at_the_start_so_that_it_is_whole_after_the_next_crash(tmp_path: Path) -> None:
    home = LogDirectory(DiskStore(), tmp_path)
    append(home.open_partition("t", 0, b"1" * 16, LogConfig(), in_cluster=True), 5)
    home.release()
    write_checkpoint(tmp_path, "recovery-point-offset-checkpoint", 9)
    write_checkpoint(tmp_path, "replication-offset-checkpoint", 3)
    home = LogDirectory(DiskStore(), tmp_path)
    log = home.open_partition("t", 0, b"1" * 16, LogConfig(), in_cluster=True, may_refill=True)
    assert (log.was_cut, log.end_offset, home.ends_below_checkpoint) == (True, 5, True)
    home.checkpoint()  # what a broker does then
    home.release()
    home = LogDirectory(DiskStore(), tmp_path)
    log = home.open_partition("t", 0, b"1" * 16, LogConfig(), in_cluster=True, may_refill=False)
    assert (log.was_cut, log.end_offset, home.ends_below_checkpoint) == (False, 5, False)
    home.release()
