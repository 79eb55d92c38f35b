"""Clients of a schema registry, and the values of its API."""

from ottla.compat.confluent_kafka.schema_registry.builders import AsyncSchemaRegistryClient
from ottla.compat.confluent_kafka.schema_registry.client import SchemaRegistryClient
from ottla.compat.confluent_kafka.schema_registry.documents import (
    ConfigCompatibilityLevel,
    Metadata,
    MetadataProperties,
    MetadataTags,
    RegisteredSchema,
    Rule,
    RuleKind,
    RuleMode,
    RuleParams,
    RuleSet,
    Schema,
    SchemaReference,
    ServerConfig,
)
from ottla.compat.confluent_kafka.schema_registry.error import SchemaRegistryError
from ottla.compat.missing import stand_ins

__all__ = [
    "AsyncSchemaRegistryClient",
    "ConfigCompatibilityLevel",
    "Metadata",
    "MetadataProperties",
    "MetadataTags",
    "RegisteredSchema",
    "Rule",
    "RuleKind",
    "RuleMode",
    "RuleParams",
    "RuleSet",
    "Schema",
    "SchemaReference",
    "SchemaRegistryClient",
    "SchemaRegistryError",
    "ServerConfig",
]

globals().update(stand_ins(__name__))
