"""Slow work on the records of an asyncio consumer, in tasks: the twin of `Worker`, with the same rules."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from ottla.client.aio import Consumer
from ottla.client.errors import KafkaError
from ottla.client.topics import TopicPartition
from ottla.work.backlog import Backlog, Item
from ottla.work.retry import Retry
from ottla.work.worker import MOST_QUEUED, check_commits

_logger: Final = logging.getLogger("ottla.work")
_POLL_S: Final = 0.1
_MOST_POLLED: Final = 500


class AsyncWorker:
    """Runs a coroutine function on each record of a consumer of `ottla.aio`, and commits what is done; see `Worker`.

        async with aio.Consumer(bootstrap_servers="localhost:9092", group_id="mails", enable_auto_commit=False) as consumer:
            consumer.subscribe(["orders"])
            await AsyncWorker(consumer, send_mail, tasks=100).run()

    tasks  most calls that run at the same time

    A cancelled `run` cancels what is running, and commits what is done.
    """

    def __init__(
        self,
        consumer: Consumer,
        function: Callable[[Any], Awaitable[object]],
        *,
        tasks: int = 100,
        retry: Retry | None = None,
        queued: int = MOST_QUEUED,
        commit_s: float = 1.0,
        revocation_s: float = 5.0,
    ) -> None:
        check_commits(consumer._core.config)
        if tasks < 1:
            raise ValueError(f"a worker has at least one task, not {tasks}")
        self._consumer = consumer
        self._function = function
        self._most = tasks
        self._retry = retry
        self._backlog = Backlog(queued) if retry is None else Backlog(queued, retry.due_ms)
        self._commit_s = commit_s
        self._revocation_s = revocation_s
        self._running: set[asyncio.Task[None]] = set()
        self._is_stopping = False
        self._error: BaseException | None = None

    def stop(self) -> None:
        """Let `run` return when what is running is done; on the event loop."""
        self._is_stopping = True

    async def run(self) -> None:
        """Work until `stop`, or until a function raises without a retry. Then the consumer is at what is not done.

        Raises that exception, and what the consumer raises.
        """
        core = self._consumer._consumer
        listeners = core.listeners

        async def on_revoke(partitions: list[TopicPartition]) -> None:
            await self._revoke(partitions)
            await _call_listener(listeners.on_revoke, partitions)

        async def on_lost(partitions: list[TopicPartition]) -> None:
            self._backlog.revoke(partitions)
            await _call_listener(listeners.on_lost or listeners.on_revoke, partitions)

        core.listeners = listeners._replace(on_revoke=on_revoke, on_lost=on_lost)
        try:
            await self._poll_until_stopped()
        except asyncio.CancelledError:
            for task in self._running:
                task.cancel()
            raise
        finally:
            try:
                await self._end()
            finally:
                core.listeners = listeners
        if self._error is not None:
            raise self._error

    async def _poll_until_stopped(self) -> None:
        committed_at = time.monotonic()
        while not self._is_stopping and self._error is None:
            records = await self._consumer.consume(_MOST_POLLED, timeout=_POLL_S)
            self._backlog.add(records, _now_ms())
            self._begin_ready()
            assigned = set(self._consumer.assignment())
            self._consumer.pause([place for place in self._backlog.partitions_to_pause() if place in assigned])
            self._consumer.resume([place for place in self._backlog.partitions_to_resume() if place in assigned])
            if time.monotonic() - committed_at >= self._commit_s:
                committed_at = time.monotonic()
                await self._commit()

    def _begin_ready(self) -> None:
        while len(self._running) < self._most and (item := self._backlog.take()) is not None:
            task = asyncio.ensure_future(self._work(item))
            self._running.add(task)
            task.add_done_callback(self._on_task_end)

    def _on_task_end(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        self._begin_ready()

    async def _work(self, item: Item) -> None:
        try:
            await self._function(item.record)
        except asyncio.CancelledError:
            self._backlog.abandon(item)
            raise
        except BaseException as error:  # noqa: BLE001  (`run` raises it)
            if not await self._is_retried(item, error):
                return
        self._backlog.finish(item)

    async def _is_retried(self, item: Item, error: BaseException) -> bool:
        """Write a record whose function raised for another attempt; False if the worker ends with the exception."""
        try:
            if self._retry is not None and isinstance(error, Exception):
                failed = self._retry.failed(item.record, error, _now_ms())
                if failed is not None:
                    topic, value, key, headers = failed
                    await (await self._retry.producer.send(topic, value, key, headers=headers))
                    return True
        except KafkaError as unwritten:
            unwritten.__context__ = error
            error = unwritten
        self._error = self._error or error
        self._backlog.abandon(item)
        self._backlog.close()
        return False

    async def _commit(self) -> None:
        offsets = self._backlog.offsets_to_commit()
        if not offsets:
            return
        try:
            await self._consumer.commit(dict(offsets))
        except KafkaError as error:
            _logger.warning("commit: %s", error)
            self._backlog.on_commit_failed(offsets)

    async def _revoke(self, partitions: list[TopicPartition]) -> None:
        """Wait for what is running of partitions that move away, and commit what is done of them."""
        self._backlog.hold(partitions)
        ends_at = time.monotonic() + self._revocation_s
        while self._backlog.running(partitions) and (left := ends_at - time.monotonic()) > 0:
            await asyncio.wait(self._running, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        await self._commit()
        self._backlog.revoke(partitions)

    async def _end(self) -> None:
        """Wait until what is running is done, still polling, and commit."""
        self._backlog.close()
        while self._running:
            self._consumer.pause(self._consumer.assignment())
            await self._consumer.consume(1, timeout=_POLL_S)
        offsets = self._backlog.offsets_to_commit()
        if offsets:
            await self._consumer.commit(dict(offsets))
        assigned = self._consumer.assignment()
        self._consumer.resume(assigned)
        for place, offset in self._backlog.unfinished().items():
            if place in assigned:
                self._consumer.seek(place, offset)


async def _call_listener(
    listener: Callable[[list[TopicPartition]], Any] | None, partitions: list[TopicPartition]
) -> None:
    if listener is not None:
        answer = listener(partitions)
        if asyncio.iscoroutine(answer):
            await answer


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
