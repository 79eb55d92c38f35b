"""Requests to a broker that does not coordinate their group or their transactional id."""

from typing import Any

import pytest

from ottla.protocol.errors import name_of
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.join_group import JoinGroupRequest
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.conformance.conftest import Wire
from tests.conformance.members import join_request

from .brokers import NODES
from .conftest import Cluster
from .coordinators import GROUP, TRANSACTION, coordinated_by


@pytest.fixture(name="group_id", scope="module")
def _group_id(cluster: Cluster) -> str:
    """A group of broker 1, which has loaded it."""
    group_id = coordinated_by(cluster, GROUP, 1)
    request = HeartbeatRequest(group_id=group_id, member_id="nobody", generation_id=0)
    cluster.wait(lambda: name_of(cluster[1].send(request, 3).error_code) == "UNKNOWN_MEMBER_ID")
    return group_id


def join(wire: Wire, request: JoinGroupRequest) -> tuple[str, str]:
    """Return the error and the member id of a response to JoinGroup."""
    answer = wire.send(request, 5)
    return name_of(answer.error_code), answer.member_id


def test_a_member_that_joins_elsewhere(cluster: Cluster, group_id: str) -> None:
    request = join_request(group_id, 5, member_id="someone")
    assert join(cluster[1], request) == ("UNKNOWN_MEMBER_ID", "someone")
    for node_id in NODES[1:]:
        assert join(cluster[node_id], request) == ("NOT_COORDINATOR", "")


@pytest.mark.parametrize("timeout_ms", [5_999, 1_800_001])
def test_any_broker_checks_the_session_timeout(cluster: Cluster, group_id: str, timeout_ms: int) -> None:
    request = join_request(group_id, 5, member_id="someone", session_timeout_ms=timeout_ms)
    for node_id in NODES:
        assert join(cluster[node_id], request) == ("INVALID_SESSION_TIMEOUT", "someone")


def test_the_group_id_is_checked_before_the_session_timeout(cluster: Cluster) -> None:
    request = join_request("", 5, member_id="someone", session_timeout_ms=0)
    for node_id in NODES:
        assert join(cluster[node_id], request) == ("INVALID_GROUP_ID", "someone")


def initialize(wire: Wire, transactional_id: str, **fields: int) -> str:
    """Return the error of InitProducerId."""
    body: dict[str, Any] = {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000} | fields
    return name_of(wire.send(InitProducerIdRequest(**body), 5).error_code)


@pytest.mark.parametrize("version", [3, 4, 5])
def test_offsets_of_a_transaction_committed_elsewhere(cluster: Cluster, group_id: str, version: int) -> None:
    transactional_id = coordinated_by(cluster, TRANSACTION, 1)
    cluster.wait(lambda: initialize(cluster[1], transactional_id) == "NONE")
    row = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    request = TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group_id,
        producer_id=1 << 40,
        producer_epoch=0,
        topics=[TxnOffsetCommitRequestTopic(name=cluster.topic([1]).name, partitions=[row])],
    )
    for node_id in NODES[1:]:
        answer = cluster[node_id].send(request, version)
        assert [name_of(row.error_code) for row in answer.topics[0].partitions] == ["NOT_COORDINATOR"]


def test_a_transactional_id_that_starts_elsewhere(cluster: Cluster) -> None:
    transactional_id = coordinated_by(cluster, TRANSACTION, 1)

    for node_id in NODES[1:]:
        wire = cluster[node_id]
        assert initialize(wire, transactional_id) == "NOT_COORDINATOR"
        for timeout_ms in (0, -1, 900_001):
            assert (
                initialize(wire, transactional_id, transaction_timeout_ms=timeout_ms) == "INVALID_TRANSACTION_TIMEOUT"
            )
        assert initialize(wire, "") == "INVALID_REQUEST"
        assert initialize(wire, transactional_id, producer_id=1) == "INVALID_REQUEST"
