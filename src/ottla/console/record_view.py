"""Keys, values and headers of messages as text: JSON, text, hex, or decoded records of internal topics."""

import logging
import unicodedata
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from ottla.console.indented_json import indent_json
from ottla.console.settings import InternalRecord, RegistryText
from ottla.records.record import Record

T = TypeVar("T")
logger = logging.getLogger("ottla.console")

FORMATS: Final = ("auto", "json", "text", "hex")
SHOWN: Final = 4_000
"""Number of characters of a value in a list; the page of a record has all."""

_FOLDED: Final = 600
_FOLDED_LINES: Final = 10
"""Characters and lines of a value from which a list shows the first seven lines of it."""


class Shown(NamedTuple):
    """Text of a key or value.

    kind    "null", "json", "text", "hex", "record" (of an internal topic) or "schema" (of a registry)
    length  number of bytes, None for null
    is_cut  text continues
    """

    text: str
    kind: str
    length: int | None
    is_cut: bool = False

    @property
    def is_long(self) -> bool:
        """True if a list shows the first lines only, until the value is opened."""
        return self.is_cut or len(self.text) > _FOLDED or self.text.count("\n") >= _FOLDED_LINES


class RecordView(NamedTuple):
    """A record as it is shown."""

    partition: int
    offset: int
    timestamp: int
    key: Shown
    value: Shown
    headers: list[tuple[str, Shown]]

    def document(self) -> dict[str, Any]:
        """Return the record as a JSON object."""
        return {
            "partition": self.partition,
            "offset": self.offset,
            "timestamp": self.timestamp,
            "key": self.key._asdict(),
            "value": {**self.value._asdict(), "is_long": self.value.is_long},
            "headers": [[name, shown.text] for name, shown in self.headers],
        }


class Decoders(NamedTuple):
    """Decoders of records of internal topics, and of keys and values with a schema."""

    internal_record: InternalRecord
    registry_text: RegistryText | None


def record_view(record: Record, form: str, decoders: Decoders, limit: int | None = SHOWN) -> RecordView:
    """Return a record as it is shown in a format. Blocks if there is a schema registry."""
    key, value = show(record.key, form, limit), show(record.value, form, limit)
    if form == "auto" and record.key is not None and record.topic.startswith("__"):
        decoded = _attempt(lambda: decoders.internal_record(record), record)
        if decoded is not None:
            key = _cut(indent_json(decoded[0] or "") or "", "record", len(record.key), limit)
            if record.value is not None and decoded[1] is not None:
                value = _cut(indent_json(decoded[1]) or "", "record", len(record.value), limit)
    if form == "auto" and decoders.registry_text is not None:
        key = _with_schema(record, record.key, decoders.registry_text, limit) or key
        value = _with_schema(record, record.value, decoders.registry_text, limit) or value
    headers = [(name, show(content, "auto" if form == "json" else form, 200)) for name, content in record.headers]
    return RecordView(record.partition, record.offset, record.timestamp, key, value, headers)


def _with_schema(record: Record, data: bytes | None, registry_text: RegistryText, limit: int | None) -> Shown | None:
    if data is None:
        return None
    text = _attempt(lambda: registry_text(record.topic, data), record)
    pretty = None if text is None else indent_json(text)
    return None if pretty is None else _cut(pretty, "schema", len(data), limit)


def _attempt(decode: Callable[[], T | None], record: Record) -> T | None:
    """Return a decoded value; None for what a decoder cannot read: one value must not cost the page with all others."""
    try:
        return decode()
    except Exception as error:  # noqa: BLE001  (what libraries raise for bytes that they cannot read)
        logger.debug("%s-%d, offset %d cannot be decoded: %r", record.topic, record.partition, record.offset, error)
        return None


def show(data: bytes | None, form: str, limit: int | None = SHOWN) -> Shown:
    """Return bytes as text in a format: "auto" tries JSON, then text, then hex."""
    if data is None:
        return Shown("null", "null", None)
    size = len(data)
    if form == "hex":
        return _cut(_hex(data, limit), "hex", size, limit)
    try:
        text = data.decode("utf-8", "replace" if form == "text" else "strict")
    except UnicodeDecodeError:
        return _cut(_hex(data, limit), "hex", size, limit)
    if form in ("auto", "json") and text[:1] in ("{", "["):
        pretty = indent_json(text)
        if pretty is not None:
            return _cut(pretty, "json", size, limit)
    if form == "auto" and any(
        unicodedata.category(letter) == "Cc" and letter not in "\t\r\n" for letter in text[:1000]
    ):
        return _cut(_hex(data, limit), "hex", size, limit)
    return _cut(text, "text", size, limit)


def _hex(data: bytes, limit: int | None) -> str:
    """Return a hex dump with offsets and printable characters."""
    lines = []
    for start in range(0, len(data) if limit is None else min(len(data), limit // 4), 16):
        row = data[start : start + 16]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start:06x}  {row.hex(' '):<47}  {letters}")
    return "\n".join(lines)


def _cut(text: str, kind: str, length: int, limit: int | None) -> Shown:
    text = text.encode("utf-8", "backslashreplace").decode()  # a lone surrogate cannot be sent
    is_cut = limit is not None and (len(text) > limit or (kind == "hex" and length > limit // 4))
    return Shown(text[:limit] if is_cut else text, kind, length, is_cut)
