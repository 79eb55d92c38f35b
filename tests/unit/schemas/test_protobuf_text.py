"""Canonical and normal texts of Protobuf schemas: protoc makes the same of them as of the texts that they come from."""

from pathlib import Path
from typing import Any

import pytest

grpc_tools = pytest.importorskip("grpc_tools", reason="protoc comes with the extra: pip install 'ottla[schema]'")

from google.protobuf.descriptor_pb2 import FileDescriptorProto  # noqa: E402

from ottla.schemas.protobuf import compile_files, file_of, in_base64  # noqa: E402
from ottla.schemas.protobuf_text import file_text  # noqa: E402

LIBRARY = sorted((Path(grpc_tools.__file__).parent / "_proto" / "google" / "protobuf").rglob("*.proto"))

OPTIONS = """
syntax = "proto2";
package o;
import "google/protobuf/descriptor.proto";
message Rule { optional string text = 1; repeated int32 numbers = 2; optional Rule inner = 3; }
enum Level { LOW = 0; HIGH = 1; }
extend google.protobuf.FileOptions { optional string owner = 50001; }
extend google.protobuf.MessageOptions { optional Rule rule = 50001; }
extend google.protobuf.FieldOptions { repeated Level levels = 50001; optional double weight = 50002; }
"""

TEXTS = {
    "empty": "",
    "proto3": """
        syntax = "proto3"; package a.b; import "google/protobuf/timestamp.proto";
        option java_package = "x\\ty\\"é"; option optimize_for = SPEED;
        // a comment
        message M {
          optional int32 a = 1; map<string, N> m = 2 [deprecated = true]; int32 some_name = 12 [json_name = "other"];
          oneof o { string s = 3; N n = 4; google.protobuf.Timestamp t = 6; }
          repeated E e = 5 [packed = false, deprecated = true]; repeated .a.b.M others = 7;
          message N { google.protobuf.Timestamp t = 1; enum E { Y = 0; } E e = 2; a.b.E outer = 3; M up = 4; }
          reserved 9 to 11, 20; reserved "x", "y"; reserved 1000 to max;
        }
        message Empty {}
        enum E { option allow_alias = true; A = 0; B = 0 [deprecated = true]; C = -1; reserved 5 to 7; reserved "D"; }
        service S {
          option deprecated = true;
          rpc R(M) returns (stream M.N) { option idempotency_level = NO_SIDE_EFFECTS; }
          rpc Q(stream M) returns (M);
        }
    """,
    "proto2": r"""
        package p;
        message M {
          required int32 a = 1 [default = -7]; optional string b = 2 [default = "q\"\nz"];
          optional E e = 10 [default = B];
          optional bytes c = 3 [default = "\001\"\\x"]; optional double d = 4 [default = inf];
          optional bool f = 5 [default = true];
          optional float g2 = 6 [default = 1e-10];
          repeated group G = 7 { optional string s = 1; optional H h = 2; message H {} }
          oneof o { int32 x = 8; group Inner = 9 { optional int32 y = 1; } }
          extensions 100 to 199; extensions 1000 to max; extensions 500;
          extend M { optional M self = 100; }
          message Sub { optional p.M up = 1; optional Sub same = 2; }
        }
        enum E { A = 0; B = 1; }
        extend M { repeated group Later = 102 { optional int32 z = 1; } optional string late = 101; }
        message Set { option message_set_wire_format = true; extensions 4 to max; }
    """,
    "names that hide others": """
        syntax = "proto3"; package a.a;
        message a { message b { message a { a x = 1; .a.a.a y = 2; .a.a.a.b z = 3; } .a.a.a v = 1; b w = 2; } .a.a.b u = 1; }
        message b { a.b x = 1; .a.a.b y = 2; }
    """,
    "edition": """
        edition = "2023"; package e; option features.field_presence = IMPLICIT;
        message M { int32 a = 1; int32 b = 2 [features.field_presence = EXPLICIT]; repeated int32 c = 3; reserved foo, bar; }
        enum E { option features.enum_type = CLOSED; A = 1; }
    """,
    "options": """
        syntax = "proto3"; package u; import public "o.proto";
        option (o.owner) = "me";
        message M {
          option (o.rule) = { text: "a \\"b\\"" numbers: [1, 2] inner { text: "c" } };
          int32 a = 1 [(o.levels) = LOW, (o.levels) = HIGH, (o.weight) = 1.5, deprecated = true];
        }
    """,
}  # fmt: skip
REFERRED = {"o.proto": OPTIONS}


def described(text: str) -> FileDescriptorProto:
    """Return the descriptor that protoc makes of a text, without empty options of extension ranges."""
    file = compile_files(text, REFERRED)[-1]
    assert isinstance(file, FileDescriptorProto)
    messages = list(file.message_type)
    while messages:
        message = messages.pop()
        messages += message.nested_type
        for extension in message.extension_range:
            if not extension.options.ByteSize():
                extension.ClearField("options")
    return file


@pytest.mark.parametrize(
    "text",
    [*TEXTS.values(), OPTIONS, *(path.read_text(encoding="utf-8") for path in LIBRARY)],
    ids=[*TEXTS, "declared options", *(path.stem for path in LIBRARY)],
)
def test_text_means_the_same_and_comes_back(text: str) -> None:
    canonical = file_text(file_of(text, REFERRED))
    assert described(canonical) == described(text), canonical
    assert file_text(file_of(canonical, REFERRED)) == canonical
    normal = file_text(file_of(text, REFERRED), normal=True)
    assert file_text(file_of(normal, REFERRED), normal=True) == normal
    assert file_text(file_of(canonical, REFERRED), normal=True) == normal


def test_canonical_text() -> None:
    text = """syntax = "proto3"; package p; /* c */ message M { .p.M.N a = 1 [deprecated = true]; message N {}
        map<string, M> b = 3; oneof o { int32 c = 4; } }"""
    canonical = """syntax = "proto3";
package p;
message M {
  N a = 1 [deprecated = true];
  map<string, M> b = 3;
  oneof o {
    int32 c = 4;
  }
  message N {
  }
}
"""
    assert file_text(file_of(text, {})) == canonical
    assert file_text(file_of(in_base64(described(text)), {})) == canonical


def test_normal_text_has_one_order() -> None:
    def schema(*fields: str) -> Any:
        return file_of(f'syntax = "proto3"; package p; message M {{ {" ".join(fields)} }}', {})

    one, other = schema("M a = 1;", "p.M b = 2;"), schema(".p.M b = 2;", "p.M a = 1;")
    assert file_text(one) != file_text(other)
    assert file_text(one, normal=True) == file_text(other, normal=True)
