"""Planted bugs are found by the checks in the run of a fixed seed, which passes without the bug (with `--soak 2`: half of the
time of these tests; runs without bugs are in `test_runs`).
"""

from typing import Final

import pytest

from .planted import PLANTED

_SEEDS: Final = 40
"""A change of the broker's timing may move a bug to another seed: the next ones are tried, before `seed` is searched again."""


@pytest.mark.parametrize("name", PLANTED)
@pytest.mark.replaces_code
def test_planted_bug_is_found(name: str, pytestconfig: pytest.Config) -> None:
    planted = PLANTED[name]
    seed = planted.first_found(planted.seed, _SEEDS)
    assert seed is not None, f"search for a seed: python -m tests.simulation.planted {name!r}"
    if pytestconfig.getoption("--soak") > 1:
        simulation = planted.run(seed, with_bug=False)
        assert not simulation.violations, simulation.result(0.0).explain()
