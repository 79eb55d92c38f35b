"""Throttle of replication (KIP-73): while replicas move, the bytes a second that a broker sends, or fetches, for them.

Only partitions that the topic's configs name are throttled, and only replicas that are out of sync. While their rate exceeds
the limit, their records are left out of responses, or they themselves out of requests. As in Apache Kafka, a fetch that has
begun is not cut short: the rate may exceed the limit by one fetch, and is below it on average over all windows.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from ottla.security.quotas import Rate, Window

UNLIMITED: Final = (1 << 63) - 1
LEADER: Final = "leader.replication.throttled.replicas"
FOLLOWER: Final = "follower.replication.throttled.replicas"
_WINDOW: Final = Window(11, 1000)
_SHORTEST_WAIT_MS: Final = 10
_LONGEST_WAIT_MS: Final = 1_000
"""The limit may be raised meanwhile, or the throttle removed."""


@lru_cache(maxsize=1024)
def _partitions_of(node_id: int, replicas: str) -> frozenset[int] | None:
    """Return the partitions of which `replicas`, such as "0:1,0:2", names the replica on a broker; None for all."""
    if replicas.strip() == "*":
        return None
    pairs = (pair.strip().partition(":") for pair in replicas.split(",") if pair.strip())
    return frozenset(int(index) for index, _, node in pairs if int(node) == node_id)


class ReplicationThrottle:
    """Throttle of one direction: of what this broker sends as a leader, or fetches as a follower.

    config   name of the topic config that lists the throttled replicas
    configs  returns the configs of a topic, by its name
    limit    bytes a second; UNLIMITED without a limit
    """

    def __init__(
        self, config: str, node_id: int, configs: Callable[[str], Mapping[str, str]], window: Window = _WINDOW
    ) -> None:
        self.limit = UNLIMITED
        self._config = config
        self._node_id = node_id
        self._configs = configs
        self._rate = Rate(window)

    def names(self, topic: str, index: int) -> bool:
        """Return True if a partition is throttled here."""
        if self.limit == UNLIMITED:
            return False
        partitions = _partitions_of(self._node_id, self._configs(topic).get(self._config, ""))
        return partitions is None or index in partitions

    def record(self, size: int, now_ms: int) -> None:
        """Count bytes of throttled partitions."""
        self._rate.record(size, now_ms)

    def wait_ms(self, now_ms: int) -> int:
        """Return the time in ms after which throttled partitions should be looked at again; 0 if they may go on now."""
        if self.limit == UNLIMITED or self._rate.per_second(now_ms) <= self.limit:
            return 0
        wait_ms = self._rate.throttle_ms(self.limit, now_ms) if self.limit else _LONGEST_WAIT_MS
        return min(max(wait_ms, _SHORTEST_WAIT_MS), _LONGEST_WAIT_MS)


class ReplicationThrottles:
    """The throttles of a broker."""

    def __init__(self, node_id: int, configs: Callable[[str], Mapping[str, str]], window: Window = _WINDOW) -> None:
        self.leader = ReplicationThrottle(LEADER, node_id, configs, window)
        self.follower = ReplicationThrottle(FOLLOWER, node_id, configs, window)
