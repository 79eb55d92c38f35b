"""Format of the log, and the limit of repeated lines."""

import io
import json
import logging

import pytest

from ottla.observability.logs import REPEATS, JsonFormatter, RepeatLimit, TextFormatter


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
