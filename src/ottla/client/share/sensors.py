"""Sensors of a share consumer, and its metrics under the names that they have in Apache Kafka's share consumer."""

from typing import Final

from ottla.client.metrics import MetricValues, NodeLatencies, Sensor, Tags

_MS_A_SECOND: Final = 1000
_SECONDS_AN_HOUR: Final = 3600
_NEVER: Final = -1.0


class ShareSensors:
    """Sensors of a share consumer. Times are in ms, sizes in bytes.

    sent, refused  acknowledgements of records that were sent, and those with an error
    rebalances     changes of the assignment
    """

    def __init__(self) -> None:
        self.fetches = Sensor()
        self.latency = Sensor()
        self.nodes = NodeLatencies()
        self.throttle = Sensor()
        self.sizes = Sensor()
        self.records = Sensor()
        self.sent = Sensor()
        self.refused = Sensor()
        self.heartbeats = Sensor()
        self.rebalances = Sensor()
        self._between_polls = Sensor()
        self._idle = Sensor()
        self._heartbeat_ms: int | None = None
        self._poll_ms: int | None = None
        self._since_last_ms = 0

    def record_response(
        self, node: int, latency_ms: int, throttle_ms: int, size: int, records: int, now_ms: int
    ) -> None:
        """Record the response to a fetch, with the number of records that it acquired and the bytes of their batches."""
        self.fetches.record(1, now_ms)
        self.latency.record(latency_ms, now_ms)
        self.nodes.record(node, latency_ms, now_ms)
        self.throttle.record(throttle_ms, now_ms)
        if records:
            self.sizes.record(size, now_ms)
            self.records.record(records, now_ms)

    def heartbeat_sent(self, now_ms: int) -> None:
        """Record a heartbeat."""
        self._heartbeat_ms = now_ms

    def heartbeat_answered(self, sent_ms: int, now_ms: int) -> None:
        """Record the response to a heartbeat."""
        self.heartbeats.record(now_ms - sent_ms, now_ms)

    def poll_begun(self, now_ms: int) -> None:
        """Record the begin of a poll."""
        self._since_last_ms = 0 if self._poll_ms is None else now_ms - self._poll_ms
        self._poll_ms = now_ms
        self._between_polls.record(self._since_last_ms, now_ms)

    def poll_ended(self, now_ms: int) -> None:
        """Record the end of a poll."""
        if self._poll_ms is not None:
            polled_ms = now_ms - self._poll_ms
            whole_ms = polled_ms + self._since_last_ms
            if whole_ms:
                self._idle.record(polled_ms / whole_ms, now_ms)

    def values(self, client_id: str, now_ms: int) -> MetricValues:
        """Return the metrics."""
        values = MetricValues()
        tags: Tags = (("client-id", client_id),)
        self.nodes.put_into(values, "consumer-node-metrics", tags, now_ms)
        values.put(
            "consumer-share-fetch-manager-metrics",
            tags,
            [
                *self.fetches.events("fetch", now_ms),
                *self.latency.spread("fetch-latency", now_ms),
                *self.sizes.spread("fetch-size", now_ms),
                *self.throttle.spread("fetch-throttle-time", now_ms),
                *self.sizes.totals("bytes-consumed", now_ms),
                *self.records.totals("records-consumed", now_ms),
                *self.records.spread("records-per-request", now_ms),
                *self.sent.totals("acknowledgements-send", now_ms),
                *self.refused.totals("acknowledgements-error", now_ms),
            ],
        )
        values.put(
            "consumer-share-coordinator-metrics",
            tags,
            [
                *self.heartbeats.events("heartbeat", now_ms),
                ("heartbeat-response-time-max", self.heartbeats.maximum(now_ms)),
                ("last-heartbeat-seconds-ago", _seconds_since(self._heartbeat_ms, now_ms)),
                ("rebalance-total", self.rebalances.total),
                ("rebalance-rate-per-hour", self.rebalances.rate(now_ms) * _SECONDS_AN_HOUR),
            ],
        )
        values.put(
            "consumer-share-metrics",
            tags,
            [
                ("last-poll-seconds-ago", _seconds_since(self._poll_ms, now_ms)),
                *self._between_polls.spread("time-between-poll", now_ms),
                ("poll-idle-ratio-avg", self._idle.average(now_ms)),
            ],
        )
        return values


def _seconds_since(time_ms: int | None, now_ms: int) -> float:
    return _NEVER if time_ms is None else float((now_ms - time_ms) // _MS_A_SECOND)
