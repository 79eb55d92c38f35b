"""Kafka's small text files: offsets per partition of a log directory, leader epochs of a partition.

0                  version
2                  entries
flights 0 1234     one a line
flights 1 987
"""

from itertools import pairwise
from pathlib import Path

from ottla.environment.files import Store


class DamagedCheckpoint(Exception):
    """Malformed checkpoint file."""


class OffsetCheckpoint:
    """Checkpoint file of an offset per (topic, partition): recovery points, high watermarks, log start offsets."""

    def __init__(self, store: Store, path: Path) -> None:
        self._store = store
        self._path = path

    def read(self) -> dict[tuple[str, int], int]:
        """Return the offsets in the file by topic and partition; empty if it is missing. Raises DamagedCheckpoint."""
        offsets = {}
        for line in _lines(self._store, self._path):
            topic, partition, offset = _entry(self._path, line, 3)
            offsets[topic, int(partition)] = int(offset)
        return offsets

    @property
    def exists(self) -> bool:
        """True if the file exists."""
        return self._store.read_text(self._path) is not None

    def write(self, offsets: dict[tuple[str, int], int]) -> None:
        """Replace the file by these offsets."""
        lines = [f"{topic} {index} {offset}" for (topic, index), offset in offsets.items()]
        self._store.replace(self._path, _file(lines))


class LeaderEpochs:
    """Leader epochs of one partition, each with its start offset, newest last (KIP-101).

    written  newest epoch in the file, -1 for none: the epoch of a leader begins in memory, and is written with its first batch
    """

    def __init__(self, store: Store, path: Path, *, is_new: bool = False) -> None:
        self._store = store
        self._path = path
        self._entries: list[tuple[int, int]] = []
        for line in () if is_new else _lines(store, path):
            epoch, offset = _entry(path, line, 2)
            self._entries.append((int(epoch), int(offset)))
        # A power failure may cut off the last digits: the file is flushed after it is renamed.
        if any(before >= after or start > end for (before, start), (after, end) in pairwise(self._entries)):
            raise DamagedCheckpoint(f"{path}: epochs or offsets do not ascend")
        self.written = self.latest

    @property
    def latest(self) -> int:
        """Return the newest epoch, -1 for none."""
        return self._entries[-1][0] if self._entries else -1

    def start_of_latest(self, end_offset: int) -> int:
        """Return the start offset (inclusive) of the newest epoch; the log end, `end_offset`, without any epoch."""
        return self._entries[-1][1] if self._entries else end_offset

    def begin(self, epoch: int, start_offset: int) -> None:
        """Begin the epoch of a leader in memory at `start_offset`, the log end; no effect if it has begun already.

        The file is written before the first batch of the epoch (`assign`). Until then the epoch may be lost: the next leader
        begins its epoch at the same offset, and replaces all epochs that began there.
        """
        if epoch > self.latest:
            self._entries = [entry for entry in self._entries if entry[1] < start_offset]
            self._entries.append((epoch, start_offset))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Write the start offset (inclusive) of `epoch` to the file, before its first batch is appended. Raises OSError."""
        if epoch <= self.written:
            return
        entries = self._entries
        if epoch > self.latest:
            # Epochs that began there have no batch: their leader appended nothing, or its batches were truncated.
            entries = [*(entry for entry in entries if entry[1] < start_offset), (epoch, start_offset)]
        self._store.write(self._path, _content(entries))
        self._entries, self.written = entries, epoch

    def truncate(self, end_offset: int) -> None:
        """Remove epochs that began at `end_offset` or later."""
        kept = [(epoch, offset) for epoch, offset in self._entries if offset < end_offset]
        if kept != self._entries:
            self._entries = kept
            self._flush()

    def drop_before(self, start_offset: int) -> None:
        """Adapt to a new log start offset: remove older epochs; the epoch of that offset begins there."""
        older = [epoch for epoch, offset in self._entries if offset <= start_offset]
        kept = [(epoch, offset) for epoch, offset in self._entries if offset > start_offset]
        if older:
            kept.insert(0, (older[-1], start_offset))
        if kept != self._entries:
            self._entries = kept
            self._flush()

    def end_of(self, epoch: int, end_offset: int) -> tuple[int, int]:
        """Return the newest epoch up to `epoch` and its end offset (exclusive); (-1, -1) if unknown.

        end_offset  log end offset. Source: KIP-101, and KIP-279 for epochs in between.
        """
        if epoch == -1 or epoch > self.latest:
            return -1, -1
        if epoch == self.latest:
            return epoch, end_offset
        for number, (begun, offset) in enumerate(self._entries):
            if begun > epoch:
                return (self._entries[number - 1][0], offset) if number else (epoch, offset)
        return -1, -1

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch of an offset, -1 if it is before the oldest known epoch."""
        latest = -1
        for epoch, start in self._entries:
            if start > offset:
                break
            latest = epoch
        return latest

    def copy_to(self, path: Path) -> None:
        """Write a copy of the file to `path`."""
        self._store.write(path, _content(self._entries))

    def moved(self, path: Path) -> None:
        """Record a new path of the file, after a rename of its directory."""
        self._path = path

    def rewrite(self) -> None:
        """Write the file even if it has no entries, and flush it to disk: it replaces one with other entries."""
        self._store.replace(self._path, _content(self._entries))
        self.written = self.latest

    def _flush(self) -> None:
        """Write the file without flushing it: it is flushed with the log, and recovery can restore epochs from batches."""
        self._store.write(self._path, _content(self._entries))
        self.written = self.latest


def _content(entries: list[tuple[int, int]]) -> bytes:
    return _file([f"{epoch} {offset}" for epoch, offset in entries])


def _lines(store: Store, path: Path) -> list[str]:
    text = store.read_text(path)
    if text is None:
        return []
    if not text:
        raise DamagedCheckpoint(f"{path}: empty")
    version, *rest = text.splitlines()
    if (
        version != "0"
        or not text.endswith("\n")
        or not rest
        or not rest[0].isdecimal()
        or int(rest[0]) != len(rest) - 1
    ):
        raise DamagedCheckpoint(f"{path}: not a checkpoint of version 0 with as many entries as it says")
    return rest[1:]


def _entry(path: Path, line: str, count: int) -> list[str]:
    """Return the words of a line, the last two of which are numbers. Raises DamagedCheckpoint."""
    words = line.split()
    if len(words) != count or not all(word.isascii() and word.isdecimal() for word in words[-2:]):
        raise DamagedCheckpoint(f"{path}: not an entry: {line!r}")
    return words


def _file(entries: list[str]) -> bytes:
    return "\n".join(["0", str(len(entries)), *entries, ""]).encode()
