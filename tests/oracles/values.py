"""Are the values that an oracle read the ones that were written? Each oracle tells them in a form of its own.

Kafka's JsonConverter makes objects with the names of the schema files; bytes are base64, a UUID is base64 for URLs, records
are told by their size, and a tagged field that has its default is left out. kio's are lists in the order of declaration.
"""

import base64
from typing import Any, Final

from ottla.protocol.schema import Array, Field, Primitive, Records, Struct

# The names that releases before the newest had for some fields.
_FORMER_NAMES: Final = {
    "generationidormemberepoch": "generationid",
    "replicadirectoryid": "candidatedirectoryid",
    "replicaepoch": "candidateepoch",
    "replicaid": "candidateid",
}


def from_java(message: Struct, version: int, decoded: Any, *, newest: bool) -> list[str]:
    """Return the differences between `decoded`, a JSON object of Kafka's converter, and `message`.

    newest  the declarations are those of this release; an older one may have other names, and lack tagged fields that
            came into a version after it was released (it keeps them as unknown ones)
    """
    differences: list[str] = []
    _java_struct(message, version, decoded, newest, type(message).__name__, differences)
    return differences


def _java_struct(message: Struct, version: int, decoded: Any, newest: bool, where: str, differences: list[str]) -> None:
    left = {name.lower(): value for name, value in decoded.items()}
    for declared in message.FIELDS:
        if version not in declared.versions:
            continue
        value = getattr(message, declared.name)
        place = f"{where}.{declared.name}"
        name = declared.name.replace("_", "")
        if not newest and name not in left:
            name = _FORMER_NAMES.get(name, name)
        if declared.type is Records and value is not None:
            if left.pop(f"{name}sizeinbytes", None) != len(value):
                differences.append(f"{place}: {len(value)} bytes are told otherwise")
        elif name in left:
            _java_value(declared, value, version, left.pop(name), newest, place, differences)
        elif version not in declared.tagged or (newest and value != declared.default_value()):
            differences.append(f"{place} is not told")
    differences += [f"{where}: {name} is told and not declared" for name in left]


def _java_value(
    declared: Field, value: Any, version: int, decoded: Any, newest: bool, place: str, differences: list[str]
) -> None:
    kind = declared.type.element if isinstance(declared.type, Array) else declared.type
    if value is None or decoded is None:
        if value is not decoded:
            differences.append(f"{place}: {value!r} is told as {decoded!r}")
    elif isinstance(declared.type, Array):
        if len(value) != len(decoded):
            differences.append(f"{place}: {len(value)} elements are told as {len(decoded)}")
        one = declared._replace(type=kind)
        for number, (ours, theirs) in enumerate(zip(value, decoded, strict=False)):
            _java_value(one, ours, version, theirs, newest, f"{place}[{number}]", differences)
    elif not isinstance(kind, Primitive):
        _java_struct(value, version, decoded, newest, place, differences)
    else:
        if kind.name == "bytes":
            decoded = base64.b64decode(decoded)
        elif kind.name == "uuid":
            decoded = base64.urlsafe_b64decode(decoded + "==")
        if value != decoded:
            differences.append(f"{place}: {value!r} is told as {decoded!r}")


def from_kio(message: Struct, version: int, decoded: Any) -> list[str]:
    """Return the differences between `decoded`, the lists of kio_peer.py, and `message`."""
    differences: list[str] = []
    _kio_struct(message, version, decoded, type(message).__name__, differences)
    return differences


def _kio_struct(message: Struct, version: int, decoded: Any, where: str, differences: list[str]) -> None:
    present = [declared for declared in message.FIELDS if version in declared.versions]
    if len(decoded) != len(present):
        differences.append(f"{where}: {len(present)} fields are told as {len(decoded)}")
        return
    for declared, theirs in zip(present, decoded, strict=True):
        value = getattr(message, declared.name)
        kind = declared.type.element if isinstance(declared.type, Array) else declared.type
        _kio_value(kind, value, version, theirs, f"{where}.{declared.name}", differences)


def _kio_value(kind: Any, value: Any, version: int, decoded: Any, place: str, differences: list[str]) -> None:
    if isinstance(value, list) and isinstance(decoded, list):
        if len(value) != len(decoded):
            differences.append(f"{place}: {len(value)} elements are told as {len(decoded)}")
        for number, (ours, theirs) in enumerate(zip(value, decoded, strict=False)):
            _kio_value(kind, ours, version, theirs, f"{place}[{number}]", differences)
    elif isinstance(value, Struct) and decoded is not None:
        _kio_struct(value, version, decoded, place, differences)
    else:
        if isinstance(value, bytes):
            # The zero UUID is kio's None.
            value = None if decoded is None and not any(value) and len(value) == 16 else value.hex()
        elif value == -1 and decoded is None:
            value = None  # a time that is not known
        if value != decoded:
            differences.append(f"{place}: {value!r} is told as {decoded!r}")
