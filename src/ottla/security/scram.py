"""SCRAM credentials (RFC 5802, KIP-84, KIP-554): the stored form of a password, and the supported mechanisms.

The exchange of tokens that uses them is in `sasl/scram.py`.
"""

import hashlib
import hmac
import json
from typing import Final, NamedTuple

SHA_256: Final = 1
SHA_512: Final = 2
_HASHES: Final = {SHA_256: "sha256", SHA_512: "sha512"}
NAMES: Final = {"SCRAM-SHA-256": SHA_256, "SCRAM-SHA-512": SHA_512}
"""Numbers of the mechanisms by name."""
LEAST_ITERATIONS: Final = 4096
MOST_ITERATIONS: Final = 16384

_SALT_BITS: Final = 130
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


class ScramCredential(NamedTuple):
    """Stored credential; it does not hold the password, which can only be guessed from it."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def encoded(self) -> bytes:
        """The value of its key in the metadata store."""
        fields = [self.salt.hex(), self.stored_key.hex(), self.server_key.hex(), self.iterations]
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decoded(cls, value: bytes) -> "ScramCredential":
        """The inverse of `encoded`."""
        salt, stored_key, server_key, iterations = json.loads(value)
        return cls(bytes.fromhex(salt), bytes.fromhex(stored_key), bytes.fromhex(server_key), iterations)


def is_mechanism(mechanism: int) -> bool:
    """Return whether the number is one of SCRAM's mechanisms."""
    return mechanism in _HASHES


def hash_name(mechanism: int) -> str:
    """Return the name of a mechanism's hash function in hashlib."""
    return _HASHES[mechanism]


def salted(mechanism: int, password: bytes, salt: bytes, iterations: int) -> bytes:
    """Return the salted password: Hi() of RFC 5802."""
    return hashlib.pbkdf2_hmac(_HASHES[mechanism], password, salt, iterations)


def credential(mechanism: int, salt: bytes, salted_password: bytes, iterations: int) -> ScramCredential:
    """Return the credential of a password that the client has salted."""
    name = _HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", name)
    server_key = hmac.digest(salted_password, b"Server Key", name)
    return ScramCredential(salt, hashlib.new(name, client_key).digest(), server_key, iterations)


def made_up_credential(mechanism: int, secret: bytes, user: str) -> ScramCredential:
    """Return a credential that no password fits, for a user that does not exist.

    It is the same for a name as long as the secret is the same, and its salt looks like those of Kafka's tools: 130 bits
    in base 36.
    """
    salt = base36(_derived(secret, b"salt", mechanism, user), _SALT_BITS).encode()
    size = hashlib.new(_HASHES[mechanism]).digest_size
    stored_key = _derived(secret, b"stored key", mechanism, user)[:size]
    server_key = _derived(secret, b"server key", mechanism, user)[:size]
    return ScramCredential(salt, stored_key, server_key, LEAST_ITERATIONS)


def _derived(secret: bytes, purpose: bytes, mechanism: int, user: str) -> bytes:
    return hmac.digest(secret, b"%s\0%d\0%s" % (purpose, mechanism, user.encode("utf-8", "surrogatepass")), "sha512")


def base36(random: bytes, bits: int = _SALT_BITS) -> str:
    """Return random bytes, cut to a number of bits, as text in base 36."""
    number = int.from_bytes(random) & ((1 << bits) - 1)
    text = ""
    while number or not text:
        number, digit = divmod(number, 36)
        text = _DIGITS[digit] + text
    return text
