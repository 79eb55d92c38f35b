"""`ottla storage migrate`: move the metadata of a stopped broker into etcd, or back."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Final

from ottla.broker.config import BrokerConfig
from ottla.broker.lifecycle import CannotStart
from ottla.cli.cluster_access import CommandFailed
from ottla.cli.etcd import etcd_store
from ottla.environment.disk import DiskStore
from ottla.environment.process import process_environment
from ottla.log.directory import FailedDirectory, LogDirectory, UnusableDirectory
from ottla.metadata.offline.adoption import DATABASE
from ottla.metadata.offline.migration import CannotMigrate, clear, move_to, read_from, values_to_move
from ottla.metadata.store import Change, MetadataStore
from ottla.metadata.store.sqlite import SqliteStore
from ottla.metadata.store.sqlite_file import DamagedStore
from ottla.tasks.deferred import Deferred
from ottla.tasks.queue import CallbackQueue
from ottla.tasks.scheduler import Scheduler

_MOVED: Final = "metadata.db.moved"


def migrate_to(url: str, config: BrokerConfig) -> int:
    """Move metadata.db into etcd; returns the number of keys. Raises CommandFailed."""
    home = Path(config.metadata_log_dir)
    with _hold_locks(config):
        values = _read(home / DATABASE)

        async def move(store: MetadataStore, tasks: CallbackQueue) -> None:
            await move_to(store, tasks, values)

        _with_etcd(url, move)
        for suffix in ("-wal", "-shm"):
            (home / f"{DATABASE}{suffix}").unlink(missing_ok=True)
        (home / DATABASE).rename(home / _MOVED)
        _flush(home)
    return len(values)


def migrate_from(url: str, config: BrokerConfig) -> int:
    """Move the metadata of a cluster with this broker alone from etcd into metadata.db; returns the number of keys.

    Raises CommandFailed.
    """
    home = Path(config.metadata_log_dir)
    if (home / DATABASE).exists():
        raise CommandFailed(f"{home / DATABASE} exists: this broker has metadata of its own")
    with _hold_locks(config) as cluster_id:
        values: dict[str, bytes] = {}

        async def read(store: MetadataStore, tasks: CallbackQueue) -> None:
            values.update(await read_from(store, tasks, config.node_id, cluster_id))
            _write(home / DATABASE, values)
            await clear(store, tasks)

        _with_etcd(url, read)
        (home / _MOVED).unlink(missing_ok=True)
    return len(values)


def _read(path: Path) -> dict[str, bytes]:
    if not path.exists():
        raise CommandFailed(f"{path} does not exist: there is no metadata to move")
    try:
        store = SqliteStore(path)
        try:
            return values_to_move(store.load().entries)
        finally:
            store.close()
    except (DamagedStore, OSError) as cause:
        raise CommandFailed(str(cause)) from None


def _write(path: Path, values: dict[str, bytes]) -> None:
    """Write a new metadata.db, atomically. Raises CannotMigrate."""
    new = path.with_name(f"{DATABASE}.importing")
    new.unlink(missing_ok=True)
    try:
        store = SqliteStore(new)
        outcome = store.change_now(Change(put=values))
        store.close()
        if outcome.error is not None:
            raise CannotMigrate(outcome.error)
        new.rename(path)
        _flush(path.parent)
    except OSError as cause:
        raise CannotMigrate(str(cause)) from None


def _flush(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


@contextlib.contextmanager
def _hold_locks(config: BrokerConfig) -> Iterator[str | None]:
    """Hold the locks of the data directories, and yield the cluster id in them. Raises CommandFailed while a broker runs."""
    with contextlib.ExitStack() as held:
        identities = []
        for name in config.log_dirs:
            if not Path(name).is_dir():
                raise CommandFailed(f"{name} is not a directory")
            try:
                directory = LogDirectory(DiskStore(), Path(name))
            except (FailedDirectory, UnusableDirectory) as cause:
                raise CommandFailed(str(cause)) from None
            held.callback(directory.release)
            identities.append(directory.identity())
        yield next((identity.cluster_id for identity in identities if identity is not None), None)


def _with_etcd(url: str, work: Callable[[MetadataStore, CallbackQueue], Coroutine[Any, None, None]]) -> None:
    """Run a coroutine on a connection to etcd. Raises CommandFailed, UsageError."""
    try:
        open_store = etcd_store(url)
    except CannotStart as cause:
        raise CommandFailed(str(cause)) from None

    async def run() -> None:
        environment = process_environment(asyncio.get_running_loop())
        tasks = Scheduler(environment.clock, environment.timers)
        store = open_store(environment, tasks)
        done: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

        def on_ended(promise: Deferred[None]) -> None:
            done.set_result(promise.error)

        tasks.start(work(store, tasks)).listen(on_ended)
        try:
            error = await done
        finally:
            store.close()
        if error is not None:
            raise error

    try:
        asyncio.run(run())
    except CannotMigrate as cause:
        raise CommandFailed(str(cause)) from None
