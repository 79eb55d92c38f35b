"""Requests of a broker by API: their number, sizes, errors, and the time spent on them.

total time = queue (behind earlier requests of the connection) + local (handler) + remote (waiting)
"""

from collections import Counter
from collections.abc import Callable

from ottla.observability.distribution import Distribution


class ApiMetrics:
    """Measurements of one API; times in ns, sizes in bytes.

    versions  pairs of a version and a function that returns the number of its requests
    errors    number of errors by code, 0 for success: for each partition where a response has partitions
    direct    times of requests that were answered at once: local time and total time are equal
    local, remote, queued, total  times of the other requests
    throttled  throttle times of throttled requests
    send, sizes  times to send responses, and sizes of requests; of a sample of all requests
    """

    __slots__ = (
        "direct",
        "errors",
        "local",
        "queued",
        "remote",
        "send",
        "sizes",
        "throttled",
        "total",
        "versions",
    )

    def __init__(self) -> None:
        self.versions: list[tuple[int, Callable[[], int]]] = []
        self.errors: Counter[int] = Counter()
        self.direct = Distribution()
        self.local = Distribution()
        self.total = Distribution()
        self.remote = Distribution()
        self.queued = Distribution()
        self.send = Distribution()
        self.sizes = Distribution()
        self.throttled = Distribution()

    @property
    def requests(self) -> int:
        """Return the number of requests."""
        return sum(count() for _, count in self.versions)

    def waited(self, local_ns: int, remote_ns: int, queued_ns: int, weight: int) -> None:
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
