"""Bit fields of authorized operations (KIP-430): bit n is the operation with code n."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.conformance.conftest import Wire
from tests.conformance.consumers import Consumer
from tests.conformance.share_members import Sharer

from .codes import (
    ALL,
    ALTER,
    ALTER_CONFIGS,
    CLUSTER,
    CLUSTER_ACTION,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    IDEMPOTENT_WRITE,
    OPERATIONS,
    PREFIXED,
    READ,
    TOPIC,
    WRITE,
)
from .conftest import Acls, Resources
from .messages import plain, request
from .probes import Names

NOT_ASKED: Final = -(2**31)
FULL: Final = {TOPIC: 3576, GROUP: 3400, CLUSTER: 8096}
POSSIBLE: Final = {
    TOPIC: (READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    GROUP: (READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    CLUSTER: (CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE),
}
IMPLIED: Final = {READ: DESCRIBE, WRITE: DESCRIBE, DELETE: DESCRIBE, ALTER: DESCRIBE, ALTER_CONFIGS: DESCRIBE_CONFIGS}
Asked = Callable[[Wire, Names, int], int]


def bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


def send(wire: Wire, api: str, version: int, **fields: Any) -> Any:
    return plain(wire.send(request(api, fields), version), version)


def by_metadata(wire: Wire, names: Names, version: int) -> int:
    topics = [{"name": names.topics[0]}]
    (topic,) = send(wire, "Metadata", version, topics=topics, include_topic_authorized_operations=True)["topics"]
    return int(topic["topic_authorized_operations"])


def by_describe_topic_partitions(wire: Wire, names: Names, version: int) -> int:
    topics = [{"name": names.topics[0]}]
    answer = send(wire, "DescribeTopicPartitions", version, topics=topics, response_partition_limit=10)
    (topic,) = answer["topics"]
    return int(topic["topic_authorized_operations"])


def by_describe_groups(wire: Wire, names: Names, version: int) -> int:
    fields = {"groups": [names.group], "include_authorized_operations": True}
    (group,) = send(wire, "DescribeGroups", version, **fields)["groups"]
    return int(group["authorized_operations"])


def by_metadata_of_cluster(wire: Wire, names: Names, version: int) -> int:
    answer = send(wire, "Metadata", version, topics=[], include_cluster_authorized_operations=True)
    return int(answer["cluster_authorized_operations"])


def by_describe_cluster(wire: Wire, names: Names, version: int) -> int:
    answer = send(wire, "DescribeCluster", version, include_cluster_authorized_operations=True)
    assert answer["error_code"] == 0
    assert answer["brokers"]
    assert answer["cluster_id"]
    return int(answer["cluster_authorized_operations"])


TOPICS: Final = [(by_metadata, 8), (by_metadata, 10), (by_metadata, 13), (by_describe_topic_partitions, 0)]
GROUPS: Final = [(by_describe_groups, version) for version in (3, 5, 6)]
CLUSTERS: Final = [
    (by_metadata_of_cluster, 8),
    (by_metadata_of_cluster, 10),
    *((by_describe_cluster, version) for version in (0, 1, 2)),
]
ALL_OF_THEM: Final = [
    (kind, ask, version)
    for kind, askers in ((TOPIC, TOPICS), (GROUP, GROUPS), (CLUSTER, CLUSTERS))
    for ask, version in askers
]


@pytest.mark.parametrize(("kind", "ask", "version"), ALL_OF_THEM)
def test_without_rights(acls: Acls, resources: Resources, alice: Wire, kind: int, ask: Asked, version: int) -> None:
    names = resources.names(existing=("offsets",))
    assert ask(alice, names, version) == (0 if kind == CLUSTER else NOT_ASKED)


@pytest.mark.parametrize(("kind", "ask", "version"), ALL_OF_THEM)
def test_with_all_rights(
    acls: Acls, resources: Resources, root: Wire, alice: Wire, kind: int, ask: Asked, version: int
) -> None:
    names = resources.names(existing=("offsets",))
    assert ask(root, names, version) == FULL[kind] == bits(*POSSIBLE[kind])
    acls.allow("alice", ALL, kind, *names.of_type(kind))
    assert ask(alice, names, version) == FULL[kind]


@pytest.mark.parametrize("operation", [operation for operation in OPERATIONS if operation != DESCRIBE])
@pytest.mark.parametrize(
    ("kind", "ask", "version"), [(TOPIC, *TOPICS[2]), (GROUP, *GROUPS[2]), (CLUSTER, *CLUSTERS[4])]
)
def test_with_one_right(
    acls: Acls, resources: Resources, alice: Wire, kind: int, ask: Asked, version: int, operation: int
) -> None:
    """Implied operations are in the field; without DESCRIBE the field is not shown."""
    names = resources.names(existing=("offsets",))
    name = names.of_type(kind)[0]
    acls.allow("alice", operation, kind, name)
    operations = {operation, IMPLIED.get(operation, operation)} & set(POSSIBLE[kind])
    if DESCRIBE not in operations:
        assert ask(alice, names, version) == (0 if kind == CLUSTER else NOT_ASKED)
    else:
        assert ask(alice, names, version) == bits(*operations)
    acls.allow("alice", DESCRIBE, kind, name)
    assert ask(alice, names, version) == bits(*operations | {DESCRIBE})


@pytest.mark.parametrize(
    ("kind", "ask", "version"), [(TOPIC, *TOPICS[2]), (GROUP, *GROUPS[2]), (CLUSTER, *CLUSTERS[4])]
)
def test_denied_operations(acls: Acls, resources: Resources, alice: Wire, kind: int, ask: Asked, version: int) -> None:
    """A DENY implies nothing: deny ALTER leaves DESCRIBE, deny DESCRIBE hides all."""
    names = resources.names(existing=("offsets",))
    name = names.of_type(kind)[0]
    acls.allow("alice", ALL, kind, name)
    acls.deny("alice", ALTER_CONFIGS, kind, name)
    acls.deny("User:*", DELETE, kind, name, pattern=PREFIXED)
    denied = {ALTER_CONFIGS, DELETE}
    assert ask(alice, names, version) == bits(*set(POSSIBLE[kind]) - denied)
    acls.deny("alice", DESCRIBE, kind, name)
    assert ask(alice, names, version) == (0 if kind == CLUSTER else NOT_ASKED)


def test_fields_that_are_not_asked(acls: Acls, resources: Resources, root: Wire) -> None:
    names = resources.names(existing=("offsets",))
    answer = send(root, "Metadata", 10, topics=[{"name": names.topics[0]}])
    assert answer["cluster_authorized_operations"] == NOT_ASKED
    assert answer["topics"][0]["topic_authorized_operations"] == NOT_ASKED
    assert send(root, "DescribeCluster", 2)["cluster_authorized_operations"] == NOT_ASKED
    assert send(root, "DescribeGroups", 6, groups=[names.group])["groups"][0]["authorized_operations"] == NOT_ASKED


def test_groups_of_the_consumer_protocol(acls: Acls, resources: Resources, root: Wire, alice: Wire) -> None:
    names = resources.names()
    member = Consumer(root, names.group)
    assert member.join(names.topics[0]).error_code == 0
    acls.allow("alice", READ, GROUP, names.group)
    acls.allow("alice", DESCRIBE, TOPIC, *names.topics)
    for version in (0, 1):
        fields: dict[str, Any] = {"group_ids": [names.group], "include_authorized_operations": True}
        (group,) = send(root, "ConsumerGroupDescribe", version, **fields)["groups"]
        assert group["authorized_operations"] == FULL[GROUP]
        (group,) = send(alice, "ConsumerGroupDescribe", version, **fields)["groups"]
        assert group["authorized_operations"] == bits(READ, DESCRIBE)
        (group,) = send(alice, "ConsumerGroupDescribe", version, group_ids=[names.group])["groups"]
        assert group["authorized_operations"] == NOT_ASKED
    member.leave()


def test_share_groups(acls: Acls, resources: Resources, root: Wire, alice: Wire) -> None:
    names = resources.names()
    member = Sharer(root, names.group)
    assert member.join(names.topics[0]).error_code == 0
    acls.allow("alice", DELETE, GROUP, names.group)
    acls.allow("alice", DESCRIBE, TOPIC, *names.topics)
    fields: dict[str, Any] = {"group_ids": [names.group], "include_authorized_operations": True}
    (group,) = send(root, "ShareGroupDescribe", 1, **fields)["groups"]
    assert group["authorized_operations"] == FULL[GROUP]
    (group,) = send(alice, "ShareGroupDescribe", 1, **fields)["groups"]
    assert group["authorized_operations"] == bits(DELETE, DESCRIBE)
    member.leave()
