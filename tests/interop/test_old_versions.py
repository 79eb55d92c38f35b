"""Clients of today made to speak as they would to old brokers; the clients of those days are run by `make interop`.

Each produces with every compression of the time, reads back byte for byte, and commits and joins groups where it could.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

from ottla.protocol import api

from .clients import runner
from .clients.environments import Locked
from .clients.tiers import Tier

NO_GROUPS = {"admin": "not here", "group": "not before 0.9", "resume": "not before 0.9"}
NO_ADMIN = {"admin": "not here"}


def confluent(fallback: str, codecs: str, lacks: dict[str, str]) -> Tier:
    return Tier(f"confluent-{fallback}", "confluent-kafka", Locked("confluent"), codecs, {"fallback": fallback}, lacks)


def kafka_python(version: str, codecs: str, lacks: dict[str, str]) -> Tier:
    return Tier(
        f"kafka-python-{version}",
        "kafka-python",
        Locked("kafka_python"),
        codecs,
        {"api_version": version},
        lacks,
    )


# Each tier with the versions of Produce and of Fetch that it must be seen to use.
TIERS = [
    (confluent("0.8.0", "none,snappy", NO_GROUPS | {"commit": "in ZooKeeper"}), {0}, {0}),
    (confluent("0.9.0", "gzip,lz4", NO_ADMIN), {1}, {1}),
    (kafka_python("0.8.1", "gzip,snappy", NO_GROUPS), {0}, {0}),
    (kafka_python("0.10", "none,gzip,snappy,lz4", NO_ADMIN), {2}, {2}),
    (kafka_python("0.11", "none,gzip,snappy,lz4", NO_ADMIN), {3}, {5}),
]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, runner.Outcome]:
    """All at once, each with a broker of its own: they wait most of the time."""
    logs = tmp_path_factory.mktemp("logs")
    with ThreadPoolExecutor() as threads:
        done = threads.map(lambda tier: runner.run(tier, logs), [tier for tier, _, _ in TIERS])
        return {outcome.tier.name: outcome for outcome in done}


@pytest.mark.parametrize(("tier", "produce", "fetch"), TIERS, ids=[tier.name for tier, _, _ in TIERS])
def test_old_client_uses_the_expected_versions(
    outcomes: dict[str, runner.Outcome], tier: Tier, produce: set[int], fetch: set[int]
) -> None:
    outcome = outcomes[tier.name]
    assert not outcome.failed, outcome.reasons
    assert (outcome.used[api.PRODUCE], outcome.used[api.FETCH]) == (produce, fetch)
    assert (api.JOIN_GROUP in outcome.used) == ("group" not in tier.lacks)
