"""`ottla schemas` on the subjects of a registry: one in memory, or that of --schema-registry."""

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.spark.schema_registry import serving

from ottla.cli.main import main

ONE = '{"type":"record","name":"O","fields":[]}'
TWO = '{"type":"record","name":"O","fields":[{"name":"a","type":"int","default":1}]}'
Run = Callable[..., Result]


@pytest.fixture
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    option = request.config.getoption("--schema-registry")
    if option:
        yield option
        return
    with serving() as registry:
        yield registry.address


@pytest.fixture
def subject() -> str:
    return f"orders/{uuid.uuid4()}-value"


@pytest.fixture
def run(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    for name, text in {"one.avsc": ONE, "two.avsc": TWO, "three.json": '{"type":"string"}'}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")

    def command(*words: str) -> Result:
        result = CliRunner().invoke(main, ["schemas", *words, "--schema-registry", address])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    return command


def output(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(result: Result) -> str:
    """The one line that says why."""
    assert (result.exit_code, result.stdout) == (1, ""), result.output
    lines = [line for line in result.stderr.splitlines() if not line.startswith("Changing ")]
    assert len(lines) == 1
    assert lines[0].startswith("ottla: ")
    return lines[0]


def test_subject_from_registration_to_deletion(run: Run, subject: str) -> None:
    number = json.loads(output(run("register", subject, "one.avsc", "--json")))
    assert (number["subject"], number["version"]) == (subject, 1)
    assert (
        output(run("register", subject, "one.avsc")) == f"one.avsc is version 1 of {subject}, with id {number['id']}\n"
    )
    assert output(run("register", subject, "two.avsc")).startswith(f"two.avsc is version 2 of {subject}, with id ")
    assert subject in output(run("list")).splitlines()
    assert subject in json.loads(output(run("list", "--json")))
    rows = json.loads(output(run("versions", subject, "--json")))
    assert [(row["version"], row["type"], row["references"]) for row in rows] == [(1, "AVRO", 0), (2, "AVRO", 0)]
    assert rows[0]["id"] == number["id"]
    assert output(run("versions", subject)).split()[:4] == ["VERSION", "ID", "TYPE", "REFERENCES"]
    assert json.loads(output(run("get", subject))) == json.loads(TWO)
    assert json.loads(output(run("get", subject, "--version", "1"))) == json.loads(ONE)
    shown = json.loads(output(run("get", "--id", str(number["id"]), "--json")))
    assert (shown["id"], shown["schemaType"], json.loads(shown["schema"])) == (number["id"], "AVRO", json.loads(ONE))
    assert output(run("check", "two.avsc", "--against", subject, "--level", "FULL_TRANSITIVE"))
    deleted = run("delete", subject, "--version", "1")
    assert output(deleted) == f"version 1 of {subject} was deleted\n"
    assert deleted.stderr.startswith("Changing the registry at http://127.0.0.1:")
    assert [row["version"] for row in json.loads(output(run("versions", subject, "--json")))] == [2]
    assert output(run("delete", subject, "--permanent")) == f"{subject} was deleted permanently\n"
    assert subject not in output(run("list")).splitlines()


@pytest.mark.parametrize("name", ["config", "mode"])
def test_setting_of_a_subject_returns_to_the_default(run: Run, subject: str, name: str) -> None:
    output(run("register", subject, "one.avsc"))
    default = output(run(name))
    assert output(run(name, subject)) == default
    other = {"config": "FULL_TRANSITIVE", "mode": "READONLY"}[name]
    changed = run(name, subject, "--set", other.lower())
    assert (output(changed), changed.stderr.startswith("Changing the registry at ")) == (f"{other}\n", True)
    assert output(run(name, subject)) == f"{other}\n"
    assert output(run(name)) == default
    assert output(run(name, subject, "--delete")) == default
    assert run(name).stderr == ""


def test_default_level_is_changed(run: Run, subject: str) -> None:
    before = output(run("config")).strip()
    try:
        assert output(run("config", "--set", "FULL")) == "FULL\n"
        assert output(run("config", subject)) == "FULL\n"
    finally:
        run("config", "--set", before)


def test_references_are_registered(run: Run, subject: str, tmp_path: Path) -> None:
    (tmp_path / "e.avsc").write_text('{"type":"enum","name":"x.E","symbols":["A"]}', encoding="utf-8")
    (tmp_path / "list.avsc").write_text('{"type":"array","items":"x.E"}', encoding="utf-8")
    output(run("register", f"{subject}-enum", "e.avsc"))
    output(run("register", subject, "list.avsc", "--reference", f"x.E={subject}-enum:1"))
    shown = json.loads(output(run("get", subject, "--json")))
    assert shown["references"] == [{"name": "x.E", "subject": f"{subject}-enum", "version": 1}]


def test_failure_is_one_line(run: Run, subject: str, tmp_path: Path) -> None:
    for words in (["versions", subject], ["get", subject], ["delete", subject], ["get", "--id", "2000000000"]):
        assert " 404 " in refused(run(*words)), words
    output(run("register", subject, "one.avsc"))
    assert " 404 " in refused(run("get", subject, "--version", "7"))
    assert "gone.avsc: No such file or directory" in refused(run("register", subject, "gone.avsc"))


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["get"], "get needs SUBJECT"),
        (["get", "s", "--id", "1"], "get needs SUBJECT"),
        (["get", "--id", "1", "--version", "1"], "get needs SUBJECT"),
        (["get", "s", "--version", "0"], "--version"),
        (["delete"], "Missing argument"),
        (["config", "s", "--set", "all"], "--set"),
        (["config", "s", "--set", "full", "--delete"], "--set and --delete exclude each other"),
        (["mode", "s", "--set", "off"], "--set"),
        (["register", "s", "one.txt"], "needs --type"),
        (["register", "s", "one.avsc", "--reference", "x"], "NAME=SUBJECT:VERSION"),
        (["register", "s", "one.avsc", "--reference", "x=s:0"], "NAME=SUBJECT:VERSION"),
        (["lst"], "no such command lst"),
    ],
)
def test_wrong_usage_exits_with_2(run: Run, words: list[str], error: str) -> None:
    result = run(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert error in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        *(
            ["list"],
            ["versions", "s"],
            ["get", "s"],
            ["register", "s", "one.avsc"],
            ["delete", "s"],
            ["config"],
            ["mode"],
        ),
    ],
)
def test_registry_must_be_named(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.avsc").write_text(ONE, encoding="utf-8")
    result = CliRunner().invoke(main, ["schemas", *words])
    assert result.exit_code == 2
    assert "which registry? --schema-registry URL" in result.stderr


def test_directory_is_read_and_registered_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.avsc").write_text(ONE, encoding="utf-8")
    (tmp_path / "registry").mkdir()

    def run(*words: str) -> Result:
        return CliRunner().invoke(main, ["schemas", *words, "--schema-registry", "registry"])

    assert output(run("register", "s", "one.avsc")) == "one.avsc is version 1 of s, with id 1\n"
    assert output(run("list")) == "s\n"
    assert output(run("get", "s")) == f"{ONE}\n"
    assert (output(run("config", "s")), output(run("mode"))) == ("NONE\n", "READWRITE\n")
    for words in (["delete", "s"], ["config", "s", "--set", "FULL"], ["mode", "--set", "READONLY"]):
        assert "registry: " in refused(run(*words)), words
