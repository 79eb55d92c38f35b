"""SSL contexts of servers and clients by Kafka's settings `ssl.*`.

Only TLS 1.2 and 1.3: older versions are left out. A certificate in a trust store is trusted as it is, also one that is no CA,
as in Java.

A private key never gets onto a disk in clear: OpenSSL reads it from a file in memory (Linux) or from a pipe.
"""

import os
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from ottla.security.extra import MissingPackage
from ottla.security.tls.authorities import name_authorities
from ottla.security.tls.ciphers import TLS_1_2, TLS_1_3, InvalidCipherSuites, choose
from ottla.security.tls.der import MalformedDer, signature_algorithm
from ottla.security.tls.names import subject_name
from ottla.security.tls.stores import (
    PEM,
    KeyMaterial,
    KeyStoreSettings,
    Read,
    StoreError,
    TrustStoreSettings,
    load_key,
    load_trusted,
    pem,
)

CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_VERSIONS: Final = {TLS_1_2: ssl.TLSVersion.TLSv1_2, TLS_1_3: ssl.TLSVersion.TLSv1_3}
_PROTOCOLS: Final = {"TLS": (TLS_1_2, TLS_1_3), TLS_1_3: (TLS_1_2, TLS_1_3), TLS_1_2: (TLS_1_2,)}
"""Versions that ssl.protocol enables by default."""
_OUTDATED: Final = frozenset(("SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1"))
_MOST_STEPS: Final = 20
_WEAK_SIGNATURES: Final = {
    "1.2.840.113549.1.1.4": "MD5",
    "1.2.840.113549.1.1.5": "SHA-1",
    "1.2.840.10040.4.3": "SHA-1",
    "1.2.840.10045.4.1": "SHA-1",
}
"""Digests in signatures, by object identifier, that OpenSSL refuses at its security levels above 0."""


class TlsError(ValueError):
    """Settings of TLS that are invalid, or do not fit together; `reason` is the cause, if any."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class TlsSettings:
    """Settings of TLS.

    client_auth              ssl.client.auth: none, requested or required
    protocol                 ssl.protocol
    enabled_protocols        ssl.enabled.protocols; empty: those of `protocol`
    cipher_suites            ssl.cipher.suites; empty: those of OpenSSL
    endpoint_identification  ssl.endpoint.identification.algorithm; empty: the name of the server is not checked
    """

    key_store: KeyStoreSettings = field(default=KeyStoreSettings(), repr=False)
    trust_store: TrustStoreSettings = field(default=TrustStoreSettings(), repr=False)
    client_auth: str = "none"
    protocol: str = TLS_1_3
    enabled_protocols: tuple[str, ...] = (TLS_1_2, TLS_1_3)
    cipher_suites: tuple[str, ...] = ()
    endpoint_identification: str = "https"

    @property
    def outdated_protocols(self) -> list[str]:
        """Protocols in ssl.enabled.protocols that are left out: Java knows them, and does not negotiate them either."""
        return [protocol for protocol in self.enabled_protocols if protocol in _OUTDATED]


def server_context(settings: TlsSettings, read: Read) -> ssl.SSLContext:
    """Return the context of a server. Raises StoreError, TlsError and MissingPackage."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    _restrict(context, settings)
    material = load_key(settings.key_store, read)
    if material is None:
        raise StoreError("No available authentication scheme", "ssl.keystore.location is not specified")
    _load(context, material, settings.key_store)
    try:
        context.verify_mode = CLIENT_AUTH[settings.client_auth.lower()]
    except KeyError:
        raise TlsError(
            f"ssl.client.auth is {settings.client_auth}, but must be one of {', '.join(CLIENT_AUTH)}"
        ) from None
    if context.verify_mode != ssl.CERT_NONE:
        # Kafka names the issuers of its trust store, and clients choose by them: librdkafka sends no other certificate.
        name_authorities(context, _trust(context, settings.trust_store, read) or context.get_ca_certs(binary_form=True))
    return context


def client_context(settings: TlsSettings, read: Read) -> ssl.SSLContext:
    """Return the context of a client. Raises StoreError, TlsError and MissingPackage."""
    if settings.endpoint_identification.lower() not in ("", "https"):
        raise TlsError(f"Unknown endpoint identification algorithm: {settings.endpoint_identification}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = bool(settings.endpoint_identification)
    _restrict(context, settings)
    material = load_key(settings.key_store, read)
    if material is not None:
        _load(context, material, settings.key_store)
    _trust(context, settings.trust_store, read)
    return context


def _restrict(context: ssl.SSLContext, settings: TlsSettings) -> None:
    """Set the enabled protocol versions and cipher suites."""
    protocols: Sequence[str] = settings.enabled_protocols or _PROTOCOLS.get(settings.protocol, ())
    protocols = [protocol for protocol in protocols if protocol not in _OUTDATED] or protocols
    for protocol in (settings.protocol, *protocols):
        if protocol not in _PROTOCOLS:
            raise TlsError(f"Unsupported TLS protocol {protocol}: {TLS_1_2} and {TLS_1_3} are supported")
    enabled = [protocol for protocol in _VERSIONS if protocol in protocols or "TLS" in protocols]
    if settings.cipher_suites:
        enabled = _restrict_suites(context, settings.cipher_suites, enabled)
    context.minimum_version = _VERSIONS[enabled[0]]
    context.maximum_version = _VERSIONS[enabled[-1]]


def _restrict_suites(context: ssl.SSLContext, suites: Sequence[str], enabled: Sequence[str]) -> list[str]:
    """Set the cipher suites; returns the protocol versions that have any."""
    set_tls_1_3 = getattr(context, "set_ciphersuites", None)  # from Python 3.15
    try:
        choice = choose(suites, enabled, each_of_tls_1_3=set_tls_1_3 is not None)
    except InvalidCipherSuites as error:
        raise TlsError(str(error)) from None
    if choice.tls_1_2:
        try:
            context.set_ciphers(":".join(choice.tls_1_2))
        except ssl.SSLError:
            raise TlsError(f"OpenSSL has none of the cipher suites {', '.join(choice.tls_1_2)}") from None
        # OpenSSL ignores what it does not know, as long as it knows one.
        known = {str(cipher["name"]) for cipher in context.get_ciphers()}
        unknown = [name for name in choice.tls_1_2 if name not in known]
        if unknown:
            raise TlsError(f"Unsupported CipherSuite: {', '.join(unknown)}")
    if choice.tls_1_3 and set_tls_1_3 is not None:
        set_tls_1_3(":".join(choice.tls_1_3))
    present = {TLS_1_2: choice.tls_1_2, TLS_1_3: choice.tls_1_3}
    return [protocol for protocol in enabled if present[protocol]]


def _load(context: ssl.SSLContext, material: KeyMaterial, settings: KeyStoreSettings) -> None:
    password = material.password or ""
    try:
        with _in_memory(material.chain_pem) as chain, _in_memory(material.key_pem) as key:
            context.load_cert_chain(chain, key, lambda: password)
    except (ssl.SSLError, ValueError) as error:
        kind = settings.type
        if settings.location is None:
            message = "Invalid PEM keystore configs"
        elif kind == PEM:
            message = f"Failed to load PEM SSL keystore {settings.location}"
        else:
            message = f"Failed to load SSL keystore {settings.location} of type {kind}"
        raise StoreError(message, _weakness(error, material) or str(error)) from None


def _weakness(error: Exception, material: KeyMaterial) -> str:
    """Name the certificate that is too weak for OpenSSL, and what to do; "" if the error is another one.

    Java serves such certificates. OpenSSL has one security level for what it serves and for what it accepts: a lower one would
    accept weak certificates of clients, and weak handshakes, too.
    """
    reason = getattr(error, "reason", None)
    if reason == "CA_MD_TOO_WEAK":
        for certificate in material.chain:
            with suppress(MalformedDer):
                digest = _WEAK_SIGNATURES.get(signature_algorithm(certificate))
                if digest is not None:
                    return (
                        f"OpenSSL does not serve the certificate {subject_name(certificate)}, which is signed with {digest}: "
                        "let its authority sign it again, with SHA-256"
                    )
    elif reason in ("EE_KEY_TOO_SMALL", "CA_KEY_TOO_SMALL"):
        which = subject_name(material.chain[0]) if reason.startswith("EE") else "of an authority in the chain"
        return f"OpenSSL does not serve the certificate {which}: its key is too small, make one of 2,048 bits or more"
    return ""


@contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """Provide the path of a file that is only in memory."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("ottla")
        path = f"/proc/self/fd/{descriptor}"
        writer = descriptor
    else:
        descriptor, writer = os.pipe()
        os.set_blocking(writer, False)  # a pipe without reader takes some 16 KB only
        path = f"/dev/fd/{descriptor}"
    try:
        try:
            written = os.write(writer, content)
        finally:
            if writer != descriptor:
                os.close(writer)
        if written != len(content):
            raise ValueError("the key or its certificate chain is too large")
        yield path
    finally:
        os.close(descriptor)


def _trust(context: ssl.SSLContext, settings: TrustStoreSettings, read: Read) -> list[bytes] | None:
    """Load the trusted certificates: those of the trust store, which are returned, else those of the system or of certifi."""
    certificates = load_trusted(settings, read)
    if certificates is None:
        paths = ssl.get_default_verify_paths()
        if paths.cafile or paths.capath:
            context.set_default_verify_paths()
            return None
        context.load_verify_locations(cadata=_certifi())
        return None
    if not certificates:
        raise TlsError("the trustAnchors parameter must be non-empty", "the trust store has no certificate")
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=b"".join(pem(entry, "CERTIFICATE") for entry in certificates).decode())
    except ssl.SSLError as error:
        raise StoreError("Invalid PEM truststore configs", str(error)) from None
    return certificates


def _certifi() -> str:
    try:
        import certifi
    except ImportError as missing:
        raise MissingPackage("TLS without ssl.truststore.location and without CA certificates of the system",
                             missing.name) from None  # fmt: skip
    return certifi.contents()


def check_handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """Raise TlsError if a client of one context cannot connect to a server of the other; names are not checked.

    A broker checks so at its start, and when a key store is changed, that brokers can connect to each other.
    """
    checks_name = client.check_hostname
    client.check_hostname = False
    bios = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = server.wrap_bio(bios[0], bios[1], server_side=True), client.wrap_bio(bios[1], bios[0])
    client.check_hostname = checks_name
    try:
        for _ in range(_MOST_STEPS):
            # A failure of TLS 1.3's client certificate shows only when the server goes on: both have to finish.
            finished = [_step(side) for side in reversed(sides)]
            if all(finished):
                return
    except ssl.SSLError as error:
        reason = getattr(error, "verify_message", "") or str(error)
    else:
        reason = "the handshake did not finish"
    raise TlsError(
        "A client SSLEngine created with the provided settings can't connect to a server SSLEngine created with those "
        "settings.",
        reason,
    )


def _step(side: ssl.SSLObject) -> bool:
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
