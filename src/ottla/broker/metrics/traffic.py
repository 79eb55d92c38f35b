"""Requests, errors and bytes by topic, counted from responses when they are sent.

What is appended is not counted here: each log counts it (`Log.appended_bytes`).
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.protocol.api import SHARE_ACKNOWLEDGE, SHARE_FETCH
from ottla.protocol.connection import EncodedResponse
from ottla.protocol.context import Peer
from ottla.protocol.errors import NONE
from ottla.protocol.rows import EncodedRows, count_errors

Path = tuple[str, ...]
_MOST_UNCHECKED: Final = 1000
"""Number of topics with counters from which on deleted ones are looked for, when another topic gets counters."""


class TopicTraffic:
    """Counters of a topic; a request counts once for each of its partitions, as in Kafka."""

    __slots__ = (
        "bytes_out",
        "failed_fetches",
        "failed_produces",
        "failed_share_acknowledgements",
        "failed_share_fetches",
        "fetches",
        "produces",
        "replication_bytes_out",
        "share_acknowledgements",
        "share_fetches",
    )

    def __init__(self) -> None:
        self.produces = self.failed_produces = 0
        self.fetches = self.failed_fetches = self.bytes_out = self.replication_bytes_out = 0
        self.share_fetches = self.failed_share_fetches = 0
        self.share_acknowledgements = self.failed_share_acknowledgements = 0

    def add(self, other: "TopicTraffic") -> None:
        """Add the counters of another topic."""
        self.produces += other.produces
        self.failed_produces += other.failed_produces
        self.fetches += other.fetches
        self.failed_fetches += other.failed_fetches
        self.bytes_out += other.bytes_out
        self.replication_bytes_out += other.replication_bytes_out
        self.share_fetches += other.share_fetches
        self.failed_share_fetches += other.failed_share_fetches
        self.share_acknowledgements += other.share_acknowledgements
        self.failed_share_acknowledgements += other.failed_share_acknowledgements


class Traffic:
    """Counters by topic: by name, or by id where the API's responses have ids.

    A topic that does not exist has no counters of its own: clients may name any, and topics come and go.

    exists  returns whether there is a topic of this name or id
    forget  called when topics are left out; counters that were looked up before must be looked up again
    others  counters of all topics that do not exist, or exist no longer
    """

    def __init__(self, exists: Callable[[str | bytes], bool], forget: Callable[[], None]) -> None:
        self.by_topic: dict[str | bytes, TopicTraffic] = {}
        self.others = TopicTraffic()
        self._exists = exists
        self._forget = forget
        self._most = _MOST_UNCHECKED
        self._counting: Mapping[int, Callable[[Any, Peer, Counter[int]], None]] = {
            SHARE_FETCH: self._share_fetched,
            SHARE_ACKNOWLEDGE: self._share_acknowledged,
        }

    def counting(self, api: int) -> Callable[[Any, Peer, Counter[int]], None]:
        """Return the function that counts a response of an API, sent to a peer, and its error codes: of any but Produce and
        Fetch, which `ApiVersionMeter` counts.
        """
        return self._counting.get(api, self._other)

    def _other(self, response: Any, peer: Peer, errors: Counter[int]) -> None:  # noqa: ARG002
        if type(response) is EncodedRows or type(response) is EncodedResponse:
            errors.update(response.errors)
        else:
            count_errors(response, errors)

    def of(self, topic: str | bytes) -> TopicTraffic:
        """Return the counters of a topic."""
        traffic = self.by_topic.get(topic)
        if traffic is None:
            if not self._exists(topic):
                return self.others
            if len(self.by_topic) >= self._most:
                self._leave_out_deleted()
            traffic = self.by_topic[topic] = TopicTraffic()
        return traffic

    def _leave_out_deleted(self) -> None:
        """Add the counters of deleted topics to those of the others."""
        for topic in [topic for topic in self.by_topic if not self._exists(topic)]:
            self.others.add(self.by_topic.pop(topic))
        self._most = max(_MOST_UNCHECKED, 2 * len(self.by_topic))
        self._forget()

    def _share_fetched(self, response: Any, peer: Peer, errors: Counter[int]) -> None:  # noqa: ARG002
        errors[response.error_code] += 1
        for topic in response.responses:
            traffic = self.of(topic.topic_id)
            traffic.share_fetches += len(topic.partitions)
            for row in topic.partitions:
                errors[row.error_code] += 1
                traffic.failed_share_fetches += row.error_code != NONE
                traffic.bytes_out += len(row.records or b"")
                if row.acknowledge_error_code != NONE:
                    traffic.failed_share_acknowledgements += 1

    def _share_acknowledged(self, response: Any, peer: Peer, errors: Counter[int]) -> None:  # noqa: ARG002
        errors[response.error_code] += 1
        for topic in response.responses:
            traffic = self.of(topic.topic_id)
            traffic.share_acknowledgements += len(topic.partitions)
            for row in topic.partitions:
                errors[row.error_code] += 1
                traffic.failed_share_acknowledgements += row.error_code != NONE
