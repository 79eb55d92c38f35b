"""The versions of older releases, beside what Ottla serves and the other table that tells of releases."""

from itertools import pairwise

import pytest

from ottla.broker.requests.handlers import SERVED
from ottla.protocol import api
from ottla.protocol.releases import RELEASES, release_named, versions_of


def test_the_newest_release_is_what_ottla_serves() -> None:
    """But for what Kafka 4 has removed of old versions (KIP-896), and what it has not."""
    newest = versions_of(RELEASES[-1])
    assert newest.keys() == SERVED.keys()
    for key, (first, last) in newest.items():
        assert last == SERVED[key].versions.last, key
        assert first >= SERVED[key].versions.first, key


def test_versions_only_ever_come_until_kafka_4() -> None:
    for before, after in pairwise(RELEASES):
        old, new = versions_of(before), versions_of(after)
        for key, (first, last) in old.items():
            assert new[key].last >= last, (key, after)
            assert new[key].first == first or after in ("4.0", "4.1"), (key, after)


@pytest.mark.parametrize(
    ("release", "key", "versions"),
    [
        ("0.9.0", api.API_VERSIONS, None),
        ("0.10.0", api.API_VERSIONS, (0, 0)),
        ("0.10.2", api.PRODUCE, (0, 2)),
        ("2.8", api.FETCH, (0, 12)),
        ("3.9", api.PRODUCE, (0, 11)),
        ("4.0", api.PRODUCE, (3, 12)),
        ("4.0", api.SHARE_FETCH, None),
        ("4.4", api.SHARE_FETCH, (1, 2)),
    ],
)
def test_releases_served_their_versions_of_apis(release: str, key: int, versions: tuple[int, int] | None) -> None:
    assert versions_of(release).get(key) == versions


@pytest.mark.parametrize(
    ("name", "release"), [("2.8", "2.8"), ("2.8.1", "2.8"), ("0.9", "0.9.0"), ("0.10.2.2", "0.10.2"), ("4", "4.0")]
)
def test_a_release_has_several_names(name: str, release: str) -> None:
    assert release_named(name) == release


@pytest.mark.parametrize("name", ["5.0", "2.9", "", "trunk"])
def test_an_unknown_release_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"unknown release .* of Apache Kafka; known releases: 0\.8\.0, .*, 4\.4"):
        release_named(name)
