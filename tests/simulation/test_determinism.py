"""Equal seeds give equal runs, in one process and in another one with other hashes and without compiled modules."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .results import Settings
from .run import run

_MINUTES = 1.25
_ONE_CLUSTER = Settings(minutes=0.4, store="etcd")
_SMALL_CLUSTERS = Settings(minutes=_MINUTES, clusters=3, clients=6)


def _other_process(seed: int, settings: Settings, hash_seed: int) -> subprocess.Popen[str]:
    """Start the same run in a process with another PYTHONHASHSEED, on the interpreted sources; it prints its trace hash."""
    root = Path(__file__).parents[2]
    code = (
        "from ottla.protocol import plan\nassert not plan.COMPILED\n"
        "from tests.simulation.results import Settings\nfrom tests.simulation.run import run\n"
        f"print(run({seed}, Settings(minutes={settings.minutes}, clusters={settings.clusters}, "
        f"clients={settings.clients}, store={settings.store!r})).trace_hash)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    return subprocess.Popen([sys.executable, "-c", code], cwd=root, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("settings", [_ONE_CLUSTER, _SMALL_CLUSTERS], ids=["one cluster on etcd", "clusters of one"])
def test_a_seed_defines_the_run(settings: Settings) -> None:
    with _other_process(11, settings, 7) as other:
        first = run(11, settings)
        other_hash = other.communicate(timeout=300)[0].strip()
    assert not first.violations, first.explain()
    assert first.counts["records acknowledged"] > 1_000
    # A client that put partitions of a share group into requests in the order of a set was noticed by this comparison, and a
    # broker that loaded its coordinators in such an order.
    assert first.trace_hash == other_hash


def test_a_second_run_in_a_process_is_equal() -> None:
    settings = Settings(minutes=_MINUTES, clients=3, store="etcd")
    assert run(11, settings).trace_hash == run(11, settings).trace_hash


def test_another_seed_is_another_run() -> None:
    settings = Settings(minutes=_MINUTES, clients=3, roles=("producer",))
    assert run(1, settings).trace_hash != run(2, settings).trace_hash
