"""EndTxn, over a socket: of both versions of transactions, in time, too late, again."""

import pytest

from ottla.protocol.messages.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.end_txn import EndTxnRequest

from .conftest import Topic, TopicFactory, Wire, versions
from .members import wait_for
from .transactions import TransactionalProducer, fetch_partitions, retry_while_busy

API = EndTxnRequest
WITHOUT_BUMP = [version for version in versions(API) if version < 5]
FAILED = (-1, -1)


@pytest.fixture
def producer(broker: Wire) -> TransactionalProducer:
    return TransactionalProducer(broker)


def fenced(version: int) -> str:
    return "PRODUCER_FENCED" if version >= 2 else "INVALID_PRODUCER_EPOCH"


@pytest.mark.parametrize("version", WITHOUT_BUMP)
@pytest.mark.parametrize("commit", [True, False])
def test_the_end_of_a_transaction_of_version_1(
    producer: TransactionalProducer, topic: Topic, version: int, commit: bool
) -> None:
    producer.add(topic)
    producer.produce(topic, version=11)
    assert producer.ask_end(commit=commit, version=version)[0] == "NONE"
    assert producer.wait_until_complete() == ("CompleteCommit" if commit else "CompleteAbort")
    described = producer.described()
    assert (described.epoch, described.partitions) == (producer.epoch, set())
    (partition,) = fetch_partitions(producer.wire, topic, 0)
    assert (partition.high_watermark, partition.last_stable_offset) == (2, 2)
    assert producer.ask_end(commit=commit, version=version)[0] == "NONE"
    assert producer.ask_end(commit=not commit, version=version)[0] == "INVALID_TXN_STATE"


@pytest.mark.parametrize("version", WITHOUT_BUMP)
def test_wrong_producers_and_epochs_are_refused(producer: TransactionalProducer, topic: Topic, version: int) -> None:
    for begun in (False, True):
        if begun:
            producer.add(topic)
        for commit in (True, False):
            for fields, code in (
                ({"producer_id": producer.producer_id + 1000}, "INVALID_PRODUCER_ID_MAPPING"),
                ({"transactional_id": "never-seen"}, "INVALID_PRODUCER_ID_MAPPING"),
                ({"transactional_id": ""}, "INVALID_REQUEST"),
                ({"epoch_by": -1}, fenced(version)),
                ({"epoch_by": 1}, fenced(version)),
            ):
                assert producer.ask_end(commit=commit, version=version, **fields)[0] == code
    assert producer.described().state == "Ongoing"


@pytest.mark.parametrize("version", WITHOUT_BUMP)
@pytest.mark.parametrize("commit", [True, False])
def test_nothing_to_end(producer: TransactionalProducer, version: int, commit: bool) -> None:
    assert producer.ask_end(commit=commit, version=version)[0] == "INVALID_TXN_STATE"


@pytest.mark.parametrize("version", [5])
@pytest.mark.parametrize("commit", [True, False])
def test_every_transaction_of_version_2_has_an_epoch(
    producer: TransactionalProducer, topic: Topic, version: int, commit: bool
) -> None:
    producer_id, epoch = producer.producer_id, producer.epoch
    producer.produce(topic)
    assert producer.ask_end(commit=commit, version=version) == ("NONE", producer_id, epoch + 1)
    assert producer.wait_until_complete() == ("CompleteCommit" if commit else "CompleteAbort")
    assert producer.described().epoch == epoch + 1
    # Asked again with the epoch that was: the same answer. With another result: there is nothing to end.
    assert producer.ask_end(commit=commit, version=version) == ("NONE", producer_id, epoch + 1)
    assert producer.ask_end(commit=not commit, version=version) == ("INVALID_TXN_STATE", *FAILED)
    assert producer.ask_end(commit=True, version=version, epoch_by=1) == ("INVALID_TXN_STATE", *FAILED)
    for by in (-1, 2):
        assert producer.ask_end(commit=commit, version=version, epoch_by=by) == ("PRODUCER_FENCED", *FAILED)
    producer.epoch += 1
    producer.sequences.clear()
    assert producer.produce(topic) == 2


@pytest.mark.parametrize("version", [5])
def test_an_abort_of_nothing_has_an_epoch_too(producer: TransactionalProducer, version: int) -> None:
    for _ in range(3):
        epoch = producer.epoch
        assert producer.ask_end(commit=True, version=version) == ("INVALID_TXN_STATE", *FAILED)
        producer.end(commit=False, version=version)
        assert producer.epoch == epoch + 1
        assert producer.described().state == "CompleteAbort"
        assert producer.ask_end(commit=False, version=version, epoch_by=-1) == ("NONE", producer.producer_id, epoch + 1)


@pytest.mark.parametrize("version", [5])
@pytest.mark.parametrize("commit", [True, False])
def test_an_epoch_before_the_first_transaction_is_fenced(
    producer: TransactionalProducer, version: int, commit: bool
) -> None:
    """It is not a request sent again: no transaction has ended yet."""
    producer.begin_anew()
    assert producer.described().state == "Empty"
    assert producer.ask_end(commit=commit, version=version, epoch_by=-1) == ("PRODUCER_FENCED", *FAILED)


@pytest.mark.parametrize("version", [5])
def test_wrong_producers_and_epochs_are_refused_in_version_2(
    producer: TransactionalProducer, topic: Topic, version: int
) -> None:
    producer.produce(topic)
    for fields, code in (
        ({"producer_id": producer.producer_id + 1000}, "INVALID_PRODUCER_ID_MAPPING"),
        ({"transactional_id": "never-seen"}, "INVALID_PRODUCER_ID_MAPPING"),
        ({"transactional_id": ""}, "INVALID_REQUEST"),
        ({"epoch_by": -1}, "PRODUCER_FENCED"),
        ({"epoch_by": 1}, "PRODUCER_FENCED"),
    ):
        assert producer.ask_end(commit=True, version=version, **fields) == (code, *FAILED)
    assert producer.described().state == "Ongoing"


@pytest.mark.parametrize("version", [4, 5])
def test_the_version_of_end_txn_counts_and_not_that_of_added_partitions(
    producer: TransactionalProducer, make_topic: TopicFactory, version: int
) -> None:
    topic = make_topic(2)
    for commit in (True, False):
        end = fetch_partitions(producer.wire, topic, 0)[0].high_watermark
        if version == 5:
            producer.add(topic)
            producer.produce(topic, version=11)
        else:
            producer.produce(topic, version=12)
        producer.end(commit=commit, version=version)
        (partition,) = fetch_partitions(producer.wire, topic, 0)
        assert (partition.high_watermark, partition.last_stable_offset) == (end + 2, end + 2)


@pytest.mark.parametrize("version", [4, 5])
def test_a_timed_out_transaction_is_aborted_and_its_end_refused(broker: Wire, topic: Topic, version: int) -> None:
    """The coordinator aborts a transaction that takes longer than its client said."""
    producer = TransactionalProducer(broker, timeout_ms=100)
    producer_id, epoch = producer.producer_id, producer.epoch
    if version < 5:
        producer.add(topic)
    producer.produce(topic, version=11 if version < 5 else 12)
    wait_for(lambda: producer.described().state == "CompleteAbort")
    assert producer.described().epoch == epoch + 1
    assert fetch_partitions(broker, topic, 0)[0].last_stable_offset == 2
    if version < 5:
        assert producer.ask_end(commit=True, version=version)[0] == "PRODUCER_FENCED"
        assert producer.ask_end(commit=False, version=version)[0] == "PRODUCER_FENCED"
    else:
        assert producer.ask_end(commit=True, version=version) == ("INVALID_TXN_STATE", *FAILED)
        assert producer.ask_end(commit=False, version=version) == ("NONE", producer_id, epoch + 1)
    assert producer.ask_produce(topic)[0] == "INVALID_PRODUCER_EPOCH"
    again = producer.ask_init(producer_id=producer_id, producer_epoch=epoch)
    assert again == ("NONE", producer_id, epoch + 1)


@pytest.mark.parametrize("version", [4, 5])
def test_a_zombie(producer: TransactionalProducer, topic: Topic, version: int) -> None:
    zombie = producer.twin()
    zombie.produce(topic)
    producer.begin_anew()
    assert producer.epoch == zombie.epoch + 2
    for commit in (True, False):
        assert retry_while_busy(lambda: zombie.ask_end(commit=commit, version=version))[0] == "PRODUCER_FENCED"  # noqa: B023
    assert zombie.ask_produce(topic)[0] == "INVALID_PRODUCER_EPOCH"
    producer.produce(topic)
    producer.end(commit=True)
    (partition,) = fetch_partitions(producer.wire, topic, 0)
    assert [(transaction.producer_id, transaction.first_offset) for transaction in partition.aborted_transactions] == [
        (zombie.producer_id, 0)
    ]


@pytest.mark.parametrize("version", [4, 5])
def test_a_topic_that_is_gone_holds_nothing_up(
    producer: TransactionalProducer, make_topic: TopicFactory, version: int
) -> None:
    kept, gone = make_topic(), make_topic()
    for topic in (kept, gone):
        producer.produce(topic)
    request = DeleteTopicsRequest(topic_names=[gone.name], timeout_ms=10_000)
    assert producer.wire.send(request, 5).responses[0].error_code == 0
    producer.end(commit=True, version=version)
    assert producer.described().state == "CompleteCommit"
    assert fetch_partitions(producer.wire, kept, 0)[0].last_stable_offset == 2
