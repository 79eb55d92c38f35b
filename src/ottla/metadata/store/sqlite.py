"""The embedded metadata store: one SQLite file, for a single broker.

The flush of a change may take long on a busy disk, so a broker gives the store a background thread; the connection then
belongs to that thread, and no other thread may use it until the store is closed. The lock is exclusive: this makes SQLite keep
the index of its write-ahead log in memory, and not in a mapped file, whose loss would end the process with SIGBUS.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from ottla.environment import Worker
from ottla.metadata.features import initial
from ottla.metadata.store import Change, ChangeOutcome, LeaseOutcome, Snapshot, Watcher, keys
from ottla.metadata.store.sqlite_file import DamagedStore, SqliteFile, Written
from ottla.security.scram import ScramCredential
from ottla.tasks.deferred import Answer, after, on_worker
from ottla.tasks.scheduler import Scheduler


class SqliteStore(SqliteFile):
    """Implementation of `MetadataStore` in one SQLite file, for the only broker that uses it.

    background  thread that makes the changes; None to make and answer each change at once
    tasks       scheduler of the broker; needed with `background`
    durable     see `SqliteFile`

    Raises DamagedStore if the file is not a metadata store, OSError when it cannot be opened.
    """

    largest_change: Final = 1000

    def __init__(
        self, path: Path, background: Worker | None = None, tasks: Scheduler | None = None, *, durable: bool = True
    ) -> None:
        super().__init__(path, durable=durable)
        self._tasks = tasks
        self._background = background
        self._watcher: Watcher | None = None

    def _check_kind(self) -> None:
        if self._application():
            raise DamagedStore(
                f"{self._path.parent} has the data of several brokers: start them with `ottla serve --brokers N`, or give "
                "another --data-dir"
            )

    def initialize(
        self,
        cluster_id: str,
        features: Mapping[str, int] | None = None,
        credentials: Mapping[tuple[str, int], ScramCredential] | None = None,
        min_insync_replicas: int = 1,
    ) -> None:
        """Write the cluster id, chosen feature levels, SCRAM credentials by user and mechanism, and min.insync.replicas to a
        new store; an initialized one is unchanged.

        As in Kafka, min.insync.replicas counts as an altered config from the start. Raises OSError.
        """
        put = keys.feature_levels(features or initial())
        put |= {keys.scram_key(*user): credential.encoded() for user, credential in (credentials or {}).items()}
        put[keys.BROKER_DEFAULTS] = keys.compact({keys.MIN_ISR: str(min_insync_replicas)})
        put[keys.CLUSTER_ID] = cluster_id.encode()
        put[keys.METADATA_VERSION] = str(keys.NEWEST_METADATA_VERSION).encode()
        outcome = self.change_now(Change({keys.CLUSTER_ID: 0}, put=put))
        if outcome.error is not None:
            raise OSError(outcome.error)

    @property
    def cluster_id(self) -> str | None:
        """The cluster's id; None for a store that was not initialized."""
        entry = self.get(keys.CLUSTER_ID)
        return entry.value.decode() if entry is not None and entry.value is not None else None

    def load(self) -> Snapshot:
        """See `MetadataStore.load`; not allowed while a background change is running."""
        return Snapshot(self.range(""), self.revision)

    def watch(self, revision: int, watcher: Watcher) -> None:
        if revision != self.revision:
            raise ValueError(f"the store is at revision {self.revision}, not {revision}")
        self._watcher = watcher

    def change(self, change: Change) -> Answer[ChangeOutcome]:
        if self._background is None:
            return self._delivered(self._write(change))
        assert self._tasks is not None
        # A listener and no coroutine: one that begins late finds its change written, and would overtake an earlier one.
        return after(on_worker(self._background, partial(self._write, change), self._tasks), self._delivered)

    def change_now(self, change: Change) -> ChangeOutcome:
        """Make a change on the calling thread; for a store without a watcher."""
        return self._write(change).outcome

    def _delivered(self, written: Written) -> ChangeOutcome:
        """Pass a change to the watcher, on the event loop."""
        outcome = written.outcome
        if outcome.revision and self._watcher is not None:
            self._watcher.changed(outcome.revision, written.entries)
        return outcome

    def grant(self, ttl_ms: int) -> LeaseOutcome:  # noqa: ARG002
        """See `MetadataStore.grant`; the only broker of its store needs no lease."""
        return LeaseOutcome(0, f"{self._path} has a single broker: there are no leases")

    def renew(self, lease: int) -> LeaseOutcome:  # noqa: ARG002
        return LeaseOutcome(0)

    def revoke(self, lease: int) -> bool:  # noqa: ARG002
        return True

    def close(self) -> None:
        self._watcher = None
        self._db.close()
