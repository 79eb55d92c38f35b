"""Compatibility of Avro schemas: rule by rule, and of random pairs whose incompatibilities follow from their making.

tests/oracles/test_avro_compatibility.py compares random pairs with Java's Avro.
"""

import json
import random
import re
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from ottla.schemas.avro_types import AvroType, parse
from ottla.schemas.budget import Budget, TooComplex
from ottla.schemas.compatibility.avro import incompatibilities
from ottla.schemas.registry import UnsupportedSchema
from tests.unit.schemas.avro_dice import PRIMITIVES, AvroDice, promotes

MISSING = "READER_FIELD_MISSING_DEFAULT_VALUE"


def schema(declared: Any) -> AvroType:
    return parse(json.dumps(declared), {})


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, declared: Any = "int", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": declared, **more}


def enum(*symbols: str, name: str = "E", **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def fixed(size: int, name: str = "F", **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size, **more}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def named(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "map", "values": name, **more}


LIST = record(field("next", ["null", "R"]))
RULES: list[tuple[str, Any, Any, list[tuple[str, str, str]]]] = [
    # name, reader, writer, incompatibilities
    ("field without default", record(field("a")), record(), [(MISSING, "/fields/0", "a")]),
    ("field with default", record(field("a", default=1)), record(), []),
    ("field with null as default", record(field("a", ["null", "int"], default=None)), record(), []),
    ("field that only the writer has", record(), record(field("a")), []),
    ("fields in another order", record(field("a"), field("b")), record(field("b"), field("a")), []),
    ("alias of a field", record(field("b", aliases=["a"])), record(field("a")), []),
    ("alias in the writer", record(field("a")), record(field("b", aliases=["a"])), [(MISSING, "/fields/0", "a")]),
    (
        "enum with a default of its own, not of the field",
        record(field("a", enum("A", default="A"))),
        record(),
        [("TYPE_MISMATCH", "/fields/0/type", "reader type: ENUM not compatible with writer type: RECORD")],
    ),
    ("name", record(name="a.X"), record(name="a.Y"), [("NAME_MISMATCH", "/name", "expected: a.Y")]),
    ("namespace", record(name="a.X"), record(name="b.X"), []),
    ("alias as a full name", record(name="a.X", aliases=["b.Y"]), record(name="b.Y"), []),
    ("alias in the own namespace", record(name="a.X", aliases=["Y"]), record(name="a.Y"), []),
    (
        "alias in another namespace",
        record(name="a.X", aliases=["Y"]),
        record(name="b.Y"),
        [("NAME_MISMATCH", "/name", "expected: b.Y")],
    ),
    (
        "name and what is below",
        record(field("a", "string"), name="X"),
        record(field("a"), name="Y"),
        [
            ("NAME_MISMATCH", "/name", "expected: Y"),
            ("TYPE_MISMATCH", "/fields/0/type", "reader type: STRING not compatible with writer type: INT"),
        ],
    ),
    ("error and record", {**record(), "type": "error"}, record(), []),
    ("size", fixed(4), fixed(8), [("FIXED_SIZE_MISMATCH", "/size", "expected: 8, found: 4")]),
    (
        "size and name",
        fixed(4, "G"),
        fixed(8),
        [("NAME_MISMATCH", "/name", "expected: F"), ("FIXED_SIZE_MISMATCH", "/size", "expected: 8, found: 4")],
    ),
    ("symbols", enum("B"), enum("C", "A"), [("MISSING_ENUM_SYMBOLS", "/symbols", "[A, C]")]),
    ("symbols that only the reader has", enum("A", "B"), enum("B"), []),
    ("symbols with a default", enum("B", default="B"), enum("C", "A"), []),
    (
        "items of values",
        array(named("int")),
        array(named("string")),
        [("TYPE_MISMATCH", "/items/values", "reader type: INT not compatible with writer type: STRING")],
    ),
    (
        "array and map",
        array("int"),
        named("int"),
        [("TYPE_MISMATCH", "/", "reader type: ARRAY not compatible with writer type: MAP")],
    ),
    (
        "branch missing",
        ["int"],
        ["string", "int"],
        [("MISSING_UNION_BRANCH", "/0", "reader union lacking writer type: STRING")],
    ),
    ("branch added", ["null", "int"], ["int"], []),
    ("branch promoted", ["null", "long"], ["int"], []),
    ("union read as its type", "long", ["int", "long"], []),
    (
        "union read as a type that one branch is not",
        "int",
        ["int", "null", "string"],
        [
            ("TYPE_MISMATCH", "/1", "reader type: INT not compatible with writer type: NULL"),
            ("TYPE_MISMATCH", "/2", "reader type: INT not compatible with writer type: STRING"),
        ],
    ),
    ("type read as a union", ["null", "int"], "int", []),
    (
        "type read as a union without it",
        record(field("a", ["null", "int"])),
        record(field("a", "string")),
        [("MISSING_UNION_BRANCH", "/fields/0/type", "reader union lacking writer type: STRING")],
    ),
    (
        "record in unions",
        ["null", record(field("a"))],
        ["null", record()],
        [("MISSING_UNION_BRANCH", "/1", "reader union lacking writer type: RECORD")],
    ),
    ("recursive", LIST, LIST, []),
    (
        "recursive with a new field",
        record(field("next", ["null", "R"]), field("b")),
        LIST,
        [(MISSING, "/fields/1", "b")],
    ),
    (
        # Java, too: the record is compared first within the union, where places begin again.
        "a type that is used twice has the places of its first use",
        record(field("u", ["null", record(field("x"), name="N")]), field("n", "N")),
        record(field("u", ["null", record(name="N")]), field("n", "N")),
        [
            ("MISSING_UNION_BRANCH", "/fields/0/type/1", "reader union lacking writer type: RECORD"),
            (MISSING, "/fields/0", "x"),
        ],
    ),
    ("attributes", {"type": "int", "logicalType": "date"}, {"type": "int", "doc": "days"}, []),
]


@pytest.mark.parametrize(("reader", "writer", "expected"), [row[1:] for row in RULES], ids=[row[0] for row in RULES])
def test_rule(reader: Any, writer: Any, expected: list[tuple[str, str, str]]) -> None:
    differences = incompatibilities(schema(reader), schema(writer), Budget())
    assert differences == expected
    for difference in differences:
        described = f"description:'.*{re.escape(difference.path)}.*', additionalInfo:'{re.escape(difference.detail)}'"
        assert re.fullmatch(f"{{errorType:'{difference.kind}', {described}}}", difference.message("new", "old"))


@pytest.mark.parametrize("writer", PRIMITIVES)
@pytest.mark.parametrize("reader", PRIMITIVES)
def test_promotion(reader: str, writer: str) -> None:
    differences = incompatibilities(schema(reader), schema(writer), Budget())
    kinds = f"reader type: {reader.upper()} not compatible with writer type: {writer.upper()}"
    assert differences == ([] if promotes(writer, reader) else [("TYPE_MISMATCH", "/", kinds)])


def test_field_with_two_sources_is_refused() -> None:
    reader, writer = record(field("a", aliases=["b"])), record(field("a"), field("b"))
    (difference,) = incompatibilities(schema(reader), schema(writer), Budget())
    assert difference == ("AMBIGUOUS_FIELD", "/", "field a of R matches several fields of the writer: a, b")


def test_random_mutations_are_found_where_they_were_made(request: pytest.FixtureRequest) -> None:
    seed = request.config.getoption("--seed") or random.randrange(1 << 32)
    dice = AvroDice(random.Random(seed), plain=True)
    for _ in range(3_000 * request.config.getoption("--soak")):
        reader, writer, expected = dice.pair()
        differences = incompatibilities(schema(reader), schema(writer), Budget())
        where = f"--seed {seed}: reader {json.dumps(reader)} writer {json.dumps(writer)}"
        assert [(kind, path) for kind, path, _ in differences] == expected, where
        assert incompatibilities(schema(writer), schema(writer), Budget()) == [], where


BOMBS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "unions": lambda: ([fixed(1, f"F{number}") for number in range(20_000)],) * 2,
    "one type used twice at each of 25 levels": lambda: (doubled(25, field("a")), doubled(25)),
    "1 MiB of fields": lambda: (record(*(field(f"f{number}") for number in range(35_000))),) * 2,
}


def doubled(levels: int, *fields: Any) -> Any:
    made = record(*fields, name="R0")
    for level in range(1, levels):
        made = record(field("a", made), field("b", f"R{level - 1}"), name=f"R{level}")
    return made


@pytest.mark.parametrize("bomb", BOMBS)
def test_comparison_ends_soon(bomb: str) -> None:
    reader, writer = BOMBS[bomb]()
    begun = time.process_time()
    with pytest.raises(TooComplex, match="too large") if "fields" not in bomb else nullcontext():
        incompatibilities(schema(reader), schema(writer), Budget())
    assert time.process_time() - begun < 5


@pytest.mark.parametrize(
    "text",
    [
        '{"type":"array","items":' * 1_000 + '"int"' + "}" * 1_000,
        "[" * 100_000,
        "/*" * 200_000,
        '"\\' * 200_000 + "/",
        json.dumps(
            [
                record(field("a", [f"R{other}" for other in range(20)], default={"a": {}}), name=f"R{number}")
                for number in range(20)
            ]
        ).replace('{"a": {}}', '{"a":' * 25 + "1" + "}" * 25),
    ],
    ids=["1,000 levels", "brackets", "comments", "quotes", "defaults of recursive unions"],
)
def test_schema_that_would_take_too_long_is_refused(text: str) -> None:
    begun = time.process_time()
    with pytest.raises(UnsupportedSchema):
        parse(text, {})
    assert time.process_time() - begun < 5
