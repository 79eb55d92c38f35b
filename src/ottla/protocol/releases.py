"""API versions served by each release of Apache Kafka, for errors that name the oldest one, and a broker that emulates it.

A row lists the ranges by the first release that served them ("-": none), each valid until the next entry; unstable versions are
omitted. For a new release add it to RELEASES, and to the rows that changed.
"""

from typing import Final

from ottla.protocol import api
from ottla.protocol.schema import VersionRange, version_range

RELEASES: Final = (
    "0.8.0",
    "0.8.1",
    "0.8.2",
    "0.9.0",
    "0.10.0",
    "0.10.1",
    "0.10.2",
    "0.11.0",
    "1.0",
    "1.1",
    "2.0",
    "2.1",
    "2.2",
    "2.3",
    "2.4",
    "2.5",
    "2.6",
    "2.7",
    "2.8",
    "3.0",
    "3.1",
    "3.2",
    "3.3",
    "3.4",
    "3.5",
    "3.6",
    "3.7",
    "3.8",
    "3.9",
    "4.0",
    "4.1",
    "4.2",
    "4.3",
    "4.4",
)

_RANGES: Final = {
    api.PRODUCE: (
        "0.8.0 0, 0.9.0 0-1, 0.10.0 0-2, 0.11.0 0-3, 1.0 0-5, 2.0 0-6, 2.1 0-7, 2.4 0-8, 2.8 0-9, 3.7 "
        "0-10, 3.8 0-11, 4.0 3-12, 4.1 3-13"
    ),
    api.FETCH: (
        "0.8.0 0, 0.9.0 0-1, 0.10.0 0-2, 0.10.1 0-3, 0.11.0 0-5, 1.0 0-6, 1.1 0-7, 2.0 0-8, 2.1 0-10, 2.3 "
        "0-11, 2.7 0-12, 3.1 0-13, 3.5 0-15, 3.7 0-16, 3.9 0-17, 4.0 4-17, 4.1 4-18"
    ),
    api.LIST_OFFSETS: (
        "0.8.0 0, 0.10.1 0-1, 0.11.0 0-2, 2.0 0-3, 2.1 0-4, 2.2 0-5, 2.8 0-6, 3.0 0-7, 3.5 0-8, 3.9 0-9, "
        "4.0 1-10, 4.2 1-11"
    ),
    api.METADATA: (
        "0.8.0 0, 0.10.0 0-1, 0.10.1 0-2, 0.11.0 0-4, 1.0 0-5, 2.0 0-6, 2.1 0-7, 2.3 0-8, 2.4 0-9, 2.8 "
        "0-11, 3.1 0-12, 4.0 0-13"
    ),
    api.OFFSET_COMMIT: (
        "0.8.1 0, 0.8.2 0-1, 0.9.0 0-2, 0.11.0 0-3, 2.0 0-4, 2.1 0-6, 2.3 0-7, 2.4 0-8, 3.7 0-9, 4.0 2-9, 4.2 2-10"
    ),
    api.OFFSET_FETCH: (
        "0.8.1 0, 0.8.2 0-1, 0.10.2 0-2, 0.11.0 0-3, 2.0 0-4, 2.1 0-5, 2.4 0-6, 2.5 0-7, 3.0 0-8, 3.7 "
        "0-9, 4.0 1-9, 4.2 1-10"
    ),
    api.FIND_COORDINATOR: "0.8.2 0, 0.11.0 0-1, 2.0 0-2, 2.4 0-3, 3.0 0-4, 3.8 0-5, 3.9 0-6",
    api.JOIN_GROUP: (
        "0.9.0 0, 0.10.1 0-1, 0.11.0 0-2, 2.0 0-3, 2.2 0-4, 2.3 0-5, 2.4 0-6, 2.5 0-7, 3.2 0-9, 4.0 2-9, 4.1 0-9"
    ),
    api.HEARTBEAT: "0.9.0 0, 0.11.0 0-1, 2.0 0-2, 2.3 0-3, 2.4 0-4",
    api.LEAVE_GROUP: "0.9.0 0, 0.11.0 0-1, 2.0 0-2, 2.4 0-4, 3.2 0-5",
    api.SYNC_GROUP: "0.9.0 0, 0.11.0 0-1, 2.0 0-2, 2.3 0-3, 2.4 0-4, 2.5 0-5",
    api.DESCRIBE_GROUPS: "0.9.0 0, 0.11.0 0-1, 2.0 0-2, 2.3 0-3, 2.4 0-5, 4.0 0-6",
    api.LIST_GROUPS: "0.9.0 0, 0.11.0 0-1, 2.0 0-2, 2.4 0-3, 2.6 0-4, 3.8 0-5",
    api.SASL_HANDSHAKE: "0.10.0 0, 1.0 0-1",
    api.API_VERSIONS: "0.10.0 0, 0.11.0 0-1, 2.0 0-2, 2.4 0-3, 3.9 0-4, 4.4 0-5",
    api.CREATE_TOPICS: "0.10.1 0, 0.10.2 0-1, 0.11.0 0-2, 2.0 0-3, 2.4 0-5, 2.7 0-6, 2.8 0-7, 4.0 2-7",
    api.DELETE_TOPICS: "0.10.1 0, 0.11.0 0-1, 2.0 0-2, 2.1 0-3, 2.4 0-4, 2.7 0-5, 2.8 0-6, 4.0 1-6",
    api.DELETE_RECORDS: "0.11.0 0, 2.0 0-1, 2.6 0-2",
    api.INIT_PRODUCER_ID: "0.11.0 0, 2.0 0-1, 2.4 0-2, 2.5 0-3, 2.7 0-4, 3.8 0-5",
    api.OFFSET_FOR_LEADER_EPOCH: "0.11.0 0, 2.0 0-1, 2.1 0-2, 2.3 0-3, 2.8 0-4, 4.0 2-4",
    api.ADD_PARTITIONS_TO_TXN: "0.11.0 0, 2.0 0-1, 2.7 0-2, 2.8 0-3, 3.6 0-4, 3.8 0-5",
    api.ADD_OFFSETS_TO_TXN: "0.11.0 0, 2.0 0-1, 2.7 0-2, 2.8 0-3, 3.8 0-4",
    api.END_TXN: "0.11.0 0, 2.0 0-1, 2.7 0-2, 2.8 0-3, 3.8 0-4, 4.0 0-5",
    api.WRITE_TXN_MARKERS: "0.11.0 0, 2.8 0-1, 4.0 1, 4.2 1-2",
    api.TXN_OFFSET_COMMIT: "0.11.0 0, 2.0 0-1, 2.1 0-2, 2.5 0-3, 3.8 0-4, 4.0 0-5, 4.4 0-6",
    api.DESCRIBE_ACLS: "0.11.0 0, 2.0 0-1, 2.5 0-2, 3.3 0-3, 4.0 1-3",
    api.CREATE_ACLS: "0.11.0 0, 2.0 0-1, 2.5 0-2, 3.3 0-3, 4.0 1-3",
    api.DELETE_ACLS: "0.11.0 0, 2.0 0-1, 2.5 0-2, 3.3 0-3, 4.0 1-3",
    api.DESCRIBE_CONFIGS: "0.11.0 0, 1.1 0-1, 2.0 0-2, 2.6 0-3, 2.8 0-4, 4.0 1-4",
    api.ALTER_CONFIGS: "0.11.0 0, 2.0 0-1, 2.8 0-2",
    api.ALTER_REPLICA_LOG_DIRS: "1.0 0, 2.0 0-1, 2.8 0-2, 4.0 1-2",
    api.DESCRIBE_LOG_DIRS: "1.0 0, 2.0 0-1, 2.6 0-2, 3.2 0-3, 3.3 0-4, 4.0 1-4, 4.3 1-5",
    api.CREATE_PARTITIONS: "1.0 0, 2.0 0-1, 2.5 0-2, 2.7 0-3",
    api.SASL_AUTHENTICATE: "1.0 0, 2.2 0-1, 2.5 0-2",
    api.CREATE_DELEGATION_TOKEN: "1.1 0, 2.0 0-1, 2.4 0-2, 3.3 0-3, 4.0 1-3",
    api.RENEW_DELEGATION_TOKEN: "1.1 0, 2.0 0-1, 2.5 0-2, 4.0 1-2",
    api.EXPIRE_DELEGATION_TOKEN: "1.1 0, 2.0 0-1, 2.5 0-2, 4.0 1-2",
    api.DESCRIBE_DELEGATION_TOKEN: "1.1 0, 2.0 0-1, 2.5 0-2, 3.3 0-3, 4.0 1-3",
    api.DELETE_GROUPS: "1.1 0, 2.0 0-1, 2.4 0-2, 4.4 0-3",
    api.ELECT_LEADERS: "2.2 0, 2.4 0-2",
    api.INCREMENTAL_ALTER_CONFIGS: "2.3 0, 2.4 0-1",
    api.ALTER_PARTITION_REASSIGNMENTS: "2.4 0, 4.1 0-1",
    api.LIST_PARTITION_REASSIGNMENTS: "2.4 0",
    api.OFFSET_DELETE: "2.4 0",
    api.DESCRIBE_CLIENT_QUOTAS: "2.6 0, 2.8 0-1",
    api.ALTER_CLIENT_QUOTAS: "2.6 0, 2.8 0-1",
    api.DESCRIBE_USER_SCRAM_CREDENTIALS: "2.7 0",
    api.ALTER_USER_SCRAM_CREDENTIALS: "2.7 0",
    api.DESCRIBE_QUORUM: "2.7 0, 3.3 0-1, 3.9 0-2",
    api.UPDATE_FEATURES: "2.7 0, 3.3 0-1, 4.0 0-2",
    api.UNREGISTER_BROKER: "2.8 0",
    api.DESCRIBE_CLUSTER: "2.8 0, 3.7 0-1, 4.0 0-2",
    api.DESCRIBE_PRODUCERS: "2.8 0",
    api.DESCRIBE_TRANSACTIONS: "3.0 0",
    api.LIST_TRANSACTIONS: "3.0 0, 3.8 0-1, 4.1 0-2",
    api.CONSUMER_GROUP_HEARTBEAT: "3.7 0, 4.0 0-1",
    api.CONSUMER_GROUP_DESCRIBE: "3.8 0, 4.0 0-1",
    api.GET_TELEMETRY_SUBSCRIPTIONS: "3.7 0",
    api.PUSH_TELEMETRY: "3.7 0",
    api.LIST_CONFIG_RESOURCES: "3.7 0, 4.1 0-1",
    api.DESCRIBE_TOPIC_PARTITIONS: "3.8 0",
    api.SHARE_GROUP_HEARTBEAT: "4.1 1",
    api.SHARE_GROUP_DESCRIBE: "4.1 1",
    api.SHARE_FETCH: "4.1 1, 4.2 1-2",
    api.SHARE_ACKNOWLEDGE: "4.1 1, 4.2 1-2",
    api.INITIALIZE_SHARE_GROUP_STATE: "4.1 0",
    api.READ_SHARE_GROUP_STATE: "4.1 0",
    api.WRITE_SHARE_GROUP_STATE: "4.1 0, 4.2 0-1",
    api.DELETE_SHARE_GROUP_STATE: "4.1 0",
    api.READ_SHARE_GROUP_STATE_SUMMARY: "4.1 0, 4.2 0-1",
    api.DESCRIBE_SHARE_GROUP_OFFSETS: "4.1 0, 4.2 0-1",
    api.ALTER_SHARE_GROUP_OFFSETS: "4.1 0",
    api.DELETE_SHARE_GROUP_OFFSETS: "4.1 0",
    api.STREAMS_GROUP_HEARTBEAT: "4.1 0, 4.4 0-1",
    api.STREAMS_GROUP_DESCRIBE: "4.1 0, 4.4 0-1",
    api.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: "4.4 0",
}


def release_named(name: str) -> str:
    """Normalize the name of a release: "2.8", "2.8.1", "0.9". Raises ValueError for an unknown one."""
    parts = name.split(".")
    length = 3 if parts[0] == "0" else 2
    release = ".".join((parts + ["0"] * length)[:length])
    if release not in RELEASES:
        raise ValueError(f"unknown release {name} of Apache Kafka; known releases: {', '.join(RELEASES)}")
    return release


def versions_of(release: str) -> dict[int, VersionRange]:
    """Return the served versions by API key of a release, one of RELEASES."""
    place = RELEASES.index(release)
    served: dict[int, VersionRange] = {}
    for key, row in _RANGES.items():
        for entry in row.split(", "):
            first, _, versions = entry.partition(" ")
            if RELEASES.index(first) > place:
                break
            if versions == "-":
                served.pop(key, None)
            else:
                served[key] = version_range(versions)
    return served


def first_release(key: int, version: int) -> str | None:
    """Return the first release that served this version of an API or a newer one; None if it is unknown."""
    for entry in _RANGES.get(key, "").split(", "):
        release, _, versions = entry.partition(" ")
        if versions and versions != "-" and version_range(versions).last >= version:
            return release
    return None


def needs(key: int, version: int) -> str:
    """Return the end of a sentence about a broker without a version of an API: the oldest release that has it."""
    release = first_release(key, version)
    return "" if release is None else f", which needs Kafka {release} or newer"
