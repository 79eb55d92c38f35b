"""Serializers that let the registry normalize their schemas: texts that mean the same have one id."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ottla.cli.main import main
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


def test_command_registers_the_normal_form_on_request(registry: Registry, subject: str, tmp_path: Path) -> None:
    """Without the option it is another version."""

    def register(name: str, text: str, *options: str) -> str:
        file = tmp_path / name
        file.write_text(text, encoding="utf-8")
        words = ["schemas", "register", subject, str(file), "--schema-registry", registry.url, *options]
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 0, result.output
        return result.stdout.removeprefix(f"{file} is ")

    first = register("one.avsc", ONE, "--normalize")
    assert first.startswith(f"version 1 of {subject}")
    assert register("other.avsc", OTHER, "--normalize") == first
    assert register("one.avsc", ONE).startswith(f"version 2 of {subject}")
