"""Random sequences of frames into the login of a connection: wrong order, damaged tokens, changes of mechanism and user.

Each frame is answered or raises PeerError, and no client is authenticated without a password. A mechanism that accepts
everything proves that the check works.
"""

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.broker.security.login import Login, LoginAnswer, Mechanism
from ottla.protocol.connection import ClientConnection
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.wire import PeerError
from ottla.security.sasl.mechanism import ServerExchange
from ottla.security.sasl.oauthbearer import OAuthBearerServer
from ottla.security.sasl.plain import PlainServer
from ottla.security.sasl.scram import ScramClient, ScramServer
from ottla.security.sasl.unsecured import UnsecuredValidator
from ottla.security.scram import NAMES, credential, salt_password
from tests.fuzz.mutations import damaged

SECONDS = 2.0
USERS = {"alice": "alice-secret", "bob": "bob-secret"}
SALT = b"salt" * 4
NOW_MS = 1_700_000_000_000


def mechanisms(rng: random.Random) -> dict[str, Mechanism]:
    """All mechanisms, with sessions of one minute."""

    def scram(name: str) -> Callable[[bool], ServerExchange]:
        number = NAMES[name]
        known = {user: credential(number, SALT, STORED[user, name], 4096) for user in USERS}
        return lambda _: ScramServer(name, known.get, nonce=rng.randbytes(32), secret=b"secret")

    exchanges: dict[str, Callable[[bool], ServerExchange]] = {
        "PLAIN": lambda _: PlainServer(USERS),
        "OAUTHBEARER": lambda _: OAuthBearerServer(UnsecuredValidator()),
        **{name: scram(name) for name in NAMES},
    }
    return {name: Mechanism(exchange, 60_000) for name, exchange in exchanges.items()}


STORED = {
    (user, name): salt_password(number, password.encode(), SALT, 4096)
    for user, password in USERS.items()
    for name, number in NAMES.items()
}


class Attacker:
    """Client that knows the password of alice, or none, and sends what it likes."""

    def __init__(self, rng: random.Random, user: str | None) -> None:
        self._rng = rng
        self._user = user
        self._wire = ClientConnection("fuzz")
        self._scram: ScramClient | None = None
        self.answer = b""
        """The last token of the broker."""

    def frame(self) -> bytes:
        """The next frame, without its size."""
        rng = self._rng
        kind = rng.randrange(12)
        if kind == 0:
            return rng.randbytes(rng.choice((0, 1, 4, 9, 30, 300)))
        if kind == 1:
            return self._request(
                ApiVersionsRequest(client_software_name=rng.choice(("ok", "x y", "")), client_software_version="1"), 3
            )
        if kind in (2, 3, 4):
            names = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "", "plain")
            return self._request(SaslHandshakeRequest(mechanism=rng.choice(names)), rng.randrange(2))
        if kind == 5:
            return self._request(MetadataRequest(topics=[]), 12)
        token = self._token()
        return token if kind == 6 else self._request(SaslAuthenticateRequest(auth_bytes=token), rng.randrange(3))

    def _request(self, request: Any, version: int) -> bytes:
        whole = b"".join(self._wire.request(request, version, expect_answer=False))[4:]
        return damaged(whole, whole, self._rng) if self._rng.random() < 0.2 else whole

    def _token(self) -> bytes:
        rng = self._rng
        user = self._user or rng.choice(("alice", "bob", "mallory", ""))
        password = USERS[self._user] if self._user else rng.choice(("", "wrong", "x" * 70_000))
        kind = rng.randrange(6)
        if kind == 0:
            token = b"\0".join((b"", user.encode(), password.encode()))
        elif kind in (1, 2):
            self._scram = ScramClient(rng.choice(tuple(NAMES)), user, password, nonce=rng.randbytes(17))
            token = self._scram.initial()
        elif kind == 3 and self._scram is not None and self.answer.startswith(b"r="):
            try:
                token = self._scram.step(self.answer) or b""
            except Exception:  # noqa: BLE001  (the server's message is for another exchange)
                token = b"c=biws,r=x,p=AAAA"
        else:
            token = b"n,,\x01auth=Bearer e30.e30.\x01\x01"
        return damaged(token, token, rng) if rng.random() < 0.3 else token


def run(rng: random.Random, user: str | None, known: dict[str, Mechanism]) -> Iterator[str]:
    """One connection until it is closed; yields the principal of each success."""
    principals: list[str] = []
    login = Login(known, lambda envelope: ApiVersionsResponse(), lambda exchange: principals.append(exchange.principal))
    attacker = Attacker(rng, user)
    now_ms = 0
    for _ in range(30):
        now_ms += rng.choice((0, 1, 500, 1500, 70_000))
        try:
            answer = login.receive(attacker.frame(), now_ms, NOW_MS + now_ms)
        except PeerError:
            break
        yield from principals
        principals.clear()
        if answer is None:
            continue
        assert isinstance(answer, LoginAnswer)
        reply = b"".join(answer.pieces)
        position = reply.find(b"r=")
        attacker.answer = reply[position:].rstrip(b"\0") if position >= 0 else b""
        if answer.refusal is not None:
            assert isinstance(answer.refusal, str)
            break


def strangers(known: dict[str, Mechanism], rng: random.Random, seconds: float) -> list[str]:
    """Principals that a client without a password has got."""
    end = time.monotonic() + seconds
    principals: list[str] = []
    while time.monotonic() < end and not principals:
        principals = list(run(rng, None, known))
    return principals


def test_nobody_gets_in_without_a_password(dice_seed: int, request: pytest.FixtureRequest) -> None:
    rng = random.Random(dice_seed)
    assert strangers(mechanisms(rng), rng, SECONDS * request.config.getoption("--soak")) == []


def test_a_client_with_a_password_gets_in_as_itself(dice_seed: int, request: pytest.FixtureRequest) -> None:
    rng = random.Random(dice_seed)
    known = mechanisms(rng)
    end = time.monotonic() + SECONDS * request.config.getoption("--soak")
    counted = 0
    while time.monotonic() < end or counted <= 10:
        for principal in run(rng, "alice", known):
            assert principal == "alice"
            counted += 1


def test_the_check_sees_a_mechanism_that_accepts_everything(dice_seed: int) -> None:
    rng = random.Random(dice_seed)
    known = mechanisms(rng) | {"PLAIN": Mechanism(lambda _: PlainServer(lambda user, password: True))}
    assert strangers(known, rng, 20.0) != []
