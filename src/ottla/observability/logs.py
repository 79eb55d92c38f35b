"""Loggers of this process and their levels, by the names of Kafka's tools (KIP-412)."""

import logging
from collections.abc import Mapping
from typing import Final

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
