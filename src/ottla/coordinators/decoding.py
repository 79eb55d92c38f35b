"""Decoding of records of internal topics: the key begins with the type of the record, the value with its version, as int16."""

from collections.abc import Callable, Mapping
from typing import Any

from ottla.coordinators.records import CoordinatorRecord
from ottla.protocol.codec import reader
from ottla.protocol.schema import Message

_Reader = Callable[[bytes, int], Any]


def record_decoder(
    messages: Mapping[int, tuple[type[Message], type[Message]]],
) -> Callable[[bytes, bytes | None], CoordinatorRecord | None]:
    """Return a function that decodes the records of one topic.

    messages  key and value by type of record

    The function takes key and value (None for a tombstone). It returns None for a type or version that a newer release wrote,
    and raises PeerError for a malformed record. A restart calls it with every record of the topic, so that readers are cached
    by the encoded bytes of type and version.
    """
    keys: dict[bytes, _Reader] = {}
    readers: dict[bytes, tuple[_Reader, _Reader, int]] = {}

    def key_reader(kind: bytes) -> _Reader | None:
        declared = messages.get(int.from_bytes(kind, "big", signed=True))
        if declared is None:
            return None
        read = keys[kind] = reader(declared[0], 0)
        return read

    def readers_of(kind: bytes, written: bytes) -> tuple[_Reader, _Reader, int] | None:
        read_key = keys.get(kind) or key_reader(kind)
        if read_key is None:
            return None
        message = messages[int.from_bytes(kind, "big", signed=True)][1]
        version = int.from_bytes(written, "big", signed=True)
        if version not in message.VERSIONS:
            return None
        cached = readers[kind + written] = read_key, reader(message, version), version
        return cached

    def decode(key: bytes, value: bytes | None) -> CoordinatorRecord | None:
        if value is None:
            read = keys.get(key[:2]) or key_reader(key[:2])
            return None if read is None else CoordinatorRecord(read(key, 2), None)
        cached = readers.get(key[:2] + value[:2]) or readers_of(key[:2], value[:2])
        if cached is None:
            return None
        read_key, read_value, version = cached
        return CoordinatorRecord(read_key(key, 2), read_value(value, 2), version)

    return decode
