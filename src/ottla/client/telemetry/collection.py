"""Collects the metrics of a push: those that are requested, with totals since the push before where brokers want these."""

from collections.abc import Iterator
from itertools import islice
from math import isnan
from typing import Final, TypeAlias

from ottla.client.metrics import MetricName, MetricValues
from ottla.client.telemetry import otlp
from ottla.client.telemetry.plan import Subscription

_Totals: TypeAlias = dict[MetricName, tuple[float, int]]
"""Values that have been pushed, and the times of these pushes in ms since the epoch."""
_AT_ONCE: Final = 500
"""Number of metrics that are encoded in one step of a few milliseconds."""


class Collection:
    """Metrics of one push.

    time_ms    time of the push, in ms since the epoch
    of_client  encoded metrics of the client
    of_parts   those of nodes, topics and partitions, which are left out of a push that would be too large
    totals     values of the totals in it
    """

    def __init__(self, time_ms: int) -> None:
        self.time_ms = time_ms
        self.of_client: list[bytes] = []
        self.of_parts: list[bytes] = []
        self.totals: _Totals = {}


class Collector:
    """Collects metrics; totals count from the last push that a broker has, or may have.

    start_ms  start of the client, in ms since the epoch
    """

    def __init__(self, start_ms: int) -> None:
        self._start_ms = start_ms
        self._is_delta = True
        self._pushed: _Totals = {}
        self._before: _Totals = {}

    def collect(self, values: MetricValues, subscription: Subscription, collection: Collection) -> Iterator[None]:
        """Encode the requested metrics, in steps. Those without a value (NaN) are left out."""
        if subscription.is_delta != self._is_delta:
            self._is_delta = subscription.is_delta
            self._pushed = {}
        remaining = iter(values.items())
        while some := list(islice(remaining, _AT_ONCE)):
            for key, value in some:
                name = otlp.metric_name(key.group, key.name)
                if not isnan(value) and subscription.has(name):
                    encoded = self._encode_metric(key, name, value, collection)
                    (collection.of_client if len(key.tags) == 1 else collection.of_parts).append(encoded)
            yield

    def on_sent(self, collection: Collection) -> None:
        """Count from this push on, even if its response never comes: rather too little than twice."""
        self._before, self._pushed = self._pushed, {**self._pushed, **collection.totals}

    def on_refused(self) -> None:
        """Count from the push before the last one again, as the broker has refused that."""
        self._pushed = self._before

    def _encode_metric(self, key: MetricName, name: str, value: float, collection: Collection) -> bytes:
        if not key.name.endswith("-total"):
            return otlp.gauge(name, key.tags, value, collection.time_ms)
        collection.totals[key] = (value, collection.time_ms)
        before, since_ms = self._pushed.get(key, (0.0, self._start_ms)) if self._is_delta else (0.0, self._start_ms)
        return otlp.total(name, key.tags, value - before, since_ms, collection.time_ms, is_delta=self._is_delta)
