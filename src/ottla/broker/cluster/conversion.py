"""Conversion of the data of a single broker into that of the first of several brokers on one machine.

    before                        after
    <log.dirs>/metadata.db        <log.dirs>/metadata.db            marked as shared
    <log.dirs>/meta.properties    <log.dirs>/broker-1/meta.properties
    <log.dirs>/flights-0/         <log.dirs>/broker-1/flights-0/

The metadata is marked first: from then on a single broker refuses the directories, which may lack a part of the data. Each
directory is moved by renames into one with a temporary name, which gets its final name at the end. So a conversion that was
interrupted at any point goes on at the next start.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ottla.environment.files import Store
from ottla.log.directory import read_identity
from ottla.metadata.store.shared_sqlite import share_file
from ottla.metadata.store.sqlite_file import METADATA_FILE

_logger = logging.getLogger("ottla.broker")
_PROPERTIES: Final = "meta.properties"
_LOCK: Final = ".lock"


class CannotConvert(Exception):
    """Directories that are not those of the expected broker; the message names them."""


def convert(store: Store, log_dirs: Sequence[Path], metadata_dir: Path, node_id: int) -> None:
    """Convert the directories of a single broker, which must be locked. No effect on those of several brokers, and on new ones.

    Raises CannotConvert, OSError, and DamagedStore if the metadata cannot be used.
    """
    single = [
        path
        for path in log_dirs
        if store.exists(path / _PROPERTIES) or store.exists(_temporary_directory(path, node_id))
    ]
    if not single:
        return
    for path in single:
        identity = read_identity(store, path)
        if identity is not None and identity.node_id != node_id:
            raise CannotConvert(f"{path} belongs to node {identity.node_id}: give node.id={identity.node_id}")
    if not store.exists(metadata_dir / METADATA_FILE):
        raise CannotConvert(
            f"{metadata_dir} has no {METADATA_FILE}: start it with `ottla serve` without --brokers first"
        )
    share_file(metadata_dir / METADATA_FILE)
    for path in single:
        _move(store, path, node_id)
        _logger.info(
            "%s is %s now: the data of a single broker is that of the first of several", path, path / _name(node_id)
        )


def _name(node_id: int) -> str:
    return f"broker-{node_id}"


def _temporary_directory(path: Path, node_id: int) -> Path:
    """Return the temporary directory: `broker-1` may be a partition of a topic."""
    return path / f".{_name(node_id)}.new"


def _move(store: Store, path: Path, node_id: int) -> None:
    unfinished = _temporary_directory(path, node_id)
    if not store.exists(unfinished):
        store.make_directory(unfinished)
    for name in sorted(store.names(path)):
        if name not in (_LOCK, unfinished.name) and not name.startswith(METADATA_FILE):
            store.rename(path / name, unfinished / name)
    store.flush(unfinished)
    store.rename(unfinished, path / _name(node_id))
    store.flush(path)
