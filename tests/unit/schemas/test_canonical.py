"""Canonical and normal forms of schemas of all languages; tests of each language's texts are beside these."""

import pytest

from ottla.schemas.canonical import canonical, normalize
from ottla.schemas.registry import AVRO, JSON, PROTOBUF, Reference, Schema, UnsupportedSchema

JSON_TEXT = (
    ' { "type" : "object",\n "properties": {"b": {"maximum": 1.50}, '
    '"a": {"enum": [1e2, 10000000000000000000000, "\\u00e9/"]}} }'
)


def text(schema: Schema) -> str:
    return schema.text


def test_avro_is_printed_like_java_and_sorted() -> None:
    schema = Schema(AVRO, '{"type": "record", "namespace": "n", "name": "R", "x": 1, "a": 2, "fields": []}')
    printed = canonical(schema, {})
    assert printed.text == '{"type":"record","name":"R","namespace":"n","fields":[],"x":1,"a":2}'
    assert canonical(printed, {}) == printed
    assert text(normalize(schema, {})) == '{"name":"n.R","type":"record","fields":[],"a":2,"x":1}'


def test_json_keeps_its_order_and_the_digits_of_its_numbers() -> None:
    printed = canonical(Schema(JSON, JSON_TEXT), {})
    assert printed.text == (
        '{"type":"object","properties":{"b":{"maximum":1.50},"a":{"enum":[1E+2,10000000000000000000000,"é/"]}}}'
    )
    assert canonical(printed, {}) == printed
    assert text(normalize(printed, {})) == (
        '{"properties":{"a":{"enum":[1E+2,10000000000000000000000,"é/"]},"b":{"maximum":1.50}},"type":"object"}'
    )


def test_protobuf_is_printed_from_its_descriptor() -> None:
    pytest.importorskip("grpc_tools", reason="protoc comes with the extra: pip install 'ottla[schema]'")
    schema = Schema(PROTOBUF, 'syntax="proto3"; import "n.proto"; message M{ N n=1; /* c */ }')
    referred = {"n.proto": 'syntax="proto3"; message N{}'}
    printed = canonical(schema, referred)
    assert printed.text == 'syntax = "proto3";\nimport "n.proto";\nmessage M {\n  N n = 1;\n}\n'
    assert canonical(printed, referred) == printed
    assert "  .N n = 1;" in text(normalize(schema, referred))


def test_references_of_the_normal_form_are_sorted_and_each_once() -> None:
    first, second = Reference("a", "s", 1), Reference("b", "s", 2)
    schema = Schema(JSON, "true", (second, first, second))
    assert normalize(schema, {}).references == (first, second)
    assert canonical(schema, {}).references == schema.references


@pytest.mark.parametrize("kind", [AVRO, JSON])
@pytest.mark.parametrize("malformed", ["", "{", "[" * 100_000, '{"a":NaN}', '{"a":' * 5_000 + "1" + "}" * 5_000])
def test_malformed_text_is_refused(kind: str, malformed: str) -> None:
    for form in (canonical, normalize):
        with pytest.raises(UnsupportedSchema, match=r"^not an? [^\n]+$"):
            form(Schema(kind, malformed), {})
