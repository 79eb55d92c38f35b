"""SSL contexts by Kafka's settings, with handshakes in memory."""

import os
import shutil
import ssl
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.security.tls.ciphers import TLS_1_3_SUITES
from ottla.security.tls.contexts import TlsError, TlsSettings, check_handshake, client_context, server_context
from ottla.security.tls.der import subject
from ottla.security.tls.stores import KeyStoreSettings, StoreError, TrustStoreSettings, load_trusted, pem
from tests.unit.security.tls.certificates import (
    KEYTOOL,
    Identity,
    files,
    issue,
    keytool,
    read_file,
    requested_authorities,
)

CA = issue("ca")
SERVER = issue("server", CA, names=("localhost", "127.0.0.1"))
CLIENT = issue("client", CA)
STRANGER = issue("stranger", issue("other ca"))
RSA = issue("rsa", CA, names=("localhost",), curve=False)


def key_store(identity: Identity, password: str | None = None) -> KeyStoreSettings:
    return KeyStoreSettings("PEM", key_password=password, key=identity.key_pem(password), chain=identity.chain_pem())


def trust_store(*identities: Identity) -> TrustStoreSettings:
    return TrustStoreSettings("PEM", certificates="".join(identity.chain_pem() for identity in identities))


SETTINGS = TlsSettings(key_store(SERVER), trust_store(CA))
TRUSTING = TlsSettings(trust_store=trust_store(CA))
NO_FILES = files()


def connect(server: TlsSettings, client: TlsSettings, host: str = "localhost") -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Connect a client with a server; returns both sides."""
    bios = ssl.MemoryBIO(), ssl.MemoryBIO()
    client_side = client_context(client, NO_FILES).wrap_bio(bios[0], bios[1], server_hostname=host)
    server_side = server_context(server, NO_FILES).wrap_bio(bios[1], bios[0], server_side=True)
    finished: set[ssl.SSLObject] = set()
    for _ in range(10):
        for side in (client_side, server_side):
            try:
                side.do_handshake()
                finished.add(side)
            except ssl.SSLWantReadError:
                continue
        if len(finished) == 2:
            return client_side, server_side
    raise AssertionError("the handshake did not finish")


def test_a_connection() -> None:
    client, server = connect(SETTINGS, TRUSTING)
    assert client.version() == server.version() == "TLSv1.3"
    assert server.getpeercert(binary_form=True) is None
    assert client.getpeercert(binary_form=True) == SERVER.der()[0]


@pytest.mark.parametrize("password", [None, "s\u00fc\u00df"])
def test_keys_of_files(password: str | None) -> None:
    content = SERVER.key_pem(password) + SERVER.chain_pem()
    store = KeyStoreSettings("PEM", "key.pem", key_password=password)
    server_context(TlsSettings(store), files(**{"key.pem": content}))
    server_context(TlsSettings(KeyStoreSettings("PKCS12", "k", "x")), files(k=RSA.pkcs12("x")))


def test_a_key_leaves_no_descriptor_open() -> None:
    before = set(os.listdir("/dev/fd"))
    server_context(SETTINGS, NO_FILES)
    assert set(os.listdir("/dev/fd")) == before


def test_keys_without_files_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    connect(SETTINGS, TRUSTING)


def test_a_wrong_password_or_key() -> None:
    content = SERVER.key_pem("right") + SERVER.chain_pem()
    store = KeyStoreSettings("PEM", "key.pem", key_password="wrong")
    with pytest.raises(StoreError, match=r"^Failed to load PEM SSL keystore key.pem$"):
        server_context(TlsSettings(store), files(**{"key.pem": content}))
    with pytest.raises(StoreError, match=r"^Invalid PEM keystore configs$") as raised:
        server_context(replace(SETTINGS, key_store=SETTINGS.key_store._replace(key=CLIENT.key_pem())), NO_FILES)
    assert "MISMATCH" in raised.value.reason


SHA_1 = bytes.fromhex("06092a864886f70d010105")
SHA_256 = bytes.fromhex("06092a864886f70d01010b")
"""Object identifiers of RSA signatures with these digests."""


@pytest.mark.parametrize("kind", ["PEM", "PKCS12", "JKS"])
def test_a_certificate_signed_with_sha_1_is_named(kind: str, tmp_path: Path) -> None:
    """Kafka serves it. The private key of the certificate says nothing about who signed it."""
    signer = issue("old authority", curve=False)
    identity = issue("old", signer, names=("localhost",))
    weak = identity.der()[0].replace(SHA_256, SHA_1)
    chain = "".join(pem(der, "CERTIFICATE").decode() for der in (weak, *identity.der()[1:]))
    (tmp_path / "store.pem").write_text(identity.key_pem() + chain)
    settings = KeyStoreSettings("PEM", str(tmp_path / "store.pem"))
    if kind != "PEM":
        if KEYTOOL is None or shutil.which("openssl") is None:
            pytest.skip("keytool of a JDK and openssl make these stores")
        settings = KeyStoreSettings(kind, str(java_store(tmp_path, kind)), "secret")
    with pytest.raises(StoreError) as raised:
        server_context(TlsSettings(settings), read_file)
    assert raised.value.reason == (
        "OpenSSL does not serve the certificate CN=old, which is signed with SHA-1: "
        "let its authority sign it again, with SHA-256"
    )


def java_store(folder: Path, kind: str) -> Path:
    """Make a key store of `store.pem`."""
    made = folder / "made.p12"
    export = [
        "openssl",
        "pkcs12",
        "-export",
        "-in",
        str(folder / "store.pem"),
        "-out",
        str(made),
        "-passout",
        "pass:secret",
    ]
    subprocess.run(export, check=True)
    if kind == "PKCS12":
        return made
    store = folder / "made.jks"
    keytool("-importkeystore", "-srckeystore", str(made), "-srcstorepass", "secret", "-destkeystore", str(store),
            "-deststoretype", kind, "-deststorepass", "secret")  # fmt: skip
    return store


def test_a_key_that_is_too_small_is_named() -> None:
    identity = issue("small", CA, names=("localhost",), curve=False, rsa_bits=1024)
    with pytest.raises(StoreError) as raised:
        server_context(TlsSettings(key_store(identity)), NO_FILES)
    assert raised.value.reason == (
        "OpenSSL does not serve the certificate CN=small: its key is too small, make one of 2,048 bits or more"
    )


def test_a_server_needs_a_key() -> None:
    with pytest.raises(StoreError, match="No available authentication scheme"):
        server_context(TRUSTING, NO_FILES)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_the_name_of_the_server_is_checked(host: str) -> None:
    connect(SETTINGS, TRUSTING, host)
    with pytest.raises(ssl.SSLCertVerificationError, match=r"mismatch|doesn't match|not valid for"):
        connect(SETTINGS, TRUSTING, f"1{host}" if host[0].isdigit() else f"x.{host}")
    unchecked = replace(TRUSTING, endpoint_identification="")
    connect(SETTINGS, unchecked, "other")


def test_an_untrusted_server() -> None:
    for trusted in (trust_store(STRANGER), TrustStoreSettings()):
        with pytest.raises(ssl.SSLCertVerificationError):
            connect(SETTINGS, TlsSettings(trust_store=trusted, endpoint_identification=""))


def test_a_certificate_that_is_trusted_itself() -> None:
    """As in Java, a certificate in the trust store needs no CA."""
    only = TrustStoreSettings("PEM", certificates=SERVER._replace(chain=SERVER.chain[:1]).chain_pem())
    connect(SETTINGS, TlsSettings(trust_store=only))


@pytest.mark.parametrize("tls", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize(
    ("client_auth", "identity", "accepted"),
    [
        ("none", STRANGER, True),
        ("requested", None, True),
        ("requested", CLIENT, True),
        ("requested", STRANGER, False),
        ("required", None, False),
        ("REQUIRED", CLIENT, True),
        ("required", STRANGER, False),
    ],
)
def test_client_certificates(tls: str, client_auth: str, identity: Identity | None, accepted: bool) -> None:
    server = replace(SETTINGS, client_auth=client_auth, enabled_protocols=(tls,))
    client = TRUSTING if identity is None else replace(TRUSTING, key_store=key_store(identity))
    if not accepted:
        with pytest.raises(ssl.SSLError):
            connect(server, client)
        return
    presented = connect(server, client)[1].getpeercert(binary_form=True)
    expected = None if identity is None or client_auth == "none" else identity.der()[0]
    assert presented == expected


def test_protocol_versions() -> None:
    old = replace(SETTINGS, enabled_protocols=("TLSv1.2",))
    assert connect(old, TRUSTING)[0].version() == "TLSv1.2"
    with pytest.raises(ssl.SSLError):
        connect(old, replace(TRUSTING, enabled_protocols=("TLSv1.3",)))
    assert connect(replace(SETTINGS, protocol="TLSv1.2", enabled_protocols=()), TRUSTING)[0].version() == "TLSv1.2"
    with pytest.raises(TlsError, match=r"Unsupported TLS protocol TLSv1.4: TLSv1.2 and TLSv1.3 are supported"):
        server_context(replace(SETTINGS, enabled_protocols=("TLSv1.2", "TLSv1.4")), NO_FILES)


def test_outdated_protocols_are_left_out_beside_newer_ones() -> None:
    mixed = replace(SETTINGS, enabled_protocols=("TLSv1.1", "TLSv1.2", "SSLv3"))
    assert mixed.outdated_protocols == ["TLSv1.1", "SSLv3"]
    assert connect(mixed, TRUSTING)[0].version() == "TLSv1.2"
    assert connect(SETTINGS, replace(TRUSTING, enabled_protocols=("TLSv1.1", "TLSv1.2")))[0].version() == "TLSv1.2"
    with pytest.raises(TlsError, match=r"Unsupported TLS protocol TLSv1.1: TLSv1.2 and TLSv1.3 are supported"):
        server_context(replace(SETTINGS, enabled_protocols=("TLSv1.1",)), NO_FILES)


def test_cipher_suites() -> None:
    suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    client, _ = connect(replace(SETTINGS, cipher_suites=(suite,)), TRUSTING)
    assert client.cipher() == ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLSv1.2", 128)
    client, _ = connect(replace(SETTINGS, cipher_suites=(*TLS_1_3_SUITES, suite)), TRUSTING)
    assert client.version() == "TLSv1.3"
    client, _ = connect(replace(SETTINGS, cipher_suites=TLS_1_3_SUITES), TRUSTING)
    assert client.version() == "TLSv1.3"
    with pytest.raises(ssl.SSLError):
        connect(replace(SETTINGS, cipher_suites=TLS_1_3_SUITES), replace(TRUSTING, enabled_protocols=("TLSv1.2",)))
    with pytest.raises(TlsError, match="OpenSSL has none of the cipher suites FOO"):
        server_context(replace(SETTINGS, cipher_suites=("FOO",)), NO_FILES)
    with pytest.raises(TlsError, match="Unsupported CipherSuite: FOO"):
        server_context(replace(SETTINGS, cipher_suites=(suite, "FOO")), NO_FILES)


def test_invalid_settings() -> None:
    with pytest.raises(TlsError, match=r"ssl.client.auth is maybe, but must be one of none, requested, required"):
        server_context(replace(SETTINGS, client_auth="maybe"), NO_FILES)
    with pytest.raises(TlsError, match="Unknown endpoint identification algorithm: ftp"):
        client_context(replace(TRUSTING, endpoint_identification="ftp"), NO_FILES)


def test_settings_do_not_show_secrets() -> None:
    assert "PRIVATE" not in repr(SETTINGS)


def test_the_self_test() -> None:
    def check(server: TlsSettings, client: TlsSettings) -> None:
        check_handshake(server_context(server, NO_FILES), client_context(client, NO_FILES))

    check(SETTINGS, SETTINGS)
    check(replace(SETTINGS, client_auth="required"), SETTINGS)
    text = (
        "A client SSLEngine created with the provided settings can't connect to a server SSLEngine created with those"
    )
    for server, client in (
        (SETTINGS, replace(SETTINGS, trust_store=trust_store(STRANGER))),
        (replace(SETTINGS, client_auth="required"), TRUSTING),
        (replace(SETTINGS, client_auth="required"), replace(SETTINGS, key_store=key_store(STRANGER))),
        (replace(SETTINGS, enabled_protocols=("TLSv1.2",)), replace(SETTINGS, enabled_protocols=("TLSv1.3",))),
    ):
        with pytest.raises(TlsError, match=text) as raised:
            check(server, client)
        assert raised.value.reason


def test_certifi_where_the_system_has_no_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = ssl.DefaultVerifyPaths(None, None, "", "", "", "")  # type: ignore[arg-type]
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: nothing)
    assert len(client_context(TlsSettings(), NO_FILES).get_ca_certs()) > 50


def first_flight(server: ssl.SSLContext) -> bytes:
    """Return the first flight of a server to a client of TLS 1.2."""
    client = ssl.create_default_context()
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    bios = ssl.MemoryBIO(), ssl.MemoryBIO()
    for side in (
        client.wrap_bio(bios[0], bios[1], server_hostname="localhost"),
        server.wrap_bio(bios[1], bios[0], server_side=True),
    ):
        with pytest.raises(ssl.SSLWantReadError):
            side.do_handshake()
    return bios[0].read()


@pytest.mark.parametrize("client_auth", ["requested", "required"])
def test_certificate_request_names_the_trusted_authorities(client_auth: str) -> None:
    settings = TlsSettings(key_store(SERVER), trust_store(CA, STRANGER), client_auth)
    issuers = [subject(der) for der in load_trusted(settings.trust_store, NO_FILES) or ()]
    assert len(issuers) > 1
    assert requested_authorities(first_flight(server_context(settings, NO_FILES))) == issuers


def test_no_certificate_is_requested_without_client_auth() -> None:
    assert requested_authorities(first_flight(server_context(SETTINGS, NO_FILES))) is None


def test_authorities_of_the_system_are_named_without_a_trust_store() -> None:
    context = server_context(TlsSettings(key_store(SERVER), client_auth="requested"), NO_FILES)
    names = requested_authorities(first_flight(context))
    assert names is not None
    assert len(names) == len(context.get_ca_certs())
