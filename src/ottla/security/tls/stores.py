"""Key stores and trust stores: PEM, PKCS12 and JKS, in files or (PEM) in settings (KIP-651).

A key store holds a private key and its certificate chain, a trust store certificates. The type JKS also reads PKCS12 files
and the other way round, as the JDK does. PKCS12 needs cryptography, of the extra `ottla[security]`.

    JKS     magic, version 2, count, entries, SHA-1 of (password, "Mighty Aphrodite", all before)
    entry   1  alias, date, encrypted key, chain
            2  alias, date, certificate

Errors have the texts of Kafka's DefaultSslEngineFactory; their cause is in `reason`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from ottla.security.extra import MissingPackage
from ottla.security.tls.der import (
    OBJECT_IDENTIFIER,
    OCTET_STRING,
    SEQUENCE,
    MalformedDer,
    object_identifier,
    read_value,
    subject,
)

PEM: Final = "PEM"
_FILE_TYPES: Final = ("JKS", "PKCS12")
_JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"
_SUN_KEY_PROTECTOR: Final = "1.3.6.1.4.1.42.2.17.1.1"
_DIGEST_SIZE: Final = 20
_KEY_ENTRY: Final = 1
_CERTIFICATE_ENTRY: Final = 2
# No two neighbours match the same character: it takes time linear in texts that come with requests.
_BLOCK: Final = re.compile(r"(?<!-)-+BEGIN(?P<label>[^-]*)-+(?P<body>\s[^-]*)-+END[^-]*-+")
_HEADER: Final = re.compile(r"^[^\r\n:]*:[^\r\n]*$", re.MULTILINE)

Read = Callable[[str], bytes]
"""Reader of a file. Raises OSError."""


class StoreError(ValueError):
    """A store that cannot be loaded, or settings of stores that contradict each other; `reason` is the cause, if any."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class KeyMaterial(NamedTuple):
    """A private key and its certificates.

    key_pem   private key in PEM
    chain     certificates in DER; that of the key first
    password  password of an encrypted key
    alias     name of the entry in its store
    """

    key_pem: bytes
    chain: tuple[bytes, ...]
    password: str | None = None
    alias: str = "kafka"

    @property
    def chain_pem(self) -> bytes:
        """Return the certificates in PEM."""
        return b"".join(pem(certificate, "CERTIFICATE") for certificate in self.chain)

    def __repr__(self) -> str:
        return f"KeyMaterial({self.alias}, {len(self.chain)} certificates)"  # never the key


class KeyStoreSettings(NamedTuple):
    """Settings ssl.keystore.* and ssl.key.password; `key` and `chain` are PEM texts."""

    type: str = "JKS"
    location: str | None = None
    password: str | None = None
    key_password: str | None = None
    key: str | None = None
    chain: str | None = None


class TrustStoreSettings(NamedTuple):
    """Settings ssl.truststore.*; `certificates` is a PEM text."""

    type: str = "JKS"
    location: str | None = None
    password: str | None = None
    certificates: str | None = None


def pem(der: bytes, label: str) -> bytes:
    """Return DER as PEM."""
    text = base64.encodebytes(der).replace(b"\n", b"")
    lines = b"\n".join(text[begin : begin + 64] for begin in range(0, len(text), 64))
    return b"-----BEGIN %s-----\n%s\n-----END %s-----\n" % (label.encode(), lines, label.encode())


def load_key(settings: KeyStoreSettings, read: Read) -> KeyMaterial | None:
    """Return the key of a key store, None without one. Raises StoreError, and MissingPackage for PKCS12."""
    kind, path, password = settings.type, settings.location, settings.password
    if settings.key is not None:
        _check_inline_key(settings)
        return _pem_key(settings.key, settings.chain or "", settings.key_password)
    if settings.chain is not None:
        raise StoreError("SSL certificate chain is specified, but private key is not specified")
    if path is None:
        if password is not None:
            raise StoreError("SSL key store is not specified, but key store password is specified.")
        return None
    if kind == PEM:
        if password is not None:
            raise StoreError(
                "SSL key store password cannot be specified with PEM format, only key password may be specified"
            )
        try:
            text = read(path).decode()
            return _pem_key(text, text, settings.key_password)
        except (OSError, ValueError) as error:
            raise StoreError(f"Failed to load PEM SSL keystore {path}", _reason(error)) from None
    if password is None:
        raise StoreError("SSL key store is specified, but key store password is not specified.")
    key_password = password if settings.key_password is None else settings.key_password
    entries = _load(kind, path, password, read)
    for entry in entries:
        if entry.key is not None:
            return _in_store(path, kind, entry, entry.key, key_password)
    raise StoreError("No available authentication scheme", f"{path} has no private key")


def _check_inline_key(settings: KeyStoreSettings) -> None:
    if settings.type != PEM:
        raise StoreError(f"SSL private key can be specified only for PEM, but key store type is {settings.type}.")
    if settings.chain is None:
        raise StoreError("SSL private key is specified, but certificate chain is not specified.")
    if settings.location is not None:
        raise StoreError("Both SSL key store location and separate private key are specified.")
    if settings.password is not None:
        raise StoreError(
            "SSL key store password cannot be specified with PEM format, only key password may be specified."
        )


def load_trusted(settings: TrustStoreSettings, read: Read) -> list[bytes] | None:
    """Return the certificates of a trust store in DER, None without one. Raises StoreError and MissingPackage."""
    kind, path, password = settings.type, settings.location, settings.password
    if settings.certificates is not None:
        if kind != PEM:
            raise StoreError(f"SSL trust store certs can be specified only for PEM, but trust store type is {kind}.")
        if path is not None:
            raise StoreError("Both SSL trust store location and separate trust certificates are specified.")
        if password is not None:
            raise StoreError("SSL trust store password cannot be specified for PEM format.")
        return _pem_certificates(settings.certificates)
    if path is None:
        if password is not None:
            raise StoreError("SSL trust store is not specified, but trust store password is specified.")
        return None
    if kind == PEM:
        if password is not None:
            raise StoreError("SSL trust store password cannot be specified for PEM format.")
        try:
            return _pem_certificates(read(path).decode())
        except (OSError, ValueError) as error:
            raise StoreError(f"Failed to load PEM SSL keystore {path}", _reason(error)) from None
    # As in the JDK, the first certificate of a key's chain is trusted, too.
    return [entry.chain[0] for entry in _load(kind, path, password, read) if entry.chain]


def _reason(error: Exception) -> str:
    return getattr(error, "reason", "") or str(error) if isinstance(error, StoreError) else str(error)


# PEM


def _pem_blocks(text: str, name: str) -> list[tuple[str, bytes]]:
    """Return the (label, DER) of each block whose label ends with a name. Lines may be joined by blanks."""
    blocks = []
    for matched in _BLOCK.finditer(text):
        label = " ".join(matched["label"].split())
        if not label.endswith(name):
            continue
        body = _HEADER.sub("", matched["body"])
        try:
            blocks.append((label, base64.b64decode("".join(body.split()), validate=True)))
        except (binascii.Error, ValueError) as error:
            raise StoreError(f"a PEM block is not base64: {error}") from None
    if not blocks:
        raise StoreError(f"No matching {name} entries in PEM file")
    return blocks


def _pem_certificates(text: str) -> list[bytes]:
    certificates = [body for _, body in _pem_blocks(text, "CERTIFICATE")]
    for certificate in certificates:
        try:
            subject(certificate)
        except MalformedDer as error:
            raise StoreError("Invalid PEM truststore configs", str(error)) from None
    return certificates


def _pem_key(key_text: str, chain_text: str, password: str | None) -> KeyMaterial:
    try:
        blocks = _pem_blocks(key_text, "PRIVATE KEY")
        if len(blocks) > 1:
            raise StoreError(f"Expected one private key, but found {len(blocks)}")
        label, body = blocks[0]
        encrypted = label.startswith("ENCRYPTED")
        # OpenSSL would ask for a missing password on the terminal.
        if encrypted and password is None:
            raise StoreError("the private key is encrypted, but ssl.key.password is not specified")
        if password is not None and not encrypted:
            raise StoreError("ssl.key.password is specified, but the private key is not encrypted")
        return KeyMaterial(pem(body, label), tuple(_pem_certificates(chain_text)), password)
    except StoreError as error:
        raise StoreError("Invalid PEM keystore configs", _reason(error)) from None


# Files with entries


class _Entry(NamedTuple):
    """An entry of a store: a key in DER (encrypted in JKS, with `is_protected`) and its chain, or one certificate."""

    alias: str
    key: bytes | None
    chain: tuple[bytes, ...]
    is_protected: bool = False


class _Malformed(Exception):
    """A store that is damaged, or a wrong password."""


def _load(kind: str, path: str, password: str | None, read: Read) -> list[_Entry]:
    try:
        data = read(path)
        if kind.upper() not in _FILE_TYPES:
            raise _Malformed(f"{kind} not found")
        load = _jks_entries if data[:4] == _JKS_MAGIC else _pkcs12_entries
        entries = load(data, password)
        for entry in entries:
            for certificate in entry.chain:
                subject(certificate)
    except (OSError, _Malformed, MalformedDer, struct.error, UnicodeDecodeError) as error:
        raise StoreError(f"Failed to load SSL keystore {path} of type {kind}", str(error)) from None
    return entries


def _in_store(path: str, kind: str, entry: _Entry, key: bytes, password: str) -> KeyMaterial:
    try:
        clear = _decrypt_key(key, password) if entry.is_protected else key
    except (_Malformed, MalformedDer) as error:
        raise StoreError(f"Failed to load SSL keystore {path} of type {kind}", str(error)) from None
    return KeyMaterial(pem(clear, "PRIVATE KEY"), entry.chain, None, entry.alias)


def _pkcs12_entries(data: bytes, password: str | None) -> list[_Entry]:
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError as missing:
        raise MissingPackage("A PKCS12 store", missing.name) from None
    try:
        store = pkcs12.load_pkcs12(data, None if password is None else password.encode())
        certificates = [
            _Entry((other.friendly_name or b"").decode("utf-8", "replace"), None,
                   (other.certificate.public_bytes(serialization.Encoding.DER),))
            for other in store.additional_certs
        ]  # fmt: skip
        if store.key is None or store.cert is None:
            if store.cert is not None:
                own = store.cert.certificate.public_bytes(serialization.Encoding.DER)
                certificates.insert(0, _Entry("", None, (own,)))
            return certificates
        key = store.key.private_bytes(
            serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        certificate = store.cert.certificate
        own = certificate.public_bytes(serialization.Encoding.DER)
        issuers = [other.certificate for other in store.additional_certs]
        chain = [own]
        while (issuer := next((other for other in issuers if other.subject == certificate.issuer), None)) is not None:
            issuers.remove(issuer)
            certificate = issuer
            chain.append(issuer.public_bytes(serialization.Encoding.DER))
        alias = (store.cert.friendly_name or b"").decode("utf-8", "replace")
        others = [entry for entry in certificates if entry.chain[0] not in chain]
        return [_Entry(alias, key, tuple(chain)), *others]
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise _Malformed(str(error)) from None


class _Reader:
    """Reader of the fields of a JKS file."""

    __slots__ = ("_data", "position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    def bytes(self, size: int) -> bytes:
        """Return the next bytes."""
        end = self.position + size
        if end > len(self._data):
            raise _Malformed("truncated")
        value = self._data[self.position : end]
        self.position = end
        return value

    def int32(self) -> int:
        """Return an unsigned integer of 4 bytes."""
        return int.from_bytes(self.bytes(4))

    def text(self) -> str:
        """Return a text behind its length in 2 bytes."""
        return self.bytes(int.from_bytes(self.bytes(2))).decode("utf-8", "replace")


def _jks_entries(data: bytes, password: str | None) -> list[_Entry]:
    if len(data) < 12 + _DIGEST_SIZE:
        raise _Malformed("truncated")
    body, digest = data[:-_DIGEST_SIZE], data[-_DIGEST_SIZE:]
    reader = _Reader(body)
    reader.bytes(4)
    version, count = reader.int32(), reader.int32()
    if version not in (1, 2):
        raise _Malformed(f"Invalid keystore format: version {version}")
    entries = []
    for _ in range(count):
        tag, alias = reader.int32(), reader.text()
        reader.bytes(8)
        if tag == _KEY_ENTRY:
            key = reader.bytes(reader.int32())
            chain = tuple(_jks_certificate(reader, version) for _ in range(reader.int32()))
            entries.append(_Entry(alias, key, chain, is_protected=True))
        elif tag == _CERTIFICATE_ENTRY:
            entries.append(_Entry(alias, None, (_jks_certificate(reader, version),)))
        else:
            raise _Malformed(f"Unrecognized keystore entry: {tag}")
    if reader.position != len(body):
        raise _Malformed("bytes behind the last entry")
    if password is not None:
        expected = hashlib.sha1(_utf16(password) + b"Mighty Aphrodite" + body).digest()
        if not hmac.compare_digest(expected, digest):
            raise _Malformed("Keystore was tampered with, or password was incorrect")
    return entries


def _jks_certificate(reader: _Reader, version: int) -> bytes:
    if version == 2 and (kind := reader.text()) != "X.509":
        raise _Malformed(f"Unsupported certificate type: {kind}")
    return reader.bytes(reader.int32())


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be", "surrogatepass")


def _decrypt_key(key: bytes, password: str) -> bytes:
    """Return a key that Sun's proprietary protector has encrypted: XOR with a chain of SHA-1 digests."""
    parts = read_value(key, SEQUENCE).values()
    if len(parts) != 2 or parts[0].tag != SEQUENCE or parts[1].tag != OCTET_STRING:
        raise _Malformed("not an encrypted private key")
    algorithm = parts[0].values()
    if not algorithm or algorithm[0].tag != OBJECT_IDENTIFIER:
        raise _Malformed("a key without algorithm")
    if object_identifier(algorithm[0].content) != _SUN_KEY_PROTECTOR:
        raise _Malformed("Unsupported key protection algorithm")
    content = parts[1].content
    if len(content) < 2 * _DIGEST_SIZE:
        raise _Malformed("truncated key")
    encrypted, check = content[_DIGEST_SIZE:-_DIGEST_SIZE], content[-_DIGEST_SIZE:]
    secret = _utf16(password)
    stream, digest = b"", content[:_DIGEST_SIZE]
    while len(stream) < len(encrypted):
        digest = hashlib.sha1(secret + digest).digest()
        stream += digest
    clear = bytes(left ^ right for left, right in zip(encrypted, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + clear).digest(), check):
        raise _Malformed("Cannot recover key")
    return clear
