"""Requests of a broker by API and version: their number, their bytes, and the time spent on them."""

from ottla.observability.registry import LATENCY_BOUNDS_NS, Counter, Histogram, Registry


class RequestMetrics:
    """Measures served requests in a registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._by_api: dict[tuple[str, int], tuple[Counter, Counter, Histogram]] = {}

    def record(self, api: str, version: int, request_bytes: int, spent_ns: int) -> None:
        """Count one request."""
        metrics = self._by_api.get((api, version))
        if metrics is None:
            metrics = self._by_api[api, version] = self._metrics({"request": api, "version": str(version)})
        requests, size, time = metrics
        requests.add()
        size.add(request_bytes)
        time.record(spent_ns)

    def _metrics(self, labels: dict[str, str]) -> tuple[Counter, Counter, Histogram]:
        registry = self._registry
        return (
            registry.counter("requests", labels),
            registry.counter("request_bytes", labels),
            registry.histogram("request_time_ns", LATENCY_BOUNDS_NS, labels),
        )
