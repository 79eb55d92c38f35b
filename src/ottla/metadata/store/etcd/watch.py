"""The watch of an etcd cluster: a stream of changes that is opened again wherever it breaks.

    open at the current endpoint from the next revision ---> changes, all entries of a revision together ---> watcher
      ^        |                      |
      |        | broken, or behind    | the history was compacted
      '--------'                      v
      '---------------------- load the contents ---> watcher.reloaded

A stream can hang without an error. Other answers of etcd carry its revision; if the watch has not reached one within a second,
it is opened again at another endpoint. A change of this broker must come, but a revision in other answers may belong to keys of
others: if the new stream brings nothing, such a revision counts as reached, and the next one is given more time. That is no
failure of etcd: only a stream that had really missed a change is reported.
"""

import logging
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from itertools import groupby
from typing import Any, Final

from ottla.environment import Cancellable
from ottla.metadata.store import Entry, Snapshot, Watcher
from ottla.metadata.store.etcd import gateway
from ottla.metadata.store.etcd.endpoints import LIMIT_MS, Endpoints, EtcdError
from ottla.metadata.store.etcd.gateway import Header, Keys, Lines, WatchResponse
from ottla.metadata.store.etcd.http import HttpConnection
from ottla.metadata.store.etcd.url import endpoint_text
from ottla.tasks.scheduler import Scheduler

_BEHIND_MS: Final = 1000
_FALSE_ALARM_MS: Final = 10_000
"""Time for the next revision after one that belonged to keys of others."""
_RETRY_MS: Final = 100
_RETRY_MAX_MS: Final = 1000
_STABLE_MS: Final = 5000
"""Age of a stream that can be opened again without a pause."""

logger = logging.getLogger("ottla.metadata")


class Watch:
    """Delivers all changes after a revision to the watcher.

    delivered  the revision that the watcher has
    restarts   number of streams that were opened in place of another one
    newest     the entry that was written last, None if it is not known or was deleted
    """

    def __init__(
        self,
        keys: Keys,
        endpoints: Endpoints,
        scheduler: Scheduler,
        load: Callable[[], Coroutine[Any, None, Snapshot]],
        check: Callable[[Header], None],
        reached: Callable[[int], None],
        opened: Callable[[int], None],
    ) -> None:
        self.newest: Entry | None = None
        self._opened = opened
        """Called with the revision of etcd when a stream was opened."""
        self.delivered = 0
        self.restarts = 0
        self._keys = keys
        self._endpoints = endpoints
        self._scheduler = scheduler
        self._load = load
        self._check = check
        """Raises EtcdError for the header of another etcd cluster."""
        self._reached = reached
        """Called with each revision after it was delivered."""
        self._watcher: Watcher | None = None
        self._connection: HttpConnection | None = None
        self._stream = 0
        """Number of the current stream: what an earlier one delivers is ignored."""
        self._is_created = False
        self._lines = Lines()
        self._fragments: list[Entry] = []
        self._failures = 0
        """Streams that ended in a row, each after a short time."""
        self._begun_ms = 0
        """Time at which the current stream was begun."""
        self._progress_ms = 0
        """Time of the last delivery, or of the begin of the current stream."""
        self._opened_at = 0
        """Revision of etcd when the current stream was opened."""
        self._due = 0
        """Newest revision that must come: a change of this broker."""
        self._seen = 0
        """Newest revision in any answer of etcd."""
        self._patience_ms = _BEHIND_MS
        self._alarm: Cancellable | None = None
        self._alarm_is_due = False
        self._target = 0
        """Revision that the watch must have reached when the alarm rings."""
        self._missed_at = ""
        """Endpoint of the stream that was left for `_suspected`, until the next one shows whether it had missed a change."""
        self._suspected = 0
        """Last revision for which the stream was opened again although it may belong to keys of others."""

    def start(self, revision: int, watcher: Watcher) -> None:
        """Deliver all changes after a revision."""
        self.delivered = self._opened_at = revision
        self._watcher = watcher
        self._scheduler.background(self._open(), "etcd watch")

    def close(self) -> None:
        """Stop delivering."""
        self._watcher = None
        self._leave_stream()
        if self._alarm is not None:
            self._alarm.cancel()

    def saw(self, revision: int, *, is_due: bool = False) -> None:
        """Expect the watch to reach a revision; `is_due` if it is one of this cluster's keys."""
        self._seen = max(self._seen, revision)
        if is_due:
            self._due = max(self._due, revision)
            if self._alarm is not None and not self._alarm_is_due:
                self._alarm.cancel()
                self._alarm = None
        if self._watcher is not None and self._alarm is None:
            self._set_alarm()

    # -- streams --

    async def _open(self) -> None:
        """Open a stream from the next revision."""
        self._leave_stream()
        stream = self._stream
        self._begun_ms = self._progress_ms = self._scheduler.clock.now_ms()
        request = gateway.watch(self._keys, self.delivered + 1)
        try:
            connection = await self._endpoints.stream(gateway.WATCH, request, lambda data: self._receive(stream, data))
        except EtcdError as error:
            self._retry(stream, str(error))
            return
        if stream != self._stream:
            connection.close()
            return
        self._connection = connection
        self._scheduler.call_later(LIMIT_MS, partial(self._check_created, stream))

    def _leave_stream(self) -> None:
        """Close the stream, and ignore what it still delivers."""
        self._stream += 1
        self._is_created = False
        self._lines = Lines()
        self._fragments = []
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _check_created(self, stream: int) -> None:
        """Use another endpoint if this one has accepted the connection, but not the watch."""
        if stream == self._stream and not self._is_created and self._connection is not None:
            where = self._connection.address
            self._endpoints.next_endpoint(where)
            self._retry(stream, f"{endpoint_text(where)} does not answer")

    def _retry(self, stream: int, reason: str, level: int = logging.WARNING) -> None:
        """Open another stream: at once after one that was stable, else after a pause, which grows."""
        if stream != self._stream or self._watcher is None:
            return
        self._leave_stream()
        self.restarts += 1
        if self._scheduler.clock.now_ms() - self._begun_ms >= _STABLE_MS:
            self._failures = 0
        if self._failures == 0:
            logger.log(level, "the watch of etcd is opened again after revision %d: %s", self.delivered, reason)
        delay_ms = min(_RETRY_MS << min(self._failures, 8), _RETRY_MAX_MS) if self._failures else 0
        self._failures += 1
        self._scheduler.call_later(delay_ms, partial(self._go_on, self._stream))

    def _go_on(self, stream: int) -> None:
        if stream == self._stream and self._watcher is not None:
            self._scheduler.background(self._open(), "etcd watch")

    def _receive(self, stream: int, data: bytes) -> None:
        """Handle a piece of the stream, b"" at its end."""
        if stream != self._stream or self._watcher is None:
            return
        if not data:
            self._retry(stream, "etcd ended it")
            return
        try:
            for message in self._lines.feed(data):
                self._handle(gateway.watch_response(self._keys, message))
                if stream != self._stream:
                    return
        except ValueError as error:
            self._retry(stream, f"malformed message: {error}")
        except BaseException:
            self._retry(stream, "a change was not handled")  # the rest of `data` is lost, but not for the next stream
            raise

    def _handle(self, response: WatchResponse) -> None:
        if response.ended is None:
            try:
                self._check(response.header)
            except EtcdError as error:
                self._retry(self._stream, str(error))
                return
        if response.is_created:
            self._is_created = True
            self._opened_at = response.header.revision
            self._opened(response.header.revision)
        if response.compacted:
            self._leave_stream()
            logger.warning("the watch of etcd is behind a compaction: the contents are loaded again")
            self._scheduler.background(self._reload(self._stream), "etcd reload")
        elif response.ended is not None:
            self._endpoints.forget_login()
            if self._connection is not None:
                self._endpoints.next_endpoint(self._connection.address)
            self._retry(self._stream, response.ended)
        else:
            self._fragments += response.entries
            if not response.is_fragment:
                entries, self._fragments = self._fragments, []
                self._deliver(entries)

    def _deliver(self, entries: list[Entry]) -> None:
        """Pass the entries to the watcher, one call for each revision."""
        stream = self._stream
        for revision, group in groupby(entries, key=lambda entry: entry.revision):
            if stream != self._stream or self._watcher is None:
                return  # closed by the watcher
            if revision <= self.delivered:
                continue
            if revision <= self._suspected:
                self._patience_ms = _BEHIND_MS
                if self._missed_at:
                    logger.warning("the watch of etcd at %s had not delivered revision %d", self._missed_at, revision)
            self._missed_at = ""
            self.delivered = revision
            self._progress_ms = self._scheduler.clock.now_ms()
            self._failures = 0
            changed = list(group)
            self.note(changed)
            self._watcher.changed(revision, changed)
            self._reached(revision)

    def note(self, entries: Iterable[Entry]) -> None:
        """Note the newest of some entries."""
        for entry in entries:
            if entry.value is not None and (self.newest is None or entry.revision >= self.newest.revision):
                self.newest = entry
            elif entry.value is None and self.newest is not None and self.newest.key == entry.key:
                self.newest = None

    async def _reload(self, stream: int) -> None:
        """Load the contents, and go on from there."""
        while stream == self._stream and self._watcher is not None:
            try:
                snapshot = await self._load()
            except EtcdError as error:
                logger.warning("the contents of etcd cannot be loaded: %s", error)
                await self._scheduler.sleep(_RETRY_MAX_MS)
                continue
            if stream != self._stream or self._watcher is None:
                return
            self.delivered = self._opened_at = snapshot.revision
            self.restarts += 1
            self._watcher.reloaded(snapshot)
            self._reached(snapshot.revision)
            await self._open()
            return

    # -- streams that hang --

    def _set_alarm(self) -> None:
        self._alarm_is_due = self._due > self.delivered
        if self._alarm_is_due:
            self._target, delay_ms = self._due, _BEHIND_MS
        elif self._seen > max(self.delivered, self._opened_at):
            self._target, delay_ms = self._seen, self._patience_ms
        else:
            return
        self._alarm = self._scheduler.call_later(delay_ms, self._ring)

    def _ring(self) -> None:
        """Open the stream again at another endpoint if it has not reached the target."""
        self._alarm = None
        if self._watcher is None:
            return
        reached = self.delivered if self._alarm_is_due else max(self.delivered, self._opened_at)
        if reached < self._target and self._connection is not None and self._had_its_time():
            where = self._connection.address
            self._endpoints.next_endpoint(where)
            if self._alarm_is_due:
                self._retry(self._stream, f"{endpoint_text(where)} has not delivered revision {self._target} in time")
            else:
                self._patience_ms = _FALSE_ALARM_MS
                self._suspected = self._target
                self._missed_at = endpoint_text(where)
                reason = f"revision {self._target} belongs to keys of others, or was missed"
                self._retry(self._stream, reason, logging.DEBUG)
        self._set_alarm()

    def _had_its_time(self) -> bool:
        """Return False for a stream that was just begun, or is catching up: to begin it again would never end."""
        now = self._scheduler.clock.now_ms()
        return now - self._progress_ms >= _BEHIND_MS or now - self._begun_ms >= _STABLE_MS
