"""Histories as files: what was written is read again, also where it ends in the middle of a line."""

import time
from pathlib import Path

import pytest

from .operations import FAIL, OK, UNKNOWN, Anomaly, History, assemble, lines_of, load
from .run import part_of_history


def write(path: Path) -> None:
    history = History(path, time.monotonic())
    first = history.invoke("a", "write", key=1)
    second = history.invoke("b", "write", key=2)
    history.complete(second, "write", FAIL, error="refused")
    history.complete(first, "write", OK, offset=7)
    history.invoke("a", "write", key=3)
    assert history.outcomes == {"write ok": 1, "write fail": 1}
    history.close()


def test_operations_are_read_again(tmp_path: Path) -> None:
    write(tmp_path / "lists.jsonl")
    first, second, third = load(tmp_path / "lists.jsonl")
    assert (first.client, first.kind, first.request, first.outcome, first.result) == (
        "a",
        "write",
        {"key": 1},
        OK,
        {"offset": 7},
    )
    assert (second.outcome, second.result) == (FAIL, {"error": "refused"})
    assert 0 <= first.invoked <= second.invoked <= second.completed <= first.completed
    assert (third.outcome, third.is_complete) == (UNKNOWN, False)


def test_a_line_that_was_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "lists.jsonl"
    write(path)
    text = path.read_text()
    path.write_text(text[:-3])
    assert len(load(path)) == 2


def test_lines_of_an_anomaly(tmp_path: Path) -> None:
    path = tmp_path / "lists.jsonl"
    write(path)
    lines = path.read_text().splitlines()
    assert lines_of(path, [1]) == lines[1:3]
    assert part_of_history(tmp_path, "lists", Anomaly("lost", "", (0, 2))) == [lines[0], lines[3], lines[4]]


def test_a_client_that_did_not_end_in_time(tmp_path: Path) -> None:
    history = History(tmp_path / "lists.jsonl", time.monotonic())
    number = history.invoke("a", "write")
    history.close()
    history.complete(number, "write", OK)
    (one,) = load(tmp_path / "lists.jsonl")
    assert not one.is_complete


def test_a_history_without_an_invocation() -> None:
    with pytest.raises(AssertionError, match="missing"):
        assemble([{"n": 1, "at": 0.0, "client": "a", "kind": "write", "request": {}}])


def test_two_completions() -> None:
    completion = {"n": 0, "at": 1.0, "outcome": OK, "result": {}}
    with pytest.raises(AssertionError, match="two completions"):
        assemble([{"n": 0, "at": 0.0, "client": "a", "kind": "write", "request": {}}, completion, completion])
