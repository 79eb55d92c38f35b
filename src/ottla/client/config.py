"""Client configs under Kafka's dotted names: type, default, bounds, in one table.

A name that Kafka's own clients know and that has no meaning here (a serializer, a metric reporter) is accepted and has no
effect, as a name like that has none in Kafka either; any other unknown name is refused with the nearest one that is known.
"""

import difflib
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from ottla.client.errors import InvalidClientConfig
from ottla.records.compression import CODEC_NAMES

DEFAULT_PORT: Final = 9092


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


def addresses(text: str) -> tuple[tuple[str, int], ...]:
    """ "host:port,host:port" as pairs. Raises ValueError."""
    found = []
    for part in text.split(","):
        address = part.strip()
        if not address:
            continue
        host, colon, port = address.rpartition(":")
        if not colon or (":" in host and not (host.startswith("[") and host.endswith("]"))):
            host, port = address, str(DEFAULT_PORT)
        if not port.isdecimal() or not 0 < int(port) < 65536 or not host:
            raise ValueError(f"{address!r} is not host:port")
        found.append((host.strip("[]"), int(port)))
    if not found:
        raise ValueError("names no address")
    return tuple(found)


def _plaintext(text: str) -> str:
    if text.upper() != "PLAINTEXT":
        raise ValueError(f"{text} is not supported by this client yet, only PLAINTEXT")
    return "PLAINTEXT"


_INT32: Final = 2**31 - 1

CONFIGS: Final[dict[str, _Config]] = {
    "bootstrap.servers": _Config((), addresses),
    "client.id": _Config("ottla", str),
    "security.protocol": _Config("PLAINTEXT", _plaintext),
    "request.timeout.ms": _Config(30_000, _integer(1, _INT32)),
    "default.api.timeout.ms": _Config(60_000, _integer(1, _INT32)),
    "socket.connection.setup.timeout.ms": _Config(10_000, _integer(1, _INT32)),
    "connections.max.idle.ms": _Config(540_000, _integer(-1)),
    "retry.backoff.ms": _Config(100, _integer(0, _INT32)),
    "retry.backoff.max.ms": _Config(1000, _integer(0, _INT32)),
    "metadata.max.age.ms": _Config(300_000, _integer(0)),
    "send.buffer.bytes": _Config(-1, _integer(-1, _INT32)),
    "receive.buffer.bytes": _Config(-1, _integer(-1, _INT32)),
    "allow.auto.create.topics": _Config(True, _boolean),
    "client.rack": _Config("", str),
    "group.id": _Config("", str),
    # Reading. The defaults of the two byte limits are larger than Kafka's: whole chunks of columns are read at once.
    "fetch.min.bytes": _Config(1, _integer(0, _INT32)),
    "fetch.max.wait.ms": _Config(500, _integer(0, _INT32)),
    "fetch.max.bytes": _Config(50 << 20, _integer(0, _INT32)),
    "max.partition.fetch.bytes": _Config(4 << 20, _integer(0, _INT32)),
    "isolation.level": _Config("read_uncommitted", _one_of("read_uncommitted", "read_committed")),
    "check.crcs": _Config(True, _boolean),
    # Writing. batch.size is larger than Kafka's 16384: rows are there already, nothing waits for them.
    "acks": _Config(-1, _acks),
    "enable.idempotence": _Config(True, _boolean),
    "max.in.flight.requests.per.connection": _Config(5, _integer(1, _INT32)),
    "compression.type": _Config("none", _one_of(*CODEC_NAMES)),
    "batch.size": _Config(1_000_000, _integer(1, _INT32)),
    "max.request.size": _Config(1 << 20, _integer(1, _INT32)),
    "buffer.memory": _Config(32 << 20, _integer(0)),
    "max.block.ms": _Config(60_000, _integer(0)),
    "delivery.timeout.ms": _Config(120_000, _integer(0, _INT32)),
}

# Known to Kafka's clients, without meaning here.
_WITHOUT_EFFECT: Final = frozenset(
    [
        "auto.commit.interval.ms",
        "auto.include.jmx.reporter",
        "client.dns.lookup",
        "enable.metrics.push",
        "exclude.internal.topics",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "linger.ms",
        "max.poll.interval.ms",
        "max.poll.records",
        "metadata.max.idle.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partition.assignment.strategy",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "partitioner.class",
        "partitioner.ignore.keys",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retries",
        "session.timeout.ms",
        "socket.connection.setup.timeout.max.ms",
        "share.acknowledgement.mode",
    ]
)


class ClientConfig:
    """Parsed configs. Two of the same values are equal and hash alike, so that connections can be kept by them.

    Raises InvalidClientConfig for an unknown name or a bad value; `prefix` is what the user wrote before each name.
    """

    def __init__(self, given: Mapping[str, str], *, prefix: str = "") -> None:
        values = {name: config.default for name, config in CONFIGS.items()}
        for name, text in given.items():
            config = CONFIGS.get(name)
            if config is None:
                if name in _WITHOUT_EFFECT:
                    continue
                nearest = difflib.get_close_matches(name, [*CONFIGS, *_WITHOUT_EFFECT], 1)
                hint = f"; did you mean {prefix}{nearest[0]}?" if nearest else ""
                raise InvalidClientConfig(f"{prefix}{name} is no client config{hint}")
            try:
                values[name] = config.parse(str(text).strip())
            except ValueError as error:
                raise InvalidClientConfig(f"{prefix}{name}={text}: {error}") from None
        if not values["bootstrap.servers"]:
            raise InvalidClientConfig(f"{prefix}bootstrap.servers is missing: HOST:PORT of one broker or more")
        if "enable.idempotence" not in given and (
            values["acks"] != -1 or values["max.in.flight.requests.per.connection"] > 5
        ):
            values["enable.idempotence"] = False  # as Kafka's producer takes conflicting configs (KIP-679)
        if values["enable.idempotence"] and values["acks"] != -1:
            raise InvalidClientConfig(f"{prefix}enable.idempotence=true needs {prefix}acks=all")
        if values["enable.idempotence"] and values["max.in.flight.requests.per.connection"] > 5:
            raise InvalidClientConfig(
                f"{prefix}enable.idempotence=true allows at most 5 {prefix}max.in.flight.requests.per.connection"
            )
        self._values = values
        self._key = tuple(values.items())

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClientConfig) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def bootstrap_servers(self) -> tuple[tuple[str, int], ...]:
        """(host, port) of each."""
        found: tuple[tuple[str, int], ...] = self["bootstrap.servers"]
        return found

    @property
    def read_committed(self) -> bool:
        """Whether aborted and open transactions stay unseen."""
        return bool(self["isolation.level"] == "read_committed")
