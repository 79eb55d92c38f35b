"""InitProducerId, over a socket: without transactions and with them."""

from collections.abc import Iterator

import pytest

from ottla.protocol.connection import ClientConnection
from ottla.protocol.errors import COORDINATOR_LOAD_IN_PROGRESS, INVALID_REQUEST, NONE
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.testing import EmbeddedBroker

from .conftest import Closed, Topic, Wire, versions
from .members import wait_for
from .transactions import TransactionalProducer, fetch_partitions, retry_while_busy

API = InitProducerIdRequest


@pytest.fixture(autouse=True)
def _has_ids(broker: Wire) -> None:
    """Apache Kafka fetches its first block of ids when the first producer asks, and sends that one away."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    wait_for(lambda: broker.send(request, 0).error_code != COORDINATOR_LOAD_IN_PROGRESS)


@pytest.mark.parametrize("version", versions(API))
def test_every_producer_gets_an_id_of_its_own(broker: Wire, version: int) -> None:
    ids = set()
    for _ in range(20):
        answer = broker.send(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), version)
        assert (answer.error_code, answer.producer_epoch) == (NONE, 0)
        assert answer.producer_id >= 0
        ids.add(answer.producer_id)
    assert len(ids) == 20


@pytest.mark.parametrize("version", versions(API))
@pytest.mark.parametrize("timeout", [0, -1, 0x7FFFFFFF])
def test_the_timeout_of_no_transaction_does_not_matter(broker: Wire, version: int, timeout: int) -> None:
    answer = broker.send(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=timeout), version)
    assert answer.error_code == NONE


@pytest.mark.parametrize("version", versions(API))
def test_an_empty_transactional_id_is_refused(broker: Wire, version: int) -> None:
    answer = broker.send(InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000), version)
    assert (answer.error_code, answer.producer_id) == (INVALID_REQUEST, -1)


@pytest.mark.parametrize("version", [v for v in versions(API) if v >= 3])
def test_an_id_of_its_own_is_answered_with_a_new_one(broker: Wire, version: int) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000, producer_id=5, producer_epoch=3)
    answer = broker.send(request, version)
    assert (answer.error_code, answer.producer_epoch) == (NONE, 0)
    assert answer.producer_id != 5


@pytest.mark.parametrize("version", [v for v in versions(API) if v >= 3])
@pytest.mark.parametrize(("producer_id", "epoch"), [(5, -1), (-1, 3)])
def test_an_id_and_an_epoch_come_together(broker: Wire, version: int, producer_id: int, epoch: int) -> None:
    request = InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=1000, producer_id=producer_id, producer_epoch=epoch
    )
    answer = broker.send(request, version)
    assert (answer.error_code, answer.producer_id) == (INVALID_REQUEST, -1)


# With a transactional id.


@pytest.mark.parametrize("version", versions(API))
def test_each_init_producer_id_returns_the_next_epoch(broker: Wire, version: int) -> None:
    producer = TransactionalProducer(broker)
    assert producer.epoch == 0
    for epoch in range(1, 4):
        assert retry_while_busy(lambda: producer.ask_init(version)) == ("NONE", producer.producer_id, epoch)
    assert producer.described()[:6] == ("NONE", "Empty", 60_000, -1, producer.producer_id, 3)
    other = TransactionalProducer(broker)
    assert (other.producer_id != producer.producer_id, other.epoch) == (True, 0)


@pytest.mark.parametrize("version", versions(API))
def test_transaction_timeout_is_limited_by_the_broker(broker: Wire, version: int) -> None:
    producer = TransactionalProducer(broker)
    for timeout in (0, -1, 900_001):
        answer = producer.ask_init(version, transaction_timeout_ms=timeout)
        assert answer == ("INVALID_TRANSACTION_TIMEOUT", -1, -1)
    assert producer.ask_init(version, transaction_timeout_ms=900_000)[0] == "NONE"
    assert producer.described().timeout_ms == 900_000


@pytest.mark.parametrize("version", [v for v in versions(API) if v >= 3])
def test_a_producer_that_names_its_epoch_gets_the_next_one(broker: Wire, version: int) -> None:
    """The request names its producer id and epoch (KIP-360): repeated it gets the same answer; others are fenced."""
    producer = TransactionalProducer(broker)
    for _ in range(2):
        producer.begin_anew()
    who, epoch = producer.producer_id, producer.epoch
    for _ in range(2):
        assert producer.ask_init(version, producer_id=who, producer_epoch=epoch) == ("NONE", who, epoch + 1)
    fenced = ("PRODUCER_FENCED" if version >= 4 else "INVALID_PRODUCER_EPOCH", -1, -1)
    for other, its_epoch in ((who, epoch - 1), (who, epoch + 2), (who + 1000, epoch + 1), (who + 1000, 0)):
        assert producer.ask_init(version, producer_id=other, producer_epoch=its_epoch) == fenced
    assert producer.ask_init(version) == ("NONE", who, epoch + 2)
    assert producer.ask_init(version, producer_id=who, producer_epoch=epoch + 1) == fenced


@pytest.mark.parametrize("version", [v for v in versions(API) if v >= 3])
def test_after_a_transaction_of_version_2(broker: Wire, topic: Topic, version: int) -> None:
    producer = TransactionalProducer(broker)
    old = producer.twin()
    producer.produce(topic)
    producer.end(commit=True)
    repeated = producer.ask_init(version, producer_id=old.producer_id, producer_epoch=old.epoch)
    assert repeated == ("NONE", producer.producer_id, producer.epoch)
    following = producer.ask_init(version, producer_id=producer.producer_id, producer_epoch=producer.epoch)
    assert following == ("NONE", producer.producer_id, producer.epoch + 1)


@pytest.mark.parametrize("version", versions(API))
@pytest.mark.parametrize("named", [False, True])
def test_an_open_transaction_is_aborted(broker: Wire, topic: Topic, version: int, named: bool) -> None:
    producer = TransactionalProducer(broker)
    producer.produce(topic)
    fields = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch} if named and version >= 3 else {}
    assert producer.ask_init(version, **fields) == ("CONCURRENT_TRANSACTIONS", -1, -1)
    assert producer.wait_until_complete() == "CompleteAbort"
    assert producer.described().epoch == producer.epoch + 1
    (partition,) = fetch_partitions(broker, topic, 0)
    assert [transaction.first_offset for transaction in partition.aborted_transactions] == [0]
    answer = retry_while_busy(lambda: producer.ask_init(version))
    assert answer == ("NONE", producer.producer_id, producer.epoch + 2)


LAST_EPOCH = 32_766


def exhausted(wire: Wire) -> TransactionalProducer:
    """A producer with the last epoch, which it gets by asking again and again: one frame, thousands of times."""
    producer = TransactionalProducer(wire)
    request = InitProducerIdRequest(transactional_id=producer.transactional_id, transaction_timeout_ms=60_000)
    frame = b"".join(ClientConnection("again").request(request, 4))
    size = 4 + 4 + 1 + 4 + 2 + 8 + 2 + 1
    left = LAST_EPOCH - producer.epoch - 1
    while left:
        count = min(left, 500)
        wire.send_raw(frame * count)
        wire.receive_raw(size * count)
        left -= count
    producer.begin_anew()
    assert producer.epoch == LAST_EPOCH
    return producer


def test_after_the_last_epoch_a_transaction_ends_with_another_id(broker: Wire, topic: Topic) -> None:
    producer = exhausted(broker)
    old = producer.twin()
    producer.produce(topic)
    name, producer_id, epoch = producer.ask_end(commit=True)
    assert (name, producer_id != old.producer_id, epoch) == ("NONE", True, 0)
    producer.wait_until_complete()
    assert producer.described()[4:6] == (producer_id, 0)
    assert old.ask_end(commit=True) == ("NONE", producer_id, 0)
    assert old.ask_end(commit=False) == ("INVALID_TXN_STATE", -1, -1)
    assert old.ask_produce(topic)[0] == "INVALID_PRODUCER_EPOCH"
    assert old.ask_init(producer_id=old.producer_id, producer_epoch=LAST_EPOCH) == ("NONE", producer_id, 0)
    producer.begin_anew()
    assert (producer.producer_id, producer.epoch) == (producer_id, 1)


def test_after_the_last_epoch_a_fence_is_still_possible(broker: Wire, topic: Topic) -> None:
    producer = exhausted(broker)
    zombie = producer.twin()
    zombie.produce(topic)
    assert producer.ask_init() == ("CONCURRENT_TRANSACTIONS", -1, -1)
    assert producer.wait_until_complete() == "CompleteAbort"
    following = producer.described()
    assert (following.producer_id != zombie.producer_id, following.epoch) == (True, 0)
    assert zombie.ask_produce(topic)[0] == "INVALID_PRODUCER_EPOCH"
    producer.begin_anew()
    assert (producer.producer_id, producer.epoch) == (following.producer_id, 1)
    producer.produce(topic)
    producer.end(commit=True)


# Versions that may still change.


@pytest.fixture
def unstable() -> Iterator[Wire]:
    """A broker of its own: the answers were seen on an Apache Kafka 4.4 with the same configs."""
    with EmbeddedBroker({"unstable.api.versions.enable": "true"}) as embedded:
        wire = Wire(embedded.address, is_kafka=False)
        yield wire
        wire.close()


@pytest.mark.usefixtures("ottla_only")
def test_version_6_is_served_by_brokers_that_serve_unstable_versions(broker: Wire, unstable: Wire) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    with pytest.raises(Closed):
        broker.send(request, 6)
    assert unstable.send(request, 6).error_code == NONE
    with pytest.raises(Closed):
        broker.send(request, 6)
    asked = ApiVersionsRequest(client_software_name="t", client_software_version="1")
    for wire, last in ((broker, 5), (unstable, 6)):
        (served,) = (row for row in wire.send(asked, 3).api_keys if row.api_key == API.API)
        assert (served.min_version, served.max_version) == (0, last)


@pytest.mark.usefixtures("ottla_only")
def test_two_phases(unstable: Wire) -> None:
    producer = TransactionalProducer(unstable)
    refused = ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", -1, -1)
    assert producer.ask_init(6, enable2_pc=True) == refused
    assert producer.ask_init(6, enable2_pc=True, keep_prepared_txn=True) == refused
    assert producer.ask_init(6, keep_prepared_txn=True) == ("UNSUPPORTED_VERSION", -1, -1)
    assert producer.ask_init(6) == ("NONE", producer.producer_id, 1)
    configs = {"unstable.api.versions.enable": "true", "transaction.two.phase.commit.enable": "true"}
    with EmbeddedBroker(configs) as embedded:
        wire = Wire(embedded.address, is_kafka=False)
        producer = TransactionalProducer(wire)
        for timeout in (60_000, 0, 900_001):
            assert producer.ask_init(6, enable2_pc=True, transaction_timeout_ms=timeout)[0] == "NONE"
        assert producer.described().timeout_ms == 0x7FFFFFFF
        for enable in (True, False):
            answer = producer.ask_init(6, enable2_pc=enable, keep_prepared_txn=True)
            assert answer == ("UNSUPPORTED_VERSION", -1, -1)
        wire.close()
