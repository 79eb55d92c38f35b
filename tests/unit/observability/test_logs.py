"""Format of the log, and the limit of repeated lines."""

import io
import json
import logging
import sys
from unicodedata import category

import pytest

from ottla.observability.logs import REPEATS, JsonFormatter, RepeatLimit, TextFormatter, escape


class Log:
    """Logger that writes to a string, at times chosen by a test."""

    def __init__(self, formatter: logging.Formatter) -> None:
        self.stream = io.StringIO()
        self.handler = logging.StreamHandler(self.stream)
        self.handler.setFormatter(formatter)
        self.handler.addFilter(RepeatLimit())
        self.now = 1_700_000_000.25

    def write(self, level: int, message: str, *args: object, line: int = 1, **extra: object) -> None:
        record = logging.LogRecord("ottla.broker", level, "file.py", line, message, args, None)
        record.created = self.now
        for name, value in extra.items():
            setattr(record, name, value)
        self.handler.handle(record)

    @property
    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()


@pytest.fixture
def log() -> Log:
    return Log(TextFormatter())


def test_a_json_line_has_the_fields_of_the_record() -> None:
    log = Log(JsonFormatter(7))
    log.write(logging.INFO, "topic %s\ncreated", "a", principal="User:alice", listener="SSL", client_id=None)
    (line,) = log.lines
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "INFO",
        "logger": "ottla.broker",
        "node_id": 7,
        "message": "topic a\ncreated",
        "listener": "SSL",
        "principal": "User:alice",
    }


def test_a_json_line_has_the_traceback_of_an_exception() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter(1))
    logger = logging.Logger("x")
    logger.addHandler(handler)
    try:
        raise ValueError("wrong")
    except ValueError:
        logger.exception("failed")
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line)["exception"].endswith("ValueError: wrong")


def test_a_client_cannot_begin_a_line(log: Log) -> None:
    log.write(logging.WARNING, "client %s", "a\r\n2026-01-01 INFO all is well")
    (line,) = log.lines
    assert line.endswith(r"client a\r\n2026-01-01 INFO all is well")


DANGEROUS = [
    chr(number) for number in range(sys.maxunicode + 1) if category(chr(number)) in ("Cc", "Cf", "Zl", "Zp", "Cs")
]


def test_every_control_character_is_escaped() -> None:
    """ESC, NUL, C1, U+0085, U+2028 and the like act on a terminal or begin a line; bidi overrides change what is seen."""
    assert {"\x1b", "\0", "\x7f", "\x85", "\x9b", "\u2028", "\u202e", "\u2066", "\ufeff", "\ud800"} <= set(DANGEROUS)
    shown = escape("".join(DANGEROUS))
    assert shown.isascii()
    assert shown.isprintable()
    harmless = "".join(chr(number) for number in range(sys.maxunicode + 1) if category(chr(number))[0] in "LMNPS")
    assert escape(harmless) == harmless


@pytest.mark.parametrize(
    "character", ["\x1b", "\0", "\x85", "\x9b", "\u2028", "\u2029", "\u202e", "\u2066", "\x0b", "\ud800", "\U000e0041"]
)
def test_no_control_character_of_a_client_gets_into_the_log(character: str) -> None:
    """As text and as JSON: in the message, in fields, in the text of an exception, and in names of a traceback."""
    for formatter in (TextFormatter(), JsonFormatter(1)):
        log = Log(formatter)
        log.write(logging.WARNING, "client %s", f"a{character}b", client_id=f"c{character}d")
        try:
            raise ValueError(f"e{character}f\ng{character}h")
        except ValueError:
            record = logging.LogRecord(
                "x", logging.ERROR, "f", 9, f"m{character}n", (), sys.exc_info(), sinfo=f"s{character}t"
            )
            log.handler.handle(record)
        text = log.stream.getvalue()
        assert character not in text
        text.encode()
        if isinstance(formatter, JsonFormatter):
            first, second = map(json.loads, text.splitlines())
            assert (first["message"], first["client_id"]) == (f"client a{character}b", f"c{character}d")
            assert f"e{character}f" in second["exception"]
        else:
            lines = text.splitlines()
            assert all(line.startswith("    ") for line in lines[2:])
            assert len(lines) > 4


def test_one_client_does_not_keep_the_lines_of_others_out(log: Log) -> None:
    for _ in range(500):
        log.write(logging.WARNING, "closing %s", "x", client_host="/10.0.0.1")
    assert len(log.lines) == 10
    log.write(logging.WARNING, "closing %s", "y", client_host="/10.0.0.2")
    assert len(log.lines) == 11
    for number in range(500):
        log.write(logging.WARNING, "closing %s", "z", client_host=f"/10.0.1.{number}")
    assert len(log.lines) == 50


def test_repeated_warnings_of_one_place_are_dropped_for_a_time(log: Log) -> None:
    for _ in range(500):
        log.write(logging.WARNING, "closing %s", "x")
        log.now += 0.01
    assert len(log.lines) == 10
    log.write(logging.WARNING, "another place", line=2)
    assert len(log.lines) == 11
    log.now += 10
    log.write(logging.WARNING, "closing %s", "y")
    assert log.lines[-1].endswith("closing y (and 490 lines like this in the time before)")


def test_lines_below_warning_are_kept_unless_they_may_repeat(log: Log) -> None:
    for _ in range(50):
        log.write(logging.INFO, "topic created")
    assert len(log.lines) == 50
    for _ in range(50):
        log.write(logging.INFO, "rejected", line=2, **REPEATS)
    assert len(log.lines) == 60


def test_rare_warnings_are_all_written(log: Log) -> None:
    for _ in range(30):
        log.write(logging.WARNING, "once in a while")
        log.now += 11
    assert len(log.lines) == 30
    assert not any("lines like this" in line for line in log.lines)
