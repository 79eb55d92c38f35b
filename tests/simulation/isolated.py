"""A metadata store for each broker: every broker is a cluster of its own.

This file is what a store shared by all brokers replaces. `BrokerServer` has no argument for its store yet, so its `Storage` is
replaced by one that looks for a simulated disk; brokers with another disk keep their SQLite file.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import ottla.broker.lifecycle
from ottla.broker.config import BrokerConfig
from ottla.broker.lifecycle import BrokerServer
from ottla.broker.storage import Storage
from ottla.environment import Environment, Random, Worker
from ottla.environment.files import Store
from ottla.metadata import keys
from ottla.metadata.store import ChangeOutcome, Entry
from ottla.metadata.store.sqlite import SqliteStore
from ottla.protocol.answer import Answer, Pending

from .disks import BrokerFiles, HostDisk


class IsolatedStore:
    """Metadata store on a simulated disk, which changes take effect on in the background."""

    def __init__(self, disk: HostDisk, worker: Worker | None) -> None:
        self._disk = disk
        self._worker = worker

    @property
    def cluster_id(self) -> str | None:
        """The cluster's id; None for a store that was not initialized."""
        value = self._disk.metadata.get(keys.CLUSTER_ID)
        return None if value is None else value[0].decode()

    def initialize(self, cluster_id: str, *, min_insync_replicas: int = 1) -> None:
        """Write the first keys of a store."""
        put = {
            keys.CLUSTER_ID: cluster_id.encode(),
            keys.BROKER_DEFAULTS: keys.compact({keys.MIN_ISR: str(min_insync_replicas)}),
        }
        self._change(None, put, ())

    def load(self) -> tuple[Sequence[Entry], int]:
        entries = [Entry(key, value, revision) for key, (value, revision) in sorted(self._disk.metadata.items())]
        return entries, self._disk.revision

    def change(
        self,
        *,
        expect: Mapping[str, int] | None = None,
        put: Mapping[str, bytes] | None = None,
        delete: Sequence[str] = (),
    ) -> Answer[ChangeOutcome]:
        if self._worker is None:
            return self._change(expect, put, delete)
        answer = Pending[ChangeOutcome]()
        self._worker.run(lambda: self._change(expect, put, delete), answer.complete, answer.abandon)
        return answer

    def _change(
        self, expect: Mapping[str, int] | None, put: Mapping[str, bytes] | None, delete: Sequence[str]
    ) -> ChangeOutcome:
        disk = self._disk
        conflicts: dict[str, Entry | None] = {}
        for key, revision in (expect or {}).items():
            entry = disk.metadata.get(key)
            if (entry[1] if entry else 0) != revision:
                conflicts[key] = Entry(key, *entry) if entry else None
        if conflicts:
            return ChangeOutcome(0, conflicts)
        error = disk.failure("write", disk_path())
        if error is not None:
            return ChangeOutcome(0, error=f"cannot write the metadata: {error.strerror}")
        disk.revision += 1
        for key, value in (put or {}).items():
            disk.metadata[key] = (value, disk.revision)
        for key in delete:
            disk.metadata.pop(key, None)
        return ChangeOutcome(disk.revision)

    def close(self) -> None:
        """Do nothing: everything is on the simulated disk."""


def disk_path() -> Path:
    """Return the path of the store, for the errors of its disk."""
    return Path("/data/metadata.db")


class _IsolatedStorage(Storage):
    """Storage whose metadata is on the simulated disk."""

    def __init__(self, config: BrokerConfig, random: Random, files: Store, worker: Worker | None) -> None:
        super().__init__(config, random, files, worker)
        self._disk = files.disk if isinstance(files, BrokerFiles) else None

    def _open_metadata(self, *, has_identity: bool) -> SqliteStore:
        if self._disk is None:
            return super()._open_metadata(has_identity=has_identity)
        return cast(SqliteStore, IsolatedStore(self._disk, self._worker))


ottla.broker.lifecycle.Storage = _IsolatedStorage  # type: ignore[misc]


def broker_server(config: BrokerConfig, environment: Environment) -> BrokerServer:
    """Create a broker with a metadata store of its own."""
    return BrokerServer(config, environment)
