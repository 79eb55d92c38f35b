"""`ottla spark-checkpoint` on checkpoints as Spark writes them."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.cli.main import main
from ottla.spark.stream_offset import StreamOffset, stream_offset

ABOUT = '{"batchWatermarkMs":0,"batchTimestampMs":1700000000000,"conf":{}}'
OURS = '{"t":{"0":5,"1":7},"#topicIds":{"t":"Xk3vAAAAAAAAAAAAAAAAAA"}}'
FIRST = '{"t":{"0":5,"1":7},"#topicIds":{"t":"Xk3vAAAAAAAAAAAAAAAAAA"},"#from":{"t":{"0":2,"1":3}}}'
PLAIN = '{"t":{"0":5,"1":7}}'
SHARED = '{"t":{"0":5},"#acquired":{"t":{"0":[[1,4]]}},"#turn":2}'


def checkpoint(directory: Path, batches: dict[int, list[str]], done: tuple[int, ...] = ()) -> Path:
    (directory / "offsets").mkdir(parents=True)
    (directory / "commits").mkdir()
    for number, sources in batches.items():
        (directory / "offsets" / str(number)).write_text("\n".join(["v1", ABOUT, *sources]), encoding="utf-8")
        (directory / "offsets" / f".{number}.crc").write_bytes(b"crc")
    for number in done:
        (directory / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}', encoding="utf-8")
    return directory


def run(*arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(main, ["spark-checkpoint", *arguments])
    assert result.exit_code == status, result.output
    return result.output


def sources(directory: Path, number: int) -> list[str]:
    return (directory / "offsets" / str(number)).read_text(encoding="utf-8").splitlines()[2:]


def test_offsets_become_plain_and_others_stay(tmp_path: Path) -> None:
    files = '{"logOffset":3}'
    before = checkpoint(tmp_path / "c", {0: [FIRST, "-"], 1: [OURS, files], 2: [PLAIN, "null"]}, done=(0, 1))
    assert run(str(before)) == "2 files rewritten\n"
    assert [sources(before, number) for number in range(3)] == [[PLAIN, "-"], [PLAIN, files], [PLAIN, "null"]]
    assert sorted(path.name for path in (before / "offsets").iterdir()) == [".2.crc", "0", "1", "2"]
    assert not (before / "sources").exists()
    assert run(str(before)) == "the offsets are plain: nothing to write\n"


def test_the_start_of_a_first_batch_that_is_not_done_is_kept(tmp_path: Path) -> None:
    before = checkpoint(tmp_path / "c", {0: ["-", FIRST]})
    assert run(str(before)) == "2 files rewritten\n"
    assert (before / "sources" / "1" / "0").read_bytes() == b'\0v1\n{"t":{"0":2,"1":3}}'
    assert stream_offset(json.loads(sources(before, 0)[1])) == StreamOffset({("t", 0): 5, ("t", 1): 7}, {})  # type: ignore[dict-item]


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    before = checkpoint(tmp_path / "c", {0: [FIRST]})
    files = {path: path.read_bytes() for path in before.rglob("*") if path.is_file()}
    output = run(str(before), "--dry-run")
    assert f"offsets/0: {PLAIN}\n" in output
    assert 'sources/0/0: {"t":{"0":2,"1":3}}\n' in output
    assert output.endswith("2 files would be rewritten\n")
    assert {path: path.read_bytes() for path in before.rglob("*") if path.is_file()} == files


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        (None, "is no checkpoint of a stream: it has no directory offsets"),
        ({}, "has no batch in offsets"),
        ({0: [SHARED]}, "the offsets of a share group"),
    ],
)
def test_unsuitable_checkpoints_are_refused(tmp_path: Path, batches: dict[int, list[str]] | None, message: str) -> None:
    directory = tmp_path if batches is None else checkpoint(tmp_path / "c", batches)
    output = run(str(directory), status=1)
    assert message in output
    assert "Traceback" not in output
    assert len(output.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "is not complete"), ("v1", "is not complete"), ("v2\n{}\n-", "has version v2"), ("v1\n\xff", "utf-8")],
)
def test_a_damaged_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    directory = checkpoint(tmp_path / "c", {0: [OURS]})
    (directory / "offsets" / "0").write_bytes(text.encode("latin-1"))
    output = run(str(directory), status=1)
    assert str(directory) in output
    assert message in output
    assert len(output.splitlines()) == 1
