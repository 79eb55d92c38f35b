"""Listeners with TLS: versions, certificates of clients, principals, and clients without TLS."""

import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from ottla.protocol.errors import NONE
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.security.tls.der import subject
from ottla.testing import EmbeddedBroker
from tests.conformance.conftest import Closed, TopicFactory
from tests.conformance.security.conftest import ScramClient, Secured, SecuredWire
from tests.conformance.security.secured import make_certificates
from tests.unit.security.tls.certificates import requested_authorities

Connect = Callable[..., SecuredWire]
SERVER_HELLO_DONE = bytes((14, 0, 0, 0))
INTERNAL_ERROR = bytes((0x15, 3, 3, 0, 2, 2, 80))


def served(wire: SecuredWire) -> bool:
    return bool(wire.send(MetadataRequest(topics=[]), 12).brokers)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_versions(connect: Connect, secured: Secured, version: ssl.TLSVersion) -> None:
    context = secured.tls_context()
    context.minimum_version = context.maximum_version = version
    wire = connect("TLS", context)
    assert served(wire)
    tls = wire.socket()
    assert isinstance(tls, ssl.SSLSocket)
    assert tls.version() == {ssl.TLSVersion.TLSv1_2: "TLSv1.2", ssl.TLSVersion.TLSv1_3: "TLSv1.3"}[version]


def test_tls_1_1_is_refused(connect: Connect, secured: Secured) -> None:
    context = secured.tls_context()
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises(ssl.SSLError, match=r"PROTOCOL_VERSION|NO_PROTOCOLS"):
        connect("TLS", context).socket()


def test_the_advertised_address_is_that_of_the_listener(connect: Connect, secured: Secured) -> None:
    for listener in ("TLS", "SASLTLS", "SASL", "PLAINTEXT"):
        wire = connect(listener, secured.tls_context() if "TLS" in listener else None)
        if listener.startswith("SASL"):
            assert wire.log_in().error_code == NONE
        brokers = wire.send(MetadataRequest(topics=[]), 12).brokers
        assert [(broker.host, broker.port) for broker in brokers] == [secured.address(listener)]


def test_large_responses_and_requests(connect: Connect, secured: Secured) -> None:
    wire = connect("TLS", secured.tls_context())
    topic = TopicFactory(wire)(max_message_bytes="3000000")
    for _ in range(4):
        from ottla.records.batch import build
        from ottla.records.record import Record

        batch = build([Record(0, 1_700_000_000_000, None, bytes(range(256)) * 8000)])
        assert topic.produce(batch).error_code == NONE
    from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100_000_000)
    request = FetchRequest(
        max_wait_ms=1000, max_bytes=100_000_000, topics=[FetchTopic(topic=topic.name, partitions=[part])]
    )
    fetched = wire.send(request, 11).responses[0].partitions[0]
    assert fetched.error_code == NONE
    assert len(fetched.records) > 4 * 2_048_000
    parts = [ListOffsetsPartition(partition_index=0, timestamp=-1)]
    offsets = wire.send(
        ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic.name, partitions=parts)]), 5
    )
    assert offsets.topics[0].partitions[0].offset == 4


def test_a_required_certificate(connect: Connect, secured: Secured) -> None:
    assert served(connect("MTLS", secured.tls_context("alice")))


@pytest.mark.parametrize("certificate", [None, "mallory"])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_missing_or_untrusted_certificate_is_refused(
    connect: Connect, secured: Secured, certificate: str | None, version: ssl.TLSVersion
) -> None:
    context = secured.tls_context(certificate)
    context.minimum_version = context.maximum_version = version
    with pytest.raises((ssl.SSLError, Closed, ConnectionError)):
        served(connect("MTLS", context))


def test_a_requested_certificate(connect: Connect, secured: Secured) -> None:
    assert served(connect("MAPPED", secured.tls_context("alice")))


def test_a_requested_certificate_that_is_missing(connect: Connect, secured: Secured) -> None:
    assert served(connect("MAPPED", secured.tls_context()))


def test_a_requested_certificate_that_is_untrusted(connect: Connect, secured: Secured) -> None:
    with pytest.raises((ssl.SSLError, Closed, ConnectionError)):
        served(connect("MAPPED", secured.tls_context("mallory")))


@pytest.mark.parametrize("listener", ["MTLS", "MAPPED", "TLS"])
def test_certificate_request_names_the_authorities_of_the_trust_store(secured: Secured, listener: str) -> None:
    authority = ssl.PEM_cert_to_DER_cert((secured.certificates / "ca.pem").read_text())
    context = secured.tls_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # whose first flight is not encrypted
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    with socket.create_connection(secured.address(listener), timeout=10) as plain:
        plain.sendall(outgoing.read())
        flight = b""
        while not flight.endswith(SERVER_HELLO_DONE):
            flight += plain.recv(1 << 16)
    assert requested_authorities(flight) == (None if listener == "TLS" else [subject(authority)])


def test_a_certificate_without_a_mapping_rule_is_refused_after_the_handshake(
    connect: Connect, secured: Secured
) -> None:
    wire = connect("MAPPED", secured.tls_context("bob"))
    wire.socket()
    with pytest.raises((Closed, ssl.SSLError, ConnectionError)):
        served(wire)


def test_sasl_over_tls(connect: Connect, secured: Secured) -> None:
    wire = connect("SASLTLS", secured.tls_context())
    client = ScramClient("SCRAM-SHA-512", "scram", "scram-secret")
    assert wire.handshake("SCRAM-SHA-512").error_code == NONE
    assert wire.authenticate(client.final(wire.authenticate(client.first).auth_bytes)).error_code == NONE
    assert served(wire)


def test_the_broker_ignores_the_name_that_the_client_sends(secured: Secured) -> None:
    context = ssl.create_default_context(cafile=secured.certificates / "ca.pem")
    context.check_hostname = False
    for name in ("elsewhere.example", None):
        with (
            socket.create_connection(secured.address("TLS"), timeout=10) as plain,
            context.wrap_socket(plain, server_hostname=name) as tls,
        ):
            assert tls.getpeercert()


@pytest.mark.parametrize("data", [bytes.fromhex("0000000a00120000000000010000"), b"GET / HTTP/1.1\r\n\r\n"])
def test_a_client_without_tls(secured: Secured, data: bytes) -> None:
    with socket.create_connection(secured.address("TLS"), timeout=10) as plain:
        plain.sendall(data)
        assert read_to_end(plain) == INTERNAL_ERROR


def test_a_client_with_tls_on_a_listener_without(secured: Secured, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_connection(secured.address("PLAINTEXT"), timeout=10) as plain:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = secured.tls_context().wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        with pytest.raises(ssl.SSLWantReadError):
            tls.do_handshake()
        plain.sendall(outgoing.read())
        assert read_to_end(plain) == b""
    if not secured.is_kafka:
        assert "the first bytes are TLS, and this listener has none" in caplog.text


def read_to_end(plain: socket.socket) -> bytes:
    data = b""
    while True:
        try:
            more: Any = plain.recv(100)
        except ConnectionResetError:
            return data
        if not more:
            return data
        data += more


def test_listener_with_a_name_and_outdated_protocols(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, ottla_only: None
) -> None:
    """Clients are sent the name in `listeners`; TLSv1.1 is left out with a warning, where Apache Kafka has none."""
    make_certificates(tmp_path)
    values = {
        "listeners": "SSL://localhost:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(tmp_path / "broker.pem"),
        "ssl.enabled.protocols": "TLSv1.1,TLSv1.2",
    }
    with EmbeddedBroker(values) as embedded:
        _, port = embedded.address
        secured = Secured({"SSL": port}, tmp_path, is_kafka=False)
        wire = SecuredWire(secured, "SSL", secured.tls_context())
        brokers = wire.send(MetadataRequest(topics=[]), 12).brokers
        wire.close()
    assert [(broker.host, broker.port) for broker in brokers] == [("localhost", port)]
    assert [line for line in caplog.messages if "leaves out TLSv1.1 of ssl.enabled.protocols" in line]


def test_librdkafka_sends_no_certificate_of_another_authority(secured: Secured) -> None:
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": f"127.0.0.1:{secured.ports['MAPPED']}",
        "security.protocol": "ssl",
        "ssl.ca.location": str(secured.certificates / "ca.pem"),
        "ssl.certificate.location": str(secured.certificates / "mallory.pem"),
        "ssl.key.location": str(secured.certificates / "mallory.pem"),
    }
    assert AdminClient(settings).list_topics(timeout=10).brokers
