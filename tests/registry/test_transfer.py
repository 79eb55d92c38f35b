"""`ottla schemas export` and `import`: the schemas of one registry in another one."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ottla.cli.main import main
from ottla.schemas.registry import Reference, Schema, SchemaRegistry
from ottla.testing import Kafka
from tests.registry.client import Registry
from tests.registry.schemas import ONE, PROTO_ONE, TWO, record

MONEY = record("units", name="Money")
FARE = '{"type":"record","name":"Fare","fields":[{"name":"price","type":"Money"}]}'


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["schemas", *arguments])


@pytest.fixture
def target() -> Iterator[Registry]:
    with Kafka() as kafka:
        yield Registry(kafka.schema_registry_url)


def fill(registry: Registry) -> None:
    """Ids and versions with gaps, references, a contract, configs, and what is not exported: a hidden version, a context."""
    registry.put("/config", {"compatibility": "FORWARD"})
    registry.put("/config/orders", {"compatibility": "NONE", "normalize": False})
    registry.register("orders", ONE, metadata={"properties": {"owner": "ada"}})
    registry.register("orders", '"int"')
    registry.register("orders", TWO)
    registry.delete("/subjects/orders/versions/2")
    registry.register("money", MONEY)
    registry.register("fare", FARE, references=[{"name": "Money", "subject": "money", "version": 1}])
    registry.register("order/proto", PROTO_ONE, "PROTOBUF")
    registry.register("again", TWO)
    registry.register(":.other:orders", ONE)


def content(registry: Registry) -> dict[str, object]:
    subjects = [subject for subject in registry.get("/subjects").value if not subject.startswith(":.")]
    shown: dict[str, object] = {"config": registry.get("/config").value, "subjects": subjects}
    for subject in subjects:
        path = subject.replace("/", "%2F")
        for number in registry.get(f"/subjects/{path}/versions").value:
            shown[f"{subject} {number}"] = registry.get(f"/subjects/{path}/versions/{number}").value
        shown[f"config of {subject}"] = registry.get(f"/config/{path}").value
        shown[f"mode of {subject}"] = registry.get(f"/mode/{path}?defaultToGlobal=true").value
    return shown


def test_another_registry_gets_everything_with_its_ids(
    own_registry: Registry, target: Registry, tmp_path: Path
) -> None:
    fill(own_registry)
    directory = str(tmp_path / "backup")
    done = run("export", directory, "--schema-registry", own_registry.url)
    assert done.output == f"6 versions of 5 subjects were written into {directory}\n"
    target.register("theirs", '"bytes"')
    target.delete("/subjects/theirs")
    target.delete("/subjects/theirs?permanent=true")
    done = run("import", directory, "--schema-registry", target.url)
    assert done.exit_code == 0, done.output
    assert f"6 versions of 5 subjects were imported from {directory}" in done.output
    assert content(target) == content(own_registry)
    assert target.register("next", '"float"') == max(6, *[row["id"] for row in own_registry.get("/schemas").value]) + 1


def test_directory_is_a_registry_for_readers(own_registry: Registry, tmp_path: Path) -> None:
    fill(own_registry)
    directory = tmp_path / "backup"
    run("export", str(directory), "--schema-registry", own_registry.url)
    reader = SchemaRegistry(location=str(directory))
    assert reader.by_id(1) == Schema("AVRO", ONE)
    fare = reader.latest("fare").schema
    assert fare.references == (Reference("Money", "money", 1),)
    assert reader.referred(fare)["Money"].text == MONEY
    index = json.loads((directory / "subjects.json").read_text(encoding="utf-8"))
    assert index["versions"] == {"orders": [1, 3]}


def test_failures_are_one_line(own_registry: Registry, target: Registry, tmp_path: Path) -> None:
    fill(own_registry)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    done = run("export", str(tmp_path / "full"), "--schema-registry", own_registry.url)
    assert (done.exit_code, done.output) == (1, f"ottla: {tmp_path}/full is not empty: name a new directory\n")
    done = run("import", str(tmp_path / "none"), "--schema-registry", target.url)
    assert done.exit_code == 1
    assert "no directory of schemas" in done.output
    (tmp_path / "empty").mkdir()
    done = run("import", str(tmp_path / "empty"), "--schema-registry", target.url)
    assert "no subjects.json" in done.output
    directory = str(tmp_path / "backup")
    run("export", directory, "--schema-registry", own_registry.url)
    done = run("import", directory, "--schema-registry", own_registry.url)
    assert f"{own_registry.url} has the subject again already" in done.output
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "1.avsc").write_text(ONE, encoding="utf-8")
    (broken / "subjects.json").write_text(
        json.dumps({"subjects": {"fare": [1]}, "references": {"1": [{"name": "a", "subject": "b", "version": 1}]}}),
        encoding="utf-8",
    )
    done = run("import", str(broken), "--schema-registry", target.url)
    assert "version 1 of fare refers to version 1 of b, which is not among the schemas" in done.output
    assert target.get("/mode/fare").error == (404, 40409)
