"""AddOffsetsToTxn, over a socket."""

import pytest

from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest

from .conftest import Wire, versions
from .members import new_group
from .transactions import TransactionalProducer

API = AddOffsetsToTxnRequest


@pytest.fixture
def producer(broker: Wire) -> TransactionalProducer:
    return TransactionalProducer(broker)


@pytest.mark.parametrize("version", versions(API))
def test_the_partition_of_the_group_is_added(producer: TransactionalProducer, version: int) -> None:
    group_id = new_group(producer.wire)
    assert producer.ask_add_offsets(group_id, version) == "NONE"
    begun = producer.described()
    assert begun.state == "Ongoing"
    assert [topic for topic, _ in begun.partitions] == ["__consumer_offsets"]
    assert producer.ask_add_offsets(group_id, version) == "NONE"
    assert producer.described() == begun
    assert producer.ask_add_offsets("", version) == "NONE"


@pytest.mark.parametrize("version", versions(API))
def test_wrong_producers_and_epochs_are_refused(producer: TransactionalProducer, version: int) -> None:
    group_id = new_group(producer.wire)
    fenced = "PRODUCER_FENCED" if version >= 2 else "INVALID_PRODUCER_EPOCH"
    for fields, code in (
        ({"producer_id": producer.producer_id + 1000}, "INVALID_PRODUCER_ID_MAPPING"),
        ({"transactional_id": "never-seen"}, "INVALID_PRODUCER_ID_MAPPING"),
        ({"transactional_id": ""}, "INVALID_REQUEST"),
        ({"epoch_by": -1}, fenced),
        ({"epoch_by": 1}, fenced),
    ):
        assert producer.ask_add_offsets(group_id, version, **fields) == code
    assert producer.described().state == "Empty"
