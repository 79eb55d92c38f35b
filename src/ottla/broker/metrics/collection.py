"""All metrics of a broker, read on its event loop in steps, so that no reading holds the loop for long."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.metrics.cluster import ElectionCounts, cluster_families, replica_families
from ottla.broker.metrics.groups import group_families, lag_families, share_families, transaction_families
from ottla.broker.metrics.loop_load import LoopLoad
from ottla.broker.metrics.meter import RequestMeter
from ottla.broker.metrics.requests import RequestFamilies
from ottla.broker.metrics.selection import TopicSelection
from ottla.broker.metrics.services import (
    authorization_families,
    broker_families,
    network_families,
    quota_families,
    storage_families,
    waiting_families,
)
from ottla.broker.metrics.topics import TopicFamilies
from ottla.observability.client_metrics import ClientMetrics
from ottla.observability.distribution import Recent
from ottla.observability.families import Family
from ottla.tasks.deferred import awaitable
from ottla.tasks.scheduler import Pieces

if TYPE_CHECKING:
    from ottla.broker.lifecycle import BrokerServer


class Reading(NamedTuple):
    """Metrics of a broker at one time.

    families  in the order of their export
    clients   metrics that clients have pushed, by client instance id
    """

    families: list[Family]
    clients: dict[bytes, ClientMetrics]


class BrokerMetrics:
    """Metrics of a running broker. Requests, flushes and the event loop are measured from the creation of this object on.

    Used on the thread of the broker's event loop.
    """

    def __init__(self, server: "BrokerServer", thread_cpu_ns: Callable[[], int], topics: TopicSelection) -> None:
        self._server = server
        broker = self._broker = server.broker
        pipeline = server.pipeline
        meter = pipeline.meter = RequestMeter(self._exists)
        self._requests, traffic = meter.requests, meter.traffic
        self._request_families = RequestFamilies(self._requests)
        self._topic_families = TopicFamilies(broker, traffic, topics)
        self._elections = ElectionCounts(broker)
        server.observer = self._elections.apply
        server.flusher.now_ns = pipeline.now_ns
        times = server.flusher.times
        self._flushes = Recent(lambda: list(times.counts))
        self._load = LoopLoad(broker.tasks, pipeline.now_ns, thread_cpu_ns, meter.sample)
        self._load.begin()

    def _exists(self, topic: str | bytes) -> bool:
        image = self._broker.image
        return topic in (image.topics_by_id if isinstance(topic, bytes) else image.topics)

    def read(self, done: Callable[[Reading], None], failed: Callable[[], None]) -> None:
        """Read all metrics in steps, then call `done`; `failed` after a bug in a step."""
        families: list[Family] = []
        clients = self._broker.telemetry.received.instances
        reading = self._broker.tasks.run_pieces(self._read_into(families), "reading metrics")
        awaitable(reading, self._broker.tasks).then(lambda _: done(Reading(families, clients())), failed)

    def _read_into(self, families: list[Family]) -> Pieces:
        broker, server, load = self._broker, self._server, self._load
        now_ms = broker.clock.now_ms()
        families += yield from self._topic_families.collect()
        yield None
        selected, figures = self._topic_families.selected, self._topic_families.figures
        isr_changes = None if server.node is None else server.node.isr_changes
        coordination = broker.used_coordination
        parts: tuple[Callable[[], Iterable[Family]], ...] = (
            partial(broker_families, broker, load),
            partial(self._request_families.collect, now_ms),
            partial(replica_families, broker, figures, isr_changes),
            partial(cluster_families, broker, self._elections),
            partial(network_families, server.sockets, load),
            partial(waiting_families, broker, server.sockets),
            partial(storage_families, broker, server.flusher, self._flushes, now_ms),
            partial(quota_families, broker),
            partial(authorization_families, broker),
            partial(group_families, coordination, self._requests),
            partial(transaction_families, coordination),
            partial(share_families, broker, selected),
        )
        for part in parts:
            families += part()
            yield None
        families += yield from lag_families(broker, selected)

    def close(self) -> None:
        """End the measurement of the event loop."""
        self._load.close()
