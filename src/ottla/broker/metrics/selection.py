"""Topics whose metrics are exported one by one; those of the others are added up."""

import re
from collections.abc import Mapping
from fnmatch import translate
from typing import Final

OTHERS: Final = "(others)"
"""Label value for the topics that are added up; no topic can have this name."""
MOST_PARTITIONS: Final = 10_000
"""Number of partitions that are exported one by one unless --metrics-topics names topics."""


class TopicSelection:
    """Topics of --metrics-topics: names and patterns with * and ?; without any, all topics up to MOST_PARTITIONS partitions."""

    def __init__(self, patterns: str = "") -> None:
        items = [item.strip() for item in patterns.split(",") if item.strip()]
        self._pattern = re.compile("|".join(map(translate, items))) if items else None

    def of(self, partitions: Mapping[str, int]) -> frozenset[str]:
        """Return the selected topics.

        partitions  number of partitions by topic
        """
        pattern = self._pattern
        if pattern is not None:
            return frozenset(name for name in partitions if pattern.match(name))
        left, selected = MOST_PARTITIONS, []
        for name in sorted(partitions):
            left -= partitions[name]
            if left < 0:
                break
            selected.append(name)
        return frozenset(selected)
