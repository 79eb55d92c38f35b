"""Certificates of a running broker: new files are used without a restart, bad ones are logged and not used."""

import datetime
import ipaddress
import socket
import ssl
import time
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from .secured_process import SecuredProcess

WITHIN_S = 20
DAY = datetime.timedelta(days=1)


def certify(
    path: Path, authority: trustme.CA, name: str = "broker", key: trustme.KeyType = trustme.KeyType.ECDSA
) -> None:
    """Replace a PEM store at once, as tools for certificates do."""
    issued = authority.issue_cert("127.0.0.1", common_name=name, organization_unit_name="Brokers", key_type=key)
    new = path.with_suffix(".new")
    issued.private_key_and_cert_chain_pem.write_to_path(new)
    new.replace(path)


def configs(store: Path) -> dict[str, str]:
    return {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
    }


def served(port: int, directory: Path) -> bytes:
    """The certificate of a new connection."""
    context = ssl.create_default_context(cafile=directory / "ca.pem")
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as tls,
    ):
        certificate = tls.getpeercert(binary_form=True)
    assert certificate is not None
    return certificate


@pytest.fixture
def authority(tmp_path: Path) -> trustme.CA:
    made = trustme.CA()
    made.cert_pem.write_to_path(tmp_path / "ca.pem")
    return made


def test_new_files_are_used(tmp_path: Path, authority: trustme.CA) -> None:
    store = tmp_path / "store.pem"
    certify(store, authority)
    with SecuredProcess(tmp_path, configs(store)) as broker:
        first = served(broker.ports["SSL"], tmp_path)
        certify(store, authority)
        deadline = time.monotonic() + WITHIN_S
        while served(broker.ports["SSL"], tmp_path) == first:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        second = served(broker.ports["SSL"], tmp_path)
        store.write_text("garbage")
        broker.wait_for_log("listener SSL keeps its certificate: Failed to load PEM SSL keystore")
        assert served(broker.ports["SSL"], tmp_path) == second
        certify(store, authority, "another")
        broker.wait_for_log("listener SSL keeps its certificate: Keystore DistinguishedName does not match")
        assert served(broker.ports["SSL"], tmp_path) == second
        assert broker.log().count("keeps its certificate") == 2
        broker.stop()


def large_key(directory: Path) -> Path:
    """A store with an RSA key of 4,096 bits, which signs its own certificate."""
    key = rsa.generate_private_key(65537, 4096)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "large")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now - DAY, now + DAY)
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = made.public_bytes(serialization.Encoding.PEM)
    clear = serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, clear)
    (directory / "store.pem").write_bytes(private + pem)
    (directory / "ca.pem").write_bytes(pem)
    return directory / "store.pem"


def test_handshakes_with_a_large_key(tmp_path: Path) -> None:
    """They run on a worker: a signature takes about 10 ms."""
    with SecuredProcess(tmp_path, configs(large_key(tmp_path))) as broker:
        for _ in range(10):
            assert served(broker.ports["SSL"], tmp_path)
        broker.stop()
