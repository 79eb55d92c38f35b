"""SCRAM: the examples of RFC 7677 and the answers of Kafka 4.4."""

import base64
import hashlib
import random
import re
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.security.sasl.mechanism import (
    AUTHENTICATION,
    REAUTHENTICATION,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    AuthenticationFailed,
    MalformedToken,
)
from ottla.security.sasl.scram import ScramClient, ScramServer, TokenCredential
from ottla.security.scram import (
    NAMES,
    CredentialForm,
    ScramCredential,
    base36,
    credential,
    make_up_credential,
    salt_password,
)
from tests.unit.security.sasl.exchanges import NOW, run

SECRET = b"secret of the broker"
FAILURE = "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
WRONG_ID = "Authentication failed: Client requested an authorization id that is different from username"


def of_password(
    password: str, mechanism: str = SCRAM_SHA_256, salt: bytes = b"salt", rounds: int = 4096
) -> ScramCredential:
    number = NAMES[mechanism]
    return credential(number, salt, salt_password(number, password.encode(), salt, rounds), rounds)


ALICE = of_password("geheim")
NO_USERS: dict[str, ScramCredential] = {}


def server_of(occasion: str = AUTHENTICATION) -> ScramServer:
    return ScramServer(SCRAM_SHA_256, {"alice": ALICE}.get, nonce=b"server nonce", secret=SECRET, occasion=occasion)


def client_of(user: str = "alice", password: str = "geheim", **extensions: str) -> ScramClient:
    return ScramClient(SCRAM_SHA_256, user, password, nonce=b"client nonce", extensions=extensions)


def refused(action: Callable[[], object]) -> str:
    with pytest.raises(AuthenticationFailed) as raised:
        action()
    return str(raised.value)


def test_the_example_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    users = {"user": of_password("pencil", salt=salt)}
    server = ScramServer(SCRAM_SHA_256, users.get, nonce=b"", secret=SECRET)
    client = ScramClient(SCRAM_SHA_256, "user", "pencil", nonce=b"")
    client._nonce, client._bare = "rOprNGfwEbeRWgbNEkqO", "n=user,r=rOprNGfwEbeRWgbNEkqO"
    server._nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert run(client, server) == [
        b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ]
    assert server.principal == "user"


@pytest.mark.parametrize("mechanism", [SCRAM_SHA_256, SCRAM_SHA_512])
@settings(max_examples=15)
@given(
    user=st.text(st.characters(min_codepoint=1, max_codepoint=127), min_size=1),
    password=st.text(),
    salt=st.binary(),
    rounds=st.integers(4096, 4100),
    nonces=st.tuples(st.binary(), st.binary()),
)
def test_a_client_and_a_server(
    mechanism: str, user: str, password: str, salt: bytes, rounds: int, nonces: tuple[bytes, bytes]
) -> None:
    password = password.encode("utf-8", "replace").decode()
    users = {user: of_password(password, mechanism, salt, rounds)}
    server = ScramServer(mechanism, users.get, nonce=nonces[0], secret=SECRET)
    run(ScramClient(mechanism, user, password, nonce=nonces[1]), server)
    assert server.principal == user
    other = ScramServer(mechanism, users.get, nonce=nonces[0], secret=SECRET)
    refused(lambda: run(ScramClient(mechanism, user, password + "x", nonce=nonces[1]), other))


def test_a_wrong_password() -> None:
    assert refused(lambda: run(client_of(password="x"), server_of())) == FAILURE
    again = refused(lambda: run(client_of(password="x"), server_of(occasion=REAUTHENTICATION)))
    assert again == FAILURE.replace("during authentication", "during re-authentication")


def test_an_unknown_user_fails_like_a_wrong_password() -> None:
    """Kafka fails at the first message already, and so reveals which users exist."""
    first = server_of().step(client_of("eve").initial(), NOW)
    assert first == server_of().step(client_of("eve").initial(), NOW)
    assert first != server_of().step(client_of("mallory").initial(), NOW)
    assert first.endswith(b",i=4096")
    salt = base64.b64decode(first.split(b",s=")[1].split(b",")[0])
    assert len(salt) in range(22, 27)
    assert refused(lambda: run(client_of("eve"), server_of())) == FAILURE
    # A wrong authorization id is the same error as well.
    assert refused(lambda: server_of().step(b"n,a=x,n=eve,r=abc", NOW)) == WRONG_ID


def test_made_up_credentials_depend_on_the_secret_and_the_mechanism() -> None:
    made_up = {make_up_credential(number, secret, "eve") for number in (1, 2) for secret in (b"a", b"b")}
    assert len({generated.salt for generated in made_up}) == 4
    assert {len(generated.stored_key) for generated in made_up} == {32, 64}


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"y,,n=alice,r=abc",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,,n=alice",
        b"n,,r=abc,n=alice",
        b"n,,n=,r=abc",
        b"n,a=,n=alice,r=abc",
        b"n,,n=al=ice,r=abc",
        b"n,,n=alice,r=a b",
        b"n,,n=alice,r=abc,1=x",
        b"n,,n=alice,r=abc,x=",
        b"n,,n=\xc3\xbc,r=abc",
        b"n,,n=\xff,r=abc",
        b"n,,n=alice,r=abc\n",
    ],
)
def test_invalid_first_messages(token: bytes) -> None:
    assert refused(lambda: server_of().step(token, NOW)) == FAILURE


@pytest.mark.parametrize(
    "token", [b"n,a=alice,n=alice,r=abc", b"n,,m=ext,n=alice,r=abc", b"n,,n=alice,r=abc,foo=bar,x=y=z"]
)
def test_valid_first_messages(token: bytes) -> None:
    nonce = base36(b"server nonce").encode()
    assert server_of().step(token, NOW) == b"r=abc" + nonce + b",s=c2FsdA==,i=4096"


def test_an_authorization_id_of_another_user() -> None:
    assert refused(lambda: server_of().step(b"n,a=bob,n=alice,r=abc", NOW)) == WRONG_ID


def test_commas_and_equal_signs_in_names() -> None:
    name = "a=2C,=b"
    server = ScramServer(SCRAM_SHA_256, {name: ALICE}.get, nonce=b"x", secret=SECRET)
    tokens = run(client_of(name), server)
    assert tokens[0].startswith(b"n,,n=a=3D2C=2C=3Db,r=")
    assert server.principal == name


def final_message(server: ScramServer, password: str = "geheim") -> bytes:
    client = client_of(password=password)
    token = client.step(server.step(client.initial(), NOW))
    assert token is not None
    return token


@pytest.mark.parametrize(
    ("old", "new"), [(b",r=", b",r=x"), (b"c=biws", b"c=biw"), (b",p=", b",q="), (b",p=", b",x=,p=")]
)
def test_a_wrong_nonce_or_syntax_in_the_final_message(old: bytes, new: bytes) -> None:
    server = server_of()
    token = final_message(server)
    assert old in token
    assert refused(lambda: server.step(token.replace(old, new), NOW)) == FAILURE


@pytest.mark.parametrize("proof", [b"", b"AAAA", base64.b64encode(b"x" * 31), base64.b64encode(b"x" * 33)])
def test_a_proof_of_another_length_closes_the_connection(proof: bytes) -> None:
    server = server_of()
    token = final_message(server).split(b",p=")[0]
    with pytest.raises(MalformedToken):
        server.step(token + b",p=" + proof, NOW)


def test_a_channel_binding_is_in_the_proof() -> None:
    """Any binding is accepted if the proof covers it."""
    server = server_of()
    token = final_message(server)
    assert refused(lambda: server.step(token.replace(b"c=biws", b"c=eSws"), NOW)) == FAILURE


@given(st.integers(0, 43 * 8 - 1))
@settings(max_examples=10)
def test_a_changed_proof_fails(bit: int) -> None:
    server = server_of()
    without_proof, proof = final_message(server).split(b",p=")
    changed = bytearray(base64.b64decode(proof))
    changed[bit // 8 % 32] ^= 1 << bit % 8
    assert refused(lambda: server.step(without_proof + b",p=" + base64.b64encode(changed), NOW)) == FAILURE


def test_few_iterations() -> None:
    weak = ScramServer(SCRAM_SHA_256, {"alice": ALICE._replace(iterations=4095)}.get, nonce=b"x", secret=SECRET)
    assert refused(lambda: weak.step(client_of().initial(), NOW)) == FAILURE
    nonce = base36(b"client nonce")
    error = refused(lambda: client_of().step(f"r={nonce}x,s=c2FsdA==,i=4095".encode()))
    assert error == "Requested iterations 4095 is less than the minimum 4096 for SCRAM-SHA-256"


TOKEN = TokenCredential(of_password("aG1hYw=="), "carol", NOW + 5000)


def test_a_delegation_token() -> None:
    tokens = {"id-of-the-token": TOKEN}.get
    server = ScramServer(SCRAM_SHA_256, NO_USERS.get, tokens, nonce=b"x", secret=SECRET)
    sent = run(client_of("id-of-the-token", "aG1hYw==", tokenauth="true"), server)
    assert sent[0].endswith(b",tokenauth=true")
    assert (server.principal, server.token_id, server.expires_ms) == ("carol", "id-of-the-token", NOW + 5000)


def test_a_delegation_token_needs_its_extension() -> None:
    def server() -> ScramServer:
        return ScramServer(SCRAM_SHA_256, NO_USERS.get, {"id": TOKEN}.get, nonce=b"x", secret=SECRET)

    assert refused(lambda: run(client_of("id", "aG1hYw=="), server())) == FAILURE
    assert refused(lambda: run(client_of("id", "aG1hYw==", tokenauth="false"), server())) == FAILURE
    assert refused(lambda: run(client_of("other", "aG1hYw==", tokenauth="true"), server())) == FAILURE
    assert refused(lambda: run(client_of("alice", tokenauth="true"), server_of())) == FAILURE


def test_a_server_that_does_not_know_the_password() -> None:
    client, server = client_of(), server_of()
    final = client.step(server.step(client.initial(), NOW))
    assert final is not None
    signature = bytearray(server.step(final, NOW))
    signature[5] ^= 1
    assert refused(lambda: client.step(bytes(signature))) == "Invalid server signature in server final message"
    assert not client.complete


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (b"r=other,s=c2FsdA==,i=4096", "Invalid server nonce: does not start with client nonce"),
        (b"r=%s,s=c2FsdA==,i=0", "Invalid SCRAM server first message format"),
        (b"r=%s,s=c2FsdA==,i=4294967296", "Invalid SCRAM server first message format"),
        (b"r=%s,s=c2FsdA,i=4096", "Invalid SCRAM server first message format"),
        (b"", "Invalid SCRAM server first message format"),
    ],
)
def test_invalid_messages_of_a_server(message: bytes, error: str) -> None:
    nonce = base36(b"client nonce").encode()
    assert refused(lambda: client_of().step(message.replace(b"%s", nonce))) == error


def test_an_error_of_a_server() -> None:
    client = client_of()
    client.step(server_of().step(client.initial(), NOW))
    assert refused(lambda: client.step(b"e=other-error")) == (
        "Sasl authentication using SCRAM-SHA-256 failed with error: other-error"
    )
    assert refused(lambda: client.step(b"nothing")) == "Invalid SCRAM server final message format"


def test_a_token_after_the_end() -> None:
    client, server = client_of(), server_of()
    run(client, server)
    with pytest.raises(MalformedToken):
        server.step(client.initial(), NOW)
    refused(lambda: client.step(b"v="))


def test_base_36() -> None:
    assert base36(b"") == "0"
    assert base36((35 * 36 + 10).to_bytes(2)) == "za"
    assert len(base36(hashlib.sha256(b"x").digest())) <= 26


FORMS: dict[str, tuple[Callable[[random.Random], bytes], int]] = {
    "Kafka's tools": (lambda rng: base36(rng.randbytes(17)).encode(), 4096),
    "more iterations": (lambda rng: base36(rng.randbytes(17)).encode(), 8192),
    "16 bytes": (lambda rng: rng.randbytes(16), 16384),
    "base64": (lambda rng: base64.b64encode(rng.randbytes(24)), 4096),
}


@pytest.mark.parametrize("names", [["Kafka's tools"], ["more iterations"], ["16 bytes"], ["base64"], [*FORMS]])
def test_made_up_credentials_look_like_those_of_users(names: list[str], dice_seed: int) -> None:
    """Each form of a salt is as frequent among users that do not exist: it tells nothing."""
    rng = random.Random(dice_seed)
    known = []
    for number in range(400):
        make, iterations = FORMS[names[number % len(names)]]
        known.append(ScramCredential(make(rng), b"", b"", iterations))
    forms = Counter(map(CredentialForm.of, known))
    assert len(forms) == len(names)
    made_up = Counter(CredentialForm.of(make_up_credential(1, SECRET, f"user{number}", forms)) for number in range(400))
    assert made_up.keys() == forms.keys()
    assert all(abs(made_up[form] - forms[form]) < 60 for form in forms)


def test_a_new_user_changes_few_made_up_credentials(dice_seed: int) -> None:
    rng = random.Random(dice_seed)
    before = Counter({CredentialForm(0, 0, 4096): 50, CredentialForm(3, 16, 8192): 50})
    after = before + Counter({CredentialForm(3, 16, 8192): 1})
    users = [f"user{rng.random()}" for _ in range(1000)]
    changed = sum(
        make_up_credential(1, SECRET, user, before) != make_up_credential(1, SECRET, user, after) for user in users
    )
    assert changed < 30


def test_made_up_tokens_look_like_tokens_whatever_users_look_like() -> None:
    forms = {CredentialForm(3, 16, 8192): 1}
    server = ScramServer(SCRAM_SHA_256, NO_USERS.get, {"id": TOKEN}.get, nonce=b"x", secret=SECRET, forms=lambda: forms)
    user = ScramServer(SCRAM_SHA_256, NO_USERS.get, {"id": TOKEN}.get, nonce=b"x", secret=SECRET, forms=lambda: forms)
    assert re.search(rb",s=[a-zA-Z0-9+/=]{36},i=4096$", server.step(b"n,,n=other,r=abc,tokenauth=true", NOW))
    assert re.search(rb",s=[a-zA-Z0-9+/=]{24},i=8192$", user.step(b"n,,n=id,r=abc", NOW))
