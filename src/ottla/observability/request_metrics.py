"""Requests of a broker by API: their number, sizes, errors, and the time spent on them.

total time = queue (behind earlier requests of the connection) + local (handler) + remote (waiting)
"""

from collections import Counter
from typing import Final, Protocol

from ottla.observability.distribution import Distribution
from ottla.observability.native_histogram import NativeHistogram

NONE: Final = 0
"""Error code of success."""


class Counted(Protocol):
    """Counters of the requests of one API and version: the number of requests, and of successes that `errors` lacks."""

    @property
    def version(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def successes(self) -> int: ...


class ApiMetrics:
    """Measurements of one API; times in ns, sizes in bytes.

    parts     counters by version
    errors    number of errors by code, 0 for success: for each partition where a response has partitions; without the
              successes of `parts`
    direct    times of requests that were answered at once: local time and total time are equal
    local, remote, queued, total  times of the other requests
    throttled  throttle times of throttled requests
    seconds   times of all of them, in s
    send, sizes  times to send responses, and sizes of requests; of a sample of all requests
    """

    __slots__ = (
        "direct",
        "errors",
        "local",
        "parts",
        "queued",
        "remote",
        "seconds",
        "send",
        "sizes",
        "throttled",
        "total",
    )

    def __init__(self) -> None:
        self.parts: list[Counted] = []
        self.errors: Counter[int] = Counter()
        self.direct = Distribution()
        self.local = Distribution()
        self.total = Distribution()
        self.remote = Distribution()
        self.queued = Distribution()
        self.seconds = NativeHistogram()
        self.send = Distribution()
        self.sizes = Distribution()
        self.throttled = Distribution()

    @property
    def requests(self) -> int:
        """Return the number of requests."""
        return sum(part.count for part in self.parts)

    @property
    def errors_by_code(self) -> Counter[int]:
        """Return the number of errors by code, 0 for success."""
        errors = Counter(self.errors)
        successes = sum(part.successes for part in self.parts)
        if successes:
            errors[NONE] += successes
        return errors

    def record_wait(self, local_ns: int, remote_ns: int, queued_ns: int, weight: int) -> None:
        """Record a request that has waited for its answer, or for earlier requests."""
        self.local.record(local_ns, weight)
        self.remote.record(remote_ns, weight)
        self.queued.record(queued_ns, weight)
        self.total.record(local_ns + remote_ns + queued_ns, weight)


class RequestMetrics:
    """Measurements of requests by API name."""

    def __init__(self) -> None:
        self.by_api: dict[str, ApiMetrics] = {}

    def of(self, api: str) -> ApiMetrics:
        """Return the measurements of an API."""
        metrics = self.by_api.get(api)
        if metrics is None:
            metrics = self.by_api[api] = ApiMetrics()
        return metrics
