"""A log on its way to another log directory: a copy that catches up and then takes its place (KIP-113).

    t-0                      is written to and read from, as before
    t-0.<32 hex>-future      in the other directory; batch by batch, in steps between the broker's other work

When the copy has everything and is flushed to disk, it gets the name t-0 and the old directory is discarded, in one turn of the
loop. A crash before that leaves a -future directory, which a start discards; one between the two names leaves two equal logs.
Segments are neither removed nor compacted meanwhile, so the list of segments only grows.
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
    """The copy of `log` in `directory`, which must exist and be empty."""

    def __init__(self, store: Store, log: Log, directory: Path) -> None:
        self._store = store
        self._log = log
        self.directory = directory
        self._copies: list[Segment] = []
        self.end_offset = log.start_offset
        self.flushed_offset = 0

    @property
    def size(self) -> int:
        """Bytes of the copy so far."""
        return sum(segment.size for segment in self._copies)

    @property
    def lag(self) -> int:
        """Offsets that the copy lacks."""
        return self._log.end_offset - self.end_offset

    def steps(self) -> Iterator[Flush | None]:
        """Copy, and stop after each step; a flush must be run before the next one. At the end the copy is complete, as long as
        nothing else runs. Raises StorageError when the log itself cannot be read, OSError when the copy cannot be written.
        """
        self._log.is_moving = True
        yield from self._copy()
        copied = self.end_offset
        yield Flush(self._store, [copy.log for copy in self._copies], [self.directory], copied)
        self.flushed_offset = copied
        yield from self._copy()
        self._finish()

    def _copy(self) -> Iterator[None]:
        number = max(0, len(self._copies) - 1)
        while number < len(self._log.segments):
            source = self._log.segments[number]
            if number == len(self._copies):
                copy = Segment(self._store, self.directory, source.base_offset)
                copy.start_empty()
                copy.log.fileno()  # a file even when it is empty: its name is what remembers the end of an emptied log
                self._copies.append(copy)
            copy = self._copies[number]
            while copy.size < source.size:
                self._copy_some(source, copy)
                yield
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
        """Indexes and producers, as a clean stop leaves them."""
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
        """The copy is not wanted any more: the log may remove and compact segments again."""
        self._log.is_moving = False
        for copy in self._copies:
            copy.close()
