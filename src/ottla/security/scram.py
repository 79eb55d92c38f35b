"""SCRAM credentials (RFC 5802, KIP-84, KIP-554): the stored form of a password, and the supported mechanisms."""

import hashlib
import hmac
import json
from typing import Final, NamedTuple

SHA_256: Final = 1
SHA_512: Final = 2
_HASHES: Final = {SHA_256: "sha256", SHA_512: "sha512"}
LEAST_ITERATIONS: Final = 4096
MOST_ITERATIONS: Final = 16384


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


def credential(mechanism: int, salt: bytes, salted_password: bytes, iterations: int) -> ScramCredential:
    """Return the credential of a password that the client has salted."""
    name = _HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", name)
    server_key = hmac.digest(salted_password, b"Server Key", name)
    return ScramCredential(salt, hashlib.new(name, client_key).digest(), server_key, iterations)
