"""Relocation of a log to another log directory: a copy catches up with the log and then replaces it (KIP-113).

    t-0                      original, which is written and read as before
    t-0.<32 hex>-future      copy in the other directory, made batch by batch in steps

When the copy is complete and flushed to disk, it is renamed to t-0 and the old directory is discarded, in one turn of the event
loop. A crash before that leaves a -future directory, which the next start discards; one between the two renames leaves two
equal logs. Segments are neither removed nor compacted during the copy, so the list of segments only grows; after a truncation
of the log the copy begins again.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ottla.environment.files import Store
from ottla.log.flush import Flush
from ottla.log.log import Log, StorageError
from ottla.log.segment import Segment
from ottla.records.batch import scan

_STEP_BYTES: Final = 1 << 20


class Relocation:
    """Copy of `log` in `directory`, which must exist and be empty."""

    def __init__(self, store: Store, log: Log, directory: Path) -> None:
        self._store = store
        self._log = log
        self.directory = directory
        self._copies: list[Segment] = []
        self.end_offset = log.start_offset
        self.flushed_offset = 0
        self._truncations = log.truncations

    @property
    def size(self) -> int:
        """Return the bytes copied so far."""
        return sum(segment.size for segment in self._copies)

    @property
    def lag(self) -> int:
        """Return the number of offsets that are not copied yet."""
        return self._log.end_offset - self.end_offset

    def steps(self) -> Iterator[Flush | None]:
        """Copy the log; yields after each step. A yielded flush must be run before the next step. At the end the copy is
        complete until the next append. Raises StorageError if the log cannot be read, OSError if the copy cannot be written.
        """
        self._log.is_moving = True
        yield from self._copy()
        copied = self.end_offset
        yield Flush(self._store, [copy.log for copy in self._copies], [self.directory], copied)
        if self._truncations == self._log.truncations:
            self.flushed_offset = copied
        yield from self._copy()
        self._finish()

    def _copy(self) -> Iterator[None]:
        while True:
            if self._truncations != self._log.truncations:
                self._begin_again()
            yield from self._copy_segments()
            if self._truncations == self._log.truncations:
                return

    def _begin_again(self) -> None:
        """Drop what was copied, after a truncation of the log: the copy may have batches that the log lacks."""
        self._truncations = self._log.truncations
        for copy in self._copies:
            copy.remove()
        self._copies = []
        self.end_offset, self.flushed_offset = self._log.start_offset, 0

    def _copy_segments(self) -> Iterator[None]:
        number = max(0, len(self._copies) - 1)
        while number < len(self._log.segments):
            source = self._log.segments[number]
            if number == len(self._copies):
                copy = Segment(self._store, self.directory, source.base_offset)
                copy.start_empty()
                copy.log.fileno()  # create the file even if it is empty: its name stores the end offset of an emptied log
                self._copies.append(copy)
            copy = self._copies[number]
            while copy.size < source.size:
                self._copy_some(source, copy)
                yield
                if self._truncations != self._log.truncations:
                    return
            number += 1

    def _copy_some(self, source: Segment, copy: Segment) -> None:
        length = _STEP_BYTES
        while True:
            try:
                data = source.log.read(copy.size, length)
            except OSError as cause:
                raise self._log.read_failed(cause) from cause
            scanned = scan(data)
            if scanned.corrupt is not None:
                raise StorageError(f"{source.path} at position {copy.size}: {scanned.corrupt}")
            if scanned.end:
                break
            if len(data) < length:
                raise StorageError(f"{source.path} at position {copy.size}: a batch is cut off")
            length *= 2
        position = copy.size
        copy.log.append((data[: scanned.end],))
        interval = self._log.config.index_interval_bytes
        for header in scanned.batches:
            size = header.end - header.start
            copy.noted(
                header.base_offset, header.last_offset, header.max_timestamp, position + header.start, size, interval
            )
        self.end_offset = copy.next_offset

    def _finish(self) -> None:
        """Write indexes and producer snapshot, as a clean stop does."""
        for source, copy in zip(self._log.segments, self._copies, strict=True):
            try:
                aborted_transactions = list(source.transaction_index.entries())
            except OSError as cause:
                raise self._log.read_failed(cause) from cause
            for aborted in aborted_transactions:
                copy.transaction_index.append(aborted)
            copy.seal()
            copy.close()
        name = f"{self._log.end_offset:020d}.snapshot"
        self._store.write(self.directory / name, self._log.producers.snapshot())
        self._log.epochs.copy_to(self.directory / "leader-epoch-checkpoint")

    def abandon(self) -> None:
        """Abandon the copy, so that the log can remove and compact segments again."""
        self._log.is_moving = False
        for copy in self._copies:
            copy.close()
