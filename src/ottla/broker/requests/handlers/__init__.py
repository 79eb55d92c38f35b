"""One file per API; this table lists the versions that each of them serves.

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


def _served(module: str, versions: str, unstable: str = "none") -> Served:
    return Served(module, version_range(versions), version_range(unstable))


SERVED: Final[dict[int, Served]] = {
    api.PRODUCE: _served("produce", "0-13"),
    api.FETCH: _served("fetch", "0-18"),
    api.LIST_OFFSETS: _served("list_offsets", "0-11"),
    api.METADATA: _served("metadata", "0-13"),
    api.OFFSET_COMMIT: _served("offset_commit", "0-10"),
    api.OFFSET_FETCH: _served("offset_fetch", "0-10"),
    api.FIND_COORDINATOR: _served("find_coordinator", "0-6"),
    api.JOIN_GROUP: _served("join_group", "0-9"),
    api.HEARTBEAT: _served("heartbeat", "0-4"),
    api.LEAVE_GROUP: _served("leave_group", "0-5"),
    api.SYNC_GROUP: _served("sync_group", "0-5"),
    api.DESCRIBE_GROUPS: _served("describe_groups", "0-6"),
    api.LIST_GROUPS: _served("list_groups", "0-5"),
    api.SASL_HANDSHAKE: _served("sasl_handshake", "0-1"),
    api.API_VERSIONS: _served("api_versions", "0-5"),
    api.CREATE_TOPICS: _served("create_topics", "0-7"),
    api.DELETE_TOPICS: _served("delete_topics", "0-6"),
    api.DELETE_RECORDS: _served("delete_records", "0-2"),
    api.OFFSET_FOR_LEADER_EPOCH: _served("offset_for_leader_epoch", "0-4"),
    api.DESCRIBE_LOG_DIRS: _served("describe_log_dirs", "0-5"),
    api.ALTER_REPLICA_LOG_DIRS: _served("alter_replica_log_dirs", "0-2"),
    api.CREATE_PARTITIONS: _served("create_partitions", "0-3"),
    api.DELETE_GROUPS: _served("delete_groups", "0-3"),
    api.SASL_AUTHENTICATE: _served("sasl_authenticate", "0-2"),
    api.CREATE_DELEGATION_TOKEN: _served("create_delegation_token", "0-3"),
    api.RENEW_DELEGATION_TOKEN: _served("renew_delegation_token", "0-2"),
    api.EXPIRE_DELEGATION_TOKEN: _served("expire_delegation_token", "0-2"),
    api.DESCRIBE_DELEGATION_TOKEN: _served("describe_delegation_token", "0-3"),
    api.OFFSET_DELETE: _served("offset_delete", "0"),
    api.DESCRIBE_ACLS: _served("describe_acls", "0-3"),
    api.CREATE_ACLS: _served("create_acls", "0-3"),
    api.DELETE_ACLS: _served("delete_acls", "0-3"),
    api.DESCRIBE_QUORUM: _served("describe_quorum", "0-2"),
    api.INIT_PRODUCER_ID: _served("init_producer_id", "0-5", unstable="6"),
    api.ADD_PARTITIONS_TO_TXN: _served("add_partitions_to_txn", "0-5"),
    api.ADD_OFFSETS_TO_TXN: _served("add_offsets_to_txn", "0-4"),
    api.END_TXN: _served("end_txn", "0-5"),
    api.WRITE_TXN_MARKERS: _served("write_txn_markers", "0-2"),
    api.TXN_OFFSET_COMMIT: _served("txn_offset_commit", "0-6"),
    api.DESCRIBE_TRANSACTIONS: _served("describe_transactions", "0"),
    api.LIST_TRANSACTIONS: _served("list_transactions", "0-2"),
    api.ELECT_LEADERS: _served("elect_leaders", "0-2"),
    api.ALTER_PARTITION_REASSIGNMENTS: _served("alter_partition_reassignments", "0-1"),
    api.LIST_PARTITION_REASSIGNMENTS: _served("list_partition_reassignments", "0"),
    api.DESCRIBE_PRODUCERS: _served("describe_producers", "0"),
    api.ALTER_CONFIGS: _served("alter_configs", "0-2"),
    api.INCREMENTAL_ALTER_CONFIGS: _served("incremental_alter_configs", "0-1"),
    api.LIST_CONFIG_RESOURCES: _served("list_config_resources", "0-1"),
    api.DESCRIBE_CONFIGS: _served("describe_configs", "0-4"),
    api.DESCRIBE_CLIENT_QUOTAS: _served("describe_client_quotas", "0-1"),
    api.ALTER_CLIENT_QUOTAS: _served("alter_client_quotas", "0-1"),
    api.DESCRIBE_USER_SCRAM_CREDENTIALS: _served("describe_user_scram_credentials", "0"),
    api.ALTER_USER_SCRAM_CREDENTIALS: _served("alter_user_scram_credentials", "0"),
    api.UPDATE_FEATURES: _served("update_features", "0-2"),
    api.UNREGISTER_BROKER: _served("unregister_broker", "0"),
    api.DESCRIBE_CLUSTER: _served("describe_cluster", "0-2"),
    api.CONSUMER_GROUP_HEARTBEAT: _served("consumer_group_heartbeat", "0-1"),
    api.CONSUMER_GROUP_DESCRIBE: _served("consumer_group_describe", "0-1"),
    api.GET_TELEMETRY_SUBSCRIPTIONS: _served("get_telemetry_subscriptions", "0"),
    api.PUSH_TELEMETRY: _served("push_telemetry", "0"),
    api.DESCRIBE_TOPIC_PARTITIONS: _served("describe_topic_partitions", "0"),
    api.SHARE_GROUP_HEARTBEAT: _served("share_group_heartbeat", "1"),
    api.SHARE_GROUP_DESCRIBE: _served("share_group_describe", "1"),
    api.DESCRIBE_SHARE_GROUP_OFFSETS: _served("describe_share_group_offsets", "0-1"),
    api.ALTER_SHARE_GROUP_OFFSETS: _served("alter_share_group_offsets", "0"),
    api.DELETE_SHARE_GROUP_OFFSETS: _served("delete_share_group_offsets", "0"),
    api.SHARE_FETCH: _served("share_fetch", "1-2"),
    api.SHARE_ACKNOWLEDGE: _served("share_acknowledge", "1-2"),
    api.INITIALIZE_SHARE_GROUP_STATE: _served("initialize_share_group_state", "0"),
    api.READ_SHARE_GROUP_STATE: _served("read_share_group_state", "0"),
    api.WRITE_SHARE_GROUP_STATE: _served("write_share_group_state", "0-1"),
    api.DELETE_SHARE_GROUP_STATE: _served("delete_share_group_state", "0"),
    api.READ_SHARE_GROUP_STATE_SUMMARY: _served("read_share_group_state_summary", "0-1"),
    api.STREAMS_GROUP_HEARTBEAT: _served("streams_group_heartbeat", "0-1"),
    api.STREAMS_GROUP_DESCRIBE: _served("streams_group_describe", "0-1"),
    api.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: _served("streams_group_topology_description_update", "0"),
}
