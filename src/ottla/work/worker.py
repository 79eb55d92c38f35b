"""Slow work on the records of a consumer, in threads: it keeps polling, so that the group does not take it for dead."""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from ottla.client.blocking import Consumer
from ottla.client.errors import KafkaError
from ottla.client.topics import TopicPartition
from ottla.work.backlog import Backlog, Item
from ottla.work.retry import Retry

_logger: Final = logging.getLogger("ottla.work")
_POLL_S: Final = 0.1
_MOST_POLLED: Final = 500
MOST_QUEUED: Final = 1000


def check_commits(config: Any) -> None:
    """Raise ValueError for a consumer that commits what it has read."""
    if config["enable.auto.commit"]:
        raise ValueError("a worker commits what is done: make the consumer with enable_auto_commit=False")


class Worker:
    """Runs a function on each record of a consumer, in threads, and commits what is done.

        with Consumer(bootstrap_servers="localhost:9092", group_id="mails", enable_auto_commit=False) as consumer:
            consumer.subscribe(["orders"])
            Worker(consumer, send_mail, threads=8).run()

    Records with the same key (of a partition) come one after another, those without a key in any order. Only offsets are
    committed before which everything is done: a worker that ends in any way, or a partition that moves to another member,
    repeats at most what was running and what was done out of order. A partition is paused while `queued` records of it are
    not done.

    consumer      subscribed or assigned, with enable_auto_commit=False; no other thread uses it while the worker runs
    function      called with a record, in any of the threads
    retry         what happens to a record whose function raises; without it, the worker ends with the exception
    queued        most records of a partition that are read and not done
    commit_s      seconds between two commits
    revocation_s  seconds for which a partition that moves away waits for the end of what is running

    Raises ValueError for a consumer that commits by itself.
    """

    def __init__(
        self,
        consumer: Consumer,
        function: Callable[[Any], object],
        *,
        threads: int = 8,
        retry: Retry | None = None,
        queued: int = MOST_QUEUED,
        commit_s: float = 1.0,
        revocation_s: float = 5.0,
    ) -> None:
        check_commits(consumer._core.config)
        if threads < 1:
            raise ValueError(f"a worker has at least one thread, not {threads}")
        self._consumer = consumer
        self._function = function
        self._threads = threads
        self._retry = retry
        self._backlog = Backlog(queued) if retry is None else Backlog(queued, retry.due_ms)
        self._commit_s = commit_s
        self._revocation_s = revocation_s
        self._changed = threading.Condition()
        """Guards the backlog; notified when a record is ready or finished, and at the end."""
        self._stopping = threading.Event()
        self._is_closed = False
        self._error: BaseException | None = None

    def stop(self) -> None:
        """Let `run` return when what is running is done; from any thread, or a signal handler."""
        self._stopping.set()

    def run(self) -> None:
        """Work until `stop`, or until a function raises without a retry. Then the consumer is at what is not done.

        Raises that exception, and what the consumer raises.
        """
        core = self._consumer._consumer
        listeners = core.listeners

        def on_revoke(partitions: list[TopicPartition]) -> None:
            self._revoke(partitions)
            if listeners.on_revoke is not None:
                listeners.on_revoke(partitions)

        def on_lost(partitions: list[TopicPartition]) -> None:
            with self._changed:
                self._backlog.revoke(partitions)
            lost = listeners.on_lost or listeners.on_revoke
            if lost is not None:
                lost(partitions)

        core.listeners = listeners._replace(on_revoke=on_revoke, on_lost=on_lost)
        workers = [threading.Thread(target=self._work, name=f"ottla-work-{number}") for number in range(self._threads)]
        for worker in workers:
            worker.start()
        try:
            self._poll_until_stopped()
        finally:
            try:
                self._end(workers)
            finally:
                core.listeners = listeners
        if self._error is not None:
            raise self._error

    def _poll_until_stopped(self) -> None:
        committed_at = time.monotonic()
        while not self._stopping.is_set() and self._error is None:
            records = self._consumer.consume(_MOST_POLLED, timeout=_POLL_S)
            with self._changed:
                self._backlog.add(records, _now_ms())
                filled, emptied = self._backlog.partitions_to_pause(), self._backlog.partitions_to_resume()
                self._changed.notify_all()
            self._pause(filled)
            self._resume(emptied)
            if time.monotonic() - committed_at >= self._commit_s:
                committed_at = time.monotonic()
                self._commit_in_background()

    def _pause(self, partitions: Iterable[TopicPartition]) -> None:
        assigned = set(self._consumer.assignment())
        self._consumer.pause([place for place in partitions if place in assigned])

    def _resume(self, partitions: Iterable[TopicPartition]) -> None:
        assigned = set(self._consumer.assignment())
        self._consumer.resume([place for place in partitions if place in assigned])

    def _commit_in_background(self) -> None:
        with self._changed:
            offsets = self._backlog.offsets_to_commit()
        if not offsets:
            return

        def on_committed(error: KafkaError | None, _: object) -> None:
            if error is not None:
                _logger.warning("commit: %s", error)
                with self._changed:
                    self._backlog.on_commit_failed(offsets)

        self._consumer.commit_async(dict(offsets), on_committed)

    def _revoke(self, partitions: list[TopicPartition]) -> None:
        """Wait for what is running of partitions that move away, and commit what is done of them."""
        with self._changed:
            self._backlog.hold(partitions)
            self._changed.wait_for(lambda: not self._backlog.running(partitions), self._revocation_s)
            done = {place: offset for place, offset in self._backlog.offsets_to_commit().items() if place in partitions}
            self._backlog.revoke(partitions)
        if done:
            try:
                self._consumer.commit(done)
            except KafkaError as error:
                _logger.warning("commit before partitions move away: %s", error)

    def _end(self, workers: list[threading.Thread]) -> None:
        """Wait until what is running is done, still polling, and commit."""
        with self._changed:
            self._backlog.close()
            self._is_closed = True
            self._changed.notify_all()
        try:
            while any(worker.is_alive() for worker in workers):
                self._consumer.pause(self._consumer.assignment())
                self._consumer.consume(1, timeout=_POLL_S)
        except KafkaError as error:
            _logger.warning("while the worker ends: %s", error)
        for worker in workers:
            worker.join()
        done = self._backlog.offsets_to_commit()
        if done:
            self._consumer.commit(done)
        assigned = self._consumer.assignment()
        self._consumer.resume(assigned)
        for place, offset in self._backlog.unfinished().items():
            if place in assigned:
                self._consumer.seek(place, offset)

    def _work(self) -> None:
        while (item := self._take()) is not None:
            try:
                self._function(item.record)
            except BaseException as error:  # noqa: BLE001  (also SystemExit: `run` raises it)
                if not self._is_retried(item, error):
                    continue
            with self._changed:
                self._backlog.finish(item)
                self._changed.notify_all()

    def _take(self) -> Item | None:
        with self._changed:
            while not self._is_closed:
                item = self._backlog.take()
                if item is not None:
                    return item
                self._changed.wait()
            return None

    def _is_retried(self, item: Item, error: BaseException) -> bool:
        """Write a record whose function raised for another attempt; False if the worker ends with the exception."""
        try:
            if self._retry is not None and isinstance(error, Exception):
                failed = self._retry.failed(item.record, error, _now_ms())
                if failed is not None:
                    topic, value, key, headers = failed
                    self._retry.producer.send(topic, value, key, headers=headers).result()
                    return True
        except KafkaError as unwritten:
            unwritten.__context__ = error
            error = unwritten
        with self._changed:
            self._error = self._error or error
            self._backlog.abandon(item)
            self._backlog.close()
            self._changed.notify_all()
        return False


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
