"""Configs of topics whose records must have registered schemas, under the names of Confluent Server and of Redpanda."""

from typing import Any, Final, NamedTuple

from ottla.metadata.configs import BrokerValues, InvalidConfig, Scope, Texts, config, parse
from ottla.records.schema_ids import RECORD_NAME, TOPIC_NAME, TOPIC_RECORD_NAME

REGISTRY_URL: Final = "confluent.schema.registry.url"
KEY: Final = "key"
VALUE: Final = "value"
_STRATEGIES: Final = {
    "TopicNameStrategy": TOPIC_NAME,
    "RecordNameStrategy": RECORD_NAME,
    "TopicRecordNameStrategy": TOPIC_RECORD_NAME,
}


class _Names(NamedTuple):
    """Configs that say the same: Confluent's, and Redpanda's."""

    confluent: str
    redpanda: str


def _enabling(field: str) -> _Names:
    return _Names(f"confluent.{field}.schema.validation", f"redpanda.{field}.schema.id.validation")


def _naming(field: str) -> _Names:
    return _Names(f"confluent.{field}.subject.name.strategy", f"redpanda.{field}.subject.name.strategy")


def strategy_of(texts: Texts, field: str) -> int | None:
    """Return how subjects are named if keys or values of a topic are validated, otherwise None.

    texts  configs of the topic, which are valid
    field  KEY or VALUE
    """
    if _value(texts, _enabling(field)) is not True:
        return None
    return _STRATEGIES[str(_value(texts, _naming(field))).rpartition(".")[2]]


def _value(texts: Texts, names: _Names) -> Any:
    """Return the value that one of two configs has, or the default."""
    name = next((name for name in names if name in texts), names.confluent)
    row = config(Scope.TOPIC, name)
    return parse(row, texts.get(name, row.default))


def check(current: Texts, texts: Texts, broker: BrokerValues) -> None:
    """Check new configs of a topic, the values of which are valid one by one.

    Raises InvalidConfig for contradicting names, and for validation that begins where no registry is configured.
    """
    for field in (KEY, VALUE):
        for names in (_enabling(field), _naming(field)):
            values = {str(_value({name: texts[name]}, names)).rpartition(".")[2] for name in names if name in texts}
            if len(values) > 1:
                raise InvalidConfig(f"{names.confluent} and {names.redpanda} contradict each other: set one of them.")
        begins = strategy_of(texts, field) is not None and strategy_of(current, field) is None
        if begins and not broker.text(REGISTRY_URL):
            raise InvalidConfig(
                f"{_enabling(field).confluent} needs a schema registry, and the broker has none: start it with"
                f" --schema-registry, or set {REGISTRY_URL}."
            )
