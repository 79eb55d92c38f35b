"""SCRAM credentials (RFC 5802, KIP-84, KIP-554): the stored form of a password, and the supported mechanisms.

The exchange of tokens that uses them is in `sasl/scram.py`.
"""

import hashlib
import hmac
import json
import math
import string
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

SHA_256: Final = 1
SHA_512: Final = 2
_HASHES: Final = {SHA_256: "sha256", SHA_512: "sha512"}
NAMES: Final = {"SCRAM-SHA-256": SHA_256, "SCRAM-SHA-512": SHA_512}
"""Numbers of the mechanisms by name."""
LEAST_ITERATIONS: Final = 4096
MOST_ITERATIONS: Final = 16384

_SALT_BITS: Final = 130
_BASE36_LENGTHS: Final = range(22, 27)
"""Lengths of 130 random bits in base 36; shorter ones are as rare as a lottery win."""
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_ALPHABETS: Final = (
    _DIGITS.encode(),
    (string.ascii_letters + string.digits + "+/=-_").encode(),
    bytes(range(0x20, 0x7F)),
    bytes(range(256)),
)
"""Characters of which salts are made, from the fewest on: those of Kafka's tools, base64 and the like, text, bytes."""


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


def salt_password(mechanism: int, password: bytes, salt: bytes, iterations: int) -> bytes:
    """Return the salted password: Hi() of RFC 5802."""
    return hashlib.pbkdf2_hmac(_HASHES[mechanism], password, salt, iterations)


def credential(mechanism: int, salt: bytes, salted_password: bytes, iterations: int) -> ScramCredential:
    """Return the credential of a password that the client has salted."""
    name = _HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", name)
    server_key = hmac.digest(salted_password, b"Server Key", name)
    return ScramCredential(salt, hashlib.new(name, client_key).digest(), server_key, iterations)


class CredentialForm(NamedTuple):
    """Form of a credential: all that a client sees of it before it proves its password.

    alphabet    index of the salt's characters in _ALPHABETS
    length      of the salt; 0 for 130 bits in base 36, whose length varies
    iterations  number of iterations
    """

    alphabet: int = 0
    length: int = 0
    iterations: int = LEAST_ITERATIONS

    @classmethod
    def of(cls, credential: ScramCredential) -> "CredentialForm":
        """Return the form of a credential."""
        salt = credential.salt
        alphabet = next(index for index, characters in enumerate(_ALPHABETS) if set(salt) <= set(characters))
        is_base36 = alphabet == 0 and len(salt) in _BASE36_LENGTHS
        return cls(alphabet, 0 if is_base36 else len(salt), credential.iterations)


def make_up_credential(
    mechanism: int, secret: bytes, user: str, forms: Mapping[CredentialForm, int] = MappingProxyType({})
) -> ScramCredential:
    """Return a credential that no password fits, for a user that does not exist.

    It is the same for a name as long as the secret is the same, and has the form of the credential of an existing user.

    forms  the forms of those, with their numbers; without any the form is that of Kafka's tools. Each form is as frequent among
           made-up credentials as among others, and a user that is created or deleted changes few of them
    """
    form = CredentialForm()
    if len(forms) > 1:
        form = max(forms, key=lambda other: _score(forms[other], secret, mechanism, f"{tuple(other)} {user}"))
    elif forms:
        form = next(iter(forms))
    size = hashlib.new(_HASHES[mechanism]).digest_size
    stored_key = _derive(secret, b"stored key", mechanism, user)[:size]
    server_key = _derive(secret, b"server key", mechanism, user)[:size]
    return ScramCredential(_make_up_salt(form, secret, mechanism, user), stored_key, server_key, form.iterations)


def _score(weight: int, secret: bytes, mechanism: int, text: str) -> float:
    """Return a score that is the highest of all with a probability in proportion to the weight."""
    number = int.from_bytes(_derive(secret, b"form", mechanism, text)[:8]) + 1
    return weight / -math.log(number / (2.0**64 + 2))


def _make_up_salt(form: CredentialForm, secret: bytes, mechanism: int, user: str) -> bytes:
    if form.length == 0:
        return base36(_derive(secret, b"salt", mechanism, user), _SALT_BITS).encode()
    alphabet = _ALPHABETS[form.alphabet]
    made = b""
    while len(made) < form.length:
        made += _derive(secret, b"salt %d" % len(made), mechanism, user)
    return bytes(alphabet[byte % len(alphabet)] for byte in made[: form.length])


def _derive(secret: bytes, purpose: bytes, mechanism: int, user: str) -> bytes:
    return hmac.digest(secret, b"%s\0%d\0%s" % (purpose, mechanism, user.encode("utf-8", "surrogatepass")), "sha512")


def base36(random: bytes, bits: int = _SALT_BITS) -> str:
    """Return random bytes, cut to a number of bits, as text in base 36."""
    number = int.from_bytes(random) & ((1 << bits) - 1)
    text = ""
    while number or not text:
        number, digit = divmod(number, 36)
        text = _DIGITS[digit] + text
    return text
