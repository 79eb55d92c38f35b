"""APIs of walks, with their weights."""

from collections.abc import Mapping
from typing import Final

_MOST: Final = {
    # name: weight
    "AddOffsetsToTxn": 2,
    "AddPartitionsToTxn": 4,
    "AlterConfigs": 1,
    "AlterPartitionReassignments": 1,
    "ConsumerGroupDescribe": 1,
    "ConsumerGroupHeartbeat": 4,
    "CreatePartitions": 1,
    "CreateTopics": 1,
    "DeleteGroups": 1,
    "DeleteRecords": 1,
    "DeleteTopics": 1,
    "DescribeCluster": 1,
    "DescribeConfigs": 1,
    "DescribeGroups": 1,
    "DescribeProducers": 1,
    "DescribeTopicPartitions": 1,
    "DescribeTransactions": 1,
    "ElectLeaders": 1,
    "EndTxn": 3,
    "Fetch": 5,
    "FindCoordinator": 1,
    "Heartbeat": 1,
    "IncrementalAlterConfigs": 2,
    "InitProducerId": 3,
    "JoinGroup": 3,
    "LeaveGroup": 1,
    "ListGroups": 1,
    "ListOffsets": 3,
    "ListPartitionReassignments": 1,
    "ListTransactions": 1,
    "Metadata": 2,
    "OffsetCommit": 3,
    "OffsetDelete": 1,
    "OffsetFetch": 2,
    "OffsetForLeaderEpoch": 1,
    "Produce": 6,
    "ShareGroupDescribe": 1,
    "ShareGroupHeartbeat": 1,
    "StreamsGroupDescribe": 1,
    "StreamsGroupHeartbeat": 2,
    "SyncGroup": 3,
    "TxnOffsetCommit": 3,
}
"""The responses of the others depend on time (ShareFetch), they are for brokers, or they affect other walks."""
_SHARE: Final = {
    "AddPartitionsToTxn": 1,
    "AlterShareGroupOffsets": 1,
    "DeleteGroups": 1,
    "DeleteShareGroupOffsets": 1,
    "DescribeShareGroupOffsets": 2,
    "EndTxn": 2,
    "IncrementalAlterConfigs": 1,
    "InitProducerId": 1,
    "ListGroups": 1,
    "Produce": 6,
    "ReadShareGroupState": 1,
    "ReadShareGroupStateSummary": 1,
    "ShareAcknowledge": 8,
    "ShareFetch": 10,
    "ShareGroupDescribe": 1,
    "ShareGroupHeartbeat": 2,
}
_ADMIN: Final = {
    "AlterClientQuotas": 6,
    "AlterConfigs": 3,
    "AlterUserScramCredentials": 6,
    "CreateTopics": 2,
    "DeleteTopics": 1,
    "DescribeClientQuotas": 6,
    "DescribeConfigs": 4,
    "DescribeLogDirs": 3,
    "DescribeUserScramCredentials": 6,
    "IncrementalAlterConfigs": 6,
    "ListConfigResources": 3,
    "Produce": 3,
}
PROFILES: Final[Mapping[str, Mapping[str, int]]] = {"most": _MOST, "share": _SHARE, "admin": _ADMIN}
"""Sets of APIs: most of them; those of quotas, logins and configs; or those of share groups and what changes the records that
they read. DeleteRecords is not among the latter: Apache Kafka returns nothing to a member that reads from before the log start,
and the records to its next fetch.
"""
