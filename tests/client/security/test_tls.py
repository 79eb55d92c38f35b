"""TLS in the clients: trust stores and key stores of all kinds, certificates that are not accepted."""

import datetime
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509 import load_pem_x509_certificates

from ottla import Admin
from ottla.client.errors import InvalidClientConfig, NotAuthenticated
from ottla.testing import EmbeddedBroker
from tests.unit.security.tls.certificates import keytool

from .conftest import Configs, Logins, asyncio_round_trip, refusal, round_trip

PASSWORD = "store-secret"
SSL: Configs = {"security.protocol": "SSL"}


@pytest.mark.parametrize("trip", [round_trip, asyncio_round_trip])
def test_tls(logins: Logins, trip: Any) -> None:
    assert trip(logins.at("TLS") | SSL | logins.trusting()) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("trip", [round_trip, asyncio_round_trip])
@pytest.mark.parametrize("listener", ["MTLS", "MAPPED"])
def test_client_certificates(logins: Logins, listener: str, trip: Any) -> None:
    assert trip(logins.at(listener) | SSL | logins.trusting() | logins.holding("alice")) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_versions(logins: Logins, version: str) -> None:
    configs = logins.at("MTLS") | SSL | logins.trusting() | logins.holding("alice")
    assert round_trip(configs | {"ssl.enabled.protocols": version, "ssl.protocol": version}) == [b"a", b"b", b"c"]


def test_the_certificates_of_the_system(logins: Logins, monkeypatch: pytest.MonkeyPatch) -> None:
    configs = logins.at("TLS") | SSL
    assert "certificate verify failed" in str(refusal(configs))
    monkeypatch.setenv("SSL_CERT_FILE", str(logins.broker.certificates / "ca.pem"))
    assert round_trip(configs) == [b"a", b"b", b"c"]


def test_pem_texts_in_the_configs(logins: Logins) -> None:
    pem = (logins.broker.certificates / "alice.pem").read_text()
    certificate = pem.index("-----BEGIN CERTIFICATE-----")
    configs = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": pem[:certificate],
        "ssl.keystore.certificate.chain": pem[certificate:],
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": (logins.broker.certificates / "ca.pem").read_text(),
    }
    assert round_trip(logins.at("MTLS") | SSL | configs) == [b"a", b"b", b"c"]


# PKCS12 and JKS.


def write_pkcs12(logins: Logins, path: Path) -> Path:
    """Write a key store with alice's key."""
    pem = (logins.broker.certificates / "alice.pem").read_bytes()
    key: Any = serialization.load_pem_private_key(pem, None)
    chain = load_pem_x509_certificates(pem)
    encryption = serialization.BestAvailableEncryption(PASSWORD.encode())
    path.write_bytes(pkcs12.serialize_key_and_certificates(b"alice", key, chain[0], chain[1:], encryption))
    return path


def write_trust_store(logins: Logins, path: Path, kind: str) -> Path:
    authority = str(logins.broker.certificates / "ca.pem")
    keytool("-importcert", "-noprompt", "-keystore", str(path), "-storetype", kind, "-storepass", PASSWORD,
            "-alias", "ca", "-file", authority)  # fmt: skip
    return path


def stores(kind: str, key_store: Path, trust_store: Path) -> Configs:
    return {
        "ssl.keystore.type": kind,
        "ssl.keystore.location": str(key_store),
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.type": kind,
        "ssl.truststore.location": str(trust_store),
        "ssl.truststore.password": PASSWORD,
    }


def write_stores(logins: Logins, directory: Path, kind: str) -> Configs:
    key_store = write_pkcs12(logins, directory / "key.p12")
    trust_store = write_trust_store(logins, directory / "trust", kind)
    if kind == "JKS":
        converted = directory / "key.jks"
        keytool("-importkeystore", "-srckeystore", str(key_store), "-srcstoretype", "PKCS12", "-srcstorepass", PASSWORD,
                "-destkeystore", str(converted), "-deststoretype", "JKS", "-deststorepass", PASSWORD,
                "-destkeypass", PASSWORD)  # fmt: skip
        key_store = converted
    return stores(kind, key_store, trust_store)


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_stores_of_java(logins: Logins, tmp_path: Path, kind: str) -> None:
    configs = logins.at("MTLS") | SSL | write_stores(logins, tmp_path, kind)
    assert round_trip(configs) == [b"a", b"b", b"c"]
    with pytest.raises(InvalidClientConfig) as caught:
        Admin(configs | {"ssl.keystore.password": "hidden-1"})
    assert f"Failed to load SSL keystore {configs['ssl.keystore.location']} of type {kind}" in str(caught.value)
    assert "hidden-1" not in str(caught.value)


def test_a_missing_store(logins: Logins, tmp_path: Path) -> None:
    configs = logins.at("TLS") | SSL | logins.trusting() | {"ssl.truststore.location": str(tmp_path / "missing.pem")}
    with pytest.raises(InvalidClientConfig) as caught:
        Admin(configs)
    assert "missing.pem: [Errno 2] No such file or directory" in str(caught.value)
    assert "\n" not in str(caught.value)


# Certificates that are not accepted.


def test_an_untrusted_broker(logins: Logins, caplog: pytest.LogCaptureFixture) -> None:
    error = refusal(logins.at("TLS") | SSL | logins.trusting("stranger-ca.pem"))
    assert isinstance(error, NotAuthenticated)
    assert "certificate verify failed" in str(error)
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1


@pytest.mark.parametrize(
    ("certificate", "reasons"),
    [
        (None, ("the other side requires a certificate, and none was sent", "BAD_CERTIFICATE")),
        ("mallory", ("the other side does not trust the authority that signed", "CERTIFICATE_UNKNOWN")),
    ],
)
def test_a_client_certificate_that_is_missing_or_untrusted(
    logins: Logins, certificate: str | None, reasons: tuple[str, str]
) -> None:
    """Apache Kafka sends other alerts than OpenSSL."""
    configs = logins.at("MTLS") | SSL | logins.trusting()
    error = refusal(configs | (logins.holding(certificate) if certificate else {}))
    assert isinstance(error, NotAuthenticated)
    assert any(reason in str(error) for reason in reasons)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[tuple[Configs, trustme.CA]]:
    """A broker whose certificate is for another host, and the configs of its clients."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    issued = authority.issue_cert("elsewhere.example")
    issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / "broker.pem")
    yield from serving(tmp_path, authority)


def serving(directory: Path, authority: trustme.CA) -> Iterator[tuple[Configs, trustme.CA]]:
    values = {
        "listeners": "SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "ca.pem"),
        "group.initial.rebalance.delay.ms": "0",
    }
    with EmbeddedBroker(values) as embedded:
        port = embedded.broker.listeners.bound[0][1][1]
        configs = {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(directory / "ca.pem"),
        }
        yield configs | SSL, authority


def test_a_certificate_for_another_host(elsewhere: tuple[Configs, trustme.CA]) -> None:
    configs, _ = elsewhere
    error = refusal(configs)
    assert isinstance(error, NotAuthenticated)
    assert "IP address mismatch, certificate is not valid for '127.0.0.1'" in str(error)
    assert round_trip(configs | {"ssl.endpoint.identification.algorithm": ""}) == [b"a", b"b", b"c"]


def test_without_the_check_of_names_the_authority_is_still_checked(
    elsewhere: tuple[Configs, trustme.CA], logins: Logins
) -> None:
    configs, _ = elsewhere
    error = refusal(configs | logins.trusting("stranger-ca.pem") | {"ssl.endpoint.identification.algorithm": ""})
    assert isinstance(error, NotAuthenticated)
    assert "certificate verify failed" in str(error)


@pytest.fixture
def expired(tmp_path: Path) -> Iterator[tuple[Configs, trustme.CA]]:
    """A broker whose certificate has expired while it was running."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=3)
    issued = authority.issue_cert("127.0.0.1", not_after=until)
    issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / "broker.pem")
    for served in serving(tmp_path, authority):
        time.sleep(max((until - datetime.datetime.now(datetime.UTC)).total_seconds(), 0) + 1)
        yield served


def test_an_expired_certificate(expired: tuple[Configs, trustme.CA]) -> None:
    configs, _ = expired
    error = refusal(configs)
    assert isinstance(error, NotAuthenticated)
    assert "certificate has expired" in str(error)
