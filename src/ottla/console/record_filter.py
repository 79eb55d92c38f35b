"""Filters of messages by key, value, header and JSON condition; all must hold."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.console.json_path import InvalidCondition, JsonCondition
from ottla.console.problem import Problem
from ottla.console.regexes import InvalidRegex, compiled
from ottla.records.record import Record


class FilterTexts(NamedTuple):
    """Filters as they stand in a form; "" is no filter.

    key, value, header  text that must occur; headers as NAME=VALUE
    json                condition on the value
    is_regex            key, value and header are regular expressions
    """

    key: str = ""
    value: str = ""
    header: str = ""
    json: str = ""
    is_regex: bool = False


def _matcher(text: str, *, is_regex: bool) -> Callable[[bytes | None], bool]:
    if not is_regex:
        data = text.encode()
        return lambda content: content is not None and data in content
    pattern = compiled(text)
    return lambda content: content is not None and pattern.search(content.decode("utf-8", "replace")) is not None


class RecordFilter:
    """Filter of records."""

    def __init__(self, texts: FilterTexts) -> None:
        """Compile the filters. Raises Problem."""
        self._checks: list[Callable[[Record], bool]] = []
        try:
            if texts.key:
                matches_key = _matcher(texts.key, is_regex=texts.is_regex)
                self._checks.append(lambda record: matches_key(record.key))
            if texts.header:
                matches_header = _matcher(texts.header, is_regex=texts.is_regex)
                self._checks.append(
                    lambda record: any(
                        matches_header(name.encode() + b"=" + (value or b"")) for name, value in record.headers
                    )
                )
            if texts.value:
                matches_value = _matcher(texts.value, is_regex=texts.is_regex)
                self._checks.append(lambda record: matches_value(record.value))
            if texts.json:
                condition = JsonCondition(texts.json)
                self._checks.append(lambda record: _meets(condition, record.value))
        except InvalidRegex as error:
            raise Problem(f"The regular expression is not valid (RE2): {error}.") from None
        except InvalidCondition as error:
            raise Problem(f"Not understood: {error}.") from None

    def __bool__(self) -> bool:
        return bool(self._checks)

    def __call__(self, record: Record) -> bool:
        """Return whether a record passes all filters."""
        return all(check(record) for check in self._checks)


def _meets(condition: JsonCondition, value: bytes | None) -> bool:
    document: Any
    try:
        document = json.loads(value or b"")
    except (ValueError, RecursionError):
        return False
    return condition(document)
