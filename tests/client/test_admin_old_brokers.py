"""Admin with brokers that know older versions only: the ranges of old releases, pinned on the client's side of a link.

Ottla serves all of them; Apache Kafka 4 does not (KIP-896), so with `--broker` these tests want 3.9.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from ottla import EARLIEST, Admin, ConfigResource, NewTopic, ResourceType, TopicPartition
from ottla.client.errors import UnsupportedVersion
from ottla.net.connection import Link
from ottla.protocol.api import APIS
from ottla.protocol.messages.api_versions import ApiVersion
from ottla.tasks.deferred import Deferred
from tests.conformance.members import wait_for

from .conftest import fresh

pytestmark = pytest.mark.replaces_code

RELEASES = {
    "0.10.2": {
        "ListOffsets": 1,
        "Metadata": 2,
        "OffsetCommit": 2,
        "OffsetFetch": 2,
        "FindCoordinator": 0,
        "DescribeGroups": 0,
        "ListGroups": 0,
        "CreateTopics": 1,
        "DeleteTopics": 0,
        "ApiVersions": 0,
    },
    "1.0": {
        "ListOffsets": 2,
        "Metadata": 5,
        "OffsetCommit": 3,
        "OffsetFetch": 3,
        "FindCoordinator": 1,
        "DescribeGroups": 1,
        "ListGroups": 1,
        "CreateTopics": 2,
        "DeleteTopics": 1,
        "DeleteRecords": 0,
        "CreatePartitions": 0,
        "DescribeConfigs": 0,
        "AlterConfigs": 0,
        "DescribeLogDirs": 0,
        "AlterReplicaLogDirs": 0,
        "InitProducerId": 0,
        "ApiVersions": 1,
    },
    "2.4": {
        "ListOffsets": 5,
        "Metadata": 9,
        "OffsetCommit": 8,
        "OffsetFetch": 6,
        "FindCoordinator": 3,
        "LeaveGroup": 4,
        "DescribeGroups": 5,
        "ListGroups": 3,
        "CreateTopics": 5,
        "DeleteTopics": 4,
        "DeleteRecords": 1,
        "CreatePartitions": 1,
        "DescribeConfigs": 2,
        "AlterConfigs": 1,
        "IncrementalAlterConfigs": 1,
        "DescribeLogDirs": 1,
        "DeleteGroups": 2,
        "OffsetDelete": 0,
        "ElectLeaders": 2,
        "AlterPartitionReassignments": 0,
        "ListPartitionReassignments": 0,
        "ApiVersions": 3,
    },
}
"""The newest versions that these releases serve; what is not here they do not have."""


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.config.getoption("--broker") and request.config.getoption("--kafka-version") >= "4":
        pytest.skip("Apache Kafka 4 has dropped these versions")
    newest = RELEASES[request.param]
    keys = {key: newest[api.name] for key, api in APIS.items() if api.name in newest}
    negotiated = Link._on_api_versions

    def pinned(self: Link, promise: Deferred[Any]) -> None:
        if promise.error is None:
            answer = promise.result()
            served = {row.api_key: row.max_version for row in answer.api_keys}
            answer.api_keys = [
                ApiVersion(api_key=key, min_version=0, max_version=last)
                for key, last in keys.items()
                if served.get(key, -1) >= last
            ]
        negotiated(self, promise)

    monkeypatch.setattr(Link, "_on_api_versions", pinned)
    return str(request.param)


@pytest.fixture
def old(bootstrap_servers: str, release: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=bootstrap_servers) as client:
        yield client


def test_topics_and_offsets(old: Admin, release: str) -> None:
    name = fresh()
    made = old.create_topics([NewTopic(name, 2, 1)])[name]
    assert made.num_partitions == (2 if release == "2.4" else -1)
    described = old.describe_topics([name])[name]
    assert [(partition.partition, len(partition.isr)) for partition in described.partitions] == [(0, 1), (1, 1)]
    assert old.list_offsets({TopicPartition(name, 1): EARLIEST})[TopicPartition(name, 1)].offset == 0
    assert len(old.describe_cluster().nodes) == 1
    with pytest.raises(UnsupportedVersion):
        old.delete_topics([bytes(range(16))])
    if release != "0.10.2":
        assert old.delete_records({TopicPartition(name, 0): -1})[TopicPartition(name, 0)] == 0
    old.delete_topics([name]).check()
    wait_for(lambda: name not in old.list_topics())


def test_groups(old: Admin, release: str) -> None:
    topic, group_id = fresh(), fresh("g")
    old.create_topics([NewTopic(topic, 2, 1)]).check()
    places = {TopicPartition(topic, index): index for index in range(2)}
    old.alter_consumer_group_offsets(group_id, places).check()
    for selection in ([group_id], {group_id: list(places)}):
        offsets = old.list_consumer_group_offsets(selection)[group_id]
        assert {place: committed.offset for place, committed in offsets.items()} == places
    assert old.describe_consumer_groups([group_id])[group_id].state == "Empty"
    assert group_id in old.list_groups()
    if release == "2.4":
        old.delete_consumer_group_offsets(group_id, list(places)[:1]).check()
        old.delete_groups([group_id]).check()


def test_configs(old: Admin, release: str) -> None:
    resource = ConfigResource(ResourceType.TOPIC, fresh())
    if release == "0.10.2":
        with pytest.raises(UnsupportedVersion):
            old.describe_configs([resource]).check()
        return
    old.create_topics([NewTopic(resource.name, 1, 1)]).check()
    old.alter_configs({resource: {"retention.ms": "7000"}}).check()
    entries = old.describe_configs([resource], include_synonyms=True, include_documentation=True)[resource]
    assert (entries["retention.ms"].value, entries["retention.ms"].is_default) == ("7000", False)
    if release != "1.0":  # Apache Kafka 3.9 says of every config that it is no default when asked by version 0
        assert entries["segment.bytes"].is_default
