"""kio behind standard input and output; run by the Python of an environment that has kio and not Ottla.

The frames are those of java/MessageOracle.java. The JSON is the values as lists in the order of their declaration, times in
ms, bytes in hex. Only questions whose two versions are the same are understood.
"""

import dataclasses
import datetime
import io
import json
import re
import struct
import sys
from pkgutil import resolve_name
from typing import Any

from kio.schema.index import schema_name_map  # type: ignore[import-not-found]
from kio.serial import entity_reader, entity_writer  # type: ignore[import-not-found]

MILLISECOND = datetime.timedelta(milliseconds=1)
EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def paths(message: str) -> dict[int, str]:
    """The path of the class for each version."""
    kind = next((word for word in ("request", "response", "header") if message.lower().endswith(word)), "data")
    folder = snake(message)
    if kind in ("request", "response"):
        folder = folder.removesuffix("_" + kind)
    by_version = {}
    for version, kinds in schema_name_map.get(folder, {}).items():
        for entity, path in kinds.items():
            if entity.name == kind:
                by_version[version] = path
    return by_version


def plain(value: Any) -> Any:
    if isinstance(value, datetime.timedelta):
        return value // MILLISECOND
    if isinstance(value, datetime.datetime):
        return (value - EPOCH) // MILLISECOND
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    if isinstance(value, (tuple, list)):
        return [plain(one) for one in value]
    if dataclasses.is_dataclass(value):
        return [plain(getattr(value, field.name)) for field in dataclasses.fields(value)]
    if hasattr(value, "hex") and hasattr(value, "bytes"):
        return value.bytes.hex()
    if value is None or isinstance(value, (bool, str, float)):
        return value
    return int(value)


def answer(message: str, version: int, data: bytes) -> tuple[int, bytes, str]:
    cls = resolve_name(paths(message)[version])
    try:
        value, size = entity_reader(cls)(data, 0)
        if size != len(data):
            return 2, b"", f"{len(data) - size} bytes were not read"
        out = io.BytesIO()
        entity_writer(cls)(out, value)
        return 0, out.getvalue(), json.dumps(plain(value))
    except Exception as problem:  # noqa: BLE001  (whatever kio raises is the answer)
        return 2, b"", repr(problem)


def main() -> None:
    source, target = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr
    while head := source.read(4):
        frame = source.read(int.from_bytes(head, "big"))
        size = int.from_bytes(frame[:2], "big")
        message = frame[2 : 2 + size].decode().split("/")[-1]
        version, _ = struct.unpack_from(">hh", frame, 2 + size)
        if version < 0:
            known = sorted(paths(message))
            status, data, text = 0, b"", json.dumps([known[0], known[-1]] if known else None)
        else:
            status, data, text = answer(message, version, frame[6 + size :])
        body = bytes([status]) + len(data).to_bytes(4, "big") + data + text.encode()
        target.write(len(body).to_bytes(4, "big") + body)
        target.flush()


if __name__ == "__main__":
    main()
