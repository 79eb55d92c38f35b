"""Change of a broker's certificate at run time: the new one must have the same subject and all alternative names."""

import ipaddress
from collections.abc import Iterable
from typing import Final

from ottla.security.tls.der import Value, alternative_names, object_identifier, subject
from ottla.security.tls.names import name_of
from ottla.security.tls.stores import KeyMaterial

_TYPE_BITS: Final = 0x1F
_TEXT_TYPES: Final = (1, 2, 6)
_DIRECTORY: Final = 4
_ADDRESS: Final = 7
_REGISTERED: Final = 8


class IncompatibleCertificate(ValueError):
    """A certificate that may not replace the present one."""


def check_change(
    old: KeyMaterial, new: KeyMaterial, *, allow_dn_changes: bool = False, allow_san_changes: bool = False
) -> None:
    """Raise IncompatibleCertificate if a key may not replace another one.

    allow_dn_changes, allow_san_changes  settings ssl.allow.dn.changes and ssl.allow.san.changes
    """
    old_name, new_name = (name_of(subject(material.chain[0])) for material in (old, new))
    if not allow_dn_changes and _canonical(old_name) != _canonical(new_name):
        raise IncompatibleCertificate(
            f"Keystore DistinguishedName does not match:  existing={{alias={old.alias}, DN={old_name}}}, "
            f"new={{alias={new.alias}, DN={new_name}}}"
        )
    old_names, new_names = (subject_alternative_names(material.chain[0]) for material in (old, new))
    if not allow_san_changes and not set(old_names) <= set(new_names):
        raise IncompatibleCertificate(
            f"Keystore SubjectAltNames do not match:  existing={{alias={old.alias}, SAN={_text_of(old_names)}}}, "
            f"new={{alias={new.alias}, SAN={_text_of(new_names)}}}"
        )


def subject_alternative_names(certificate: bytes) -> list[tuple[int, str]]:
    """Return the (type, text) of a certificate's alternative names, in their order. Raises MalformedDer."""
    return [(name.tag & _TYPE_BITS, _text(name)) for name in alternative_names(certificate)]


def _text(name: Value) -> str:
    kind = name.tag & _TYPE_BITS
    if kind in _TEXT_TYPES:
        return name.content.decode("ascii", "replace")
    if kind == _ADDRESS and len(name.content) in (4, 16):
        return str(ipaddress.ip_address(name.content))
    if kind == _REGISTERED:
        return object_identifier(name.content)
    return name_of(name.content) if kind == _DIRECTORY else name.content.hex()


def _canonical(name: str) -> str:
    return " ".join(name.lower().split())


def _text_of(names: Iterable[tuple[int, str]]) -> str:
    return f"[{', '.join(f'[{kind}, {text}]' for kind, text in sorted(names))}]"
