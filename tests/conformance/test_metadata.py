"""Metadata, over a socket."""

import time
import uuid

import pytest

from ottla.protocol.errors import (
    INVALID_REQUEST,
    INVALID_TOPIC_EXCEPTION,
    NONE,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.security.operations import NOT_REQUESTED

from .conftest import Topic, TopicFactory, Wire, versions

API = MetadataRequest


def ask(*names: str, create: bool = False, version: int = 12) -> MetadataRequest:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    if version >= 4:
        request.allow_auto_topic_creation = create
    return request


@pytest.mark.parametrize("version", versions(API))
def test_a_topic_and_its_broker(broker: Wire, make_topic: TopicFactory, version: int) -> None:
    topic = make_topic(3)
    answer = broker.send(ask(topic.name, version=version), version)
    assert len(answer.brokers) == 1
    assert (answer.brokers[0].host, answer.brokers[0].port) == broker.address
    (described,) = answer.topics
    assert (described.error_code, described.name) == (NONE, topic.name)
    node = answer.brokers[0].node_id
    assert sorted(part.partition_index for part in described.partitions) == [0, 1, 2]
    assert all(
        (part.leader_id, part.replica_nodes, part.isr_nodes) == (node, [node], [node]) for part in described.partitions
    )
    if version >= 1:
        assert answer.controller_id == node
        assert not described.is_internal
    if version >= 2:
        assert len(answer.cluster_id) == 22
    if version >= 10:
        assert described.topic_id == topic.id


@pytest.mark.parametrize("version", versions(API))
def test_all_topics_and_none(broker: Wire, topic: Topic, version: int) -> None:
    everything = MetadataRequest(topics=[] if version == 0 else None)
    assert topic.name in {row.name for row in broker.send(everything, version).topics}
    if version > 0:
        assert broker.send(MetadataRequest(topics=[]), version).topics == []


@pytest.mark.parametrize("version", versions(API))
def test_all_topics_are_listed_alike_until_there_is_another(
    broker: Wire, make_topic: TopicFactory, version: int
) -> None:
    """A broker may keep the answer for the next request, but not beyond a change."""
    everything = MetadataRequest(topics=[] if version == 0 else None)
    first = make_topic(2)
    answer = broker.send(everything, version)
    by_name = {row.name: row for row in answer.topics}
    assert [part.partition_index for part in by_name[first.name].partitions] == [0, 1]
    again = broker.send(everything, version)
    assert {row.name: row for row in again.topics}[first.name] == by_name[first.name]
    assert again.brokers == answer.brokers
    second = make_topic(1)
    assert {first.name, second.name} <= {row.name for row in broker.send(everything, version).topics}


@pytest.mark.parametrize("version", [v for v in versions(API) if v >= 8])
def test_all_topics_with_their_operations(broker: Wire, topic: Topic, version: int) -> None:
    """The same request without them has another answer."""
    plain = MetadataRequest(topics=None)
    detailed = MetadataRequest(topics=None, include_topic_authorized_operations=True)
    for _ in range(2):
        operations = [
            next(row for row in broker.send(request, version).topics if row.name == topic.name)
            for request in (plain, detailed)
        ]
        assert operations[0].topic_authorized_operations == NOT_REQUESTED
        assert operations[1].topic_authorized_operations > 0


@pytest.mark.parametrize("version", [8, 10, 13])
def test_operations_on_names_without_a_topic(broker: Wire, version: int) -> None:
    for name, code in (("no-such-topic", UNKNOWN_TOPIC_OR_PARTITION), ("a b", INVALID_TOPIC_EXCEPTION)):
        request = ask(name, version=version)
        request.include_topic_authorized_operations = True
        (topic,) = broker.send(request, version).topics
        assert (topic.error_code, topic.topic_authorized_operations) == (code, 0b1101_1111_1000)


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize("name", [None, "other"])
def test_topics_are_not_asked_for_by_id_before_version_12(
    broker: Wire, topic: Topic, version: int, name: str | None
) -> None:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name, topic_id=topic.id), MetadataRequestTopic(name=topic.name)],
        allow_auto_topic_creation=False,
    )
    answer = broker.send(request, version)
    assert (answer.cluster_id, answer.controller_id, answer.brokers) == (None, -1, [])
    assert [(row.error_code, row.name, row.topic_id, row.partitions) for row in answer.topics] == [
        (INVALID_REQUEST, name or "", topic.id, []),
        (INVALID_REQUEST, topic.name, bytes(16), []),
    ]
    request.topics = [MetadataRequestTopic(name=None)]
    (row,) = broker.send(request, version).topics
    assert (row.error_code, row.name) == (INVALID_REQUEST, "")


@pytest.mark.parametrize("version", [v for v in versions(API) if v >= 4])
def test_an_unknown_topic_is_not_created_against_the_clients_will(broker: Wire, version: int) -> None:
    name = f"never-{uuid.uuid4().hex[:8]}"
    for _ in range(2):
        (topic,) = broker.send(ask(name, version=version), version).topics
        assert (topic.error_code, topic.name, topic.partitions) == (UNKNOWN_TOPIC_OR_PARTITION, name, [])


@pytest.mark.parametrize("version", [0, 3, 9, 13])
def test_an_unknown_topic_is_created_on_the_side(broker: Wire, version: int) -> None:
    name = f"auto-{uuid.uuid4().hex[:8]}"
    (first,) = broker.send(ask(name, create=True, version=version), version).topics
    assert (first.error_code, first.name) == (UNKNOWN_TOPIC_OR_PARTITION, name)
    deadline = time.monotonic() + 10  # the creation takes Kafka as long as its disk
    (topic,) = broker.send(ask(name, version=version), version).topics
    while topic.error_code != NONE and time.monotonic() < deadline:
        (topic,) = broker.send(ask(name, version=version), version).topics
    assert (topic.error_code, len(topic.partitions)) == (NONE, 1)


@pytest.mark.parametrize("name", ["", ".", "..", "with space", "ü", "a" * 250, "a/b"])
def test_illegal_names(broker: Wire, name: str) -> None:
    (topic,) = broker.send(ask(name, create=True), 12).topics
    assert (topic.error_code, topic.name) == (INVALID_TOPIC_EXCEPTION, name)


@pytest.mark.parametrize("version", [12, 13])
def test_topics_by_id(broker: Wire, topic: Topic, version: int) -> None:
    unknown = uuid.uuid4().bytes
    topics = [MetadataRequestTopic(name=None, topic_id=topic.id), MetadataRequestTopic(name=None, topic_id=unknown)]
    answer = broker.send(MetadataRequest(topics=topics, allow_auto_topic_creation=False), version)
    by_id = {answered.topic_id: answered for answered in answer.topics}
    assert (by_id[topic.id].error_code, by_id[topic.id].name) == (NONE, topic.name)
    assert (by_id[unknown].error_code, by_id[unknown].name) == (UNKNOWN_TOPIC_ID, None)


@pytest.mark.parametrize("version", [8, 10, 12])
def test_authorized_operations_when_asked_for(broker: Wire, topic: Topic, version: int) -> None:
    request = ask(topic.name)
    assert broker.send(request, version).topics[0].topic_authorized_operations == -(2**31)
    request.include_topic_authorized_operations = True
    assert broker.send(request, version).topics[0].topic_authorized_operations == 0b1101_1111_1000
    if version <= 10:
        request.include_cluster_authorized_operations = True
        assert broker.send(request, version).cluster_authorized_operations == 0b1_1111_1010_0000


def test_one_request_creates_100_topics_and_later_ones_the_rest(broker: Wire, ottla_only: None) -> None:
    """Apache Kafka creates up to 5,000 at once, and none of more."""
    names = [f"auto-{uuid.uuid4().hex[:12]}" for _ in range(230)]

    def existing() -> int:
        answer = broker.send(ask(*names), 12)
        return sum(topic.error_code == NONE for topic in answer.topics)

    counts = []
    for _ in range(3):
        answer = broker.send(ask(*names, create=True), 12)
        assert len(answer.topics) == len(names)
        counts.append(existing())
    assert counts == [100, 200, 230]
