"""Keys, certificates and stores for tests."""

import datetime
import ipaddress
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)
KEYTOOL = shutil.which("keytool")
JAVA = shutil.which("java")
JAVA_ENVIRONMENT = {**os.environ, "LC_ALL": "C.UTF-8"}
"""Java finds a file whose path has an accent in a locale that has it only."""
needs_keytool = pytest.mark.skipif(KEYTOOL is None, reason="keytool of a JDK is not installed")
needs_java = pytest.mark.skipif(JAVA is None, reason="java is not installed")


class Identity(NamedTuple):
    """A key, and its certificate with those of its issuers."""

    key: PrivateKey
    chain: tuple[x509.Certificate, ...]

    @property
    def certificate(self) -> x509.Certificate:
        return self.chain[0]

    def key_pem(self, password: str | None = None) -> str:
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            encryption = serialization.BestAvailableEncryption(password.encode())
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
        ).decode()

    def chain_pem(self) -> str:
        return "".join(certificate.public_bytes(serialization.Encoding.PEM).decode() for certificate in self.chain)

    def der(self) -> tuple[bytes, ...]:
        return tuple(certificate.public_bytes(serialization.Encoding.DER) for certificate in self.chain)

    def pkcs12(self, password: str) -> bytes:
        return pkcs12.serialize_key_and_certificates(
            b"kafka",
            self.key,
            self.certificate,
            self.chain[1:],
            serialization.BestAvailableEncryption(password.encode()),
        )


def issue(
    common_name: str,
    issuer: Identity | None = None,
    *,
    names: tuple[str, ...] = (),
    curve: bool = True,
    rsa_bits: int = 2048,
) -> Identity:
    """Return a new identity; without issuer it is a CA."""
    key: PrivateKey = ec.generate_private_key(ec.SECP256R1()) if curve else rsa.generate_private_key(65537, rsa_bits)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - DAY)
        .not_valid_after(NOW + DAY)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if names:
        builder = builder.add_extension(
            x509.SubjectAlternativeName(
                [
                    x509.IPAddress(ipaddress.ip_address(name)) if name[0].isdigit() else x509.DNSName(name)
                    for name in names
                ]
            ),
            critical=False,
        )
    certificate = builder.sign(key if issuer is None else issuer.key, hashes.SHA256())
    return Identity(key, (certificate, *(() if issuer is None else issuer.chain)))


def keytool(*arguments: str) -> None:
    """Run keytool, or skip the test without one."""
    if KEYTOOL is None:
        pytest.skip("keytool of a JDK is not installed")
    quick = ["-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC"]
    subprocess.run([KEYTOOL, *quick, *arguments], check=True, capture_output=True, env=JAVA_ENVIRONMENT)


def files(**contents: bytes | str) -> Callable[[str], bytes]:
    """Return a reader of files that are only in memory."""

    def read(path: str) -> bytes:
        if path not in contents:
            raise FileNotFoundError(path)
        content = contents[path]
        return content.encode() if isinstance(content, str) else content

    return read


def read_file(path: str) -> bytes:
    """Read a file of the disk."""
    return Path(path).read_bytes()


def requested_authorities(flight: bytes) -> list[bytes] | None:
    """The names in the CertificateRequest of a server's first flight of TLS 1.2, in DER; None if it requests no certificate."""
    handshake = b""
    while flight:
        kind, size = flight[0], int.from_bytes(flight[3:5], "big")
        handshake += flight[5 : 5 + size] if kind == 22 else b""
        flight = flight[5 + size :]
    while handshake:
        size = int.from_bytes(handshake[1:4], "big")
        body = handshake[4 : 4 + size]
        if handshake[0] == 13:
            body = body[1 + body[0] :]  # types of certificates
            body = body[2 + int.from_bytes(body[:2], "big") :]  # algorithms of signatures
            names, body = [], body[2:]
            while body:
                end = 2 + int.from_bytes(body[:2], "big")
                names.append(body[2:end])
                body = body[end:]
            return names
        handshake = handshake[4 + size :]
    return None
