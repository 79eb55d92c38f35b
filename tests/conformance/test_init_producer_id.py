"""InitProducerId without transactions, over a socket."""

import pytest

from ottla.protocol.errors import COORDINATOR_LOAD_IN_PROGRESS, INVALID_REQUEST, NONE
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest

from .conftest import Wire, versions
from .members import wait_for

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
