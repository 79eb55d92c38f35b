"""Table of Kafka's APIs: key, name, newest declared version, and first flexible version.

Header versions are derived from it, so that a header can be read without importing the declaration of its message.
The versions that a broker supports are registered by its handlers.
"""

import importlib
from functools import cache
from typing import Final, NamedTuple, cast

from ottla.protocol.schema import NEWEST, Request, Response


class Api(NamedTuple):
    """Row of the table: `flexible` is the first version with compact lengths and tagged fields, newest + 1 without one."""

    key: int
    name: str
    module: str
    newest: int
    flexible: int

    def request_header_version(self, version: int) -> int:
        """Return the version of the request header: 0 for ControlledShutdown 0 (no client id), 2 if flexible, else 1."""
        if self.key == CONTROLLED_SHUTDOWN and version == 0:
            return 0
        return 2 if version >= self.flexible else 1

    def response_header_version(self, version: int) -> int:
        """Return the version of the response header: 1 if flexible, else 0; always 0 for ApiVersions, for all clients."""
        return 1 if version >= self.flexible and self.key != API_VERSIONS else 0

    def request_class(self) -> type[Request]:
        """Return the declaration of the request, imported on first use."""
        return cast(type[Request], _declaration(self.module, f"{self.name}Request"))

    def response_class(self) -> type[Response]:
        """Return the declaration of the response, imported on first use."""
        return cast(type[Response], _declaration(self.module, f"{self.name}Response"))


@cache
def _declaration(module: str, name: str) -> object:
    return getattr(importlib.import_module(f"ottla.protocol.messages.{module}"), name)


NEVER: Final = NEWEST + 1
PRODUCE: Final = 0
FETCH: Final = 1
LIST_OFFSETS: Final = 2
METADATA: Final = 3
LEADER_AND_ISR: Final = 4
STOP_REPLICA: Final = 5
UPDATE_METADATA: Final = 6
CONTROLLED_SHUTDOWN: Final = 7
OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
FIND_COORDINATOR: Final = 10
JOIN_GROUP: Final = 11
HEARTBEAT: Final = 12
LEAVE_GROUP: Final = 13
SYNC_GROUP: Final = 14
DESCRIBE_GROUPS: Final = 15
LIST_GROUPS: Final = 16
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
DELETE_RECORDS: Final = 21
INIT_PRODUCER_ID: Final = 22
OFFSET_FOR_LEADER_EPOCH: Final = 23
ADD_PARTITIONS_TO_TXN: Final = 24
ADD_OFFSETS_TO_TXN: Final = 25
END_TXN: Final = 26
WRITE_TXN_MARKERS: Final = 27
TXN_OFFSET_COMMIT: Final = 28
DESCRIBE_ACLS: Final = 29
CREATE_ACLS: Final = 30
DELETE_ACLS: Final = 31
DESCRIBE_CONFIGS: Final = 32
ALTER_CONFIGS: Final = 33
ALTER_REPLICA_LOG_DIRS: Final = 34
DESCRIBE_LOG_DIRS: Final = 35
SASL_AUTHENTICATE: Final = 36
CREATE_PARTITIONS: Final = 37
CREATE_DELEGATION_TOKEN: Final = 38
RENEW_DELEGATION_TOKEN: Final = 39
EXPIRE_DELEGATION_TOKEN: Final = 40
DESCRIBE_DELEGATION_TOKEN: Final = 41
DELETE_GROUPS: Final = 42
ELECT_LEADERS: Final = 43
INCREMENTAL_ALTER_CONFIGS: Final = 44
ALTER_PARTITION_REASSIGNMENTS: Final = 45
LIST_PARTITION_REASSIGNMENTS: Final = 46
OFFSET_DELETE: Final = 47
DESCRIBE_CLIENT_QUOTAS: Final = 48
ALTER_CLIENT_QUOTAS: Final = 49
DESCRIBE_USER_SCRAM_CREDENTIALS: Final = 50
ALTER_USER_SCRAM_CREDENTIALS: Final = 51
VOTE: Final = 52
BEGIN_QUORUM_EPOCH: Final = 53
END_QUORUM_EPOCH: Final = 54
DESCRIBE_QUORUM: Final = 55
ALTER_PARTITION: Final = 56
UPDATE_FEATURES: Final = 57
ENVELOPE: Final = 58
FETCH_SNAPSHOT: Final = 59
DESCRIBE_CLUSTER: Final = 60
DESCRIBE_PRODUCERS: Final = 61
BROKER_REGISTRATION: Final = 62
BROKER_HEARTBEAT: Final = 63
UNREGISTER_BROKER: Final = 64
DESCRIBE_TRANSACTIONS: Final = 65
LIST_TRANSACTIONS: Final = 66
ALLOCATE_PRODUCER_IDS: Final = 67
CONSUMER_GROUP_HEARTBEAT: Final = 68
CONSUMER_GROUP_DESCRIBE: Final = 69
CONTROLLER_REGISTRATION: Final = 70
GET_TELEMETRY_SUBSCRIPTIONS: Final = 71
PUSH_TELEMETRY: Final = 72
ASSIGN_REPLICAS_TO_DIRS: Final = 73
LIST_CONFIG_RESOURCES: Final = 74
DESCRIBE_TOPIC_PARTITIONS: Final = 75
SHARE_GROUP_HEARTBEAT: Final = 76
SHARE_GROUP_DESCRIBE: Final = 77
SHARE_FETCH: Final = 78
SHARE_ACKNOWLEDGE: Final = 79
ADD_RAFT_VOTER: Final = 80
REMOVE_RAFT_VOTER: Final = 81
UPDATE_RAFT_VOTER: Final = 82
INITIALIZE_SHARE_GROUP_STATE: Final = 83
READ_SHARE_GROUP_STATE: Final = 84
WRITE_SHARE_GROUP_STATE: Final = 85
DELETE_SHARE_GROUP_STATE: Final = 86
READ_SHARE_GROUP_STATE_SUMMARY: Final = 87
STREAMS_GROUP_HEARTBEAT: Final = 88
STREAMS_GROUP_DESCRIBE: Final = 89
DESCRIBE_SHARE_GROUP_OFFSETS: Final = 90
ALTER_SHARE_GROUP_OFFSETS: Final = 91
DELETE_SHARE_GROUP_OFFSETS: Final = 92
STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: Final = 93
UNREGISTER_CONTROLLER: Final = 94

APIS: Final[dict[int, Api]] = {
    row.key: row
    for row in (
        Api(PRODUCE, "Produce", "produce", 13, 9),
        Api(FETCH, "Fetch", "fetch", 18, 12),
        Api(LIST_OFFSETS, "ListOffsets", "list_offsets", 11, 6),
        Api(METADATA, "Metadata", "metadata", 13, 9),
        Api(LEADER_AND_ISR, "LeaderAndIsr", "leader_and_isr", 7, 4),
        Api(STOP_REPLICA, "StopReplica", "stop_replica", 4, 2),
        Api(UPDATE_METADATA, "UpdateMetadata", "update_metadata", 8, 6),
        Api(CONTROLLED_SHUTDOWN, "ControlledShutdown", "controlled_shutdown", 3, 3),
        Api(OFFSET_COMMIT, "OffsetCommit", "offset_commit", 10, 8),
        Api(OFFSET_FETCH, "OffsetFetch", "offset_fetch", 10, 6),
        Api(FIND_COORDINATOR, "FindCoordinator", "find_coordinator", 6, 3),
        Api(JOIN_GROUP, "JoinGroup", "join_group", 9, 6),
        Api(HEARTBEAT, "Heartbeat", "heartbeat", 4, 4),
        Api(LEAVE_GROUP, "LeaveGroup", "leave_group", 5, 4),
        Api(SYNC_GROUP, "SyncGroup", "sync_group", 5, 4),
        Api(DESCRIBE_GROUPS, "DescribeGroups", "describe_groups", 6, 5),
        Api(LIST_GROUPS, "ListGroups", "list_groups", 5, 3),
        Api(SASL_HANDSHAKE, "SaslHandshake", "sasl_handshake", 1, NEVER),
        Api(API_VERSIONS, "ApiVersions", "api_versions", 5, 3),
        Api(CREATE_TOPICS, "CreateTopics", "create_topics", 7, 5),
        Api(DELETE_TOPICS, "DeleteTopics", "delete_topics", 6, 4),
        Api(DELETE_RECORDS, "DeleteRecords", "delete_records", 2, 2),
        Api(INIT_PRODUCER_ID, "InitProducerId", "init_producer_id", 6, 2),
        Api(OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderEpoch", "offset_for_leader_epoch", 4, 4),
        Api(ADD_PARTITIONS_TO_TXN, "AddPartitionsToTxn", "add_partitions_to_txn", 5, 3),
        Api(ADD_OFFSETS_TO_TXN, "AddOffsetsToTxn", "add_offsets_to_txn", 4, 3),
        Api(END_TXN, "EndTxn", "end_txn", 5, 3),
        Api(WRITE_TXN_MARKERS, "WriteTxnMarkers", "write_txn_markers", 2, 1),
        Api(TXN_OFFSET_COMMIT, "TxnOffsetCommit", "txn_offset_commit", 6, 3),
        Api(DESCRIBE_ACLS, "DescribeAcls", "describe_acls", 3, 2),
        Api(CREATE_ACLS, "CreateAcls", "create_acls", 3, 2),
        Api(DELETE_ACLS, "DeleteAcls", "delete_acls", 3, 2),
        Api(DESCRIBE_CONFIGS, "DescribeConfigs", "describe_configs", 4, 4),
        Api(ALTER_CONFIGS, "AlterConfigs", "alter_configs", 2, 2),
        Api(ALTER_REPLICA_LOG_DIRS, "AlterReplicaLogDirs", "alter_replica_log_dirs", 2, 2),
        Api(DESCRIBE_LOG_DIRS, "DescribeLogDirs", "describe_log_dirs", 5, 2),
        Api(SASL_AUTHENTICATE, "SaslAuthenticate", "sasl_authenticate", 2, 2),
        Api(CREATE_PARTITIONS, "CreatePartitions", "create_partitions", 3, 2),
        Api(CREATE_DELEGATION_TOKEN, "CreateDelegationToken", "create_delegation_token", 3, 2),
        Api(RENEW_DELEGATION_TOKEN, "RenewDelegationToken", "renew_delegation_token", 2, 2),
        Api(EXPIRE_DELEGATION_TOKEN, "ExpireDelegationToken", "expire_delegation_token", 2, 2),
        Api(DESCRIBE_DELEGATION_TOKEN, "DescribeDelegationToken", "describe_delegation_token", 3, 2),
        Api(DELETE_GROUPS, "DeleteGroups", "delete_groups", 3, 2),
        Api(ELECT_LEADERS, "ElectLeaders", "elect_leaders", 2, 2),
        Api(INCREMENTAL_ALTER_CONFIGS, "IncrementalAlterConfigs", "incremental_alter_configs", 1, 1),
        Api(ALTER_PARTITION_REASSIGNMENTS, "AlterPartitionReassignments", "alter_partition_reassignments", 1, 0),
        Api(LIST_PARTITION_REASSIGNMENTS, "ListPartitionReassignments", "list_partition_reassignments", 0, 0),
        Api(OFFSET_DELETE, "OffsetDelete", "offset_delete", 0, NEVER),
        Api(DESCRIBE_CLIENT_QUOTAS, "DescribeClientQuotas", "describe_client_quotas", 1, 1),
        Api(ALTER_CLIENT_QUOTAS, "AlterClientQuotas", "alter_client_quotas", 1, 1),
        Api(DESCRIBE_USER_SCRAM_CREDENTIALS, "DescribeUserScramCredentials", "describe_user_scram_credentials", 0, 0),
        Api(ALTER_USER_SCRAM_CREDENTIALS, "AlterUserScramCredentials", "alter_user_scram_credentials", 0, 0),
        Api(VOTE, "Vote", "vote", 2, 0),
        Api(BEGIN_QUORUM_EPOCH, "BeginQuorumEpoch", "begin_quorum_epoch", 1, 1),
        Api(END_QUORUM_EPOCH, "EndQuorumEpoch", "end_quorum_epoch", 1, 1),
        Api(DESCRIBE_QUORUM, "DescribeQuorum", "describe_quorum", 2, 0),
        Api(ALTER_PARTITION, "AlterPartition", "alter_partition", 3, 0),
        Api(UPDATE_FEATURES, "UpdateFeatures", "update_features", 2, 0),
        Api(ENVELOPE, "Envelope", "envelope", 0, 0),
        Api(FETCH_SNAPSHOT, "FetchSnapshot", "fetch_snapshot", 1, 0),
        Api(DESCRIBE_CLUSTER, "DescribeCluster", "describe_cluster", 2, 0),
        Api(DESCRIBE_PRODUCERS, "DescribeProducers", "describe_producers", 0, 0),
        Api(BROKER_REGISTRATION, "BrokerRegistration", "broker_registration", 4, 0),
        Api(BROKER_HEARTBEAT, "BrokerHeartbeat", "broker_heartbeat", 2, 0),
        Api(UNREGISTER_BROKER, "UnregisterBroker", "unregister_broker", 0, 0),
        Api(DESCRIBE_TRANSACTIONS, "DescribeTransactions", "describe_transactions", 0, 0),
        Api(LIST_TRANSACTIONS, "ListTransactions", "list_transactions", 2, 0),
        Api(ALLOCATE_PRODUCER_IDS, "AllocateProducerIds", "allocate_producer_ids", 0, 0),
        Api(CONSUMER_GROUP_HEARTBEAT, "ConsumerGroupHeartbeat", "consumer_group_heartbeat", 1, 0),
        Api(CONSUMER_GROUP_DESCRIBE, "ConsumerGroupDescribe", "consumer_group_describe", 1, 0),
        Api(CONTROLLER_REGISTRATION, "ControllerRegistration", "controller_registration", 0, 0),
        Api(GET_TELEMETRY_SUBSCRIPTIONS, "GetTelemetrySubscriptions", "get_telemetry_subscriptions", 0, 0),
        Api(PUSH_TELEMETRY, "PushTelemetry", "push_telemetry", 0, 0),
        Api(ASSIGN_REPLICAS_TO_DIRS, "AssignReplicasToDirs", "assign_replicas_to_dirs", 0, 0),
        Api(LIST_CONFIG_RESOURCES, "ListConfigResources", "list_config_resources", 1, 0),
        Api(DESCRIBE_TOPIC_PARTITIONS, "DescribeTopicPartitions", "describe_topic_partitions", 0, 0),
        Api(SHARE_GROUP_HEARTBEAT, "ShareGroupHeartbeat", "share_group_heartbeat", 1, 0),
        Api(SHARE_GROUP_DESCRIBE, "ShareGroupDescribe", "share_group_describe", 1, 0),
        Api(SHARE_FETCH, "ShareFetch", "share_fetch", 2, 0),
        Api(SHARE_ACKNOWLEDGE, "ShareAcknowledge", "share_acknowledge", 2, 0),
        Api(ADD_RAFT_VOTER, "AddRaftVoter", "add_raft_voter", 1, 0),
        Api(REMOVE_RAFT_VOTER, "RemoveRaftVoter", "remove_raft_voter", 0, 0),
        Api(UPDATE_RAFT_VOTER, "UpdateRaftVoter", "update_raft_voter", 0, 0),
        Api(INITIALIZE_SHARE_GROUP_STATE, "InitializeShareGroupState", "initialize_share_group_state", 0, 0),
        Api(READ_SHARE_GROUP_STATE, "ReadShareGroupState", "read_share_group_state", 0, 0),
        Api(WRITE_SHARE_GROUP_STATE, "WriteShareGroupState", "write_share_group_state", 1, 0),
        Api(DELETE_SHARE_GROUP_STATE, "DeleteShareGroupState", "delete_share_group_state", 0, 0),
        Api(READ_SHARE_GROUP_STATE_SUMMARY, "ReadShareGroupStateSummary", "read_share_group_state_summary", 1, 0),
        Api(STREAMS_GROUP_HEARTBEAT, "StreamsGroupHeartbeat", "streams_group_heartbeat", 1, 0),
        Api(STREAMS_GROUP_DESCRIBE, "StreamsGroupDescribe", "streams_group_describe", 1, 0),
        Api(DESCRIBE_SHARE_GROUP_OFFSETS, "DescribeShareGroupOffsets", "describe_share_group_offsets", 1, 0),
        Api(ALTER_SHARE_GROUP_OFFSETS, "AlterShareGroupOffsets", "alter_share_group_offsets", 0, 0),
        Api(DELETE_SHARE_GROUP_OFFSETS, "DeleteShareGroupOffsets", "delete_share_group_offsets", 0, 0),
        Api(
            STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE,
            "StreamsGroupTopologyDescriptionUpdate",
            "streams_group_topology_description_update",
            0,
            0,
        ),
        Api(UNREGISTER_CONTROLLER, "UnregisterController", "unregister_controller", 0, 0),
    )
}
