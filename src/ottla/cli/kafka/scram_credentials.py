"""SCRAM credentials as text: `SCRAM-SHA-256=[name=alice,password=secret]`, the option --add-scram of Kafka's kafka-storage."""

import base64
import binascii
import hashlib
from typing import Final

from ottla.environment import Random
from ottla.security.scram import (
    LEAST_ITERATIONS,
    MOST_ITERATIONS,
    SHA_256,
    SHA_512,
    ScramCredential,
    credential,
)

_MECHANISMS: Final = {"SCRAM-SHA-256": (SHA_256, "sha256"), "SCRAM-SHA-512": (SHA_512, "sha512")}


class BadCredential(ValueError):
    """A text that is no credential: the reason in one line."""


def parse_credential(text: str, random: Random) -> tuple[str, int, ScramCredential]:
    """Return the user, the number of the mechanism and the credential. Raises BadCredential, with Kafka's texts."""
    name, equals, listed = text.strip().partition("=")
    if not equals:
        raise BadCredential(f"Failed to find equals sign in SCRAM argument '{text.strip()}'")
    if name not in _MECHANISMS:
        raise BadCredential(f"The add-scram mechanism {name} is not supported.")
    if not listed.startswith("["):
        raise BadCredential("Expected configuration string to start with [")
    if not listed.endswith("]"):
        raise BadCredential("Expected configuration string to end with ]")
    mechanism, digest = _MECHANISMS[name]
    fields = dict(map(_field, listed[1:-1].split(",")))
    user = fields.pop("name", None)
    if user is None:
        raise BadCredential("You must supply 'name' to add-scram")
    salt = _decode_base64(fields.pop("salt", None), "Failed to decode given salt: ")
    iterations = _iterations(fields.pop("iterations", str(LEAST_ITERATIONS)), name.replace("-", "_"))
    password, salted_text = fields.pop("password", None), fields.pop("saltedpassword", None)
    if password is None and salted_text is None:
        raise BadCredential("You must supply one of 'password' or 'saltedpassword' to add-scram")
    if password is None and salt is None:
        raise BadCredential("You must supply 'salt' with 'saltedpassword' to add-scram")
    if fields:
        raise BadCredential(f"Unknown SCRAM configurations: {', '.join(sorted(fields))}")
    salt = salt or random.bytes16() + random.bytes16()
    salted = _decode_base64(salted_text, "Failed to decode given saltedPassword: ")
    if password is not None:
        salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)
    return user, mechanism, credential(mechanism, salt, salted or b"", iterations)


def _field(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise BadCredential(f"No equals sign found in SCRAM component: {text}")
    if len(value) >= 2 and value[0] == value[-1] == '"':
        value = value[1:-1]
    return name, value


def _decode_base64(text: str | None, error: str) -> bytes | None:
    if text is None:
        return None
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise BadCredential(f"{error}{text}") from None


def _iterations(text: str, mechanism: str) -> int:
    if not text.removeprefix("-").isdecimal():
        raise BadCredential(f"Failed to parse iterations count: {text}")
    iterations = int(text)
    for outside, sign, bound in (
        (iterations < LEAST_ITERATIONS, ">=", LEAST_ITERATIONS),
        (iterations > MOST_ITERATIONS, "<=", MOST_ITERATIONS),
    ):
        if outside:
            raise BadCredential(f"The 'iterations' value must be {sign} {bound} for add-scram using {mechanism}")
    return iterations
