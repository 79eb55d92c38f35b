"""Parser of input lines: Kafka's LineMessageReader, with its properties.

parse.headers=true, parse.key=true:   h1:v1,h2:v2 <tab> key <tab> value
"""

import itertools
from collections.abc import Mapping
from typing import NamedTuple

from ottla.records.record import Header


class Parsed(NamedTuple):
    """Key, value and headers of a line."""

    key: bytes | None
    value: bytes | None
    headers: list[Header]


class LineReader:
    """Parser configured by properties."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._keys = _flag(properties, "parse.key")
        self._headers = _flag(properties, "parse.headers")
        self._lenient = _flag(properties, "ignore.error")
        self._key_separator = properties.get("key.separator", "\t").encode()
        self._headers_delimiter = properties.get("headers.delimiter", "\t").encode()
        self._headers_separator = properties.get("headers.separator", ",").encode()
        self._header_separator = properties.get("headers.key.separator", ":").encode()
        marker = properties.get("null.marker")
        self._null = None if marker is None else marker.encode()
        separators = {
            "headers.delimiter": self._headers_delimiter,
            "headers.separator": self._headers_separator,
            "headers.key.separator": self._header_separator,
        }
        equal = [pair for pair in itertools.combinations(separators, 2) if separators[pair[0]] == separators[pair[1]]]
        separators["key.separator"] = self._key_separator
        equal += [("null.marker", name) for name, text in separators.items() if text == self._null]
        if equal:
            raise ValueError(f"{equal[0][0]} and {equal[0][1]} may not be equal")

    def parse(self, line: bytes, number: int) -> Parsed:
        """Parse a line without its line end; `number` counts from 1. Raises ValueError for a missing separator."""
        rest = line
        headers: list[Header] = []
        if self._headers:
            headers_text, rest = self._split(rest, self._headers_delimiter, number, line, "headers delimiter")
            headers = self._parse_headers(headers_text, number, line) if headers_text is not None else []
        key: bytes | None = None
        if self._keys:
            key, rest = self._split(rest, self._key_separator, number, line, "key separator")
        return Parsed(self._or_null(key), self._or_null(rest), headers)

    def _or_null(self, content: bytes | None) -> bytes | None:
        return None if content == self._null else content

    def _split(self, text: bytes, separator: bytes, number: int, line: bytes, what: str) -> tuple[bytes | None, bytes]:
        before, separator_seen, after = _partition(text, separator)
        if separator_seen:
            return before, after
        if self._lenient:
            return None, text
        raise ValueError(f"No {what} found on line number {number}: '{line.decode('utf-8', 'replace')}'")

    def _header_texts(self, text: bytes) -> list[bytes]:
        """Split as Java does: texts at the end that are empty are left out."""
        parts = text.split(self._headers_separator) if self._headers_separator else [text]
        while len(parts) > 1 and not parts[-1]:
            parts.pop()
        return [] if text and parts == [b""] else parts

    def _parse_headers(self, text: bytes, number: int, line: bytes) -> list[Header]:
        if self._null is not None and text == self._null:
            return []
        headers: list[Header] = []
        for part in self._header_texts(text):
            name, separator_seen, content = _partition(part, self._header_separator)
            if not separator_seen and not self._lenient:
                raise ValueError(
                    f"No header key separator found in pair '{part.decode('utf-8', 'replace')}' on line number {number}"
                )
            if self._null is not None and name == self._null:
                raise ValueError(
                    f"Header keys should not be equal to the null marker on line number {number}: "
                    f"'{line.decode('utf-8', 'replace')}'"
                )
            headers.append((name.decode("utf-8", "replace"), self._or_null(content) if separator_seen else None))
        return headers


def _partition(text: bytes, separator: bytes) -> tuple[bytes, bool, bytes]:
    """Return what is before a separator, whether there is one, and what is after it; an empty one is found at the beginning."""
    if not separator:
        return b"", True, text
    before, matched, after = text.partition(separator)
    return before, bool(matched), after


def _flag(properties: Mapping[str, str], name: str) -> bool:
    return properties.get(name, "false").strip().lower() == "true"
