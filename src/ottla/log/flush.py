"""Pending flush of one log: files collected on the event loop, and flushed to disk by any thread.

It shares no mutable state with the log: a file may be renamed, closed or removed in the meantime.
"""

from collections.abc import Sequence
from pathlib import Path

from ottla.environment.files import LogFile, Store


class Flush:
    """Files of one log to flush to disk.

    end_offset   offset (exclusive) up to which the log is on disk once `run` has returned
    truncations  number of truncations of the log before this flush: a later one makes it void
    """

    __slots__ = ("_files", "_paths", "_store", "end_offset", "truncations")

    def __init__(
        self, store: Store, files: Sequence[LogFile], paths: Sequence[Path], end_offset: int, truncations: int = 0
    ) -> None:
        self._store = store
        self._files = files
        self._paths = paths
        self.end_offset = end_offset
        self.truncations = truncations

    def run(self) -> None:
        """Flush the files to disk. May be called by any thread. Raises OSError."""
        for file in self._files:
            file.flush()
        for path in self._paths:
            self._store.flush(path)
