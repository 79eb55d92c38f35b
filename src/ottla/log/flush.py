"""What a log wants on the medium: a list of files, worked out on the loop, put there by any thread.

It holds nothing that the log changes: a file that is renamed, closed or removed in the meantime is no concern of it.
"""

from collections.abc import Sequence
from pathlib import Path

from ottla.log.store import LogFile, Store


class Flush:
    """Files of one log that are to be put on the medium.

    end_offset  (exclusive) what is on the medium once `run` has returned
    """

    __slots__ = ("_files", "_paths", "_store", "end_offset")

    def __init__(self, store: Store, files: Sequence[LogFile], paths: Sequence[Path], end_offset: int) -> None:
        self._store = store
        self._files = files
        self._paths = paths
        self.end_offset = end_offset

    def run(self) -> None:
        """Return when everything is on the medium. May be called by any thread. Raises OSError."""
        for file in self._files:
            file.flush()
        for path in self._paths:
            self._store.flush(path)
