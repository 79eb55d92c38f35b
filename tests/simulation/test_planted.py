"""Planted bugs are found by the checks in the run of a fixed seed, which passes without the bug."""

import pytest

from .planted import PLANTED


@pytest.mark.parametrize("name", PLANTED)
def test_planted_bug_is_found(name: str) -> None:
    planted = PLANTED[name]
    assert planted.check in {violation.check for violation in planted.run(planted.seed, with_bug=True).violations}


@pytest.mark.parametrize("name", PLANTED)
def test_same_run_without_the_bug_violates_nothing(name: str) -> None:
    planted = PLANTED[name]
    simulation = planted.run(planted.seed, with_bug=False)
    assert not simulation.violations, simulation.result(0.0).explain()
