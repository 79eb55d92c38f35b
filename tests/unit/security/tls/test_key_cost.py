"""Keys whose handshakes take long."""

import datetime
from collections.abc import Callable
from functools import partial

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from ottla.security.tls.der import MalformedDer
from ottla.security.tls.key_cost import signs_slowly

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
NAME = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a")])


@pytest.mark.parametrize(
    ("generate", "slow"),
    [
        (partial(rsa.generate_private_key, 65537, 2048), False),
        (partial(rsa.generate_private_key, 65537, 3072), True),
        (partial(ec.generate_private_key, ec.SECP256R1()), False),
        (partial(ec.generate_private_key, ec.SECP521R1()), False),
        (ed25519.Ed25519PrivateKey.generate, False),
    ],
    ids=["RSA-2048", "RSA-3072", "P-256", "P-521", "Ed25519"],
)
def test_keys(
    generate: Callable[[], rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey], slow: bool
) -> None:
    key = generate()
    builder = x509.CertificateBuilder(NAME, NAME, key.public_key(), 1, NOW, NOW + datetime.timedelta(days=1))
    made = builder.sign(key, None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256())
    assert signs_slowly(made.public_bytes(serialization.Encoding.DER)) == slow


def test_bytes_that_are_no_certificate() -> None:
    with pytest.raises(MalformedDer):
        signs_slowly(b"garbage")
