"""`ottla storage format` and `info`: directories that a broker then starts on, and what is refused. The words are those of
Apache Kafka's kafka-storage, beside which tests/interop/test_commands.py lays them."""

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ottla import Admin
from ottla.cli.main import main
from ottla.environment.disk import DiskStore
from ottla.log.directory import LogDirectory
from ottla.metadata.features import FEATURES
from ottla.testing import EmbeddedBroker

ID = "MkU3OEVBNTcwNTJENDM2Qg"
META = re.compile(rf"#\ncluster\.id={ID}\ndirectory\.id=([\w-]{{22}})\nnode\.id=1\nversion=1\n")


def run(*words: object) -> Result:
    return CliRunner().invoke(main, ["storage", *map(str, words)], prog_name="ottla")


def output(*words: object) -> str:
    result = run(*words)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def refused(*words: object) -> str:
    """The one line that a command fails with."""
    result = run(*words)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("ottla: ")
    assert result.stderr.endswith("\n")
    assert result.stderr.count("\n") == 1
    return result.stderr.removeprefix("ottla: ").rstrip("\n")


FINALIZED = {feature.name: level for feature in FEATURES if (level := max(feature.level, feature.initial)) > 0}


@contextmanager
def start_broker(data: Path, **configs: str) -> Iterator[tuple[str, dict[str, int]]]:
    """A broker on a directory: the cluster's id and its finalized features."""
    named = {name.replace("_", "."): value for name, value in configs.items()}
    with EmbeddedBroker(named, data_dir=data) as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        finalized = admin.describe_features().finalized
        levels = {name: level.max_version for name, level in finalized.items()}
        yield admin.describe_cluster().cluster_id or "", levels


def test_a_broker_starts_on_a_formatted_directory(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert output("format", "-t", ID, data) == f"Formatting metadata directory {data} with metadata.version 4.4-IV2.\n"
    meta = (data / "meta.properties").read_text(encoding="utf-8")
    assert META.fullmatch(meta)
    with start_broker(data) as (cluster_id, levels):
        assert cluster_id == ID
        assert levels == FINALIZED
    assert (data / "meta.properties").read_text(encoding="utf-8") == meta


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-r", "4.0-IV3"], {"metadata.version": 25, "group.version": 1, "transaction.version": 2}),
        (["--release-version", "3.9"], {"metadata.version": 21}),
        (["--feature", "metadata.version=21"], {"metadata.version": 21}),
        (["-r", "4.0", "-f", "group.version=0"], {"metadata.version": 25, "transaction.version": 2}),
        (["-f", "share.version=1"], FINALIZED | {"share.version": 1}),
    ],
    ids=" ".join,
)
def test_features_begin_as_they_were_formatted(tmp_path: Path, words: list[str], expected: dict[str, int]) -> None:
    document = json.loads(output("format", "-t", ID, tmp_path / "data", "--json", *words))
    assert document["features"] == expected
    with start_broker(tmp_path / "data") as (_, levels):
        assert levels == expected


def test_several_directories_from_a_file_of_configs(tmp_path: Path) -> None:
    names = [tmp_path / name for name in ("z", "a", "meta")]
    file = tmp_path / "server.properties"
    file.write_text(f"node.id=1\nlog.dirs={names[0]},{names[1]}\nmetadata.log.dir={names[2]}\n", encoding="utf-8")
    words = ["--cluster-id", ID, "--config", file]
    assert output("format", *words, "--standalone").splitlines() == [
        f"Formatting data directory {names[1]} with metadata.version 4.4-IV2.",
        f"Formatting metadata directory {names[2]} with metadata.version 4.4-IV2.",
        f"Formatting data directory {names[0]} with metadata.version 4.4-IV2.",
    ]
    matches = [META.fullmatch((path / "meta.properties").read_text(encoding="utf-8")) for path in names[:2]]
    assert len({matched[1] for matched in matches if matched}) == 2
    assert output("info", "-c", file).startswith(
        f"Found log directories:\n  {names[1]}\n  {names[2]}\n  {names[0]}\n\nFound meta"
    )
    configs = {"metadata.log.dir": str(names[2]), "log.dirs": f"{names[0]},{names[1]}"}
    with (
        EmbeddedBroker(configs, data_dir=names[0]) as broker,
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
    ):
        assert admin.describe_cluster().cluster_id == ID
    shutil.rmtree(names[1])
    document = json.loads(output("format", *words, "-g", "--json"))
    assert document == {
        "cluster_id": ID,
        "node_id": 1,
        "formatted": [str(names[1])],
        "already_formatted": [str(names[2]), str(names[0])],
        "unreadable": [],
        "features": None,
    }
    assert output("format", *words, "-g") == "All of the log directories are already formatted.\n"
    shutil.rmtree(names[0])
    shutil.rmtree(names[1])
    assert refused("format", "-t", "other", "-g", "-c", file) == (
        f"Invalid cluster.id in: {names[2]}/metadata.db. Expected other, but read {ID}"
    )


def test_a_formatted_directory_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    output("format", "-t", ID, data)
    before = {path.name: path.read_bytes() for path in data.iterdir()}
    assert refused("format", "-t", ID, data) == (
        f"Log directory {data} is already formatted. Use --ignore-formatted to ignore this directory and format the others."
    )
    assert refused("format", "-g", "-t", "other", data) == (
        f"Invalid cluster.id in: {data}/meta.properties. Expected other, but read {ID}"
    )
    assert refused("format", "-g", "-t", ID, data, "-o", "node.id=7").startswith(
        f"Stored node id 1 doesn't match previous node id 7 in {data}/meta.properties. "
    )
    assert output("format", "-g", "-t", ID, "-r", "4.0", data) == "All of the log directories are already formatted.\n"
    assert {path.name: path.read_bytes() for path in data.iterdir()} == before


def test_formatting_goes_on_where_it_was_cut_off(tmp_path: Path) -> None:
    data = tmp_path / "data"
    output("format", "-t", ID, "-r", "4.0", data)
    (data / "meta.properties").unlink()
    assert refused("format", "-t", "other", data) == (
        f"Invalid cluster.id in: {data}/metadata.db. Expected other, but read {ID}"
    )
    output("format", "-t", ID, "-r", "4.0", data)
    with start_broker(data) as (cluster_id, levels):
        assert (cluster_id, levels["metadata.version"]) == (ID, 25)


def test_directories_that_cannot_be_formatted(tmp_path: Path) -> None:
    data, other = tmp_path / "data", tmp_path / "other"
    held = LogDirectory(DiskStore(), data)
    assert refused("format", "-t", ID, data).startswith(f"{data} is in use by another broker: stop it")
    held.release()
    other.touch()
    assert refused("format", "-t", ID, other) == f"cannot use {other} as a data directory: Not a directory"
    assert output("format", "-t", ID, data, other).splitlines() == [
        f"I/O error trying to read log directory {other}. Ignoring...",
        f"Formatting metadata directory {data} with metadata.version 4.4-IV2.",
    ]
    (data / "metadata.db").unlink()
    lacking = f"{data} has a meta.properties but no metadata.db: if it is Apache Kafka's, adopt it with"
    assert refused("format", "-g", "-t", ID, data) == f"{lacking} `ottla storage import {data}`"
    assert lacking in run("info", data).stdout
    (data / "meta.properties").unlink()
    (data / "metadata.db").write_bytes(b"no store" * 1000)
    assert "is not a metadata store" in refused("format", "-t", ID, data)
    (data / "__cluster_metadata-0").mkdir()
    assert "belongs to Apache Kafka: adopt it" in refused("format", "-t", ID, data)
    (data / "meta.properties").write_text("version=0\nbroker.id=1\n", encoding="utf-8")
    assert "Apache Kafka with ZooKeeper" in refused("format", "-t", ID, data)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            ["--initial-controllers", "1@h:1:x"],
            "--initial-controllers is for several controllers; Ottla is one node and",
        ),
        (["-S", "SCRAM-SHA-256"], "Failed to find equals sign in SCRAM argument 'SCRAM-SHA-256'"),
        (["-S", "MD5=[name=a,password=b]"], "The add-scram mechanism MD5 is not supported."),
        (["-S", "SCRAM-SHA-256=name=a,password=b"], "Expected configuration string to start with ["),
        (["-S", "SCRAM-SHA-256=[name=a,password=b"], "Expected configuration string to end with ]"),
        (["-S", "SCRAM-SHA-256=[name=a]"], "You must supply one of 'password' or 'saltedpassword' to add-scram"),
        (["-S", "SCRAM-SHA-256=[password=b]"], "You must supply 'name' to add-scram"),
        (["-S", "SCRAM-SHA-256=[name=a,saltedpassword=AAAA]"], "You must supply 'salt' with 'saltedpassword'"),
        (["-S", "SCRAM-SHA-256=[name=a,password=b,salt=*]"], "Failed to decode given salt: *"),
        (["-S", "SCRAM-SHA-256=[name=a,password=b,hash=c]"], "Unknown SCRAM configurations: hash"),
        (["-S", "SCRAM-SHA-256=[name=a,password]"], "No equals sign found in SCRAM component: password"),
        (
            ["-S", "SCRAM-SHA-512=[name=a,password=b,iterations=100]"],
            "The 'iterations' value must be >= 4096 for add-scram using SCRAM_SHA_512",
        ),
        (
            ["-S", "SCRAM-SHA-512=[name=a,password=b,iterations=16385]"],
            "The 'iterations' value must be <= 16384 for add-scram using SCRAM_SHA_512",
        ),
        (
            ["-f", "odd=1"],
            "Unsupported feature: odd. Supported features are: eligible.leader.replicas.version, group.version, kraft",
        ),
        (["-f", "group.version=2"], "group.version has no level 2: there are levels from 0 to 1"),
        (["-f", "metadata.version=5"], "metadata.version has no level 5: there are levels from 7 to 33"),
        (["-r", "4.0", "-f", "metadata.version=20"], "Use --release-version instead of --feature metadata.version=X"),
        (["-t", "a b"], "cluster id 'a b' is invalid: use letters, digits"),
        (["-t", ""], "cluster id ''"),
        (["-o", "odd=1"], "odd"),
        (["-c", "missing.properties"], "missing.properties"),
    ],
)
def test_format_refuses(tmp_path: Path, words: list[str], why: str) -> None:
    line = refused("format", "-t", ID, tmp_path / "data", *words)
    assert why in line
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["format", "-t", ID], "name the directory: ottla storage format DIR"),
        (["info"], "name the directory: ottla storage info DIR"),
        (["import"], "name the directory: ottla storage import DIR"),
        (["format", "data"], "Missing option '--cluster-id' / '-t'"),
        (["format", "-t", ID, "data", "-r", "2.8"], "unknown release 2.8"),
        (["format", "-t", ID, "data", "-f", "x"], "a feature must be NAME=LEVEL"),
        (["format", "-t", ID, "data", "-s", "-N"], "--no-initial-controllers cannot be combined with --standalone"),
        (["feature-dependencies"], "at least one --feature"),
    ],
)
def test_wrong_usage(words: list[str], why: str) -> None:
    result = run(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert why in result.stderr


def info(*words: object) -> dict[str, Any]:
    result = run("info", "--json", *words)
    document: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == (1 if document["problems"] else 0)
    return document


def test_info(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    assert info(one, two) == {
        "directories": [],
        "metadata": None,
        "problems": [f"{one} does not exist", f"{two} does not exist"],
    }
    output("format", "-t", ID, one)
    document = info(one)
    directory_id = document["metadata"]["directory.id"]
    metadata = {"cluster.id": ID, "directory.id": directory_id, "node.id": 1, "version": 1}
    assert document == {"directories": [str(one)], "metadata": metadata, "problems": []}
    assert output("info", one) == (
        f"Found log directory:\n  {one}\n\n"
        f"Found metadata: {{cluster.id={ID}, directory.id={directory_id}, node.id=1, version=1}}\n\n"
    )
    two.touch()
    assert info(one, two)["problems"] == [f"{two} is not a directory"]
    two.unlink()
    two.mkdir()
    assert info(one, two)["problems"] == [f"{two} is not formatted."]
    for old, new, problem in (("node.id=1", "node.id=2", "node"), (ID, "other", "cluster")):
        shutil.rmtree(two)
        shutil.copytree(one, two)
        text = (two / "meta.properties").read_text(encoding="utf-8").replace(old, new)
        (two / "meta.properties").write_text(text, encoding="utf-8")
        ids = "node IDs" if problem == "node" else "cluster IDs"
        assert info(one, two)["problems"] == [f"Mismatched {ids} between storage directories."]
    (two / "meta.properties").write_text("version=1\nnode.id=x\n", encoding="utf-8")
    result = run("info", one, two)
    assert result.exit_code == 1
    assert f"\nFound problem:\n  {two}/meta.properties is damaged: " in result.stdout
    assert result.stderr == ""


def test_random_uuids() -> None:
    uuids = {output("random-uuid").rstrip("\n") for _ in range(50)}
    assert len(uuids) == 50
    assert all(re.fullmatch(r"\w[\w-]{21}", text) for text in uuids)


@pytest.mark.parametrize(
    "words", [["version-mapping", "-r", "4.0"], ["feature-dependencies", "-f", "metadata.version=20", "--json"]]
)
def test_the_output_is_that_of_the_command_features(words: list[str]) -> None:
    ours = CliRunner().invoke(main, ["features", *words])
    assert output(*words) == ours.stdout
    assert ours.exit_code == 0
