"""Corrections of random requests, by API: they make requests valid more often, and leave out those that Apache Kafka answers
late or never.

A rule changes the fields of a draft, or returns False to discard it.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from .draft import Batch, Draft
from .identities import STRANGERS
from .values import Values

Rule = Callable[[dict[str, Any], int, Values], bool | None]


def _produce(fields: dict[str, Any], version: int, values: Values) -> None:
    for topic in fields["topic_data"]:
        for data in topic.fields["partition_data"]:
            batch = data.fields.get("records")
            if isinstance(batch, Batch):
                transactional = batch.transactional and fields["transactional_id"] is not None and batch.sequence >= 0
                data.fields["records"] = batch._replace(transactional=transactional)


def _fetch(fields: dict[str, Any], version: int, values: Values) -> None:
    fields.pop("replica_state", None)
    fields.pop("forgotten_topics_data", None)
    if values.rng.random() < 0.8:
        fields.update({"session_id": 0, "session_epoch": -1} if version >= 7 else {})


def _metadata(fields: dict[str, Any], version: int, values: Values) -> bool | None:
    """Ask for some topics, and create none: brokers do that a while after they have answered."""
    if version < 4 or not fields["topics"]:
        return False
    fields["allow_auto_topic_creation"] = False
    if version >= 12 and values.rng.random() < 0.5:
        for topic in fields["topics"]:
            topic.fields["name"] = None
    elif version >= 10:
        for topic in fields["topics"]:
            topic.fields.pop("topic_id", None)
    return None


def _create_topics(fields: dict[str, Any], version: int, values: Values) -> None:
    for topic in fields["topics"]:
        topic.fields.update(configs=topic.fields["configs"][:1])
        if len(values.nodes) == 1:
            topic.fields.update(assignments=[])
        elif values.rng.random() < 0.9:
            topic.fields.update(num_partitions=-1, replication_factor=-1)
    if any(not topic.fields["assignments"] for topic in fields["topics"]) and len(values.nodes) > 1:
        fields["validate_only"] = True  # the brokers choose the replicas


def _create_partitions(fields: dict[str, Any], version: int, values: Values) -> None:
    if len(values.nodes) > 1 and any(not topic.fields["assignments"] for topic in fields["topics"]):
        fields["validate_only"] = True


def _one_config(fields: dict[str, Any], version: int, values: Values) -> None:
    """Alter one config: of several invalid ones another broker names another one."""
    fields["resources"] = fields["resources"][:1]
    for resource in fields["resources"]:
        kind, name = values.resource(resource.fields["resource_type"])
        resource.fields.update(resource_type=kind, resource_name=name)
        resource.fields["configs"] = resource.fields["configs"][:1]
        for config in resource.fields["configs"]:
            config.fields["name"] = values.config(kind)


def _described_configs(fields: dict[str, Any], version: int, values: Values) -> None:
    for resource in fields["resources"]:
        kind, name = values.resource(resource.fields["resource_type"])
        resource.fields.update(resource_type=kind, resource_name=name)
        resource.fields["configuration_keys"] = [values.config(kind), values.config(kind)]


def _offset_fetch(fields: dict[str, Any], version: int, values: Values) -> None:
    for group in fields.get("groups") or ():
        if version >= 9 and group.fields.get("member_id") is None:
            group.fields["member_epoch"] = -1


def _join_group(fields: dict[str, Any], version: int, values: Values) -> None:
    """Join a group that has no other type, ever: Apache Kafka forgets an empty consumer group at some joins that it refuses."""
    fields["group_id"] = values.classic_group
    if values.rng.random() < 0.6:
        fields["member_id"] = ""
    for protocol in fields["protocols"]:
        protocol.fields["name"] = "range"


def _heartbeat_of_a_member(fields: dict[str, Any], version: int, values: Values) -> None:
    """Join with a complete description, or say nothing new."""
    joins = fields["member_epoch"] == 0
    fields["group_id"] = values.rng.choice(values.groups)
    fields["member_id"] = values.rng.choice(("m", "n", STRANGERS[1]))
    if "subscribed_topic_names" in fields:
        fields["subscribed_topic_names"] = [values.rng.choice(values.topics)] if joins else None
    for name in ("topic_partitions", "active_tasks", "standby_tasks", "warmup_tasks"):
        if name in fields:
            fields[name] = [] if joins else None
    if "process_id" in fields:
        fields["process_id"] = "p"  # Apache Kafka needs one
    if "topology" in fields:
        fields["topology"] = fields["topology"] if joins else None
        if isinstance(fields["topology"], Draft):
            fields["topology"].fields["subtopologies"] = []
    if "subscribed_topic_regex" in fields and version >= 1:
        fields["subscribed_topic_regex"] = None


def _add_partitions(fields: dict[str, Any], version: int, values: Values) -> bool:
    if version < 4:
        return bool(fields["v3_and_below_topics"])
    return bool(fields["transactions"])


def _elect_leaders(fields: dict[str, Any], version: int, values: Values) -> bool:
    return fields["topic_partitions"] is not None


def _described_partitions(fields: dict[str, Any], version: int, values: Values) -> bool:
    fields["cursor"] = None
    return bool(fields["topics"])


def _list_transactions(fields: dict[str, Any], version: int, values: Values) -> None:
    if version >= 2:
        fields["transactional_id_pattern"] = None


def _share_fetch(fields: dict[str, Any], version: int, values: Values) -> None:
    fields["group_id"] = values.rng.choice(values.groups)
    values.sharing.correct_fetch(fields, version)


def _share_acknowledge(fields: dict[str, Any], version: int, values: Values) -> None:
    fields["group_id"] = values.rng.choice(values.groups)
    values.sharing.correct_acknowledge(fields, version)


def _share_offsets(fields: dict[str, Any], version: int, values: Values) -> None:
    """Describe partitions that exist: Apache Kafka never answers for others."""
    for group in fields["groups"]:
        for topic in group.fields.get("topics") or ():
            topic.fields["partitions"] = sorted({index % 2 for index in topic.fields["partitions"]})


def _altered_share_offsets(fields: dict[str, Any], version: int, values: Values) -> None:
    """Alter partitions that exist: otherwise Apache Kafka can never delete the group."""
    for topic in fields["topics"]:
        rows = {row.fields["partition_index"] % 2: row for row in topic.fields["partitions"]}
        for index, row in rows.items():
            row.fields["partition_index"] = index
        topic.fields["partitions"] = list(rows.values())


def _share_state(fields: dict[str, Any], version: int, values: Values) -> None:
    """Read as the leader: a higher leader epoch fences it, and Apache Kafka reads the state again while it answers."""
    for topic in fields["topics"]:
        for partition in topic.fields["partitions"]:
            partition.fields["leader_epoch"] = values.rng.choice((0, -1))


def _altered_quotas(fields: dict[str, Any], version: int, values: Values) -> None:
    """Name the entities: defaults would be those of other walks, too."""
    for entry in fields["entries"]:
        entry.fields["ops"] = entry.fields["ops"][:1]  # of several invalid ones another broker names another one
        for entity in entry.fields["entity"]:
            kind, name = entity.fields["entity_type"], entity.fields.get("entity_name")
            if name is None:
                name = values.users[0]
            entity.fields["entity_name"] = values.rng.choice(("10.1.1.1", "10.1.1.2", name)) if kind == "ip" else name


def _described_logins(fields: dict[str, Any], version: int, values: Values) -> bool:
    return bool(fields["users"])


RULES: Final[Mapping[str, Rule]] = {
    "AddPartitionsToTxn": _add_partitions,
    "AlterClientQuotas": _altered_quotas,
    "AlterConfigs": _one_config,
    "AlterShareGroupOffsets": _altered_share_offsets,
    "ConsumerGroupHeartbeat": _heartbeat_of_a_member,
    "CreatePartitions": _create_partitions,
    "CreateTopics": _create_topics,
    "DescribeConfigs": _described_configs,
    "DescribeShareGroupOffsets": _share_offsets,
    "DescribeTopicPartitions": _described_partitions,
    "DescribeUserScramCredentials": _described_logins,
    "ElectLeaders": _elect_leaders,
    "Fetch": _fetch,
    "IncrementalAlterConfigs": _one_config,
    "JoinGroup": _join_group,
    "ListTransactions": _list_transactions,
    "Metadata": _metadata,
    "OffsetFetch": _offset_fetch,
    "Produce": _produce,
    "ReadShareGroupState": _share_state,
    "ReadShareGroupStateSummary": _share_state,
    "ShareAcknowledge": _share_acknowledge,
    "ShareFetch": _share_fetch,
    "ShareGroupHeartbeat": _heartbeat_of_a_member,
    "StreamsGroupHeartbeat": _heartbeat_of_a_member,
}
