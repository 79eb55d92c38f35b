"""Backup of a log directory whose broker may be running: copies all files that recovery needs.

The copy looks like a directory after a kill -9. It has no marker of a clean stop, so that the next start checks the end of
each log, truncates a partial batch, and rebuilds indexes and producer snapshots. The following rules ensure that:

    checkpoints   are copied before the logs: offsets only grow, and an older one is always safe
    segments      are copied oldest first; only the last one grows during the copy
    a partition   whose segments were replaced or removed during the copy (compaction, retention) is copied again
    left out      .lock, the marker, temporary files (.tmp, .cleaned, .swap), files being deleted (.deleted, -delete) and
                  copies being made (-future)

Partitions are copied one after the other. A transaction that ends during the backup may be complete in one partition and open
in another: to avoid that, stop the broker, or take a snapshot of the file system.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ottla.environment import private_files

_LEFT_OUT: Final = (".tmp", ".cleaned", ".swap", ".deleted", "-delete", "-future")
_ATTEMPTS: Final = 10


class CannotCopy(Exception):
    """The directory cannot be copied; the message gives the reason."""


def copy_log_directory(source: Path, target: Path, progress: Callable[[str, int], None]) -> int:
    """Copy a log directory to the new directory `target`; return the number of partitions.

    progress  called with the name and size in bytes of each copied partition

    Raises CannotCopy, and OSError.
    """
    private_files.make_directory(target)
    partitions = []
    for path in sorted(source.iterdir()):
        if path.is_dir():
            if (path / "partition.metadata").exists() and not path.name.endswith(_LEFT_OUT):
                partitions.append(path)
        elif path.name == "meta.properties" or path.name.endswith("-checkpoint"):
            _copy(path, target / path.name)
    for path in partitions:
        size = _copy_partition(path, target / path.name)
        if size is not None:
            progress(path.name, size)
    return len(partitions)


def _copy_partition(source: Path, target: Path) -> int | None:
    """Copy a partition, again if its segments have changed meanwhile; return its size, None if it was deleted meanwhile."""
    for _ in range(_ATTEMPTS):
        try:
            names = _names(source)
            _copy_files(source, target, names)
            after = _names(source)
        except FileNotFoundError:
            if not source.exists():
                shutil.rmtree(target, ignore_errors=True)
                return None
            continue
        segments = [name for name in names if name.endswith(".log")]
        if [name for name in after if name.endswith(".log")][: len(segments)] == segments:
            return sum(path.stat().st_size for path in target.iterdir())
    raise CannotCopy(
        f"{source} changed {_ATTEMPTS} times while it was copied: try again when its topic is compacted less"
    )


def _names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if not path.name.endswith(_LEFT_OUT))


def _copy_files(source: Path, target: Path, names: list[str]) -> None:
    shutil.rmtree(target, ignore_errors=True)
    private_files.make_directory(target)
    for name in names:
        _copy(source / name, target / name)


def _copy(source: Path, target: Path) -> None:
    """Copy a file with its times; others cannot read the copy, whatever the mode of the source."""
    private_files.create(target)
    shutil.copyfile(source, target)
    shutil.copystat(source, target)
    private_files.restrict(target)
