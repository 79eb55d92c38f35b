"""Descriptions of configs, with the sources of their values, for DescribeConfigs and the responses of CreateTopics."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from ottla.metadata.configs import (
    BROKER_SYNONYMS,
    UNKNOWN_TYPE,
    BrokerValues,
    Config,
    ConfigSource,
    ResourceValues,
    Scope,
    Texts,
    configs,
    parse,
    table,
    text_of,
)
from ottla.metadata.configs.effects import LISTENER_PREFIX


class Synonym(NamedTuple):
    """Possible source of a config's value; `text` is None if it must not be shown."""

    name: str
    text: str | None
    source: int


class Described(NamedTuple):
    """Description of one config of a resource, for DescribeConfigs."""

    config: Config
    text: str | None
    source: int
    synonyms: list[Synonym]

    @property
    def is_default(self) -> bool:
        return self.source == ConfigSource.DEFAULT


_OWN_SOURCE: Final = {
    Scope.TOPIC: ConfigSource.TOPIC,
    Scope.GROUP: ConfigSource.GROUP,
    Scope.CLIENT_METRICS: ConfigSource.CLIENT_METRICS,
}


def describe_broker(broker: BrokerValues) -> Iterator[Described]:
    """Describe all configs of a broker, except internal ones, in alphabetical order."""
    for row in configs(Scope.BROKER).values():
        is_shown = not row.internal and not row.is_extension
        may_be_set = row.is_extension or row.update == table.DYNAMIC_ONLY
        if is_shown or (may_be_set and any(row.name in texts for _, texts in broker.layers)):
            synonyms = _broker_synonyms(row.name, broker)
            source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
            yield Described(row, None if row.sensitive else text_of(broker[row.name]), source, synonyms)

    yield from _describe_listeners(broker)
    yield from _describe_unknown(broker.layers)


def _describe_unknown(layers: Sequence[tuple[int, Texts]]) -> Iterator[Described]:
    """Describe the configs that this broker does not know: their values are not shown, as they may be sensitive."""
    known = configs(Scope.BROKER)
    for name in dict.fromkeys(name for _, texts in layers for name in texts):
        if name not in known and not name.startswith(LISTENER_PREFIX):
            synonyms = [Synonym(name, None, source) for source, texts in layers if name in texts]
            row = Config("", name, UNKNOWN_TYPE, None, "", table.READ_ONLY, ())
            yield Described(row, None, synonyms[0].source, synonyms)


def _describe_listeners(broker: BrokerValues) -> Iterator[Described]:
    """Describe the configs that only one listener or SASL mechanism has, as read-only ones."""
    known = configs(Scope.BROKER)
    names = dict.fromkeys(name for _, texts in broker.layers for name in texts if name.startswith(LISTENER_PREFIX))
    for name in sorted(names):
        of_listener = name.removeprefix(LISTENER_PREFIX).partition(".")[2]
        base = known.get(of_listener) or known.get(of_listener.partition(".")[2])
        if base is None:
            continue
        own = [
            Synonym(name, None if base.sensitive else texts[name], source)
            for source, texts in broker.layers
            if name in texts
        ]
        row = base._replace(name=name, update=table.READ_ONLY)
        yield Described(row, own[0].text, own[0].source, [*own, *_broker_synonyms(base.name, broker)])


def describe_broker_defaults(broker: BrokerValues) -> Iterator[Described]:
    """Describe the configs that are set for all brokers."""
    source, texts = broker.layers[1]
    known = configs(Scope.BROKER)
    for name in texts:
        if name in known:
            text = None if known[name].sensitive else text_of(parse(known[name], texts[name]))
            yield Described(known[name], text, source, [Synonym(name, text, source)])
    yield from _describe_unknown(broker.layers[1:2])


def describe_resource(values: ResourceValues) -> Iterator[Described]:
    """Describe all configs of a topic or group, with the broker configs of their defaults as synonyms."""
    for row in configs(values.scope).values():
        if (row.internal or row.is_extension) and row.name not in values.texts:
            continue
        text = text_of(values[row.name])
        synonyms = _broker_synonyms(row.synonyms[0], values.broker) if row.synonyms else []
        if values.scope == Scope.GROUP and not row.synonyms:
            synonyms.append(Synonym(row.name, row.default, ConfigSource.DEFAULT))
        if row.name in values.texts:
            synonyms.insert(0, Synonym(row.name, text, _OWN_SOURCE[values.scope]))
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
        yield Described(row, text, source, synonyms)


def describe_client_metrics(texts: Texts) -> Iterator[Described]:
    """Describe the configs of a client-metrics subscription (KIP-714)."""
    for row in configs(Scope.CLIENT_METRICS).values():
        own = row.name in texts
        text = text_of(parse(row, texts[row.name] if own else row.default))
        source = ConfigSource.CLIENT_METRICS if own else ConfigSource.DEFAULT
        yield Described(row, text, source, [Synonym(row.name, text, source)] if own else [])


def _broker_synonyms(name: str, broker: BrokerValues) -> list[Synonym]:
    """Return the possible sources of the broker config `name`, most specific first.

    They are ordered by layer, and within a layer the config comes before its synonyms. Kafka drops all sources before the first
    one of the config itself, so that an unset log.retention.ms has no synonyms although log.retention.hours has a value.
    """
    names = (name, *BROKER_SYNONYMS.get(name, ()))
    known = configs(Scope.BROKER)
    sensitive = known[name].sensitive if name in known else False
    synonyms = [
        Synonym(synonym, None if sensitive else texts[synonym], source)
        for source, texts in broker.layers
        for synonym in names
        if synonym in texts
    ]
    for synonym in names:
        default = known[synonym].default if synonym in known else None
        if default is not None:
            synonyms.append(Synonym(synonym, None if sensitive else default, ConfigSource.DEFAULT))
    while synonyms and synonyms[0].name != name:
        del synonyms[0]
    return synonyms
