"""Measurement of requests: one short call for each, because small requests cost the broker 40 microseconds in all.

A connection looks up the meter of an API and version once, and asks again when a request is of another one. Requests are
counted with their answers, as in Kafka. Numbers of requests, errors, bytes and partitions are exact. Times are measured for all
of the first _ALL_BELOW requests of an API and version, and later for the first one after each `sample`, which counts for all
those since the one before.
"""

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, final

from ottla.broker.metrics.traffic import Traffic
from ottla.observability.request_metrics import ApiMetrics, RequestMetrics
from ottla.protocol.api import FETCH, PRODUCE
from ottla.protocol.rows import EncodedRows

if TYPE_CHECKING:
    from ottla.broker.metrics.traffic import TopicTraffic
    from ottla.observability.distribution import Distribution
    from ottla.protocol.connection import Envelope
    from ottla.protocol.context import Peer

_ALL_BELOW: Final = 1000
_NO_ERROR: Final = 0  # a constant of this module costs compiled code no look-up
_NS_A_MS: Final = 1_000_000
_NS_A_SECOND: Final = 1e9


@final
class ApiVersionMeter:
    """Requests of one API and version.

    is_due  True if the times of the next request are to be measured
    """

    def __init__(self, metrics: ApiMetrics, version: int, api: int, traffic: Traffic) -> None:
        self.version = version
        self.is_due: bool = True
        self._metrics = metrics
        self._count: int = 0
        self._represented: int = 0  # number of requests that the measured ones stand for
        self._successes: int = 0
        self._errors = metrics.errors
        self._traffic = traffic
        self._is_produce = api == PRODUCE
        self._is_fetch = api == FETCH
        self._counting: Callable[[Any, Peer, Counter[int]], None] = traffic.counting(api)
        self._topic = ""
        self._of_topic: TopicTraffic | None = None

    @property
    def count(self) -> int:
        """Return the number of requests."""
        return self._count

    @property
    def successes(self) -> int:
        """Return the number of partitions without an error, as far as the errors of the API do not have them."""
        return self._successes

    def take(self) -> int:
        """Return for how many requests the times of one that begins now count, if they are to be measured."""
        if self._count < _ALL_BELOW:
            self._represented += 1
            return 1
        self.is_due = False
        weight = max(1, self._count + 1 - self._represented)
        self._represented += weight
        return weight

    def count_response(self, response: Any, peer: "Peer") -> None:
        """Count a request, and its response to a peer: None for Produce with acks=0."""
        self._count += 1
        if response is None:
            return
        if self._is_produce:
            self._count_produce(response.message if type(response) is EncodedRows else response)
        elif self._is_fetch:
            self._count_fetch(response.message if type(response) is EncodedRows else response, peer)
        else:
            self._counting(response, peer, self._errors)

    def _count_produce(self, response: Any) -> None:
        for topic in response.responses:
            traffic = self._topic_traffic(topic)
            for row in topic.partition_responses:
                traffic.produces += 1
                code: int = row.error_code
                if code == _NO_ERROR:
                    self._successes += 1
                else:
                    self._errors[code] += 1
                    traffic.failed_produces += 1

    def _count_fetch(self, response: Any, peer: "Peer") -> None:
        code: int = response.error_code
        if code == _NO_ERROR:
            self._successes += 1
        else:
            self._errors[code] += 1
        for topic in response.responses:
            traffic = self._topic_traffic(topic)
            size: int = 0
            for row in topic.partitions:
                traffic.fetches += 1
                code = row.error_code
                if code == _NO_ERROR:
                    self._successes += 1
                    records = row.records
                    if records is not None:
                        size += len(records)
                else:
                    self._errors[code] += 1
                    traffic.failed_fetches += 1
            if size:
                if peer.is_follower:
                    traffic.replication_bytes_out += size
                else:
                    traffic.bytes_out += size

    def forget_topic(self) -> None:
        """Look up the counters of the next topic, whichever it is."""
        self._of_topic = None

    def _topic_traffic(self, topic: Any) -> "TopicTraffic":
        """Return the counters of a response's topic: those of the last one without a look-up."""
        name: str = topic.topic if self._is_fetch else topic.name
        traffic = self._of_topic
        if traffic is None or not name or name != self._topic:
            traffic = self._of_topic = self._traffic.of(name or topic.topic_id)
            self._topic = name
        return traffic

    def measure(
        self,
        envelope: "Envelope",
        local_ns: int,
        remote_ns: int,
        queued_ns: int,
        throttle_ms: int,
        weight: int,
    ) -> "Distribution":
        """Record the times and the size of a request.

        Returns where the time to send its response is to be recorded, if it has one.
        """
        metrics = self._metrics
        if remote_ns or queued_ns:
            metrics.record_wait(local_ns, remote_ns, queued_ns, weight)
        else:
            metrics.direct.record(local_ns, weight)
        metrics.seconds.record((local_ns + remote_ns + queued_ns) / _NS_A_SECOND, weight)
        metrics.sizes.record(len(envelope.frame), weight)
        if throttle_ms:
            metrics.throttled.record(throttle_ms * _NS_A_MS, weight)
        return metrics.send


class RequestMeter:
    """Measures requests by API and version, and by topic.

    requests  measurements by API; a consumer's Fetch is "FetchConsumer", a follower's "FetchFollower"
    traffic   counters by topic
    exists    returns whether there is a topic of this name or id
    """

    def __init__(self, exists: Callable[[str | bytes], bool]) -> None:
        self.requests = RequestMetrics()
        self.traffic = Traffic(exists, self._forget_topics)
        self._entries: dict[tuple[int, int, bool], ApiVersionMeter] = {}

    def of(self, envelope: "Envelope", peer: "Peer") -> ApiVersionMeter:
        """Return the meter of the API and version of a request; that of a Fetch differs when its sender becomes a follower."""
        key = envelope.api.key, envelope.version, peer.is_follower
        return self._entries.get(key) or self._new_entry(envelope, key)

    def sample(self) -> None:
        """Have the times of the next request of each API and version measured."""
        for entry in self._entries.values():
            entry.is_due = True

    def _forget_topics(self) -> None:
        for entry in self._entries.values():
            entry.forget_topic()

    def _new_entry(self, envelope: "Envelope", key: tuple[int, int, bool]) -> ApiVersionMeter:
        api, version, is_follower = key
        name = envelope.api.name
        if api == FETCH:
            name = "FetchFollower" if is_follower else "FetchConsumer"
        metrics = self.requests.of(name)
        entry = self._entries[key] = ApiVersionMeter(metrics, version, api, self.traffic)
        metrics.parts.append(entry)
        return entry
