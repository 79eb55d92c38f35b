"""Names and modules of confluent-kafka that are not built, and why.

A name of `NAMES` exists in its module, so that imports of it work, and raises NotImplementedError with the reason when it is
called or subclassed. A module of `MODULES` is an ImportError with the reason.
"""

from typing import Any, ClassVar, Final, NoReturn

_RULES: Final = "rules of data contracts are not executed"
ASSOCIATIONS: Final = "associations of subjects with resources are not built"
_OWN: Final = "part of confluent-kafka's own client or serializers"
_MESSAGES: Final = "Confluent's Protobuf messages of decimals and variants are not built"

_RULE_NAMES: Final = """
    FieldType FieldContext RuleContext RuleBase RuleExecutor FieldRuleExecutor RuleAction ErrorAction NoneAction
    DLQ_HEADER_PREFIX DLQ_RULE_NAME_HEADER DLQ_RULE_MODE_HEADER DLQ_RULE_SUBJECT_HEADER DLQ_RULE_TOPIC_HEADER
    DLQ_RULE_EXCEPTION_HEADER set_original_key get_original_key clear_original_key RuleError RuleConditionError
    ValidationRulesExecution ValidationRule ValidationRuleError ValidationRuleExecutor VALIDATION_RULES_PROP
    parse_validation_rules default_validation_rule_executor evaluate_validation_rule Migration
"""
_ASSOCIATION_NAMES: Final = """
    Association AssociationCreateOrUpdateInfo AssociationCreateOrUpdateRequest AssociationInfo AssociationResponse
"""
_CLIENT_NAMES: Final = "VALID_AUTH_PROVIDERS is_success is_retriable full_jitter normalize_identity_pool"
_FIELD_NAMES: Final = "transform validate_message get_type get_inline_tags"

_TABLE: Final[dict[str, dict[str, str]]] = {
    "schema_registry": {ASSOCIATIONS: _ASSOCIATION_NAMES},
    "schema_registry.schema_registry_client": {ASSOCIATIONS: _ASSOCIATION_NAMES, _OWN: _CLIENT_NAMES},
    "schema_registry.common": {_OWN: "asyncinit"},
    "schema_registry.common.schema_registry_client": {ASSOCIATIONS: _ASSOCIATION_NAMES, _OWN: _CLIENT_NAMES},
    "schema_registry.common.serde": {_RULES: _RULE_NAMES, _OWN: "ParsedSchemaCache"},
    "schema_registry.serde": {
        _RULES: _RULE_NAMES,
        ASSOCIATIONS: "AssociatedNameStrategy AsyncAssociatedNameStrategy KAFKA_CLUSTER_ID FALLBACK_TYPE",
        _OWN: "ParsedSchemaCache BaseSerde AsyncBaseSerde AsyncBaseSerializer AsyncBaseDeserializer async_build_serde",
    },
    "schema_registry.avro": {_RULES: _FIELD_NAMES, _OWN: "LocalSchemaRepository parse_schema_with_repo"},
    "schema_registry.json_schema": {_RULES: _FIELD_NAMES},
    "schema_registry.protobuf": {
        _RULES: f"{_FIELD_NAMES} is_map_field",
        _MESSAGES: "decimal_to_protobuf protobuf_to_decimal variant_to_protobuf protobuf_to_variant",
    },
    "avro.cached_schema_registry_client": {_OWN: "ACCEPT_HDR"},
    "avro.serializer.message_serializer": {_OWN: "MAGIC_BYTE HAS_FAST ContextStringIO"},
}
NAMES: Final = {
    module: {name: reason for reason, names in rows.items() for name in names.split()}
    for module, rows in _TABLE.items()
}
"""Module, without the package -> name -> reason."""

MODULES: Final = {
    "kafkatest": "programs for the tests of Kafka",
    "schema_registry.confluent": _MESSAGES,
    "schema_registry.rule_registry": _RULES,
    "schema_registry.rules": _RULES,
    "schema_registry.wildcard_matcher": _RULES,
    "schema_registry.common.avro": _OWN,
    "schema_registry.common.json_schema": _OWN,
    "schema_registry.common.protobuf": _OWN,
}
"""Module, with all that is below it -> reason."""


class _StandIn:
    """Base of names that are not built."""

    reason: ClassVar[str]

    def __new__(cls, *_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError(f"{cls.__name__}: {cls.reason}")

    def __init_subclass__(cls) -> None:
        if _StandIn not in cls.__bases__:
            raise NotImplementedError(f"{cls.__bases__[0].__name__}: {cls.reason}")


def stand_ins(module: str) -> dict[str, type]:
    """Return what a module of ottla.compat.confluent_kafka has in the place of names that are not built."""
    rest = module.partition("confluent_kafka")[2].lstrip(".")
    attributes = {"__module__": module, "__doc__": "A name that is not built."}
    return {name: type(name, (_StandIn,), {**attributes, "reason": reason}) for name, reason in NAMES[rest].items()}


def reason_of(module: str) -> str | None:
    """Return why a module, named without the package, is not built; None for others."""
    parts = module.split(".")
    return next((MODULES[name] for end in range(len(parts), 0, -1) if (name := ".".join(parts[:end])) in MODULES), None)
