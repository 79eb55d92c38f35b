"""Listeners of a broker by its configs: names, addresses, security protocols, and the configs that only one listener has.

    listener.name.<listener>.<config>              beats <config> for that listener
    listener.name.<listener>.<mechanism>.<config>  beats both for one SASL mechanism there

Names of listeners and mechanisms are in lower case in these prefixes.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from ottla.addresses import address_text
from ottla.metadata.configs import (
    LISTENER_STORES,
    BrokerValues,
    Config,
    InvalidConfig,
    Texts,
    Value,
    default_value,
    parse,
)

PLAINTEXT: Final = "PLAINTEXT"
SSL: Final = "SSL"
SASL_PLAINTEXT: Final = "SASL_PLAINTEXT"
SASL_SSL: Final = "SASL_SSL"
_PROTOCOLS: Final = (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL)


class Listener(NamedTuple):
    """One entry of `listeners`; an empty `host` means all addresses, port 0 any free port."""

    name: str
    host: str
    port: int
    protocol: str

    def __str__(self) -> str:
        return f"{self.name}://{self.address}"

    @property
    def address(self) -> str:
        """Host and port, an IPv6 address in brackets."""
        return address_text(self.host, self.port)

    @property
    def has_tls(self) -> bool:
        """True for SSL and SASL_SSL."""
        return self.protocol.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        """True for SASL_PLAINTEXT and SASL_SSL."""
        return self.protocol.startswith("SASL")


_RECONFIGURED: Final = LISTENER_STORES | {"max.connections", "max.connection.creation.rate"}
"""Configs of a listener that take effect while the broker runs, and after a restart."""


class ListenerValues(BrokerValues):
    """Configs of a broker as one listener has them, or one SASL mechanism of a listener.

    Who may log in, and as whom, is decided by the configs that the broker was started with: those that clients have stored
    count for stores and connection limits only. Apache Kafka stores the others too, and they have no effect there either.
    """

    __slots__ = ("prefixes",)

    def __init__(self, broker: BrokerValues, listener: str, mechanism: str | None = None) -> None:
        super().__init__()
        self.layers = broker.layers
        prefix = f"listener.name.{listener.lower()}."
        self.prefixes = [prefix] if mechanism is None else [f"{prefix}{mechanism.lower()}.", prefix]

    def with_start_values(self) -> "ListenerValues":
        """Return these values without those that are stored in the metadata."""
        values = ListenerValues(BrokerValues(self.static), "")
        values.prefixes = self.prefixes
        return values

    def _texts(self, name: str) -> Iterator[Texts]:
        """Return the layers that count for a config."""
        return (texts for _, texts in self.layers if texts is self.static or name in _RECONFIGURED)

    def _value(self, row: Config) -> Value:
        for name in (*(prefix + row.name for prefix in self.prefixes), row.name):
            for texts in self._texts(row.name):
                if name in texts:
                    return parse(row, texts[name])
        return default_value(row)

    def own_text(self, name: str) -> str | None:
        """Return the value of a config that is set for the mechanism itself, None if only a wider one is."""
        own = self.prefixes[0] + name
        return next((texts[own] for texts in self._texts(name) if own in texts), None)


def own_integers(config: BrokerValues, name: str) -> dict[str, int]:
    """Return the values of a config that listeners have for themselves, by name of the listener. Raises InvalidConfig."""
    values = {listener.name: ListenerValues(config, listener.name) for listener in client_listeners(config)}
    return {listener: own.integer(name) for listener, own in values.items() if own.own_text(name) is not None}


def security_protocols(config: BrokerValues) -> dict[str, str]:
    """Return the security protocol of each listener name: listener.security.protocol.map. Raises InvalidConfig."""
    protocols: dict[str, str] = {}
    for pair in filter(None, map(str.strip, (config.text("listener.security.protocol.map") or "").split(","))):
        name, _, protocol = pair.partition(":")
        if protocol.upper() not in _PROTOCOLS:
            raise InvalidConfig(f"Invalid security protocol `{protocol}` defined in listener.security.protocol.map")
        protocols[name.strip().upper()] = protocol.upper()
    return protocols


def parse_listeners(config: BrokerValues, name: str) -> list[Listener]:
    """Return the entries of `listeners` or `advertised.listeners`. Raises InvalidConfig."""
    protocols = security_protocols(config)
    listeners: list[Listener] = []
    for text in config.items_of(name):
        matched = re.fullmatch(r"(\w+)://(?:\[([0-9a-fA-F:.%]*)\]|([^:\[\]/]*)):(\d{1,5})", text)
        if matched is None or int(matched[4]) > 65535:
            raise InvalidConfig(
                f"Invalid value {text} for configuration {name}: a listener is NAME://host:port, as in "
                "PLAINTEXT://127.0.0.1:9092"
            )
        listener = matched[1].upper()
        protocol = protocols.get(listener)
        if protocol is None:
            raise InvalidConfig(
                f"Invalid value {text} for configuration {name}: "
                f"No security protocol defined for listener {listener}; set listener.security.protocol.map"
            )
        if any(known.name == listener for known in listeners):
            raise InvalidConfig(
                f"Invalid value {text} for configuration {name}: Each listener must have a different name"
            )
        listeners.append(Listener(listener, matched[2] or matched[3] or "", int(matched[4]), protocol))
    return listeners


def inter_broker_listener(config: BrokerValues, listeners: Sequence[Listener]) -> Listener | None:
    """Return the listener that brokers use among themselves: that of inter.broker.listener.name, else the first one with
    security.inter.broker.protocol. Raises InvalidConfig if it is configured and not one of `listeners`; None if only the
    default protocol has none, which does not matter to a single broker.
    """
    named = config.text("inter.broker.listener.name")
    is_protocol_set = any("security.inter.broker.protocol" in texts for _, texts in config.layers)
    if named is not None and is_protocol_set:
        raise InvalidConfig("Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.")
    if named is not None and named.upper() not in security_protocols(config):
        raise InvalidConfig(
            f"Listener with name {named.upper()} defined in inter.broker.listener.name not found in "
            "listener.security.protocol.map."
        )
    protocol = config.text("security.inter.broker.protocol")
    for listener in listeners:
        if (listener.protocol == protocol) if named is None else (listener.name == named.upper()):
            return listener
    if named is not None or is_protocol_set:
        raise InvalidConfig(
            "inter.broker.listener.name must be a listener name defined in advertised.listeners. The valid options based "
            f"on currently configured listeners are {','.join(listener.name for listener in listeners)}"
        )
    return None


def client_listeners(config: BrokerValues) -> list[Listener]:
    """Return the entries of `listeners` without those of the controller. Raises InvalidConfig."""
    apart = set(config.items_of("controller.listener.names"))
    return [listener for listener in parse_listeners(config, "listeners") if listener.name not in apart]


def check_listeners(config: BrokerValues) -> None:
    """Raise InvalidConfig for listeners that a broker cannot have together."""
    listeners = client_listeners(config)
    if not listeners:
        raise InvalidConfig("Invalid value  for configuration listeners: there is no listener for clients")
    _check_ports(listeners)
    every = {listener.name for listener in parse_listeners(config, "listeners")}
    every_advertised = parse_listeners(config, "advertised.listeners")
    for advertised in every_advertised:
        if advertised.host == "0.0.0.0":
            raise InvalidConfig(
                "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address."
            )
        if advertised.name not in every:
            raise InvalidConfig(
                f"advertised.listeners has the listener {advertised.name}, which is not in listeners: "
                f"{','.join(sorted(every))}"
            )
    for name in config.items_of("early.start.listeners"):
        if name.upper() not in every | set(config.items_of("controller.listener.names")):
            raise InvalidConfig(
                f"early.start.listeners contains listener {name.upper()}, but this is not contained in listeners or "
                "controller.listener.names"
            )
    inter_broker_listener(config, every_advertised or listeners)


def _check_ports(listeners: Sequence[Listener]) -> None:
    """Raise InvalidConfig for two listeners on a port, unless one is for IPv4 and the other for IPv6."""
    taken: dict[int, Listener] = {}
    for listener in listeners:
        other = taken.setdefault(listener.port, listener) if listener.port else listener
        if other is not listener and (":" in other.host) == (":" in listener.host):
            raise InvalidConfig(
                "If you have two listeners on the same port then one needs to be IPv4 and the other IPv6, "
                f"listeners: {other},{listener}, port: {listener.port}"
            )
