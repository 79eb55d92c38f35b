"""UpdateFeatures: levels that are finalized, and the words with which others are refused."""

from collections.abc import Iterator

import pytest

from ottla.protocol.errors import INVALID_UPDATE_VERSION, NONE
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

from .conftest import Wire, versions

UPGRADE, SAFE, UNSAFE = 1, 2, 3
HEAD = "The update failed for all features since the following feature had an error: "
NO_DOWNGRADE = (
    "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade."
)
API = UpdateFeaturesRequest


def update(
    broker: Wire, *updates: tuple[str, int, int], version: int = 2, validate_only: bool = False
) -> tuple[int, str | None, list[tuple[str, int, str | None]]]:
    keys = [
        FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind if version else UPGRADE)
        for name, level, kind in updates
    ]
    answer = broker.send(UpdateFeaturesRequest(feature_updates=keys, validate_only=validate_only), version)
    results = [(result.feature, result.error_code, result.error_message) for result in answer.results]
    return answer.error_code, answer.error_message, results


def refused(name: str, level: int, why: str) -> tuple[int, str, list[object]]:
    return INVALID_UPDATE_VERSION, f"{HEAD}Invalid update version {level} for feature {name}. {why}", []


def levels(broker: Wire) -> dict[str, int]:
    answer = broker.send(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4)
    return {feature.name: feature.max_version_level for feature in answer.finalized_features}


@pytest.fixture(autouse=True)
def _back(broker: Wire) -> Iterator[None]:
    yield
    assert update(broker, ("group.version", 1, UPGRADE))[0] == NONE


@pytest.mark.parametrize("version", versions(UpdateFeaturesRequest))
def test_levels_that_are_there_already(broker: Wire, version: int) -> None:
    results = [("metadata.version", NONE, "NONE"), ("group.version", NONE, "NONE")] if version < 2 else []
    updates = ("metadata.version", 33, UPGRADE), ("group.version", 1, UPGRADE)
    assert update(broker, *updates, version=version) == (NONE, None, results)
    assert update(broker, version=version) == (NONE, None, [])


@pytest.mark.parametrize("version", versions(UpdateFeaturesRequest))
def test_unsupported_levels_are_refused(broker: Wire, version: int) -> None:
    def of(name: str, level: int) -> object:
        return update(broker, (name, level, UPGRADE), version=version)

    assert of("nope", 1) == refused("nope", 1, "Local controller 1 does not support this feature.")
    assert of("", 1) == refused("", 1, "Local controller 1 does not support this feature.")
    assert of("metadata.version", 34) == refused(
        "metadata.version", 34, "Local controller 1 only supports versions 7-33"
    )
    assert of("metadata.version", 6) == refused("metadata.version", 6, "Local controller 1 only supports versions 7-33")
    assert of("group.version", 2) == refused("group.version", 2, "Local controller 1 only supports versions 0-1")
    assert of("group.version", -1) == refused("group.version", -1, "A feature version cannot be less than 0.")
    assert of("group.version", 0) == refused("group.version", 0, NO_DOWNGRADE)
    assert of("metadata.version", 25) == refused("metadata.version", 25, NO_DOWNGRADE)


def test_all_or_none(broker: Wire) -> None:
    answer = update(broker, ("group.version", 0, SAFE), ("nope", 1, UPGRADE), ("nope2", 1, UPGRADE))
    assert answer == refused("nope", 1, "Local controller 1 does not support this feature.")
    assert levels(broker)["group.version"] == 1


@pytest.mark.parametrize("kind", [SAFE, UNSAFE])
def test_a_feature_goes_down_and_up(broker: Wire, kind: int) -> None:
    assert update(broker, ("group.version", 0, kind), validate_only=True) == (NONE, None, [])
    assert levels(broker)["group.version"] == 1
    assert update(broker, ("group.version", 0, kind), version=1) == (NONE, None, [("group.version", NONE, "NONE")])
    while "group.version" in levels(broker):
        """Apache Kafka answers before all its parts know."""
    assert update(broker, ("group.version", 0, UPGRADE)) == (NONE, None, [])
    assert update(broker, ("group.version", 1, UPGRADE)) == (NONE, None, [])
    while levels(broker).get("group.version") != 1:
        """Likewise."""


@pytest.mark.parametrize("kind", [-1, 0, 4])
def test_upgrades_of_no_known_kind(broker: Wire, kind: int) -> None:
    why = "The controller does not support the given upgrade type."
    assert update(broker, ("group.version", 1, kind)) == refused("group.version", 1, why)
    assert update(broker, ("group.version", 7, kind)) == refused("group.version", 7, why)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (SAFE, "Refusing to perform the requested downgrade because it might delete metadata information."),
        (UNSAFE, "Unsafe metadata downgrade is not supported in this version."),
    ],
)
def test_metadata_does_not_go_down(broker: Wire, kind: int, why: str) -> None:
    text = f"{HEAD}Unsupported metadata.version downgrade from 33 to 25. {why}"
    assert update(broker, ("metadata.version", 25, kind)) == (INVALID_UPDATE_VERSION, text, [])
