"""The metadata store in etcd: an implementation of `MetadataStore` for brokers on many machines.

A transaction, a read of the contents and a request for a lease are each one request, made by `Endpoints`; the changes of this
broker are sent one after the other, so that they take effect in their order. A change is answered when the watch has delivered
its revision.

etcd must be the same as before: another cluster id, a revision lower than one that was seen earlier, or a key that is older
than it was known, means that it was restored from a backup. The watcher is then notified once, and all requests fail. A member
that lags behind answers renewals of leases and opens watches with an old revision, too: it is compared by one linearizable
read. The same read follows each watch that was opened again, since a restored etcd may begin with a higher revision
(`--bump-revision`).

Revisions belong to the whole of etcd, so they grow also by changes of other users; a change that deletes only missing keys gets
no revision of its own.
"""

import logging
from collections import deque
from collections.abc import Coroutine
from typing import Any, Final, NoReturn, TypeVar

from ottla.environment import Transport
from ottla.metadata.store import Change, ChangeOutcome, Entry, LeaseOutcome, Snapshot, Watcher
from ottla.metadata.store.etcd import gateway
from ottla.metadata.store.etcd.endpoints import LIMIT_MS, Endpoints, EtcdError
from ottla.metadata.store.etcd.gateway import Header, Json, Keys
from ottla.metadata.store.etcd.url import EtcdUrl
from ottla.metadata.store.etcd.watch import Watch
from ottla.metadata.store.validity import check
from ottla.tasks.deferred import Answer, Deferred
from ottla.tasks.scheduler import Scheduler

R = TypeVar("R")
_PAGE: Final = 2000
"""Keys read by one request."""
_UNSENT_MS: Final = 2 * LIMIT_MS
"""Time after which a change that waits for an unanswered one fails instead of being sent."""

logger = logging.getLogger("ottla.metadata")


def _report(task: str, error: BaseException) -> None:
    """Log an unexpected exception of a task or a listener."""
    logger.error("%s failed", task, exc_info=error)


class EtcdMetadataStore:
    """Connection of one broker to the metadata in etcd.

    etcd_cluster_id   id of the etcd cluster, 0 before the first answer
    unknown_outcomes  number of changes whose outcome is unknown
    """

    largest_change: Final = 100
    """Fewer than the 128 operations of etcd, for comparisons of other keys."""

    def __init__(self, url: EtcdUrl, tasks: Scheduler, transport: Transport) -> None:
        self.etcd_cluster_id = 0
        self.unknown_outcomes = 0
        self._scheduler = tasks
        self._keys = Keys(url.prefix)
        self._endpoints = Endpoints(url, self._scheduler, transport)
        self._watch = Watch(
            self._keys, self._endpoints, self._scheduler, self._load, self._check_cluster, self._delivered, self._opened
        )
        self._watcher: Watcher | None = None
        self._revision = 0
        """Newest revision in any answer."""
        self._is_verifying = False
        self._changes: deque[tuple[Change, int, Deferred[ChangeOutcome]]] = deque()
        """Changes that wait for earlier ones, each with the time until which it may be sent."""
        self._is_changing = False
        self._no_answer = False
        """True if no endpoint answered the last change that was sent."""
        self._undelivered: deque[tuple[ChangeOutcome, Deferred[ChangeOutcome]]] = deque()
        """Changes that were made, in the order of their revisions, but that the watch has not delivered."""
        self._failed: str | None = None
        self._closed = False

    @property
    def watch_restarts(self) -> int:
        """Number of times that the watch was opened again."""
        return self._watch.restarts

    # -- requests of the broker --

    def load(self) -> Answer[Snapshot]:
        async def load() -> Snapshot:
            try:
                return await self._load()
            except EtcdError as error:
                return Snapshot((), 0, str(error))

        return self._answer(load(), "etcd load")

    def watch(self, revision: int, watcher: Watcher) -> None:
        """See `MetadataStore.watch`."""
        self._watcher = watcher
        if self._failed is not None:
            watcher.failed(self._failed)
        elif not self._closed:
            self._watch.start(revision, watcher)

    def change(self, change: Change) -> Answer[ChangeOutcome]:
        """See `MetadataStore.change`. Raises ValueError if the change puts a key that it also deletes."""
        check(change)
        too_large = gateway.excess(change)
        if too_large is not None:
            return ChangeOutcome(0, error=too_large)
        answer: Deferred[ChangeOutcome] = Deferred(self._scheduler)
        if not self._closed:
            self._changes.append((change, self._scheduler.clock.now_ms() + _UNSENT_MS, answer))
            if not self._is_changing:
                self._is_changing = True
                self._scheduler.background(self._make_changes(), "etcd changes")
        return answer

    def grant(self, ttl_ms: int) -> Answer[LeaseOutcome]:
        """See `MetadataStore.grant`; etcd rounds the time up to seconds, and may have a longer minimum."""

        async def grant() -> LeaseOutcome:
            try:
                response = await self._call(gateway.GRANT, {"TTL": str(gateway.seconds(ttl_ms))})
                return LeaseOutcome(int(response["ID"]))
            except EtcdError as error:
                return LeaseOutcome(0, str(error))

        return self._answer(grant(), "etcd grant")

    def renew(self, lease: int) -> Answer[LeaseOutcome]:
        async def renew() -> LeaseOutcome:
            try:
                # Answered by the leader's lessor without a proposal: the revision in it may be old.
                response = await self._call(gateway.KEEP_ALIVE, {"ID": str(lease)}, is_newest=False)
            except EtcdError as error:
                return LeaseOutcome(0, None if error.code == gateway.NOT_FOUND else str(error))
            return LeaseOutcome(lease if int(response.get("TTL", 0)) > 0 else 0)

        return self._answer(renew(), "etcd renew")

    def revoke(self, lease: int) -> Answer[bool]:
        async def revoke() -> bool:
            try:
                await self._call(gateway.REVOKE, {"ID": str(lease)})
            except EtcdError as error:
                return error.code == gateway.NOT_FOUND
            return True

        return self._answer(revoke(), "etcd revoke")

    def close(self) -> None:
        """Stop delivering; changes under way are sent and the connections closed after that, without a callback."""
        self._closed = True
        self._watch.close()
        if not self._is_changing:
            self._endpoints.close()

    def _answer(self, coroutine: Coroutine[Deferred[Any], Any, R], name: str) -> Answer[R]:
        """Run a coroutine, and complete the answer with its result."""
        answer: Deferred[R] = Deferred(self._scheduler)

        def ended(task: Deferred[R]) -> None:
            if task.error is not None:
                _report(name, task.error)
                answer.abandon()
            elif not self._closed:
                answer.complete(task.result())

        if self._closed:
            coroutine.close()
        else:
            self._scheduler.start(coroutine, name).listen(ended)
        return answer

    # -- requests to etcd --

    async def _call(self, target: str, request: Json, *, repeatable: bool = True, is_newest: bool = True) -> Json:
        """Make a request, and check the header of the answer.

        is_newest  True if the answer's revision cannot be lower than that of an earlier answer
        """
        if self._failed is not None:
            raise EtcdError(self._failed)
        revision_before = self._revision
        response = await self._endpoints.call(target, request, repeatable=repeatable)
        response = dict(response.get("result", response))
        header = gateway.header(response)
        self._check_cluster(header)
        if header.revision < revision_before:
            if is_newest:
                self._fail(f"etcd was restored: its revision is {header.revision} and was {revision_before}")
            self._verify_soon()
        self._revision = max(self._revision, header.revision)
        if target == gateway.TXN and gateway.has_effect(response):
            self._watch.saw(header.revision, is_due=True)
        else:
            self._watch.saw(header.revision)
        return response

    def _opened(self, revision: int) -> None:
        """Verify that etcd is the same as before, if a watch was opened again, or has an old revision."""
        if self._watch.restarts or revision < max(self._revision, self._watch.delivered):
            self._verify_soon()

    def _verify_soon(self) -> None:
        """Verify by a read through a quorum that etcd was not restored."""
        if not self._is_verifying and self._failed is None and not self._closed:
            self._is_verifying = True
            self._scheduler.background(self._verify(), "etcd verification")

    async def _verify(self) -> None:
        self._revision = max(self._revision, self._watch.delivered)
        known = self._watch.newest
        try:
            response = await self._call(gateway.RANGE, gateway.one_key(self._keys, known and known.key))
            entries, _ = gateway.page_entries(self._keys, response)
            if known is not None and entries and entries[0].revision < known.revision:
                was = f"{known.key} is of revision {entries[0].revision}, and was of {known.revision}"
                self._fail(f"etcd was restored: {was}")
        except EtcdError as error:
            if self._failed is None:
                logger.warning("cannot verify that etcd is the same as before: %s", error)
        finally:
            self._is_verifying = False

    def _check_cluster(self, header: Header) -> None:
        """Compare the cluster id with that of earlier answers."""
        if self.etcd_cluster_id == 0:
            self.etcd_cluster_id = header.cluster_id
        if header.cluster_id in (0, self.etcd_cluster_id):
            return
        self._fail(
            f"etcd was restored or replaced: its cluster id is {header.cluster_id:x} and was {self.etcd_cluster_id:x}"
        )

    def _fail(self, reason: str) -> NoReturn:
        """Stop using the store. Raises EtcdError."""
        if self._failed is None:
            self._failed = reason
            self._watch.close()
            if self._watcher is not None and not self._closed:
                self._watcher.failed(reason)
            self._delivered(self._revision)
        raise EtcdError(self._failed, is_unknown=True)

    async def _load(self) -> Snapshot:
        """Read all keys, in pages at one revision."""
        while True:
            entries: list[Entry] = []
            limit, revision, after = _PAGE, 0, None
            try:
                while True:
                    request = gateway.page(self._keys, limit, revision, after)
                    try:
                        response = await self._call(gateway.RANGE, request)
                    except EtcdError as error:
                        if limit > 1 and gateway.is_too_large(str(error)):
                            limit //= 2
                            continue
                        raise
                    revision = revision or gateway.header(response).revision
                    page, more = gateway.page_entries(self._keys, response)
                    entries += page
                    if not more:
                        self._watch.note(entries)
                        return Snapshot(entries, revision)
                    after = entries[-1].key
            except EtcdError as error:
                if error.code != gateway.OUT_OF_RANGE:
                    raise
                # The revision was compacted while its pages were read.

    # -- changes --

    async def _make_changes(self) -> None:
        """Send the changes that wait, one after the other."""
        try:
            while self._changes:
                change, send_until, answer = self._changes.popleft()
                if self._no_answer and self._scheduler.clock.now_ms() > send_until:
                    self._complete(answer, ChangeOutcome(0, error="etcd did not answer earlier changes in time"))
                    continue
                try:
                    response = await self._call(gateway.TXN, gateway.transaction(self._keys, change), repeatable=False)
                except EtcdError as error:
                    self._no_answer = error.code == 0
                    self.unknown_outcomes += error.is_unknown
                    self._complete(answer, ChangeOutcome(0, error=str(error), is_unknown=error.is_unknown))
                    continue
                self._no_answer = False
                outcome = gateway.outcome(self._keys, change, response)
                older = gateway.older(change, outcome, self._revision)
                if older is not None:
                    outcome = self._refused(f"etcd was restored: {older}")
                if gateway.has_effect(response) and self._watcher is not None:
                    self._undelivered.append((outcome, answer))
                    self._delivered(self._watch.delivered)
                else:
                    self._complete(answer, outcome)
        except Exception:  # of a listener; the changes behind this one are made all the same
            if self._changes:
                self._scheduler.background(self._make_changes(), "etcd changes")
            raise
        finally:
            self._is_changing = bool(self._changes)
            if self._closed and not self._changes:
                self._endpoints.close()

    def _refused(self, reason: str) -> ChangeOutcome:
        """Stop using the store, and return the outcome of a change that was not made."""
        try:
            self._fail(reason)
        except EtcdError as error:
            return ChangeOutcome(0, error=str(error))

    def _delivered(self, revision: int) -> None:
        """Answer the changes up to a revision that the watcher has."""
        while self._undelivered and self._undelivered[0][0].revision <= revision:
            outcome, answer = self._undelivered.popleft()
            self._complete(answer, outcome)

    def _complete(self, answer: Deferred[ChangeOutcome], outcome: ChangeOutcome) -> None:
        if not self._closed:
            answer.complete(outcome)
