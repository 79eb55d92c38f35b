"""Metrics of producers and consumers, under Kafka's names, groups and tags.

Totals count from the start of the client; rates, averages and maxima are those of the last 30 to 60 seconds, as with Kafka's
defaults of metrics.sample.window.ms and metrics.num.samples.
"""

from collections.abc import Iterable
from math import isnan
from typing import Final, NamedTuple

from mypy_extensions import mypyc_attr

_WINDOW_MS: Final = 30_000
_WINDOWS: Final = 2

Tags = tuple[tuple[str, str], ...]


class MetricName(NamedTuple):
    """Name of a metric; `tags` are pairs of a name and a value, sorted by name."""

    group: str
    name: str
    tags: Tags

    def __str__(self) -> str:
        return f"{self.group}:{self.name}:{{{', '.join(f'{name}={value}' for name, value in self.tags)}}}"


@mypyc_attr(native_class=False)  # native classes derive from no dict
class MetricValues(dict[MetricName, float]):
    """Values of metrics at one time."""

    def value(self, name: str, group: str | None = None, **tags: str) -> float:
        """Return the value of a metric by its name, and by its group and further tags if they are given. Raises KeyError.

        In names of tags `_` stands for `-`. Without a tag for a topic the metric of the client is returned.
        """
        required = {tag.replace("_", "-"): value for tag, value in tags.items()}
        for key in sorted(self, key=lambda key: len(key.tags)):
            has = dict(key.tags)
            if (
                key.name == name
                and group in (None, key.group)
                and all(has.get(tag) == text for tag, text in required.items())
            ):
                return self[key]
        raise KeyError(name)

    def of_client(self) -> dict[str, float]:
        """Return the metrics without tags of topics and partitions, by name; those without a value (NaN) are left out."""
        return {key.name: value for key, value in self.items() if len(key.tags) == 1 and not isnan(value)}

    def put(self, group: str, tags: Tags, values: Iterable[tuple[str, float]]) -> None:
        """Add values by name."""
        for name, value in values:
            self[MetricName(group, name, tags)] = value


class _Window:
    """Values recorded in one window of time."""

    __slots__ = ("begun_ms", "count", "largest", "total")

    def __init__(self, begun_ms: int) -> None:
        self.begun_ms = begun_ms
        self.count = 0
        self.total = self.largest = 0.0


class Sensor:
    """Statistics of recorded values.

    count, total  number and sum of all values since the start
    """

    __slots__ = ("_windows", "count", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self._windows: list[_Window] = []

    def record(self, value: float, now_ms: int) -> None:
        """Record a value."""
        self.count += 1
        self.total += value
        windows = self._windows
        if not windows or now_ms - windows[-1].begun_ms >= _WINDOW_MS:
            windows.append(_Window(now_ms))
            del windows[:-_WINDOWS]
        window = windows[-1]
        window.count += 1
        window.total += value
        if value > window.largest:
            window.largest = value

    def _recent(self, now_ms: int) -> list[_Window]:
        return [window for window in self._windows if now_ms - window.begun_ms < _WINDOW_MS * _WINDOWS]

    def rate(self, now_ms: int) -> float:
        """Return the sum of recent values for each second."""
        recent = self._recent(now_ms)
        if not recent:
            return 0.0
        elapsed_ms = max(now_ms - recent[0].begun_ms, _WINDOW_MS * (_WINDOWS - 1))
        return sum(window.total for window in recent) * 1000 / elapsed_ms

    def event_rate(self, now_ms: int) -> float:
        """Return the number of recent values for each second."""
        recent = self._recent(now_ms)
        if not recent:
            return 0.0
        elapsed_ms = max(now_ms - recent[0].begun_ms, _WINDOW_MS * (_WINDOWS - 1))
        return sum(window.count for window in recent) * 1000 / elapsed_ms

    def average(self, now_ms: int) -> float:
        """Return the average of recent values; NaN without any, as in Kafka."""
        recent = self._recent(now_ms)
        count = sum(window.count for window in recent)
        return sum(window.total for window in recent) / count if count else float("nan")

    def maximum(self, now_ms: int) -> float:
        """Return the largest recent value; NaN without any."""
        return max((window.largest for window in self._recent(now_ms)), default=float("nan"))

    def totals(self, prefix: str, now_ms: int) -> list[tuple[str, float]]:
        """Return `<prefix>-total` and `<prefix>-rate`, of the values."""
        return [(f"{prefix}-total", self.total), (f"{prefix}-rate", self.rate(now_ms))]

    def events(self, prefix: str, now_ms: int) -> list[tuple[str, float]]:
        """Return `<prefix>-total` and `<prefix>-rate`, of the number of values."""
        return [(f"{prefix}-total", float(self.count)), (f"{prefix}-rate", self.event_rate(now_ms))]

    def spread(self, prefix: str, now_ms: int) -> list[tuple[str, float]]:
        """Return `<prefix>-avg` and `<prefix>-max`."""
        return [(f"{prefix}-avg", self.average(now_ms)), (f"{prefix}-max", self.maximum(now_ms))]


class NodeLatencies:
    """Latencies of requests by node id."""

    def __init__(self) -> None:
        self._sensors: dict[int, Sensor] = {}

    def record(self, node: int, latency_ms: float, now_ms: int) -> None:
        """Record the response of a node."""
        sensor = self._sensors.get(node)
        if sensor is None:
            sensor = self._sensors[node] = Sensor()
        sensor.record(latency_ms, now_ms)

    def put_into(self, values: MetricValues, group: str, tags: Tags, now_ms: int) -> None:
        """Add the metrics of each node."""
        for node, sensor in self._sensors.items():
            values.put(group, (*tags, ("node-id", f"node-{node}")), sensor.spread("request-latency", now_ms))


class ProducerSensors:
    """Sensors of a producer.

    queue_time  time in ms from the first record of a batch to its first request
    """

    def __init__(self) -> None:
        self.requests = Sensor()
        self.latency = Sensor()
        self.nodes = NodeLatencies()
        self.queue_time = Sensor()
        self.batches = Sensor()
        self.records_a_batch = Sensor()
        self.retries = Sensor()
        self.errors = Sensor()
        self.throttle = Sensor()
        self.records: dict[str, Sensor] = {}
        self.bytes: dict[str, Sensor] = {}
        self.sent = Sensor()

    def record_acknowledged(self, topic: str, records: int, size: int, now_ms: int) -> None:
        """Record a batch that was acknowledged."""
        self.sent.record(records, now_ms)
        self.batches.record(size, now_ms)
        self.records_a_batch.record(records, now_ms)
        self.records.setdefault(topic, Sensor()).record(records, now_ms)
        self.bytes.setdefault(topic, Sensor()).record(size, now_ms)

    def values(self, client_id: str, now_ms: int) -> MetricValues:
        """Return the metrics."""
        tags: Tags = (("client-id", client_id),)
        values = MetricValues()
        values.put(
            "producer-metrics",
            tags,
            [
                *self.sent.totals("record-send", now_ms),
                *self.errors.totals("record-error", now_ms),
                *self.retries.totals("record-retry", now_ms),
                *self.requests.events("request", now_ms),
                *self.latency.spread("request-latency", now_ms),
                *self.batches.spread("batch-size", now_ms),
                *self.throttle.spread("produce-throttle-time", now_ms),
                *self.queue_time.spread("record-queue-time", now_ms),
                ("records-per-batch-avg", self.records_a_batch.average(now_ms)),
                ("byte-total", self.batches.total),
                ("byte-rate", self.batches.rate(now_ms)),
            ],
        )
        self.nodes.put_into(values, "producer-node-metrics", tags, now_ms)
        for topic, records in self.records.items():
            of_topic: Tags = (*tags, ("topic", topic))
            sizes = self.bytes[topic]
            values.put(
                "producer-topic-metrics",
                of_topic,
                [*records.totals("record-send", now_ms), *sizes.totals("byte", now_ms)],
            )
        return values


class ConsumerSensors:
    """Sensors of the fetches of a consumer."""

    def __init__(self) -> None:
        self.fetches = Sensor()
        self.latency = Sensor()
        self.nodes = NodeLatencies()
        self.throttle = Sensor()
        self.bytes = Sensor()
        self.records = Sensor()
        self.sizes = Sensor()

    def values(self, client_id: str, now_ms: int) -> MetricValues:
        """Return the metrics."""
        values = MetricValues()
        tags: Tags = (("client-id", client_id),)
        self.nodes.put_into(values, "consumer-node-metrics", tags, now_ms)
        values.put(
            "consumer-fetch-manager-metrics",
            tags,
            [
                *self.fetches.events("fetch", now_ms),
                *self.latency.spread("fetch-latency", now_ms),
                *self.sizes.spread("fetch-size", now_ms),
                *self.throttle.spread("fetch-throttle-time", now_ms),
                *self.bytes.totals("bytes-consumed", now_ms),
                *self.records.totals("records-consumed", now_ms),
            ],
        )
        return values
