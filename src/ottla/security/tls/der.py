"""DER (X.690): reading of values, and the places of subject and names within a certificate (RFC 5280).

    Certificate     SEQUENCE { TBSCertificate, algorithm, signature }
    TBSCertificate  SEQUENCE { [0] version, serial, algorithm, issuer, validity, subject, key, ..., [3] extensions }

Certificates come from stores and from handshakes that OpenSSL has accepted; any other bytes are refused with MalformedDer.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

BOOLEAN: Final = 0x01
INTEGER: Final = 0x02
OCTET_STRING: Final = 0x04
NULL: Final = 0x05
OBJECT_IDENTIFIER: Final = 0x06
SEQUENCE: Final = 0x30
SET: Final = 0x31

_VERSION: Final = 0xA0
_EXTENSIONS: Final = 0xA3
_SUBJECT_POSITION: Final = 4
_KEY_POSITION: Final = 5
_ALTERNATIVE_NAMES: Final = "2.5.29.17"


class MalformedDer(ValueError):
    """Bytes that are not DER, or not a certificate."""


class Value(NamedTuple):
    """A value: its tag, its content, and all its bytes."""

    tag: int
    content: bytes
    encoded: bytes

    def values(self) -> list["Value"]:
        """Return the values in the content."""
        return list(read_values(self.content))


def read_values(data: bytes) -> Iterator[Value]:
    """Iterate over values, one behind the other. Raises MalformedDer."""
    position = 0
    while position < len(data):
        value = _read(data, position)
        yield value
        position += len(value.encoded)


def read_value(data: bytes, tag: int | None = None) -> Value:
    """Return the only value, with an expected tag. Raises MalformedDer."""
    value = _read(data, 0)
    if len(value.encoded) != len(data) or (tag is not None and value.tag != tag):
        raise MalformedDer("unexpected value")
    return value


def _read(data: bytes, position: int) -> Value:
    if position + 2 > len(data) or data[position] & 0x1F == 0x1F:
        raise MalformedDer("truncated value, or a tag of several bytes")
    length = data[position + 1]
    begun = position + 2
    if length >= 0x80:
        size = length & 0x7F
        if not 1 <= size <= 4:
            raise MalformedDer("invalid length")
        length = int.from_bytes(data[begun : begun + size])
        begun += size
    end = begun + length
    if end > len(data):
        raise MalformedDer("truncated value")
    return Value(data[position], data[begun:end], data[position:end])


def object_identifier(content: bytes) -> str:
    """Return an object identifier as numbers with dots. Raises MalformedDer."""
    if not content or content[-1] & 0x80:
        raise MalformedDer("invalid object identifier")
    numbers = []
    number = 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    root = min(numbers[0] // 40, 2)
    return ".".join(str(part) for part in (root, numbers[0] - 40 * root, *numbers[1:]))


def _fields(certificate: bytes) -> list[Value]:
    """Return the fields of a certificate behind its version."""
    parts = read_value(certificate, SEQUENCE).values()
    if not parts or parts[0].tag != SEQUENCE:
        raise MalformedDer("not a certificate")
    fields = parts[0].values()
    if fields and fields[0].tag == _VERSION:
        del fields[0]
    if len(fields) <= _SUBJECT_POSITION or fields[_SUBJECT_POSITION].tag != SEQUENCE:
        raise MalformedDer("certificate without subject")
    return fields


def subject(certificate: bytes) -> bytes:
    """Return the subject of a certificate, as DER. Raises MalformedDer."""
    return _fields(certificate)[_SUBJECT_POSITION].encoded


def signature_algorithm(certificate: bytes) -> str:
    """Return the object identifier of the algorithm that a certificate is signed with. Raises MalformedDer."""
    algorithm = _fields(certificate)[1].values()
    if not algorithm or algorithm[0].tag != OBJECT_IDENTIFIER:
        raise MalformedDer("certificate without an algorithm of its signature")
    return object_identifier(algorithm[0].content)


def public_key(certificate: bytes) -> Value:
    """Return the SubjectPublicKeyInfo of a certificate. Raises MalformedDer."""
    fields = _fields(certificate)
    if len(fields) <= _KEY_POSITION or fields[_KEY_POSITION].tag != SEQUENCE:
        raise MalformedDer("certificate without a public key")
    return fields[_KEY_POSITION]


def alternative_names(certificate: bytes) -> list[Value]:
    """Return the subject alternative names of a certificate, each with its tag of GeneralName. Raises MalformedDer."""
    for field in _fields(certificate):
        if field.tag != _EXTENSIONS:
            continue
        for extension in read_value(field.content, SEQUENCE).values():
            parts = extension.values()
            if (
                parts
                and parts[0].tag == OBJECT_IDENTIFIER
                and object_identifier(parts[0].content) == _ALTERNATIVE_NAMES
            ):
                return read_value(parts[-1].content, SEQUENCE).values()
    return []
