"""Signed tokens; what is accepted and refused is as in Kafka 4.4."""

import base64
import hmac
import json
from collections.abc import Mapping
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jws
from joserfc.errors import SecurityWarning
from joserfc.jwk import ECKey, Key, OctKey, OKPKey, RSAKey

from ottla.security.sasl.jwt import (
    AssertionSettings,
    InvalidJwtSettings,
    InvalidKeys,
    JwtSettings,
    JwtValidator,
    UnknownKey,
    check_settings,
    client_assertion,
)
from ottla.security.sasl.oauthbearer import InvalidToken, ValidatedToken
from tests.unit.security.sasl.exchanges import NOW

SECONDS = NOW // 1000
RSA = RSAKey.generate_key(2048, {"kid": "r"})
OTHER_RSA = RSAKey.generate_key(2048, {"kid": "other"})
EC = ECKey.generate_key("P-256", {"kid": "e"})
OCT = OctKey.generate_key(256, {"kid": "o"})
ED = OKPKey.generate_key("Ed25519", {"kid": "d"})
SETTINGS = JwtSettings(("kafka",), "https://issuer")
CLAIMS = {"sub": "alice", "iss": "https://issuer", "aud": "kafka", "iat": SECONDS - 40, "exp": SECONDS + 50}


def jwks(*keys: Key, **members: Any) -> str:
    return json.dumps({"keys": [{**key.as_dict(private=False), **members} for key in keys]})


def signed(
    claims: Mapping[str, Any] = CLAIMS, key: Key = RSA, alg: str = "RS256", kid: str | None = "r", **header: Any
) -> str:
    members = {"alg": alg, **({} if kid is None else {"kid": kid}), **header}
    registry = jws.JWSRegistry(algorithms=[alg], strict_check_header=False)
    return jws.serialize_compact(members, json.dumps(claims), key, algorithms=[alg], registry=registry)


def validate(token: str, keys: str | None = None, settings: JwtSettings = SETTINGS) -> ValidatedToken:
    return JwtValidator(keys or jwks(RSA, EC, OCT), settings)(token, NOW)


def refused(token: str, keys: str | None = None, settings: JwtSettings = SETTINGS) -> str:
    with pytest.raises(InvalidToken) as raised:
        validate(token, keys, settings)
    assert raised.value.answer() == '{"status":"invalid_token"}'
    return str(raised.value)


def changed(**claims: Any) -> str:
    present = {**CLAIMS, **claims}
    return signed({name: value for name, value in present.items() if value is not None})


def test_a_token() -> None:
    assert validate(signed()) == ValidatedToken("alice", (SECONDS + 50) * 1000)


@pytest.mark.parametrize("alg", ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"])
def test_rsa_algorithms(alg: str) -> None:
    assert validate(signed(alg=alg)).principal == "alice"


def test_other_types_of_keys() -> None:
    assert validate(signed(key=EC, alg="ES256", kid="e")).principal == "alice"
    assert validate(signed(key=OCT, alg="HS256", kid="o")).principal == "alice"
    with pytest.warns(SecurityWarning, match="EdDSA is deprecated"):
        token = signed(key=ED, alg="EdDSA", kid="d")
    assert validate(token, jwks(ED)).principal == "alice"


def test_all_keys_are_tried_without_a_kid() -> None:
    assert validate(signed(kid=None), jwks(OTHER_RSA, EC, RSA)).principal == "alice"
    assert "signed" in refused(signed(kid=None), jwks(OTHER_RSA, EC))


def test_an_unknown_kid() -> None:
    with pytest.raises(UnknownKey):
        validate(signed(kid="x"))
    assert "has signed" in refused(signed(kid="other"), jwks(RSA, OTHER_RSA))


def test_a_changed_token() -> None:
    header, claims, signature = signed().split(".")
    admin = base64.urlsafe_b64encode(json.dumps({**CLAIMS, "sub": "admin"}).encode()).rstrip(b"=").decode()
    assert "has signed" in refused(f"{header}.{admin}.{signature}")
    for part in (f"{header}.{claims}.", f"{header}.{claims}", f"{header}..{signature}", "", "a.b.c", "\u00fc.b.c"):
        assert "Malformed" in refused(part)
    assert "has signed" in refused(f"{header}.{claims}.{signature[:-8]}")


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", None, 5])
def test_an_unsigned_token(algorithm: object) -> None:
    header = base64.urlsafe_b64encode(json.dumps({"alg": algorithm}).encode()).rstrip(b"=").decode()
    assert refused(f"{header}.{signed().split('.')[1]}.AAAA") == "Unsigned tokens are not accepted"


def test_a_public_key_is_no_shared_secret() -> None:
    """The attack signs with HMAC, and the public key as its secret."""
    header = base64.urlsafe_b64encode(b'{"alg":"HS256","kid":"r"}').rstrip(b"=").decode()
    signing_input = f"{header}.{signed().split('.')[1]}"
    for secret in (RSA.as_pem(private=False), str(RSA.as_dict()["n"]).encode()):
        signature = base64.urlsafe_b64encode(hmac.digest(secret, signing_input.encode(), "sha256")).rstrip(b"=")
        assert "has signed" in refused(f"{signing_input}.{signature.decode()}")


def test_short_keys_are_left_out() -> None:
    header = base64.urlsafe_b64encode(b'{"alg":"HS256"}').rstrip(b"=").decode()
    signing_input = f"{header}.{signed().split('.')[1]}"
    for size, refuses in ((16, True), (32, False)):
        signature = hmac.digest(b"x" * size, signing_input.encode(), "sha256")
        token = f"{signing_input}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"
        secret = base64.urlsafe_b64encode(b"x" * size).rstrip(b"=").decode()
        keys = json.dumps({"keys": [{"kty": "oct", "k": secret}]})
        if refuses:
            refused(token, keys)
        else:
            assert validate(token, keys).principal == "alice"


def test_keys_that_are_not_for_signatures_are_left_out() -> None:
    assert validate(signed(), jwks(RSA, use="sig", alg="RS256", key_ops=["verify"])).principal == "alice"
    for keys in (jwks(RSA, use="enc"), jwks(RSA, alg="RS512"), jwks(RSA, kty="x"), jwks(RSA, n="AQAB"), '{"keys":[5]}'):
        refused(signed(), keys)
    assert validate(signed(), json.dumps({"keys": [{"kty": "EC"}, RSA.as_dict(private=False)]})).principal == "alice"


@pytest.mark.parametrize("text", ["", "[]", "5", "{}", '{"keys": 5}', '{"keys": {}}'])
def test_no_jwks(text: str) -> None:
    with pytest.raises(InvalidKeys):
        JwtValidator(text, SETTINGS)


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": SECONDS - 29},
        {"exp": SECONDS + 10, "nbf": SECONDS},
        {"nbf": SECONDS + 30},
        {"iat": SECONDS + 50},
        {"aud": ["other", "kafka"]},
        {"sub": " alice "},
        {"exp": SECONDS + 50.9},
    ],
)
def test_valid_claims(claims: dict[str, Any]) -> None:
    assert validate(changed(**claims)).principal == "alice"


@pytest.mark.parametrize("blank", [chr(code) for code in range(0x110000) if chr(code).isspace()], ids=ascii)
def test_subjects_lose_only_the_blanks_that_java_trims(blank: str) -> None:
    """An "alice" after U+2003 is another user than "alice"."""
    name = validate(changed(sub=f"{blank}alice{blank}")).principal
    assert name == ("alice" if blank <= " " else f"{blank}alice{blank}")


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": None},
        {"exp": SECONDS - 30},
        {"exp": "later"},
        {"exp": True},
        {"exp": -1},
        {"exp": 1e300},
        {"exp": float("inf")},
        {"iat": None},
        {"iat": SECONDS + 51},
        {"nbf": SECONDS + 31},
        {"nbf": "x"},
        {"exp": SECONDS + 20, "nbf": SECONDS + 21},
        {"iss": None},
        {"iss": "https://issuer/"},
        {"aud": None},
        {"aud": "Kafka"},
        {"aud": ["a", "b"]},
        {"aud": []},
        {"aud": ["kafka", 5]},
        {"aud": {"kafka": 1}},
        {"sub": None},
        {"sub": ""},
        {"sub": 5},
        {"scope": ["a", "a"]},
        {"scope": [""]},
    ],
)
def test_invalid_claims(claims: dict[str, Any]) -> None:
    refused(changed(**claims))


def test_names_of_claims() -> None:
    settings = SETTINGS._replace(subject_claim="user", scope_claim="roles")
    validated = validate(changed(sub=None, user="u", roles=["a", "b"]), settings=settings)
    assert validated == ValidatedToken("u", (SECONDS + 50) * 1000, frozenset(("a", "b")))


def test_without_audience_and_issuer() -> None:
    assert validate(changed(aud=5, iss=None), settings=JwtSettings()).principal == "alice"


def test_no_clock_skew() -> None:
    refused(changed(exp=SECONDS), settings=SETTINGS._replace(clock_skew_seconds=0))


def test_settings_that_a_broker_needs() -> None:
    check_settings(SETTINGS, allow_any_audience=False, allow_any_issuer=False)
    check_settings(JwtSettings(), allow_any_audience=True, allow_any_issuer=True)
    with pytest.raises(InvalidJwtSettings, match=r'requires "sasl.oauthbearer.expected.audience" to be configured'):
        check_settings(JwtSettings((), "x"), allow_any_audience=False, allow_any_issuer=False)
    with pytest.raises(InvalidJwtSettings, match=r'requires "sasl.oauthbearer.expected.issuer" to be configured'):
        check_settings(JwtSettings(("x",)), allow_any_audience=False, allow_any_issuer=False)


@given(st.text())
def test_any_text_is_refused(token: str) -> None:
    refused(token)


def _pem(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, password: bytes | None = None) -> bytes:
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        encryption = serialization.BestAvailableEncryption(password)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
@pytest.mark.parametrize("password", [None, "secret"])
def test_a_client_assertion(algorithm: str, password: str | None) -> None:
    key = rsa.generate_private_key(65537, 2048) if algorithm == "RS256" else ec.generate_private_key(ec.SECP256R1())
    settings = AssertionSettings(
        algorithm, "kafka", "https://issuer", "alice", header={"kid": "k"}, payload={"x": 1, "sub": "template"}
    )
    token = client_assertion(settings, _pem(key, password and password.encode()), password, NOW, "id")  # type: ignore[arg-type]
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    imported: Key = RSAKey.import_key(public) if algorithm == "RS256" else ECKey.import_key(public)
    keys = json.dumps({"keys": [{**imported.as_dict(private=False), "kid": "k"}]})
    assert validate(token, keys) == ValidatedToken("alice", NOW + 300_000)
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    assert (claims["x"], claims["jti"], claims["nbf"]) == (1, "id", SECONDS - 60)


def test_assertions_that_cannot_be_signed() -> None:
    pem = _pem(ec.generate_private_key(ec.SECP256R1()), b"secret")
    with pytest.raises(InvalidJwtSettings, match="Unsupported signing algorithm: HS256"):
        client_assertion(AssertionSettings("HS256"), pem, "secret", NOW)
    for algorithm, password in (("ES256", "wrong"), ("ES256", None), ("RS256", "secret")):
        with pytest.raises(InvalidJwtSettings, match=f"The private key cannot sign with {algorithm}"):
            client_assertion(AssertionSettings(algorithm), pem, password, NOW)
