"""Coordinators of groups, transactional ids and share partitions."""

import itertools
from typing import Any, Final

from ottla.protocol.errors import NONE, name_of
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest

from .conftest import Cluster

GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2
_TOPICS: Final = {GROUP: "__consumer_offsets", TRANSACTION: "__transaction_state"}
_PREFERRED: Final = 0


def coordinated_by(cluster: Cluster, kind: int, node_id: int) -> str:
    """Return a key whose coordinator is this broker."""
    coordinator_of(cluster, kind, "other-0")  # creates the topic
    cluster.wait(lambda: _elects_preferred_leaders(cluster, _TOPICS[kind]))
    for number in itertools.count():
        key = f"other-{number}"
        if coordinator_of(cluster, kind, key) == node_id:
            return key
    raise AssertionError


def coordinator_of(cluster: Cluster, kind: int, key: str) -> int:
    """Return the broker that coordinates a key, once there is one."""
    coordinators: list[Any] = []

    def is_found() -> bool:
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        coordinators[:] = cluster[1].send(request, 6).coordinators
        return bool(coordinators[0].error_code == NONE)

    cluster.wait(is_found)
    return int(coordinators[0].node_id)


def _elects_preferred_leaders(cluster: Cluster, topic: str) -> bool:
    """Elect the first replicas, and return whether they lead: a broker that other tests have stopped may lead no partition."""
    indexes = [row.partition_index for row in cluster.described(topic).partitions]
    rows = [TopicPartitions(topic=topic, partitions=indexes)]
    request = ElectLeadersRequest(election_type=_PREFERRED, topic_partitions=rows, timeout_ms=10_000)
    results = cluster[1].send(request, 2).replica_election_results
    codes = {name_of(row.error_code) for result in results for row in result.partition_result}
    return codes <= {"NONE", "ELECTION_NOT_NEEDED"}
