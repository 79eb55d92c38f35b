"""DescribeCluster, over a socket."""

import pytest

from ottla.protocol.errors import MISMATCHED_ENDPOINT_TYPE, NONE, UNSUPPORTED_ENDPOINT_TYPE
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.metadata import MetadataRequest

from .conftest import Wire, versions

API = DescribeClusterRequest


@pytest.mark.parametrize("version", versions(API))
def test_the_cluster_and_its_broker(broker: Wire, version: int) -> None:
    answer = broker.send(DescribeClusterRequest(), version)
    assert (answer.error_code, answer.error_message) == (NONE, None)
    metadata = broker.send(MetadataRequest(topics=[]), 12)
    assert answer.cluster_id == metadata.cluster_id
    (node,) = answer.brokers
    assert (node.host, node.port) == broker.address
    assert (node.broker_id, node.rack, node.is_fenced) == (metadata.brokers[0].node_id, None, False)
    assert answer.controller_id == node.broker_id
    assert answer.endpoint_type == 1
    assert answer.cluster_authorized_operations == -(2**31)


@pytest.mark.parametrize("version", versions(API))
def test_authorized_operations_when_asked_for(broker: Wire, version: int) -> None:
    answer = broker.send(DescribeClusterRequest(include_cluster_authorized_operations=True), version)
    assert answer.cluster_authorized_operations == 0b1_1111_1010_0000


@pytest.mark.parametrize("version", [v for v in versions(API) if v >= 1])
@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [
        (2, MISMATCHED_ENDPOINT_TYPE),
        (0, UNSUPPORTED_ENDPOINT_TYPE),
        (3, UNSUPPORTED_ENDPOINT_TYPE),
        (-1, UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
def test_other_endpoint_types_than_brokers_are_refused(
    broker: Wire, version: int, endpoint_type: int, code: int
) -> None:
    answer = broker.send(DescribeClusterRequest(endpoint_type=endpoint_type), version)
    assert (answer.error_code, answer.cluster_id, answer.controller_id, answer.brokers) == (code, "", -1, [])
    assert answer.error_message == (
        f"Unsupported endpoint type {endpoint_type}"
        if endpoint_type != 2
        else "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
    )


@pytest.mark.parametrize("version", [2])
def test_fenced_brokers_are_left_out_or_not_there(broker: Wire, version: int) -> None:
    answer = broker.send(DescribeClusterRequest(include_fenced_brokers=True), version)
    assert [node.is_fenced for node in answer.brokers] == [False]
