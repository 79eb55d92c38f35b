"""Loggers of this process and their levels, by the names of Kafka's tools (KIP-412), and the format of the log."""

import json
import logging
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
_QUIET_S: Final = 10.0
_MOST_PLACES: Final = 1000


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
        return json.dumps(fields, ensure_ascii=False, default=str)


class TextFormatter(logging.Formatter):
    """Formats a record as one line of text; the lines of a traceback follow, indented."""

    def __init__(self) -> None:
        super().__init__(_TEXT)

    def format(self, record: logging.LogRecord) -> str:
        """Return the text. Line breaks in a message are escaped: clients choose parts of it."""
        first, *traceback = super().format(record).split("\n") if record.exc_info else (super().format(record),)
        return "\n    ".join((first.replace("\r", r"\r").replace("\n", r"\n"), *traceback))


class RepeatLimit(logging.Filter):
    """Limits how often one place in the code writes warnings and errors, and other records with REPEATS.

    After _AT_ONCE lines within _QUIET_S the following ones are dropped until that time is over; the next line then has their
    number at its end.
    """

    def __init__(self) -> None:
        super().__init__()
        self._places: dict[tuple[str, int], list[float]] = {}
        """Begin of the time, lines in it, and dropped lines, by file and line number."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True if the record is written."""
        if record.levelno < logging.WARNING and not getattr(record, "repeats", False):
            return True
        place = record.pathname, record.lineno
        state = self._places.get(place)
        if state is None or record.created - state[0] >= _QUIET_S:
            if len(self._places) >= _MOST_PLACES:
                self._places.clear()
            dropped = 0 if state is None else int(state[2])
            self._places[place] = [record.created, 1, 0]
            if dropped:
                record.msg = f"{record.getMessage()} (and {dropped} lines like this in the time before)"
                record.args = None
            return True
        state[1] += 1
        if state[1] <= _AT_ONCE:
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
