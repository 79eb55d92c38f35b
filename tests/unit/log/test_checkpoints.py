"""Kafka's small text files."""

from pathlib import Path

import pytest

from ottla.environment.disk import DiskStore
from ottla.log.checkpoints import DamagedCheckpoint, LeaderEpochs, OffsetCheckpoint


def test_offset_checkpoints_have_kafkas_format(tmp_path: Path) -> None:
    checkpoint = OffsetCheckpoint(DiskStore(), tmp_path / "c")
    assert checkpoint.read() == {}
    offsets = {("flights", 0): 1234, ("flights", 1): 987}
    checkpoint.write(offsets)
    assert (tmp_path / "c").read_text() == "0\n2\nflights 0 1234\nflights 1 987\n"
    assert checkpoint.read() == offsets


@pytest.mark.parametrize("text", ["1\n0\n", "0\n", "0\n2\nt 0 1\n", "0\nx\n", "0\n1\nt 0\n", "0\n1\nt 0 x\n"])
def test_a_damaged_checkpoint_raises(tmp_path: Path, text: str) -> None:
    (tmp_path / "c").write_text(text)
    with pytest.raises(DamagedCheckpoint, match=str(tmp_path / "c")):
        OffsetCheckpoint(DiskStore(), tmp_path / "c").read()
    with pytest.raises(DamagedCheckpoint, match=str(tmp_path / "c")):
        LeaderEpochs(DiskStore(), tmp_path / "c")


def test_leader_epochs(tmp_path: Path) -> None:
    epochs = LeaderEpochs(DiskStore(), tmp_path / "e")
    assert (epochs.latest, epochs.epoch_at(0)) == (-1, -1)
    for epoch, start in ((2, 10), (5, 20), (4, 25)):
        epochs.assign(epoch, start)
    assert (tmp_path / "e").read_text() == "0\n2\n2 10\n5 20\n"
    reopened = LeaderEpochs(DiskStore(), tmp_path / "e")
    assert (reopened.latest, [reopened.epoch_at(offset) for offset in (9, 10, 19, 20)]) == (5, [-1, 2, 2, 5])
    reopened.truncate(20)
    assert LeaderEpochs(DiskStore(), tmp_path / "e").latest == 2


def test_where_an_epoch_ends(tmp_path: Path) -> None:
    epochs = LeaderEpochs(DiskStore(), tmp_path / "leader-epoch-checkpoint")
    assert epochs.end_of(0, 9) == (-1, -1)
    for epoch, offset in ((1, 0), (2, 10), (5, 20)):
        epochs.assign(epoch, offset)
    asked = {epoch: epochs.end_of(epoch, 30) for epoch in (-1, 0, 1, 2, 3, 4, 5, 6)}
    assert asked == {
        -1: (-1, -1),
        0: (0, 0),
        1: (1, 10),
        2: (2, 20),
        3: (2, 20),
        4: (2, 20),
        5: (5, 30),
        6: (-1, -1),
    }


def test_epochs_before_the_log_start_are_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    epochs = LeaderEpochs(DiskStore(), path)
    for epoch, offset in ((1, 0), (2, 10), (5, 20)):
        epochs.assign(epoch, offset)
    epochs.drop_before(15)
    assert path.read_text(encoding="utf-8") == "0\n2\n2 15\n5 20\n"
    assert [epochs.epoch_at(offset) for offset in (14, 15, 20)] == [-1, 2, 5]
    epochs.drop_before(15)
    epochs.drop_before(40)
    assert path.read_text(encoding="utf-8") == "0\n1\n5 40\n"
