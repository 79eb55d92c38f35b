"""Slow work on the records of a share group, in threads: each record is accepted when it is done, released when it fails."""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Final

from ottla.client.blocking import ShareConsumer
from ottla.client.share.delivery import AcknowledgeType
from ottla.records.record import Record

_logger: Final = logging.getLogger("ottla.work")
_POLL_S: Final = 0.1
_PARTS_OF_LOCK: Final = 3
_LOCK_MS: Final = 30_000
"""Acquisition lock of a broker that has not told its own yet."""


class ShareWorker:
    """Runs a function on each record of a share group, in threads.

        with ShareConsumer(
            bootstrap_servers="localhost:9092", group_id="jobs", share_acknowledgement_mode="explicit"
        ) as consumer:
            consumer.subscribe(["jobs"])
            ShareWorker(consumer, convert, threads=8).run()

    A record is accepted when the function returns. When it raises, the record is released: the broker delivers it again, to any
    member, until it has done so group.share.delivery.count.limit times. The lock of a record that takes long is renewed
    (KIP-1222). The order of records is that of a share group: none.

    Raises ValueError for a consumer without share_acknowledgement_mode=explicit.
    """

    def __init__(self, consumer: ShareConsumer, function: Callable[[Record], object], *, threads: int = 8) -> None:
        if consumer._core.config["share.acknowledgement.mode"] != "explicit":
            raise ValueError(
                'make the consumer with share_acknowledgement_mode="explicit": a worker accepts each record'
            )
        if threads < 1:
            raise ValueError(f"a worker has at least one thread, not {threads}")
        self._consumer = consumer
        self._function = function
        self._threads = threads
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Let `run` return when what is running is done; from any thread, or a signal handler."""
        self._stopping.set()

    def run(self) -> None:
        """Work until `stop`. Raises what the consumer raises."""
        with ThreadPoolExecutor(self._threads, thread_name_prefix="ottla-work") as pool:
            while not self._stopping.is_set():
                records = self._consumer.poll(_POLL_S)
                if records:
                    self._work(records, pool)

    def _work(self, records: list[Record], pool: ThreadPoolExecutor) -> None:
        """Work on the records of a poll. Those that are not begun at a stop are released."""
        running: dict[Future[Any], Record] = {pool.submit(self._unless_stopping, record): record for record in records}
        lock_s = (self._consumer.acquisition_lock_timeout_ms() or _LOCK_MS) / 1000
        renewed_at = time.monotonic()
        while running:
            done, _ = wait(running, timeout=max(0.0, renewed_at + lock_s / _PARTS_OF_LOCK - time.monotonic()))
            for future in done:
                self._consumer.acknowledge(running.pop(future), _verdict(future))
            if running and time.monotonic() - renewed_at >= lock_s / _PARTS_OF_LOCK:
                renewed_at = time.monotonic()
                for record in running.values():
                    self._consumer.acknowledge(record, AcknowledgeType.RENEW)
                self._consumer.commit()
        self._consumer.commit()

    def _unless_stopping(self, record: Record) -> bool:
        if self._stopping.is_set():
            return False
        self._function(record)
        return True


def _verdict(future: "Future[bool]") -> AcknowledgeType:
    error = future.exception()
    if error is not None:
        _logger.warning("a record is released, as its function raised %r", error)
        return AcknowledgeType.RELEASE
    return AcknowledgeType.ACCEPT if future.result() else AcknowledgeType.RELEASE
