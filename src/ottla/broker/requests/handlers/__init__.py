"""One file per API; this table has the versions that each of them serves.

ApiVersions answers from this table, and a handler is imported at the first request of its API, so that a broker with a
hundred APIs starts as fast as one with two. A test imports them all and compares the table with the files.
"""

from typing import Final, NamedTuple

from ottla.protocol import api
from ottla.protocol.schema import NO_VERSIONS, VersionRange, version_range


class Served(NamedTuple):
    """The module in this folder and the versions that it serves; `unstable` ones, which may still change, only with
    unstable.api.versions.enable.
    """

    module: str
    versions: VersionRange
    unstable: VersionRange = NO_VERSIONS


_NOT_SERVED: Final = frozenset(
    {
        api.LEADER_AND_ISR,
        api.STOP_REPLICA,
        api.UPDATE_METADATA,
        api.CONTROLLED_SHUTDOWN,
        api.VOTE,
        api.BEGIN_QUORUM_EPOCH,
        api.END_QUORUM_EPOCH,
        api.ALTER_PARTITION,
        api.ENVELOPE,
        api.FETCH_SNAPSHOT,
        api.BROKER_REGISTRATION,
        api.BROKER_HEARTBEAT,
        api.ALLOCATE_PRODUCER_IDS,
        api.CONTROLLER_REGISTRATION,
        api.ASSIGN_REPLICAS_TO_DIRS,
        api.ADD_RAFT_VOTER,
        api.REMOVE_RAFT_VOTER,
        api.UPDATE_RAFT_VOTER,
        api.UNREGISTER_CONTROLLER,
    }
)
"""Requests of Kafka's brokers and controllers to each other: here brokers share a metadata store."""
_EXCEPTIONS: Final = {
    api.INIT_PRODUCER_ID: ("0-5", "6"),
    # Version 0 was early access, and was removed in Kafka 4.1.
    api.SHARE_GROUP_HEARTBEAT: ("1", "none"),
    api.SHARE_GROUP_DESCRIBE: ("1", "none"),
    api.SHARE_FETCH: ("1-2", "none"),
    api.SHARE_ACKNOWLEDGE: ("1-2", "none"),
}
"""Stable and unstable versions of APIs that are not served in all versions from 0 to the newest one."""


def _all_served() -> dict[int, Served]:
    table = {}
    for key, row in api.APIS.items():
        if key not in _NOT_SERVED:
            stable, unstable = _EXCEPTIONS.get(key, (f"0-{row.newest}", "none"))
            table[key] = Served(row.module, version_range(stable), version_range(unstable))
    return table


SERVED: Final = _all_served()
