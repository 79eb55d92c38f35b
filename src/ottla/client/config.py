"""Client configs under Kafka's dotted names: type, default, bounds, in one table.

Configs of Kafka's own clients that have no meaning here (a serializer, a metric reporter) are accepted and ignored. Any
other unknown name is an error, which suggests the nearest known name.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from ottla.client.errors import InvalidClientConfig
from ottla.client.security_configs import (
    CALLABLE,
    KAFKA_PYTHON,
    LIBRDKAFKA,
    SASL_PASSWORD,
    SASL_USERNAME,
    SECRETS,
    SECURITY,
    WITHOUT_EFFECT,
)
from ottla.environment.system import environment_variables
from ottla.properties import BadReference, resolve_references
from ottla.records.codec_names import CODEC_NAMES
from ottla.spelling import nearest

DEFAULT_PORT: Final = 9092
PARTITIONERS: Final = (
    "murmur2_sticky",
    "murmur2",
    "murmur2_random",
    "round_robin",
    "consistent",
    "consistent_random",
    "fnv1a",
    "fnv1a_random",
    "random",
)
"""Partitioners for records without a partition: Kafka's (murmur2_sticky; KIP-480, KIP-794), round robin, librdkafka's."""


class _Config(NamedTuple):
    default: Any
    parse: Callable[[str], Any]


def _integer(low: int, high: int = 2**63 - 1) -> Callable[[str], int]:
    def parse(text: str) -> int:
        number = int(text)
        if not low <= number <= high:
            raise ValueError(f"must be from {low} to {high}" if high < 2**63 - 1 else f"must be at least {low}")
        return number

    return parse


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"


def _one_of(*values: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in values:
            raise ValueError(f"must be one of {', '.join(values)}")
        return text.lower()

    return parse


def _acks(text: str) -> int:
    values = {"all": -1, "-1": -1, "1": 1, "0": 0}
    if text not in values:
        raise ValueError("must be all, -1, 0 or 1")
    return values[text]


_PROTOCOL: Final = re.compile(r"[0-9a-zA-Z%._-]*://")
_HOST: Final = re.compile(r"[0-9a-zA-Z%._:-]+")
"""Characters of hosts and addresses, as in Kafka's clients: an IPv6 address may have a zone behind `%`."""


def addresses(text: str) -> tuple[tuple[str, int], ...]:
    """Parse "host:port,PROTOCOL://host:port" into (host, port) pairs. Raises ValueError.

    The protocol has no effect, as in Kafka's clients: security.protocol decides.
    """
    pairs = []
    for part in text.split(","):
        address = part.strip()
        if not address:
            continue
        protocol = _PROTOCOL.match(address)
        if protocol is not None:
            address = address[protocol.end() :]
        host, colon, port = address.rpartition(":")
        if not colon or (":" in host and not (host.startswith("[") and host.endswith("]"))):
            host, port = address, str(DEFAULT_PORT)
        if not (port.isascii() and port.isdecimal()) or not 0 < int(port) < 65536 or not host:
            raise ValueError(f"{part.strip()!r} is not host:port")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        if not _HOST.fullmatch(host):
            raise ValueError(f"{part.strip()!r} has characters that no host has")
        pairs.append((host, int(port)))
    if not pairs:
        raise ValueError("names no address")
    return tuple(pairs)


def _offset_reset(text: str) -> str:
    if text in ("earliest", "latest", "none"):
        return text
    if not text.startswith("by_duration:"):
        raise ValueError("must be earliest, latest, none or by_duration:PnDTnHnMn.nS")
    duration_ms(text.removeprefix("by_duration:"))
    return text


_DURATION: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,9})?)S)?)?",
    re.IGNORECASE,
)


def duration_ms(text: str) -> int:
    """Convert an ISO-8601 duration of days and time ("P1DT2H3M4.5S") to ms. Raises ValueError."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groupdict().values()) or text[-1] in "Tt":
        raise ValueError(f"{text!r} is no duration like P1DT2H30M")
    parts = {name: float(value or 0) for name, value in match.groupdict().items()}
    seconds = parts["days"] * 86_400 + parts["hours"] * 3600 + parts["minutes"] * 60 + parts["seconds"]
    return round(seconds * 1000)


def _number(low: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        number = float(text)
        if not low <= number < float("inf"):
            raise ValueError(f"must be at least {low}")
        return number

    return parse


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _optional(text: str) -> str | None:
    return text or None


_INT32: Final = 2**31 - 1

CONFIGS: Final[dict[str, _Config]] = {
    # All clients.
    "bootstrap.servers": _Config((), addresses),
    "bootstrap.resolve.timeout.ms": _Config(0, _integer(0)),  # KIP-909
    "client.id": _Config("ottla", str),
    "request.timeout.ms": _Config(30_000, _integer(1, _INT32)),
    "default.api.timeout.ms": _Config(60_000, _integer(1, _INT32)),
    "socket.connection.setup.timeout.ms": _Config(10_000, _integer(1, _INT32)),
    "socket.connection.setup.timeout.max.ms": _Config(30_000, _integer(1, _INT32)),
    "reconnect.backoff.ms": _Config(50, _integer(0, _INT32)),
    "reconnect.backoff.max.ms": _Config(1000, _integer(0, _INT32)),
    "connections.max.idle.ms": _Config(540_000, _integer(-1)),
    "retry.backoff.ms": _Config(100, _integer(0, _INT32)),
    "retry.backoff.max.ms": _Config(1000, _integer(0, _INT32)),
    "metadata.max.age.ms": _Config(300_000, _integer(0)),
    "metadata.max.idle.ms": _Config(300_000, _integer(5000)),
    "metadata.recovery.strategy": _Config("rebootstrap", _one_of("none", "rebootstrap")),
    "metadata.recovery.rebootstrap.trigger.ms": _Config(300_000, _integer(0)),
    "send.buffer.bytes": _Config(-1, _integer(-1, _INT32)),
    "receive.buffer.bytes": _Config(-1, _integer(-1, _INT32)),
    "receive.message.max.bytes": _Config(100_000_000, _integer(1000, _INT32)),
    "client.rack": _Config("", str),
    "enable.metrics.push": _Config(True, _boolean),  # KIP-714
    # Consumers.
    "allow.auto.create.topics": _Config(True, _boolean),
    "exclude.internal.topics": _Config(True, _boolean),
    "group.id": _Config("", str),
    "group.instance.id": _Config(None, _optional),
    "group.protocol": _Config("classic", _one_of("classic", "consumer")),
    "group.remote.assignor": _Config(None, _optional),
    "partition.assignment.strategy": _Config(("range", "cooperative-sticky"), _names),
    "session.timeout.ms": _Config(45_000, _integer(0, _INT32)),
    "heartbeat.interval.ms": _Config(3000, _integer(0, _INT32)),
    "max.poll.interval.ms": _Config(300_000, _integer(1, _INT32)),
    "max.poll.records": _Config(500, _integer(1, _INT32)),
    "enable.auto.commit": _Config(True, _boolean),
    "auto.commit.interval.ms": _Config(5000, _integer(0, _INT32)),
    "auto.offset.reset": _Config("latest", _offset_reset),
    "fetch.min.bytes": _Config(1, _integer(0, _INT32)),
    "fetch.max.wait.ms": _Config(500, _integer(0, _INT32)),
    "fetch.max.bytes": _Config(50 << 20, _integer(0, _INT32)),
    "max.partition.fetch.bytes": _Config(1 << 20, _integer(0, _INT32)),
    "isolation.level": _Config("read_uncommitted", _one_of("read_uncommitted", "read_committed")),
    "check.crcs": _Config(True, _boolean),
    "share.acknowledgement.mode": _Config("implicit", _one_of("implicit", "explicit")),
    "share.acquire.mode": _Config("batch_optimized", _one_of("batch_optimized", "record_limit")),
    # Producers.
    "acks": _Config(-1, _acks),
    "enable.idempotence": _Config(True, _boolean),
    "max.in.flight.requests.per.connection": _Config(5, _integer(1, _INT32)),
    "retries": _Config(_INT32, _integer(0, _INT32)),
    "compression.type": _Config("none", _one_of(*CODEC_NAMES)),
    "compression.gzip.level": _Config(-1, _integer(-1, 9)),
    "compression.lz4.level": _Config(9, _integer(1, 17)),
    "compression.zstd.level": _Config(3, _integer(-131072, 22)),
    "linger.ms": _Config(5.0, _number(0)),
    "batch.size": _Config(131_072, _integer(0, _INT32)),  # Kafka: 16384, three times the CPU time for 1 KB
    "max.request.size": _Config(1 << 20, _integer(0, _INT32)),
    "buffer.memory": _Config(32 << 20, _integer(0)),
    "max.block.ms": _Config(60_000, _integer(0)),
    "delivery.timeout.ms": _Config(120_000, _integer(0, _INT32)),
    "partitioner": _Config("murmur2_sticky", _one_of(*PARTITIONERS)),
    "partitioner.ignore.keys": _Config(False, _boolean),
    "transactional.id": _Config(None, _optional),
    "transaction.timeout.ms": _Config(60_000, _integer(1, _INT32)),
    "transaction.two.phase.commit.enable": _Config(False, _boolean),
    "interceptor.classes": _Config(None, str),
    **{name: _Config(*row) for name, row in SECURITY.items()},
}

BULK: Final[dict[str, Any]] = {"max.partition.fetch.bytes": 4 << 20, "batch.size": 1_000_000}
"""Defaults for clients that transfer whole columnar batches: larger fetches and batches, as latency matters less."""

# Configs of Kafka's clients that are ignored here.
_WITHOUT_EFFECT: Final = frozenset(
    [
        "auto.include.jmx.reporter",
        "client.dns.lookup",
        "key.deserializer",
        "key.serializer",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "partitioner.class",
        "security.providers",
        "value.deserializer",
        "value.serializer",
        *WITHOUT_EFFECT,
    ]
)


_PROVIDERS: Final = "config.providers."
"""Prefix of the configs of providers, which have names of the user's choice."""

_LIBRDKAFKA: Final[dict[str, str]] = {
    "auto.commit.enable": "enable.auto.commit",
    "auto.commit.interval": "auto.commit.interval.ms",
    "batch.num.messages": "batch.size (bytes)",
    "compression.codec": "compression.type",
    "compression.level": "compression.zstd.level, compression.gzip.level or compression.lz4.level",
    "enable.auto.offset.store": "enable.auto.commit",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "message.max.bytes": "max.request.size",
    "message.send.max.retries": "retries",
    "message.timeout.ms": "delivery.timeout.ms",
    "metadata.broker.list": "bootstrap.servers",
    "metadata.max.idle": "metadata.max.idle.ms",
    "queue.buffering.max.kbytes": "buffer.memory (bytes)",
    "queue.buffering.max.messages": "buffer.memory (bytes)",
    "queue.buffering.max.ms": "linger.ms",
    "queued.max.messages.kbytes": "max.partition.fetch.bytes",
    "queued.min.messages": "max.partition.fetch.bytes",
    "reconnect.backoff.jitter.ms": "reconnect.backoff.ms",
    "request.required.acks": "acks",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "socket.timeout.ms": "request.timeout.ms",
    "sticky.partitioning.linger.ms": "batch.size (bytes; KIP-794)",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
    **LIBRDKAFKA,
}
"""Names of librdkafka and confluent-kafka -> Kafka's names."""


def _configs_from_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Convert keyword arguments to configs: `group_id` becomes group.id; None values are left out."""
    undotted = (SASL_USERNAME, SASL_PASSWORD)
    return {
        name if name in undotted else name.replace("_", "."): value
        for name, value in options.items()
        if value is not None
    }


def _text(value: Any) -> str:
    """Format a value as in a properties file."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value).strip()


_NO_PROVIDERS: Final = "OTTLA_CLIENT_CONFIG_PROVIDERS"


def _resolve_secrets(configs: Mapping[str, Any], prefix: str) -> Mapping[str, Any]:
    """Replace references to secrets by config.providers (KIP-297). Raises InvalidClientConfig.

    The environment variable OTTLA_CLIENT_CONFIG_PROVIDERS=none switches providers off, as Apache Kafka's system property
    org.apache.kafka.automatic.config.providers does: for programs whose configs come from others (CVE-2024-31141).
    """
    if not configs.get("config.providers"):
        if not any("${" in value for value in configs.values() if isinstance(value, str)):
            return configs
    elif environment_variables().get(_NO_PROVIDERS) == "none":
        raise InvalidClientConfig(
            f"{prefix}config.providers are switched off by the environment variable {_NO_PROVIDERS}"
        )
    texts = {name: _text(value) for name, value in configs.items() if name not in CALLABLE}
    try:
        resolved = resolve_references(texts, lambda path: Path(path).read_text("utf-8"), environment_variables())
    except BadReference as cause:
        raise InvalidClientConfig(f"{prefix}config.providers: {cause}") from None
    return {**configs, **resolved}


class ClientConfig:
    """Parsed configs. Equal values compare and hash equal, so that a config can be the key of a connection cache.

    prefix    prefix of each name as the user wrote it, used in error messages
    defaults  defaults in place of Kafka's

    Raises InvalidClientConfig for an unknown name or a bad value.
    """

    def __init__(
        self, configs: Mapping[str, Any], *, prefix: str = "", defaults: Mapping[str, Any] | None = None
    ) -> None:
        values = {name: config.default for name, config in CONFIGS.items()} | dict(defaults or {})
        unresolved, configs = configs, _resolve_secrets(configs, prefix)
        for name, value in configs.items():
            config = CONFIGS.get(name)
            if config is None:
                if name in _WITHOUT_EFFECT or f"{name}.".startswith(_PROVIDERS):
                    continue
                known = _LIBRDKAFKA.get(name)
                if known is not None:
                    raise InvalidClientConfig(f"{prefix}{name} is a name of librdkafka; Kafka's is {prefix}{known}")
                known = KAFKA_PYTHON.get(name.replace("_", "."))
                if known is not None:
                    raise InvalidClientConfig(f"{prefix}{name} is a name of kafka-python; Kafka's is {prefix}{known}")
                near = nearest(name, [*CONFIGS, "config.providers", *sorted(_WITHOUT_EFFECT)])
                hint = f"; did you mean {prefix}{near}?" if near is not None else ""
                raise InvalidClientConfig(f"{prefix}{name} is no client config{hint}")
            if name in CALLABLE and not isinstance(value, str):
                values[name] = value
                continue
            try:
                values[name] = config.parse(_text(value))
            except ValueError as error:
                is_reference = _text(unresolved[name]) != _text(value)
                shown = "[hidden]" if name in SECRETS else unresolved[name]
                reason = "the value that it refers to is invalid" if is_reference else error
                raise InvalidClientConfig(f"{prefix}{name}={shown}: {reason}") from None
        if not values["bootstrap.servers"]:
            raise InvalidClientConfig(f"{prefix}bootstrap.servers is missing: HOST:PORT of one broker or more")
        _settle_idempotence(values, configs, prefix)
        self._values = values
        self._key = tuple(values.items())

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    @property
    def by_name(self) -> dict[str, Any]:
        """Return the values by name, which are not to be changed: for code that needs several of them for each record."""
        return self._values

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClientConfig) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def bootstrap_servers(self) -> tuple[tuple[str, int], ...]:
        """Return (host, port) of each bootstrap server."""
        servers: tuple[tuple[str, int], ...] = self["bootstrap.servers"]
        return servers

    @property
    def read_committed(self) -> bool:
        """True if records of aborted and open transactions are not returned."""
        return bool(self["isolation.level"] == "read_committed")


def config_of(configs: Mapping[str, Any] | ClientConfig | None, options: Mapping[str, Any]) -> ClientConfig:
    """Parse what a client was created with: configs by their names, and by keyword arguments.

    Raises TypeError for anything else, InvalidClientConfig for an unknown name or a bad value.
    """
    if isinstance(configs, ClientConfig):
        return configs
    if configs is not None and not isinstance(configs, Mapping):
        raise TypeError(
            'a client takes its configs by name, bootstrap_servers="localhost:9092" or '
            f'{{"bootstrap.servers": "localhost:9092"}}, not {configs!r}'
        )
    return ClientConfig({**(configs or {}), **_configs_from_options(options)})


def _settle_idempotence(values: dict[str, Any], configs: Mapping[str, Any], prefix: str) -> None:
    """Set the configs that idempotence requires; resolve conflicts as Kafka's producer does (KIP-679)."""
    in_flight = values["max.in.flight.requests.per.connection"]
    conflicts = values["acks"] != -1 or in_flight > 5 or values["retries"] == 0
    if "enable.idempotence" not in configs and conflicts and values["transactional.id"] is None:
        values["enable.idempotence"] = False
    if not values["enable.idempotence"]:
        if values["transactional.id"] is not None:
            raise InvalidClientConfig(f"{prefix}transactional.id needs {prefix}enable.idempotence=true")
        return
    if values["acks"] != -1:
        raise InvalidClientConfig(f"{prefix}enable.idempotence=true needs {prefix}acks=all")
    if in_flight > 5:
        raise InvalidClientConfig(
            f"{prefix}enable.idempotence=true allows at most 5 {prefix}max.in.flight.requests.per.connection"
        )
    if values["retries"] == 0:
        raise InvalidClientConfig(f"{prefix}enable.idempotence=true needs {prefix}retries above 0")
