"""FindCoordinator, over a socket."""

from typing import Any

import pytest

from ottla.protocol.errors import COORDINATOR_NOT_AVAILABLE, INVALID_REQUEST, NONE, error
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest

from .conftest import Wire, versions
from .members import new_group, wait_for

API = FindCoordinatorRequest


def ask(version: int, key: str, key_type: int = 0) -> FindCoordinatorRequest:
    fields: dict[str, Any] = {"key_type": key_type} if version >= 1 else {}
    return (
        FindCoordinatorRequest(coordinator_keys=[key], **fields)
        if version >= 4
        else FindCoordinatorRequest(key=key, **fields)
    )


def coordinator_of(wire: Wire, version: int, key: str, key_type: int = 0) -> Any:
    answer = wire.send(ask(version, key, key_type), version)
    return answer.coordinators[0] if version >= 4 else answer


@pytest.mark.parametrize("version", versions(API))
@pytest.mark.parametrize("key", ["group", "", "gr\u00fcppe", "a:b"])
def test_the_coordinator_of_a_group_is_this_broker(broker: Wire, version: int, key: str) -> None:
    new_group(broker)
    answer = coordinator_of(broker, version, key)
    assert (answer.error_code, answer.node_id) == (NONE, 1)
    assert (answer.host, answer.port) == broker.address
    assert answer.error_message == ("NONE" if 1 <= version <= 3 else "")
    if version >= 4:
        assert answer.key == key


@pytest.mark.parametrize("version", [v for v in versions(API) if v >= 1])
def test_the_coordinator_of_a_transactional_id(broker: Wire, version: int) -> None:
    wait_for(lambda: coordinator_of(broker, version, "txn", 1).error_code != COORDINATOR_NOT_AVAILABLE)
    answer = coordinator_of(broker, version, "txn", 1)
    assert (answer.error_code, answer.node_id, answer.port) == (NONE, 1, broker.address[1])


@pytest.mark.parametrize("version", [v for v in versions(API) if v >= 1])
@pytest.mark.parametrize("key_type", [-1, 3, 127])
def test_key_types_that_do_not_exist(broker: Wire, version: int, key_type: int) -> None:
    answer = coordinator_of(broker, version, "x", key_type)
    assert (answer.error_code, answer.node_id, answer.host, answer.port) == (INVALID_REQUEST, -1, "", -1)
    assert answer.error_message == error(INVALID_REQUEST).message


@pytest.mark.parametrize("version", [4, 5])
def test_share_keys_need_version_6(broker: Wire, version: int) -> None:
    answer = coordinator_of(broker, version, "g:AAAAAAAAAAAAAAAAAAAAAQ:0", 2)
    assert (answer.error_code, answer.node_id, answer.error_message) == (INVALID_REQUEST, -1, "")


@pytest.mark.parametrize(
    "key", ["", "x", "g:0", "g:AAAAAAAAAAAAAAAAAAAAAQ", "g:AAAAAAAAAAAAAAAAAAAAAQ:x", "g:not-an-id:0"]
)
def test_invalid_share_keys_are_refused(broker: Wire, key: str) -> None:
    answer = coordinator_of(broker, 6, key, 2)
    assert (answer.error_code, answer.node_id, answer.error_message) == (INVALID_REQUEST, -1, "")


def test_several_keys(broker: Wire) -> None:
    new_group(broker)
    answer = broker.send(FindCoordinatorRequest(coordinator_keys=["a", "b", "a"], key_type=0), 4)
    assert sorted({(row.key, row.error_code, row.node_id) for row in answer.coordinators}) == [
        ("a", 0, 1),
        ("b", 0, 1),
    ]
    assert broker.send(FindCoordinatorRequest(coordinator_keys=[], key_type=0), 4).coordinators == []
