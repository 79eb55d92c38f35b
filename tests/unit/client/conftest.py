"""Fixtures of the random histories."""

from collections.abc import Iterator

import pytest

from tests.unit.client.whole_cluster import WholeCluster


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    """Number of histories a test runs: ROUNDS of its module, `--soak` times as many, one with `--seed`."""
    if request.config.getoption("--seed") is not None:
        return 1
    most: int = request.module.ROUNDS
    return most * int(request.config.getoption("--soak"))


@pytest.fixture
def made() -> Iterator[list[WholeCluster]]:
    """A list for the clusters that a test makes."""
    clusters: list[WholeCluster] = []
    yield clusters
    for cluster in clusters:
        cluster.close()
