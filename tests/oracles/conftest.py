"""How often the dice are thrown."""

import pytest

ROUNDS = 2


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    return ROUNDS * int(request.config.getoption("--soak"))
