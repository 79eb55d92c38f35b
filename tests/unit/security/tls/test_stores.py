"""Key stores and trust stores; error texts are those of Kafka 4.4."""

import hashlib
import struct
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.security.tls.names import subject_name
from ottla.security.tls.stores import (
    KeyMaterial,
    KeyStoreSettings,
    StoreError,
    TrustStoreSettings,
    load_key,
    load_trusted,
)
from tests.unit.security.tls.certificates import Identity, files, issue, keytool, needs_keytool, read_file

CA = issue("ca")
SERVER = issue("server", CA, names=("localhost",))
RSA = issue("rsa", CA, curve=False)
NO_FILES = files()


def key_of(settings: KeyStoreSettings, **contents: bytes | str) -> KeyMaterial:
    material = load_key(settings, files(**contents))
    assert material is not None
    return material


def clear(material: KeyMaterial) -> bytes:
    """Return the key in clear, in DER."""
    password = None if material.password is None else material.password.encode()
    return serialization.load_pem_private_key(material.key_pem, password).private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def der_of(identity: Identity) -> bytes:
    return identity.key.private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def refused(store: KeyStoreSettings | TrustStoreSettings, **contents: bytes | str) -> StoreError:
    with pytest.raises(StoreError) as raised:
        load_key(store, files(**contents)) if isinstance(store, KeyStoreSettings) else load_trusted(
            store, files(**contents)
        )
    return raised.value


@pytest.mark.parametrize("identity", [SERVER, RSA])
@pytest.mark.parametrize("password", [None, "s\u00fc\u00df"])
def test_pem(identity: Identity, password: str | None) -> None:
    key, chain = identity.key_pem(password), identity.chain_pem()
    text = f"Bag Attributes\n  friendlyName: x\n{key}subject=/CN=x\n{chain}"
    inline = KeyStoreSettings("PEM", key_password=password, key=key, chain=chain)
    joined = KeyStoreSettings("PEM", key_password=password, key=key.replace("\n", " "), chain=chain.replace("\n", " "))
    for material in (
        key_of(KeyStoreSettings("PEM", "k", key_password=password), k=text),
        key_of(inline),
        key_of(joined),
    ):
        assert clear(material) == der_of(identity)
        assert material.chain == identity.der()
    assert load_trusted(TrustStoreSettings("PEM", "t"), files(t=text)) == list(identity.der())
    assert load_trusted(TrustStoreSettings("PEM", certificates=chain), NO_FILES) == list(identity.der())


@pytest.mark.parametrize("kind", ["PKCS12", "JKS", "pkcs12"])
def test_pkcs12(kind: str) -> None:
    for identity in (SERVER, RSA):
        material = key_of(KeyStoreSettings(kind, "k", "secret"), k=identity.pkcs12("secret"))
        assert clear(material) == der_of(identity)
        assert (material.chain, material.alias) == (identity.der(), "kafka")


def test_no_store() -> None:
    assert load_key(KeyStoreSettings(), NO_FILES) is None
    assert load_trusted(TrustStoreSettings(), NO_FILES) is None


def test_the_key_is_not_shown() -> None:
    assert "PRIVATE" not in repr(key_of(KeyStoreSettings("PEM", "k"), k=SERVER.key_pem() + SERVER.chain_pem()))


K, C = SERVER.key_pem(), SERVER.chain_pem()


@pytest.mark.parametrize(
    ("store", "text"),
    [
        (KeyStoreSettings(key=K, chain=C), "SSL private key can be specified only for PEM, but key store type is JKS."),
        (KeyStoreSettings("PEM", key=K), "SSL private key is specified, but certificate chain is not specified."),
        (
            KeyStoreSettings("PEM", "p", key=K, chain=C),
            "Both SSL key store location and separate private key are specified.",
        ),
        (
            KeyStoreSettings("PEM", password="x", key=K, chain=C),
            "SSL key store password cannot be specified with PEM format, only key password may be specified.",
        ),
        (KeyStoreSettings("PEM", chain=C), "SSL certificate chain is specified, but private key is not specified"),
        (
            KeyStoreSettings("PEM", "p", "x"),
            "SSL key store password cannot be specified with PEM format, only key password may be specified",
        ),
        (KeyStoreSettings(password="x"), "SSL key store is not specified, but key store password is specified."),
        (KeyStoreSettings(location="p"), "SSL key store is specified, but key store password is not specified."),
        (KeyStoreSettings("PEM", "missing"), "Failed to load PEM SSL keystore missing"),
        (KeyStoreSettings("PEM", "ca"), "Failed to load PEM SSL keystore ca"),
        (KeyStoreSettings("JKS", "missing", "x"), "Failed to load SSL keystore missing of type JKS"),
        (KeyStoreSettings("PKCS12", "p12", "wrong"), "Failed to load SSL keystore p12 of type PKCS12"),
        (KeyStoreSettings("BKS", "p12", "secret"), "Failed to load SSL keystore p12 of type BKS"),
        (KeyStoreSettings("PEM", key=K, chain="x"), "Invalid PEM keystore configs"),
        (KeyStoreSettings("PEM", key=K + K, chain=C), "Invalid PEM keystore configs"),
        (KeyStoreSettings("PEM", key=K, chain=C, key_password="x"), "Invalid PEM keystore configs"),
        (KeyStoreSettings("PEM", key=SERVER.key_pem("x"), chain=C), "Invalid PEM keystore configs"),
        (
            TrustStoreSettings(certificates=C),
            "SSL trust store certs can be specified only for PEM, but trust store type is JKS.",
        ),
        (
            TrustStoreSettings("PEM", "p", certificates=C),
            "Both SSL trust store location and separate trust certificates are specified.",
        ),
        (
            TrustStoreSettings("PEM", password="x", certificates=C),
            "SSL trust store password cannot be specified for PEM format.",
        ),
        (TrustStoreSettings("PEM", "p", "x"), "SSL trust store password cannot be specified for PEM format."),
        (TrustStoreSettings(password="x"), "SSL trust store is not specified, but trust store password is specified."),
        (TrustStoreSettings("PEM", "missing"), "Failed to load PEM SSL keystore missing"),
        (TrustStoreSettings("PKCS12", "p12", "wrong"), "Failed to load SSL keystore p12 of type PKCS12"),
    ],
)
def test_errors(store: KeyStoreSettings | TrustStoreSettings, text: str) -> None:
    assert str(refused(store, p12=SERVER.pkcs12("secret"), ca=CA.chain_pem())) == text


def test_a_store_without_key() -> None:
    store = jks("secret", certificate=CA.der()[0])
    assert str(refused(KeyStoreSettings("JKS", "k", "secret"), k=store)) == "No available authentication scheme"


def jks(
    password: str, key: bytes | None = None, chain: tuple[bytes, ...] = (), certificate: bytes | None = None
) -> bytes:
    """Return a JKS file, written by its specification."""
    secret = password.encode("utf-16-be")

    def text(value: str) -> bytes:
        return struct.pack(">H", len(value)) + value.encode()

    def of_certificate(der: bytes) -> bytes:
        return text("X.509") + struct.pack(">I", len(der)) + der

    def der(tag: int, content: bytes) -> bytes:
        return bytes([tag, 0x82]) + struct.pack(">H", len(content)) + content

    entries = []
    if key is not None:
        salt = stream = hashlib.sha1(b"salt").digest()
        encrypted = b""
        for begin in range(0, len(key), 20):
            stream = hashlib.sha1(secret + stream).digest()
            encrypted += bytes(a ^ b for a, b in zip(key[begin : begin + 20], stream, strict=False))
        protected = salt + encrypted + hashlib.sha1(secret + key).digest()
        algorithm = bytes.fromhex("300e060a2b060104012a021101010500")
        info = der(0x30, algorithm + der(0x04, protected))
        entries.append(
            struct.pack(">I", 1)
            + text("own")
            + bytes(8)
            + struct.pack(">I", len(info))
            + info
            + struct.pack(">I", len(chain))
            + b"".join(of_certificate(entry) for entry in chain)
        )
    if certificate is not None:
        entries.append(struct.pack(">I", 2) + text("ca") + bytes(8) + of_certificate(certificate))
    body = b"\xfe\xed\xfe\xed" + struct.pack(">II", 2, len(entries)) + b"".join(entries)
    return body + hashlib.sha1(secret + b"Mighty Aphrodite" + body).digest()


STORE = jks("secr\u00e4t", der_of(SERVER), SERVER.der(), issue("other").der()[0])


def test_jks() -> None:
    material = key_of(KeyStoreSettings("JKS", "k", "secr\u00e4t"), k=STORE)
    assert clear(material) == der_of(SERVER)
    assert (material.chain, material.alias) == (SERVER.der(), "own")
    trusted = load_trusted(TrustStoreSettings("JKS", "t"), files(t=STORE))
    assert trusted is not None
    assert [subject_name(certificate) for certificate in trusted] == ["CN=server", "CN=other"]


def test_wrong_passwords_of_jks() -> None:
    error = refused(KeyStoreSettings("JKS", "k", "wrong"), k=STORE)
    assert str(error) == "Failed to load SSL keystore k of type JKS"
    assert error.reason == "Keystore was tampered with, or password was incorrect"
    assert refused(KeyStoreSettings("JKS", "k", "secr\u00e4t", "wrong"), k=STORE).reason == "Cannot recover key"
    assert refused(TrustStoreSettings("JKS", "k", "wrong"), k=STORE).reason == error.reason


def test_a_store_with_something_else_than_certificates() -> None:
    store = jks("secret", der_of(SERVER), (b"0\x03abc",))
    for settings_of_store in (KeyStoreSettings("JKS", "k", "secret"), TrustStoreSettings("JKS", "k", "secret")):
        assert str(refused(settings_of_store, k=store)) == "Failed to load SSL keystore k of type JKS"


@given(st.data())
@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_damaged_stores_are_refused(data: st.DataObject) -> None:
    """Truncated or changed bytes are a clean error; JKS is read without its digest, as a trust store may be."""
    store = data.draw(st.sampled_from([STORE, P12]))
    damaged = bytearray(store[: data.draw(st.integers(0, len(store)))])
    for position in data.draw(st.lists(st.integers(0, max(0, len(damaged) - 1)), max_size=3)) if damaged else []:
        damaged[position] ^= data.draw(st.integers(1, 255))
    resealed = bytes(damaged[:-20])
    resealed += hashlib.sha1("secr\u00e4t".encode("utf-16-be") + b"Mighty Aphrodite" + resealed).digest()
    for content, password in ((bytes(damaged), "secr\u00e4t"), (bytes(damaged), None), (resealed, "secr\u00e4t")):
        texts = []
        try:
            load_trusted(TrustStoreSettings("JKS", "t", password), files(t=content))
            if password is not None:
                load_key(KeyStoreSettings("JKS", "t", password), files(t=content))
                assert store != STORE or content in (STORE, resealed)
        except StoreError as error:
            texts.append(str(error))
        assert set(texts) <= {"Failed to load SSL keystore t of type JKS", "No available authentication scheme"}


P12 = SERVER.pkcs12("secr\u00e4t")


@given(st.text(alphabet="-BEGIN CRTFAPVKYD\nabcd=: "))
def test_any_pem_text_is_loaded_or_refused(text: str) -> None:
    for block in (text, f"-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n{C}"):
        with pytest.raises(StoreError):
            key_of(KeyStoreSettings("PEM", key=block, chain=text))
    with pytest.raises(StoreError):
        load_trusted(TrustStoreSettings("PEM", certificates=text), NO_FILES)


@needs_keytool
@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
@pytest.mark.parametrize("algorithm", ["RSA", "EC"])
def test_stores_of_keytool(tmp_path: Path, kind: str, algorithm: str) -> None:
    path, certificate = str(tmp_path / "store"), tmp_path / "ca.pem"
    common = ("-keystore", path, "-storetype", kind, "-storepass", "secret")
    for alias in ("first", "second"):
        size = ("-groupname", "secp256r1") if algorithm == "EC" else ("-keysize", "2048")
        keytool(
            "-genkeypair", "-alias", alias, "-keyalg", algorithm, *size, "-dname", f"CN={alias},O=Org\\, Inc", *common
        )
    certificate.write_text(CA.chain_pem())
    keytool("-importcert", "-noprompt", "-alias", "ca", "-file", str(certificate), *common)
    material = load_key(KeyStoreSettings(kind, path, "secret"), read_file)
    assert material is not None
    assert subject_name(material.chain[0]) == f"CN={material.alias},O=Org\\, Inc"
    key = serialization.load_pem_private_key(material.key_pem, None)
    assert (
        key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        in material.chain[0]
    )
    trusted = load_trusted(TrustStoreSettings(kind, path, "secret"), read_file)
    assert trusted is not None
    assert CA.der()[0] in trusted
    with pytest.raises(StoreError, match=f"Failed to load SSL keystore .* of type {kind}"):
        load_key(KeyStoreSettings(kind, path, "wrong"), read_file)


@needs_keytool
@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_trust_stores_of_keytool(tmp_path: Path, kind: str) -> None:
    path = str(tmp_path / "store")
    for alias in ("a", "b"):
        certificate = tmp_path / f"{alias}.pem"
        certificate.write_text(issue(alias).chain_pem())
        keytool("-importcert", "-noprompt", "-alias", alias, "-file", str(certificate), "-keystore", path,
                "-storetype", kind, "-storepass", "secret")  # fmt: skip
    trusted = load_trusted(TrustStoreSettings(kind, path, "secret"), read_file)
    assert trusted is not None
    assert sorted(subject_name(certificate) for certificate in trusted) == ["CN=a", "CN=b"]


@needs_keytool
def test_a_key_password_of_its_own(tmp_path: Path) -> None:
    path = str(tmp_path / "store")
    keytool("-genkeypair", "-alias", "a", "-keyalg", "RSA", "-dname", "CN=a", "-keystore", path, "-storetype", "JKS",
            "-storepass", "secret", "-keypass", "other1")  # fmt: skip
    assert load_key(KeyStoreSettings("JKS", path, "secret", "other1"), read_file) is not None
    with pytest.raises(StoreError, match="of type JKS"):
        load_key(KeyStoreSettings("JKS", path, "secret"), read_file)
