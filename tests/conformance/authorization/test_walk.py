"""A short random walk against the rules; `python -m tests.conformance.authorization.walk` makes long ones."""

import pytest

from .conftest import Authorized
from .walk import Target, run


@pytest.mark.parametrize("number", range(3))
def test_walk(request: pytest.FixtureRequest, authorized: Authorized, dice_seed: int, number: int) -> None:
    target = Target("the broker", authorized)
    differences = run([target], 300 * request.config.getoption("--soak"), dice_seed)
    target.close()
    assert not differences, differences[0]
