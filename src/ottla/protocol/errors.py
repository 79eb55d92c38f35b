"""Table of Kafka's error codes: code, name, whether the error is retriable, and Kafka's default message.

Each line below defines a constant and adds a row to the table; no other code repeats the numbers. The messages are part of
the protocol: a broker sends them in responses with an error message, unless it has a more specific one.
"""

from typing import Final, NamedTuple


class Error(NamedTuple):
    """Row of the table."""

    code: int
    name: str
    retriable: bool
    message: str


_BY_CODE: dict[int, Error] = {}


def _error(code: int, name: str, message: str, *, retriable: bool = False) -> int:
    _BY_CODE[code] = Error(code, name, retriable, message)
    return code


def error(code: int) -> Error:
    """Return the row of `code`; that of UNKNOWN_SERVER_ERROR for an unknown code, as in Kafka's clients."""
    return _BY_CODE.get(code) or _BY_CODE[UNKNOWN_SERVER_ERROR]


def name_of(code: int) -> str:
    """Return the name of `code`, or the number as text if it is unknown."""
    row = _BY_CODE.get(code)
    return row.name if row else str(code)


def all_errors() -> list[Error]:
    """Return all rows, ordered by code."""
    return list(_BY_CODE.values())


UNKNOWN_SERVER_ERROR: Final = _error(
    -1, "UNKNOWN_SERVER_ERROR", "The server experienced an unexpected error when processing the request."
)
NONE: Final = _error(0, "NONE", "NONE")
OFFSET_OUT_OF_RANGE: Final = _error(
    1, "OFFSET_OUT_OF_RANGE", "The requested offset is not within the range of offsets maintained by the server."
)
CORRUPT_MESSAGE: Final = _error(
    2,
    "CORRUPT_MESSAGE",
    "This message has failed its CRC checksum, exceeds the valid size, has a null key for a compacted topic, or is otherwise corrupt.",
    retriable=True,
)
UNKNOWN_TOPIC_OR_PARTITION: Final = _error(
    3, "UNKNOWN_TOPIC_OR_PARTITION", "This server does not host this topic-partition.", retriable=True
)
INVALID_FETCH_SIZE: Final = _error(4, "INVALID_FETCH_SIZE", "The requested fetch size is invalid.")
LEADER_NOT_AVAILABLE: Final = _error(
    5,
    "LEADER_NOT_AVAILABLE",
    "There is no leader for this topic-partition as we are in the middle of a leadership election.",
    retriable=True,
)
NOT_LEADER_OR_FOLLOWER: Final = _error(
    6,
    "NOT_LEADER_OR_FOLLOWER",
    "For requests intended only for the leader, this error indicates that the broker is not the current leader. For requests intended for any replica, this error indicates that the broker is not a replica of the topic partition.",
    retriable=True,
)
REQUEST_TIMED_OUT: Final = _error(7, "REQUEST_TIMED_OUT", "The request timed out.", retriable=True)
BROKER_NOT_AVAILABLE: Final = _error(8, "BROKER_NOT_AVAILABLE", "The broker is not available.")
REPLICA_NOT_AVAILABLE: Final = _error(
    9,
    "REPLICA_NOT_AVAILABLE",
    "The replica is not available for the requested topic-partition. Produce/Fetch requests and other requests intended only for the leader or follower return NOT_LEADER_OR_FOLLOWER if the broker is not a replica of the topic-partition.",
    retriable=True,
)
MESSAGE_TOO_LARGE: Final = _error(
    10, "MESSAGE_TOO_LARGE", "The request included a message larger than the max message size the server will accept."
)
STALE_CONTROLLER_EPOCH: Final = _error(11, "STALE_CONTROLLER_EPOCH", "The controller moved to another broker.")
OFFSET_METADATA_TOO_LARGE: Final = _error(
    12, "OFFSET_METADATA_TOO_LARGE", "The metadata field of the offset request was too large."
)
NETWORK_EXCEPTION: Final = _error(
    13, "NETWORK_EXCEPTION", "The server disconnected before a response was received.", retriable=True
)
COORDINATOR_LOAD_IN_PROGRESS: Final = _error(
    14, "COORDINATOR_LOAD_IN_PROGRESS", "The coordinator is loading and hence can't process requests.", retriable=True
)
COORDINATOR_NOT_AVAILABLE: Final = _error(
    15, "COORDINATOR_NOT_AVAILABLE", "The coordinator is not available.", retriable=True
)
NOT_COORDINATOR: Final = _error(16, "NOT_COORDINATOR", "This is not the correct coordinator.", retriable=True)
INVALID_TOPIC_EXCEPTION: Final = _error(
    17, "INVALID_TOPIC_EXCEPTION", "The request attempted to perform an operation on an invalid topic."
)
RECORD_LIST_TOO_LARGE: Final = _error(
    18,
    "RECORD_LIST_TOO_LARGE",
    "The request included message batch larger than the configured segment size on the server.",
)
NOT_ENOUGH_REPLICAS: Final = _error(
    19,
    "NOT_ENOUGH_REPLICAS",
    "Messages are rejected since there are fewer in-sync replicas than required.",
    retriable=True,
)
NOT_ENOUGH_REPLICAS_AFTER_APPEND: Final = _error(
    20,
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "Messages are written to the log, but to fewer in-sync replicas than required.",
    retriable=True,
)
INVALID_REQUIRED_ACKS: Final = _error(
    21, "INVALID_REQUIRED_ACKS", "Produce request specified an invalid value for required acks."
)
ILLEGAL_GENERATION: Final = _error(22, "ILLEGAL_GENERATION", "Specified group generation id is not valid.")
INCONSISTENT_GROUP_PROTOCOL: Final = _error(
    23,
    "INCONSISTENT_GROUP_PROTOCOL",
    "The group member's supported protocols are incompatible with those of existing members or first group member tried to join with empty protocol type or empty protocol list.",
)
INVALID_GROUP_ID: Final = _error(24, "INVALID_GROUP_ID", "The group id is invalid.")
UNKNOWN_MEMBER_ID: Final = _error(25, "UNKNOWN_MEMBER_ID", "The coordinator is not aware of this member.")
INVALID_SESSION_TIMEOUT: Final = _error(
    26,
    "INVALID_SESSION_TIMEOUT",
    "The session timeout is not within the range allowed by the broker (as configured by group.min.session.timeout.ms and group.max.session.timeout.ms).",
)
REBALANCE_IN_PROGRESS: Final = _error(27, "REBALANCE_IN_PROGRESS", "The group is rebalancing, so a rejoin is needed.")
INVALID_COMMIT_OFFSET_SIZE: Final = _error(
    28, "INVALID_COMMIT_OFFSET_SIZE", "The committing offset data size is not valid."
)
TOPIC_AUTHORIZATION_FAILED: Final = _error(29, "TOPIC_AUTHORIZATION_FAILED", "Topic authorization failed.")
GROUP_AUTHORIZATION_FAILED: Final = _error(30, "GROUP_AUTHORIZATION_FAILED", "Group authorization failed.")
CLUSTER_AUTHORIZATION_FAILED: Final = _error(31, "CLUSTER_AUTHORIZATION_FAILED", "Cluster authorization failed.")
INVALID_TIMESTAMP: Final = _error(32, "INVALID_TIMESTAMP", "The timestamp of the message is out of acceptable range.")
UNSUPPORTED_SASL_MECHANISM: Final = _error(
    33, "UNSUPPORTED_SASL_MECHANISM", "The broker does not support the requested SASL mechanism."
)
ILLEGAL_SASL_STATE: Final = _error(34, "ILLEGAL_SASL_STATE", "Request is not valid given the current SASL state.")
UNSUPPORTED_VERSION: Final = _error(35, "UNSUPPORTED_VERSION", "The version of API is not supported.")
TOPIC_ALREADY_EXISTS: Final = _error(36, "TOPIC_ALREADY_EXISTS", "Topic with this name already exists.")
INVALID_PARTITIONS: Final = _error(37, "INVALID_PARTITIONS", "Number of partitions is below 1.")
INVALID_REPLICATION_FACTOR: Final = _error(
    38, "INVALID_REPLICATION_FACTOR", "Replication factor is below 1 or larger than the number of available brokers."
)
INVALID_REPLICA_ASSIGNMENT: Final = _error(39, "INVALID_REPLICA_ASSIGNMENT", "Replica assignment is invalid.")
INVALID_CONFIG: Final = _error(40, "INVALID_CONFIG", "Configuration is invalid.")
NOT_CONTROLLER: Final = _error(
    41, "NOT_CONTROLLER", "This is not the correct controller for this cluster.", retriable=True
)
INVALID_REQUEST: Final = _error(
    42,
    "INVALID_REQUEST",
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an incompatible broker. See the broker logs for more details.",
)
UNSUPPORTED_FOR_MESSAGE_FORMAT: Final = _error(
    43, "UNSUPPORTED_FOR_MESSAGE_FORMAT", "The message format version on the broker does not support the request."
)
POLICY_VIOLATION: Final = _error(44, "POLICY_VIOLATION", "Request parameters do not satisfy the configured policy.")
OUT_OF_ORDER_SEQUENCE_NUMBER: Final = _error(
    45, "OUT_OF_ORDER_SEQUENCE_NUMBER", "The broker received an out of order sequence number."
)
DUPLICATE_SEQUENCE_NUMBER: Final = _error(
    46, "DUPLICATE_SEQUENCE_NUMBER", "The broker received a duplicate sequence number."
)
INVALID_PRODUCER_EPOCH: Final = _error(47, "INVALID_PRODUCER_EPOCH", "Producer attempted to produce with an old epoch.")
INVALID_TXN_STATE: Final = _error(
    48, "INVALID_TXN_STATE", "The producer attempted a transactional operation in an invalid state."
)
INVALID_PRODUCER_ID_MAPPING: Final = _error(
    49,
    "INVALID_PRODUCER_ID_MAPPING",
    "The producer attempted to use a producer id which is not currently assigned to its transactional id.",
)
INVALID_TRANSACTION_TIMEOUT: Final = _error(
    50,
    "INVALID_TRANSACTION_TIMEOUT",
    "The transaction timeout is larger than the maximum value allowed by the broker (as configured by transaction.max.timeout.ms).",
)
CONCURRENT_TRANSACTIONS: Final = _error(
    51,
    "CONCURRENT_TRANSACTIONS",
    "The producer attempted to update a transaction while another concurrent operation on the same transaction was ongoing.",
    retriable=True,
)
TRANSACTION_COORDINATOR_FENCED: Final = _error(
    52,
    "TRANSACTION_COORDINATOR_FENCED",
    "Indicates that the transaction coordinator sending a WriteTxnMarker is no longer the current coordinator for a given producer.",
)
TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Final = _error(
    53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "Transactional Id authorization failed."
)
SECURITY_DISABLED: Final = _error(54, "SECURITY_DISABLED", "Security features are disabled.")
OPERATION_NOT_ATTEMPTED: Final = _error(
    55,
    "OPERATION_NOT_ATTEMPTED",
    "The broker did not attempt to execute this operation. This may happen for batched RPCs where some operations in the batch failed, causing the broker to respond without trying the rest.",
)
KAFKA_STORAGE_ERROR: Final = _error(
    56, "KAFKA_STORAGE_ERROR", "Disk error when trying to access log file on the disk.", retriable=True
)
LOG_DIR_NOT_FOUND: Final = _error(
    57, "LOG_DIR_NOT_FOUND", "The user-specified log directory is not found in the broker config."
)
SASL_AUTHENTICATION_FAILED: Final = _error(58, "SASL_AUTHENTICATION_FAILED", "SASL Authentication failed.")
UNKNOWN_PRODUCER_ID: Final = _error(
    59,
    "UNKNOWN_PRODUCER_ID",
    "This exception is raised by the broker if it could not locate the producer metadata associated with the producerId in question. This could happen if, for instance, the producer's records were deleted because their retention time had elapsed. Once the last records of the producerId are removed, the producer's metadata is removed from the broker, and future appends by the producer will return this exception.",
)
REASSIGNMENT_IN_PROGRESS: Final = _error(60, "REASSIGNMENT_IN_PROGRESS", "A partition reassignment is in progress.")
DELEGATION_TOKEN_AUTH_DISABLED: Final = _error(
    61, "DELEGATION_TOKEN_AUTH_DISABLED", "Delegation Token feature is not enabled."
)
DELEGATION_TOKEN_NOT_FOUND: Final = _error(62, "DELEGATION_TOKEN_NOT_FOUND", "Delegation Token is not found on server.")
DELEGATION_TOKEN_OWNER_MISMATCH: Final = _error(
    63, "DELEGATION_TOKEN_OWNER_MISMATCH", "Specified Principal is not valid Owner/Renewer."
)
DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: Final = _error(
    64,
    "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
    "Delegation Token requests are not allowed on PLAINTEXT/1-way SSL channels and on delegation token authenticated channels.",
)
DELEGATION_TOKEN_AUTHORIZATION_FAILED: Final = _error(
    65, "DELEGATION_TOKEN_AUTHORIZATION_FAILED", "Delegation Token authorization failed."
)
DELEGATION_TOKEN_EXPIRED: Final = _error(66, "DELEGATION_TOKEN_EXPIRED", "Delegation Token is expired.")
INVALID_PRINCIPAL_TYPE: Final = _error(67, "INVALID_PRINCIPAL_TYPE", "Supplied principalType is not supported.")
NON_EMPTY_GROUP: Final = _error(68, "NON_EMPTY_GROUP", "The group is not empty.")
GROUP_ID_NOT_FOUND: Final = _error(69, "GROUP_ID_NOT_FOUND", "The group id does not exist.")
FETCH_SESSION_ID_NOT_FOUND: Final = _error(
    70, "FETCH_SESSION_ID_NOT_FOUND", "The fetch session ID was not found.", retriable=True
)
INVALID_FETCH_SESSION_EPOCH: Final = _error(
    71, "INVALID_FETCH_SESSION_EPOCH", "The fetch session epoch is invalid.", retriable=True
)
LISTENER_NOT_FOUND: Final = _error(
    72,
    "LISTENER_NOT_FOUND",
    "There is no listener on the leader broker that matches the listener on which metadata request was processed.",
    retriable=True,
)
TOPIC_DELETION_DISABLED: Final = _error(73, "TOPIC_DELETION_DISABLED", "Topic deletion is disabled.")
FENCED_LEADER_EPOCH: Final = _error(
    74, "FENCED_LEADER_EPOCH", "The leader epoch in the request is older than the epoch on the broker.", retriable=True
)
UNKNOWN_LEADER_EPOCH: Final = _error(
    75, "UNKNOWN_LEADER_EPOCH", "The leader epoch in the request is newer than the epoch on the broker.", retriable=True
)
UNSUPPORTED_COMPRESSION_TYPE: Final = _error(
    76,
    "UNSUPPORTED_COMPRESSION_TYPE",
    "The requesting client does not support the compression type of given partition.",
)
STALE_BROKER_EPOCH: Final = _error(77, "STALE_BROKER_EPOCH", "Broker epoch has changed.")
OFFSET_NOT_AVAILABLE: Final = _error(
    78,
    "OFFSET_NOT_AVAILABLE",
    "The leader high watermark has not caught up from a recent leader election so the offsets cannot be guaranteed to be monotonically increasing.",
    retriable=True,
)
MEMBER_ID_REQUIRED: Final = _error(
    79,
    "MEMBER_ID_REQUIRED",
    "The group member needs to have a valid member id before actually entering a consumer group.",
)
PREFERRED_LEADER_NOT_AVAILABLE: Final = _error(
    80, "PREFERRED_LEADER_NOT_AVAILABLE", "The preferred leader was not available.", retriable=True
)
GROUP_MAX_SIZE_REACHED: Final = _error(81, "GROUP_MAX_SIZE_REACHED", "The group has reached its maximum size.")
FENCED_INSTANCE_ID: Final = _error(
    82,
    "FENCED_INSTANCE_ID",
    "The broker rejected this static consumer since another consumer with the same group.instance.id has registered with a different member.id.",
)
ELIGIBLE_LEADERS_NOT_AVAILABLE: Final = _error(
    83, "ELIGIBLE_LEADERS_NOT_AVAILABLE", "Eligible topic partition leaders are not available.", retriable=True
)
ELECTION_NOT_NEEDED: Final = _error(
    84, "ELECTION_NOT_NEEDED", "Leader election not needed for topic partition.", retriable=True
)
NO_REASSIGNMENT_IN_PROGRESS: Final = _error(
    85, "NO_REASSIGNMENT_IN_PROGRESS", "No partition reassignment is in progress."
)
GROUP_SUBSCRIBED_TO_TOPIC: Final = _error(
    86,
    "GROUP_SUBSCRIBED_TO_TOPIC",
    "Deleting offsets of a topic is forbidden while the consumer group is actively subscribed to it.",
)
INVALID_RECORD: Final = _error(
    87, "INVALID_RECORD", "This record has failed the validation on broker and hence will be rejected."
)
UNSTABLE_OFFSET_COMMIT: Final = _error(
    88, "UNSTABLE_OFFSET_COMMIT", "There are unstable offsets that need to be cleared.", retriable=True
)
THROTTLING_QUOTA_EXCEEDED: Final = _error(
    89, "THROTTLING_QUOTA_EXCEEDED", "The throttling quota has been exceeded.", retriable=True
)
PRODUCER_FENCED: Final = _error(
    90, "PRODUCER_FENCED", "There is a newer producer with the same transactionalId which fences the current one."
)
RESOURCE_NOT_FOUND: Final = _error(
    91, "RESOURCE_NOT_FOUND", "A request illegally referred to a resource that does not exist."
)
DUPLICATE_RESOURCE: Final = _error(92, "DUPLICATE_RESOURCE", "A request illegally referred to the same resource twice.")
UNACCEPTABLE_CREDENTIAL: Final = _error(
    93, "UNACCEPTABLE_CREDENTIAL", "Requested credential would not meet criteria for acceptability."
)
INCONSISTENT_VOTER_SET: Final = _error(
    94,
    "INCONSISTENT_VOTER_SET",
    "Indicates that the either the sender or recipient of a voter-only request is not one of the expected voters.",
)
INVALID_UPDATE_VERSION: Final = _error(95, "INVALID_UPDATE_VERSION", "The given update version was invalid.")
FEATURE_UPDATE_FAILED: Final = _error(
    96, "FEATURE_UPDATE_FAILED", "Unable to update finalized features due to an unexpected server error."
)
PRINCIPAL_DESERIALIZATION_FAILURE: Final = _error(
    97,
    "PRINCIPAL_DESERIALIZATION_FAILURE",
    "Request principal deserialization failed during forwarding. This indicates an internal error on the broker cluster security setup.",
)
SNAPSHOT_NOT_FOUND: Final = _error(98, "SNAPSHOT_NOT_FOUND", "Requested snapshot was not found.")
POSITION_OUT_OF_RANGE: Final = _error(
    99,
    "POSITION_OUT_OF_RANGE",
    "Requested position is not greater than or equal to zero, and less than the size of the snapshot.",
)
UNKNOWN_TOPIC_ID: Final = _error(100, "UNKNOWN_TOPIC_ID", "This server does not host this topic ID.", retriable=True)
DUPLICATE_BROKER_REGISTRATION: Final = _error(101, "DUPLICATE_BROKER_REGISTRATION", "This broker ID is already in use.")
BROKER_ID_NOT_REGISTERED: Final = _error(102, "BROKER_ID_NOT_REGISTERED", "The given broker ID was not registered.")
INCONSISTENT_TOPIC_ID: Final = _error(
    103, "INCONSISTENT_TOPIC_ID", "The log's topic ID did not match the topic ID in the request.", retriable=True
)
INCONSISTENT_CLUSTER_ID: Final = _error(
    104, "INCONSISTENT_CLUSTER_ID", "The clusterId in the request does not match that found on the server."
)
TRANSACTIONAL_ID_NOT_FOUND: Final = _error(105, "TRANSACTIONAL_ID_NOT_FOUND", "The transactionalId could not be found.")
FETCH_SESSION_TOPIC_ID_ERROR: Final = _error(
    106, "FETCH_SESSION_TOPIC_ID_ERROR", "The fetch session encountered inconsistent topic ID usage.", retriable=True
)
INELIGIBLE_REPLICA: Final = _error(107, "INELIGIBLE_REPLICA", "The new ISR contains at least one ineligible replica.")
NEW_LEADER_ELECTED: Final = _error(
    108,
    "NEW_LEADER_ELECTED",
    "The AlterPartition request successfully updated the partition state but the leader has changed.",
)
OFFSET_MOVED_TO_TIERED_STORAGE: Final = _error(
    109, "OFFSET_MOVED_TO_TIERED_STORAGE", "The requested offset is moved to tiered storage."
)
FENCED_MEMBER_EPOCH: Final = _error(
    110,
    "FENCED_MEMBER_EPOCH",
    "The member epoch is fenced by the group coordinator. The member must abandon all its partitions and rejoin.",
)
UNRELEASED_INSTANCE_ID: Final = _error(
    111,
    "UNRELEASED_INSTANCE_ID",
    "The instance ID is still used by another member in the consumer group. That member must leave first.",
)
UNSUPPORTED_ASSIGNOR: Final = _error(
    112, "UNSUPPORTED_ASSIGNOR", "The assignor or its version range is not supported by the consumer group."
)
STALE_MEMBER_EPOCH: Final = _error(
    113,
    "STALE_MEMBER_EPOCH",
    "The member epoch is stale. The member must retry after receiving its updated member epoch via the ConsumerGroupHeartbeat API.",
)
MISMATCHED_ENDPOINT_TYPE: Final = _error(
    114, "MISMATCHED_ENDPOINT_TYPE", "The request was sent to an endpoint of the wrong type."
)
UNSUPPORTED_ENDPOINT_TYPE: Final = _error(115, "UNSUPPORTED_ENDPOINT_TYPE", "This endpoint type is not supported yet.")
UNKNOWN_CONTROLLER_ID: Final = _error(116, "UNKNOWN_CONTROLLER_ID", "This controller ID is not known.")
UNKNOWN_SUBSCRIPTION_ID: Final = _error(
    117, "UNKNOWN_SUBSCRIPTION_ID", "Client sent a push telemetry request with an invalid or outdated subscription ID."
)
TELEMETRY_TOO_LARGE: Final = _error(
    118,
    "TELEMETRY_TOO_LARGE",
    "Client sent a push telemetry request larger than the maximum size the broker will accept.",
)
INVALID_REGISTRATION: Final = _error(
    119, "INVALID_REGISTRATION", "The controller has considered the broker registration to be invalid."
)
TRANSACTION_ABORTABLE: Final = _error(
    120,
    "TRANSACTION_ABORTABLE",
    "The server encountered an error with the transaction. The client can abort the transaction to continue using this transactional ID.",
)
INVALID_RECORD_STATE: Final = _error(
    121, "INVALID_RECORD_STATE", "The record state is invalid. The acknowledgement of delivery could not be completed."
)
SHARE_SESSION_NOT_FOUND: Final = _error(
    122, "SHARE_SESSION_NOT_FOUND", "The share session was not found.", retriable=True
)
INVALID_SHARE_SESSION_EPOCH: Final = _error(
    123, "INVALID_SHARE_SESSION_EPOCH", "The share session epoch is invalid.", retriable=True
)
FENCED_STATE_EPOCH: Final = _error(
    124, "FENCED_STATE_EPOCH", "The coordinator rejected the request because the state epoch did not match."
)
INVALID_VOTER_KEY: Final = _error(125, "INVALID_VOTER_KEY", "The voter key doesn't match the receiving replica's key.")
DUPLICATE_VOTER: Final = _error(126, "DUPLICATE_VOTER", "The voter is already part of the set of voters.")
VOTER_NOT_FOUND: Final = _error(127, "VOTER_NOT_FOUND", "The voter is not part of the set of voters.")
INVALID_REGULAR_EXPRESSION: Final = _error(128, "INVALID_REGULAR_EXPRESSION", "The regular expression is not valid.")
REBOOTSTRAP_REQUIRED: Final = _error(
    129, "REBOOTSTRAP_REQUIRED", "Client metadata is stale. The client should rebootstrap to obtain new metadata."
)
STREAMS_INVALID_TOPOLOGY: Final = _error(130, "STREAMS_INVALID_TOPOLOGY", "The supplied topology is invalid.")
STREAMS_INVALID_TOPOLOGY_EPOCH: Final = _error(
    131, "STREAMS_INVALID_TOPOLOGY_EPOCH", "The supplied topology epoch is invalid."
)
STREAMS_TOPOLOGY_FENCED: Final = _error(132, "STREAMS_TOPOLOGY_FENCED", "The supplied topology epoch is outdated.")
SHARE_SESSION_LIMIT_REACHED: Final = _error(
    133, "SHARE_SESSION_LIMIT_REACHED", "The limit of share sessions has been reached.", retriable=True
)
GROUP_DELETION_FAILED: Final = _error(
    134,
    "GROUP_DELETION_FAILED",
    "DeleteGroups could not complete; see the error message on the per-group result for details.",
)
STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED: Final = _error(
    135,
    "STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED",
    "The broker could not process the topology description update; see the error message for details.",
)
CONTROLLER_ID_NOT_REGISTERED: Final = _error(
    136, "CONTROLLER_ID_NOT_REGISTERED", "The given controller ID was not registered."
)
