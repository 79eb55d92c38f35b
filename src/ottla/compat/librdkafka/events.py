"""Calls of a client's callbacks, which run in the thread that polls, and its statistics."""

import json
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ottla.addresses import address_text
from ottla.client.errors import KafkaError as ClientError
from ottla.client.metrics import MetricValues
from ottla.compat.librdkafka.configs import Settings, number
from ottla.compat.librdkafka.errors import KafkaError, error_from


@dataclass(eq=False)
class ThrottleEvent:
    """Request that a broker has throttled, for throttle_cb; the time is in seconds."""

    broker_name: str
    broker_id: int
    throttle_time: float

    def __str__(self) -> str:
        return f"{self.broker_name}/{self.broker_id} throttled for {int(self.throttle_time * 1000)} ms"


class Events:
    """Pending calls of callbacks, and the statistics that are due."""

    def __init__(self, settings: Settings, statistics: Callable[[], dict[str, Any]]) -> None:
        self._callbacks = settings.callbacks
        self._calls: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self._statistics = statistics
        interval = number(settings.own, "statistics.interval.ms") / 1000
        self._interval = interval if "stats_cb" in settings.callbacks else 0.0
        self._due = time.monotonic() + self._interval

    def add(self, function: Callable[..., Any], *args: Any) -> None:
        """Have a function called by the next poll. Any thread."""
        self._calls.append((function, args))

    def report(self, error: ClientError) -> None:
        """Have error_cb called with an error. Any thread."""
        if self.has("error_cb"):
            self.add(self._callbacks["error_cb"], error_from(error))

    def all_down(self, count: int) -> None:
        """Have error_cb called because no broker of `count` can be reached. Any thread."""
        if self.has("error_cb"):
            reason = f"{count}/{count} brokers are down"
            self.add(self._callbacks["error_cb"], KafkaError(KafkaError._ALL_BROKERS_DOWN, reason))

    def report_throttle(self, event: ThrottleEvent) -> None:
        """Have throttle_cb called. Any thread."""
        self.add(self._callbacks["throttle_cb"], event)

    def has(self, name: str) -> bool:
        """Return whether the configs have this callback."""
        return name in self._callbacks

    def __bool__(self) -> bool:
        return bool(self._calls) or (self._interval > 0 and time.monotonic() >= self._due)

    def __len__(self) -> int:
        return len(self._calls)

    def serve(self) -> int:
        """Run what is pending; return the number of calls."""
        count = 0
        if self._interval > 0 and time.monotonic() >= self._due:
            self._due = time.monotonic() + self._interval
            self._callbacks["stats_cb"](json.dumps(self._statistics()))
            count += 1
        while self._calls:
            function, args = self._calls.popleft()
            function(*args)
            count += 1
        return count


def statistics(
    kind: str, client_id: str, pending: int, metrics: MetricValues, brokers: Iterable[tuple[int, str, int]]
) -> dict[str, Any]:
    """Return the part of librdkafka's statistics that producers and consumers have in common."""
    prefix = "producer" if kind == "producer" else "consumer"

    values = metrics.of_client()

    def value(name: str) -> int:
        return int(values.get(name, 0))

    sent = value("request-total")
    records = value("record-send-total")
    received = value("fetch-total")
    return {
        "name": f"{client_id}#{prefix}-1",
        "client_id": client_id,
        "type": prefix,
        "ts": time.monotonic_ns() // 1000,
        "time": int(time.time()),
        "replyq": 0,
        "msg_cnt": pending,
        "msg_size": value("buffer-used-bytes"),
        "tx": sent + received,
        "tx_bytes": value("byte-total"),
        "rx": sent + received,
        "rx_bytes": value("bytes-consumed-total"),
        "txmsgs": records,
        "txmsg_bytes": value("byte-total"),
        "rxmsgs": value("records-consumed-total"),
        "rxmsg_bytes": value("bytes-consumed-total"),
        "brokers": {
            f"{address_text(host, port)}/{node}": {
                "name": f"{address_text(host, port)}/{node}",
                "nodeid": node,
                "nodename": address_text(host, port),
                "state": "UP",
                "outbuf_cnt": value("requests-in-flight"),
                "rtt": {"avg": int(1000 * (value("request-latency-avg") or value("fetch-latency-avg")))},
            }
            for node, host, port in brokers
        },
        "topics": {},
    }
