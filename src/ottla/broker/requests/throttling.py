"""Throttling of requests by quotas: usage by user, client id and address, and the throttle time of a connection.

A broker without quotas has no `Throttling`, and a request costs one check of an attribute. With quotas the answer is sent at
once, with the throttle time in it, and the connection is not read until that time is over (KIP-219).

    produce       bytes of the request, when it is answered
    fetch         bytes of the answer; one that exceeds the quota is sent without its records, and not counted
    requests      time spent on a request, in percent of one thread
    mutations     partitions created and deleted
    connections   by address, before the first byte is read
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from ottla.metadata.refusal import Refused
from ottla.protocol.api import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    METADATA,
    PRODUCE,
    STREAMS_GROUP_HEARTBEAT,
)
from ottla.protocol.errors import THROTTLING_QUOTA_EXCEEDED
from ottla.replication.throttle import ReplicationThrottles
from ottla.security.quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    ConnectionQuota,
    MutationQuota,
    QuotaLimits,
    Quotas,
    RateQuota,
    Window,
)

if TYPE_CHECKING:
    from ottla.broker.config import BrokerConfig
    from ottla.environment import Clock
    from ottla.metadata.metadata import Metadata
    from ottla.protocol.context import RequestContext

_NANOSECONDS_PER_PERCENT: Final = 1e9 / 100
_STRICT_FROM: Final = {
    CREATE_TOPICS: 6,
    DELETE_TOPICS: 5,
    CREATE_PARTITIONS: 3,
    METADATA: 0,
    STREAMS_GROUP_HEARTBEAT: 0,
}
"""The versions whose clients support THROTTLING_QUOTA_EXCEEDED (KIP-599), or get no error at all; older ones are throttled."""


class Throttling:
    """Quotas of a broker and their usage.

    least_ms  minimum throttle time of every request, whatever the usage
    """

    def __init__(self, config: "BrokerConfig", clock: "Clock") -> None:
        window = quota_window(config)
        self._clock = clock
        self.least_ms = 0
        self.window_ms = (window.samples - 1) * window.size_ms
        self._produced = RateQuota(QuotaLimits(PRODUCER_BYTE_RATE, {}), window)
        self._fetched = RateQuota(QuotaLimits(CONSUMER_BYTE_RATE, {}), window)
        self._requests = RateQuota(QuotaLimits(REQUEST_PERCENTAGE, {}), window, window.size_ms)
        self._mutations = MutationQuota(
            QuotaLimits(CONTROLLER_MUTATION_RATE, {}), quota_window(config, "controller.quota")
        )

    def take(self, quotas: Quotas) -> None:
        """Replace the quotas; the usage is kept."""
        self._produced.limits = QuotaLimits(PRODUCER_BYTE_RATE, quotas)
        self._fetched.limits = QuotaLimits(CONSUMER_BYTE_RATE, quotas)
        self._requests.limits = QuotaLimits(REQUEST_PERCENTAGE, quotas)
        self._mutations.limits = QuotaLimits(CONTROLLER_MUTATION_RATE, quotas)

    def record_request(self, api: int, context: "RequestContext", request_bytes: int, nanoseconds: int) -> int:
        """Record a served request; returns the throttle time of its connection, in ms."""
        user, client_id = _who(context)
        now = self._clock.now_ms()
        throttle_ms = self.least_ms
        if api == PRODUCE and self._produced.limits:
            throttle_ms = max(throttle_ms, self._produced.record(user, client_id, request_bytes, now))
        if self._requests.limits:
            spent = nanoseconds / _NANOSECONDS_PER_PERCENT
            throttle_ms = max(throttle_ms, self._requests.record(user, client_id, spent, now))
        return throttle_ms

    def rates(self) -> Iterator[tuple[str, str, str, float]]:
        """Iterate over (resource, user, client id, usage) of clients with quotas, resources as Kafka names them."""
        now = self._clock.now_ms()
        for resource, quota in (("Produce", self._produced), ("Fetch", self._fetched), ("Request", self._requests)):
            for (user, client_id), rate in quota.rates(now):
                yield resource, user, client_id, rate

    def record_fetch(self, context: "RequestContext", response_bytes: int) -> int:
        """Record a response with records; returns a throttle time in ms: above 0 the records must not be sent."""
        if not self._fetched.limits:
            return 0
        user, client_id = _who(context)
        now = self._clock.now_ms()
        throttle_ms = self._fetched.record(user, client_id, response_bytes, now)
        if throttle_ms > 0:
            self._fetched.take_back(user, client_id, response_bytes, now)
        return throttle_ms

    def record_delivery(self, context: "RequestContext", response_bytes: int) -> int:
        """Record a response whose records the client has acquired, which must be sent; returns the throttle time in ms."""
        if not self._fetched.limits:
            return 0
        return self._fetched.record(*_who(context), response_bytes, self._clock.now_ms())

    def most_fetched(self, context: "RequestContext", max_bytes: int) -> int:
        """Maximum size of one response: `max_bytes`, or less where the quota over all windows is smaller."""
        limit = self._fetched.limits.of(*_who(context))
        return max_bytes if limit is None else min(max_bytes, int(limit[1] * self.window_ms / 1000))

    def take_mutations(self, context: "RequestContext", count: int, *, strict: bool) -> tuple[bool, int]:
        """Return whether `count` partitions may be created or deleted, and a throttle time in ms."""
        user, client_id = _who(context)
        return self._mutations.take(user, client_id, count, self._clock.now_ms(), strict=strict)


class Mutations:
    """The partitions that one request creates or deletes; `throttle_ms` is the throttle time of its response."""

    def __init__(self, throttling: Throttling | None, api: int, context: "RequestContext") -> None:
        self._throttling = throttling
        self._context = context
        self._strict = context.version >= _STRICT_FROM[api]
        self.throttle_ms = 0

    def add(self, count: int) -> None:
        """Count `count` more partitions. Raises Refused if the quota is used up already."""
        if self._throttling is None:
            return
        allowed, throttle_ms = self._throttling.take_mutations(self._context, count, strict=self._strict)
        self.throttle_ms = max(self.throttle_ms, throttle_ms)
        if not allowed:
            raise Refused(THROTTLING_QUOTA_EXCEEDED, None)


def _who(context: "RequestContext") -> tuple[str, str]:
    return context.principal.partition(":")[2], context.client_id or ""


def replication_throttles(config: "BrokerConfig", metadata: "Metadata") -> ReplicationThrottles:
    """Return the throttles of replicas that move."""
    window = Window(
        config.integer("replication.quota.window.num"), config.integer("replication.quota.window.size.seconds") * 1000
    )

    def configs(topic: str) -> Mapping[str, str]:
        known = metadata.image.topics.get(topic)
        return {} if known is None else known.configs

    return ReplicationThrottles(config.node_id, configs, window)


def quota_window(config: "BrokerConfig", prefix: str = "quota") -> Window:
    """Return the windows in which rates are measured: quota.window.num and quota.window.size.seconds."""
    return Window(config.integer(f"{prefix}.window.num"), config.integer(f"{prefix}.window.size.seconds") * 1000)


def connection_quota(
    config: "BrokerConfig", quotas: Quotas, before: ConnectionQuota | None, resolve: Callable[[str], str | None]
) -> ConnectionQuota | None:
    """The quota on connections, None if no address has one.

    before   the quota that it replaces
    resolve  returns the address of a host, None if it has none
    """
    limits: dict[str | None, float] = {}
    for entity, values in quotas.items():
        kind, name = entity[0]
        if kind == IP and CONNECTION_CREATION_RATE in values:
            address = None if name is None else resolve(name)
            if name is None or address is not None:
                limits[address] = values[CONNECTION_CREATION_RATE]
    if not limits:
        return None
    quota = before or ConnectionQuota({}, quota_window(config))
    quota.limits = limits
    return quota
