"""ApiVersions, over a socket."""

import struct

import pytest

from ottla.protocol import codec
from ottla.protocol.api import API_VERSIONS, PRODUCE
from ottla.protocol.errors import INVALID_REQUEST, NONE, REBOOTSTRAP_REQUIRED, UNSUPPORTED_VERSION
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest

from .conftest import Closed, Wire, versions

API = ApiVersionsRequest


@pytest.mark.parametrize("version", versions(API))
def test_every_version_lists_the_apis(broker: Wire, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="conformance", client_software_version="1.0")
    answer = broker.send(request, version)
    assert answer.error_code == NONE
    ranges = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}
    assert ranges[API_VERSIONS][0] == 0
    assert ranges[PRODUCE][0] == 0  # KAFKA-18659: librdkafka wants to see it


@pytest.mark.parametrize("version", versions(API))
def test_features(broker: Wire, version: int) -> None:
    answer = broker.send(ApiVersionsRequest(client_software_name="c", client_software_version="1"), version)
    supported = {feature.name: (feature.min_version, feature.max_version) for feature in answer.supported_features}
    finalized = {
        feature.name: (feature.min_version_level, feature.max_version_level) for feature in answer.finalized_features
    }
    if version < 3:
        assert (supported, finalized, answer.finalized_features_epoch) == ({}, {}, -1)
        return
    assert answer.finalized_features_epoch >= 0
    assert supported["metadata.version"] == (7, 33)
    assert supported.get("kraft.version", (0, 1)) == (0, 1)
    assert ("kraft.version" in supported) == (version >= 4)
    assert finalized["metadata.version"] == (33, 33)
    for name, (lowest, highest) in supported.items():
        assert lowest <= finalized.get(name, (0, 0))[1] <= highest
        assert lowest > 0 or version >= 4


def test_an_unknown_version_is_answered_in_version_0(broker: Wire) -> None:
    broker.send_raw(struct.pack(">ihhihb", 11, API_VERSIONS, 999, 7, -1, 0))
    size, correlation_id = struct.unpack(">ii", broker.receive_raw(8))
    answer, _ = codec.decode(ApiVersionsResponse, 0, broker.receive_raw(size - 4))
    assert correlation_id == 7
    assert answer.error_code == UNSUPPORTED_VERSION
    assert [key.api_key for key in answer.api_keys] == [API_VERSIONS]
    assert answer.api_keys[0].max_version >= 4
    assert broker.send(ApiVersionsRequest(), 0).error_code == NONE


@pytest.mark.parametrize("name", ["", "-bad", "bad-", "with space", "ümlaut"])
def test_software_names_must_be_identifiers(broker: Wire, name: str) -> None:
    for request in (
        ApiVersionsRequest(client_software_name=name, client_software_version="1"),
        ApiVersionsRequest(client_software_name="x", client_software_version=name),
    ):
        assert broker.send(request, 3).error_code == INVALID_REQUEST


@pytest.mark.parametrize("version", [5])
def test_a_client_that_names_another_broker_must_rebootstrap(broker: Wire, version: int) -> None:
    cluster = broker.send(DescribeClusterRequest(), 0)
    node = cluster.brokers[0].broker_id

    def ask(cluster_id: str | None, node_id: int) -> int:
        request = ApiVersionsRequest(
            client_software_name="x", client_software_version="1", cluster_id=cluster_id, node_id=node_id
        )
        return int(broker.another().send(request, version).error_code)

    assert ask(cluster.cluster_id, node) == NONE
    assert ask(cluster.cluster_id, -1) == INVALID_REQUEST
    assert ask(None, node) == INVALID_REQUEST
    assert ask("another-cluster", node) == REBOOTSTRAP_REQUIRED
    assert ask(cluster.cluster_id, node + 1) == REBOOTSTRAP_REQUIRED


@pytest.mark.parametrize(
    ("length", "client_id"),
    [(-1, b""), (-2, b""), (0, b""), (9, "klient-ß".encode()), (2, b"\xff\xfe")],
    ids=["null", "negative", "empty", "not ASCII", "not UTF-8"],
)
@pytest.mark.parametrize(
    ("version", "rest"),
    [(0, b""), (3, b"\0\2x\2y\0"), (3, b"\1\7\4more\2x\2y\0")],
    ids=["header 1", "header 2", "tagged field"],
)
def test_any_client_id_is_served(broker: Wire, length: int, client_id: bytes, version: int, rest: bytes) -> None:
    header = struct.pack(">hhih", API_VERSIONS, version, 7, length) + client_id
    broker.send_raw(struct.pack(">i", len(header + rest)) + header + rest)
    size, correlation_id = struct.unpack(">ii", broker.receive_raw(8))
    answer, _ = codec.decode(ApiVersionsResponse, version, broker.receive_raw(size - 4))
    assert (correlation_id, answer.error_code) == (7, NONE)


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">ihhih", 10, 999, 0, 1, -1),  # an API that nobody knows
        struct.pack(">ihhih", 10, 3, 999, 1, -1),  # a version that nobody knows
        struct.pack(">ihhih", 10, 3, -1, 1, -1),
        struct.pack(">i", 2) + b"\x00\x12",  # shorter than a header
        struct.pack(">i", -1),
        struct.pack(">i", 0x7FFFFFFF),  # larger than socket.request.max.bytes
        struct.pack(">ihhihi", 14, 3, 1, 1, -1, 1 << 30),  # a list that claims a billion topics
        struct.pack(">ihhih", 10, 3, 1, 1, 100),  # a client id beyond the frame
    ],
)
def test_an_invalid_frame_closes_its_connection_only(broker: Wire, frame: bytes) -> None:
    other = broker.another()
    assert other.send(ApiVersionsRequest(), 0).error_code == NONE
    broker.send_raw(frame)
    with pytest.raises(Closed):
        broker.receive_raw(1)
    assert other.send(ApiVersionsRequest(), 0).error_code == NONE


def test_pipelined_requests_are_answered_in_order(broker: Wire) -> None:
    for _ in range(50):
        broker.send_only(ApiVersionsRequest(), 0)
    for _ in range(50):
        assert broker.receive().error_code == NONE  # the connection checks correlation ids
