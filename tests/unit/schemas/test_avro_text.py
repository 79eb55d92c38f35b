"""Canonical and normal texts of Avro schemas, and texts that are refused.

tests/oracles/test_avro_compatibility.py compares the first table with Java's Avro.
"""

import json
import random

import pytest

from ottla.schemas import avro_text
from ottla.schemas.avro_types import parse, with_known
from ottla.schemas.registry import UnsupportedSchema
from tests.unit.schemas.avro_dice import AvroDice

EMPTY = '{"type":"record","name":"R","fields":[]}'


def with_field(field: str, record: str = '"name":"R"') -> str:
    return f'{{"type":"record",{record},"fields":[{{"name":"a",{field}}}]}}'


CANONICAL: dict[str, str | None] = {
    '"int"': '"int"',
    ' { "type" : "int" } ': '"int"',
    '{"logicalType":"date","type":"int","x":[1, {"b":null}]}': '{"type":"int","logicalType":"date","x":[1,{"b":null}]}',
    '[ "null", "string" ]': '["null","string"]',
    "[]": "[]",
    '{"fields":[],"doc":"é \\u00e9 \\u0007\\/","name":"a.b.R","type":"record"}': (
        '{"type":"record","name":"R","namespace":"a.b","doc":"é é \\u0007/","fields":[]}'
    ),
    '{"type":"error","name":"R","fields":[]}': '{"type":"error","name":"R","fields":[]}',
    '{"type":"record","name":"R","namespace":"","fields":[]}': EMPTY,
    '{"type":"record","name":".R","fields":[]}': EMPTY,
    '{"type":"record","name":"x.R","namespace":"y","fields":[]}': (
        '{"type":"record","name":"R","namespace":"x","fields":[]}'
    ),
    '{"type":"record","name":"R","doc":1,"fields":[]}': EMPTY,
    '{"type":"record","name":"R","default":1,"order":2,"fields":[]}': (
        '{"type":"record","name":"R","fields":[],"default":1,"order":2}'
    ),
    '/* of orders */ {"type":"record","name":"R", // line\n "fields":[]}': EMPTY,
    with_field('"type":"double","default":1e10'): with_field('"type":"double","default":1.0E10'),
    with_field('"type":"double","default":"1.50"'): with_field('"type":"double","default":1.5'),
    with_field('"type":"double","default":0.00001234'): with_field('"type":"double","default":1.234E-5'),
    with_field('"type":"double","default":-0.0'): with_field('"type":"double","default":-0.0'),
    with_field('"type":"double","default":9999999.0'): with_field('"type":"double","default":9999999.0'),
    with_field('"type":"double","default":12345678'): with_field('"type":"double","default":12345678'),
    with_field('"order":"DESCENDING","type":"int"'): with_field('"type":"int","order":"descending"'),
    with_field('"order":"ascending","type":"int"'): with_field('"type":"int"'),
    with_field('"y":1,"aliases":["b"],"default":1,"doc":"d","type":"int","x":2'): with_field(
        '"type":"int","doc":"d","default":1,"aliases":["b"],"y":1,"x":2'
    ),
    with_field('"type":["null","int"],"default":1'): with_field('"type":["null","int"],"default":1'),
    with_field('"type":"R"'): with_field('"type":"R"'),
    with_field('"type":{"type":"R"}'): with_field('"type":"R"'),
    with_field('"type":"x.R"', '"name":"x.R"'): with_field('"type":"R"', '"name":"R","namespace":"x"'),
    with_field('"type":{"type":"fixed","name":"F","namespace":"","size":1}', '"name":"x.R"'): with_field(
        '"type":{"type":"fixed","name":"F","namespace":"","size":1}', '"name":"R","namespace":"x"'
    ),
    '{"type":"record","name":"R","fields":[{"name":"a","type":"E"},'
    '{"name":"b","type":{"type":"enum","name":"E","symbols":["A"]}}]}': (
        '{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"enum","name":"E","symbols":["A"]}},'
        '{"name":"b","type":"E"}]}'
    ),
    '[{"type":"fixed","name":"F","size":1},{"type":"array","items":{"type":"fixed","name":"F","size":1}}]': (
        '[{"type":"fixed","name":"F","size":1},{"type":"array","items":"F"}]'
    ),
    '{"type":"enum","name":"x.E","aliases":["D","y.C","D"],"symbols":["A"],"default":"A","z":1}': (
        '{"type":"enum","name":"E","namespace":"x","symbols":["A"],"default":"A","z":1,"aliases":["D","y.C"]}'
    ),
    # Refused.
    "": None,
    "{": None,
    "1": None,
    "null": None,
    "{}": None,
    '{"type":null}': None,
    '{"type":{"type":"int"}}': None,
    '"Unknown"': None,
    '["int","int"]': None,
    '["int",["string"]]': None,
    '{"type":"array"}': None,
    '{"type":"map","items":"int"}': None,
    '{"type":"record","name":"R"}': None,
    '{"type":"record","fields":[]}': None,
    '{"type":"record","name":"int","fields":[]}': None,
    '{"type":"record","name":"R-S","fields":[]}': None,
    '{"type":"record","name":"1.R","fields":[]}': None,
    '{"type":"record","name":"é","fields":[]}': None,
    '{"type":"record","name":"R","aliases":"S","fields":[]}': None,
    '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}': None,
    '{"type":"record","name":"R","fields":[{"type":"int"}]}': None,
    with_field('"doc":"no type"'): None,
    with_field('"type":"int","default":"1"'): None,
    with_field('"type":"int","default":2147483648'): None,
    with_field('"type":"int","default":1.0'): None,
    with_field('"type":"int","default":true'): None,
    with_field('"type":"boolean","default":1'): None,
    with_field('"type":["null","int"],"default":"a"'): None,
    with_field('"type":{"type":"array","items":"int"},"default":["a"]'): None,
    with_field('"type":"int","order":"up"'): None,
    with_field('"type":"int"', '"name":"x"').replace('"a"', '"a b"'): None,
    '{"type":"enum","name":"E","symbols":["A","A"]}': None,
    '{"type":"enum","name":"E","symbols":["A B"]}': None,
    '{"type":"enum","name":"E","symbols":["A"],"default":"B"}': None,
    '{"type":"fixed","name":"F","size":"1"}': None,
    '{"type":"fixed","name":"F","size":-1}': None,
    '[{"type":"fixed","name":"F","size":1},{"type":"array","items":{"type":"fixed","name":"F","size":2}}]': None,
}


@pytest.mark.parametrize(("text", "canonical"), CANONICAL.items())
def test_canonical_text(text: str, canonical: str | None) -> None:
    if canonical is None:
        with pytest.raises(UnsupportedSchema, match=r"^not an Avro schema: [^\n]+$"):
            parse(text, {})
    else:
        assert avro_text.canonical(parse(text, {})) == canonical
        assert avro_text.canonical(parse(canonical, {})) == canonical


def test_canonical_and_normal_texts_come_back_byte_for_byte(request: pytest.FixtureRequest) -> None:
    seed = request.config.getoption("--seed") or random.randrange(1 << 32)
    dice = AvroDice(random.Random(seed), plain=False)
    printed = 0
    for _ in range(1_000):
        text = json.dumps(dice.pair()[0])
        try:
            schema = parse(text, {})
        except UnsupportedSchema:  # two definitions of a name, for example
            continue
        printed += 1
        for form in (avro_text.canonical, avro_text.normal):
            assert form(parse(form(schema), {})) == form(schema), f"--seed {seed}: {text}"
        if '".T' not in text:  # Java prints an alias without a namespace like one of the type's
            assert avro_text.normal(parse(avro_text.canonical(schema), {})) == avro_text.normal(schema), text
    assert printed > 500


def test_normal_text_has_full_names_and_sorted_attributes() -> None:
    text = (
        '{"type":"record","namespace":"x","name":"R","z":1,"aliases":["T","S"],"doc":"d","fields":[{"type":{"x":1,'
        '"scale":2,"type":"bytes","logicalType":"decimal"},"order":"ignore","name":"a","y":2,"x":1,"doc":"f"},'
        '{"name":"b","type":["null","R"],"default":null},{"name":"c","type":{"type":"enum","name":"E","default":"A",'
        '"symbols":["B","A"]}}]}'
    )
    assert avro_text.normal(parse(text, {})) == (
        '{"name":"x.R","type":"record","fields":[{"name":"a","type":{"type":"bytes","logicalType":"decimal","scale":2,'
        '"x":1},"doc":"f","x":1,"y":2,"order":"ignore"},{"name":"b","type":["null","x.R"],"default":null},'
        '{"name":"c","type":{"name":"x.E","type":"enum","symbols":["B","A"],"default":"A"}}],"aliases":["x.S","x.T"],'
        '"doc":"d","z":1}'
    )


def test_references_are_names() -> None:
    referred = {"x.E": '{"type":"enum","name":"x.E","symbols":["A"]}'}
    schema, known = with_known(with_field('"type":"E"', '"name":"x.R"'), referred)
    assert avro_text.canonical(schema, known) == with_field('"type":"E"', '"name":"R","namespace":"x"')
    assert avro_text.normal(schema, known) == ('{"name":"x.R","type":"record","fields":[{"name":"a","type":"x.E"}]}')


def test_registered_schemas_are_not_checked_again() -> None:
    text = with_field('"type":"int","default":"1"').replace('"a"', '"a b"')
    assert avro_text.canonical(parse(text, {}, strict=False)) == text
