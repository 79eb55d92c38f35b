"""Pushes the metrics of a client to a broker, as long as brokers have a subscription for them (KIP-714).

One task sends what `PushPlan` has due, over a connection that the client has anyway, and to the same broker as long as that
connection lasts. Nothing of it is on the path of a record: metrics are read when a push is due. An error never reaches the
application: it is logged, once as long as it lasts.
"""

import logging
from collections.abc import Callable
from typing import Final

from ottla.client.config import ClientConfig
from ottla.client.errors import KafkaError
from ottla.client.metrics import MetricValues
from ottla.client.telemetry import otlp
from ottla.client.telemetry.collection import Collection, Collector
from ottla.client.telemetry.plan import PushPlan, Subscription
from ottla.environment import Random
from ottla.net.connection import Link
from ottla.net.network import Network
from ottla.protocol.errors import NONE, TELEMETRY_TOO_LARGE, name_of
from ottla.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from ottla.protocol.messages.push_telemetry import PushTelemetryRequest
from ottla.protocol.uuids import uuid_text
from ottla.records.compression import compress
from ottla.tasks.signal import Signal

logger = logging.getLogger("ottla.client")
_LABELS: Final = {
    "client.rack": "client_rack",
    "group.id": "group_id",
    "group.instance.id": "group_instance_id",
    "transactional.id": "transactional_id",
}
"""Configs that are attributes of the resource, as in Apache Kafka's clients."""
_CLOSING_MS: Final = 1000
"""Longest wait at `close` for the response to the last push."""


class MetricsPush:
    """Pushes of one client instance.

    metrics    returns the metrics
    member_id  returns the member id in the group; "" without one
    changed    signals that the subscription has changed
    """

    def __init__(
        self,
        network: Network,
        config: ClientConfig,
        random: Random,
        *,
        metrics: Callable[[], MetricValues],
        member_id: Callable[[], str],
    ) -> None:
        self._network = network
        self._config = config
        self._scheduler = network.scheduler
        self._clock = network.scheduler.clock
        self._metrics = metrics
        self._member_id = member_id
        self.changed = Signal(self._scheduler)
        self._plan = PushPlan(random, self._clock.now_ms())
        self._collector = Collector(self._clock.wall_ms())
        self._link: Link | None = None
        self._reported = ""
        """Error that was logged last; empty after a success."""
        self._task = self._scheduler.background(self._run(), "push of metrics")

    @property
    def instance_id(self) -> str | None:
        """Return the id of this client instance; None before a broker has chosen it."""
        return None if self._plan.subscription is None else uuid_text(self._plan.instance_id)

    # -- requests --

    async def _run(self) -> None:
        while (due_ms := self._plan.due_ms) is not None:
            left = due_ms - self._clock.now_ms()
            link = None if left > 0 else self._connection()
            if left > 0:
                await self._scheduler.sleep(left)
            elif link is None:
                await self._network.changed.wait()
            else:
                await self._request(link)

    def _connection(self) -> Link | None:
        """Return a connection to a broker that takes metrics: that of the last request while it lasts."""
        links = [link for link in self._network.open_links() if link.serves(PushTelemetryRequest)]
        if self._link not in links:
            self._link = links[0] if links else None
        return self._link

    async def _request(self, link: Link) -> None:
        """Send the request that is due, and take its response."""
        try:
            if self._plan.pushes:
                await self._push(link)
            else:
                await self._subscribe(link)
        except KafkaError as error:
            if error.retriable:
                self._plan.on_unanswered(self._clock.now_ms())
            else:
                self._plan.disable()
            self._report(str(error))

    async def _subscribe(self, link: Link) -> None:
        request = GetTelemetrySubscriptionsRequest(client_instance_id=self._plan.instance_id)
        response = await link.request(request, link.version(GetTelemetrySubscriptionsRequest))
        before = self._plan.subscription
        self._plan.on_subscription(response, self._clock.now_ms())
        if response.error_code != NONE:
            self._report(f"GetTelemetrySubscriptions at {link}: {name_of(response.error_code)}")
            return
        if self._plan.due_ms is None:
            self._report(f"GetTelemetrySubscriptions at {link}: the response has no client instance id")
        elif self._plan.pushes:
            logger.debug("client instance %s pushes its metrics to %s", self.instance_id, link)
        else:
            self._reported = ""  # else it is the next push that shows whether an error lasts
        if self._plan.subscription != before:
            self.changed.happen()

    async def _push(self, link: Link, *, is_last: bool = False) -> None:
        subscription, codec = self._plan.subscription, self._plan.codec
        assert subscription is not None
        collection = Collection(self._clock.wall_ms())
        for _ in self._collector.collect(self._metrics(), subscription, collection):
            if not is_last:
                await self._scheduler.sleep(0)
        content = self._compress_content(collection, subscription, codec)
        if content is None:
            self._plan.on_pushed(TELEMETRY_TOO_LARGE, self._clock.now_ms())
            self._report(f"metrics are larger than {link} accepts ({subscription.max_bytes} bytes)")
            return
        request = PushTelemetryRequest(
            client_instance_id=subscription.instance_id,
            subscription_id=subscription.id,
            terminating=is_last,
            compression_type=codec,
            metrics=content,
        )
        self._collector.on_sent(collection)
        response = await link.request(request, link.version(PushTelemetryRequest))
        self._plan.on_pushed(response.error_code, self._clock.now_ms())
        if response.error_code == NONE:
            self._reported = ""
        else:
            self._collector.on_refused()
            self._report(f"PushTelemetry at {link}: {name_of(response.error_code)}")

    def _compress_content(self, collection: Collection, subscription: Subscription, codec: int) -> bytes | None:
        """Return the content of a push: without metrics of topics and partitions if it would be too large with them; None if
        it is too large in any case."""
        for metrics in (collection.of_client + collection.of_parts, collection.of_client):
            content = otlp.metrics_data(self._resource(), metrics) if metrics else b""
            compressed = compress(codec, content) if content else b""
            if len(compressed) <= subscription.max_bytes:
                return compressed
        return None

    def _resource(self) -> dict[str, str]:
        config, member_id = self._config, self._member_id()
        labels = {label: str(config[name]) for name, label in _LABELS.items() if config[name]}
        return {**labels, "group_member_id": member_id} if member_id else labels

    def _report(self, error: str) -> None:
        """Log an error, unless it is the one that was logged last."""
        if error != self._reported:
            self._reported = error
            if self._plan.due_ms is None:
                logger.warning("metrics of this client: %s; no more metrics are pushed", error)
            else:
                logger.info("metrics of this client: %s", error)

    # -- close --

    async def close(self, timeout_ms: int) -> None:
        """Push for the last time, if there is a subscription and a connection; wait for the response, but not for long."""
        self.stop()
        link = self._connection()
        if link is None or not self._plan.pushes or self._plan.due_ms is None:
            return
        self._plan.disable()
        pushing = self._scheduler.start(self._push_last(link), "last push of metrics")
        if not await self._scheduler.within(pushing, min(timeout_ms, _CLOSING_MS)):
            pushing.cancel()

    async def _push_last(self, link: Link) -> None:
        try:
            await self._push(link, is_last=True)
        except KafkaError as error:
            logger.debug("the last push of metrics: %s", error)

    def stop(self) -> None:
        """Send no more requests."""
        self._task.cancel()
