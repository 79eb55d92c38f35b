"""Configs by name: type, default, valid values, and the current value with its source.

The definitions are in `table.py`; this module parses and validates values. A value is parsed at first use. Error
messages are those of Kafka's ConfigException, because operators search for them.

Sources of a value; the first that is set wins:

    topic    the topic's own text    the broker's default configs for it (log.retention.ms, .minutes, .hours)
    group    the group's own text    the broker's group.* configs
    broker   set for this broker     set for all brokers     file, environment, command line     Kafka's default
"""

import re
from collections.abc import Iterator, Mapping
from math import inf, isfinite
from typing import Any, Final, NamedTuple, Self

from ottla.metadata.configs import table

Value = bool | int | float | str | list[str] | None


class Scope:
    """Type of resource that a config belongs to."""

    BROKER: Final = "broker"
    TOPIC: Final = "topic"
    GROUP: Final = "group"
    CLIENT_METRICS: Final = "client-metrics"


class ConfigSource:
    """Source of a value, as DescribeConfigs numbers it (KIP-226, KIP-1000, KIP-1043)."""

    TOPIC: Final = 1
    DYNAMIC_BROKER: Final = 2
    DYNAMIC_DEFAULT_BROKER: Final = 3
    STATIC_BROKER: Final = 4
    DEFAULT: Final = 5
    DYNAMIC_BROKER_LOGGER: Final = 6
    CLIENT_METRICS: Final = 7
    GROUP: Final = 8


TYPE_IDS: Final = {
    table.BOOLEAN: 1,
    table.STRING: 2,
    table.INT: 3,
    table.SHORT: 4,
    table.LONG: 5,
    table.DOUBLE: 6,
    table.LIST: 7,
    table.CLASS: 8,
    table.PASSWORD: 9,
}
"""Types as DescribeConfigs numbers them (KIP-569)."""


class InvalidConfig(ValueError):
    """Unknown config or invalid value; the message is Kafka's."""


UNKNOWN_TYPE: Final = "unknown"
"""Type of a config that is not in the table."""


class Config(NamedTuple):
    """One row of the table.

    update    how a broker config may change: read-only, per-broker, cluster-wide, dynamic-only; "" elsewhere
    synonyms  the broker configs that provide the value if a topic or group does not set it; the first set one wins
    """

    scope: str
    name: str
    type: str
    default: str | None
    valid: str
    update: str
    synonyms: tuple[str, ...]

    @property
    def sensitive(self) -> bool:
        """True if the value must not be shown."""
        return self.type in (table.PASSWORD, UNKNOWN_TYPE)

    @property
    def is_unknown(self) -> bool:
        """True if Kafka has no such config."""
        return self.type == UNKNOWN_TYPE

    @property
    def read_only(self) -> bool:
        """True if only a restart can change the value."""
        return self.update == table.READ_ONLY

    @property
    def internal(self) -> bool:
        """True if Kafka accepts the config but does not describe it."""
        return self.name in table.INTERNAL or self.update == table.DYNAMIC_ONLY

    @property
    def is_extension(self) -> bool:
        """True if Apache Kafka has no such config: it is described where it is set."""
        return self.name in table.EXTENSIONS


_SCOPES: dict[str, dict[str, Config]] = {}


def configs(scope: str) -> Mapping[str, Config]:
    """Return all configs of `scope` by name."""
    known = _SCOPES.get(scope)
    if known is None:
        known = _SCOPES[scope] = {config.name: config for config in _rows(scope)}
    return known


def _rows(scope: str) -> Iterator[Config]:
    if scope == Scope.BROKER:
        for name, kind, default, valid, update in table.BROKER:
            yield Config(scope, name, kind, default, valid, update, BROKER_SYNONYMS.get(name, ()))
    elif scope == Scope.CLIENT_METRICS:
        for name, kind, default, valid in table.CLIENT_METRICS:
            yield Config(scope, name, kind, default, valid, "", ())
    else:
        for name, kind, default, valid, synonyms in table.TOPIC if scope == Scope.TOPIC else table.GROUP:
            yield Config(scope, name, kind, default, valid, "", synonyms)


BROKER_SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    "log.flush.interval.ms": ("log.flush.scheduler.interval.ms",),
    "log.retention.ms": ("log.retention.minutes", "log.retention.hours"),
    "log.retention.minutes": ("log.retention.hours",),
    "log.roll.ms": ("log.roll.hours",),
    "log.roll.jitter.ms": ("log.roll.jitter.hours",),
}
_UNIT_MS: Final = {"minutes": 60_000, "hours": 3_600_000}
"""Milliseconds of the coarser units, by the last word of the synonym's name."""


def config(scope: str, name: str) -> Config:
    """Return the config `name` of `scope`. Raises InvalidConfig with Kafka's message for an unknown name."""
    known = configs(scope).get(name)
    if known is None:
        raise InvalidConfig(f"Unknown {scope} config name: {name}")
    return known


# Parsing: Kafka's ConfigDef.parseType, then its validators.

_BLANKS: Final = "".join(map(chr, range(0x21)))
"""Characters that Java's `String.trim` removes. Its numbers may have the digits of all scripts, as those of Python's `int`."""
_SEPARATOR: Final = re.compile(r"\s*,\s*", re.ASCII)
_INTEGER: Final = re.compile(r"[+-]?\d+")
_DOUBLE: Final = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[dDfF]?|[+-]?(?:NaN|Infinity)")
_HEXADECIMAL_DOUBLE: Final = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[dDfF]?"
)
_BITS: Final = {table.SHORT: 15, table.INT: 31, table.LONG: 63}


def parse(row: Config, text: str | None) -> Value:
    """Parse and validate `text` as a value of `row`. Raises InvalidConfig with the message of Kafka's ConfigException."""
    value = None if text is None else _typed(row, text)
    _check(row, value)
    return value


def default_value(row: Config) -> Value:
    """Return Kafka's default of a config."""
    return None if row.default is None else _typed(row, row.default)


def _refusal(name: str, value: object, why: str) -> InvalidConfig:
    return InvalidConfig(f"Invalid value {value} for configuration {name}: {why}")


def _typed(row: Config, text: str) -> Value:
    trimmed = text.strip(_BLANKS)
    match row.type:
        case table.BOOLEAN:
            if trimmed.upper() not in ("TRUE", "FALSE"):
                raise _refusal(row.name, text, "Expected value to be either true or false")
            return trimmed.upper() == "TRUE"
        case table.LIST:
            values = _SEPARATOR.split(trimmed) if trimmed else []
            # Of a topic or subscription duplicates are dropped (KIP-1161), of a broker they are refused.
            has_duplicates = row.scope == Scope.BROKER or not row.valid.startswith(_WITHOUT_DUPLICATES)
            return values if has_duplicates else list(dict.fromkeys(values))
        case table.DOUBLE:
            return _double(row, text, trimmed)
        case table.INT | table.SHORT | table.LONG:
            bound = 1 << _BITS[row.type]
            if _INTEGER.fullmatch(trimmed) is None or not -bound <= int(trimmed) < bound:
                raise _refusal(row.name, text, f"Not a number of type {row.type}")
            return int(trimmed)
        case _:
            return trimmed


def _double(row: Config, text: str, trimmed: str) -> float:
    """Parse a number as Java's `Double.parseDouble` does. Raises InvalidConfig."""
    matched = _DOUBLE.fullmatch(trimmed)
    if matched is not None:
        return float(matched[1] or trimmed)
    hexadecimal = _HEXADECIMAL_DOUBLE.fullmatch(trimmed)
    if hexadecimal is None:
        raise _refusal(row.name, text, f"Not a number of type {row.type}")
    try:
        return float.fromhex(hexadecimal[1])
    except OverflowError:
        return -inf if trimmed.startswith("-") else inf


_WITHOUT_DUPLICATES: Final = ("in(", "no duplicates")
_RANGE: Final = re.compile(r"\[(-?[\d.]+)\.\.(-?[\d.]+)\]( or -1)?")
_REPLICAS: Final = re.compile(r"(?:[0-9]+:[0-9]+)?")
_DURATION: Final = re.compile(r"P(?=.)(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?", re.IGNORECASE)


def duration_ms(text: str) -> int:
    """Parse a duration (`PnDTnHnMn.nS`) into ms. Raises ValueError for other texts."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text} is no duration")
    days, hours, minutes, seconds = (float((match[group] or "0_")[:-1]) for group in (1, 3, 4, 5))
    return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)


def _check(row: Config, value: Value) -> None:
    """Raise InvalidConfig unless `row` accepts `value`. The syntax of `valid` is described in table.py."""
    valid = row.valid
    if isinstance(value, list):
        _check_list(row, value)
    elif value is None:
        if valid == "non-null":
            raise _refusal(row.name, "null", "Value must be non-null")
    elif valid.startswith(">="):
        if isinstance(value, (int, float)) and value < float(valid[2:]):
            raise _refusal(row.name, _java(value), f"Value must be at least {valid[2:]}")
    elif (bounds := _RANGE.fullmatch(valid)) and isinstance(value, (int, float)):
        low, high, or_minus_one = bounds[1], bounds[2], bounds[3]
        if or_minus_one:
            if value != -1 and not float(low) <= value <= float(high):
                raise _refusal(row.name, value, f"Value must be between {low} and {high} or equal to -1")
        elif value < float(low):
            raise _refusal(row.name, _java(value), f"Value must be at least {low}")
        elif value > float(high):
            raise _refusal(row.name, _java(value), f"Value must be no more than {high}")
    elif valid.startswith("in(") and isinstance(value, str):
        _check_choice(row, value)
    elif valid == "non-empty" and value == "":
        raise _refusal(row.name, value, "String must be non-empty")
    elif valid == "offset reset" and isinstance(value, str):
        kind, _, duration = value.partition(":")
        if value not in ("earliest", "latest") and (kind != "by_duration" or _DURATION.fullmatch(duration) is None):
            raise _refusal(
                row.name,
                value,
                f"Invalid value `{value}` for configuration {row.name}. The value must be either 'earliest', 'latest' "
                "or of the format 'by_duration:<PnDTnHnMn.nS>'.",
            )


def _check_choice(row: Config, value: str) -> None:
    choices = row.valid[3 : row.valid.index(")")].split("|")
    if row.valid.endswith("case-insensitive"):
        if value.lower() not in [choice.lower() for choice in choices]:
            raise _refusal(row.name, value, f"String must be one of (case insensitive): {', '.join(choices)}")
    elif value not in choices:
        raise _refusal(row.name, value, f"String must be one of: {', '.join(choices)}")


def _check_list(row: Config, values: list[str]) -> None:
    valid = row.valid
    if valid == "replicas":
        if values != ["*"] and not all(_REPLICAS.fullmatch(value) for value in values):
            raise _refusal(
                row.name,
                _java(values),
                f"{row.name} must be the literal '*' or a list of replicas in the following format: "
                "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
            )
        return
    if valid == "no duplicate tags":
        if len(set(values)) != len(values):
            raise InvalidConfig(f"{row.name} must not contain duplicate tag keys.")
        return
    if not values and valid.endswith("non-empty"):
        raise InvalidConfig(f"Configuration '{row.name}' must not be empty. Valid values include: any non-empty value")
    if valid.startswith(_WITHOUT_DUPLICATES) and len(set(values)) != len(values):
        raise InvalidConfig(f"Configuration '{row.name}' values must not be duplicated.")
    for value in values:
        if not value:
            raise InvalidConfig(f"Configuration '{row.name}' values must not be empty.")
        if valid.startswith("in("):
            _check_choice(row, value)


def _java(value: Value) -> str:
    """Format a value as Java prints it in a message."""
    return f"[{', '.join(value)}]" if isinstance(value, list) else text_of(value) or "null"


def text_of(value: Value) -> str | None:
    """Format a value as DescribeConfigs shows it, like Kafka's ConfigDef.convertToString."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(value)
    if isinstance(value, int):
        return str(value)
    if not isfinite(value):
        return {inf: "Infinity", -inf: "-Infinity"}.get(value, "NaN")
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    digits, _, exponent = f"{value!r}".partition("e")
    if not exponent:
        digits, _, exponent = f"{value:.16e}".partition("e")
        digits = digits.rstrip("0")
    whole, _, part = digits.partition(".")
    return f"{whole}.{part or '0'}E{int(exponent)}"


# Values of one resource.


class Values(Mapping[str, Any]):
    """Current values of a resource's configs, parsed at first use and cached. Immutable: a change creates a new object."""

    __slots__ = ("_parsed", "scope")

    def __init__(self, scope: str) -> None:
        self.scope = scope
        self._parsed: dict[str, Value] = {}

    def __getitem__(self, name: str) -> Any:
        try:
            return self._parsed[name]
        except KeyError:
            value = self._parsed[name] = self._value(config(self.scope, name))
            return value

    def _value(self, row: Config) -> Value:
        raise KeyError(row.name)

    def __iter__(self) -> Iterator[str]:
        return iter(configs(self.scope))

    def __len__(self) -> int:
        return len(configs(self.scope))

    def integer(self, name: str) -> int:
        """Return the value of an INT, SHORT or LONG config. Raises InvalidConfig if it is null."""
        value = self[name]
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidConfig(f'Missing required configuration "{name}" which has no default value.')
        return value

    def number(self, name: str) -> float:
        """Return the value of a DOUBLE config."""
        return float(self[name])

    def flag(self, name: str) -> bool:
        """Return the value of a BOOLEAN config."""
        return bool(self[name])

    def text(self, name: str) -> str | None:
        """Return the value of a STRING, CLASS or PASSWORD config."""
        value = self[name]
        return None if value is None else str(value)

    def items_of(self, name: str) -> list[str]:
        """Return the value of a LIST config; an empty list if it is null."""
        return list(self[name] or ())


Texts = Mapping[str, str]
_NOTHING: Final[Texts] = {}
TASK_ASSIGNORS: Final = "group.streams.assignors"
DEFAULT_TASK_ASSIGNOR: Final = "sticky"


class BrokerValues(Values):
    """Configs of a broker in layers: set for this broker, set for all brokers, set at the start, Kafka's defaults.

    assignor_names  names of the task assignors of streams groups by the entries of group.streams.assignors
    """

    __slots__ = ("assignor_names", "layers")

    def __init__(self, static: Texts = _NOTHING, *, for_all: Texts = _NOTHING, for_this: Texts = _NOTHING) -> None:
        super().__init__(Scope.BROKER)
        self.assignor_names: Mapping[str, str] = _NOTHING
        self.layers: tuple[tuple[int, Texts], ...] = (
            (ConfigSource.DYNAMIC_BROKER, for_this),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER, for_all),
            (ConfigSource.STATIC_BROKER, static),
        )

    @property
    def static(self) -> Texts:
        """The configs that the broker was started with."""
        return self.layers[2][1]

    def with_static(self, name: str, text: str) -> Self:
        """Return the same values with another start-up value."""
        copy = type(self)({**self.static, name: text}, for_all=self.layers[1][1], for_this=self.layers[0][1])
        return copy.with_assignor_names(self.assignor_names)

    def with_dynamic(self, *, for_all: Texts, for_this: Texts) -> Self:
        """Return the same start-up values with other dynamic configs."""
        copy = type(self)(self.static, for_all=for_all, for_this=for_this)
        return copy.with_assignor_names(self.assignor_names)

    def with_assignor_names(self, names: Mapping[str, str]) -> Self:
        """Return the same values with the names of task assignors."""
        copy = type(self)(self.static, for_all=self.layers[1][1], for_this=self.layers[0][1])
        copy.assignor_names = names
        return copy

    @property
    def task_assignors(self) -> list[str]:
        """Names of the task assignors; the first one is the default."""
        return [self.assignor_names.get(entry, entry) for entry in self.items_of(TASK_ASSIGNORS)]

    def _value(self, row: Config) -> Value:
        for _, texts in self.layers:
            if row.name in texts:
                return parse(row, texts[row.name])
        return default_value(row)


LISTENER_STORES: Final = frozenset(
    (
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    )
)
"""Configs that change while a broker runs, but only those of single listeners (Kafka's SslConfigs.RECONFIGURABLE_CONFIGS)."""
_LISTENER_PREFIX: Final = re.compile(r"listener\.name\.[^.]*\.(.*)", re.DOTALL)


def without_listener(name: str) -> str | None:
    """Return the config that `listener.name.<listener>.<config>` sets; None for a name without this prefix."""
    matched = _LISTENER_PREFIX.fullmatch(name)
    return None if matched is None else matched[1]


def is_per_broker(name: str) -> bool:
    """Return whether a config is set for one broker only, also with the prefix of a listener."""
    row = configs(Scope.BROKER).get(without_listener(name) or name)
    return row is not None and row.update == table.PER_BROKER


def without_invalid(texts: Texts, *, for_all: bool) -> tuple[Texts, list[str]]:
    """Return stored configs of brokers without those that a broker must ignore, and the reasons, as Kafka's
    DynamicBrokerConfig does: invalid values, and names that AlterConfigs refuses.

    for_all  the configs are those for all brokers
    """
    valid, reasons = {}, []
    for name, text in texts.items():
        try:
            _check_stored(name, text, for_all=for_all)
            valid[name] = text
        except InvalidConfig as cause:
            reasons.append(str(cause))
    return valid, reasons


def _check_stored(name: str, text: str, *, for_all: bool) -> None:
    known = configs(Scope.BROKER)
    row = known.get(name)
    if row is not None and row.read_only:
        raise InvalidConfig(f"{name} cannot be updated dynamically")
    if name in LISTENER_STORES:
        raise InvalidConfig(f"{name} can be dynamically updated only per-listener using the listener prefix")
    if for_all and is_per_broker(name):
        raise InvalidConfig(f"{name} cannot be set at default cluster level, broker id must be specified")
    own = known.get(without_listener(name) or "")
    if own is not None:
        try:
            parse(own, text)
        except InvalidConfig as cause:
            raise InvalidConfig(f"{name}: {cause}") from None
    elif row is not None:
        parse(row, text)


class ResourceValues(Values):
    """Configs of a topic or group: its overrides, and the broker's values for the rest."""

    __slots__ = ("broker", "texts")

    def __init__(self, scope: str, texts: Texts, broker: BrokerValues) -> None:
        super().__init__(scope)
        self.texts = texts
        self.broker = broker

    def _value(self, row: Config) -> Value:
        if row.name in self.texts:
            return parse(row, self.texts[row.name])
        for name in row.synonyms:
            value: Value = self.broker.task_assignors if name == TASK_ASSIGNORS else self.broker[name]
            if value is None:
                continue
            if isinstance(value, int) and (unit := _UNIT_MS.get(name.rpartition(".")[2])):
                return value * unit if value >= 0 else -1
            return (value[0] if value else "") if isinstance(value, list) and row.type != table.LIST else value
        return default_value(row)


def topic_configs(overrides: Texts, broker: BrokerValues) -> ResourceValues:
    """Return the configs of a topic with `overrides`, on a broker with the values `broker`."""
    return ResourceValues(Scope.TOPIC, overrides, broker)


def group_configs(overrides: Texts, broker: BrokerValues) -> ResourceValues:
    """Return the configs of a group with `overrides`, on a broker with the values `broker`."""
    return ResourceValues(Scope.GROUP, overrides, broker)


# Validation.


def validate_topic(overrides: Texts) -> None:
    """Raise InvalidConfig if a name or value of a topic's `overrides` is invalid, or if values contradict each other."""
    rows = [config(Scope.TOPIC, name) for name in overrides]
    parsed = {row.name: parse(row, overrides[row.name]) for row in rows}
    least, most = parsed.get("min.compaction.lag.ms", 0), parsed.get("max.compaction.lag.ms", 2**63 - 1)
    if isinstance(least, int) and isinstance(most, int) and least > most:
        raise InvalidConfig(
            f"conflict topic config setting min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({most})"
        )
    if parsed.get("remote.storage.enable"):
        raise InvalidConfig(
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."
        )


_GROUP_BOUNDS: Final = tuple(
    (f"{kind}.{what}", f"group.{kind}.min.{what}", f"group.{kind}.max.{what}")
    for kind in ("consumer", "share", "streams")
    for what in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
) + tuple(
    (f"share.{what}", f"group.share.min.{what}", f"group.share.max.{what}")
    for what in ("record.lock.duration.ms", "delivery.count.limit", "partition.max.record.locks")
)


_LEAST_OFFSET_INTERVAL: Final = "group.streams.min.task.offset.interval.ms"
_MOST_WARMUP_REPLICAS: Final = 20


def validate_group(overrides: Texts, broker: BrokerValues) -> None:
    """Raise InvalidConfig if a name or value of a group's `overrides` is invalid, or beyond the broker's bounds."""
    rows = [config(Scope.GROUP, name) for name in overrides]
    parsed = {row.name: parse(row, overrides[row.name]) for row in rows}
    for name, least, most in _GROUP_BOUNDS:
        value = parsed.get(name)
        if isinstance(value, int) and not broker.integer(least) <= value <= broker.integer(most):
            raise InvalidConfig(
                f"{name} must be in the range {broker.integer(least)} to {broker.integer(most)} inclusive."
            )
    standby, limit = parsed.get("streams.num.standby.replicas"), broker.integer("group.streams.max.standby.replicas")
    if isinstance(standby, int) and standby > limit:
        raise InvalidConfig(f"streams.num.standby.replicas must be less than or equal to {limit}")
    interval, shortest = parsed.get("streams.task.offset.interval.ms"), broker.integer(_LEAST_OFFSET_INTERVAL)
    if isinstance(interval, int) and interval < shortest:
        raise InvalidConfig(f"streams.task.offset.interval.ms must be greater than or equal to {shortest}")
    warmups = parsed.get("streams.num.warmup.replicas")
    if isinstance(warmups, int) and warmups > _MOST_WARMUP_REPLICAS:
        raise InvalidConfig(f"streams.num.warmup.replicas must be less than or equal to {_MOST_WARMUP_REPLICAS}")
    assignor, known = parsed.get("streams.assignor.name"), broker.task_assignors
    if assignor is not None and assignor not in known:
        raise InvalidConfig(
            f"streams.assignor.name '{assignor}' is not a registered task assignor. "
            f"Registered assignors are: [{', '.join(known)}]."
        )
    if str(parsed.get("errors.deadletterqueue.topic.name") or "").startswith("__"):
        raise InvalidConfig("errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'")
