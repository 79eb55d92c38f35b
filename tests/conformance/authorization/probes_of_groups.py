"""Requests about groups, and about share groups."""

from typing import Any, Final

from .codes import (
    CLUSTER,
    CLUSTER_ACTION,
    DELETE,
    DESCRIBE,
    GROUP,
    NO_CLUSTER,
    NO_GROUP,
    NO_TOPIC,
    READ,
    TOPIC,
)
from .probes import HIDDEN, Check, Names, Probe, probe, topic_list

_MEMBER: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
_ERROR: Final = "error_code"
_PARTITIONS: Final = "topics[].partitions[].error_code"


def _offset_commit(names: Names, version: int) -> dict[str, Any]:
    parts = [{"partition_index": 0, "committed_offset": 1}]
    more = {} if version == 0 else {"generation_id_or_member_epoch": -1, "member_id": ""}
    return {"group_id": names.group, "topics": topic_list(names, version, 10, partitions=parts)} | more


def _offset_fetch(names: Names, version: int) -> dict[str, Any]:
    topics = topic_list(names, version, 10, partition_indexes=[0])
    if version < 8:
        return {"group_id": names.group, "topics": topics}
    return {"groups": [{"group_id": group, "topics": topics} for group in names.groups]}


def _offset_fetch_all(names: Names, version: int) -> dict[str, Any]:
    if version < 8:
        return {"group_id": names.group, "topics": None}
    return {"groups": [{"group_id": names.group, "topics": None}]}


def _find_group(names: Names, version: int) -> dict[str, Any]:
    if version < 4:
        return {"key": names.group}
    return {"key_type": 0, "coordinator_keys": list(names.groups)}


def _find_share(names: Names, version: int) -> dict[str, Any]:
    return {"key_type": 2, "coordinator_keys": [names.share_key()]}


def _join(names: Names, version: int) -> dict[str, Any]:
    # The session timeout is refused once the right is there: nobody joins.
    protocols = [{"name": "range", "metadata": b""}]
    return {"group_id": names.group, "session_timeout_ms": 1, "protocol_type": "consumer", "protocols": protocols}


def _heartbeat(names: Names, version: int) -> dict[str, Any]:
    return {"group_id": names.group, "generation_id": 1, "member_id": "m"}


def _leave(names: Names, version: int) -> dict[str, Any]:
    if version < 3:
        return {"group_id": names.group, "member_id": "m"}
    return {"group_id": names.group, "members": [{"member_id": "m", "group_instance_id": None}]}


def _sync(names: Names, version: int) -> dict[str, Any]:
    more = {} if version < 5 else {"protocol_type": "consumer", "protocol_name": "range"}
    return {"group_id": names.group, "generation_id": 1, "member_id": "m"} | more


def _describe(names: Names, version: int) -> dict[str, Any]:
    return {"groups": list(names.groups)}


def _describe_ids(names: Names, version: int) -> dict[str, Any]:
    return {"group_ids": list(names.groups)}


def _nothing(names: Names, version: int) -> dict[str, Any]:
    return {}


def _delete(names: Names, version: int) -> dict[str, Any]:
    return {"groups_names": list(names.groups)}


def _offset_delete(names: Names, version: int) -> dict[str, Any]:
    parts = [{"partition_index": 0}]
    return {"group_id": names.group, "topics": topic_list(names, version, partitions=parts)}


def _consumer_heartbeat(names: Names, version: int) -> dict[str, Any]:
    return {
        "group_id": names.group,
        "member_id": _MEMBER,
        "member_epoch": 0,
        "rebalance_timeout_ms": 10_000,
        "subscribed_topic_names": list(names.topics),
        "topic_partitions": [],
    }


def _share_heartbeat(names: Names, version: int) -> dict[str, Any]:
    topics = list(names.topics)
    return {"group_id": names.group, "member_id": _MEMBER, "member_epoch": 0, "subscribed_topic_names": topics}


def _share_fetch(names: Names, version: int) -> dict[str, Any]:
    parts = [{"partition_index": 0, "acknowledgement_batches": []}]
    return {
        "group_id": names.group,
        "member_id": _MEMBER,
        "share_session_epoch": 0,
        "max_wait_ms": 0,
        "max_bytes": 1000,
        "max_records": 10,
        "batch_size": 10,
        "topics": topic_list(names, version, 0, partitions=parts),
    }


def _share_acknowledge(names: Names, version: int) -> dict[str, Any]:
    batch = {"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}
    parts = [{"partition_index": 0, "acknowledgement_batches": [batch]}]
    topics = topic_list(names, version, 0, partitions=parts)
    return {"group_id": names.group, "member_id": _MEMBER, "share_session_epoch": 1, "topics": topics}


def _describe_share_offsets(names: Names, version: int) -> dict[str, Any]:
    topics = topic_list(names, version, key="topic_name", partitions=[0])
    return {"groups": [{"group_id": group, "topics": topics} for group in names.groups]}


def _describe_all_share_offsets(names: Names, version: int) -> dict[str, Any]:
    return {"groups": [{"group_id": names.group, "topics": None}]}


def _alter_share_offsets(names: Names, version: int) -> dict[str, Any]:
    parts = [{"partition_index": 0, "start_offset": 0}]
    return {"group_id": names.group, "topics": topic_list(names, version, key="topic_name", partitions=parts)}


def _delete_share_offsets(names: Names, version: int) -> dict[str, Any]:
    return {"group_id": names.group, "topics": topic_list(names, version, key="topic_name")}


def _share_state(**partition: Any) -> Any:
    def fields(names: Names, version: int) -> dict[str, Any]:
        parts = [{"partition": 0} | partition]
        return {"group_id": names.group, "topics": topic_list(names, version, 0, partitions=parts)}

    return fields


def _streams_heartbeat(names: Names, version: int) -> dict[str, Any]:
    subtopology = {"subtopology_id": "0", "source_topics": list(names.topics)}
    return {
        "group_id": names.group,
        "member_id": _MEMBER,
        "member_epoch": 0,
        "rebalance_timeout_ms": 10_000,
        "topology": {"epoch": 0, "subtopologies": [subtopology]},
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
    }


def _describe_topology(names: Names, version: int) -> dict[str, Any]:
    return {"group_id": names.group, "member_id": _MEMBER, "topology_description": {}}


_READ_GROUP: Final = Check(READ, GROUP, NO_GROUP, _ERROR)
_BROKERS: Final = Check(CLUSTER_ACTION, CLUSTER, NO_CLUSTER, "results[].partitions[].error_code")

PROBES: Final[tuple[Probe, ...]] = (
    probe(
        "OffsetCommit",
        _offset_commit,
        Check(READ, GROUP, NO_GROUP, _PARTITIONS),
        Check(READ, TOPIC, NO_TOPIC, _PARTITIONS),
        many=TOPIC,
    ),
    probe(
        "OffsetFetch",
        _offset_fetch,
        Check(DESCRIBE, GROUP, NO_GROUP, _PARTITIONS),
        Check(DESCRIBE, TOPIC, NO_TOPIC, _PARTITIONS),
        last=1,
        many=TOPIC,
    ),
    probe(
        "OffsetFetch",
        _offset_fetch,
        Check(DESCRIBE, GROUP, NO_GROUP, _ERROR),
        Check(DESCRIBE, TOPIC, NO_TOPIC, _PARTITIONS),
        about="of one group",
        first=2,
        last=7,
        many=TOPIC,
    ),
    probe(
        "OffsetFetch",
        _offset_fetch,
        Check(DESCRIBE, GROUP, NO_GROUP, "groups[].error_code"),
        Check(DESCRIBE, TOPIC, NO_TOPIC, "groups[].topics[].partitions[].error_code"),
        about="of groups",
        first=8,
        many=TOPIC,
    ),
    probe(
        "OffsetFetch",
        _offset_fetch,
        Check(DESCRIBE, GROUP, NO_GROUP, "groups[].error_code"),
        Check(DESCRIBE, TOPIC, NO_TOPIC, "groups[].topics[].partitions[].error_code"),
        about="of many groups",
        first=8,
        many=GROUP,
    ),
    probe(
        "OffsetFetch",
        _offset_fetch_all,
        Check(DESCRIBE, GROUP, NO_GROUP, _ERROR),
        Check(DESCRIBE, TOPIC, HIDDEN, "topics[].name"),
        about="all of one group",
        first=2,
        last=7,
        existing=("offsets",),
        many=TOPIC,
    ),
    probe(
        "OffsetFetch",
        _offset_fetch_all,
        Check(DESCRIBE, GROUP, NO_GROUP, "groups[].error_code"),
        Check(DESCRIBE, TOPIC, HIDDEN, "groups[].topics[].name"),
        about="all of groups",
        first=8,
        last=9,
        existing=("offsets",),
        many=TOPIC,
    ),
    probe(
        "OffsetFetch",
        _offset_fetch_all,
        Check(DESCRIBE, GROUP, NO_GROUP, "groups[].error_code"),
        Check(DESCRIBE, TOPIC, HIDDEN, "groups[].topics[].topic_id"),
        about="all with ids",
        first=10,
        existing=("offsets",),
        many=TOPIC,
    ),
    probe("FindCoordinator", _find_group, Check(DESCRIBE, GROUP, NO_GROUP, _ERROR), about="of one group", last=3),
    probe(
        "FindCoordinator",
        _find_group,
        Check(DESCRIBE, GROUP, NO_GROUP, "coordinators[].error_code"),
        about="of groups",
        first=4,
        many=GROUP,
    ),
    probe(
        "FindCoordinator",
        _find_share,
        Check(CLUSTER_ACTION, CLUSTER, NO_CLUSTER, "coordinators[].error_code"),
        about="of share partitions",
        first=6,
    ),
    probe("JoinGroup", _join, _READ_GROUP),
    probe("Heartbeat", _heartbeat, _READ_GROUP),
    probe("LeaveGroup", _leave, _READ_GROUP),
    probe("SyncGroup", _sync, _READ_GROUP),
    probe("DescribeGroups", _describe, Check(DESCRIBE, GROUP, NO_GROUP, "groups[].error_code"), many=GROUP),
    probe(
        "ListGroups",
        _nothing,
        Check(DESCRIBE, GROUP, HIDDEN, "groups[].group_id", ((DESCRIBE, CLUSTER),)),
        existing=("offsets",),
        many=GROUP,
    ),
    probe("DeleteGroups", _delete, Check(DELETE, GROUP, NO_GROUP, "results[].error_code"), many=GROUP),
    probe(
        "OffsetDelete",
        _offset_delete,
        Check(DELETE, GROUP, NO_GROUP, _ERROR),
        Check(READ, TOPIC, NO_TOPIC, _PARTITIONS),
        existing=("offsets",),
        many=TOPIC,
    ),
    probe("ConsumerGroupHeartbeat", _consumer_heartbeat, _READ_GROUP, Check(DESCRIBE, TOPIC, NO_TOPIC, _ERROR)),
    probe("ConsumerGroupDescribe", _describe_ids, Check(DESCRIBE, GROUP, NO_GROUP, "groups[].error_code"), many=GROUP),
    probe("ShareGroupHeartbeat", _share_heartbeat, _READ_GROUP, Check(DESCRIBE, TOPIC, NO_TOPIC, _ERROR)),
    probe("ShareGroupDescribe", _describe_ids, Check(DESCRIBE, GROUP, NO_GROUP, "groups[].error_code"), many=GROUP),
    probe("StreamsGroupHeartbeat", _streams_heartbeat, _READ_GROUP, Check(DESCRIBE, TOPIC, NO_TOPIC, _ERROR)),
    # The right on topics is asked for if the group has a topology: streams/test_authorization.py.
    probe("StreamsGroupDescribe", _describe_ids, Check(DESCRIBE, GROUP, NO_GROUP, "groups[].error_code"), many=GROUP),
    probe("StreamsGroupTopologyDescriptionUpdate", _describe_topology, _READ_GROUP),
    # Permitted partitions are not always in the answer: no rows beside denied ones.
    probe(
        "ShareFetch",
        _share_fetch,
        _READ_GROUP,
        Check(READ, TOPIC, NO_TOPIC, "responses[].partitions[].error_code"),
    ),
    # The right on topics is asked for within a share session: test_sessions.py.
    probe("ShareAcknowledge", _share_acknowledge, _READ_GROUP),
    probe(
        "DescribeShareGroupOffsets",
        _describe_share_offsets,
        Check(DESCRIBE, GROUP, NO_GROUP, "groups[].error_code"),
        Check(DESCRIBE, TOPIC, NO_TOPIC, "groups[].topics[].partitions[].error_code"),
        many=TOPIC,
    ),
    probe(
        "DescribeShareGroupOffsets",
        _describe_all_share_offsets,
        Check(DESCRIBE, GROUP, NO_GROUP, "groups[].error_code"),
        Check(DESCRIBE, TOPIC, HIDDEN, "groups[].topics[].topic_name"),
        about="all",
        existing=("share offsets",),
        many=TOPIC,
    ),
    probe(
        "AlterShareGroupOffsets",
        _alter_share_offsets,
        _READ_GROUP,
        Check(READ, TOPIC, NO_TOPIC, "responses[].partitions[].error_code"),
        many=TOPIC,
    ),
    probe(
        "DeleteShareGroupOffsets",
        _delete_share_offsets,
        Check(DELETE, GROUP, NO_GROUP, _ERROR),
        Check(READ, TOPIC, NO_TOPIC, "responses[].error_code"),
        existing=("share offsets",),
        many=TOPIC,
    ),
    probe("InitializeShareGroupState", _share_state(state_epoch=0, start_offset=0), _BROKERS),
    probe("ReadShareGroupState", _share_state(leader_epoch=0), _BROKERS),
    probe("WriteShareGroupState", _share_state(state_epoch=0, leader_epoch=0, start_offset=0), _BROKERS),
    probe("DeleteShareGroupState", _share_state(), _BROKERS),
    probe("ReadShareGroupStateSummary", _share_state(leader_epoch=0), _BROKERS),
)
