"""The number of rounds of random messages."""

import pytest

ROUNDS = 2


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    return ROUNDS * int(request.config.getoption("--soak"))
