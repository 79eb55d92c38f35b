"""Tables of docs/benchmarks.md, as `bench/benchmarks_page.py` writes them."""

import importlib
import json
import re
from typing import Any

import pytest

from tests.docs.test_commands import ROOT

RUN = {
    "commit": "abc1234",
    "machine": "Linux x86_64, 2 cores",
    "python": "3.13.0",
    "ottla": "1.0 compiled",
    "confluent-kafka": "2.16.1",
    "command": "python bench/some.py",
    "date": "2026-11-24",
}


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "bench")
    return importlib.import_module("benchmarks_page")


@pytest.mark.parametrize(
    ("figures", "lines"),
    [
        (
            {"produce": {"unit": "MB/s", "medians": {"Ottla": 300.4, "Apache Kafka 4.4.0": 150.2}, "ratio": 2.0}},
            ["| | Ottla | Apache Kafka 4.4.0 | Ottla / Apache Kafka 4.4.0 |", "| MB/s | 300 | 150 | 2.00 |"],
        ),
        (
            {
                "cpu": {"unit": "/s", "medians": {"Ottla": 1}, "figures": {"Ottla": {"/s": 1, "p99 ms": 12.34}}},
                "idle": {"unit": "%", "medians": {"Ottla": 0.5}},
            },
            ["| | Ottla |", "| cpu, /s | 1 |", "| cpu, p99 ms | 12.3 |", "| idle, % | 0.50 |"],
        ),
        (
            {"latency": {"Ottla": [0.291, 1234.5], "Apache Kafka 4.4.0": [0.5, 2]}, "memory": {"Ottla": 1}},
            ["| latency | 0.29 / 1,234 | 0.50 / 2 |  |"],
        ),
        (
            {"consume": {"ottla 100": 5, "kafka-python 100": 2, "ottla poll_arrow 100": 9}, "options": {"rounds": 3}},
            ["| 100 | 5 | 2 | 2.50 |", "| poll arrow 100 | 9 |  |  |"],
        ),
        ({"list ms": 119.4}, ["| | Ottla |", "| list ms | 119 |"]),
        (
            {"two brokers": {"1 broker": {"MB/s": 1}, "2 brokers": {"MB/s": 2}}, "rounds": 5},
            ["| | 1 broker | 2 brokers |", "| MB/s | 1 | 2 |"],
        ),
        (
            {"replication": {"ottla": {"p50 ms": 3}, "kafka": {"p50 ms": 2}}, "options": {"rounds": 3}},
            ["| | Ottla | Apache Kafka 4.4.0 | Ottla / Apache Kafka 4.4.0 |", "| p50 ms | 3 | 2 | 1.50 |"],
        ),
    ],
)
def test_a_run_becomes_a_table(page: Any, figures: dict[str, object], lines: list[str]) -> None:
    text = page.section({**RUN, **figures})
    assert text.startswith("`python bench/some.py`, 2026-11-24, commit abc1234: Linux x86_64, 2 cores, Python 3.13.0")
    for line in lines:
        assert line in text.splitlines()


def test_only_the_place_of_a_script_changes(page: Any) -> None:
    before = (
        "a\n<!-- figures of one -->\nold\n<!-- end of one -->\nb\n<!-- figures of two -->\nkept\n<!-- end of two -->\n"
    )
    assert page.places(before) == ["one", "two"]
    assert page.replaced(before, "one", "new\n\\1") == before.replace("old", "new\n\\1")
    with pytest.raises(page.NoFigures, match="has no place for the figures of three"):
        page.replaced(before, "three", "new")


def test_every_benchmark_has_its_place() -> None:
    names = re.search(r'^all="(.*)"$', (ROOT / "scripts" / "bench").read_text(encoding="utf-8"), re.MULTILINE)
    assert names is not None
    text = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    for name in names[1].split():
        assert (ROOT / "bench" / f"{name}.py").exists()
        assert re.search(rf"<!-- figures of {name} -->\n.+\n<!-- end of {name} -->", text, re.DOTALL), name


@pytest.fixture
def history(page: Any) -> Any:
    del page  # it sets the path
    return importlib.import_module("history")


def run_of(commit: str, **cells: float) -> dict[str, Any]:
    return {"name": "replication", "commit": commit, "rows": {"produce MB/s": cells}}


def test_a_run_is_in_the_history_once(history: Any) -> None:
    line = history.line_of("some", RUN, {"a": {"Ottla": 1}})
    assert json.loads(line) == {"name": "some", **RUN, "rows": {"a": {"Ottla": 1}}}
    assert history.with_line(history.with_line("older\n", line), line) == f"older\n{line}\n"


def test_a_chart_has_the_ratios_of_the_runs_with_both_sides(history: Any) -> None:
    runs = [run_of("aaaaaaaaa", Ottla=10, Kafka=4), run_of("b", Ottla=3), run_of("c", Ottla=3, Kafka=2)]
    chart = history.charts("\n".join(map(json.dumps, runs)), "Ottla", "Kafka")
    assert chart.splitlines()[:2] == ["```mermaid", "xychart-beta"]
    assert [line.strip() for line in chart.splitlines()[2:]] == [
        'title "produce MB/s (replication), times Kafka"',
        'x-axis ["aaaaaaa", "c"]',
        "y-axis 0 --> 2.8",
        "line [2.5, 1.5]",
        "```",
    ]
    assert history.charts(json.dumps(runs[0]), "Ottla", "Kafka") == ""


def test_the_history_has_runs_of_all_that_the_page_shows_with_their_conditions(page: Any, history: Any) -> None:
    runs = [json.loads(line) for line in history.HISTORY.read_text(encoding="utf-8").splitlines()]
    names = set(page.places(page.PAGE.read_text(encoding="utf-8")))
    assert {run["name"] for run in runs} == names - {"spark"}  # its table was chosen by hand from several runs
    assert all(run.keys() >= RUN.keys() and run["rows"] for run in runs)
    assert history.charts(history.HISTORY.read_text(encoding="utf-8"), page.OTTLA, page.KAFKA) in page.PAGE.read_text(
        encoding="utf-8"
    )
