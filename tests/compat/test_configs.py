"""Configs of librdkafka: what it refuses is refused, with its words; what it takes is taken."""

import logging
from typing import Any

import confluent_kafka
import pytest

import ottla.compat.confluent_kafka
from ottla.compat.librdkafka import configs
from ottla.compat.librdkafka.properties import PROPERTIES

_SERVERS = {"bootstrap.servers": "127.0.0.1:1", "logger": logging.getLogger("tests.compat")}
REFUSED_VALUES: list[dict[Any, Any]] = [
    {"no.such.name": 1},
    {3: 4},
    {"bootstrap_servers": "x"},
    {"linger.ms": -5},
    {"linger.ms": "x"},
    {"acks": "x"},
    {"acks": 2000},
    {"acks": [1]},
    {"enable.idempotence": "maybe"},
    {"compression.codec": "zzz"},
    {"compression.type": "inherit"},
    {"partitioner": "x"},
    {"debug": "xx"},
    {"auto.offset.reset": "none"},
    {"statistics.interval.ms": "a"},
    {"batch.size": 0},
    {"retries": -1},
    {"queue.buffering.max.messages": "many"},
    {"isolation.level": "dirty"},
    {"security.protocol": "tls"},
    {"dr_cb": print},
    {"rebalance_cb": print},
    {"on_commit": print},
    {"on_delivery": 3},
    {"throttle_cb": 3},
    {"stats_cb": 3},
    {"error_cb": 3},
    {"transactional.id": "a", "enable.idempotence": False},
    {"enable.idempotence": True, "acks": 1},
    {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN"},
    {"default.topic.config": {"acks": "x"}},
]


def outcome(library: Any, config: dict[Any, Any]) -> str:
    """Return how a producer is made, or the error."""
    try:
        producer = library.Producer({**_SERVERS, **config})
    except library.KafkaException as error:
        return f"{error.args[0].name()}: {error.args[0].str()}"
    except (TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    producer.close()
    return "made"


@pytest.mark.parametrize("config", REFUSED_VALUES, ids=str)
def test_a_refused_config_has_the_text_of_librdkafka(config: dict[Any, Any]) -> None:
    theirs = outcome(confluent_kafka, config)
    assert theirs != "made"
    assert outcome(ottla.compat.confluent_kafka, config) == theirs


@pytest.mark.parametrize("arguments", [(), (5,), (None,), ({}, {})], ids=str)
def test_a_client_takes_one_dictionary(arguments: tuple[Any, ...]) -> None:
    errors = []
    for library in (confluent_kafka, ottla.compat.confluent_kafka):
        with pytest.raises((TypeError, ValueError)) as caught:
            library.Producer(*arguments)
        errors.append(type(caught.value))
    assert errors[0] is errors[1]


def test_a_consumer_needs_a_group() -> None:
    for library in (confluent_kafka, ottla.compat.confluent_kafka):
        with pytest.raises(ValueError, match=r"Failed to create consumer: group\.id must be set"):
            library.Consumer(_SERVERS)


def odd_value(name: str) -> str:
    """Return a valid value of a property that is not its default."""
    row = PROPERTIES[name]
    if row.kind == "bool":
        return "false" if row.default == "true" else "true"
    if row.kind in ("int", "float"):
        low, high = row.bounds.split("..")
        return high if row.default == low else low
    if row.kind == "enum":
        return next(value for value in row.bounds.split(",") if value != row.default)
    return row.bounds.split(",")[0] if row.bounds else "x"


@pytest.mark.parametrize("name", sorted(name for name, row in PROPERTIES.items() if row.effect == "refused"))
def test_unsupported_properties_are_refused_by_name(name: str) -> None:
    with pytest.raises(ottla.compat.confluent_kafka.KafkaException, match=f'"{name}" cannot be honoured') as caught:
        ottla.compat.confluent_kafka.Producer({**_SERVERS, name: odd_value(name)})
    assert caught.value.args[0] == ottla.compat.confluent_kafka.KafkaError._INVALID_ARG


@pytest.mark.parametrize("name", sorted(name for name, row in PROPERTIES.items() if row.effect == "none"))
def test_properties_without_effect_are_warned_of_once(name: str, caplog: pytest.LogCaptureFixture) -> None:
    configs._warned.discard(name)
    with caplog.at_level(logging.WARNING, "ottla.compat"):
        for _ in range(2):
            configs.settings("producer", ({**_SERVERS, name: odd_value(name)},), {})
    assert [record.getMessage() for record in caplog.records] == [f"configuration property {name} has no effect"]


_COMPARABLE = [
    pytest.param(name, kind, id=f"{name}-{kind}")
    for name, row in sorted(PROPERTIES.items())
    for kind in ("producer", "consumer")
    if "." in row.effect
    and row.kind != "string"
    and row.role in ("*", kind[0].upper())
    and not name.startswith(("ssl.", "sasl", "security.protocol"))
]
"""Properties with two values of which neither needs a file or another property, and the clients that have them."""


@pytest.mark.parametrize(("name", "kind"), _COMPARABLE)
def test_properties_with_an_effect_reach_the_client(name: str, kind: str) -> None:
    row = PROPERTIES[name]
    base: dict[str, Any] = {**_SERVERS, "group.id": "g"}
    other = odd_value(name)
    before = configs.settings(kind, ({**base, name: row.default or other},), {}).client[row.effect]
    after = configs.settings(kind, ({**base, name: other},), {}).client[row.effect]
    assert before != after, (name, other)
