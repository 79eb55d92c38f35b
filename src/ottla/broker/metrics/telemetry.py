"""Client telemetry: subscriptions, and the metrics that clients push (KIP-714).

A subscription is a client-metrics resource: metrics by prefix, an interval, and patterns that select clients. A
client requests its subscription, gets an id that stands for it, and pushes under this id; when subscriptions change the id
becomes invalid, and the client requests it again. Requests and pushes that come too early are refused. The state of a client
instance is in memory only: it is lost at a restart.
"""

import logging
import zlib
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ottla.environment import Random
from ottla.metadata.configs.alteration import CLIENT_METRICS
from ottla.metadata.image import Image
from ottla.metadata.refusal import Refused
from ottla.observability.client_metrics import ALL_METRICS, ReceivedMetrics
from ottla.protocol.context import RequestContext
from ottla.protocol.errors import (
    INVALID_RECORD,
    INVALID_REQUEST,
    NONE,
    TELEMETRY_TOO_LARGE,
    THROTTLING_QUOTA_EXCEEDED,
    UNKNOWN_SUBSCRIPTION_ID,
    UNSUPPORTED_COMPRESSION_TYPE,
)
from ottla.protocol.messages.push_telemetry import PushTelemetryRequest
from ottla.protocol.uuids import uuid_text
from ottla.records.compression import decompress
from ottla.records.errors import CorruptRecords
from ottla.regexes import InvalidRegex, compiled

_logger = logging.getLogger("ottla.broker")
ACCEPTED_COMPRESSION: Final = (4, 3, 1, 2)
"""zstd, lz4, gzip, snappy: in Kafka's order of preference."""
_DEFAULT_INTERVAL_MS: Final = 300_000
_MOST_INSTANCES: Final = 16_384
_RESERVED_IDS: Final = (bytes(16), bytes(15) + b"\1")
_UNPACKED: Final = 16
"""Maximum size of a decompressed push, as a multiple of telemetry.max.bytes."""


class _Subscription(NamedTuple):
    metrics: tuple[str, ...]
    interval_ms: int
    matches: Mapping[str, Any]


class Subscribed(NamedTuple):
    """Subscription of a client instance: prefixes of metrics, or just "*"; `id` identifies these contents."""

    id: int
    interval_ms: int
    metrics: tuple[str, ...]


class _Instance:
    """A client instance; times are those of its last accepted requests, in ms."""

    __slots__ = ("asked_ms", "configs", "error", "pushed_ms", "subscribed", "terminating")

    def __init__(self, subscribed: Subscribed, configs: object) -> None:
        self.subscribed = subscribed
        self.configs = configs
        self.asked_ms = self.pushed_ms = -1 << 60
        self.terminating = False
        self.error = NONE


class Telemetry:
    """The client instances of a broker.

    max_bytes  telemetry.max.bytes: of one push, compressed
    received   the pushed metrics
    """

    def __init__(self, max_bytes: int, random: Random) -> None:
        self.max_bytes = max_bytes
        self.received = ReceivedMetrics()
        self._random = random
        self._instances: OrderedDict[bytes, _Instance] = OrderedDict()
        self._subscriptions: list[_Subscription] = []
        self._configs: object = None  # the image's configs from which the subscriptions were built

    def subscribe(
        self, instance_id: bytes, context: RequestContext, image: Image, now_ms: int
    ) -> tuple[bytes, Subscribed]:
        """Return the instance's id, a new one for all zeros, and its subscription. Raises Refused when it asks too early."""
        if instance_id == bytes(16):
            instance_id = self._random.bytes16()
        instance = self._instance(instance_id, context, image)
        elapsed = now_ms - max(instance.asked_ms, instance.pushed_ms)
        if elapsed >= instance.subscribed.interval_ms:
            instance.asked_ms = now_ms
        elif instance.error != UNKNOWN_SUBSCRIPTION_ID:
            raise Refused(THROTTLING_QUOTA_EXCEEDED, None)
        instance.error = NONE
        return instance_id, instance.subscribed

    def push(
        self, request: PushTelemetryRequest, context: RequestContext, image: Image, now_ms: int, wall_ms: int
    ) -> None:
        """Take the metrics of a client instance. Raises Refused."""
        try:
            self._push(request, context, image, now_ms, wall_ms)
        except Refused:
            self.received.refused += 1
            raise

    def _push(
        self, request: PushTelemetryRequest, context: RequestContext, image: Image, now_ms: int, wall_ms: int
    ) -> None:
        if request.client_instance_id in _RESERVED_IDS:
            raise Refused(INVALID_REQUEST, None)
        instance = self._instance(request.client_instance_id, context, image)
        instance.error = self._refusal(request, instance, now_ms)
        if instance.error != NONE:
            raise Refused(instance.error, None)
        instance.terminating = request.terminating
        if request.metrics and not instance.subscribed.metrics:
            raise Refused(INVALID_RECORD, None)  # nobody wants them: they are not worth to be decompressed
        try:
            otlp = decompress(request.compression_type, request.metrics, _UNPACKED * self.max_bytes)
        except CorruptRecords:
            raise Refused(INVALID_RECORD, None) from None
        if otlp or request.terminating:
            client_id, principal = context.client_id or "", context.principal
            self.received.receive(
                request.client_instance_id,
                client_id,
                principal,
                otlp,
                wall_ms,
                terminated=request.terminating,
                prefixes=instance.subscribed.metrics,
            )

    def _refusal(self, request: PushTelemetryRequest, instance: _Instance, now_ms: int) -> int:
        if instance.terminating:
            return INVALID_REQUEST
        if instance.asked_ms > instance.pushed_ms or now_ms - instance.pushed_ms >= instance.subscribed.interval_ms:
            instance.pushed_ms = now_ms
        elif not request.terminating:
            return THROTTLING_QUOTA_EXCEEDED
        if request.subscription_id != instance.subscribed.id:
            return UNKNOWN_SUBSCRIPTION_ID
        if request.compression_type not in (0, *ACCEPTED_COMPRESSION):
            return UNSUPPORTED_COMPRESSION_TYPE
        if len(request.metrics) > self.max_bytes:
            return TELEMETRY_TOO_LARGE
        return NONE

    def _instance(self, instance_id: bytes, context: RequestContext, image: Image) -> _Instance:
        """Return the state of an instance; a new one when its subscription has changed."""
        if image.configs is not self._configs:
            self._configs = image.configs
            self._subscriptions = _subscriptions(image)
        instance = self._instances.get(instance_id)
        if instance is None or instance.configs is not self._configs:
            subscribed = self._match_subscriptions(instance_id, context)
            if instance is None or subscribed != instance.subscribed:
                instance = self._instances[instance_id] = _Instance(subscribed, self._configs)
            instance.configs = self._configs
        self._instances.move_to_end(instance_id)
        if len(self._instances) > _MOST_INSTANCES:
            self._instances.popitem(last=False)
        return instance

    def _match_subscriptions(self, instance_id: bytes, context: RequestContext) -> Subscribed:
        selectors = {
            "client_instance_id": uuid_text(instance_id),
            "client_id": context.client_id or "",
            "client_software_name": context.peer.software_name,
            "client_software_version": context.peer.software_version,
            "client_source_address": context.client_host.lstrip("/"),
            "client_source_port": str(context.peer.port),
        }
        metrics: dict[str, None] = {}
        interval_ms = _DEFAULT_INTERVAL_MS
        for subscription in self._subscriptions:
            if all(pattern.fullmatch(selectors[selector]) for selector, pattern in subscription.matches.items()):
                metrics.update(dict.fromkeys(subscription.metrics))
                interval_ms = min(interval_ms, subscription.interval_ms)
        names = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(metrics)
        sign = f"{sorted(names)} {interval_ms} {instance_id.hex()}".encode()
        return Subscribed(zlib.crc32(sign) - (1 << 31), interval_ms, names)


def _subscriptions(image: Image) -> list[_Subscription]:
    subscriptions = []
    for (kind, name), texts in image.configs.items():
        if kind == CLIENT_METRICS:
            try:
                matches = _matches(texts.get("match", ""))
            except InvalidRegex as cause:  # stored by Apache Kafka, which takes Java's expressions
                _logger.warning(
                    "the client metrics subscription %s has no clients: its `match` is not RE2, %s", name, cause
                )
                continue
            interval_ms = int(texts.get("interval.ms", _DEFAULT_INTERVAL_MS))
            subscriptions.append(_Subscription(tuple(_items(texts.get("metrics", ""))), interval_ms, matches))
    return subscriptions


def _matches(text: str) -> dict[str, Any]:
    """Return the patterns by what they select. Raises InvalidRegex."""
    matches = {}
    for pattern in _items(text):
        selector, _, expression = pattern.partition("=")
        matches[selector.strip()] = compiled(expression.strip())
    return matches


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
