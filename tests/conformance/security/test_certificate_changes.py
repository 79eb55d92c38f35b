"""Changes of a listener's certificate while the broker runs (KIP-226)."""

import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme

from ottla.protocol.errors import INVALID_REQUEST, NONE, SASL_AUTHENTICATION_FAILED
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.metadata import MetadataRequest
from tests.conformance.conftest import Closed
from tests.conformance.security.conftest import Secured, SecuredWire
from tests.conformance.security.secured import UNIT, write_key_store

Connect = Callable[..., SecuredWire]
LOCATION = "listener.name.tls.ssl.keystore.location"
DELETE = 1


@pytest.fixture
def plain(connect: Connect) -> SecuredWire:
    return connect("PLAINTEXT")


def alter(wire: SecuredWire, name: str, value: str | None, *, broker: str = "1") -> tuple[int, str | None]:
    operation = DELETE if value is None else 0
    config = AlterableConfig(name=name, config_operation=operation, value=value)
    resource = AlterConfigsResource(resource_type=4, resource_name=broker, configs=[config])
    answer = wire.send(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses[0]
    return answer.error_code, answer.error_message


def serial(secured: Secured, listener: str = "TLS") -> Any:
    """Serial number of the certificate that a new connection gets."""
    context = secured.tls_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    wire = SecuredWire(secured, listener, context)
    tls = wire.socket()
    assert isinstance(tls, ssl.SSLSocket)
    certificate = tls.getpeercert(binary_form=True)
    wire.close()
    return certificate


def new_store(secured: Secured, directory: Path, *names: str, common_name: str = "broker") -> Path:
    """A key store with a new certificate of the same authority."""
    authority = trustme.CA.from_pem(
        (secured.certificates / "ca.pem").read_bytes(), (secured.certificates / "ca.key.pem").read_bytes()
    )
    issued = authority.issue_cert(
        *(names or ("localhost", "127.0.0.1")), common_name=common_name, organization_unit_name=UNIT
    )
    issued.private_key_and_cert_chain_pem.write_to_path(directory / "new.pem")
    return write_key_store(directory / "new.pem")


def test_new_connections_get_the_new_certificate(
    connect: Connect, secured: Secured, plain: SecuredWire, tmp_path: Path
) -> None:
    before = serial(secured)
    open_wire = connect("TLS", secured.tls_context())
    assert open_wire.send(MetadataRequest(topics=[]), 12).brokers
    assert alter(plain, LOCATION, str(new_store(secured, tmp_path))) == (NONE, None)
    deadline = time.monotonic() + 10
    while serial(secured) == before:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert open_wire.send(MetadataRequest(topics=[]), 12).brokers
    assert alter(plain, LOCATION, None) == (NONE, None)
    while serial(secured) != before:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_certificate_of_another_subject(secured: Secured, plain: SecuredWire, tmp_path: Path) -> None:
    before = serial(secured)
    code, text = alter(plain, LOCATION, str(new_store(secured, tmp_path, common_name="other")))
    assert code == INVALID_REQUEST
    assert "Keystore DistinguishedName does not match: " in str(text)
    assert serial(secured) == before


def test_a_certificate_with_other_names(secured: Secured, plain: SecuredWire, tmp_path: Path) -> None:
    code, text = alter(plain, LOCATION, str(new_store(secured, tmp_path, "elsewhere.example")))
    assert code == INVALID_REQUEST
    assert "Keystore SubjectAltNames do not match: " in str(text)


@pytest.mark.parametrize("content", [None, "garbage"])
def test_a_missing_or_broken_file(secured: Secured, plain: SecuredWire, tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "store.pem"
    if content is not None:
        path.write_text(content)
    code, text = alter(plain, LOCATION, str(path))
    assert code == INVALID_REQUEST
    assert f"Failed to load PEM SSL keystore {path}" in str(text)


def test_without_the_prefix_of_a_listener(plain: SecuredWire, secured: Secured) -> None:
    code, text = alter(plain, "ssl.keystore.location", str(secured.certificates / "broker.store.pem"))
    assert code == INVALID_REQUEST
    assert text is not None
    assert text.startswith(
        "These security configs can be dynamically updated only per-listener using the listener prefix"
    )
    assert "ssl.keystore.location" in text


def test_for_all_brokers(plain: SecuredWire, secured: Secured) -> None:
    code, text = alter(plain, LOCATION, str(secured.certificates / "broker.store.pem"), broker="")
    assert code == INVALID_REQUEST
    assert text is not None
    assert text.startswith("Cannot update these configs at default cluster level, broker id must be specified")


@pytest.mark.parametrize("name", ["connection.failed.authentication.delay.ms", "delegation.token.max.lifetime.ms"])
def test_configs_that_need_a_restart(plain: SecuredWire, name: str) -> None:
    code, text = alter(plain, name, "5000")
    assert (code, text) == (INVALID_REQUEST, f"Cannot update these configs dynamically: [{name}]")


def test_configs_of_a_listener_that_are_stored_without_effect(plain: SecuredWire) -> None:
    for name, value in (("sasl.enabled.mechanisms", "PLAIN"), ("ssl.client.auth", "none")):
        name = f"listener.name.sasl.{name}"
        assert alter(plain, name, value) == (NONE, None)
        assert alter(plain, name, None) == (NONE, None)


def test_description_of_the_configs_of_a_listener(plain: SecuredWire) -> None:
    resource = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
    rows = {row.name: row for row in plain.send(request, 4).results[0].configs}
    described = {
        name.removeprefix("listener.name.short."): (
            row.value,
            row.read_only,
            row.config_source,
            row.is_sensitive,
            row.config_type,
            row.documentation,
            [(synonym.name, synonym.value, synonym.source) for synonym in row.synonyms],
        )
        for name, row in rows.items()
        if name.startswith("listener.name.short.plain.") or name == "listener.name.short.sasl.enabled.mechanisms"
    }
    assert described == {
        "plain.sasl.jaas.config": (
            *(None, True, 4, True, 9, None),
            [("listener.name.short.plain.sasl.jaas.config", None, 4)],
        ),
        "plain.connections.max.reauth.ms": (
            *("3000", True, 4, False, 5, None),
            [
                ("listener.name.short.plain.connections.max.reauth.ms", "3000", 4),
                ("connections.max.reauth.ms", "0", 5),
            ],
        ),
        "sasl.enabled.mechanisms": (
            *("PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER", True, 4, False, 7, None),
            [
                ("listener.name.short.sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER", 4),
                ("sasl.enabled.mechanisms", "GSSAPI", 5),
            ],
        ),
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ssl.client.auth", "none"),
        ("listener.name.mtls.ssl.client.auth", "none"),
        ("listener.name.mtls.ssl.principal.mapping.rules", "RULE:^.*$/admin/"),
        ("listener.name.sasl.sasl.enabled.mechanisms", "NONSENSE"),
        ("listener.name.sasl.plain.sasl.jaas.config", "malformed"),
        (
            "listener.name.sasl.plain.sasl.jaas.config",
            'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="guess";',
        ),
    ],
)
def test_stored_configs_of_logins_have_no_effect(
    connect: Connect, secured: Secured, plain: SecuredWire, name: str, value: str
) -> None:
    assert alter(plain, name, value) == (NONE, None)
    try:
        with pytest.raises((Closed, OSError)):
            connect("MTLS", secured.tls_context()).send(MetadataRequest(topics=[]), 12)
        assert connect("SASL").log_in("alice").error_code == NONE
        assert connect("SASL").log_in("alice", "guess").error_code == SASL_AUTHENTICATION_FAILED
    finally:
        assert alter(plain, name, None) == (NONE, None)
