"""Compatibility of Protobuf schemas, rule by rule: the change, what is incompatible in it, and in its reverse."""

import time

import pytest

pytest.importorskip("grpc_tools", reason="protoc comes with the extra: pip install 'ottla[schema]'")

from ottla.schemas.budget import Budget
from ottla.schemas.compatibility.protobuf import incompatibilities, parse
from ottla.schemas.protobuf import compile_files, in_base64
from ottla.schemas.registry import UnsupportedSchema

GROUPS = [
    ("int32", "int64", "uint32", "uint64", "bool", "E"),
    ("sint32", "sint64"),
    ("string", "bytes"),
    ("fixed32", "sfixed32"),
    ("fixed64", "sfixed64"),
    ("float",),
    ("double",),
]
Rows = dict[str, tuple[str, str, list[str], list[str]]]


def proto3(body: str) -> str:
    return f'syntax = "proto3"; package p; {body}'


def proto2(body: str) -> str:
    return f'syntax = "proto2"; package p; {body}'


def compare(
    old: str, new: str, old_imports: dict[str, str] | None = None, imports: dict[str, str] | None = None
) -> list[str]:
    """Kinds and places of what the new schema cannot read."""
    before, after = parse(old, old_imports or {}), parse(new, imports or {})
    differences = incompatibilities(after, before, Budget())
    for difference in differences:
        assert difference.message("new", "old").startswith(f"{{errorType:'{difference.kind}', description:'"), (
            "no sentence for it"
        )
    return [f"{difference.kind} {difference.path}" for difference in differences]


def test_types_of_a_group_read_each_other() -> None:
    """All types as fields of one message, each read as each other."""
    types = [(name, group) for group, names in enumerate(GROUPS) for name in names]
    pairs = [(old, new) for old in types for new in types]

    def message(side: int) -> str:
        fields = (f"{pair[side][0]} f{number} = {number};" for number, pair in enumerate(pairs, 1))
        return proto3(f"enum E {{ A = 0; }} message M {{ {' '.join(fields)} }}")

    expected = [
        f"FIELD_SCALAR_KIND_CHANGED #/M/{number}" for number, ((_, old), (_, new)) in enumerate(pairs, 1) if old != new
    ]
    assert compare(message(0), message(1)) == expected


ROWS: Rows = {
    # name: old, new, incompatible, incompatible the other way round
    "package": (
        'syntax = "proto3"; package a; message M {}',
        'syntax = "proto3"; package b; message M {}',
        ["PACKAGE_CHANGED #/"],
        ["PACKAGE_CHANGED #/"],
    ),
    "message added": (proto3("message M {}"), proto3("message N {} message M {}"), [], ["MESSAGE_REMOVED #/N"]),
    "nested message": (
        proto3("message M {}"),
        proto3("message M { message N { message O {} } }"),
        [],
        ["MESSAGE_REMOVED #/M/N"],
    ),
    "messages reordered": (proto3("message M {} message N {}"), proto3("message N {} message M {}"), [], []),
    "enums": (
        proto3("message M {} enum E { A = 0; B = 1; } enum F { X = 0; }"),
        proto3("message M {} enum E { C = 0; B2 = 2; }"),
        [],
        [],
    ),
    "field added": (proto3("message M {}"), proto3("message M { int32 a = 1; }"), [], []),
    "field renamed": (proto3("message M { int32 a = 1; }"), proto3("message M { int32 b = 1; }"), [], []),
    "field of a nested message": (
        proto3("message M { message N { int32 a = 1; } }"),
        proto3("message M { message N { string a = 1; } }"),
        *(["FIELD_SCALAR_KIND_CHANGED #/M/N/1"],) * 2,
    ),
    "kinds": (
        proto3("message N {} message M { int32 a = 1; N b = 2; map<string, int32> c = 3; }"),
        proto3("message N {} message M { N a = 1; map<string, N> b = 2; int32 c = 3; }"),
        *(["FIELD_KIND_CHANGED #/M/1", "FIELD_KIND_CHANGED #/M/2", "FIELD_KIND_CHANGED #/M/3"],) * 2,
    ),
    "maps": (
        proto3("message M { map<int32, string> a = 1; map<int32, string> b = 2; map<int32, int32> c = 3; }"),
        proto3("message M { map<int64, bytes> a = 1; map<string, string> b = 2; map<int32, float> c = 3; }"),
        *(["FIELD_SCALAR_KIND_CHANGED #/M/2", "FIELD_SCALAR_KIND_CHANGED #/M/3"],) * 2,
    ),
    "map for its entries": (
        proto3("message M { map<int32, string> a = 1; }"),
        proto3("message M { message AEntry { int32 key = 1; string value = 2; } repeated AEntry a = 1; }"),
        ["FIELD_KIND_CHANGED #/M/1"],
        ["FIELD_KIND_CHANGED #/M/1", "MESSAGE_REMOVED #/M/AEntry"],
    ),
    "other message": (
        proto3("message N {} message O {} message M { N a = 1; }"),
        proto3("message N {} message O {} message M { O a = 1; }"),
        *(["FIELD_NAMED_TYPE_CHANGED #/M/1"],) * 2,
    ),
    "message of the same name elsewhere": (
        proto3("message N {} message M { N a = 1; }"),
        proto3("message N {} message M { message N {} N a = 1; }"),
        ["FIELD_NAMED_TYPE_CHANGED #/M/1"],
        ["FIELD_NAMED_TYPE_CHANGED #/M/1", "MESSAGE_REMOVED #/M/N"],
    ),
    "recursive": (
        proto3("message M { M a = 1; int32 b = 2; }"),
        proto3("message M { M a = 1; string b = 2; }"),
        *(["FIELD_SCALAR_KIND_CHANGED #/M/2"],) * 2,
    ),
    "labels of numbers": (
        proto3("message M { optional int32 a = 1; optional float b = 2; repeated E c = 3; } enum E { A = 0; }"),
        proto3("message M { repeated int32 a = 1; repeated float b = 2; optional E c = 3; } enum E { A = 0; }"),
        *([f"FIELD_NUMERIC_LABEL_CHANGED #/M/{number}" for number in (1, 2, 3)],) * 2,
    ),
    "labels of strings and messages": (
        proto3("message M { optional string a = 1; optional bytes b = 2; repeated M c = 3; }"),
        proto3("message M { repeated string a = 1; repeated bytes b = 2; M c = 3; }"),
        [],
        [],
    ),
    "labels that are not written": (
        proto3("message M { int32 a = 1; int32 b = 2; }"),
        proto3("message M { repeated int32 a = 1; optional int32 b = 2; }"),
        [],
        [],
    ),
    "labels of proto2": (
        proto2("message M { optional int32 a = 1; optional string b = 2; }"),
        proto2("message M { repeated int32 a = 1; required string b = 2; }"),
        *(["FIELD_NUMERIC_LABEL_CHANGED #/M/1"],) * 2,
    ),
    "syntax": (proto2("message M { optional int32 a = 1; }"), proto3("message M { int32 a = 1; }"), [], []),
    "required": (
        proto2("message M {}"),
        proto2("message M { required int32 a = 1; optional int32 b = 2; }"),
        ["REQUIRED_FIELD_ADDED #/M/1"],
        ["REQUIRED_FIELD_REMOVED #/M/1"],
    ),
    "group": (
        proto2("message M { optional group G = 1 { optional int32 a = 1; } }"),
        proto2("message M { optional group G = 1 { optional string a = 1; } }"),
        *(["FIELD_SCALAR_KIND_CHANGED #/M/G/1"],) * 2,
    ),
    "optional of proto3 is no oneof": (
        proto3("message M { int32 a = 1; int32 b = 2; }"),
        proto3("message M { optional int32 a = 1; optional int32 b = 2; }"),
        [],
        [],
    ),
    "oneof added": (proto3("message M {}"), proto3("message M { oneof o { int32 a = 1; } }"), [], []),
    "field added to a oneof": (
        proto3("message M { oneof o { int32 a = 1; } }"),
        proto3("message M { oneof o { int32 a = 1; int32 b = 2; } }"),
        [],
        ["ONEOF_FIELD_REMOVED #/M/o/2"],
    ),
    "field of a oneof that is renamed": (
        proto3("message M { oneof o { int32 a = 1; int32 b = 2; } }"),
        proto3("message M { oneof p { int32 a = 1; } }"),
        ["ONEOF_FIELD_REMOVED #/M/o/2"],
        [],
    ),
    "type in a oneof": (
        proto3("message M { oneof o { int32 a = 1; } }"),
        proto3("message M { oneof o { string a = 1; } }"),
        *(["FIELD_SCALAR_KIND_CHANGED #/M/o/1"],) * 2,
    ),
    "type in a oneof that is renamed": (
        proto3("message M { oneof o { int32 a = 1; } }"),
        proto3("message M { oneof p { string a = 1; } }"),
        *(["FIELD_SCALAR_KIND_CHANGED #/M/1"],) * 2,
    ),
    "one field into a new oneof": (
        proto3("message M { int32 a = 1; }"),
        proto3("message M { oneof o { int32 a = 1; int32 b = 2; } }"),
        [],
        ["ONEOF_FIELD_REMOVED #/M/o/2"],
    ),
    "several fields into a oneof": (
        proto3("message M { int32 a = 1; int32 b = 2; }"),
        proto3("message M { oneof o { int32 a = 1; int32 b = 2; } }"),
        ["MULTIPLE_FIELDS_MOVED_TO_ONEOF #/M/o"],
        [],
    ),
    "field into an existing oneof": (
        proto3("message M { int32 a = 1; oneof o { int32 b = 2; } }"),
        proto3("message M { oneof o { int32 a = 1; int32 b = 2; } }"),
        ["FIELD_MOVED_TO_EXISTING_ONEOF #/M/o"],
        [],
    ),
    "oneofs merged": (
        proto3("message M { oneof o { int32 a = 1; } oneof p { int32 b = 2; } }"),
        proto3("message M { oneof o { int32 a = 1; int32 b = 2; } }"),
        ["MULTIPLE_FIELDS_MOVED_TO_ONEOF #/M/o"],
        [],
    ),
    "options, reserved and services": (
        proto3("message M { int32 a = 1; int32 b = 2 [deprecated = true]; }"),
        proto3("option java_package = 'x'; message M { reserved 1; int32 b = 2; } service S { rpc R(M) returns (M); }"),
        [],
        [],
    ),
    "well-known types": (
        proto3('import "google/protobuf/timestamp.proto"; message M { google.protobuf.Timestamp a = 1; }'),
        proto3('import "google/protobuf/duration.proto"; message M { google.protobuf.Duration a = 1; }'),
        *(["FIELD_NAMED_TYPE_CHANGED #/M/1"],) * 2,
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_rule(name: str) -> None:
    old, new, incompatible, reverse = ROWS[name]
    assert compare(old, new) == incompatible
    assert compare(new, old) == reverse
    assert compare(old, old) == compare(new, new) == []


USER = proto3('import "m.proto"; message U { m.Money price = 1; map<string, m.Money> prices = 2; }')
MONEY = (
    'syntax = "proto3"; package m; message Money { int64 units = 1; Currency currency = 2; } '
    "message Currency { string code = 1; }"
)


def test_imported_messages_are_compared_where_fields_use_them() -> None:
    other = MONEY.replace("int64 units", "string units").replace("string code", "int32 code")
    reasons = [
        "FIELD_SCALAR_KIND_CHANGED #/Money/1",
        "FIELD_SCALAR_KIND_CHANGED #/Currency/1",
        "FIELD_NAMED_TYPE_CHANGED #/Money/2",
    ]
    assert compare(USER, USER, {"m.proto": MONEY}, {"m.proto": other}) == [
        *(*reasons, "FIELD_NAMED_TYPE_CHANGED #/U/1"),
        *(*reasons, "FIELD_NAMED_TYPE_CHANGED #/U/2"),
    ]
    assert compare(USER, USER, {"m.proto": MONEY}, {"m.proto": MONEY + " message Unused {}"}) == []


def test_message_may_move_to_another_file() -> None:
    own = 'syntax = "proto3"; package p; message U { Money price = 1; } message Money { %s units = 1; }'
    imported = {"m.proto": 'syntax = "proto3"; package m; message Money { int64 units = 1; }'}
    user = 'syntax = "proto3"; package p; import "m.proto"; message U { m.Money price = 1; }'
    assert compare(user, own % "int64", imported) == []
    assert compare(user, own % "string", imported) == [
        "FIELD_SCALAR_KIND_CHANGED #/Money/1",
        "FIELD_NAMED_TYPE_CHANGED #/U/1",
    ]
    assert compare(own % "int64", user, None, imported) == ["MESSAGE_REMOVED #/Money"]


def test_descriptors_in_base64_are_compared_like_texts() -> None:
    old, new = proto3("message M { int32 a = 1; }"), proto3("message M { string a = 1; }")
    described = in_base64(compile_files(old, {})[-1])
    assert compare(described, old) == compare(old, described) == []
    assert compare(described, new) == ["FIELD_SCALAR_KIND_CHANGED #/M/1"]


def test_comparison_of_imports_ends_soon() -> None:
    """A message that uses another one twice, through 25 levels."""

    def imported(kind: str) -> str:
        levels = [f"message L{level} {{ L{level - 1} a = 1; L{level - 1} b = 2; }}" for level in range(1, 25)]
        return f'syntax = "proto3"; package m; message L0 {{ {kind} a = 1; }} {" ".join(levels)}'

    user = proto3('import "m.proto"; message U { m.L24 a = 1; }')
    begun = time.process_time()
    with pytest.raises(UnsupportedSchema, match="too large"):
        compare(user, user, {"m.proto": imported("int32")}, {"m.proto": imported("string")})
    assert time.process_time() - begun < 5


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("message", "not a .proto file: "),
        ('syntax = "proto3"; import "../../etc/passwd";', "not a .proto file: "),
        ('syntax = "proto3"; import "gone.proto";', "not a .proto file: "),
        ('syntax = "proto3"; ' + "message M {" * 1_000 + "}" * 1_000, "not a .proto file: "),
        ("", ""),
    ],
    ids=lambda value: value[:30],
)
def test_malformed_file_is_refused_in_one_line(text: str, why: str) -> None:
    if not why:
        assert compare(text, proto2("message M {}")) == ["PACKAGE_CHANGED #/"]
        return
    with pytest.raises(UnsupportedSchema) as refused:
        parse(text, {})
    assert str(refused.value).startswith(why)
    assert "\n" not in str(refused.value)
