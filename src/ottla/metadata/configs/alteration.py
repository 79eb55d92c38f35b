"""Alterations of a resource's configs: computes and validates the new set, with Kafka's error codes and messages.

    incremental   edits of single configs: set, delete, append to a list, subtract from it (KIP-339)
    replacing     the whole set at once, by AlterConfigs: configs that are not named are removed

In both cases the new set is checked as a whole, and applied as a whole or not at all.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from ottla.metadata.configs import (
    LISTENER_STORES,
    BrokerValues,
    InvalidConfig,
    Scope,
    Texts,
    configs,
    is_per_broker,
    parse,
    schema_rules,
    table,
    text_of,
    topic_configs,
    validate_group,
    validate_topic,
    without_listener,
)
from ottla.metadata.refusal import Refused
from ottla.metadata.store import keys
from ottla.protocol.errors import INVALID_CONFIG, INVALID_REQUEST, UNKNOWN_SERVER_ERROR
from ottla.regexes import InvalidRegex, compiled

SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3

TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
CLIENT_METRICS: Final = 16
GROUP: Final = 32
"""Resource types as the protocol numbers them."""

_SCOPES: Final[Mapping[int, str]] = {TOPIC: Scope.TOPIC, BROKER: Scope.BROKER, GROUP: Scope.GROUP}
_METRICS_INTERVAL_MS: Final = (100, 3_600_000)
_METRICS_MATCHES: Final = frozenset(
    (
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    )
)


class Edit(NamedTuple):
    """Edit of one config; `operation` is SET for AlterConfigs."""

    name: str
    operation: int
    value: str | None


def check_edits(edits: Sequence[Edit], *, replaces: bool) -> None:
    """Raise Refused for edits that are invalid for any resource; `replaces` for AlterConfigs, whose messages differ."""
    if len({edit.name for edit in edits}) < len(edits):
        raise Refused(INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [edit.name for edit in edits if edit.value is None and edit.operation != DELETE]
    if nulls:
        raise Refused(INVALID_REQUEST, f"Null value not supported for : {(', ' if replaces else ',').join(nulls)}")


def edited(kind: int, current: Texts, edits: Sequence[Edit], broker: BrokerValues) -> dict[str, str]:
    """Return `current` after `edits`. Raises Refused for an operation that the config does not support."""
    texts = dict(current)
    for edit in edits:
        if edit.operation == DELETE:
            texts.pop(edit.name, None)
        elif edit.operation == SET:
            texts[edit.name] = edit.value or ""
        elif edit.operation in (APPEND, SUBTRACT):
            texts[edit.name] = _list_edited(kind, texts, edit, broker)
        else:
            if kind == BROKER:
                raise Refused(INVALID_REQUEST, f"Unknown operations type {edit.operation}")
            raise Refused(UNKNOWN_SERVER_ERROR, None)
    return texts


def _list_edited(kind: int, texts: Texts, edit: Edit, broker: BrokerValues) -> str:
    row = configs(_SCOPES[kind]).get(edit.name) if kind in _SCOPES else None
    if row is None and kind == BROKER:
        raise Refused(INVALID_CONFIG, f"Unknown config name: {edit.name}")
    if row is not None and row.type != table.LIST and kind == BROKER:
        verb = "append" if edit.operation == APPEND else "subtract"
        raise Refused(INVALID_CONFIG, f"Config value {verb} is not allowed for config key: {edit.name}")
    if row is None or row.type != table.LIST:
        verb = "APPEND" if edit.operation == APPEND else "SUBTRACT"
        raise Refused(INVALID_CONFIG, f"Can't {verb} to key {edit.name} because its type is not LIST.")
    text = texts.get(edit.name)
    if text is None:
        text = text_of((topic_configs(texts, broker) if kind == TOPIC else broker)[edit.name]) or ""
    have = [element.strip() for element in text.split(",") if element.strip()]
    named = _elements(edit.value or "")
    if edit.operation == APPEND:
        have += [element for element in named if element not in have]
    else:
        have = [element for element in have if element not in named]
    return ",".join(have)


def _elements(text: str) -> list[str]:
    """Return the elements of a list as Java's String.split does: without empty ones at the end, unless there is no comma."""
    elements = text.split(",")
    while "," in text and elements and not elements[-1]:
        elements.pop()
    return [element.strip() for element in elements]


def check_set(
    kind: int, name: str, current: Texts, texts: Texts, edits: Sequence[Edit], broker: BrokerValues, *, has_elr: bool
) -> None:
    """Raise Refused unless the configs `texts`, the result of `edits` on `current`, are valid for the resource.

    has_elr  True while eligible leader replicas are on: all brokers have the same min.insync.replicas then (KIP-966)
    """
    if kind == BROKER:
        _check_broker(name, texts, edits)
        if has_elr:
            _check_min_isr(name, current, texts, edits)
    elif kind == CLIENT_METRICS:
        _check_client_metrics(texts)
    else:
        try:
            if kind == TOPIC:
                validate_topic(texts)
                schema_rules.check(current, texts, broker)
            else:
                validate_group(texts, broker)
        except InvalidConfig as cause:
            raise Refused(INVALID_CONFIG, str(cause)) from None


def _check_broker(name: str, texts: Texts, edits: Sequence[Edit]) -> None:
    """Raise Refused for configs that cannot be set while a broker runs (KIP-226); unknown names are kept for other brokers."""
    known = configs(Scope.BROKER)
    edits = [edit for edit in edits if edit.operation != DELETE]
    rows = [(known[edit.name], edit) for edit in edits if edit.name in known]
    prefixed = [(without_listener(edit.name), edit) for edit in edits]
    of_listeners = [(known[name], edit) for name, edit in prefixed if name is not None and name in known]
    fixed = [row.name for row, _ in rows if row.update == table.READ_ONLY]
    if fixed:
        raise Refused(INVALID_REQUEST, f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
    bare = [row.name for row, _ in rows if row.name in LISTENER_STORES]
    if bare:
        text = "These security configs can be dynamically updated only per-listener using the listener prefix"
        raise Refused(INVALID_REQUEST, f"{text}: [{', '.join(bare)}]")
    own = [edit.name for edit in edits if is_per_broker(edit.name)]
    if own and not name:
        text = f"Cannot update these configs at default cluster level, broker id must be specified: [{', '.join(own)}]"
        raise Refused(INVALID_REQUEST, text)
    for row, edit in (*rows, *of_listeners):
        try:
            parse(row, texts[edit.name])
        except InvalidConfig as cause:
            raise Refused(INVALID_REQUEST, str(cause)) from None


def _check_min_isr(name: str, current: Texts, texts: Texts, edits: Sequence[Edit]) -> None:
    is_edited = any(edit.name == keys.MIN_ISR for edit in edits)
    if name and is_edited:
        raise Refused(INVALID_CONFIG, f"Broker-level {keys.MIN_ISR} cannot be altered while ELR is enabled.")
    if not name and keys.MIN_ISR not in texts and (is_edited or keys.MIN_ISR in current):
        raise Refused(INVALID_CONFIG, f"Cluster-level {keys.MIN_ISR} cannot be removed while ELR is enabled.")


def _check_client_metrics(texts: Texts) -> None:
    """Check a subscription's interval, and its patterns `selector=regular expression` (KIP-714)."""
    for name, text in texts.items():
        if name not in configs(Scope.CLIENT_METRICS):
            raise Refused(INVALID_REQUEST, f"Unknown client metrics configuration: {name}")
        try:
            value = parse(configs(Scope.CLIENT_METRICS)[name], text)
        except InvalidConfig as cause:
            raise Refused(INVALID_CONFIG, str(cause)) from None
        if name == "interval.ms":
            least, most = _METRICS_INTERVAL_MS
            if not isinstance(value, int) or not least <= value <= most:
                why = f"interval must be between {least} and {most} (1 hour)"
                raise Refused(INVALID_REQUEST, f"Invalid value {text} for interval.ms, {why}")
        elif name == "match" and isinstance(value, list):
            for pattern in value:
                _check_match(pattern)


def _check_match(pattern: str) -> None:
    selector, equals, expression = (part.strip() for part in pattern.partition("="))
    try:
        if not equals or selector not in _METRICS_MATCHES:
            raise InvalidRegex("no selector")
        compiled(expression)
    except InvalidRegex:
        raise Refused(INVALID_CONFIG, f"Illegal client matching pattern: {pattern}") from None
