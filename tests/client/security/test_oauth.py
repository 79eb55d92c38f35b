"""OAUTHBEARER in the clients: token endpoints, files, Python functions and unsecured tokens."""

import base64
import json
import ssl
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ottla import Admin, Producer
from ottla.client.errors import InvalidClientConfig, NotAuthenticated

from .conftest import Configs, Logins, asyncio_round_trip, fresh, refusal, round_trip
from .token_server import TokenServer, granted, token_server, unsecured

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
OLDER_HANDLER = "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
ID = "sasl.oauthbearer.client.credentials.client.id"
SECRET = "sasl.oauthbearer.client.credentials.client.secret"
URL = "sasl.oauthbearer.token.endpoint.url"
QUICK = {"sasl.login.retry.backoff.max.ms": "300"}


@pytest.fixture
def server() -> Iterator[TokenServer]:
    with token_server() as server:
        yield server


def oauth(logins: Logins, listener: str = "SASL", **configs: Any) -> Configs:
    client_configs = logins.sasl("OAUTHBEARER", listener)
    del client_configs["sasl.jaas.config"]
    return client_configs | {name.replace("__", "."): value for name, value in configs.items()}


def by_secret(logins: Logins, server: TokenServer, **configs: Any) -> Configs:
    return oauth(logins, **configs) | {
        "sasl.login.callback.handler.class": HANDLER,
        URL: server.url,
        ID: "client-1",
        SECRET: "a:b c",
    }


@pytest.mark.parametrize("listener", ["SASL", "SASLTLS"])
@pytest.mark.parametrize("trip", [round_trip, asyncio_round_trip])
def test_unsecured_tokens(logins: Logins, listener: str, trip: Any) -> None:
    assert trip(logins.sasl("OAUTHBEARER", listener)) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("trip", [round_trip, asyncio_round_trip])
def test_client_credentials(logins: Logins, server: TokenServer, trip: Any) -> None:
    assert trip(by_secret(logins, server, sasl__oauthbearer__scope="kafka all")) == [b"a", b"b", b"c"]
    assert len(server.requests) == 3  # one for each client, however many connections it has
    headers, fields = server.requests[0]
    assert headers["Authorization"] == "Basic " + base64.b64encode(b"client-1:a:b c").decode()
    assert headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert headers["Accept"] == "application/json"
    assert fields == {"grant_type": "client_credentials", "scope": "kafka all"}


@pytest.mark.parametrize("handler", [OLDER_HANDLER, HANDLER, None])
def test_client_credentials_in_the_options_of_older_releases(
    logins: Logins, server: TokenServer, handler: str | None
) -> None:
    options = 'clientId="c 1" clientSecret="s/1" scope="x" extension_tenant="t1"'
    configs = oauth(logins) | {URL: server.url, "sasl.jaas.config": f"{MODULE} required {options};"}
    if handler is not None:
        configs["sasl.login.callback.handler.class"] = handler
    with Admin(configs, sasl_oauthbearer_header_urlencode=True) as admin:
        admin.list_topics()
    headers, fields = server.requests[0]
    assert headers["Authorization"] == "Basic " + base64.b64encode(b"c+1:s%2F1").decode()
    assert fields["scope"] == "x"


def test_a_token_file(logins: Logins, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(unsecured() + "\n")
    configs = oauth(logins) | {"sasl.login.callback.handler.class": HANDLER, URL: path.as_uri()}
    assert round_trip(configs) == [b"a", b"b", b"c"]
    path.unlink()
    error = refusal(configs)
    assert isinstance(error, NotAuthenticated)
    assert str(error) == f"no access token: {path}: No such file or directory; check {URL}"


def test_an_assertion_of_a_file(logins: Logins, server: TokenServer, tmp_path: Path) -> None:
    (tmp_path / "jwt").write_text("head.pay.sig\n")
    configs = oauth(logins) | {URL: server.url, "sasl.oauthbearer.assertion.file": str(tmp_path / "jwt")}
    with Admin(configs) as admin:
        admin.list_topics()
    assert server.requests[0][1] == {
        "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        "client_assertion": "head.pay.sig",
        "grant_type": "client_credentials",
    }


@pytest.mark.parametrize("password", [None, "pass"])
def test_a_signed_assertion(logins: Logins, server: TokenServer, tmp_path: Path, password: str | None) -> None:
    jwt = pytest.importorskip("joserfc.jwt")
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from joserfc.jwk import ECKey

    key = ec.generate_private_key(ec.SECP256R1())
    encryption = (
        serialization.NoEncryption() if password is None else serialization.BestAvailableEncryption(password.encode())
    )
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    (tmp_path / "key.pem").write_bytes(pem)
    (tmp_path / "template.json").write_text(json.dumps({"header": {"kid": "k1"}, "payload": {"tenant": "t1"}}))
    assertion = "sasl.oauthbearer.assertion."
    configs = oauth(logins) | {
        URL: server.url,
        "sasl.oauthbearer.scope": "all",
        "sasl.oauthbearer.jwt.retriever.class": "org.apache.kafka.common.security.oauthbearer.JwtBearerJwtRetriever",
        f"{assertion}algorithm": "ES256",
        f"{assertion}private.key.file": str(tmp_path / "key.pem"),
        f"{assertion}template.file": str(tmp_path / "template.json"),
        f"{assertion}claim.iss": "me",
        f"{assertion}claim.aud": "you",
        f"{assertion}claim.jti.include": "true",
    }
    if password is not None:
        configs[f"{assertion}private.key.passphrase"] = password
    with Admin(configs) as admin:
        admin.list_topics()
    fields = server.requests[0][1]
    assert fields["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
    assert fields["scope"] == "all"
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    token = jwt.decode(fields["assertion"], ECKey.import_key(public))
    assert token.header["kid"] == "k1"
    assert (token.claims["iss"], token.claims["aud"], token.claims["tenant"]) == ("me", "you", "t1")
    assert len(token.claims["jti"]) == 32


# Python functions.


class Provider:
    """Tokens in the style of kafka-python's providers."""

    def __init__(self, options: dict[str, str]) -> None:
        self.options = options

    def token(self) -> str:
        return unsecured(self.options["user"])


def generate_auth_token(region: str, aws_debug_creds: bool = False) -> tuple[str, int]:
    """Signature of aws_msk_iam_sasl_signer.MSKAuthTokenProvider.generate_auth_token, whose tokens are no JWTs."""
    assert region == "eu-west-1"
    return unsecured(), int(time.time() * 1000) + 900_000


@pytest.fixture
def providers(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("token_providers")
    module.Provider, module.generate_auth_token = Provider, generate_auth_token
    monkeypatch.setitem(sys.modules, "token_providers", module)


@pytest.mark.parametrize(
    ("handler", "options"),
    [
        ("token_providers:Provider", 'user="olga"'),
        ("token_providers:generate_auth_token", 'region="eu-west-1" extension_a="b"'),
        (lambda: unsecured(), ""),
        (lambda: (unsecured().encode(), time.time() + 60), ""),
        (Provider({"user": "olga"}), ""),
    ],
)
@pytest.mark.usefixtures("providers")
def test_python_functions(logins: Logins, handler: Any, options: str) -> None:
    configs = oauth(logins) | {"sasl.login.callback.handler.class": handler}
    if options:
        configs["sasl.jaas.config"] = f"{MODULE} required {options};"
    with Admin(configs) as admin:
        admin.list_topics()


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        (lambda: 1 / 0, "raised ZeroDivisionError: division by zero"),
        (lambda: None, "must return an access token, or (token, expiry in ms)"),
        (lambda: "two words", "must return an access token, or (token, expiry in ms)"),
    ],
)
def test_python_functions_that_fail(logins: Logins, handler: Any, message: str) -> None:
    error = refusal(oauth(logins) | QUICK | {"sasl.login.callback.handler.class": handler})
    assert isinstance(error, NotAuthenticated)
    assert message in str(error)


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ({}, "OAUTHBEARER has no access token: No principal name in JWT claim: sub; set sasl.login.callback.handler"),
        ({"sasl.login.callback.handler.class": "com.example.Handler"}, "a Java class cannot run here"),
        ({"sasl.login.callback.handler.class": "nothing.here:Name"}, "No module named 'nothing'"),
        ({"sasl.login.callback.handler.class": "json:nothing"}, "json has no nothing"),
        ({"sasl.login.callback.handler.class": HANDLER}, f"{URL} is missing"),
        ({URL: "ftp://host"}, f"{URL} must begin with https:, http: or file:"),
        ({URL: "http://me:hidden-1@host"}, f"{URL} must not contain a user"),
        ({URL: "http://host"}, f"{URL} requires {ID} and {SECRET}"),
        ({URL: "http://host", ID: "hidden-1"}, f"{URL} requires {SECRET}"),
        ({URL: "http://host", "sasl.oauthbearer.assertion.claim.iss": "x"}, "assertion.private.key.file"),
        ({"sasl_username": "me", "sasl_password": "hidden-1"}, "OAUTHBEARER has no sasl_username"),
        ({"sasl.jaas.config": f'{MODULE} required unsecuredLoginStringClaim_sub="a" unsecuredLoginExtension_auth="x";'},
         "Extension name auth is invalid"),
        ({"sasl.mechanism": "AWS_MSK_IAM"}, "aws_msk_iam_sasl_signer.MSKAuthTokenProvider:generate_auth_token"),
    ],
)  # fmt: skip
def test_configs_that_are_refused(logins: Logins, configs: Configs, message: str) -> None:
    with pytest.raises(InvalidClientConfig) as caught:
        Admin(oauth(logins) | configs)
    assert message in str(caught.value)
    assert "hidden-1" not in str(caught.value)


# Token servers that refuse.


def test_a_refused_secret(logins: Logins, server: TokenServer, caplog: pytest.LogCaptureFixture) -> None:
    basic = base64.b64encode(b"client-1:a:b c").decode()
    server.answer = lambda: (401, {}, f'{{"error":"invalid_client",\n"sent":"a:b c {basic}"}}'.encode())
    error = refusal(by_secret(logins, server))
    assert isinstance(error, NotAuthenticated)
    assert str(error) == (
        f'no access token: {server.url}: HTTP 401 Unauthorized: {{"error":"invalid_client", "sent":"[hidden] [hidden]"}}; '
        f"check {ID}, {SECRET} and sasl.oauthbearer.scope"
    )
    assert len(server.requests) == 1  # another attempt would fail as well
    assert "a:b c" not in caplog.text


def test_a_server_that_recovers(logins: Logins, server: TokenServer) -> None:
    answers = [(503, {}, b"busy"), (500, {}, b""), granted(unsecured())]
    server.answer = lambda: answers.pop(0)
    with Admin(by_secret(logins, server)) as admin:
        admin.list_topics()
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((200, {}, b"<html>"), "has no access_token"),
        ((200, {}, b'{"access_token": 5}'), "has no access_token"),
        ((200, {}, b'{"access_token": "a b"}'), "has no access_token"),
        ((302, {"Location": "http://127.0.0.1:1/elsewhere"}, b""), "HTTP 302"),
        (granted(unsecured(lifetime_s=-60)), "the access token has expired"),
    ],
)
def test_answers_without_a_token(logins: Logins, server: TokenServer, answer: Any, message: str) -> None:
    server.answer = lambda: answer
    error = refusal(by_secret(logins, server) | QUICK)
    assert isinstance(error, NotAuthenticated)
    assert message in str(error)


def test_a_server_that_does_not_answer(logins: Logins, server: TokenServer) -> None:
    configs = by_secret(logins, server) | QUICK | {URL: "http://127.0.0.1:1/token"}
    error = refusal(configs)
    assert isinstance(error, NotAuthenticated)
    assert str(error) == f"no access token: http://127.0.0.1:1/token: Connection refused; check {URL}"


def test_a_token_that_the_broker_refuses(logins: Logins, server: TokenServer) -> None:
    server.answer = lambda: granted("opaque", expires_in=60)
    error = refusal(by_secret(logins, server))
    assert isinstance(error, NotAuthenticated)
    assert '{"status":"invalid_token"}' in str(error)


def test_a_token_endpoint_with_tls(logins: Logins) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(logins.broker.certificates / "broker.pem")
    authority = logins.broker.certificates / "ca.pem"
    with token_server(tls) as server:
        configs = by_secret(logins, server)
        begun = time.monotonic()
        error = refusal(configs)
        assert "certificate verify failed" in str(error)
        assert time.monotonic() - begun < 5  # no retries
        options = f'"ssl.truststore.type"="PEM" "ssl.truststore.location"="{authority}"'
        with Admin(configs | {"sasl.jaas.config": f"{MODULE} required {options};"}) as admin:
            admin.list_topics()


def test_tokens_are_replaced_under_load(logins: Logins, server: TokenServer) -> None:
    """Sessions end with their token, of 3 s here; the client logs in again with a newer one, and loses nothing."""
    server.answer = lambda: granted(unsecured(lifetime_s=3))
    topic = fresh()
    configs = by_secret(logins, server)
    with Producer(configs, linger_ms=0) as producer:
        deadline = time.monotonic() + 7
        futures: list[Any] = []
        while time.monotonic() < deadline:
            futures.append(producer.send(topic, str(len(futures)), partition=0))
            time.sleep(0.01)
        offsets = [future.result(30).offset for future in futures]
    assert offsets == list(range(len(futures)))
    assert 3 <= len(server.requests) <= 5
