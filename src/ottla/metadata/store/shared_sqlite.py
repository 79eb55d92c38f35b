"""The metadata store of several broker processes on one machine: one SQLite file, and a thread of each process that uses it.

    change ---> thread: transaction, then read all changes since the last delivery ---> watcher.changed ---> outcome
                                                                                             |
    refresh, or every 100 ms ---> thread: read the changes of other processes ---------------'

The order of deliveries is that of the thread's work, so a change of this process is delivered before it is answered, after all
foreign changes with a lower revision. Deleted keys stay as tombstones until 1,000 later revisions are there; a watcher that is
further behind gets the whole contents.

A lease is a row, which the process that started the brokers deletes: when the process of its broker has ended, or has not
renewed it in time. A broker tells it so (`on_renewed`); renewals are not written, so that a full disk ends no lease.
"""

import logging
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import ClassVar, Final, NamedTuple, TypeVar

from ottla.environment import Cancellable, Worker
from ottla.metadata.store import Change, ChangeOutcome, Entry, LeaseOutcome, Snapshot, Watcher
from ottla.metadata.store.sqlite_file import COLUMNS, DamagedStore, SqliteFile
from ottla.metadata.store.validity import check
from ottla.tasks.deferred import Answer, Deferred, on_worker
from ottla.tasks.scheduler import Scheduler

_logger = logging.getLogger("ottla.metadata")
R = TypeVar("R")
_APPLICATION: Final = 0x4F74746C
"""Mark of a file that several brokers share (application_id): "Ottl"."""
_TABLES: Final = f"""
CREATE TABLE IF NOT EXISTS leases (id INTEGER PRIMARY KEY AUTOINCREMENT);
CREATE TABLE IF NOT EXISTS tombstones (key TEXT PRIMARY KEY, revision INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pruned (revision INTEGER NOT NULL);
INSERT INTO pruned SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM pruned);
CREATE INDEX IF NOT EXISTS entries_by_revision ON entries (revision);
CREATE INDEX IF NOT EXISTS entries_by_lease ON entries (lease) WHERE lease != 0;
CREATE INDEX IF NOT EXISTS tombstones_by_revision ON tombstones (revision);
PRAGMA application_id = {_APPLICATION};
"""
_KEPT_REVISIONS: Final = 1000
"""Number of revisions whose tombstones are kept."""
_PRUNING_INTERVAL: Final = 100
_POLL_INTERVAL_MS: Final = 100
_RESTORED: Final = "{} is at revision {}, below {}: it was replaced while brokers use it"


class _Delivery(NamedTuple):
    """Data for the watcher: changed entries up to a revision, or the whole contents, or the reason of a failure."""

    revision: int
    entries: Sequence[Entry]
    is_whole: bool = False
    failure: str = ""


class _SharedFile(SqliteFile):
    """File that several processes share, with leases and tombstones; used by the thread of its store.

    position  revision up to which changes were read for the watcher; None without a watcher
    """

    _LOCKING: ClassVar[str] = "NORMAL"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.position: int | None = None
        self._version = -1
        """`data_version` of the last read: SQLite changes it with every commit of another connection."""

    def _check_kind(self) -> None:
        tables = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if tables and self._application() != _APPLICATION:
            raise DamagedStore(
                f"{self._path.parent} has the data of a single broker: start it with `ottla serve` without --brokers, or give "
                "another --data-dir"
            )

    def _further_tables(self) -> str:
        return "" if self._application() == _APPLICATION else _TABLES

    # -- transactions --

    def change(self, change: Change) -> tuple[ChangeOutcome, _Delivery | None]:
        """Carry out a change, and return what it brings to the watcher."""
        written = self._write(change)
        revision = written.outcome.revision
        if revision and self.position == revision - 1:
            self.position = revision
            return written.outcome, _Delivery(revision, written.entries)
        return written.outcome, self.unread()

    def grant(self) -> LeaseOutcome:
        """Create a lease."""
        try:
            return LeaseOutcome(self._db.execute("INSERT INTO leases DEFAULT VALUES").lastrowid or 0)
        except sqlite3.Error as cause:
            return LeaseOutcome(0, f"cannot write {self._path}: {cause}")

    def renew(self, lease: int) -> LeaseOutcome:
        """Return the lease if it has not ended."""
        try:
            return LeaseOutcome(lease if self._has_lease(lease) else 0)
        except sqlite3.Error as cause:
            return LeaseOutcome(0, f"cannot read {self._path}: {cause}")

    def revoke(self, lease: int) -> tuple[bool, _Delivery | None]:
        """End a lease, and delete its keys."""
        return self._end_leases("SELECT ?", lease)

    def end_lease_of(self, key: str) -> tuple[bool, _Delivery | None]:
        """End the lease of a key."""
        return self._end_leases("SELECT lease FROM entries WHERE key = ?", key)

    def end_all_leases(self) -> tuple[bool, _Delivery | None]:
        """End all leases."""
        return self._end_leases("SELECT id FROM leases")

    def _end_leases(self, query: str, *parameters: object) -> tuple[bool, _Delivery | None]:
        def planned(revision: int) -> list[Entry] | ChangeOutcome:
            db = self._db
            leases = [row for row in db.execute(query, parameters) if row[0] and self._has_lease(row[0])]
            if not leases:
                return ChangeOutcome(0)
            ending = [
                key
                for lease in leases
                for (key,) in db.execute("SELECT key FROM entries WHERE lease = ? AND lease != 0 ORDER BY key", lease)
            ]
            db.executemany("DELETE FROM leases WHERE id = ?", leases)
            return self._apply(Change(delete=ending), revision)

        written = self._commit(planned)
        if written.outcome.error is not None:
            _logger.error("cannot end a lease: %s", written.outcome.error)
        return written.outcome.error is None, self.unread()

    def _has_lease(self, lease: int) -> bool:
        return self._db.execute("SELECT 1 FROM leases WHERE id = ?", (lease,)).fetchone() is not None

    def _refusal(self, change: Change) -> ChangeOutcome | None:
        refusal = super()._refusal(change)
        if refusal is None and change.put and change.lease and not self._has_lease(change.lease):
            return ChangeOutcome(0, error=f"the lease {change.lease} has ended")
        return refusal

    def _apply(self, change: Change, revision: int) -> list[Entry]:
        entries = super()._apply(change, revision)
        db = self._db
        db.executemany(
            "INSERT OR REPLACE INTO tombstones VALUES (?, ?)",
            [(entry.key, revision) for entry in entries if entry.value is None],
        )
        db.executemany("DELETE FROM tombstones WHERE key = ?", [(key,) for key in change.put])
        if revision % _PRUNING_INTERVAL == 0 and revision > _KEPT_REVISIONS:
            oldest = revision - _KEPT_REVISIONS
            db.execute("DELETE FROM tombstones WHERE revision <= ?", (oldest,))
            db.execute("UPDATE pruned SET revision = ?", (oldest,))
        return entries

    # -- reads --

    def snapshot(self) -> Snapshot:
        """Return the contents."""
        try:
            return self._consistent(lambda newest: Snapshot(self.range(""), newest))
        except sqlite3.Error as cause:
            return Snapshot((), 0, f"cannot read {self._path}: {cause}")

    def watch(self, revision: int) -> _Delivery | None:
        """Begin to read changes after a revision."""
        self.position = revision
        self._version = -1
        return self.unread()

    def unread(self) -> _Delivery | None:
        """Return all changes that were not read for the watcher yet; None without any, or when they cannot be read now."""
        if self.position is None:
            return None
        try:
            # A commit between both reads is seen by the second one, and once more at the next look.
            (version,) = self._db.execute("PRAGMA data_version").fetchone()
            if version == self._version and self._revision <= self.position:
                return None
            delivery = self._consistent(partial(self._changes, self.position))
        except sqlite3.Error as cause:
            _logger.warning("cannot read %s: %s; this will be retried", self._path, cause)
            return None
        self._version = version
        if delivery.revision == self.position:
            return None
        self.position = delivery.revision
        return delivery

    def _changes(self, after: int, newest: int) -> _Delivery:
        (pruned,) = self._db.execute("SELECT revision FROM pruned").fetchone()
        if newest < after:
            return _Delivery(newest, (), failure=_RESTORED.format(self._path, newest, after))
        if after < pruned:
            return _Delivery(newest, self.range(""), is_whole=True)
        query = f"SELECT {COLUMNS} FROM entries WHERE revision > ?"
        entries = [Entry(*row) for row in self._db.execute(query, (after,))]
        deleted = self._db.execute("SELECT key, revision FROM tombstones WHERE revision > ?", (after,))
        entries += [Entry(key, None, revision, 0) for key, revision in deleted]
        return _Delivery(newest, sorted(entries))

    def _consistent(self, read: Callable[[int], R]) -> R:
        """Call `read` with the newest revision, in one transaction."""
        db = self._db
        db.execute("BEGIN")
        try:
            (newest,) = db.execute("SELECT newest FROM revision").fetchone()
            return read(newest)
        finally:
            with suppress(sqlite3.Error):
                db.execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        self._db.close()


class _AdoptedFile(_SharedFile):
    """File of a single broker, which becomes that of several ones."""

    def _check_kind(self) -> None:
        if self._application() not in (0, _APPLICATION):
            raise DamagedStore(f"{self._path} is not a metadata store: its application_id is {self._application()}")


def share_file(path: Path) -> None:
    """Turn the file of a single broker into one that several brokers share; a shared one is unchanged.

    Raises DamagedStore, OSError.
    """
    _AdoptedFile(path).close()


class SharedSqliteStore:
    """Implementation of `MetadataStore` in one SQLite file that several processes of this machine share.

    worker   one thread, which belongs to the store from now on
    notify   called after each change of this store, for `refresh` of the other ones
    poll_ms  interval at which changes of other processes are looked for, in case that a notification is lost
    on_renewed  called with a lease of this store and its time in ms when it was granted or renewed, with 0 ms when it was
             revoked

    Raises DamagedStore if the file is not a metadata store of several brokers, OSError when it cannot be opened.
    """

    largest_change: Final = 1000

    def __init__(
        self,
        path: Path,
        worker: Worker,
        tasks: Scheduler,
        notify: Callable[[], None] = lambda: None,
        poll_ms: int = _POLL_INTERVAL_MS,
        on_renewed: Callable[[int, int], None] = lambda *_: None,
    ) -> None:
        self._on_renewed = on_renewed
        self._ttls_ms: dict[int, int] = {}
        """Times of the leases that this store was granted."""
        self._file = _SharedFile(path)
        self._worker = worker
        self._tasks = tasks
        self._notify = notify
        self._poll_ms = poll_ms
        self._polling: Cancellable | None = None
        self._watcher: Watcher | None = None
        self._is_refreshing = False
        self._is_closed = False

    def load(self) -> Answer[Snapshot]:
        return self._run(self._file.snapshot)

    def watch(self, revision: int, watcher: Watcher) -> None:
        self._watcher = watcher
        self._worker.run(partial(self._file.watch, revision), self._deliver, lambda: None)
        self._polling = self._tasks.call_later(self._poll_ms, self._poll)

    def refresh(self) -> None:
        """Read the changes of other processes, and pass them to the watcher."""
        if self._is_refreshing or self._is_closed:
            return
        self._is_refreshing = True

        def begin() -> _Delivery | None:
            # From now on another call is needed for what changes after this read.
            self._is_refreshing = False
            return self._file.unread()

        self._worker.run(begin, self._deliver, lambda: None)

    def change(self, change: Change) -> Answer[ChangeOutcome]:
        """See `MetadataStore.change`. Raises ValueError if the change puts a key that it also deletes."""
        check(change)
        return self._run_and_deliver(partial(self._file.change, change))

    def grant(self, ttl_ms: int) -> Answer[LeaseOutcome]:
        """See `MetadataStore.grant`; the parent process ends the lease by time."""

        return self._tasks.run(self._granted(self._run(self._file.grant), ttl_ms), "a lease")

    async def _granted(self, granting: Deferred[LeaseOutcome], ttl_ms: int) -> LeaseOutcome:
        outcome = await granting
        if outcome.id:
            self._ttls_ms[outcome.id] = ttl_ms
            self._on_renewed(outcome.id, ttl_ms)
        return outcome

    def renew(self, lease: int) -> Answer[LeaseOutcome]:
        renewing = self._run(partial(self._file.renew, lease))
        return self._tasks.run(self._renewed(renewing, lease), "the renewal of a lease")

    async def _renewed(self, renewing: Deferred[LeaseOutcome], lease: int) -> LeaseOutcome:
        outcome = await renewing
        if outcome.id or outcome.error is not None:  # a file that cannot be read now ends no lease
            self._on_renewed(lease, self._ttls_ms.get(lease, 0))
        else:
            self._ttls_ms.pop(lease, None)
        return outcome

    def revoke(self, lease: int) -> Answer[bool]:
        if self._ttls_ms.pop(lease, 0):
            self._on_renewed(lease, 0)
        return self._run_and_deliver(partial(self._file.revoke, lease))

    def end_lease_of(self, key: str) -> Answer[bool]:
        """End the lease of a key, whose process has ended, and delete all of its keys."""
        return self._run_and_deliver(partial(self._file.end_lease_of, key))

    def end_all_leases(self) -> Answer[bool]:
        """End all leases, whose processes have ended, and delete their keys."""
        return self._run_and_deliver(self._file.end_all_leases)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._watcher = None
        if self._polling is not None:
            self._polling.cancel()
        self._worker.close()
        self._file.close()
        self._notify()  # of changes that ended during the close

    def _run(self, work: Callable[[], R]) -> Deferred[R]:
        return on_worker(self._worker, work, self._tasks)

    def _run_and_deliver(self, work: Callable[[], tuple[R, _Delivery | None]]) -> Answer[R]:
        """Run a transaction; its answer comes after its delivery to the watcher and its notification to the other processes.

        The delivery is made when the thread's result arrives, as that of `refresh` is. Behind the queue of completions it would
        come after that of a later read, with entries that are older than those the watcher has.
        """
        answer: Deferred[R] = Deferred(self._tasks)

        def done(result: tuple[R, _Delivery | None]) -> None:
            outcome, delivery = result
            self._notify()
            self._deliver(delivery)
            answer.complete(outcome)

        self._worker.run(work, done, answer.abandon)
        return answer

    def _poll(self) -> None:
        self._polling = self._tasks.call_later(self._poll_ms, self._poll)
        self.refresh()

    def _deliver(self, delivery: _Delivery | None) -> None:
        """Pass what the thread has read to the watcher, on the event loop."""
        if delivery is None or self._watcher is None:
            return
        if delivery.failure:
            self._watcher.failed(delivery.failure)
        elif delivery.is_whole:
            self._watcher.reloaded(Snapshot(delivery.entries, delivery.revision))
        else:
            self._watcher.changed(delivery.revision, delivery.entries)
