"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677, KIP-84): the client proves that it knows the password.

    client first   n,[a=authzid],n=user,r=nonce[,extension=value...]
    server first   r=nonce of both,s=salt,i=iterations
    client final   c=biws,r=nonce of both,p=proof
    server final   v=signature

    proof      = client key XOR HMAC(stored key, all messages)       stored key = H(client key)
    signature  = HMAC(server key, all messages)

Delegation tokens (KIP-48) are users whose name is the token's id, with the extension `tokenauth=true`.

A client must not learn which users exist: the server goes on with a made-up salt for unknown users, and fails at the proof.
Names are limited to ASCII, as in Kafka; `,` is sent as =2C, `=` as =3D. There is no SASLprep.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from ottla.security.sasl.mechanism import (
    AUTHENTICATION,
    AuthenticationFailed,
    MalformedToken,
    invalid_credentials,
)
from ottla.security.scram import (
    LEAST_ITERATIONS,
    NAMES,
    CredentialForm,
    ScramCredential,
    base36,
    hash_name,
    make_up_credential,
    salt_password,
)

NONCE_BYTES: Final = 17
"""Random bytes that a nonce needs."""
MOST_REQUESTED_ITERATIONS: Final = 1_000_000
"""Most iterations that a client computes for a server: about a second."""
TOKEN_AUTHENTICATION: Final = "tokenauth"
"""Extension of clients that log in with a delegation token."""

_VALUE: Final = r"[\x01-\x2b\x2d-\x7f]+"
_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PRINTABLE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64: Final = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_RESERVED: Final = rf"(?:m={_VALUE},)?"
_EXTENSIONS: Final = rf"(?:,[A-Za-z]+={_VALUE})*"
_CLIENT_FIRST: Final = re.compile(
    rf"n,(?:a=(?P<authzid>{_NAME}))?,{_RESERVED}n=(?P<name>{_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS})"
)
_SERVER_FIRST: Final = re.compile(
    rf"{_RESERVED}r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,10}}){_EXTENSIONS}"
)
_CLIENT_FINAL: Final = re.compile(
    rf"c=(?P<binding>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS},p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL: Final = re.compile(
    rf"e=(?P<error>[\x01-\x2b\x2d-\x3c\x3e-\x7f]+)|v=(?P<signature>{_BASE64}){_EXTENSIONS}"
)


class TokenCredential(NamedTuple):
    """Login of a delegation token: its credential, the principal name of its owner, and its expiry."""

    credential: ScramCredential
    owner: str
    expires_ms: int


CredentialLookup = Callable[[str], ScramCredential | None]
TokenLookup = Callable[[str], TokenCredential | None]


class ScramServer:
    """Server side of SCRAM.

    mechanism    SCRAM-SHA-256 or SCRAM-SHA-512
    credentials  look-up of a user's credential for that mechanism
    tokens       look-up of a delegation token by its id; None refuses all
    nonce        NONCE_BYTES random bytes
    secret       key that the made-up salts of unknown users depend on
    forms        returns the forms of all users' credentials for that mechanism, and how many have each
    occasion     occasion of the exchange, for error texts
    """

    __slots__ = (
        "_auth_message",
        "_credential",
        "_credentials",
        "_forms",
        "_mechanism",
        "_nonce",
        "_occasion",
        "_secret",
        "_tokens",
        "_user",
        "complete",
        "expires_ms",
        "principal",
        "token_id",
    )

    def __init__(
        self,
        mechanism: str,
        credentials: CredentialLookup,
        tokens: TokenLookup | None = None,
        *,
        nonce: bytes,
        secret: bytes,
        forms: Callable[[], Mapping[CredentialForm, int]] = dict,
        occasion: str = AUTHENTICATION,
    ) -> None:
        self._mechanism = mechanism
        self._credentials = credentials
        self._tokens = tokens
        self._nonce = base36(nonce)
        self._secret = secret
        self._forms = forms
        self._occasion = occasion
        self._user = ""  # the owner, in case of a delegation token
        self._credential: ScramCredential | None = None
        self._auth_message = ""
        self.complete = False
        self.principal = ""
        self.expires_ms: int | None = None
        self.token_id: str | None = None

    def step(self, token: bytes, now_ms: int) -> bytes:  # noqa: ARG002
        """Return the next message to the client."""
        if self.complete:
            raise MalformedToken("Authentication exchange has completed")
        message = token.decode("utf-8", "replace")
        return self._first(message) if self._credential is None else self._final(message, self._credential)

    def _failure(self) -> AuthenticationFailed:
        return invalid_credentials(self._mechanism, self._occasion)

    def _first(self, message: str) -> bytes:
        fields = _CLIENT_FIRST.fullmatch(message)
        if fields is None:
            raise self._failure()
        extensions = _extensions(fields["extensions"])
        user = _decode_name(fields["name"])
        credential = self._look_up(user, by_token=extensions.get(TOKEN_AUTHENTICATION, "").lower() == "true")
        if fields["authzid"] not in (None, user):
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        if credential.iterations < LEAST_ITERATIONS:
            raise self._failure()
        self._credential = credential
        self._nonce = fields["nonce"] + self._nonce
        salt = base64.b64encode(credential.salt).decode()
        answer = f"r={self._nonce},s={salt},i={credential.iterations}"
        self._auth_message = f"{_bare(fields['name'], fields['nonce'], extensions)},{answer}"
        return answer.encode()

    def _look_up(self, user: str, *, by_token: bool) -> ScramCredential:
        self._user = user
        if not by_token:
            credential = self._credentials(user)
        else:
            login = None if self._tokens is None else self._tokens(user)
            credential = None
            if login is not None:
                credential, self._user, self.expires_ms = login
                self.token_id = user
        # It is made up in any case: the time that it takes must not tell either. The salts of tokens have one form only.
        made_up = make_up_credential(NAMES[self._mechanism], self._secret, user, {} if by_token else self._forms())
        return made_up if credential is None else credential

    def _final(self, message: str, credential: ScramCredential) -> bytes:
        fields = _CLIENT_FINAL.fullmatch(message)
        if fields is None or fields["nonce"] != self._nonce:
            raise self._failure()
        proof = base64.b64decode(fields["proof"])
        if len(proof) != len(credential.stored_key):
            raise MalformedToken("The proof has not the length of the hash")
        # Any channel binding is accepted, it only has to be in the proof.
        binding = base64.b64encode(base64.b64decode(fields["binding"])).decode()
        name = hash_name(NAMES[self._mechanism])
        auth_message = f"{self._auth_message},c={binding},r={self._nonce}".encode()
        client_key = _xor(proof, hmac.digest(credential.stored_key, auth_message, name))
        if not hmac.compare_digest(hashlib.new(name, client_key).digest(), credential.stored_key):
            raise self._failure()
        self.principal = self._user
        self.complete = True
        return b"v=" + base64.b64encode(hmac.digest(credential.server_key, auth_message, name))


class ScramClient:
    """Client side of SCRAM.

    mechanism   SCRAM-SHA-256 or SCRAM-SHA-512
    nonce       NONCE_BYTES random bytes
    extensions  extensions of the first message, `tokenauth` for delegation tokens
    """

    __slots__ = ("_auth_message", "_bare", "_mechanism", "_nonce", "_password", "_salted", "complete")

    def __init__(
        self, mechanism: str, user: str, password: str, *, nonce: bytes, extensions: Mapping[str, str] | None = None
    ) -> None:
        self._mechanism = mechanism
        self._password = password.encode()
        self._nonce = base36(nonce)
        self._bare = _bare(_encode_name(user), self._nonce, extensions or {})
        self._salted: bytes | None = None
        self._auth_message = b""
        self.complete = False

    def initial(self) -> bytes:
        """Return the first message."""
        return f"n,,{self._bare}".encode()

    def iterations(self, token: bytes) -> int:
        """Return the number of iterations that the answer to a token takes, 0 for one without any."""
        fields = _SERVER_FIRST.fullmatch(token.decode("utf-8", "replace")) if self._salted is None else None
        return 0 if fields is None else int(fields["iterations"])

    def step(self, token: bytes) -> bytes | None:
        """Return the proof, and check the signature that the server answers to it."""
        if self.complete:
            raise AuthenticationFailed("Unexpected message after the end of the exchange")
        message = token.decode("utf-8", "replace")
        if self._salted is None:
            return self._prove(message)
        self._verify(message, self._salted)
        return None

    def _prove(self, message: str) -> bytes:
        fields = _SERVER_FIRST.fullmatch(message)
        if fields is None or not 0 < int(fields["iterations"]) < 2**31:
            raise AuthenticationFailed("Invalid SCRAM server first message format")
        if not fields["nonce"].startswith(self._nonce):
            raise AuthenticationFailed("Invalid server nonce: does not start with client nonce")
        iterations = int(fields["iterations"])
        if iterations < LEAST_ITERATIONS:
            # Few iterations would let a false server guess the password from the proof.
            raise AuthenticationFailed(
                f"Requested iterations {iterations} is less than the minimum {LEAST_ITERATIONS} for {self._mechanism}"
            )
        if iterations > MOST_REQUESTED_ITERATIONS:
            # A false server could keep its clients busy for minutes.
            raise AuthenticationFailed(
                f"Requested iterations {iterations} is more than the maximum {MOST_REQUESTED_ITERATIONS} for {self._mechanism}"
            )
        mechanism = NAMES[self._mechanism]
        name = hash_name(mechanism)
        self._salted = salt_password(mechanism, self._password, base64.b64decode(fields["salt"]), iterations)
        without_proof = f"c=biws,r={fields['nonce']}"
        self._auth_message = f"{self._bare},{message},{without_proof}".encode()
        client_key = hmac.digest(self._salted, b"Client Key", name)
        signature = hmac.digest(hashlib.new(name, client_key).digest(), self._auth_message, name)
        return f"{without_proof},p={base64.b64encode(_xor(client_key, signature)).decode()}".encode()

    def _verify(self, message: str, salted_password: bytes) -> None:
        fields = _SERVER_FINAL.fullmatch(message)
        if fields is None:
            raise AuthenticationFailed("Invalid SCRAM server final message format")
        if fields["error"] is not None:
            raise AuthenticationFailed(
                f"Sasl authentication using {self._mechanism} failed with error: {fields['error']}"
            )
        name = hash_name(NAMES[self._mechanism])
        expected = hmac.digest(hmac.digest(salted_password, b"Server Key", name), self._auth_message, name)
        if not hmac.compare_digest(base64.b64decode(fields["signature"]), expected):
            raise AuthenticationFailed("Invalid server signature in server final message")
        self.complete = True


def _bare(name: str, nonce: str, extensions: Mapping[str, str]) -> str:
    return ",".join((f"n={name}", f"r={nonce}", *(f"{key}={value}" for key, value in extensions.items())))


def _extensions(text: str) -> dict[str, str]:
    pairs = (pair.split("=", 1) for pair in text.split(",")[1:])
    return {pair[0]: pair[1] for pair in pairs}


def _encode_name(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _decode_name(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
