"""Requests about the cluster, its brokers, users, quotas and ACLs, and configs of other resources than topics."""

from collections.abc import Callable
from typing import Any, Final

from .codes import (
    ALLOW,
    ALTER,
    ALTER_CONFIGS,
    ANY,
    CLUSTER,
    CREATE_TOKENS,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    NO_CLUSTER,
    NO_GROUP,
    NO_TOKEN,
    READ,
    TOPIC,
    USER,
)
from .probes import EMPTY, Check, Names, Probe, probe, topic_list

_ERROR: Final = "error_code"
_BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP_CONFIGS = 4, 8, 16, 32
_ANY_ACL: Final = {
    "resource_type_filter": ANY,
    "resource_name_filter": None,
    "principal_filter": None,
    "host_filter": None,
    "operation": ANY,
    "permission_type": ANY,
}
NODE_ID: Final = "1"


def _fixed(**values: Any) -> Callable[[Names, int], dict[str, Any]]:
    """Return a function of fields that do not depend on names."""

    def fields(names: Names, version: int) -> dict[str, Any]:
        return dict(values)

    return fields


def _describe_acls(names: Names, version: int) -> dict[str, Any]:
    return dict(_ANY_ACL) | ({"pattern_type_filter": ANY} if version >= 1 else {})


def _create_acls(names: Names, version: int) -> dict[str, Any]:
    # The empty name is refused once the right is there: no ACL is made.
    acl = {"resource_type": TOPIC, "resource_name": "", "principal": "User:x", "host": "*", "operation": READ}
    return {"creations": [acl | {"permission_type": ALLOW}] * 2}


def _delete_acls(names: Names, version: int) -> dict[str, Any]:
    one = _describe_acls(names, version) | {"principal_filter": "User:nobody"}
    return {"filters": [one, one]}


def _elect(names: Names, version: int) -> dict[str, Any]:
    topics = topic_list(names, version, key="topic", partitions=[0])
    return {"topic_partitions": topics, "timeout_ms": 5000}


def _reassign(names: Names, version: int) -> dict[str, Any]:
    parts = [{"partition_index": 0, "replicas": None}]
    return {"timeout_ms": 5000, "topics": topic_list(names, version, partitions=parts)}


def _reassignments(names: Names, version: int) -> dict[str, Any]:
    return {"timeout_ms": 5000, "topics": topic_list(names, version, partition_indexes=[0])}


def _move(names: Names, version: int) -> dict[str, Any]:
    return {"dirs": [{"path": "/no/such", "topics": topic_list(names, version, partitions=[0])}]}


def _log_dirs(names: Names, version: int) -> dict[str, Any]:
    return {"topics": topic_list(names, version, key="topic", partitions=[0])}


def _quorum(names: Names, version: int) -> dict[str, Any]:
    return {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}


def _create_token(names: Names, version: int) -> dict[str, Any]:
    return {"owner_principal_type": "User", "owner_principal_name": names.owner, "max_lifetime_ms": 1000}


def _configs_of(resource_type: int, name: str | None, config: str) -> Callable[[Names, int], dict[str, Any]]:
    def fields(names: Names, version: int) -> dict[str, Any]:
        shown = names.group if name is None else name
        one = {"resource_type": resource_type, "resource_name": shown, "configuration_keys": [config]}
        return {"resources": [one]}

    return fields


def _change_of(resource_type: int, name: str | None, config: str, value: str) -> Callable[[Names, int], dict[str, Any]]:
    def fields(names: Names, version: int) -> dict[str, Any]:
        shown = names.group if name is None else name
        changes = [{"name": config, "value": value}]
        resources = [{"resource_type": resource_type, "resource_name": shown, "configs": changes}]
        return {"resources": resources, "validate_only": True}

    return fields


_OTHER_CONFIGS: Final = (
    ("of a broker", _BROKER, NODE_ID, "log.retention.ms", "100000", CLUSTER, NO_CLUSTER),
    ("of a logger", _BROKER_LOGGER, NODE_ID, "kafka.authorizer.logger", "INFO", CLUSTER, NO_CLUSTER),
    ("of client metrics", _CLIENT_METRICS, "metrics", "interval.ms", "1000", CLUSTER, NO_CLUSTER),
    ("of a group", _GROUP_CONFIGS, None, "consumer.session.timeout.ms", "45000", GROUP, NO_GROUP),
)


def _config_probes() -> tuple[Probe, ...]:
    rows: list[Probe] = []
    for about, kind, name, config, value, resource_type, code in _OTHER_CONFIGS:
        shown = Check(DESCRIBE_CONFIGS, resource_type, code, "results[].error_code")
        changed = Check(ALTER_CONFIGS, resource_type, code, "responses[].error_code")
        rows.append(probe("DescribeConfigs", _configs_of(kind, name, config), shown, about=about))
        change = _change_of(kind, name, config, value)
        rows.append(probe("IncrementalAlterConfigs", change, changed, about=about))
        if kind != _BROKER_LOGGER:
            rows.append(probe("AlterConfigs", change, changed, about=about))
    return tuple(rows)


def _cluster(operation: int, path: str = _ERROR) -> Check:
    return Check(operation, CLUSTER, NO_CLUSTER, path)


_QUOTA: Final = {
    "entity": [{"entity_type": "user", "entity_name": "x"}],
    "ops": [{"key": "producer_byte_rate", "value": 1000.0, "remove": False}],
}
_UNKNOWN_CREDENTIAL: Final = {"name": "no-such-user", "mechanism": 1}

PROBES: Final[tuple[Probe, ...]] = (
    *_config_probes(),
    probe("DescribeAcls", _describe_acls, _cluster(DESCRIBE)),
    probe("CreateAcls", _create_acls, _cluster(ALTER, "results[].error_code")),
    probe("DeleteAcls", _delete_acls, _cluster(ALTER, "filter_results[].error_code")),
    probe("ElectLeaders", _elect, _cluster(ALTER, "replica_election_results[].partition_result[].error_code"), last=0),
    probe("ElectLeaders", _elect, _cluster(ALTER), about="with top-level error", first=1),
    probe("AlterPartitionReassignments", _reassign, _cluster(ALTER)),
    probe("ListPartitionReassignments", _reassignments, _cluster(DESCRIBE)),
    probe("AlterReplicaLogDirs", _move, _cluster(ALTER, "results[].partitions[].error_code")),
    probe("DescribeLogDirs", _log_dirs, Check(DESCRIBE, CLUSTER, EMPTY, "results[].error_code"), last=2),
    probe("DescribeLogDirs", _log_dirs, _cluster(DESCRIBE), about="with top-level error", first=3),
    probe("DescribeClientQuotas", _fixed(components=[], strict=False), _cluster(DESCRIBE_CONFIGS)),
    probe(
        "AlterClientQuotas",
        _fixed(entries=[_QUOTA], validate_only=True),
        _cluster(ALTER_CONFIGS, "entries[].error_code"),
    ),
    probe("DescribeUserScramCredentials", _fixed(users=[{"name": "no-such-user"}]), _cluster(DESCRIBE)),
    probe(
        "AlterUserScramCredentials",
        _fixed(deletions=[_UNKNOWN_CREDENTIAL]),
        _cluster(ALTER, "results[].error_code"),
    ),
    probe("DescribeQuorum", _quorum, _cluster(DESCRIBE)),
    probe("UpdateFeatures", _fixed(feature_updates=[], timeout_ms=5000), _cluster(ALTER)),
    probe("UnregisterBroker", _fixed(broker_id=99), _cluster(ALTER)),
    probe("ListConfigResources", _fixed(), _cluster(DESCRIBE_CONFIGS)),
    probe("CreateDelegationToken", _create_token, Check(CREATE_TOKENS, USER, NO_TOKEN, _ERROR), first=3),
)

NO_RIGHT_NEEDED: Final = {
    "SaslHandshake": "is sent before the login",
    "SaslAuthenticate": "is sent before the login",
    "ApiVersions": "is open to all",
    "GetTelemetrySubscriptions": "is open to all",
    "PushTelemetry": "is open to all",
    "DescribeCluster": "is open to all; only authorized_operations need DESCRIBE",
    "RenewDelegationToken": "owner and renewers only, ACLs do not count",
    "ExpireDelegationToken": "owner and renewers only, ACLs do not count",
    "DescribeDelegationToken": "leaves out tokens without rights: test_tokens.py",
}
"""APIs without a row in the table, and the reason."""
