"""Serializers that let the registry normalize their schemas: texts that mean the same have one id."""

from typing import Any

import pytest

from ottla.schemas import VALUE, AvroSerializer, SchemaNotFound, SerializationContext
from ottla.schemas.registry import Schema, SchemaRegistry
from tests.registry.client import Registry

ONE = '{"type":"record","name":"A","fields":[{"name":"i","type":"int"}],"owner":"ada","area":"shop"}'
OTHER = '{"type":"record","name":"A","fields":[{"name":"i","type":"int"}],"area":"shop","owner":"ada"}'


def test_texts_that_mean_the_same_are_one_version(registry: Registry, subject: str) -> None:
    """Not without the option, and look-ups are normalized as well."""
    context, value = SerializationContext(subject, VALUE), {"i": 1}
    first = AvroSerializer(registry.url, ONE, normalize_schemas=True)(value, context)
    assert first is not None
    assert AvroSerializer(registry.url, OTHER, normalize_schemas=True)(value, context) == first
    looking: dict[str, Any] = {"auto_register_schemas": False}
    assert AvroSerializer(registry.url, OTHER, normalize_schemas=True, **looking)(value, context) == first
    versions = f"/subjects/{subject}-value/versions"
    assert registry.get(versions).value == [1]
    with pytest.raises(SchemaNotFound):
        AvroSerializer(registry.url, ONE, **looking)(value, context)
    assert AvroSerializer(registry.url, ONE)(value, context) != first
    assert registry.get(versions).value == [1, 2]


def test_client_normalizes_what_it_registers_and_looks_up(registry: Registry, subject: str) -> None:
    client = SchemaRegistry(location=registry.url, normalize=True)
    number = client.register(subject, Schema("AVRO", ONE))
    assert client.register(subject, Schema("AVRO", OTHER)) == number
    assert client.look_up(subject, Schema("AVRO", OTHER)) == number
    assert client.version_of(subject, Schema("AVRO", OTHER)) == 1
