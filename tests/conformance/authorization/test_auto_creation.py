"""Metadata of a missing topic makes it, with CREATE on the cluster or the topic."""

import time
from typing import Any

import pytest

from tests.conformance.conftest import Wire

from .codes import (
    ALL,
    CLUSTER,
    CLUSTER_NAME,
    CREATE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    NO_TOPIC,
    PREFIXED,
    READ,
    TOPIC,
    WRITE,
)
from .conftest import Acls, Resources
from .messages import plain, request

UNKNOWN_TOPIC = 3


def asked(wire: Wire, name: str, version: int = 12, **fields: Any) -> int:
    all_fields = {"topics": [{"name": name}]} | fields
    answer = plain(wire.send(request("Metadata", all_fields), version), version)
    (topic,) = answer["topics"]
    return int(topic["error_code"])


def exists(wire: Wire, name: str) -> bool:
    """Return whether the topic is there, by now or after a moment."""
    for _ in range(20):
        if asked(wire, name, allow_auto_topic_creation=False) == 0:
            return True
        time.sleep(0.02 if wire.is_kafka else 0.005)
    return False


@pytest.mark.parametrize("version", [1, 4, 9, 12, 13])
def test_without_describe(acls: Acls, resources: Resources, root: Wire, alice: Wire, version: int) -> None:
    """CREATE alone is not enough: it does not imply DESCRIBE."""
    (name,) = resources.names(topics=False).topics
    acls.allow("alice", CREATE, TOPIC, name)
    acls.allow("alice", CREATE, CLUSTER, CLUSTER_NAME)
    fields = {"allow_auto_topic_creation": True} if version >= 4 else {}
    assert asked(alice, name, version, **fields) == NO_TOPIC
    assert not exists(root, name)


@pytest.mark.parametrize("operation", [DESCRIBE, WRITE, READ])
def test_without_create(acls: Acls, resources: Resources, root: Wire, alice: Wire, operation: int) -> None:
    (name,) = resources.names(topics=False).topics
    acls.allow("alice", operation, TOPIC, name)
    assert asked(alice, name, allow_auto_topic_creation=True) == NO_TOPIC
    assert asked(alice, name, allow_auto_topic_creation=False) == UNKNOWN_TOPIC
    assert not exists(root, name)


@pytest.mark.parametrize("version", [1, 4, 12, 13])
@pytest.mark.parametrize("on_cluster", [True, False])
def test_with_both_rights(
    acls: Acls, resources: Resources, root: Wire, alice: Wire, version: int, on_cluster: bool
) -> None:
    (name,) = resources.names(topics=False).topics
    acls.allow("alice", DESCRIBE, TOPIC, name)
    if on_cluster:
        acls.allow("alice", CREATE, CLUSTER, CLUSTER_NAME)
    else:
        acls.allow("alice", CREATE, TOPIC, name[:-2], pattern=PREFIXED)
    fields = {"allow_auto_topic_creation": True} if version >= 4 else {}
    assert asked(alice, name, version, **fields) in (0, UNKNOWN_TOPIC, 5)
    assert exists(root, name)


def test_a_denied_cluster_right_leaves_that_of_the_topic(
    acls: Acls, resources: Resources, root: Wire, alice: Wire
) -> None:
    (name,) = resources.names(topics=False).topics
    acls.allow("alice", ALL, TOPIC, name)
    acls.deny("alice", CREATE, CLUSTER, CLUSTER_NAME)
    assert asked(alice, name, allow_auto_topic_creation=True) in (0, UNKNOWN_TOPIC, 5)
    assert exists(root, name)


def test_some_of_several_topics(acls: Acls, resources: Resources, root: Wire, alice: Wire) -> None:
    names = resources.names(3, topics=False).topics
    acls.allow("alice", DESCRIBE, TOPIC, names[0], names[1])
    acls.allow("alice", CREATE, TOPIC, names[1])
    fields = {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": True}
    answer = plain(alice.send(request("Metadata", fields), 12), 12)
    codes = {topic["name"]: topic["error_code"] for topic in answer["topics"]}
    assert codes[names[0]] == NO_TOPIC
    assert codes[names[1]] in (0, UNKNOWN_TOPIC, 5)
    assert codes[names[2]] == NO_TOPIC
    assert [exists(root, name) for name in names] == [False, True, False]


def test_create_topics_of_missing_topics(acls: Acls, resources: Resources, root: Wire, alice: Wire) -> None:
    """The answer has the configs of a new topic only with DESCRIBE_CONFIGS; it is made all the same."""
    shown, hidden = resources.names(2, topics=False).topics
    acls.allow("alice", CREATE, TOPIC, shown, hidden)
    acls.allow("alice", DESCRIBE_CONFIGS, TOPIC, shown)
    topics = [{"name": name, "num_partitions": 2, "replication_factor": 1} for name in (shown, hidden)]
    answer = plain(alice.send(request("CreateTopics", {"topics": topics, "timeout_ms": 5000}), 7), 7)
    rows = {topic["name"]: topic for topic in answer["topics"]}
    for name in (shown, hidden):
        assert (rows[name]["error_code"], rows[name]["error_message"]) == (0, None)
        assert rows[name]["topic_id"] != bytes(16)
        assert exists(root, name)
    assert rows[shown]["topic_config_error_code"] == 0
    assert (rows[shown]["num_partitions"], rows[shown]["replication_factor"]) == (2, 1)
    assert rows[shown]["configs"]
    assert rows[hidden]["topic_config_error_code"] == NO_TOPIC
    assert (rows[hidden]["num_partitions"], rows[hidden]["replication_factor"]) == (-1, -1)
    assert not rows[hidden]["configs"]


def test_create_topics_that_is_only_validated(acls: Acls, resources: Resources, root: Wire, alice: Wire) -> None:
    (name,) = resources.names(topics=False).topics
    topics = [{"name": name, "num_partitions": 2, "replication_factor": 1}]
    fields = {"topics": topics, "timeout_ms": 5000, "validate_only": True}
    (topic,) = plain(alice.send(request("CreateTopics", fields), 7), 7)["topics"]
    assert (topic["error_code"], topic["error_message"]) == (NO_TOPIC, "Authorization failed.")
    acls.allow("alice", CREATE, TOPIC, name)
    (topic,) = plain(alice.send(request("CreateTopics", fields), 7), 7)["topics"]
    assert (topic["error_code"], topic["topic_config_error_code"]) == (0, NO_TOPIC)
    assert not exists(root, name)
