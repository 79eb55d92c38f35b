"""Metrics of clients for OpenTelemetry: handed to a meter provider of the application.

    from ottla.client.opentelemetry import observe

    observe(producer)

The metrics have the names that clients push to brokers (KIP-714): `record-send-total` of the group `producer-metrics` is
`org.apache.kafka.producer.record.send.total`. Totals are observable counters, all others are observable gauges. Needs the extra
`opentelemetry`; nothing else imports this file.
"""

import weakref
from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from math import isnan
from typing import Final, TypeAlias

from ottla.extras import install_command

if find_spec("opentelemetry") is None:
    raise ImportError(f"Metrics for OpenTelemetry need opentelemetry-api: {install_command('opentelemetry')}")

from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation, get_meter_provider

from ottla.client import aio, blocking
from ottla.client.awaiting import Asynchronous
from ottla.client.errors import IllegalState
from ottla.client.metrics import MetricValues, Tags
from ottla.client.telemetry.otlp import metric_name
from ottla.version import VERSION

Client: TypeAlias = (
    blocking.Producer | blocking.Consumer | blocking.ShareConsumer | aio.Producer | aio.Consumer | aio.ShareConsumer
)
_Name: TypeAlias = tuple[str, str]
"""Group and name of a metric."""
_OF_TOPICS: Final = tuple(
    ("producer-topic-metrics", f"{name}-{kind}") for name in ("record-send", "byte") for kind in ("total", "rate")
)
_OF_PARTITIONS: Final = (("consumer-fetch-manager-metrics", "records-lag"),)
_OF_NODES: Final[Mapping[str, tuple[_Name, ...]]] = {
    kind: tuple((f"{kind}-node-metrics", f"request-latency-{statistic}") for statistic in ("avg", "max"))
    for kind in ("producer", "consumer")
}
_LATER: Final[Mapping[type, tuple[_Name, ...]]] = {
    blocking.Producer: _OF_TOPICS + _OF_NODES["producer"],
    aio.Producer: _OF_TOPICS + _OF_NODES["producer"],
    blocking.Consumer: _OF_PARTITIONS + _OF_NODES["consumer"],
    aio.Consumer: _OF_PARTITIONS + _OF_NODES["consumer"],
    blocking.ShareConsumer: _OF_NODES["consumer"],
    aio.ShareConsumer: _OF_NODES["consumer"],
}
"""Names of metrics that a new client does not have yet."""
_PATIENCE_S: Final = 1.0
"""Longest wait for the event loop of an asyncio client."""


def observe(client: Client, meter_provider: MeterProvider | None = None) -> None:
    """Have the metrics of a client read at each collection of a meter provider, until the client is closed.

    Those of an asyncio client are read on its event loop; while that is busy for a second, a collection has none of them.

    meter_provider  that of the application by default, see `opentelemetry.metrics.set_meter_provider`
    """
    provider = meter_provider or get_meter_provider()
    instruments = _INSTRUMENTS.get(provider)
    if instruments is None:
        instruments = _INSTRUMENTS[provider] = _Instruments(provider.get_meter("ottla", VERSION))
    instruments.add(client)


class _Instruments:
    """Instruments of a meter, each for all clients: a meter ignores a second instrument of the same name."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._readings: list[_Reading] = []
        self._names: set[_Name] = set()

    def add(self, client: Client) -> None:
        self._readings = [*(reading for reading in self._readings if reading.is_open), _Reading(client)]
        names = {(key.group, key.name) for key in _metrics(client)} | {*_LATER.get(type(client), ())}
        for group, name in sorted(names - self._names):
            self._names.add((group, name))
            is_total = name.endswith("-total")
            create = self._meter.create_observable_counter if is_total else self._meter.create_observable_gauge
            callback = partial(self._observations, (group, name))
            create(metric_name(group, name), [callback], description=f"{name} of {group}")

    def _observations(self, asked: _Name, _: CallbackOptions) -> list[Observation]:
        return [
            Observation(value, {tag.replace("-", "_"): text for tag, text in tags})
            for reading in self._readings
            for tags, value in reading.values(asked)
        ]


class _Reading:
    """Values of a client at one collection, which asks for each name: they are read again when one is asked for twice."""

    def __init__(self, client: Client) -> None:
        self._client = weakref.ref(client)
        self._values: dict[_Name, list[tuple[Tags, float]]] = {}
        self._given: set[_Name] = set()
        self._is_read = False

    @property
    def is_open(self) -> bool:
        """False if the client is closed."""
        client = self._client()
        return client is not None and not client.closed

    def values(self, asked: _Name) -> list[tuple[Tags, float]]:
        """Return the values of a name with their tags."""
        if asked in self._given or not self._is_read:
            self._read()
        self._given.add(asked)
        return self._values.get(asked, [])

    def _read(self) -> None:
        self._is_read = True
        self._given.clear()
        self._values.clear()
        client = self._client()
        if client is not None and not client.closed:
            for key, value in _metrics(client).items():
                if not isnan(value):
                    self._values.setdefault((key.group, key.name), []).append((key.tags, value))


def _metrics(client: Client) -> MetricValues:
    """Return the metrics of a client, from any thread; none if its event loop does not answer."""
    if not isinstance(client, Asynchronous):
        return client.metrics()
    try:
        return client.call_from_thread(client.metrics, _PATIENCE_S)
    except (IllegalState, RuntimeError, TimeoutError):
        return MetricValues()


_INSTRUMENTS: Final[weakref.WeakKeyDictionary[MeterProvider, _Instruments]] = weakref.WeakKeyDictionary()
