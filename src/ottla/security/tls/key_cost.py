"""Cost of a handshake by the key of the server's certificate."""

from typing import Final

from ottla.security.tls.der import SEQUENCE, MalformedDer, object_identifier, public_key, read_value

_RSA: Final = "1.2.840.113549.1.1.1"
_ELLIPTIC_CURVE: Final = "1.2.840.10045.2.1"
_EDWARDS: Final = ("1.3.101.112", "1.3.101.113")
_MOST_RSA_BITS: Final = 2048
"""An RSA signature takes about 1 ms with 2048 bits, and eight times as long with twice as many."""


def signs_slowly(certificate: bytes) -> bool:
    """Return True if a signature by the key of a certificate in DER takes several milliseconds: RSA over 2048 bits, and
    unknown kinds of keys. Raises MalformedDer.
    """
    parts = public_key(certificate).values()
    if len(parts) != 2 or parts[0].tag != SEQUENCE:
        raise MalformedDer("a certificate without a public key")
    algorithm = object_identifier(parts[0].values()[0].content)
    if algorithm == _RSA:
        modulus = read_value(parts[1].content[1:], SEQUENCE).values()[0].content
        return int.from_bytes(modulus).bit_length() > _MOST_RSA_BITS
    return algorithm != _ELLIPTIC_CURVE and algorithm not in _EDWARDS
