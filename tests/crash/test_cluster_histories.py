"""Histories of clients of real brokers with faults, for some seconds; `scripts/histories` runs the same for an hour."""

import random
from pathlib import Path

import pytest

from tests.etcd_server import etcd_path
from tests.histories.run import Run, Settings

MINUTES = 0.15
BRIEFLY = 0.05
"""Enough for bugs that show without faults."""
ATTEMPTS = 3
"""On a busy machine a run has few operations: the next one may show the bug."""


@pytest.mark.timeout(3600)
def test_histories_of_a_cluster_with_faults_have_no_anomalies(
    tmp_path: Path, dice: random.Random, request: pytest.FixtureRequest
) -> None:
    path = etcd_path()
    if isinstance(path, str):
        pytest.skip(path)
    minutes = MINUTES * int(request.config.getoption("--soak"))
    result = Run(tmp_path / "run", Settings(dice.getrandbits(32), minutes)).run()
    assert not result.failure, result.failure
    assert [anomaly for anomalies in result.anomalies.values() for anomaly in anomalies] == []
    counts = {f"{name}: {kind}": count for name, its in result.operations.items() for kind, count in its.items()}
    for kind in ("lists: transaction ok", "queue: produce ok", "queue: acknowledge ok", "registers: write ok"):
        assert counts[kind] > 0, counts
    assert result.faults


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("bug", "workload", "kind"), [("commit all", "lists", "G1a"), ("drop newest", "registers", "lost")]
)
@pytest.mark.replaces_code
def test_a_bug_of_the_brokers_is_found(
    bug: str, workload: str, kind: str, tmp_path: Path, dice: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = etcd_path()
    if isinstance(path, str):
        pytest.skip(path)
    monkeypatch.setenv("OTTLA_TEST_BUG", bug)
    monkeypatch.chdir(Path(__file__).parents[2])  # the brokers import the tests
    for attempt in range(ATTEMPTS):
        settings = Settings(dice.getrandbits(32), BRIEFLY, "tests.histories.planted")
        result = Run(tmp_path / f"run-{attempt}", settings).run()
        if kind in {anomaly.kind for anomaly in result.anomalies[workload]}:
            return
    pytest.fail(result.failure or f"no {kind} in {ATTEMPTS} runs")
