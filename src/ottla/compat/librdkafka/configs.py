"""Configs of librdkafka, checked with its errors and converted to those of Ottla's client."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from ottla.client.config import ClientConfig
from ottla.client.errors import InvalidClientConfig
from ottla.compat.librdkafka.errors import exception
from ottla.compat.librdkafka.properties import PROPERTIES, Property

logger = logging.getLogger("ottla.compat")

_WITHOUT_SERVERS: Final = "localhost:9092"
"""Address for clients without bootstrap.servers, which librdkafka makes as well."""
_RESETS: Final = {
    "smallest": "earliest",
    "earliest": "earliest",
    "beginning": "earliest",
    "largest": "latest",
    "latest": "latest",
    "end": "latest",
    "error": "none",
}
_LEVELS: Final = {"gzip": "compression.gzip.level", "lz4": "compression.lz4.level", "zstd": "compression.zstd.level"}
_CALLBACKS: Final = ("error_cb", "stats_cb", "throttle_cb", "oauth_cb", "on_delivery", "on_commit")
_DEFAULTS: Final = {
    # Where librdkafka's default is another one than that of Ottla's client.
    "client.id": "rdkafka",
    "message.max.bytes": "1000000",
    "reconnect.backoff.ms": "100",
    "reconnect.backoff.max.ms": "10000",
    "socket.connection.setup.timeout.ms": "30000",
    "partitioner": "consistent_random",
    "delivery.timeout.ms": "300000",
    "queue.buffering.max.kbytes": "1048576",
    "batch.size": "1000000",
    "isolation.level": "read_committed",
    "check.crcs": "false",
    "partition.assignment.strategy": "range,roundrobin",
}
_warned: Final[set[str]] = set()


class Settings(NamedTuple):
    """Parsed configs of a client.

    client     configs of Ottla's client
    own        values of properties that this package acts on itself
    callbacks  functions by name: error_cb, stats_cb, throttle_cb, on_delivery, on_commit
    logger     logger for what goes on, None without one
    """

    client: ClientConfig
    own: dict[str, Any]
    callbacks: dict[str, Callable[..., Any]]
    logger: logging.Logger | None


def settings(kind: str, args: tuple[Any, ...], options: Mapping[str, Any]) -> Settings:
    """Parse what a client was made with: a dictionary, keyword arguments, or both.

    kind  "producer", "consumer", "share consumer" or "admin client"

    Raises TypeError, ValueError, and KafkaException with _INVALID_ARG for a name or value that librdkafka does not know.
    """
    if len(args) > 1 or (args and not isinstance(args[0], dict)) or not (args or options):
        raise TypeError("expected configuration dict")
    configs = {**(args[0] if args else {}), **options}
    if kind.endswith("consumer") and not configs.get("group.id"):
        raise ValueError("Failed to create consumer: group.id must be set")
    return _Parsing(kind).parse(configs)


class _Parsing:
    """Conversion of the configs of one client."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._texts: dict[str, str] = {}
        self._callbacks: dict[str, Callable[..., Any]] = {}
        self._logger: logging.Logger | None = None

    def parse(self, configs: Mapping[Any, Any]) -> Settings:
        flat = dict(configs)
        nested = flat.pop("default.topic.config", None)
        for name, value in {**(nested or {}), **flat}.items():
            self._set(str(name), value)
        self._check()
        own = {name: text for name, text in self._texts.items() if PROPERTIES[name].effect == "own"}
        try:
            client = ClientConfig(self._convert())
        except InvalidClientConfig as error:
            raise exception("_INVALID_ARG", f"Failed to create {self._kind}: {error}") from None
        return Settings(client, own, self._callbacks, self._logger)

    def _set(self, name: str, value: Any) -> None:
        if name == "logger":
            self._logger = value
            return
        if name in _CALLBACKS and self._is_callback(name):
            if value is None:
                return
            if not callable(value):
                if name.startswith("on_"):
                    raise exception("_INVALID_ARG", f"{name} requires a callable object")
                kind = ValueError if name == "throttle_cb" else TypeError
                raise kind(f"expected {name} property as a callable function")
            self._callbacks[name] = value
            return
        row = PROPERTIES.get(name)
        if row is None:
            raise exception("_INVALID_ARG", f'No such configuration property: "{name}"')
        if row.effect == "api":
            raise exception("_INVALID_ARG", f'Property "{name}" must be set through dedicated .._set_..() function')
        if value is None:
            return
        text = str(value)
        _check_value(row, text)
        if row.effect == "refused" and text.lower() != row.default:
            raise exception("_INVALID_ARG", f'Configuration property "{name}" cannot be honoured by Ottla\'s client')
        if row.effect == "none" and text != row.default and name not in _warned:
            _warned.add(name)
            logger.warning("configuration property %s has no effect", name)
        self._texts[name] = text

    def _is_callback(self, name: str) -> bool:
        if name == "on_delivery":
            return self._kind == "producer"
        return name != "on_commit" or self._kind == "consumer"

    def _check(self) -> None:
        """Refuse combinations that librdkafka refuses. Raises KafkaException."""
        texts = self._texts
        protocol = texts.get("security.protocol", "plaintext").lower()
        if protocol.startswith("sasl"):
            mechanism = texts.get("sasl.mechanism") or texts.get("sasl.mechanisms") or "GSSAPI"
            if mechanism == "GSSAPI":
                self._refuse("sasl.mechanism=GSSAPI cannot be honoured by Ottla's client")
            if mechanism.startswith(("PLAIN", "SCRAM")) and not (
                texts.get("sasl.username") and texts.get("sasl.password")
            ):
                self._refuse("sasl.username and sasl.password must be set")
        idempotent = _is_true(texts.get("enable.idempotence", "false"))
        if texts.get("transactional.id") and "enable.idempotence" in texts and not idempotent:
            self._refuse("`transactional.id` requires `enable.idempotence=true`")
        acks = texts.get("acks", texts.get("request.required.acks", "-1"))
        if idempotent and acks not in ("-1", "all"):
            self._refuse("`acks` must be set to `all` when `enable.idempotence` is true")

    def _refuse(self, reason: str) -> None:
        raise exception("_INVALID_ARG", f"Failed to create {self._kind}: {reason}")

    def _convert(self) -> dict[str, Any]:
        """Return the configs of Ottla's client."""
        role = "P" if self._kind == "producer" else "C"
        configs: dict[str, Any] = {"bootstrap.servers": _WITHOUT_SERVERS}
        for name, text in {**_DEFAULTS, **self._texts}.items():
            row = PROPERTIES[name]
            if row.role in ("*", role) and row.effect not in ("own", "none", "refused"):
                convert = _CONVERSIONS.get(name)
                configs[row.effect] = text if convert is None else convert(text)
        self._convert_producer(configs)
        self._convert_consumer(configs)
        self._convert_security(configs)
        return configs

    def _convert_producer(self, configs: dict[str, Any]) -> None:
        if self._kind != "producer":
            return
        idempotent = _is_true(str(configs.get("enable.idempotence", False))) or bool(configs.get("transactional.id"))
        configs["enable.idempotence"] = idempotent
        most = int(configs.get("max.in.flight.requests.per.connection", 1_000_000))
        configs["max.in.flight.requests.per.connection"] = min(most, 5) if idempotent else most
        level, codec = self._texts.get("compression.level"), str(configs.get("compression.type", "none"))
        if level is not None and int(level) >= 0 and codec in _LEVELS:
            configs[_LEVELS[codec]] = level

    def _convert_consumer(self, configs: dict[str, Any]) -> None:
        if self._kind != "consumer":
            return
        configs.setdefault("allow.auto.create.topics", "false")
        configs["enable.auto.commit"] = False  # offsets are stored first (enable.auto.offset.store), and then committed

    def _convert_security(self, configs: dict[str, Any]) -> None:
        texts = self._texts
        if configs.get("ssl.truststore.location") == "probe":
            del configs["ssl.truststore.location"]
        if "ssl.truststore.location" in configs or "ssl.truststore.certificates" in configs:
            configs["ssl.truststore.type"] = "PEM"
        if "ssl.keystore.location" in configs:
            configs["ssl.keystore.type"] = "PKCS12"
        for name, target in (
            ("ssl.key.location", "ssl.keystore.key"),
            ("ssl.certificate.location", "ssl.keystore.certificate.chain"),
        ):
            if texts.get(name):
                try:
                    configs[target] = Path(texts[name]).read_text("utf-8")
                except OSError as error:
                    self._refuse(f"{name} failed: {error}")
        if "ssl.keystore.key" in configs:
            configs["ssl.keystore.type"] = "PEM"
        oauth = self._callbacks.pop("oauth_cb", None)
        if oauth is not None:
            configs["sasl.login.callback.handler.class"] = _token_function(
                oauth, texts.get("sasl.oauthbearer.config", "")
            )


def _token_function(oauth_cb: Callable[[str], Any], config: str) -> Callable[..., tuple[Any, Any]]:
    """Return the token source for an oauth_cb, which returns (token, expiry in s) and perhaps principal and extensions."""

    def token(**options: str) -> tuple[Any, Any]:
        del options
        text, expiry, *_ = oauth_cb(config)
        return text, expiry

    return token


_ALIASES: Final = {
    "acks": "request.required.acks",
    "compression.type": "compression.codec",
    "delivery.timeout.ms": "message.timeout.ms",
    "linger.ms": "queue.buffering.max.ms",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
    "retries": "message.send.max.retries",
}
"""Aliases whose errors name the property behind them."""


def _is_true(text: str) -> bool:
    return text.lower() in ("true", "t", "1")


def _check_value(row: Property, text: str) -> None:
    """Raise KafkaException for a value that a property cannot have."""
    name = _ALIASES.get(row.name, row.name)
    if name == "request.required.acks" and text.lower() == "all":
        return
    if row.kind == "bool":
        if text.lower() not in ("true", "false", "t", "f", "1", "0"):
            raise exception("_INVALID_ARG", f'Expected bool value for "{name}": true or false')
    elif row.kind in ("int", "float"):
        try:
            number = float(text) if row.kind == "float" else int(text)
        except ValueError:
            raise exception("_INVALID_ARG", f'Invalid value for configuration property "{name}"') from None
        low, high = row.bounds.split("..")
        if not int(low) <= number <= int(high):
            reason = f'Configuration property "{name}" value {int(number)} is outside allowed range {low}..{high}\n'
            raise exception("_INVALID_ARG", reason)
    elif row.kind in ("enum", "flags") and row.bounds:
        parts = text.split(",") if row.kind == "flags" else [text]
        if any(part.strip().lower() not in row.bounds.split(",") for part in parts if part.strip()):
            raise exception("_INVALID_ARG", f'Invalid value "{text}" for configuration property "{name}"')
    elif row.name == "partitioner" and text not in _PARTITIONERS:
        raise exception("_INVALID_ARG", f'Invalid value for configuration property "partitioner": {text}')


_PARTITIONERS: Final = (
    "random",
    "consistent",
    "consistent_random",
    "murmur2",
    "murmur2_random",
    "fnv1a",
    "fnv1a_random",
)


def _without_limit(text: str) -> str:
    return "-1" if text == "0" else text


_CONVERSIONS: Final[dict[str, Callable[[str], Any]]] = {
    "acks": lambda text: "all" if text in ("-1", "all") else text,
    "request.required.acks": lambda text: "all" if text in ("-1", "all") else text,
    "auto.offset.reset": lambda text: _RESETS[text.lower()],
    "allow.auto.create.topics": lambda text: _is_true(text),
    "check.crcs": lambda text: _is_true(text),
    "enable.idempotence": lambda text: _is_true(text),
    "compression.codec": lambda text: "none" if text == "inherit" else text,
    "connections.max.idle.ms": _without_limit,
    "queue.buffering.max.kbytes": lambda text: int(text) * 1024,
    "security.protocol": lambda text: text.upper(),
    "share.acknowledgement.mode": lambda text: text.lower(),
    "socket.receive.buffer.bytes": _without_limit,
    "socket.send.buffer.bytes": _without_limit,
    "topic.metadata.refresh.interval.ms": lambda text: "86400000" if text == "-1" else text,
    "ssl.endpoint.identification.algorithm": lambda text: "" if text.lower() == "none" else text,
}
"""Name -> conversion of its text to the value of Ottla's config."""


def number(own: Mapping[str, Any], name: str) -> int:
    """Return a number of `Settings.own`, or librdkafka's default."""
    return int(own.get(name, PROPERTIES[name].default))


def switch(own: Mapping[str, Any], name: str) -> bool:
    """Return a switch of `Settings.own`, or librdkafka's default."""
    return _is_true(own.get(name, PROPERTIES[name].default))
