"""Records of Kafka's internal topics as JSON, in the format of its tools.

a message     field names in camelCase, bytes in base64, uuids in base64url; tagged fields unless they have their default
a record      key {"type": "1", "data": ...} and payload {"version": "4", "data": ...}, both as text; console consumers
              write {"key": {"type": 1, "data": ...}, "value": {"version": 4, "data": ...}} and leave blobs as they are
metadata      {"type": "TOPIC_RECORD", "version": 0, "data": ...}
"""

import base64
import json
import re
from collections.abc import Callable
from typing import Any, Final

from ottla.coordinators.groups.classic.embedded import decode_assignment, decode_subscription
from ottla.protocol.codec import decode
from ottla.protocol.messages import control_records, metadata_records
from ottla.protocol.messages.group_metadata_record import GroupMetadataValue
from ottla.protocol.schema import Array, Message, Struct, Uuid
from ottla.protocol.uuids import uuid_text
from ottla.protocol.wire import PeerError, read_uvarint

KeyAndPayload = tuple[str | None, str | None]
"""Printed key and payload."""
_DELETED: Final = "<DELETE>"
_CONTROL: Final[dict[int, tuple[str, type[Message]]]] = {
    2: ("LeaderChange:", control_records.LeaderChangeMessage),
    3: ("SnapshotHeader", control_records.SnapshotHeaderRecord),
    4: ("SnapshotFooter", control_records.SnapshotFooterRecord),
    5: ("KRaftVersion", control_records.KRaftVersionRecord),
    6: ("KRaftVoters", control_records.VotersRecord),
}
_METADATA: Final[dict[int, type[Message]]] = {
    record.API: record
    for record in vars(metadata_records).values()
    if isinstance(record, type) and issubclass(record, Message) and record is not Message
}


def compact(value: Any) -> str:
    """Return a value as one line of JSON."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def message_json(message: Struct, version: int) -> dict[str, Any]:
    """Return the fields of a message in a version."""
    fields = {}
    for field in type(message).FIELDS:
        value = getattr(message, field.name)
        if version not in field.versions:
            continue
        if version in field.tagged and value == field.default_value():
            continue
        fields[_camel(field.name)] = _value(value, field.type, version)
    return fields


def _camel(name: str) -> str:
    return re.sub(r"_(\w)", lambda matched: matched[1].upper(), name)


def _value(value: Any, kind: Any, version: int) -> Any:
    if value is None:
        return None
    if isinstance(kind, Array):
        return [_value(element, kind.element, version) for element in value]
    if isinstance(value, Struct):
        return message_json(value, version)
    if kind is Uuid:
        return uuid_text(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    return value


# -- internal topics --


def offsets(key: bytes, value: bytes | None, offset: int) -> KeyAndPayload:
    """Return key and payload of a record of __consumer_offsets at `offset`, which errors name."""
    from ottla.coordinators.groups.records import decode_record

    return _texts(decode_record, key, value, offset)


def transactions(key: bytes, value: bytes | None, offset: int) -> KeyAndPayload:
    """Return key and payload of a record of __transaction_state at `offset`, which errors name."""
    from ottla.coordinators.transactions.state import decode_record

    return _texts(decode_record, key, value, offset)


def share_state(key: bytes, value: bytes | None, offset: int) -> KeyAndPayload:
    """Return key and payload of a record of __share_group_state at `offset`, which errors name."""
    from ottla.coordinators.share.records import decode_record

    return _texts(decode_record, key, value, offset)


def whole(read: Callable[[bytes, bytes | None], Any], key: bytes, value: bytes | None) -> tuple[int, Any] | None:
    """Return the type of a record and its document for the console consumers' formatters; None for an unknown type.

    Raises ValueError for malformed bytes and unknown versions of a value.
    """
    if len(key) < 2:
        raise ValueError("a key without a type")
    kind = int.from_bytes(key[:2], "big", signed=True)
    record = read(key, value)
    if record is None:
        if value is not None and read(key, None) is not None:
            raise ValueError(f"version {int.from_bytes(value[:2], 'big', signed=True)} of its value is not known")
        return None
    document: dict[str, Any] = {"key": {"type": kind, "data": message_json(record.key, 0)}, "value": None}
    if record.value is not None:
        document["value"] = {"version": record.version, "data": message_json(record.value, record.version)}
    return kind, document


def _texts(read: Callable[[bytes, bytes | None], Any], key: bytes, value: bytes | None, offset: int) -> KeyAndPayload:
    kind = int.from_bytes(key[:2], "big", signed=True)
    try:
        record = read(key, value)
    except PeerError as error:
        return f"Error at offset {offset}, skipping. {error}", None
    if record is None:
        return f"Unknown record type {kind} at offset {offset}, skipping.", None
    key_text = compact({"type": str(kind), "data": message_json(record.key, 0)})
    if record.value is None:
        return key_text, _DELETED
    data = message_json(record.value, record.version)
    if isinstance(record.value, GroupMetadataValue):
        _decode_members(record.value, data)
    return key_text, compact({"version": str(record.version), "data": data})


def _decode_members(value: GroupMetadataValue, data: dict[str, Any]) -> None:
    """Decode the subscription and the assignment of each consumer in a classic group."""
    if value.protocol_type != "consumer":
        return
    for member, shown in zip(value.members, data["members"], strict=True):
        for name, blob, read in (
            ("subscription", member.subscription, decode_subscription),
            ("assignment", member.assignment, decode_assignment),
        ):
            try:
                shown[name] = message_json(read(blob), min(int.from_bytes(blob[:2], "big"), 3))
            except PeerError:
                continue


# -- metadata --


def metadata(value: bytes, offset: int) -> str:
    """Return a record of __cluster_metadata at `offset`, which errors name; the data of an unknown type is in base64."""
    try:
        _, position = read_uvarint(value, 0)
        kind, position = read_uvarint(value, position)
        version, position = read_uvarint(value, position)
        cls = _METADATA.get(kind)
        if cls is None or version not in cls.VERSIONS:
            name = f"UNKNOWN_{kind}" if cls is None else _name(cls)
            data: Any = base64.b64encode(value[position:]).decode()
        else:
            name = _name(cls)
            data = message_json(decode(cls, version, value, position)[0], version)
    except (PeerError, IndexError) as error:
        return f"Error at {offset}, skipping. {error}"
    return compact({"type": name, "version": version, "data": data})


def _name(cls: type[Message]) -> str:
    """Return the name of a record type: FEATURE_LEVEL_RECORD for FeatureLevelRecord."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).upper()


def control(kind: int, value: bytes | None) -> str:
    """Return the text of a control record of the metadata log."""
    if kind not in _CONTROL or value is None:
        return f"controlType: {kind}"
    title, cls = _CONTROL[kind]
    version = int.from_bytes(value[:2], "big", signed=True)
    try:
        message, _ = decode(cls, min(version, cls.VERSIONS.last), value, 0)
    except PeerError as error:
        return f"{title} cannot be read: {error}"
    return f"{title} {compact(message_json(message, version))}"
