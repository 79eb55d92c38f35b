"""Families of requests by API, as Kafka's RequestMetrics, and the histogram ottla_request_seconds."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate, pairwise
from typing import Final

from ottla.observability.distribution import Distribution, Recent, lower_bound, quantile
from ottla.observability.families import COUNTER, GAUGE, HISTOGRAM, Buckets, Family
from ottla.observability.native_histogram import merge_histograms
from ottla.observability.request_metrics import ApiMetrics, RequestMetrics
from ottla.protocol.errors import name_of

_QUANTILES: Final = (("0.50", 0.5), ("0.75", 0.75), ("0.95", 0.95), ("0.98", 0.98), ("0.99", 0.99), ("0.999", 0.999))
_PREFIX: Final = "kafka_network_requestmetrics_"
_NS_A_MS: Final = 1e6
_NS_A_SECOND: Final = 1e9
_BUCKETS: Final = range(26, 70, 2)
"""Buckets of a distribution whose lower bounds are those of ottla_request_seconds: 8 microseconds to 17 seconds, by twos."""


def quantiles(family: Family, counts: list[int], divisor: float, *labels: str) -> None:
    """Add the quantiles that Kafka exports, with the label `quantile` at the end."""
    for text, fraction in _QUANTILES:
        family.add(quantile(counts, fraction) / divisor, *labels, text)


def _sum(*distributions: Distribution) -> list[int]:
    return [sum(column) for column in zip(*(distribution.counts for distribution in distributions), strict=True)]


def _with_zeros(count: Callable[[], int], distribution: Distribution) -> list[int]:
    """Return the counts of a distribution in which all other requests, of `count`, have the value 0."""
    counts = list(distribution.counts)
    counts[0] += max(0, count() - sum(counts))
    return counts


class _Api:
    """Recent distributions of one API, or of several ones as if they were one."""

    def __init__(self, *parts: ApiMetrics) -> None:
        self.parts = parts
        zeros = partial(_with_zeros, lambda: self.requests)
        self._recent: dict[str, Recent] = {
            "total": Recent(lambda: _sum(*(part.direct for part in parts), *(part.total for part in parts))),
            "local": Recent(lambda: _sum(*(part.direct for part in parts), *(part.local for part in parts))),
            "remote": Recent(lambda: zeros(_merge([part.remote for part in parts]))),
            "queued": Recent(lambda: zeros(_merge([part.queued for part in parts]))),
            "throttled": Recent(lambda: zeros(_merge([part.throttled for part in parts]))),
            "send": Recent(lambda: _sum(*(part.send for part in parts))),
            "sizes": Recent(lambda: _sum(*(part.sizes for part in parts))),
        }

    @property
    def requests(self) -> int:
        return sum(part.requests for part in self.parts)

    def recent(self, kind: str, now_ms: int) -> list[int]:
        return self._recent[kind].counts(now_ms)

    def seconds(self) -> Buckets:
        """Return the total times as a histogram."""
        counts = _sum(*(part.direct for part in self.parts), *(part.total for part in self.parts))
        below = list(accumulate(counts, initial=0))
        bounds = [lower_bound(bucket) / _NS_A_SECOND for bucket in _BUCKETS]
        edges = [0, *(below[bucket] for bucket in _BUCKETS), below[-1]]
        total_ns = sum(part.direct.total + part.total.total for part in self.parts)
        inside = [after - before for before, after in pairwise(edges)]
        return Buckets(bounds, inside, total_ns / _NS_A_SECOND, merge_histograms(part.seconds for part in self.parts))


def _merge(distributions: list[Distribution]) -> Distribution:
    whole = Distribution()
    whole.counts = _sum(*distributions)
    return whole


_TIMES: Final = (
    ("totaltimems", "total", "Time from the arrival of a request to its response"),
    ("localtimems", "local", "Time in the handler of a request"),
    ("remotetimems", "remote", "Time that a request waits for other brokers, data or a commit"),
    ("requestqueuetimems", "queued", "Time that a request waits for earlier ones of its connection"),
    ("responsesendtimems", "send", "Time to write a response to its socket"),
    ("throttletimems", "throttled", "Throttle time of a request"),
    ("requestbytes", "sizes", "Size of a request"),
)


class RequestFamilies:
    """Families of requests; the quantiles are those of the last minute or more."""

    def __init__(self, metrics: RequestMetrics) -> None:
        self._metrics = metrics
        self._apis: dict[str, _Api] = {}

    def collect(self, now_ms: int) -> Iterator[Family]:
        """Iterate over the families."""
        apis = self._of_names()
        requests = Family(f"{_PREFIX}requests_total", COUNTER, "Number of requests.", ("request", "version"))
        errors = Family(
            f"{_PREFIX}errors_total", COUNTER, "Number of errors in responses, NONE included.", ("request", "error")
        )
        seconds = Family(
            "ottla_request_seconds", HISTOGRAM, "Time from the arrival of a request to its response.", ("request",)
        )
        for name, api in apis.items():
            versions = [{counted.version: counted.count} for part in api.parts for counted in part.parts]
            for version, count in sorted(_sum_by_key(versions).items()):
                requests.add(count, name, str(version))
            for code, count in sorted(_sum_by_key([part.errors_by_code for part in api.parts]).items()):
                errors.add(count, name, name_of(code))
            if name != "Fetch":
                seconds.add(api.seconds(), name)
        yield from (requests, errors, seconds)
        for suffix, kind, text in _TIMES:
            unit, divisor = (", in bytes.", 1.0) if kind == "sizes" else (", in ms.", _NS_A_MS)
            values = Family(f"{_PREFIX}{suffix}", GAUGE, text + unit, ("request", "quantile"))
            counts = Family(f"{_PREFIX}{suffix}_count_total", COUNTER, "Number of requests.", ("request",))
            for name, api in apis.items():
                quantiles(values, api.recent(kind, now_ms), divisor, name)
                counts.add(api.requests, name)
            yield from (values, counts)

    def _of_names(self) -> dict[str, _Api]:
        by_api = self._metrics.by_api
        for name, metrics in by_api.items():
            if name not in self._apis:
                self._apis[name] = _Api(metrics)
        fetches = [by_api[name] for name in ("FetchConsumer", "FetchFollower") if name in by_api]
        if fetches and ("Fetch" not in self._apis or len(self._apis["Fetch"].parts) < len(fetches)):
            self._apis["Fetch"] = _Api(*fetches)
        return dict(sorted(self._apis.items()))


def _sum_by_key(counts: list[dict[int, int]]) -> dict[int, int]:
    whole: dict[int, int] = {}
    for part in counts:
        for key, count in part.items():
            whole[key] = whole.get(key, 0) + count
    return whole
