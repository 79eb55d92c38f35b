"""OAUTHBEARER with signed tokens: the broker fetches the keys of an OAuth server, and new ones when they change."""

import http.server
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

from ottla.protocol.errors import NONE, SASL_AUTHENTICATION_FAILED
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.testing import EmbeddedBroker
from tests.conformance.conftest import Wire

PACKAGE = "org.apache.kafka.common.security.oauthbearer"


class Server:
    """OAuth server that publishes its keys."""

    def __init__(self) -> None:
        self.keys = KeySet([])
        self.requests = 0
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.requests += 1
                body = json.dumps(outer.keys.as_dict(private=False)).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/jwks"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def configs(url: str) -> dict[str, str]:
    prefix = "listener.name.sasl_plaintext"
    return {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        f"{prefix}.sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{prefix}.oauthbearer.sasl.jaas.config": f"{PACKAGE}.OAuthBearerLoginModule required;",
        f"{prefix}.oauthbearer.sasl.server.callback.handler.class": f"{PACKAGE}.OAuthBearerValidatorCallbackHandler",
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "sasl.oauthbearer.jwks.endpoint.refresh.ms": "200",
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": "https://issuer.example",
        "connection.failed.authentication.delay.ms": "0",
    }


def new_key(name: str) -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": name, "use": "sig", "alg": "RS256"})


def token(key: RSAKey, **claims: Any) -> str:
    now = int(time.time())
    body = {"sub": "olga", "aud": "kafka", "iss": "https://issuer.example", "iat": now, "exp": now + 60, **claims}
    return jwt.encode({"alg": "RS256", "kid": key.kid}, body, key)


def log_in(broker: EmbeddedBroker, bearer: str) -> int:
    wire = Wire(broker.address, is_kafka=False)
    assert wire.send(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1).error_code == NONE
    request = SaslAuthenticateRequest(auth_bytes=f"n,,\x01auth=Bearer {bearer}\x01\x01".encode())
    answer = wire.send(request, 2)
    if answer.auth_bytes:
        answer = wire.send(SaslAuthenticateRequest(auth_bytes=b"\x01"), 2)
    wire.close()
    return int(answer.error_code)


def wait_for_login(broker: EmbeddedBroker, bearer: str) -> None:
    deadline = time.monotonic() + 20
    while log_in(broker, bearer) != NONE:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_signed_tokens(server: Server) -> None:
    first, second = new_key("1"), new_key("2")
    server.keys.keys.append(first)
    with EmbeddedBroker(configs(server.url)) as broker:
        wait_for_login(broker, token(first))
        for bad in (
            token(first, aud="other"),
            token(first, iss="https://other.example"),
            token(first, exp=int(time.time()) - 100),
            token(second),
            token(first)[:-4] + "AAAA",
        ):
            assert log_in(broker, bad) == SASL_AUTHENTICATION_FAILED
        server.keys.keys.append(second)
        wait_for_login(broker, token(second))
        assert log_in(broker, token(first)) == NONE


def test_keys_in_a_file(tmp_path: Path) -> None:
    key = new_key("1")
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps({"keys": [key.as_dict(private=False)]}))
    with EmbeddedBroker(configs(path.as_uri())) as broker:
        wait_for_login(broker, token(key))


def test_a_server_that_does_not_answer(caplog: pytest.LogCaptureFixture, server: Server) -> None:
    url = server.url
    server.close()
    with EmbeddedBroker(configs(url)) as broker:
        assert log_in(broker, token(new_key("1"))) == SASL_AUTHENTICATION_FAILED
        deadline = time.monotonic() + 10
        while "cannot fetch the keys for OAUTHBEARER: " + url not in caplog.text:
            assert time.monotonic() < deadline
            time.sleep(0.02)
