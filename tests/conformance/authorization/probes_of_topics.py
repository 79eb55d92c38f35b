"""Requests about topics."""

from typing import Any, Final

from ottla.records.batch import build
from ottla.records.record import Record
from tests.conformance.message_sets import message

from .codes import (
    ALTER,
    ALTER_CONFIGS,
    CLUSTER,
    CLUSTER_ACTION,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    NO_TOPIC,
    NO_TRANSACTIONAL_ID,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
)
from .probes import HIDDEN, Check, Names, Probe, probe, topic_list

_RECORDS: Final = [Record(0, 1_700_000_000_000, b"k", b"v")]
_TOPIC_TYPE: Final = 2
"""Resource type of a topic in requests about configs."""


def _produce(names: Names, version: int) -> dict[str, Any]:
    batch = build(_RECORDS) if version >= 3 else message(0, b"k", b"v", 1 if version == 2 else 0)
    parts = [{"index": 0, "records": batch}]
    return {"acks": -1, "timeout_ms": 5000, "topic_data": topic_list(names, version, 13, partition_data=parts)}


def _produce_in_transaction(names: Names, version: int) -> dict[str, Any]:
    batch = build(_RECORDS, producer_id=1 << 40, producer_epoch=0, base_sequence=0, transactional=True)
    topics = topic_list(names, version, 13, partition_data=[{"index": 0, "records": batch}])
    return {"acks": -1, "timeout_ms": 5000, "transactional_id": names.transactional_id, "topic_data": topics}


def _fetch(names: Names, version: int) -> dict[str, Any]:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    fields: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 0, "replica_id": -1}
    if version >= 3:
        fields["max_bytes"] = 10_000
    if version >= 7:
        fields["session_epoch"] = -1
    return fields | {"topics": topic_list(names, version, 13, "topic", partitions=[partition])}


def _fetch_as_follower(names: Names, version: int) -> dict[str, Any]:
    replica: dict[str, Any] = {"replica_id": 5} if version < 15 else {"replica_state": {"replica_id": 5}}
    return _fetch(names, version) | replica


def _list_offsets(names: Names, version: int) -> dict[str, Any]:
    parts = [{"partition_index": 0, "timestamp": -1}]
    return {"replica_id": -1, "topics": topic_list(names, version, partitions=parts)}


def _metadata(names: Names, version: int) -> dict[str, Any]:
    more = {} if version < 4 else {"allow_auto_topic_creation": False}
    return {"topics": topic_list(names, version)} | more


def _metadata_by_id(names: Names, version: int) -> dict[str, Any]:
    topics = [{"topic_id": names.ids[name], "name": None} for name in names.topics]
    return {"topics": topics, "allow_auto_topic_creation": False}


def _metadata_all(names: Names, version: int) -> dict[str, Any]:
    return {"topics": [] if version == 0 else None}


def _epochs(names: Names, version: int) -> dict[str, Any]:
    parts = [{"partition": 0, "leader_epoch": 0}]
    more = {"replica_id": -1} if version >= 3 else {}
    return {"topics": topic_list(names, version, key="topic", partitions=parts)} | more


def _create_topics(names: Names, version: int) -> dict[str, Any]:
    return {"topics": topic_list(names, version, num_partitions=1, replication_factor=1), "timeout_ms": 5000}


def _delete_topics(names: Names, version: int) -> dict[str, Any]:
    if version < 6:
        return {"topic_names": list(names.topics), "timeout_ms": 5000}
    return {"topics": topic_list(names, version), "timeout_ms": 5000}


def _delete_topics_by_id(names: Names, version: int) -> dict[str, Any]:
    return {"topics": [{"topic_id": names.ids[name], "name": None} for name in names.topics], "timeout_ms": 5000}


def _delete_records(names: Names, version: int) -> dict[str, Any]:
    parts = [{"partition_index": 0, "offset": 0}]
    return {"topics": topic_list(names, version, partitions=parts), "timeout_ms": 5000}


def _create_partitions(names: Names, version: int) -> dict[str, Any]:
    return {"topics": topic_list(names, version, count=1, assignments=None), "timeout_ms": 5000}


def _describe_configs(names: Names, version: int) -> dict[str, Any]:
    keys = ["retention.ms"]
    return {
        "resources": [
            {"resource_type": _TOPIC_TYPE, "resource_name": name, "configuration_keys": keys} for name in names.topics
        ]
    }


def _alter_configs(names: Names, version: int) -> dict[str, Any]:
    changes = [{"name": "retention.ms", "value": "1000000"}]
    resources = [{"resource_type": _TOPIC_TYPE, "resource_name": name, "configs": changes} for name in names.topics]
    return {"resources": resources, "validate_only": True}


def _describe_producers(names: Names, version: int) -> dict[str, Any]:
    return {"topics": topic_list(names, version, partition_indexes=[0])}


def _describe_partitions(names: Names, version: int) -> dict[str, Any]:
    return {"topics": topic_list(names, version), "response_partition_limit": 2000, "cursor": None}


def _describe_all_partitions(names: Names, version: int) -> dict[str, Any]:
    # An answer has 2000 partitions at most: it begins with the topics that are asked about.
    cursor = {"topic_name": min(names.topics), "partition_index": 0}
    return {"topics": [], "response_partition_limit": 2000, "cursor": cursor}


_PRODUCED: Final = "responses[].partition_responses[].error_code"
_FETCHED: Final = "responses[].partitions[].error_code"
_PARTITIONS: Final = "topics[].partitions[].error_code"
_DELETE_ANY: Final = ((DELETE, CLUSTER),)

PROBES: Final[tuple[Probe, ...]] = (
    probe("Produce", _produce, Check(WRITE, TOPIC, NO_TOPIC, _PRODUCED), many=TOPIC),
    probe(
        "Produce",
        _produce_in_transaction,
        Check(WRITE, TRANSACTIONAL_ID, NO_TRANSACTIONAL_ID, _PRODUCED),
        Check(WRITE, TOPIC, NO_TOPIC, _PRODUCED),
        about="in a transaction",
        first=3,
        many=TOPIC,
    ),
    probe("Fetch", _fetch, Check(READ, TOPIC, NO_TOPIC, _FETCHED), many=TOPIC),
    probe(
        "Fetch", _fetch_as_follower, Check(CLUSTER_ACTION, CLUSTER, NO_TOPIC, _FETCHED), about="as a follower", first=4
    ),
    probe("ListOffsets", _list_offsets, Check(DESCRIBE, TOPIC, NO_TOPIC, _PARTITIONS), many=TOPIC),
    probe("Metadata", _metadata, Check(DESCRIBE, TOPIC, NO_TOPIC, "topics[].error_code"), many=TOPIC),
    probe(
        "Metadata",
        _metadata_by_id,
        Check(DESCRIBE, TOPIC, NO_TOPIC, "topics[].error_code"),
        about="by id",
        first=12,
        many=TOPIC,
    ),
    probe("Metadata", _metadata_all, Check(DESCRIBE, TOPIC, HIDDEN, "topics[].name"), about="all", many=TOPIC),
    probe(
        "OffsetForLeaderEpoch",
        _epochs,
        Check(DESCRIBE, TOPIC, NO_TOPIC, _PARTITIONS, ((CLUSTER_ACTION, CLUSTER),)),
        many=TOPIC,
    ),
    probe(
        "CreateTopics",
        _create_topics,
        Check(CREATE, TOPIC, NO_TOPIC, "topics[].error_code", ((CREATE, CLUSTER),)),
        many=TOPIC,
    ),
    probe(
        "DeleteTopics",
        _delete_topics,
        Check(DESCRIBE, TOPIC, NO_TOPIC, "responses[].error_code", _DELETE_ANY),
        Check(DELETE, TOPIC, NO_TOPIC, "responses[].error_code", _DELETE_ANY),
        many=TOPIC,
    ),
    probe(
        "DeleteTopics",
        _delete_topics_by_id,
        Check(DELETE, TOPIC, NO_TOPIC, "responses[].error_code", _DELETE_ANY),
        about="by id",
        first=6,
        many=TOPIC,
    ),
    probe("DeleteRecords", _delete_records, Check(DELETE, TOPIC, NO_TOPIC, _PARTITIONS), many=TOPIC),
    probe("CreatePartitions", _create_partitions, Check(ALTER, TOPIC, NO_TOPIC, "results[].error_code"), many=TOPIC),
    probe(
        "DescribeConfigs",
        _describe_configs,
        Check(DESCRIBE_CONFIGS, TOPIC, NO_TOPIC, "results[].error_code"),
        many=TOPIC,
    ),
    probe("AlterConfigs", _alter_configs, Check(ALTER_CONFIGS, TOPIC, NO_TOPIC, "responses[].error_code"), many=TOPIC),
    probe(
        "IncrementalAlterConfigs",
        _alter_configs,
        Check(ALTER_CONFIGS, TOPIC, NO_TOPIC, "responses[].error_code"),
        many=TOPIC,
    ),
    probe("DescribeProducers", _describe_producers, Check(READ, TOPIC, NO_TOPIC, _PARTITIONS), many=TOPIC),
    probe(
        "DescribeTopicPartitions",
        _describe_partitions,
        Check(DESCRIBE, TOPIC, NO_TOPIC, "topics[].error_code"),
        many=TOPIC,
    ),
    probe(
        "DescribeTopicPartitions",
        _describe_all_partitions,
        Check(DESCRIBE, TOPIC, HIDDEN, "topics[].name"),
        about="all",
        many=TOPIC,
    ),
)
