"""`ottla schemas check`: verdicts, exit codes and errors, against files, a registry and a directory."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.spark.schema_registry import Registry, serving

from ottla.cli.main import main


def record(*fields: str, **more: Any) -> str:
    return json.dumps(
        {"type": "record", "name": "O", "fields": [{"name": name, "type": "int", **more} for name in fields]}
    )


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name, text in {"one.avsc": record(), "two.avsc": record("a"), "three.avsc": record("b", default=1)}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serving() as served:
        yield served


def check(*words: str, stdin: str | bytes = "") -> Result:
    result = CliRunner().invoke(main, ["schemas", "check", *words], input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.mark.parametrize(
    ("file", "level", "reader"),
    [
        ("two.avsc", "BACKWARD", "new"),
        ("one.avsc", "FORWARD", "old"),
        ("one.avsc", "FULL", "old"),
        ("two.avsc", "FULL", "new"),
        ("one.avsc", "BACKWARD", None),
        ("two.avsc", "FORWARD", None),
        ("two.avsc", "NONE", None),
        ("two.avsc", "full_transitive", "new"),
    ],
)
def test_level_decides_which_schema_reads(file: str, level: str, reader: str | None) -> None:
    other = {"one.avsc": "two.avsc", "two.avsc": "one.avsc"}[file]
    result = check(file, "--against", other, "--level", level)
    if reader is None:
        assert (result.exit_code, result.stderr) == (0, "")
        assert result.stdout == f"{file} is {level} compatible with {other}\n"
    else:
        writer = {"new": "old", "old": "new"}[reader]
        assert (result.exit_code, result.stderr) == (
            1,
            f"ottla: {file} is not {level.upper()} compatible with {other}\n",
        )
        assert result.stdout == (
            f"{file}: The field 'a' at '/fields/0' of the {reader} schema has no default, and the {writer} schema lacks it"
            " (READER_FIELD_MISSING_DEFAULT_VALUE)\n"
        )


def test_json_has_kind_place_and_message() -> None:
    result = check("two.avsc", "--against", "one.avsc", "--json")
    assert (result.exit_code, result.stderr) == (1, "")
    shown = json.loads(result.stdout)
    assert {name: shown[name] for name in ("file", "against", "level", "is_compatible")} == {
        "file": "two.avsc",
        "against": "one.avsc",
        "level": "BACKWARD",
        "is_compatible": False,
    }
    (row,) = shown["incompatibilities"]
    assert (row["kind"], row["path"], row["reader"]) == ("READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/0", "new")
    assert json.loads(check("one.avsc", "--against", "two.avsc", "--json").stdout)["is_compatible"] is True


def test_all_versions_are_compared_until_one_fails() -> None:
    words = ["three.avsc", "--against", "three.avsc", "--against", "two.avsc", "--against", "one.avsc"]
    assert check(*words, "--level", "BACKWARD_TRANSITIVE").exit_code == 0
    result = check(*words, "--level", "FULL_TRANSITIVE")
    assert (result.exit_code, result.stderr) == (
        1,
        "ottla: three.avsc is not FULL_TRANSITIVE compatible with two.avsc\n",
    )
    result = check(*words)
    assert result.exit_code == 2
    assert "BACKWARD compares with one version" in result.stderr


def test_standard_input_is_the_schema_before() -> None:
    assert check("two.avsc", "--against", "-", stdin=record("a")).exit_code == 0
    assert check("two.avsc", "--against", "-", stdin=record()).exit_code == 1
    assert check("-", "--type", "avro", "--against", "two.avsc", stdin=record()).exit_code == 0


def test_references_are_read_from_files(folder: Path) -> None:
    (folder / "e.avsc").write_text('{"type": "enum", "name": "x.E", "symbols": ["A"]}', encoding="utf-8")
    for name, declared in (("old.avsc", '"x.E"'), ("new.avsc", '["null", "x.E"]')):
        (folder / name).write_text(f'{{"type": "array", "items": {declared}}}', encoding="utf-8")
    words = ["new.avsc", "--against", "old.avsc", "--reference", "x.E=e.avsc"]
    assert check(*words).exit_code == 0
    assert check(*words, "--level", "FULL").exit_code == 1
    result = check(*words[:3])
    assert (result.exit_code, result.stderr) == (1, "ottla: new.avsc: not an Avro schema: undefined name x.E\n")


def test_subject_has_level_versions_and_references(registry: Registry) -> None:
    registry.add("enums", '{"type": "enum", "name": "x.E", "symbols": ["A"]}')
    reference = {"name": "x.E", "subject": "enums", "version": 1}
    registry.add("orders", record("a"))
    registry.add("orders", '{"type": "array", "items": "x.E"}', references=[reference])
    words = ["new.avsc", "--against", "orders", "--schema-registry", registry.address]
    Path("new.avsc").write_text('{"type": "array", "items": ["x.E", "null"]}', encoding="utf-8")
    result = check(*words)
    assert (result.exit_code, result.stdout) == (0, "new.avsc is BACKWARD compatible with version 2 of orders\n")
    result = check(*words, "--level", "BACKWARD_TRANSITIVE")
    assert (result.exit_code, result.stderr) == (
        1,
        "ottla: new.avsc is not BACKWARD_TRANSITIVE compatible with version 1 of orders\n",
    )


def test_registry_of_the_profile_is_read(folder: Path, registry: Registry) -> None:
    registry.add("orders", record())
    registry.user_info = "ada:secret"
    (folder / "ottla").mkdir()
    profiles = folder / "ottla" / "profiles.toml"
    profiles.write_text(
        f'[dev]\nschema.registry.url = "{registry.address}"\nschema.registry.basic.auth.user.info = "ada:secret"\n',
        encoding="utf-8",
    )
    profiles.chmod(0o600)
    assert check("one.avsc", "--against", "orders", "--profile", "dev").exit_code == 0


def test_directory_of_schemas_is_a_registry(folder: Path) -> None:
    (folder / "1.avsc").write_text(record(), encoding="utf-8")
    (folder / "subjects.json").write_text('{"subjects": {"orders": [1]}}', encoding="utf-8")
    assert check("one.avsc", "--against", "orders", "--schema-registry", str(folder)).exit_code == 0


@pytest.fixture
def open_objects(folder: Path) -> None:
    """An open object in old.json, and the same with a further property in new.json."""
    (folder / "old.json").write_text('{"type": "object", "properties": {}}', encoding="utf-8")
    (folder / "new.json").write_text('{"type": "object", "properties": {"a": {"type": "string"}}}', encoding="utf-8")


@pytest.mark.usefixtures("open_objects")
def test_policy_decides_how_strictly_json_schemas_are_compared() -> None:
    words = ["new.json", "--against", "old.json"]
    for policy in ([], ["--policy", "strict"]):
        result = check(*words, *policy)
        assert result.exit_code == 1
        assert "(PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL)" in result.stdout
    assert check(*words, "--policy", "lenient").exit_code == 0
    assert check("two.avsc", "--against", "one.avsc", "--policy", "LENIENT").exit_code == 1


@pytest.mark.usefixtures("open_objects")
def test_policy_is_that_of_the_subject(folder: Path, registry: Registry) -> None:
    """Also in an export, which has the configs of the registry."""
    registry.add("orders", Path("old.json").read_text(), "JSON")
    configs = {"": {"compatibilityLevel": "FULL"}, "orders": {"compatibilityPolicy": "LENIENT"}}
    Path("old.json").rename("1.json")
    Path("subjects.json").write_text(json.dumps({"subjects": {"orders": [1]}, "configs": configs}), encoding="utf-8")
    for location in (registry.address, str(folder)):
        words = ["new.json", "--against", "orders", "--schema-registry", location]
        if location == registry.address:
            assert check(*words).exit_code == 1
            registry.policy = "LENIENT"
        assert check(*words).exit_code == 0
        assert check(*words, "--policy", "STRICT").exit_code == 1
    assert check(*words).stdout == "new.json is FULL compatible with version 1 of orders\n"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["gone.avsc", "--against", "one.avsc"], "gone.avsc: No such file or directory"),
        ([".", "--type", "AVRO", "--against", "one.avsc"], ".: Is a directory"),
        (
            ["one.avsc", "--against", "gone"],
            "no file gone; if it is a subject, say of which registry with --schema-registry",
        ),
        (["bad.avsc", "--against", "one.avsc"], "bad.avsc: not an Avro schema: Expecting"),
        (["one.avsc", "--against", "bad.avsc"], "bad.avsc: not an Avro schema: Expecting"),
        (["bytes.avsc", "--against", "one.avsc"], "bytes.avsc: not UTF-8 text"),
        (["one.avsc", "--against", "s", "--schema-registry", "gone"], "gone: no directory of schemas"),
        (["one.avsc", "--against", "s", "--schema-registry", "."], "no subject s"),
        (["one.avsc", "--against", "s", "--schema-registry", "http://127.0.0.1:1"], "no schema registry answers"),
        (["one.avsc", "--against", "one.avsc", "--reference", "x=gone"], "gone: No such file or directory"),
        (["deep.avsc", "--against", "one.avsc"], "deep.avsc: not an Avro schema: nested too deeply"),
    ],
)
def test_failure_is_one_line(words: list[str], error: str, folder: Path) -> None:
    (folder / "bad.avsc").write_text("x", encoding="utf-8")
    (folder / "bytes.avsc").write_bytes(b"\xff\xfe")
    (folder / "deep.avsc").write_text("[" * 100_000, encoding="utf-8")
    result = check(*words)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("ottla: ")
    assert result.stderr.count("\n") == 1
    assert error in result.stderr


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["one.avsc"], "Missing option '--against'"),
        (["one.avsc", "--against", "one.avsc", "--level", "all"], "--level"),
        (["one.avsc", "--against", "one.avsc", "--policy", "LOGICAL"], "--policy"),
        (["one.avsc", "--against", "one.avsc", "--type", "THRIFT"], "--type"),
        (["one.avsc", "--against", "one.avsc", "--reference", "x"], "--reference requires NAME=FILE"),
        (
            ["one.txt", "--against", "one.avsc"],
            "one.txt, whose name ends with none of .avsc, .json, .proto, needs --type",
        ),
        (["-", "--against", "one.avsc"], "standard input needs --type"),
        (["-", "--against", "-"], "only one of the schemas can be standard input"),
    ],
)
def test_wrong_usage_exits_with_2(words: list[str], error: str) -> None:
    result = check(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert error in result.stderr


def test_json_schemas_are_compared(folder: Path) -> None:
    (folder / "old.json").write_text('{"$ref": "number.json"}', encoding="utf-8")
    (folder / "new.json").write_text('{"type": "integer"}', encoding="utf-8")
    (folder / "number.json").write_text('{"type": "number"}', encoding="utf-8")
    words = ["new.json", "--against", "old.json", "--reference", "number.json=number.json"]
    result = check(*words)
    assert (result.exit_code, result.stdout) == (
        1,
        "new.json: '#/' must be an integer for the new schema, but not for the old schema (TYPE_NARROWED)\n",
    )
    assert check(*words, "--level", "FORWARD").exit_code == 0
    result = check(*words[:3])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "ottla: old.json: not a JSON Schema: # refers to number.json, which is neither in it nor among its references\n"
    )


def test_protobuf_schemas_are_compared(folder: Path) -> None:
    pytest.importorskip("grpc_tools", reason="protoc comes with the extra: pip install 'ottla[schema]'")
    (folder / "old.proto").write_text('syntax = "proto3"; import "n.proto"; message M { N n = 1; }', encoding="utf-8")
    (folder / "new.proto").write_text('syntax = "proto3"; message M { int32 n = 1; }', encoding="utf-8")
    (folder / "n.proto").write_text('syntax = "proto3"; message N {}', encoding="utf-8")
    words = ["new.proto", "--against", "old.proto", "--reference", "n.proto=n.proto"]
    result = check(*words)
    assert (result.exit_code, result.stdout) == (
        1,
        "new.proto: The field '#/M/1' is a scalar, a message or a map in the new schema, and another of these in the old "
        "schema (FIELD_KIND_CHANGED)\n",
    )
    result = check(*words[:3])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("ottla: old.proto: not a .proto file: ")
    assert result.stderr.count("\n") == 1


def test_other_type_is_incompatible(folder: Path, registry: Registry) -> None:
    registry.add("orders", '{"type": "string"}', "JSON")
    result = check("one.avsc", "--against", "orders", "--schema-registry", registry.address)
    assert (result.exit_code, result.stdout) == (
        1,
        "one.avsc: The type of the schema has changed: JSON to AVRO (SCHEMA_TYPE_CHANGED)\n",
    )


def test_without_the_extra_protobuf_says_how_to_get_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "a.proto").write_text("", encoding="utf-8")
    monkeypatch.setitem(sys.modules, "google.protobuf.descriptor_pb2", None)
    monkeypatch.delitem(sys.modules, "ottla.schemas.compatibility.protobuf", raising=False)
    result = check("a.proto", "--against", "a.proto")
    assert result.exit_code == 1
    assert "a.proto: schemas of type PROTOBUF need google" in result.stderr


def test_byte_order_mark_is_skipped(folder: Path) -> None:
    (folder / "mark.avsc").write_text(record(), encoding="utf-8-sig")
    assert check("mark.avsc", "--against", "one.avsc", "--level", "FULL").exit_code == 0


def test_check_imports_no_codec() -> None:
    """It is run for each commit, and without the extra `schema`."""
    code = (
        "import sys; from ottla.cli.main import main; main(['schemas', 'check', 'one.avsc', '--against', 'one.avsc'], "
        "standalone_mode=False); codecs = ('fastavro', 'jsonschema', 'referencing', 'google.protobuf'); "
        "print([name for name in codecs if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "one.avsc is BACKWARD compatible with one.avsc\n[]\n"
