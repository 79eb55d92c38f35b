"""The features of the cluster (KIP-584): the levels that this release supports, and the finalized ones.

A feature is listed here once it is implemented: clients check its level before they use it (`transaction.version` for
transactions, `group.version` for groups), and so never use an unimplemented feature.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from ottla.metadata.refusal import Refused
from ottla.protocol.errors import INVALID_UPDATE_VERSION


class Feature(NamedTuple):
    """Feature with its supported levels, `lowest` to `highest`; level 0: the feature is off.

    level    finalized level of a cluster that has stored none: 0 for a feature that an earlier release of Ottla lacks
    initial  level that a new cluster stores
    """

    name: str
    lowest: int
    highest: int
    level: int
    initial: int


FEATURES: Final = (
    # The levels are those of Apache Kafka 4.4; no format on disk depends on this one.
    Feature("metadata.version", 7, 33, 33, 33),
    # Eligible leader replicas (KIP-966). Clusters of earlier releases have stored no level, and stay without them.
    Feature("eligible.leader.replicas.version", 0, 1, 0, 1),
    # Changes of quorum voters (KIP-853); Ottla has no quorum, so that the level has no effect.
    Feature("kraft.version", 0, 1, 0, 0),
    # Consumer groups (KIP-848).
    Feature("group.version", 0, 1, 1, 1),
    # Share groups (KIP-932); 2 has dead letters (KIP-1191).
    Feature("share.version", 0, 2, 2, 2),
    # Streams groups (KIP-1071). Clusters of earlier releases have stored no level, and stay without them.
    Feature("streams.version", 0, 1, 0, 1),
    # Level 2: each transaction has an epoch of its own (KIP-890); level 1: records may have tagged fields.
    Feature("transaction.version", 0, 2, 2, 2),
)


_NAMES: Final = frozenset(feature.name for feature in FEATURES)
_UNREGISTERED: Final[Mapping[str, tuple[int, int]]] = {
    "metadata.version": (7, 33),
    "kraft.version": (0, 1),
    "group.version": (0, 1),
    "share.version": (0, 2),
    "transaction.version": (0, 2),
}
"""Levels that the releases support whose brokers do not register any."""
UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2
UNSAFE_DOWNGRADE: Final = 3
"""Types of an update, as the protocol numbers them."""

_METADATA_VERSION: Final = "metadata.version"
_NO_DOWNGRADE: Final = (
    "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade."
)


class UnsupportedLevel(Exception):
    """Unknown feature, or a level of it that this release does not support."""


class LevelUpdate(NamedTuple):
    """Requested level of a feature; 0 turns it off."""

    name: str
    level: int
    kind: int


def finalized(stored: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Yield each enabled feature with its level.

    stored  levels that were set in Ottla, or by the Apache Kafka whose directory was adopted: they may be newer than this
            release
    """
    for feature in FEATURES:
        level = min(stored.get(feature.name, feature.level), feature.highest)
        if level > 0:
            yield feature.name, level


def feature_level(stored: Mapping[str, int], name: str) -> int:
    """Return the level of a feature, 0 if it is off; `stored` as in `finalized`."""
    return dict(finalized(stored)).get(name, 0)


def initial(levels: Mapping[str, int] = MappingProxyType({})) -> dict[str, int]:
    """Return the levels that a new cluster stores: those of `levels`, and this release's levels for all other features.

    All levels are stored, so that a newer release does not raise any. Raises UnsupportedLevel.
    """
    known = {feature.name: feature for feature in FEATURES}
    for name, level in levels.items():
        feature = known.get(name)
        if feature is None:
            raise UnsupportedLevel(f"Unsupported feature: {name}. Supported features are: {', '.join(sorted(known))}")
        if not feature.lowest <= level <= feature.highest:
            raise UnsupportedLevel(
                f"{name} has no level {level}: there are levels from {feature.lowest} to {feature.highest}"
            )
    return {name: levels.get(name, feature.initial) for name, feature in known.items()}


def updated(
    stored: Mapping[str, int],
    updates: Sequence[LevelUpdate],
    node_id: int,
    registered: Mapping[int, Mapping[str, tuple[int, int]]],
) -> dict[str, int]:
    """Return the levels after `updates`, all or none. Raises Refused, with Kafka's message, for the first invalid one.

    registered  levels that each broker of the cluster supports, as it registered them
    """
    levels = {}
    before = dict(finalized(stored))
    known = {feature.name: feature for feature in FEATURES}
    for name, level, kind in updates:
        why = _refusal(known.get(name), level, kind, before.get(name, 0), node_id, registered)
        if why is not None:
            head = "The update failed for all features since the following feature had an error: "
            if not why.startswith("Unsupported"):
                why = f"Invalid update version {level} for feature {name}. {why}"
            raise Refused(INVALID_UPDATE_VERSION, head + why)
        levels[name] = level
    return levels


def unsupported(name: str, level: int, registered: Mapping[int, Mapping[str, tuple[int, int]]]) -> str | None:
    """Return which broker does not support a level of a feature, None if all do."""
    for node, ranges in sorted(registered.items()):
        lowest, highest = (ranges or _UNREGISTERED).get(name, (0, 0))
        if highest == 0 and level > 0:
            return f"Broker {node} does not support this feature."
        if not lowest <= level <= highest:
            return f"Broker {node} only supports versions {lowest}-{highest}"
    return None


def too_new(stored: Mapping[str, int]) -> str | None:
    """Return why a broker of this release must not join a cluster with these levels; None if it may."""
    for feature in FEATURES:
        level = stored.get(feature.name, feature.level)
        if level > feature.highest:
            return (
                f"the cluster has level {level} of {feature.name}, and this release supports levels {feature.lowest} to "
                f"{feature.highest}: upgrade it"
            )
    unknown = sorted(name for name, level in stored.items() if level > 0 and name not in _NAMES)
    if unknown:
        return f"the cluster uses {', '.join(unknown)}, which this release does not have: upgrade it"
    return None


def adopted(levels: Mapping[str, int]) -> dict[str, int]:
    """Return the levels to store of an adopted Apache Kafka: without features of its own, which stay unused here."""
    return {name: level for name, level in levels.items() if name in _NAMES}


def _refusal(
    feature: Feature | None,
    level: int,
    kind: int,
    before: int,
    node_id: int,
    registered: Mapping[int, Mapping[str, tuple[int, int]]],
) -> str | None:
    """Return the error message if a feature must not change from level `before` to `level`, else None."""
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return "The controller does not support the given upgrade type."
    if level < 0:
        return "A feature version cannot be less than 0."
    if feature is None:
        return f"Local controller {node_id} does not support this feature."
    if not feature.lowest <= level <= feature.highest:
        return f"Local controller {node_id} only supports versions {feature.lowest}-{feature.highest}"
    why = unsupported(feature.name, level, registered)
    if why is not None:
        return why
    if level > before and kind != UPGRADE:
        return "Can't downgrade to a newer version."
    if level >= before:
        return None
    if kind == UPGRADE:
        return _NO_DOWNGRADE
    if feature.name == _METADATA_VERSION:
        reason = (
            "Refusing to perform the requested downgrade because it might delete metadata information."
            if kind == SAFE_DOWNGRADE
            else "Unsafe metadata downgrade is not supported in this version."
        )
        return f"Unsupported metadata.version downgrade from {before} to {level}. {reason}"
    return None
