"""Measurement of requests: two short calls for each, because small requests cost the broker 40 microseconds in all.

Numbers of requests, errors, bytes and partitions are exact. Times are measured for all of the first _ALL_BELOW requests of an
API and version; of the later ones for every _SAMPLED-th, which counts _SAMPLED times.
"""

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.metrics.traffic import Traffic
from ottla.observability.distribution import Distribution
from ottla.observability.request_metrics import ApiMetrics, RequestMetrics
from ottla.protocol.api import FETCH

if TYPE_CHECKING:
    from ottla.protocol.connection import Envelope
    from ottla.protocol.context import Peer

_ALL_BELOW: Final = 1000
_SAMPLED: Final = 16
_NS_A_MS: Final = 1_000_000


class ApiVersionMeter:
    """Requests of one API and version: their number, and where they are measured.

    counting  counts a response that was sent to a peer by topic, and its error codes in `errors`
    weight    how often the times of the newest request count, 0 if they are not measured
    """

    __slots__ = ("count", "counting", "errors", "metrics", "version", "weight")

    def __init__(
        self, metrics: ApiMetrics, version: int, counting: Callable[[Any, "Peer", Counter[int]], None]
    ) -> None:
        self.metrics = metrics
        self.errors = metrics.errors
        self.version = version
        self.counting = counting
        self.count = self.weight = 0


class RequestMeter:
    """Measures requests by API and version, and by topic.

    requests  measurements by API; a consumer's Fetch is "FetchConsumer", a follower's "FetchFollower"
    traffic   counters by topic
    sending   where the time to send the response of the last request is to be recorded; None: nowhere
    """

    def __init__(self) -> None:
        self.requests = RequestMetrics()
        self.traffic = Traffic()
        self.sending: Distribution | None = None
        self._entries: dict[tuple[int, int, bool], ApiVersionMeter] = {}

    def begin(self, envelope: "Envelope", peer: "Peer") -> ApiVersionMeter:
        """Count a request. Returns the meter of its API and version, whose `weight` says how often its times count."""
        key = envelope.api.key, envelope.version, peer.is_follower
        entry = self._entries.get(key) or self._new_entry(envelope, key)
        number = entry.count
        entry.count = number + 1
        entry.weight = 1 if number < _ALL_BELOW else 0 if number % _SAMPLED else _SAMPLED
        return entry

    def measure(
        self,
        entry: ApiVersionMeter,
        envelope: "Envelope",
        peer: "Peer",
        response: Any,
        local_ns: int,
        remote_ns: int,
        queued_ns: int,
        throttle_ms: int,
        weight: int,
    ) -> None:
        """Record the times and the size of a request, and count its response, None for Produce with acks=0.

        entry, weight  those of `begin`
        """
        metrics = entry.metrics
        if remote_ns or queued_ns:
            metrics.waited(local_ns, remote_ns, queued_ns, weight)
        else:
            metrics.direct.record(local_ns, weight)
        metrics.sizes.record(len(envelope.frame), weight)
        if throttle_ms:
            metrics.throttled.record(throttle_ms * _NS_A_MS, weight)
        if response is not None:
            entry.counting(response, peer, entry.errors)
            self.sending = metrics.send

    def _new_entry(self, envelope: "Envelope", key: tuple[int, int, bool]) -> ApiVersionMeter:
        api, version, is_follower = key
        name = envelope.api.name
        if api == FETCH:
            name = "FetchFollower" if is_follower else "FetchConsumer"
        entry = ApiVersionMeter(self.requests.of(name), version, self.traffic.counting(api))
        self._entries[key] = entry
        entry.metrics.versions.append((version, lambda: entry.count))
        return entry
