"""The newest revision of the metadata that this broker has applied, kept in its data directory.

A store that is older at the next start was restored from a backup: a broker that was stopped before might be elected with what
it had then. After a restore with a higher revision (`--bump-revision` of etcd) the newest key is older than it was.
"""

import json
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from ottla.environment import Worker
from ottla.environment.files import Store
from ottla.metadata.metadata import Metadata
from ottla.metadata.store import Snapshot
from ottla.tasks.deferred import on_worker
from ottla.tasks.periodic import Periodic
from ottla.tasks.scheduler import Scheduler, Task

_logger = logging.getLogger("ottla.cluster")
_FILE: Final = "ottla-metadata-revision"
_WRITE_MS: Final = 1000
_REMEDY: Final = (
    "It was restored from a backup. What was changed since then is lost, and acknowledged records are lost where a broker is "
    "elected that was not in sync any more. To go on with it, start all brokers with --accept-older-metadata"
)


class Newest(NamedTuple):
    """A revision, and the key that was written last, with its own revision."""

    revision: int
    key: str
    key_revision: int


def newest_of(metadata: Metadata) -> Newest:
    """Return the revision of the current image, and the key that was written last."""
    return Newest(metadata.image.revision, *metadata.newest)


class AppliedRevision:
    """The file with the newest applied revision, which is written at most once a second, on a background thread: requests do
    not wait for a slow disk.

    newest      returns the newest revision and key
    background  a single thread
    """

    def __init__(
        self, files: Store, directory: Path, newest: Callable[[], Newest], background: Worker, tasks: Scheduler
    ) -> None:
        self._writer = Periodic("writing the applied revision", self._write_if_changed, _WRITE_MS, tasks)
        self._files = files
        self._path = directory / _FILE
        self._newest = newest
        self._background = background
        self._tasks = tasks
        self._written: Newest | None = None
        self._has_failed = False

    def begin(self) -> None:
        """Write the file now, and whenever the revision changes."""
        self._writer.run_in(0)

    def close(self) -> None:
        """Write no longer."""
        self._writer.close()

    def write_last(self) -> None:
        """Let the background thread write the newest revision before it ends, after what it has to do."""
        newest = self._newest()
        if newest != self._written:
            self._background.run(partial(self._replace, newest), lambda _: None, lambda: None)

    def _write_if_changed(self) -> Task[int | None] | None:
        newest = self._newest()
        return (
            None if newest == self._written else self._tasks.start(self._write(newest), "writing the applied revision")
        )

    async def _write(self, newest: Newest) -> int | None:
        cause = await on_worker(self._background, partial(self._replace, newest), self._tasks)
        if cause is None:
            self._written, self._has_failed = newest, False
        elif not self._has_failed:  # an older value finds less, and nothing wrong
            _logger.warning("cannot write %s: %s", self._path, cause.strerror)
            self._has_failed = True
        return None

    def _replace(self, newest: Newest) -> OSError | None:
        """Write the file, flushed: a loss of power must not hide that the store was restored. Return the error of the disk."""
        value = {"version": 0, "revision": newest.revision, "key": newest.key, "key_revision": newest.key_revision}
        try:
            self._files.replace(self._path, json.dumps(value).encode())
        except OSError as cause:
            return cause
        return None


def why_older(files: Store, directory: Path, snapshot: Snapshot) -> str | None:
    """Return the reason in one line why a store is older than what this broker has applied; None if it is not."""
    text = files.read_text(directory / _FILE)
    if text is None:
        return None
    try:
        value: dict[str, Any] = json.loads(text)
        known = Newest(int(value["revision"]), str(value["key"]), int(value["key_revision"]))
    except (ValueError, KeyError, TypeError):
        _logger.warning("%s is damaged", directory / _FILE)
        return None
    if snapshot.revision < known.revision:
        return (
            f"the metadata store is older than what this broker has applied: its revision is {snapshot.revision}, and was "
            f"{known.revision}. {_REMEDY}"
        )
    for entry in snapshot.entries:
        if entry.key == known.key and entry.revision < known.key_revision:
            return (
                f"the metadata store is older than what this broker has applied: {entry.key} is of revision "
                f"{entry.revision}, and was of {known.key_revision}. {_REMEDY}"
            )
    return None
