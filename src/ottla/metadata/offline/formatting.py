"""Formats data directories for a node of a cluster before a broker starts on them, and reads their identity.

Formatting writes the same files as a broker that starts on new directories: metadata.db with the cluster's id and feature
levels, then a meta.properties in each log directory. Because of this order a second run, or the start of a broker, completes
an interrupted run. Everything is read, checked and locked before the first write.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from ottla.environment import Random, private_files
from ottla.environment.disk import DiskStore
from ottla.log.directory import (
    FailedDirectory,
    Identity,
    LogDirectory,
    UnusableDirectory,
    read_identity,
)
from ottla.metadata.offline.adoption import DATABASE
from ottla.metadata.store.sqlite import SqliteStore
from ottla.metadata.store.sqlite_file import DamagedStore
from ottla.security.scram import ScramCredential


class CannotFormat(Exception):
    """Directories that cannot be formatted: the reason, in one line."""


class Formatted(NamedTuple):
    """Outcome of formatting; each list is sorted by name.

    new         directories that were formatted
    before      directories that were formatted for the node before
    unreadable  directories with a failed disk, which were left out
    """

    new: Sequence[Path]
    before: Sequence[Path]
    unreadable: Sequence[Path]


class DirectoryReport(NamedTuple):
    """Identity of directories, and their problems, one sentence each."""

    directories: Sequence[Path]
    identity: Identity | None
    problems: Sequence[str]


def look_at(home: Path, log_dirs: Sequence[Path]) -> DirectoryReport:
    """Return the identity of directories, and the problems that prevent a broker's start, without writing or locking.

    home  directory of metadata.db: metadata.log.dir, or the first of the log directories
    """
    store = DiskStore()
    directories: list[Path] = []
    problems = []
    first: Identity | None = None
    for path in sorted({home, *log_dirs}):
        if not path.is_dir():
            problems.append(f"{path} is not a directory" if path.exists() else f"{path} does not exist")
            continue
        directories.append(path)
        try:
            identity = read_identity(store, path)
        except (UnusableDirectory, OSError) as cause:
            problems.append(str(cause))
            continue
        if identity is None:
            if path in log_dirs or not (home / DATABASE).exists():
                problems.append(f"{path} is not formatted.")
            continue
        if path == home and not (home / DATABASE).exists():
            problems.append(_lacks_database(home))
        first = first or identity
        if identity.cluster_id != first.cluster_id:
            problems.append("Mismatched cluster IDs between storage directories.")
        elif identity.node_id != first.node_id:
            problems.append("Mismatched node IDs between storage directories.")
    return DirectoryReport(directories, first, problems)


def format_directories(
    home: Path,
    log_dirs: Sequence[Path],
    owner: tuple[int, str],
    features: Mapping[str, int],
    random: Random,
    credentials: Mapping[tuple[str, int], ScramCredential] = MappingProxyType({}),
    *,
    ignore_formatted: bool = False,
) -> Formatted:
    """Format directories for a node of a cluster.

    home              directory of metadata.db: metadata.log.dir, or the first of the log directories
    owner             the node's id and the cluster's
    features          the levels that are stored, if metadata.db is new
    credentials       SCRAM credentials by user and mechanism, which are stored if metadata.db is new
    ignore_formatted  skip directories that the node has already, instead of raising

    Raises CannotFormat.
    """
    before, new, unreadable = _classify(home, log_dirs, owner)
    if before and not ignore_formatted:
        raise CannotFormat(
            f"Log directory {before[0]} is already formatted. Use --ignore-formatted to ignore this directory and format "
            "the others."
        )
    if home in before and not (home / DATABASE).exists():
        raise CannotFormat(_lacks_database(home))
    if new:
        with ExitStack() as held:
            directories = _opened([path for path in new if path in log_dirs], held)
            _write_metadata(home, owner[1], features, credentials)
            for directory in directories:
                try:
                    directory.claim(Identity(*owner, random.bytes16()))
                except OSError as cause:
                    raise CannotFormat(f"cannot write {directory.path}/meta.properties: {cause.strerror}") from None
    return Formatted(new, before, unreadable)


def _classify(
    home: Path, log_dirs: Sequence[Path], owner: tuple[int, str]
) -> tuple[list[Path], list[Path], list[Path]]:
    """Divide directories into formatted, unformatted and unreadable ones. Raises CannotFormat."""
    store = DiskStore()
    before: list[Path] = []
    new: list[Path] = []
    unreadable: list[Path] = []
    for path in sorted({home, *log_dirs}):
        try:
            identity = read_identity(store, path)
        except UnusableDirectory as cause:
            raise CannotFormat(str(cause)) from None
        except OSError as cause:
            if path == home:
                raise CannotFormat(f"cannot use {home} as a data directory: {cause.strerror}") from None
            unreadable.append(path)
            continue
        if identity is not None:
            _check_owner(path, identity, owner)
        is_formatted = identity is not None or (path not in log_dirs and (path / DATABASE).exists())
        (before if is_formatted else new).append(path)
    return before, new, unreadable


def _check_owner(path: Path, identity: Identity, owner: tuple[int, str]) -> None:
    node_id, cluster_id = owner
    if identity.cluster_id != cluster_id:
        raise CannotFormat(
            f"Invalid cluster.id in: {path}/meta.properties. Expected {cluster_id}, but read {identity.cluster_id}"
        )
    if identity.node_id != node_id:
        raise CannotFormat(
            f"Stored node id {identity.node_id} doesn't match previous node id {node_id} in {path}/meta.properties. If you "
            "moved your data, make sure your configured node id matches. If you intend to create a new node, you should remove "
            "all data in your data directories."
        )


def _opened(paths: Sequence[Path], held: ExitStack) -> list[LogDirectory]:
    """Create, open and lock directories that have no identity. Raises CannotFormat."""
    opened = []
    for path in paths:
        try:
            directory = LogDirectory(DiskStore(), path)
            held.callback(directory.release)
            if directory.identity() is not None:
                raise CannotFormat(f"{path} was formatted by another process at the same time")
        except (FailedDirectory, UnusableDirectory) as cause:
            raise CannotFormat(str(cause)) from None
        opened.append(directory)
    return opened


def _write_metadata(
    home: Path,
    cluster_id: str,
    features: Mapping[str, int],
    credentials: Mapping[tuple[str, int], ScramCredential],
) -> None:
    """Write the cluster's id, its features and credentials, unless metadata.db has them. Raises CannotFormat."""
    path = home / DATABASE
    try:
        private_files.make_directory(home)
        store = SqliteStore(path)
        try:
            store.initialize(cluster_id, features, credentials)
            stored_id = store.cluster_id
        finally:
            store.close()
    except (OSError, sqlite3.Error, DamagedStore) as cause:
        raise CannotFormat(f"cannot write {path}: {cause}") from None
    if stored_id != cluster_id:
        raise CannotFormat(f"Invalid cluster.id in: {path}. Expected {cluster_id}, but read {stored_id}")


def _lacks_database(home: Path) -> str:
    return (
        f"{home} has a meta.properties but no {DATABASE}: if it is Apache Kafka's, adopt it with "
        f"`ottla storage import {home}`"
    )
