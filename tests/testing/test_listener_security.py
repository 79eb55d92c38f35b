"""Listeners of an embedded broker: stores of all types, a principal builder in Python, secrets that nothing shows."""

import logging
import ssl
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12

import ottla
from ottla.broker.security.principals import AuthenticationContext
from ottla.client.admin.configs import ResourceType
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.testing import EmbeddedBroker
from tests.conformance.conftest import Wire
from tests.unit.security.tls.certificates import keytool

SECRET = "s3cret-passw0rd"


class Builder:
    """Principals by the address of the client."""

    def build(self, context: AuthenticationContext) -> str:
        assert context.listener == "SSL"
        assert context.user is None
        return f"User:{context.address}-{'with' if context.certificate else 'without'}"


@pytest.fixture
def authority(tmp_path: Path) -> trustme.CA:
    made = trustme.CA()
    made.cert_pem.write_to_path(tmp_path / "ca.pem")
    return made


def pkcs12_store(directory: Path, authority: trustme.CA) -> Path:
    issued = authority.issue_cert("127.0.0.1")
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    (leaf,) = (x509.load_pem_x509_certificate(pem.bytes()) for pem in issued.cert_chain_pems)
    path = directory / "store.p12"
    password = BestAvailableEncryption(SECRET.encode())
    path.write_bytes(pkcs12.serialize_key_and_certificates(b"broker", key, leaf, None, password))  # type: ignore[arg-type]
    return path


def jks_store(directory: Path, authority: trustme.CA) -> Path:
    source, target = pkcs12_store(directory, authority), directory / "store.jks"
    keytool("-importkeystore", "-noprompt", "-srckeystore", str(source), "-srcstoretype", "PKCS12", "-srcstorepass", SECRET,
            "-destkeystore", str(target), "-deststoretype", "JKS", "-deststorepass", SECRET)  # fmt: skip
    return target


def configs(authority: trustme.CA, directory: Path, kind: str) -> dict[str, str]:
    common = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.type": kind}
    if kind == "PEM":
        issued = authority.issue_cert("127.0.0.1")
        chain = "".join(pem.bytes().decode() for pem in issued.cert_chain_pems)
        key = issued.private_key_pem.bytes().decode()
        return {**common, "ssl.keystore.key": key, "ssl.keystore.certificate.chain": chain}
    store = (pkcs12_store if kind == "PKCS12" else jks_store)(directory, authority)
    return {**common, "ssl.keystore.location": str(store), "ssl.keystore.password": SECRET}


def answers(broker: EmbeddedBroker, authority: Path) -> bool:
    wire = Wire(broker.address, is_kafka=False)
    context = ssl.create_default_context(cafile=authority)
    wire._socket = context.wrap_socket(wire.socket(), server_hostname="127.0.0.1")
    wire._connections[-1] = wire._socket
    has_brokers = bool(wire.send(MetadataRequest(topics=[]), 12).brokers)
    wire.close()
    return has_brokers


@pytest.mark.parametrize("kind", ["PEM", "PKCS12", "JKS"])
def test_stores(authority: trustme.CA, tmp_path: Path, kind: str) -> None:
    with EmbeddedBroker(configs(authority, tmp_path, kind)) as broker:
        assert answers(broker, tmp_path / "ca.pem")


def test_a_principal_builder_in_python(authority: trustme.CA, tmp_path: Path) -> None:
    values = {**configs(authority, tmp_path, "PEM"), "principal.builder.class": f"{__name__}:Builder"}
    with EmbeddedBroker(values) as broker:
        seen: list[str] = []
        serve = broker.server.pipeline.answer

        def answer(envelope, context):  # type: ignore[no-untyped-def]
            seen.append(context.principal)
            return serve(envelope, context)

        broker.server.pipeline.answer = answer
        assert answers(broker, tmp_path / "ca.pem")
    assert seen == ["User:127.0.0.1-without"]


def test_secrets_are_not_shown(
    authority: trustme.CA, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="{SECRET}";'
    values = {
        **configs(authority, tmp_path, "PKCS12"),
        "listeners": "SSL://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
        "delegation.token.secret.key": SECRET,
    }
    with EmbeddedBroker(values) as broker:
        ports = {listener.name: port for listener, (_, port) in broker.broker.listeners.bound}
        address = f"127.0.0.1:{ports['SASL_PLAINTEXT']}"
        login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_username": "alice"}
        with ottla.Admin(bootstrap_servers=address, sasl_password=SECRET, **login) as admin:
            resource = ottla.ConfigResource(ResourceType.BROKER, "1")
            shown = str(admin.describe_configs([resource])[resource])
        with (
            pytest.raises(ottla.KafkaError),
            ottla.Admin(bootstrap_servers=address, sasl_password=f"{SECRET}-wrong", **login) as admin,
        ):
            admin.list_topics()
    assert "sasl.jaas.config" in shown
    captured = capfd.readouterr()
    for text in (shown, caplog.text, captured.out, captured.err):
        assert SECRET not in text
