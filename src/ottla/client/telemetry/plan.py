"""Decides when a client requests its subscription, and when it pushes (KIP-714).

    subscription needed --- GetTelemetrySubscriptions ---> push needed --- PushTelemetry, every interval ---+
      ^        ^  no metrics are requested: after an interval |  ^                                          |
      |        +----------------------------------------------+  +------------------------------------------+
      +--- an error, of either request: see `PushPlan.on_refused`

After a subscription without metrics the client requests it again, every interval. The first push after a subscription comes
after 0.5 to 1.5 intervals, so that clients that were started together do not push together. Nothing is sent here: responses
and times go in, the next request and its time come out.
"""

from typing import Final, NamedTuple

from ottla.environment import Random
from ottla.protocol.errors import (
    NONE,
    TELEMETRY_TOO_LARGE,
    THROTTLING_QUOTA_EXCEEDED,
    UNKNOWN_SUBSCRIPTION_ID,
    UNSUPPORTED_COMPRESSION_TYPE,
)
from ottla.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse
from ottla.protocol.schema import ZERO_UUID

DEFAULT_INTERVAL_MS: Final = 300_000
RETRY_MS: Final = 10_000
"""Time after which a client whose first request has got no response tries again."""
_ALL: Final = "*"
_CODECS: Final = range(5)
_SOON: Final = (UNKNOWN_SUBSCRIPTION_ID, UNSUPPORTED_COMPRESSION_TYPE)
_LATER: Final = (TELEMETRY_TOO_LARGE, THROTTLING_QUOTA_EXCEEDED)


class Subscription(NamedTuple):
    """Metrics that the brokers request from a client.

    instance_id  id of the client instance, of 16 bytes, which a broker has chosen
    id           stands for these contents; pushes name it
    interval_ms  time between two pushes
    codecs       compression codecs that the broker accepts, in its order of preference
    prefixes     of the names of the metrics; "*" alone stands for all
    is_delta     True if totals count from the last push, False if from the start of the client
    max_bytes    maximum size of a compressed push
    """

    instance_id: bytes
    id: int
    interval_ms: int
    codecs: tuple[int, ...]
    prefixes: tuple[str, ...]
    is_delta: bool
    max_bytes: int

    @property
    def has_all(self) -> bool:
        """Return whether all metrics are requested."""
        return self.prefixes == (_ALL,)

    def has(self, name: str) -> bool:
        """Return whether a metric is requested."""
        return self.has_all or name.startswith(self.prefixes)


class PushPlan:
    """Next request of a client instance, and when it is due.

    subscription  that of the last response; None before the first
    pushes        whether the next request is a push
    due_ms        time of the next request, by a monotonic clock; None for no more requests
    """

    def __init__(self, random: Random, now_ms: int) -> None:
        self.subscription: Subscription | None = None
        self.pushes = False
        self.due_ms: int | None = now_ms
        self._random = random
        self._refused_codecs: set[int] = set()

    @property
    def instance_id(self) -> bytes:
        """Return the id of this client instance; zeros before a broker has chosen one."""
        return ZERO_UUID if self.subscription is None else self.subscription.instance_id

    @property
    def codec(self) -> int:
        """Return the codec of the next push: the first one that the broker accepts and has not refused; 0 without any."""
        accepted = () if self.subscription is None else self.subscription.codecs
        return next((codec for codec in accepted if codec in _CODECS and codec not in self._refused_codecs), 0)

    def on_subscription(self, response: GetTelemetrySubscriptionsResponse, now_ms: int) -> None:
        """Take the response to a request of the subscription."""
        if response.error_code != NONE:
            # Soon is not at once: a broker that refuses the same request for ever would get it in a tight loop.
            self.on_refused(response.error_code, now_ms, soon_ms=RETRY_MS)
            return
        if response.client_instance_id == ZERO_UUID:
            self.due_ms = None
            return
        interval_ms = response.push_interval_ms if response.push_interval_ms > 0 else DEFAULT_INTERVAL_MS
        self.subscription = Subscription(
            response.client_instance_id,
            response.subscription_id,
            interval_ms,
            tuple(response.accepted_compression_types),
            tuple(response.requested_metrics),
            response.delta_temporality,
            response.telemetry_max_bytes,
        )
        self.pushes = bool(response.requested_metrics)
        self.due_ms = now_ms + (self._add_jitter(interval_ms) if self.pushes else interval_ms)

    def on_pushed(self, code: int, now_ms: int) -> None:
        """Take the error code of the response to a push."""
        if code == UNSUPPORTED_COMPRESSION_TYPE:
            self._refused_codecs.add(self.codec)
        if code == NONE:
            self.due_ms = now_ms + self._interval_ms
        else:
            self.on_refused(code, now_ms)

    def on_refused(self, code: int, now_ms: int, *, soon_ms: int = 0) -> None:
        """Request the subscription (again), after an error of a response.

        UNKNOWN_SUBSCRIPTION_ID, UNSUPPORTED_COMPRESSION_TYPE  at once: `soon_ms`
        TELEMETRY_TOO_LARGE, THROTTLING_QUOTA_EXCEEDED         after an interval
        any other error                                        never: it would come back
        """
        self.pushes = False
        if code in _SOON:
            self.due_ms = now_ms + soon_ms
        elif code in _LATER:
            self.due_ms = now_ms + self._interval_ms
        else:
            self.due_ms = None

    def on_unanswered(self, now_ms: int) -> None:
        """Repeat the request after an interval, perhaps to another broker: the connection was lost before the response."""
        self.due_ms = now_ms + (RETRY_MS if self.subscription is None else self._interval_ms)

    def disable(self) -> None:
        """Send no more requests."""
        self.due_ms = None

    @property
    def _interval_ms(self) -> int:
        return DEFAULT_INTERVAL_MS if self.subscription is None else self.subscription.interval_ms

    def _add_jitter(self, interval_ms: int) -> int:
        return interval_ms // 2 + self._random.below(interval_ms + 1)
