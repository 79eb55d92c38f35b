"""Loggers of this process and their levels, by the names of Kafka's tools (KIP-412), and the format of the log."""

import json
import logging
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, TextIO

ROOT: Final = "root"
LEVELS: Final[Mapping[str, int]] = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": 5,
    "WARN": logging.WARNING,
}
_OWN: Final = "ottla"


def levels() -> dict[str, str]:
    """Return the effective levels of the root logger and of Ottla's loggers, by name."""
    names = sorted(name for name in logging.root.manager.loggerDict if name == _OWN or name.startswith(f"{_OWN}."))
    by_name = {ROOT: _level_name(logging.root)}
    by_name.update((name, _level_name(logging.getLogger(name))) for name in names)
    return by_name


def _level_name(logger: logging.Logger) -> str:
    level = logger.getEffectiveLevel()
    return min(LEVELS, key=lambda name: abs(LEVELS[name] - level))


def set_level(name: str, level: str | None) -> None:
    """Set the level of a logger to one of LEVELS, or to that of its parent (None)."""
    logger = logging.root if name == ROOT else logging.getLogger(name)
    logger.setLevel(logging.NOTSET if level is None else LEVELS[level])


_TEXT: Final = "%(asctime)s %(levelname)s %(message)s"
CONTEXT: Final = ("listener", "principal", "client_id", "client_host")
"""Attributes of records about a request or a connection, set by `extra`."""
REPEATS: Final[Mapping[str, object]] = {"repeats": True}
"""`extra` of a record below WARNING that may be repeated often: see `RepeatLimit`."""
_AT_ONCE: Final = 10
_AT_ONCE_ALL: Final = 50
"""Lines of one place about all clients together."""
_QUIET_S: Final = 10.0
_MOST_PLACES: Final = 1000


_CONTROL: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2064"
    r"\u2066-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    r"\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f]"
)
"""Control and formatting characters, line and paragraph separators, and surrogates: Cc, Cf, Zl, Zp and Cs of Unicode."""


def _json_escape(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1]


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object in one line.

    node_id  node id of the broker
    """

    def __init__(self, node_id: int) -> None:
        super().__init__()
        self._node_id = node_id

    def format(self, record: logging.LogRecord) -> str:
        """Return the line: time, level, logger, node id and message, and what the record has of CONTEXT and an exception."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        fields: dict[str, object] = {
            "time": time,
            "level": record.levelname,
            "logger": record.name,
            "node_id": self._node_id,
            "message": record.getMessage(),
        }
        fields.update((name, value) for name in CONTEXT if (value := getattr(record, name, None)) is not None)
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return _CONTROL.sub(_json_escape, json.dumps(fields, ensure_ascii=False, default=str))


def escape(text: str) -> str:
    """Return a text with its control characters escaped, as in a string of Python: clients choose parts of the log.

    Those are what a terminal acts on, ends a line, or shows in another order or not at all: C0, C1 and DEL, U+2028 and U+2029,
    all formatting characters, among them those for bidirectional text, and lone surrogates.
    """
    return _CONTROL.sub(_escape, text) if not (text.isascii() and text.isprintable()) else text


def _escape(match: re.Match[str]) -> str:
    return ascii(match[0])[1:-1]


class TextFormatter(logging.Formatter):
    """Formats a record as one line of text; the lines of a traceback follow, indented."""

    def __init__(self) -> None:
        super().__init__(_TEXT)

    def format(self, record: logging.LogRecord) -> str:
        """Return the text, escaped."""
        record.message = record.getMessage()
        record.asctime = self.formatTime(record)
        lines = [escape(self.formatMessage(record))]
        if record.exc_info:
            lines += map(escape, self.formatException(record.exc_info).split("\n"))
        if record.stack_info:
            lines += map(escape, record.stack_info.split("\n"))
        return "\n    ".join(lines)


class RepeatLimit(logging.Filter):
    """Limits how often one place in the code writes warnings and errors, and other records with REPEATS.

    After _AT_ONCE lines within _QUIET_S the following ones are dropped until that time is over; the next line then has their
    number at its end. Lines about a client count for its address: those of one client do not keep out those of others, whose
    sum is limited too.
    """

    def __init__(self) -> None:
        super().__init__()
        self._places: dict[tuple[str, int, str], list[float]] = {}
        """Begin of the time, lines in it, and dropped lines, by file, line number and address."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True if the record is written."""
        if record.levelno < logging.WARNING and not getattr(record, "repeats", False):
            return True
        address = getattr(record, "client_host", None)
        if address is None:
            return self._passes(record, "", _AT_ONCE)
        return self._passes(record, str(address), _AT_ONCE) and self._passes(record, "", _AT_ONCE_ALL)

    def _passes(self, record: logging.LogRecord, address: str, at_once: int) -> bool:
        place = record.pathname, record.lineno, address
        state = self._places.get(place)
        if state is None or record.created - state[0] >= _QUIET_S:
            self._places.pop(place, None)
            while len(self._places) >= _MOST_PLACES:
                del self._places[next(iter(self._places))]
            dropped = 0 if state is None else int(state[2])
            self._places[place] = [record.created, 1, 0]
            if dropped:
                record.msg = f"{record.getMessage()} (and {dropped} lines like this in the time before)"
                record.args = None
            return True
        state[1] += 1
        if state[1] <= at_once:
            return True
        state[2] += 1
        return False


def configure(level: str, stream: TextIO) -> logging.Handler:
    """Write the log to `stream` as text, unless logging is configured already; returns the handler, whose formatter may be
    replaced.
    """
    handler = logging.StreamHandler(stream)
    handler.setFormatter(TextFormatter())
    handler.addFilter(RepeatLimit())
    logging.basicConfig(level=level.upper(), handlers=[handler])
    return handler
