"""Subscriptions of consumer groups: names and regular expressions resolved to topic ids, and the time of the next refresh."""

from collections.abc import Collection, Mapping
from typing import Final

from ottla.coordinators.groups.consumer.group import ConsumerGroup, Resolved
from ottla.coordinators.groups.consumer.member import Description
from ottla.coordinators.groups.state import Groups
from ottla.coordinators.runtime import Millis
from ottla.coordinators.topology import Topology

_REGEX_REFRESH_MIN_MS: Final = 10_000
"""Minimum time between two resolutions, which cover all expressions of a group; no config in Kafka either."""


def subscribed_ids(
    descriptions: Mapping[str, Description], resolved: Mapping[str, Resolved], topology: Topology
) -> dict[str, frozenset[bytes]]:
    """Return the ids of existing topics that each member reads, by member id. Members with equal subscriptions share a set."""
    known: dict[tuple[frozenset[str], str], frozenset[bytes]] = {}
    ids_by_member = {}
    for member_id, description in descriptions.items():
        subscription = description.topics, description.regex
        ids = known.get(subscription)
        if ids is None:
            names = description.topics
            if description.regex in resolved:
                names |= resolved[description.regex].topics
            ids = known[subscription] = topology.topic_ids(names)
        ids_by_member[member_id] = ids
    return ids_by_member


def refresh_is_due(group: ConsumerGroup, regexes: Collection[str], groups: Groups, now: Millis) -> bool:
    """Return whether the regular expressions must be resolved: new expressions, new topics, or the interval has elapsed."""
    if not regexes:
        return False
    resolved = group.resolved
    last = max((regex.timestamp for regex in resolved.values()), default=0)
    if resolved and now <= last + _REGEX_REFRESH_MIN_MS:
        return False
    if len(regexes) != len(resolved):
        return True
    revision = max((regex.revision for regex in resolved.values()), default=0)
    if revision < groups.topology.newest_topic:
        return True
    return now > last + groups.settings.consumer.regex_refresh_ms
