"""Configs of this broker that are stored in the metadata: which of them it can use.

What a client may store is checked when it is stored, but the broker that applies it may be another one, in another version, or
one with other start values. A stored config never prevents a start: what cannot be used is ignored, with the reason.
"""

from collections.abc import Sequence

from ottla.broker.config import BrokerConfig
from ottla.broker.security.listener_configs import own_integers
from ottla.metadata.configs import InvalidConfig, Texts, without_invalid


def usable_configs(config: BrokerConfig, *, for_all: Texts, for_this: Texts) -> tuple[BrokerConfig, list[str]]:
    """Return the configs of a broker with those that are stored for all brokers and for this one, and why others are ignored.

    config  has the values that the broker was started with
    """
    for_all, reasons = without_invalid(for_all, for_all=True)
    for_this, of_this = without_invalid(for_this, for_all=False)
    reasons += of_this
    entries = [(0, name, text) for name, text in sorted(for_all.items())]
    entries += [(1, name, text) for name, text in sorted(for_this.items())]
    return _with_usable(config.with_dynamic(for_all={}, for_this={}), entries, reasons), reasons


_Entry = tuple[int, str, str]
"""Name and text of a stored config, after 0 for one of all brokers, 1 for one of this broker."""


def _with_usable(config: BrokerConfig, entries: Sequence[_Entry], reasons: list[str]) -> BrokerConfig:
    """Return `config` with those of `entries` that can be used together, added in their order; why others cannot is added to
    `reasons`. A half without a fault is added at once, so that many entries cost few checks.
    """
    layers = [dict(texts) for _, texts in reversed(config.layers[:2])]
    for layer, name, text in entries:
        layers[layer][name] = text
    attempt = config.with_dynamic(for_all=layers[0], for_this=layers[1])
    try:
        _check(attempt)
        return attempt
    except InvalidConfig as cause:
        if len(entries) == 1:
            reasons.append(f"{entries[0][1]}: {cause}")
            return config
    middle = len(entries) // 2
    return _with_usable(_with_usable(config, entries[:middle], reasons), entries[middle:], reasons)


def _check(config: BrokerConfig) -> None:
    """Raise InvalidConfig if the broker cannot run with these configs."""
    config.check()
    check_limits(config)


def check_limits(config: BrokerConfig) -> None:
    """Raise InvalidConfig for limits with which a running broker would accept no connection; Kafka's text."""
    for name in ("max.connections", "max.connection.creation.rate"):
        if 0 in (config.integer(name), *own_integers(config, name).values()):
            raise InvalidConfig(
                f"Invalid value org.apache.kafka.common.config.ConfigException: Invalid {name} 0 for configuration "
                "Invalid dynamic configuration"
            )
