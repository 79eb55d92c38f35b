"""TxnOffsetCommit and OffsetFetch with require-stable, over a socket."""

from typing import Any

import pytest

from ottla.protocol.errors import NONE
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

from .conftest import Topic, TopicFactory, Wire, versions
from .consumers import Consumer
from .members import Member, new_group, stable
from .transactions import TransactionalProducer, committed_offsets, retry_while_busy

API = TxnOffsetCommitRequest
PENDING = "UNSTABLE_OFFSET_COMMIT"


@pytest.fixture
def producer(broker: Wire) -> TransactionalProducer:
    return TransactionalProducer(broker)


@pytest.fixture
def topic(make_topic: TopicFactory) -> Topic:
    return make_topic(3)


def commit_plainly(wire: Wire, group_id: str, topic: Topic, offset: int) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    request = OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequestTopic(name=topic.name, partitions=[partition])],
    )
    assert wire.send(request, 8).topics[0].partitions[0].error_code == NONE


def add_offsets(producer: TransactionalProducer, group_id: str, version: int) -> None:
    """As a client of this version says beforehand that it will commit offsets."""
    if version < 5:
        assert retry_while_busy(lambda: producer.ask_add_offsets(group_id)) == "NONE"


@pytest.mark.parametrize("version", versions(API))
@pytest.mark.parametrize("commit", [True, False])
def test_offsets_count_when_the_transaction_is_committed(
    producer: TransactionalProducer, topic: Topic, version: int, commit: bool
) -> None:
    group_id = new_group(producer.wire)
    commit_plainly(producer.wire, group_id, topic, 3)
    add_offsets(producer, group_id, version)
    assert retry_while_busy(lambda: producer.ask_commit_offsets(group_id, topic, {0: 5, 1: 7}, version)) == ["NONE"] * 2

    def seen(*partitions: int, stable: bool) -> dict[int, int | str]:
        return committed_offsets(producer.wire, group_id, topic, *partitions, stable=stable)

    assert seen(0, 1, 2, stable=False) == {0: 3, 1: -1, 2: -1}
    assert seen(0, 1, 2, stable=True) == {0: PENDING, 1: PENDING, 2: -1}
    assert seen(stable=False) == {0: 3}
    assert seen(stable=True) == {0: PENDING}
    producer.end(commit=commit, version=5 if version >= 5 else 3)
    after = {0: 5, 1: 7, 2: -1} if commit else {0: 3, 1: -1, 2: -1}
    assert seen(0, 1, 2, stable=True) == seen(0, 1, 2, stable=False) == after


@pytest.mark.parametrize("version", versions(API))
def test_wrong_producers_and_epochs_are_refused(producer: TransactionalProducer, topic: Topic, version: int) -> None:
    group_id = new_group(producer.wire)
    for fields, code in (
        ({"producer_id": producer.producer_id + 1000}, "INVALID_PRODUCER_ID_MAPPING"),
        ({"transactional_id": "never-seen"}, "INVALID_PRODUCER_ID_MAPPING"),
        ({"transactional_id": ""}, "INVALID_REQUEST"),
        ({"epoch_by": -1}, "INVALID_PRODUCER_EPOCH"),
        ({"epoch_by": 1}, "INVALID_PRODUCER_EPOCH"),
    ):
        assert retry_while_busy(lambda: producer.ask_commit_offsets(group_id, topic, {0: 1}, version, **fields)) == [  # noqa: B023
            code
        ]
    if version < 5:
        code = "TRANSACTION_ABORTABLE" if version >= 4 else "INVALID_TXN_STATE"
        assert producer.ask_commit_offsets(group_id, topic, {0: 1}, version) == [code]
        assert producer.described().state == "Empty"
    assert producer.ask_commit_offsets("", topic, {0: 1}, version) == ["INVALID_GROUP_ID"]
    assert committed_offsets(producer.wire, group_id, topic, 0, stable=True) == {0: -1}


@pytest.mark.parametrize("version", versions(API))
def test_topics_that_are_not_there(producer: TransactionalProducer, topic: Topic, version: int) -> None:
    group_id = new_group(producer.wire)
    add_offsets(producer, group_id, version)
    answer = retry_while_busy(lambda: producer.ask_commit_offsets(group_id, topic, {9: 1, 1: 2}, version))
    assert answer == ["UNKNOWN_TOPIC_OR_PARTITION", "NONE"]
    unknown = Topic(producer.wire, "no-such-topic", b"0123456789abcdef")
    for group in (group_id, ""):
        answer = producer.ask_commit_offsets(group, unknown, {0: 1}, version)
        assert answer == ["UNKNOWN_TOPIC_ID" if version >= 6 else "UNKNOWN_TOPIC_OR_PARTITION"]
    answer = producer.ask_commit_offsets(group_id, topic, {0: 1, 1: 2}, version, metadata="m" * 4097)
    assert answer == ["OFFSET_METADATA_TOO_LARGE", "NONE"]
    producer.end(commit=True, version=5 if version >= 5 else 3)
    assert committed_offsets(producer.wire, group_id, topic, 0, 1, stable=True) == {0: -1, 1: 2}


@pytest.mark.parametrize("version", [version for version in versions(API) if version >= 3])
def test_members_are_checked(producer: TransactionalProducer, topic: Topic, version: int) -> None:
    group_id = new_group(producer.wire)
    member = Member(producer.wire, group_id)
    stable(producer.wire, member)
    add_offsets(producer, group_id, version)
    mine = {"member_id": member.member_id, "generation_id_or_member_epoch": member.generation}
    for fields, code in (
        (mine, "NONE"),
        ({}, "NONE"),
        (mine | {"member_id": "nobody"}, "UNKNOWN_MEMBER_ID"),
        (mine | {"member_id": ""}, "UNKNOWN_MEMBER_ID"),
        (mine | {"generation_id_or_member_epoch": member.generation - 1}, "ILLEGAL_GENERATION"),
        (mine | {"generation_id_or_member_epoch": member.generation + 1}, "ILLEGAL_GENERATION"),
        (mine | {"group_instance_id": "other"}, "UNKNOWN_MEMBER_ID"),
        ({"member_id": "nobody"}, "UNKNOWN_MEMBER_ID"),
    ):

        def ask(fields: dict[str, Any] = fields) -> list[str]:
            return committed(producer, group_id, topic, version, fields)

        assert retry_while_busy(ask) == [code], fields


def committed(
    producer: TransactionalProducer, group_id: str, topic: Topic, version: int, fields: dict[str, Any]
) -> list[str]:
    return producer.ask_commit_offsets(group_id, topic, {0: 1}, version, **fields)


@pytest.mark.parametrize("version", [version for version in versions(API) if version >= 3])
def test_a_group_that_is_not_there_has_no_members(producer: TransactionalProducer, topic: Topic, version: int) -> None:
    group_id = new_group(producer.wire)
    add_offsets(producer, group_id, version)

    def ask(**fields: Any) -> list[str]:
        return retry_while_busy(lambda: committed(producer, group_id, topic, version, fields))

    absent = "GROUP_ID_NOT_FOUND" if version >= 6 else "ILLEGAL_GENERATION"
    assert ask(generation_id_or_member_epoch=3) == [absent]
    assert ask(generation_id_or_member_epoch=3, member_id="x") == [absent]
    assert ask(member_id="x") == ["NONE"]
    assert ask(generation_id_or_member_epoch=3, member_id="x") == ["UNKNOWN_MEMBER_ID"]


@pytest.mark.parametrize("version", [version for version in versions(API) if version >= 3])
def test_members_of_consumer_groups_are_checked(producer: TransactionalProducer, topic: Topic, version: int) -> None:
    consumer = Consumer(producer.wire, new_group(producer.wire))
    assert consumer.join(topic.name).error_code == NONE
    add_offsets(producer, consumer.group_id, version)
    mine = {"member_id": consumer.member_id, "generation_id_or_member_epoch": consumer.epoch}
    stale = "STALE_MEMBER_EPOCH" if version >= 6 else "ILLEGAL_GENERATION"
    for fields, code in (
        (mine, "NONE"),
        ({}, "NONE"),
        (mine | {"member_id": "nobody"}, "UNKNOWN_MEMBER_ID"),
        (mine | {"generation_id_or_member_epoch": consumer.epoch + 1}, stale),
        ({"member_id": consumer.member_id}, stale),
        ({"member_id": "nobody"}, "UNKNOWN_MEMBER_ID"),
    ):

        def ask(fields: dict[str, Any] = fields) -> list[str]:
            return committed(producer, consumer.group_id, topic, version, fields)

        assert retry_while_busy(ask) == [code], fields


def test_of_two_transactions_the_offset_that_was_written_later_counts(broker: Wire, topic: Topic) -> None:
    group_id = new_group(broker)
    first, second = TransactionalProducer(broker), TransactionalProducer(broker)
    first.commit_offsets(group_id, topic, {0: 10, 1: 10})
    second.commit_offsets(group_id, topic, {0: 20})
    second.end(commit=True)
    assert committed_offsets(broker, group_id, topic, 0, 1, stable=True) == {0: PENDING, 1: PENDING}
    assert committed_offsets(broker, group_id, topic, 0, 1) == {0: 20, 1: -1}
    first.end(commit=True)
    assert committed_offsets(broker, group_id, topic, 0, 1, stable=True) == {0: 20, 1: 10}


def test_an_offset_that_was_committed_plainly_in_between_counts(producer: TransactionalProducer, topic: Topic) -> None:
    group_id = new_group(producer.wire)
    producer.commit_offsets(group_id, topic, {0: 5})
    producer.commit_offsets(group_id, topic, {0: 4})
    commit_plainly(producer.wire, group_id, topic, 9)
    assert committed_offsets(producer.wire, group_id, topic, 0) == {0: 9}
    assert committed_offsets(producer.wire, group_id, topic, 0, stable=True) == {0: PENDING}
    producer.end(commit=True)
    assert committed_offsets(producer.wire, group_id, topic, 0, stable=True) == {0: 9}


@pytest.mark.parametrize("before", [True, False])
def test_an_offset_that_is_deleted_does_not_come_back(
    producer: TransactionalProducer, topic: Topic, before: bool
) -> None:
    group_id = new_group(producer.wire)
    if before:
        commit_plainly(producer.wire, group_id, topic, 3)
    producer.commit_offsets(group_id, topic, {0: 5, 1: 6})
    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(name=topic.name, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
        ],
    )
    assert producer.wire.send(request, 0).topics[0].partitions[0].error_code == NONE
    assert committed_offsets(producer.wire, group_id, topic, 0, 1, stable=True) == {0: -1, 1: PENDING}
    producer.end(commit=True)
    assert committed_offsets(producer.wire, group_id, topic, 0, 1, stable=True) == {0: -1, 1: 6}


@pytest.mark.parametrize("before", [True, False])
def test_a_group_that_is_deleted_does_not_come_back(
    producer: TransactionalProducer, topic: Topic, before: bool
) -> None:
    group_id = new_group(producer.wire)
    if before:
        commit_plainly(producer.wire, group_id, topic, 3)
    producer.commit_offsets(group_id, topic, {0: 5})
    (deleted,) = producer.wire.send(DeleteGroupsRequest(groups_names=[group_id]), 2).results
    assert deleted.error_code == NONE
    producer.end(commit=True)
    assert committed_offsets(producer.wire, group_id, topic, stable=True) == {}
