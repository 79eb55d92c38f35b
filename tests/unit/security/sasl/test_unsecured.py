"""Unsecured tokens: the rules of Kafka 4.4."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.security.sasl.mechanism import trim
from ottla.security.sasl.oauthbearer import InvalidToken, OAuthBearerClient, OAuthBearerServer, ValidatedToken
from ottla.security.sasl.unsecured import TokenOptionError, UnsecuredSettings, UnsecuredValidator, unsecured_token
from tests.unit.security.sasl.exchanges import NOW, run

SECONDS = NOW // 1000


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def token_of(**claims: object) -> str:
    present = {"sub": "alice", "exp": SECONDS + 60, **claims}
    return f"{part({'alg': 'none'})}.{part({key: value for key, value in present.items() if value is not None})}."


def validate(token: str, **options: str) -> ValidatedToken:
    settings = UnsecuredSettings.of_options({f"unsecuredValidator{name}": value for name, value in options.items()})
    return UnsecuredValidator(settings)(token, NOW)


def test_a_token() -> None:
    assert validate(token_of()) == ValidatedToken("alice", NOW + 60_000)
    assert validate(token_of(iat=SECONDS, exp=SECONDS + 0.5)).expires_ms == NOW + 500
    assert validate(token_of(scope=["a", " b ", ""])).scope == {"a", "b"}
    assert validate(token_of(scope="a b")).scope == {"a b"}
    assert validate(token_of(user="bob", sub=None), PrincipalClaimName=" user ").principal == "bob"


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a.b",
        "..",
        "a.b.c",
        token_of() + "c2ln",
        token_of()[:-1],
        token_of().replace("eyJ", "e\u00fcJ"),
        "*" + token_of(),
        f"{part({'alg': 'RS256'})}.{token_of().split('.')[1]}.",
        token_of(sub=None),
        token_of(sub=" "),
        token_of(sub=5),
        token_of(sub=["alice"]),
        token_of(exp=None),
        token_of(exp="1"),
        token_of(exp=SECONDS),
        token_of(exp=1e308),
        token_of(exp=10**400),
        token_of(exp=float("nan")),
        token_of(iat=SECONDS + 1),
        token_of(iat="x"),
        token_of(scope=5),
        f"{part({'alg': 'none'})}.{base64.urlsafe_b64encode(b'[' * 6000).decode()}.",
    ],
)
def test_invalid_tokens(token: str) -> None:
    with pytest.raises(InvalidToken) as raised:
        validate(token)
    assert raised.value.answer() == '{"status":"invalid_token"}'


@pytest.mark.parametrize("header", [{}, []])
def test_a_token_without_algorithm_is_invalid(header: object) -> None:
    """Kafka closes the connection."""
    with pytest.raises(InvalidToken):
        validate(f"{part(header)}.{token_of().split('.')[1]}.")


def test_the_clock_skew() -> None:
    validate(token_of(exp=SECONDS - 1), AllowableClockSkewMs="1001")
    validate(token_of(iat=SECONDS + 1), AllowableClockSkewMs="1000")
    for token in (token_of(exp=SECONDS - 1), token_of(iat=SECONDS + 2), token_of(exp=SECONDS - 1, iat=SECONDS - 1)):
        with pytest.raises(InvalidToken):
            validate(token, AllowableClockSkewMs="1000")


def test_a_required_scope() -> None:
    assert validate(token_of(roles=["a", "b", "c"]), ScopeClaimName="roles", RequiredScope=" a  b ").scope
    with pytest.raises(InvalidToken) as raised:
        validate(token_of(scope="a"), RequiredScope="a b")
    assert raised.value.answer() == '{"status":"insufficient_scope", "scope":"[a, b]"}'


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"AllowableClockSkewMs": "-1"}, "Allowable clock skew millis must not be negative: -1"),
        ({"AllowableClockSkewMs": "1s"}, 'For input string: "1s"'),
        ({"RequiredScope": 'a"b'}, 'Invalid scope value: a"b'),
    ],
)
def test_invalid_options_of_a_server(options: dict[str, str], error: str) -> None:
    with pytest.raises(TokenOptionError) as raised:
        validate("", **options)
    assert str(raised.value) == error


def claims_of(**options: str) -> dict[str, object]:
    token = unsecured_token({f"unsecuredLogin{name}": value for name, value in options.items()}, NOW)
    header, claims, signature = token.split(".")
    assert header == part({"alg": "none"}).replace(part({"alg": "none"}), "eyJhbGciOiJub25lIn0")
    assert signature == ""
    decoded = json.loads(base64.urlsafe_b64decode(claims + "=="))
    assert isinstance(decoded, dict)
    return decoded


def test_claims_of_a_client() -> None:
    assert claims_of(
        StringClaim_sub='a"b\\c', NumberClaim_x="1.5", ListClaim_scope="|a|b", LifetimeSeconds="60", Extension_y="z"
    ) == {"sub": 'a"b\\c', "x": 1.5, "scope": ["a", "b"], "iat": NOW / 1000, "exp": NOW / 1000 + 60}
    assert claims_of(StringClaim_user="u", PrincipalClaimName="user")["exp"] == NOW / 1000 + 3600


@pytest.mark.parametrize(
    ("text", "elements"),
    [("", []), ("|", []), ("|a", ["a"]), (".a.b", ["a", "b"]), ("|a||b", ["a", "", "b", ""]), ("|a|", ["a", ""])],
)
def test_lists(text: str, elements: list[str]) -> None:
    assert claims_of(StringClaim_sub="a", ListClaim_x=text)["x"] == elements


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({}, "No principal name in JWT claim: sub"),
        ({"StringClaim_sub": " "}, "No principal name in JWT claim: sub"),
        ({"StringClaim_sub": "a", "NumberClaim_exp": "1"}, "Cannot explicitly set the 'exp' claim"),
        ({"StringClaim_sub": "a", "NumberClaim_x": "one"}, 'For input string: "one"'),
        ({"StringClaim_sub": "a", "LifetimeSeconds": "1.5"}, 'For input string: "1.5"'),
        ({"StringClaim_sub": "a", "NumberClaim_scope": "1"}, "The 'scope' claim was neither a text nor a list"),
    ],
)
def test_invalid_options_of_a_client(options: dict[str, str], error: str) -> None:
    with pytest.raises(TokenOptionError) as raised:
        claims_of(**options)
    assert str(raised.value) == error


@given(st.text().filter(trim))
def test_a_token_of_a_client_is_accepted(name: str) -> None:
    name = name.encode("utf-8", "replace").decode()
    server = OAuthBearerServer(UnsecuredValidator())
    run(OAuthBearerClient(unsecured_token({"unsecuredLoginStringClaim_sub": name}, NOW)), server)
    assert server.principal == name
    assert server.expires_ms == NOW + 3_600_000
